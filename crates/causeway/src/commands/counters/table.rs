//! Samples and recordings as text, in the layout of Performance Monitor's report: counters down, instances across.

use std::io::{self, IsTerminal, Write};

use counters::Snapshot;
use schemars::JsonSchema;
use serde::Serialize;

use super::plot::{chart, spark};
use super::select::Selection;
use super::series::{Series, at};
use crate::failure::Failure;
use crate::output::{Output, printable};

/// The number of instances side by side in one table.
const ACROSS: usize = 4;
/// Characters of an instance's name that are shown.
const NAME_MAX: usize = 44;
const CLEAR: &str = "\x1b[H\x1b[2J";

/// One value, for JSON.
#[derive(JsonSchema, Serialize)]
pub(in crate::commands) struct Value<'a> {
    path: String,
    set: &'a str,
    instance: &'a str,
    counter: &'a str,
    value: Option<f64>,
    unit: &'a str,
}

#[derive(JsonSchema, Serialize)]
pub(in crate::commands) struct Sample<'a> {
    unix_ms: u64,
    /// The interval of rates and averages.
    interval_s: f64,
    counters: Vec<Value<'a>>,
}

/// Prints the values between two snapshots.
pub(super) fn sample(
    selection: &Selection,
    before: &Snapshot,
    snapshot: &Snapshot,
    out: Output,
    again: bool,
) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    if out.json {
        let counters = selection.sets().flat_map(|set| {
            at(set, selection, before, snapshot).map(|(instance, c, value)| Value {
                path: format!("\\{}({instance})\\{}", set.name, c.name),
                set: set.name,
                instance,
                counter: c.name,
                value,
                unit: c.unit,
            })
        });
        let interval_s = snapshot.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        let document = Sample { unix_ms: snapshot.unix_ms, interval_s, counters: counters.collect() };
        // With --watch: one line for each sample.
        if again {
            serde_json::to_writer(&mut stdout, &document).map_err(io::Error::from)?;
        } else {
            serde_json::to_writer_pretty(&mut stdout, &document).map_err(io::Error::from)?;
        }
        return Ok(writeln!(stdout)?);
    }
    let mut text = String::new();
    for set in selection.sets() {
        let values: Vec<_> = at(set, selection, before, snapshot).collect();
        let mut instances: Vec<&str> = values.iter().map(|(i, ..)| *i).collect();
        instances.dedup();
        if instances.is_empty() {
            text += &format!("{}: none now ({})\n\n", set.name, set.instances);
        }
        for group in instances.chunks(ACROSS) {
            let value = |instance: &str, counter: &str| {
                let found = values.iter().find(|(i, c, _)| *i == instance && c.name == counter);
                found.map_or(String::new(), |(_, c, v)| number(*v, c.unit))
            };
            let rows = set
                .counters()
                .filter(|c| selection.has(set, None, c))
                .map(|c| (label(c.name, c.unit), group.iter().map(|i| value(i, c.name)).collect()));
            let heads: Vec<String> = group.iter().map(|i| short(i)).collect();
            text += &report(set.name, &heads, &rows.collect::<Vec<_>>());
        }
    }
    let clear = if again && stdout.is_terminal() { CLEAR } else { "" };
    let time = crate::output::human_time((snapshot.unix_ms / 1000) as i64);
    Ok(write!(stdout, "{clear}{time} UTC\n\n{text}")?)
}

/// Prints a recording: minimum, mean, maximum and a chart of each series.
pub(super) fn recording(series: &[Series], draw: bool, out: Output) -> Result<(), Failure> {
    if out.json {
        return Ok(out.document(&series)?);
    }
    let mut stdout = io::stdout().lock();
    let mut groups: Vec<&[Series]> =
        series.chunk_by(|a, b| a.set == b.set && a.instance == b.instance).collect();
    groups.retain(|g| g.iter().any(|s| s.range().is_some()));
    for group in groups {
        let title = format!("{}({})", group[0].set, printable(&group[0].instance));
        if draw {
            writeln!(stdout, "{title}\n")?;
            for s in group {
                // Constant series are not drawn.
                if s.range().is_some_and(|(least, _, most)| least != 0.0 || most != 0.0) {
                    writeln!(stdout, "{}\n{}", label(&s.counter, &s.unit), chart(s))?;
                }
            }
            continue;
        }
        let rows = group.iter().filter_map(|s| {
            let (least, mean, most) = s.range()?;
            let cells = [least, mean, most].map(|v| number(Some(v), &s.unit));
            Some((label(&s.counter, &s.unit), [cells.to_vec(), vec![spark(s)]].concat()))
        });
        let heads = ["minimum", "average", "maximum", "over time"].map(str::to_owned);
        write!(stdout, "{}", report(&title, &heads, &rows.collect::<Vec<_>>()))?;
    }
    Ok(())
}

#[derive(JsonSchema, Serialize)]
pub(in crate::commands) struct Definition {
    set: &'static str,
    instances: &'static str,
    counter: &'static str,
    kind: &'static str,
    unit: &'static str,
    definition: &'static str,
    prometheus: Vec<String>,
}

/// Prints what each counter means.
pub(super) fn definitions(selection: &Selection, out: Output) -> Result<(), Failure> {
    let of = |set: &'static counters::Set| {
        set.counters().filter(|c| selection.has(set, None, c)).map(|c| Definition {
            set: set.name,
            instances: set.instances,
            counter: c.name,
            kind: c.formula.kind(),
            unit: c.unit,
            definition: c.definition,
            prometheus: c.formula.metrics().filter_map(|m| set.metric(m)).map(|m| set.exposed(m)).collect(),
        })
    };
    if out.json {
        return Ok(out.document(&selection.sets().flat_map(of).collect::<Vec<_>>())?);
    }
    let mut stdout = io::stdout().lock();
    for set in selection.sets() {
        writeln!(stdout, "{}\n  one instance for {}\n", set.name, set.instances)?;
        for d in of(set) {
            let unit = if d.unit.is_empty() { String::new() } else { format!(", {}", d.unit) };
            writeln!(
                stdout,
                "  {} ({}{unit})\n      {}\n      {}",
                d.counter,
                d.kind,
                d.definition,
                d.prometheus.join(" + ")
            )?;
        }
        for (name, why) in set.absent {
            writeln!(stdout, "  {name}: not available, {why}")?;
        }
        writeln!(stdout)?;
    }
    Ok(())
}

fn label(counter: &str, unit: &str) -> String {
    // The name of a rate contains its unit; others get it in brackets.
    match unit {
        "B" | "s" => format!("{counter} ({unit})"),
        _ => counter.to_owned(),
    }
}

fn short(instance: &str) -> String {
    let name = printable(instance);
    if name.chars().count() <= NAME_MAX {
        name
    } else {
        name.chars().take(NAME_MAX - 1).chain(['…']).collect()
    }
}

/// Rows of cells under headings; all but the first column are aligned to the right.
fn report(title: &str, heads: &[String], rows: &[(String, Vec<String>)]) -> String {
    let wide = |text: &str| text.chars().count();
    let first = rows.iter().map(|(l, _)| wide(l)).chain([wide(title)]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len())
        .map(|i| {
            rows.iter().filter_map(|(_, c)| c.get(i)).chain([&heads[i]]).map(|t| wide(t)).max().unwrap_or(0)
        })
        .collect();
    let line = |label: &str, cells: &[String]| {
        let cells: String = cells.iter().zip(&widths).map(|(c, w)| format!("  {c:>w$}")).collect();
        format!("{label:<first$}{cells}").trim_end().to_owned() + "\n"
    };
    let mut text = line(title, heads);
    text += &("-".repeat(first + widths.iter().map(|w| w + 2).sum::<usize>()) + "\n");
    rows.iter().for_each(|(label, cells)| text += &line(label, cells));
    text + "\n"
}

/// A value as text: seconds with six decimals, large numbers without decimals; empty for `None`.
fn number(value: Option<f64>, unit: &str) -> String {
    match value {
        None => String::new(),
        Some(v) if unit == "s" => format!("{v:.6}"),
        Some(v) if v == v.trunc() || v.abs() >= 1000.0 => format!("{v:.0}"),
        Some(v) => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (value, unit, text) in [
            (None, "s", ""),
            (Some(0.000_123), "s", "0.000123"),
            (Some(0.0), "1/s", "0"),
            (Some(12.0), "", "12"),
            (Some(0.66), "", "0.660"),
            (Some(123_456.7), "B/s", "123457"),
        ] {
            assert_eq!(number(value, unit), text);
        }
    }

    #[test]
    fn a_report_is_aligned() {
        let rows = vec![
            ("a".to_owned(), vec!["1".to_owned(), String::new()]),
            ("bcd".to_owned(), vec!["22".to_owned(), "3".to_owned()]),
        ];
        let text = report("Set", &["x".to_owned(), "long".to_owned()], &rows);
        assert_eq!(text, "Set   x  long\n-------------\na     1\nbcd  22     3\n\n");
        assert_eq!(short(&"x".repeat(50)).chars().count(), NAME_MAX);
        assert_eq!(short("a\u{1b}[2J"), "a\u{FFFD}[2J");
    }
}
