//! The help: keys, and the definition of each column of the table in focus.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::super::columns::KINDS;
use super::super::state::State;
use super::{BOLD, CELL, DIM};

const KEYS: [(&str, &str); 7] = [
    ("q", "quit"),
    ("1..8, Tab", "select a table; 5..8 (second screen): Pools, Virtual disks, Disks, Jobs"),
    ("s, S", "sort by the next or the previous column (numbers: largest first)"),
    ("arrows", "scroll columns and lines; Home: back to the first"),
    ("p", "pause the display"),
    ("+, -", "longer or shorter interval"),
    ("h, Esc", "open or close this help (in it, 1..8: other tables, arrows: scroll)"),
];

pub(super) fn draw(state: &mut State, area: Rect, buf: &mut Buffer) {
    let lines = lines(state.focus, usize::from(area.width));
    let room = usize::from(area.height - 1);
    state.help_line = state.help_line.min(lines.len().saturating_sub(room));
    let left = lines.len() - (state.help_line + room).min(lines.len());
    let shown: Vec<Line<'_>> = lines.into_iter().skip(state.help_line).take(room).collect();
    Paragraph::new(shown).render(Rect { height: area.height - 1, ..area }, buf);
    let more = if left > 0 { format!("↓ {left} more lines   ") } else { String::new() };
    buf.set_stringn(
        area.x,
        area.bottom() - 1,
        format!("{more}h back   q quit"),
        usize::from(area.width),
        DIM,
    );
}

fn lines(focus: usize, width: usize) -> Vec<Line<'static>> {
    let kind = KINDS[focus];
    let mut lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, what)| {
            Line::from(vec![
                Span::styled(format!("{key:<10} "), BOLD.fg(Color::Cyan)),
                Span::raw((*what).to_owned()),
            ])
        })
        .collect();
    lines.push(Line::default());
    let title = format!("{} {}: Windows's set \"{}\"", focus + 1, kind.title(), kind.set().name);
    lines.push(Line::from(Span::styled(title, Style::new().fg(Color::Black).bg(Color::Cyan))));
    for column in kind.columns() {
        let (name, definition) = column.meaning(kind.set());
        let unit = match column.scale {
            1e-6 => " (in 1,000,000 B/s)",
            1e3 => " (in ms)",
            _ => "",
        };
        let dot = if name.is_empty() { "" } else { ": " };
        let text = format!("{name}{unit}{dot}{definition}");
        for (i, part) in wrapped(&text, width.saturating_sub(CELL)).into_iter().enumerate() {
            let title = if i == 0 { column.title } else { "" };
            lines.push(Line::from(vec![Span::styled(format!("{title:<CELL$}"), BOLD), Span::raw(part)]));
        }
    }
    lines
}

/// Wraps `text` between words into lines of at most `width` characters; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one from the beginning");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_cut() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("immeasurable is", 5), ["immeasurable", "is"]);
    }
}
