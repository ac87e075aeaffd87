//! The output of commands: tables with the familiar columns, or JSON with `--json`. Results go to standard
//! output, everything else to standard error.

mod table;

use std::io::{self, IsTerminal, Write};

use crossterm::style::{Colored, Stylize};
use env::calendar::{SECONDS_OF_DAY, date};
use schemars::JsonSchema;
use serde::Serialize;

use crate::control::types::Changed;
use crate::failure::Failure;
pub use table::{Column, TableArgs, table};

/// The form of the output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

/// Why a command failed.
#[derive(JsonSchema, Serialize)]
pub struct Failed<'a> {
    /// The reason.
    error: &'a str,
    /// The action that helps.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

/// One line of a listing.
pub trait Row: Serialize {
    /// Its columns.
    const COLUMNS: &'static [Column];

    /// A cell for each column.
    fn cells(&self) -> Vec<String>;
}

impl Output {
    /// Prints a listing: a table, or one JSON array. An empty table has headings too.
    ///
    /// # Errors
    /// [`Failure::NoColumn`], and standard output's.
    pub fn list<T: Row>(self, rows: &[T], args: &TableArgs) -> Result<(), Failure> {
        let table = table::chosen(rows, args)?;
        if self.json {
            return Ok(self.document(&rows)?);
        }
        writeln!(io::stdout().lock(), "{}", table.text)?;
        if table.left_out > 0 && io::stderr().is_terminal() {
            complain(&format!("{} not shown: pass --wide to show all", some(table.left_out, "column")));
        }
        Ok(())
    }

    /// Prints one JSON document.
    ///
    /// # Errors
    /// Standard output's.
    pub fn document<T: Serialize>(self, value: &T) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)
    }

    /// Prints facts as `Name : value` lines, or `value` as JSON.
    ///
    /// # Errors
    /// Standard output's.
    pub fn facts<T: Serialize>(self, value: &T, lines: &[(&str, String)]) -> io::Result<()> {
        if self.json {
            return self.document(value);
        }
        writeln!(io::stdout().lock(), "{}", table::facts(lines, table::terminal_width()))
    }

    /// Prints the result of a change: `text`, or `value` as JSON.
    ///
    /// # Errors
    /// Standard output's.
    pub fn done<T: Serialize>(self, value: &T, text: &str) -> io::Result<()> {
        if self.json {
            return self.document(value);
        }
        writeln!(io::stdout().lock(), "{text}")
    }

    /// Prints the result of a change, and its notes on standard error.
    ///
    /// # Errors
    /// Standard output's.
    pub fn changed(self, change: &Changed) -> io::Result<()> {
        self.done(change, &change.done)?;
        if !self.json {
            change.notes.iter().for_each(|note| complain(note));
        }
        Ok(())
    }

    /// Prints why a command failed, and the cure, on standard error: a line of text, or of JSON with `error` and `do`.
    pub fn failed(self, error: &str, cure: Option<String>) {
        match (self.json, cure) {
            (true, cure) => {
                let line = serde_json::to_string(&Failed { error, cure }).unwrap_or_default();
                // A closed standard error is ignored.
                let _ = writeln!(io::stderr().lock(), "{line}");
            }
            (false, Some(cure)) => complain(&format!("{error}: {cure}")),
            (false, None) => complain(error),
        }
    }

    /// An empty line between two tables.
    ///
    /// # Errors
    /// Standard output's.
    pub fn blank(self) -> io::Result<()> {
        writeln!(io::stdout().lock())
    }
}

/// Whether standard output is a terminal with colours (<https://no-color.org>).
pub fn has_colours() -> bool {
    io::stdout().is_terminal() && !Colored::ansi_color_disabled()
}

/// A state: green, yellow or red, if there are colours.
pub fn coloured(state: &str, colours: bool) -> String {
    match table::colour(state).filter(|_| colours) {
        Some(colour) => state.with(colour).to_string(),
        None => state.to_owned(),
    }
}

/// A paragraph, broken into lines on a terminal. All lines but the first are indented.
pub fn wrapped(text: &str, indent: &str) -> String {
    match table::terminal_width() {
        Some(width) => textwrap::fill(text, textwrap::Options::new(width).subsequent_indent(indent)),
        None => text.to_owned(),
    }
}

/// Text from another source, with control characters replaced.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// Prints an error to standard error. Control characters are replaced; line breaks are kept.
pub fn complain(text: &str) {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    eprintln!("causeway: {}", lines.join("\n"));
}

/// Bytes with a binary unit: `17`, `1.5 KiB`, `640 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = if value >= 99.95 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{} {}", text.trim_end_matches(".0"), UNITS[unit])
}

/// [`human_bytes`] for a sentence: `17 bytes`, `1.5 KiB`.
pub fn with_unit(bytes: u64) -> String {
    if bytes < 1024 { some(bytes as usize, "byte") } else { human_bytes(bytes) }
}

/// `1 disk`, `2 disks`.
pub fn some(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Seconds as `3d 04:05:06` or `00:00:07`.
pub fn human_seconds(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days}d {clock}") } else { clock }
}

/// A point in time as `2026-01-31 23:59:59`, in UTC; `seconds` since 1970.
pub fn human_time(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(SECONDS_OF_DAY), seconds.rem_euclid(SECONDS_OF_DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// A word, quoted for a shell if necessary.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-._/:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('-') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(human_bytes(17), "17");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(640 << 20), "640 MiB");
        assert_eq!(human_bytes((1 << 20) - 1), "1 MiB");
        assert_eq!(human_seconds(7), "00:00:07");
        assert_eq!(human_seconds(3 * 86_400 + 3 * 3600 + 62), "3d 03:01:02");
    }

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_868_799, "2000-02-29 23:59:59"),
            (4_102_444_799, "2099-12-31 23:59:59"),
            (-1, "1969-12-31 23:59:59"),
            (-11_644_473_600, "1601-01-01 00:00:00"),
        ] {
            assert_eq!(human_time(seconds), text);
        }
    }
}
