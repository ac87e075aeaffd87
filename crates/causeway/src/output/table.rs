//! Listings as text: all columns if the terminal is wide enough, otherwise the most important ones.

use std::io::IsTerminal;

use clap::Args;
use comfy_table::{Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};
use unicode_width::UnicodeWidthStr;

use super::{Row, has_colours, printable};
use crate::failure::Failure;

/// The space between two columns, in characters.
const GAP: usize = 2;
/// The minimum width of a column that wraps; [`NARROWEST`] if the columns of rank 0 do not fit otherwise.
const NARROW: usize = 16;
const NARROWEST: usize = 10;
/// Columns of this rank and higher are shown only if their cells of up to [`LONG`] characters need not wrap.
const MINOR: u8 = 3;
const LONG: usize = 40;

/// The facts that are shown as states, with a colour.
const STATES: [&str; 2] = ["OperationalStatus", "HealthStatus"];

/// A column of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    name: &'static str,
    right: bool,
    wraps: bool,
    state: bool,
    rank: u8,
}

impl Column {
    /// A column that is always shown, aligned to the left.
    pub const fn new(name: &'static str) -> Column {
        Column { name, right: false, wraps: false, state: false, rank: 0 }
    }

    /// A column of numbers, aligned to the right.
    pub const fn right(name: &'static str) -> Column {
        Column { right: true, ..Column::new(name) }
    }

    /// A column of long texts, whose cells may wrap.
    pub const fn wraps(self) -> Column {
        Column { wraps: true, ..self }
    }

    /// A column of states, which have a colour.
    pub const fn state(self) -> Column {
        Column { state: true, ..self }
    }

    /// The order of omission on a narrow terminal: columns with the highest rank are omitted first.
    pub const fn rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }

    /// Its heading.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// Which columns of a listing are shown.
#[derive(Args, Clone, Debug, Default)]
pub struct TableArgs {
    /// Show all columns, even on a narrow terminal
    #[arg(long, conflicts_with = "columns")]
    wide: bool,
    /// Show only these columns, in this order; names as in the heading
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    columns: Vec<String>,
}

impl TableArgs {
    /// All columns, or those that fit.
    pub fn new(wide: bool) -> TableArgs {
        TableArgs { wide, columns: Vec::new() }
    }
}

/// A listing as text, without an end of line, and the number of omitted columns with contents.
pub struct Rendered {
    pub text: String,
    pub left_out: usize,
}

/// A listing as text, limited to the width of the terminal if there is one.
pub fn table<T: Row>(rows: &[T]) -> String {
    let all: Vec<usize> = (0..T::COLUMNS.len()).collect();
    render(rows, &all, terminal_width()).text
}

/// [`table`] with the requested columns.
///
/// # Errors
/// [`Failure::NoColumn`].
pub fn chosen<T: Row>(rows: &[T], args: &TableArgs) -> Result<Rendered, Failure> {
    let find = |name: &String| {
        let found = T::COLUMNS.iter().position(|c| c.name.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| Failure::NoColumn {
            name: name.clone(),
            columns: T::COLUMNS.iter().map(|c| c.name).collect::<Vec<_>>().join(", "),
        })
    };
    let columns = match &args.columns[..] {
        [] => (0..T::COLUMNS.len()).collect(),
        names => names.iter().map(find).collect::<Result<Vec<_>, _>>()?,
    };
    let width = if args.wide || !args.columns.is_empty() { None } else { terminal_width() };
    Ok(render(rows, &columns, width))
}

fn render<T: Row>(rows: &[T], columns: &[usize], width: Option<usize>) -> Rendered {
    // Names from peers may contain control characters: they are replaced.
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.cells().iter().map(|c| printable(c)).collect::<Vec<_>>())
        .map(|cells| columns.iter().map(|c| cells[*c].clone()).collect())
        .collect();
    let columns: Vec<Column> = columns.iter().map(|c| T::COLUMNS[*c]).collect();
    let shown = plan(&columns, &cells, width);
    let mut table = empty();
    let headings: Vec<Vec<String>> = shown.iter().map(|s| fold(columns[s.0].name, s.1)).collect();
    let high = headings.iter().map(Vec::len).max().unwrap_or(0);
    let long = |lines: &[String]| lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    table.set_header(headings.iter().map(|h| "\n".repeat(high - h.len()) + &h.join("\n")));
    table.add_row(headings.iter().map(|h| "-".repeat(long(h))));
    for row in &cells {
        table.add_row(shown.iter().map(|(c, _)| cell(&row[*c], columns[*c].state)));
    }
    for (to, (column, width)) in table.column_iter_mut().zip(&shown) {
        to.set_padding((0, GAP as u16));
        to.set_constraint(ColumnConstraint::Absolute(Width::Fixed((width + GAP) as u16)));
        if columns[*column].right {
            to.set_cell_alignment(CellAlignment::Right);
        }
    }
    let nothing = |i: usize| !cells.is_empty() && cells.iter().all(|row| row[i].is_empty());
    let left_out = (0..columns.len()).filter(|i| !nothing(*i) && shown.iter().all(|s| s.0 != *i)).count();
    Rendered { text: lines_of(&table), left_out }
}

/// Facts as lines `Name : value`; a long value wraps, and its next lines are aligned with its start.
pub(super) fn facts(lines: &[(&str, String)], limit: Option<usize>) -> String {
    let names = lines.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let longest = lines.iter().map(|(_, value)| value.width()).max().unwrap_or(0);
    let room = limit
        .map_or(longest, |limit| limit.saturating_sub(names + 3).clamp(NARROWEST, longest.max(NARROWEST)));
    let mut table = empty();
    for (name, value) in lines {
        let value = cell(&printable(value), STATES.contains(name));
        table.add_row([Cell::new(name), Cell::new(":"), value]);
    }
    for (column, width) in table.column_iter_mut().zip([names + 1, 2, room]) {
        column.set_padding((0, 0));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width as u16)));
    }
    lines_of(&table)
}

/// A text of a table, with its colour if it is a state.
fn cell(text: &str, is_state: bool) -> Cell {
    match colour(text).filter(|_| is_state) {
        Some(colour) => Cell::new(text).fg(colour),
        None => Cell::new(text),
    }
}

/// A table without borders, with colours if the output has them.
fn empty() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !has_colours() {
        table.force_no_tty();
    }
    table
}

fn lines_of(table: &Table) -> String {
    table.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// The columns that are shown, in their order, and how wide each is.
fn plan(columns: &[Column], cells: &[Vec<String>], limit: Option<usize>) -> Vec<(usize, usize)> {
    let contents: Vec<usize> =
        (0..columns.len()).map(|i| cells.iter().map(|row| row[i].width()).max().unwrap_or(0)).collect();
    let all: Vec<(usize, usize)> =
        columns.iter().zip(&contents).enumerate().map(|(i, (c, n))| (i, c.name.len().max(*n))).collect();
    let total =
        |shown: &[(usize, usize)]| shown.iter().map(|(_, w)| w + GAP).sum::<usize>().saturating_sub(GAP);
    let Some(limit) = limit.filter(|limit| total(&all) > *limit) else { return all };
    // The table is too wide: headings and cells wrap, and columns are omitted.
    let heading = |i: usize| fold(columns[i].name, contents[i]).iter().map(String::len).max().unwrap_or(0);
    let least =
        |i: usize| if columns[i].wraps { contents[i].min(NARROW) } else { contents[i] }.max(heading(i));
    let rank = |i: usize| if contents[i] == 0 { u8::MAX } else { columns[i].rank };
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|i| rank(*i));
    let mut shown: Vec<(usize, usize)> = Vec::new();
    for i in by_rank {
        shown.push((i, least(i)));
        let widths: Vec<_> = match rank(i) {
            0 => continue,
            MINOR.. => shown.iter().map(|(i, w)| (*i, contents[*i].min(LONG).max(*w))).collect(),
            _ => shown.clone(),
        };
        if total(&widths) > limit {
            shown.pop();
        }
    }
    shown.sort_unstable();
    let mut over = total(&shown).saturating_sub(limit);
    while over > 0 {
        let widest = shown.iter_mut().filter(|(i, w)| !columns[*i].right && *w > NARROWEST);
        let Some((_, width)) = widest.max_by_key(|(_, w)| *w) else { break };
        *width -= 1;
        over -= 1;
    }
    // Unused width widens the column whose cells would wrap into the most lines, then unfolds headings.
    let mut spare = limit.saturating_sub(total(&shown));
    while spare > 0 {
        let cut = shown.iter_mut().filter(|(i, width)| contents[*i] > *width);
        let Some((_, width)) = cut.max_by_key(|(i, width)| contents[*i] * 1000 / *width) else { break };
        *width += 1;
        spare -= 1;
    }
    for (i, width) in &mut shown {
        let more = columns[*i].name.len().saturating_sub(*width).min(spare);
        *width += more;
        spare -= more;
    }
    shown
}

/// A heading in lines of this width at most, where its words allow it: `OperationalStatus` has two words.
fn fold(name: &str, width: usize) -> Vec<String> {
    if name.len() <= width {
        return vec![name.to_owned()];
    }
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in name.chars() {
        match words.last_mut() {
            Some(word) if !(before.is_lowercase() && c.is_uppercase()) && before != ' ' => word.push(c),
            _ => words.push(c.to_string()),
        }
        before = c;
    }
    let width = words.iter().map(|w| w.trim_end().len()).max().unwrap_or(0).max(width);
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + word.trim_end().len() <= width => line.push_str(&word),
            _ => lines.push(word),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// The colour of a state: green if healthy, red if failed, otherwise yellow.
pub(super) fn colour(state: &str) -> Option<Color> {
    match state {
        "" | "Information" | "Unknown" => None,
        "OK" | "Healthy" | "Running" | "Completed" => Some(Color::Green),
        "Error" | "Unhealthy" | "Detached" | "Failed" | "Lost data" => Some(Color::Red),
        _ => Some(Color::Yellow),
    }
}

/// The width of the terminal that standard output is; `None` if it is something else.
pub(super) fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Serialize)]
    struct Thing(&'static str, u32);

    impl Row for Thing {
        const COLUMNS: &'static [Column] = &[Column::new("Name"), Column::right("Size")];
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

    #[derive(Serialize)]
    struct Wide([&'static str; 6]);

    impl Row for Wide {
        const COLUMNS: &'static [Column] = &[
            Column::new("FriendlyName"),
            Column::new("Model").rank(2),
            Column::new("HealthStatus").state().rank(1),
            Column::right("Size"),
            Column::new("Path").wraps(),
            Column::new("Reason").wraps().rank(1),
        ];
        fn cells(&self) -> Vec<String> {
            self.0.map(str::to_owned).to_vec()
        }
    }

    const ROWS: [Wide; 2] = [
        Wide(["a", "An unimportant model", "Healthy", "1 GiB", "/dev/disk/by-id/one", ""]),
        Wide(["b", "", "Warning", "10 GiB", "/dev/b", "The disk is slow, and it is asked for little"]),
    ];

    fn lines_at(width: usize) -> Vec<String> {
        let text = render(&ROWS, &[0, 1, 2, 3, 4, 5], Some(width)).text;
        assert!(text.lines().all(|l| l.chars().count() <= width), "{width}:\n{text}");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_does_not_fit_is_folded_or_left_out() {
        assert_eq!(lines_at(130).len(), 4);
        assert!(lines_at(130)[0].starts_with("FriendlyName  Model "), "{:?}", lines_at(130));
        // The model has the highest rank; the reason is wrapped, and headings are folded for it.
        let at_80 = [
            "Friendly  Health",
            "Name      Status     Size  Path              Reason",
            "--------  ------     ----  ----              ------",
            "a         Healthy   1 GiB  /dev/disk/by-id/",
            "                           one",
            "b         Warning  10 GiB  /dev/b            The disk is slow, and it is asked",
            "                                             for little",
        ];
        assert_eq!(lines_at(80), at_80);
        let at_50 = [
            "              Health",
            "FriendlyName  Status     Size  Path",
            "------------  ------     ----  ----",
            "a             Healthy   1 GiB  /dev/disk/by-id/one",
            "b             Warning  10 GiB  /dev/b",
        ];
        assert_eq!(lines_at(50), at_50);
        assert_eq!(render(&ROWS, &[0, 1, 2, 3, 4, 5], Some(50)).left_out, 2);
        for width in 30..130 {
            lines_at(width);
        }
    }

    #[test]
    fn long_facts_continue_below_their_beginning() {
        let text = |limit| {
            facts(&[("Name", "a".to_owned()), ("CanLose", "1 disk, with one more too few".to_owned())], limit)
        };
        assert_eq!(text(None), "Name    : a\nCanLose : 1 disk, with one more too few");
        assert_eq!(
            text(Some(25)),
            "Name    : a\nCanLose : 1 disk, with\n          one more too\n          few"
        );
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let args =
            |names: &str| TableArgs { wide: false, columns: names.split(',').map(str::to_owned).collect() };
        let text = chosen(&ROWS, &args("size,FriendlyName")).map(|r| r.text).expect("right");
        assert_eq!(text, "  Size  FriendlyName\n  ----  ------------\n 1 GiB  a\n10 GiB  b");
        let wrong = chosen(&ROWS, &args("Sise")).map(|r| r.text).expect_err("wrong").to_string();
        assert!(wrong.contains("Sise") && wrong.contains("FriendlyName, Model, HealthStatus"), "{wrong}");
    }

    #[test]
    fn headings_are_folded_between_words() {
        let folded = |name, width| fold(name, width).join("|");
        assert_eq!(folded("FaultDomainRedundancy", 1), "Fault|Domain|Redundancy");
        assert_eq!(folded("FaultDomainRedundancy", 11), "FaultDomain|Redundancy");
        assert_eq!(folded("Mean ms", 4), "Mean|ms");
        assert_eq!(folded("MB/s", 2), "MB/s");
        assert_eq!(folded("SessionId", 20), "SessionId");
    }
}
