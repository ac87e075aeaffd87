//! The output of commands: tables with the familiar columns, or JSON with `--json`. Results go to standard
//! output, everything else to standard error.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use env::calendar::{SECONDS_OF_DAY, date};
use serde::Serialize;

use crate::control::types::Changed;

/// Where results go and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

/// One line of a listing.
pub trait Row: Serialize {
    /// Its columns; a heading that begins with `>` is aligned to the right.
    const COLUMNS: &'static [&'static str];

    /// A cell for each column.
    fn cells(&self) -> Vec<String>;
}

impl Output {
    /// Prints a listing: a table, or one JSON array. An empty table has its headings all the same.
    ///
    /// # Errors
    /// Standard output's.
    pub fn list<T: Row>(self, rows: &[T]) -> io::Result<()> {
        if self.json {
            return self.document(&rows);
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{}", table(rows))
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
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let mut out = io::stdout().lock();
        for (name, text) in lines {
            writeln!(out, "{name:width$} : {text}")?;
        }
        Ok(())
    }

    /// Says that something was done: `text`, or `value` as JSON.
    ///
    /// # Errors
    /// Standard output's.
    pub fn done<T: Serialize>(self, value: &T, text: &str) -> io::Result<()> {
        if self.json {
            return self.document(value);
        }
        writeln!(io::stdout().lock(), "{text}")
    }

    /// Says what a change did, and on standard error what is to be known about it.
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

    /// Says why a command failed, and the cure, on standard error: a line of text, or of JSON with `error` and `do`.
    pub fn failed(self, error: &str, cure: Option<String>) {
        #[derive(Serialize)]
        struct Failed<'a> {
            error: &'a str,
            #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
            cure: Option<String>,
        }
        match (self.json, cure) {
            (true, cure) => {
                let line = serde_json::to_string(&Failed { error, cure }).unwrap_or_default();
                // A closed output is no error.
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

/// A listing as text, without an end of line.
pub fn table<T: Row>(rows: &[T]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let names: Vec<&str> = T::COLUMNS.iter().map(|c| c.trim_start_matches('>')).collect();
    table.set_header(&names);
    table.add_row(names.iter().map(|n| "-".repeat(n.chars().count())));
    for row in rows {
        // A peer's names are printed: characters that move the cursor are filtered.
        table.add_row(row.cells().iter().map(|c| printable(c)));
    }
    for (column, name) in table.column_iter_mut().zip(T::COLUMNS) {
        column.set_padding((0, 2));
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Text from elsewhere, with control characters made visible.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// Prints what went wrong to standard error; it may quote text from elsewhere, and have several lines of its own.
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

/// As [`human_bytes`], in a sentence: `17 bytes`, `1.5 KiB`.
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

/// A word of a shell's command.
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

    #[derive(Serialize)]
    struct Thing(&'static str, u32);

    impl Row for Thing {
        const COLUMNS: &'static [&'static str] = &["Name", ">Size"];
        fn cells(&self) -> Vec<String> {
            vec![self.0.to_owned(), self.1.to_string()]
        }
    }

    #[test]
    fn tables_line_up_and_print_no_control_characters() {
        let text = table(&[Thing("a", 12345), Thing("long name", 7), Thing("x\x1b[2J", 0)]);
        let expected =
            "Name        Size\n----        ----\na          12345\nlong name      7\nx\u{FFFD}[2J          0";
        assert_eq!(text, expected);
        assert_eq!(table::<Thing>(&[]), "Name  Size\n----  ----");
    }

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
