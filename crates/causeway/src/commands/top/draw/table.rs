//! One table: a heading, rows in their order, and the lines below a session's row.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Span;

use super::super::columns::{KINDS, Kind};
use super::super::state::{State, TableState};
use super::super::view::{Row, Session, Value, View};
use super::{BOLD, CELL, DIM, NAME_LEAST};
use crate::control::types::{Channel, Credits};
use crate::output::printable;

/// The maximum width of the name column, in characters; longer names are cut.
const NAME_MOST: usize = 48;

/// A table that is ready to be drawn.
pub(super) struct Block {
    kind: Kind,
    sort: usize,
    lines: Vec<Text>,
    rows: usize,
}

enum Text {
    Row { name: String, values: Vec<Value>, total: bool },
    Below(String),
}

/// All tables, sorted.
pub(super) fn blocks(view: &View, state: &State) -> Vec<Block> {
    KINDS.iter().zip(&state.tables).map(|(kind, t)| Block::new(*kind, view.rows(*kind), t.sort)).collect()
}

impl Block {
    fn new(kind: Kind, rows: &[Row], sort: usize) -> Block {
        let mut sorted: Vec<&Row> = rows.iter().collect();
        sorted.sort_by(|a, b| {
            let by_value = match sort {
                0 => Ordering::Equal,
                n => compare(&b.values[n - 1].1, &a.values[n - 1].1),
            };
            // The sum stays on top.
            b.total.cmp(&a.total).then(by_value).then_with(|| a.name.cmp(&b.name))
        });
        let mut lines = Vec::new();
        for row in sorted {
            let values = row.values.iter().map(|(_, v)| v.clone()).collect();
            lines.push(Text::Row { name: shown(kind, row), values, total: row.total });
            lines.extend(row.session.iter().flat_map(below).map(Text::Below));
        }
        Block { kind, sort, lines, rows: rows.iter().filter(|r| !r.total).count() }
    }

    /// The number of lines, including the heading. A table without rows needs one line to say so.
    pub(super) fn wants(&self) -> u16 {
        let lines = if self.rows == 0 { 1 } else { self.lines.len() };
        u16::try_from(lines + 1).unwrap_or(u16::MAX / 8)
    }

    /// The width in characters with all columns.
    pub(super) fn width(&self) -> usize {
        let below = self.lines.iter().filter_map(|l| match l {
            Text::Below(text) => Some(Span::raw(text).width()),
            Text::Row { .. } => None,
        });
        below.chain([self.name_wants() + self.kind.columns().len() * CELL]).max().unwrap_or(0)
    }

    fn name_wants(&self) -> usize {
        let names = self.lines.iter().filter_map(|l| match l {
            Text::Row { name, .. } => Some(Span::raw(name).width()),
            Text::Below(_) => None,
        });
        names.max().unwrap_or(0).clamp(NAME_LEAST, NAME_MOST)
    }

    /// Draws it on `area`. Scroll positions beyond the end are reduced.
    pub(super) fn draw(&self, state: &mut TableState, focus: bool, area: Rect, buf: &mut Buffer) {
        if area.height == 0 {
            return;
        }
        let columns = self.kind.columns();
        let width = usize::from(area.width);
        let fit = |name: usize| width.saturating_sub(name) / CELL;
        // A longer name may use the width that no column needs.
        let shown = fit(NAME_LEAST).min(columns.len());
        let name = self.name_wants().min(width - shown * CELL);
        state.column = state.column.min(columns.len() - shown);
        let visible = state.column..state.column + shown;
        let at = |i: usize| area.x + (name + i * CELL) as u16;

        let style = if focus { Style::new().fg(Color::Black).bg(Color::Cyan) } else { BOLD.fg(Color::Cyan) };
        buf.set_style(Rect { height: 1, ..area }, style);
        let number = KINDS.iter().position(|k| *k == self.kind).unwrap_or(0) + 1;
        let more = if visible.start > 0 { "‹" } else { "" };
        let sorted = if self.sort == 0 && focus { "▲" } else { "" };
        let title = format!("{number} {} ({}) {sorted}{more}", self.kind.title(), self.rows);
        buf.set_stringn(area.x, area.y, title, name, style);
        for (i, c) in visible.clone().enumerate() {
            let mark = if visible.start + i + 1 == self.sort { "▼" } else { "" };
            let title = format!("{:>CELL$}", format!("{mark}{}", columns[visible.start + i].title));
            buf.set_stringn(at(i), area.y, title, CELL, style);
            debug_assert!(c < columns.len());
        }
        if visible.end < columns.len() && at(shown) < area.right() {
            buf.set_string(at(shown), area.y, "›", style);
        }

        let room = usize::from(area.height - 1);
        if self.rows == 0 {
            if room > 0 {
                buf.set_stringn(area.x, area.y + 1, "  none now", width, DIM);
            }
            state.line = 0;
            return;
        }
        state.line = state.line.min(self.lines.len().saturating_sub(room));
        let left = self.lines.len().saturating_sub(state.line + room);
        for (i, line) in self.lines.iter().skip(state.line).take(room).enumerate() {
            let y = area.y + 1 + i as u16;
            if left > 0 && i + 1 == room && room > 1 {
                buf.set_stringn(area.x, y, format!("  … {} more lines", left + 1), width, DIM);
                break;
            }
            match line {
                Text::Below(text) => {
                    buf.set_stringn(area.x, y, text, width, DIM);
                }
                Text::Row { name: text, values, total } => {
                    let style = if *total { BOLD } else { Style::new() };
                    buf.set_stringn(area.x, y, cut(text, name), name, style);
                    for (i, value) in values[visible.clone()].iter().enumerate() {
                        let (text, quiet) = cell(value);
                        let style = if quiet { DIM } else { style };
                        buf.set_stringn(at(i), y, format!("{text:>CELL$}"), CELL, style);
                    }
                }
            }
        }
    }
}

/// The displayed name of a row. For an SMB Direct connection it is the peer, because the listener is the same for all.
fn shown(kind: Kind, row: &Row) -> String {
    let name = match kind {
        Kind::Direct => row.name.split_once('/').map_or(row.name.as_str(), |(_, remote)| remote),
        _ => &row.name,
    };
    printable(name)
}

/// The channels of a session, each on a line, and why none is SMB Direct.
fn below(session: &Session) -> Vec<String> {
    let credits = |c: &Channel| {
        let Credits { available, in_use } = c.credits?;
        Some(format!("  credits {available} free, {in_use} in use"))
    };
    let channel =
        |c: &Channel| format!("{:<10} {}{}", transport(&c.transport), c.peer, credits(c).unwrap_or_default());
    let mut lines: Vec<String> = session.channels.iter().map(channel).collect();
    lines.extend(session.why_not_rdma.iter().map(|why| format!("no RDMA: {why}")));
    let last = lines.len().saturating_sub(1);
    let branch = |i| if i == last { "└" } else { "├" };
    lines.iter().enumerate().map(|(i, l)| format!("  {} {}", branch(i), printable(l))).collect()
}

fn transport(name: &str) -> &str {
    match name {
        "tcp" => "TCP",
        "rdma" => "SMB Direct",
        other => other,
    }
}

/// Compares by value; unknown values are the smallest.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.total_cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::None, Value::None) => Ordering::Equal,
        (Value::None, _) | (Value::Number(_), Value::Text(_)) => Ordering::Less,
        _ => Ordering::Greater,
    }
}

/// A name cut to a width.
fn cut(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if Span::raw(&out).width() >= width {
            out.pop();
            break;
        }
    }
    out + "…"
}

/// A cell's text, and whether it is empty or zero.
fn cell(value: &Value) -> (String, bool) {
    match value {
        Value::None => ("-".to_owned(), true),
        Value::Number(n) => (number(*n), *n == 0.0),
        Value::Text(text) => (printable(text).chars().take(CELL - 1).collect(), false),
    }
}

/// A number with at most six characters and at least three significant digits.
pub(super) fn number(n: f64) -> String {
    match n {
        0.0 => "0".to_owned(),
        n if n == n.trunc() && n.abs() < 999_999.5 => format!("{n:.0}"),
        n if n < 0.000_5 => "<0.001".to_owned(),
        n if n < 9.999_5 => format!("{n:.3}"),
        n if n < 99.95 => format!("{n:.2}"),
        n if n < 999.95 => format!("{n:.1}"),
        n if n < 999_999.5 => format!("{n:.0}"),
        n if n < 999_950_000.0 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit() {
        for (n, text) in [
            (0.0, "0"),
            (0.000_01, "<0.001"),
            (0.001_4, "0.001"),
            (9.999_6, "10.00"),
            (12.345, "12.35"),
            (99.96, "100.0"),
            (999.96, "1000"),
            (12.0, "12"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.2M"),
            (2.5e9, "2.5G"),
        ] {
            assert_eq!(number(n), text);
            assert!(number(n).len() < CELL);
        }
    }

    #[test]
    fn what_is_not_known_is_least() {
        let mut v = [Value::Number(1.0), Value::None, Value::Text("a".to_owned()), Value::Number(-1.0)];
        v.sort_by(compare);
        let sorted = [Value::None, Value::Number(-1.0), Value::Number(1.0), Value::Text("a".to_owned())];
        assert_eq!(v, sorted);
    }

    #[test]
    fn long_names_are_cut_by_their_width() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert!(Span::raw(cut("日本語日本語", 6)).width() <= 6);
    }
}
