//! The layout of typeperf and relog: the first line has `"(PDH-CSV 4.0) (UTC)(0)"` and the path of each counter; each
//! further line has the time and the values of a sample in quotation marks, `" "` for a missing value.
//!
//! The columns are those of the first snapshot. That snapshot has no line, because rates need two snapshots.

use std::io::{self, BufRead, Write};

use counters::{Snapshot, find, sample};

use super::recording::bad;
use super::select::{Selection, path};
use super::series::{Series, at};
use crate::output::human_time;

const TITLE: &str = "(PDH-CSV 4.0) (UTC)(0)";
/// The maximum number of columns of a file that is read.
const COLUMNS_MAX: usize = 1 << 20;

pub(super) struct Writer<'a> {
    selection: &'a Selection,
    columns: Vec<(&'static counters::Set, String, &'static counters::Counter)>,
    before: Option<Snapshot>,
    late: Vec<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(selection: &'a Selection) -> Writer<'a> {
        Writer { selection, columns: Vec::new(), before: None, late: Vec::new() }
    }

    pub(super) fn write(&mut self, out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
        match &self.before {
            None => self.header(out, snapshot)?,
            Some(before) => {
                write!(out, "\"{}\"", time(snapshot.unix_ms))?;
                for (set, instance, counter) in &self.columns {
                    let value = sample::same(snapshot, set, instance).and_then(|new| {
                        let old = sample::same(before, set, instance).map(|o| (before, o));
                        sample::value(set, counter, old, (snapshot, new))
                    });
                    match value {
                        Some(v) => write!(out, ",\"{v}\"")?,
                        None => write!(out, ",\" \"")?,
                    }
                }
                write!(out, "\r\n")?;
                self.note_late(snapshot);
            }
        }
        self.before = Some(snapshot.clone());
        Ok(())
    }

    /// Instances that appeared too late to have a column.
    pub(super) fn late(&self) -> usize {
        self.late.len()
    }

    fn header(&mut self, out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        write!(out, "\"{TITLE}\"")?;
        for set in self.selection.sets() {
            for (instance, counter, _) in at(set, self.selection, snapshot, snapshot) {
                let path = format!("\\\\{host}\\{}({instance})\\{}", set.name, counter.name);
                write!(out, ",\"{}\"", path.replace('"', "\"\""))?;
                self.columns.push((set, instance.to_owned(), counter));
            }
        }
        write!(out, "\r\n")
    }

    fn note_late(&mut self, snapshot: &Snapshot) {
        for set in self.selection.sets() {
            for i in snapshot.of(set).iter().filter(|i| self.selection.has_instance(set, &i.instance)) {
                let known = self.columns.iter().any(|(s, name, _)| s.name == set.name && *name == i.instance);
                let name = format!("{}({})", set.name, i.instance);
                if !known && !self.late.contains(&name) {
                    self.late.push(name);
                }
            }
        }
    }
}

/// Reads a file of this layout; unknown counters are skipped.
pub(super) fn read(file: impl BufRead, selection: &Selection) -> io::Result<Vec<Series>> {
    let mut lines = file.lines().enumerate();
    let Some((_, header)) = lines.next() else { return Ok(Vec::new()) };
    let header = fields(&header?).ok_or_else(|| bad(1, "quotation marks do not match"))?;
    if !header.first().is_some_and(|t| t.starts_with("(PDH-CSV")) || header.len() > COLUMNS_MAX {
        return Err(bad(1, "it does not begin with \"(PDH-CSV"));
    }
    let mut columns: Vec<Option<Series>> = header[1..].iter().map(|p| column(p, selection)).collect();
    for (number, line) in lines {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        let values = fields(&line).ok_or_else(|| bad(number + 1, "quotation marks do not match"))?;
        if values.len() != header.len() {
            return Err(bad(number + 1, "its number of columns differs from that of the first line"));
        }
        let at = parse_time(&values[0])
            .ok_or_else(|| bad(number + 1, "its time is not MM/DD/YYYY HH:MM:SS.mmm"))?;
        for (column, text) in columns.iter_mut().zip(&values[1..]) {
            if let Some(series) = column {
                series.points.push((at, text.trim().parse().ok()));
            }
        }
    }
    Ok(columns.into_iter().flatten().collect())
}

fn column(text: &str, selection: &Selection) -> Option<Series> {
    let (set, instance, counter) = path(text)?;
    let set = find(set).into_iter().find(|s| s.name.eq_ignore_ascii_case(set))?;
    let counter = set.counters().find(|c| c.name.eq_ignore_ascii_case(counter))?;
    let instance = instance.unwrap_or_default();
    selection.has(set, Some(instance), counter).then(|| Series {
        set: set.name.to_owned(),
        instance: instance.to_owned(),
        counter: counter.name.to_owned(),
        unit: counter.unit.to_owned(),
        points: Vec::new(),
    })
}

/// The fields of a line, each in quotation marks; `None` if a quotation mark or a comma is missing.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut out = Vec::new();
    let mut rest = line.trim_end_matches('\r');
    loop {
        let mut field = String::new();
        rest = rest.strip_prefix('"')?;
        loop {
            let (before, after) = rest.split_once('"')?;
            field.push_str(before);
            rest = after;
            match rest.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    rest = more;
                }
                None => break,
            }
        }
        out.push(field);
        if rest.is_empty() {
            return Some(out);
        }
        rest = rest.strip_prefix(',')?;
    }
}

/// `MM/DD/YYYY HH:MM:SS.mmm`, UTC.
fn time(unix_ms: u64) -> String {
    let text = human_time((unix_ms / 1000) as i64);
    let (date, clock) = text.split_once(' ').unwrap_or((&text, ""));
    let (year, day) = date.split_once('-').unwrap_or((date, ""));
    format!("{}/{year} {clock}.{:03}", day.replace('-', "/"), unix_ms % 1000)
}

fn parse_time(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once(' ')?;
    let [month, day, year] = numbers(date, '/')?;
    let (clock, ms) = clock.split_once('.')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let ms: u64 = ms.parse().ok().filter(|n| *n < 1000)?;
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970-01-01 of a Gregorian date; the year is counted from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = (y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day).checked_sub(719_469)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms)
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(|p| p.parse::<u64>().ok().filter(|n| *n < 10_000));
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for ms in [0, 951_868_799_001, 951_868_800_999, 1_795_276_188_123, 4_102_444_799_000] {
            assert_eq!(parse_time(&time(ms)), Some(ms), "{}", time(ms));
        }
        assert_eq!(time(951_868_799_001), "02/29/2000 23:59:59.001");
        for bad in ["", "1/2/2000", "13/01/2000 00:00:00.000", "01/01/1900 00:00:00.000", "1/1/2000 1:2.3"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn quoted_fields() {
        assert_eq!(fields(r#""a","b ""c""","","#), None);
        assert_eq!(
            fields("\"a\",\"b \"\"c\"\"\",\" \"\r"),
            Some(vec!["a".into(), "b \"c\"".into(), " ".into()])
        );
        assert_eq!(fields("a,b"), None);
        assert_eq!(fields(""), None);
    }
}
