//! Draws a frame from a view and a state, without clock, terminal or requests.
//!
//! Three lines about the server, the tables of one page below each other, one line of keys. The table with the focus gets
//! as many lines as it needs; the others keep their headings and share the rest, in order.

mod help;
mod table;

use std::ops::Range;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::columns::{KINDS, page};
use super::sample::Sample;
use super::state::State;
use super::view::{Header, View};
use crate::output::{human_bytes, human_seconds, human_time, printable};
use table::{Block, blocks};

/// The width of a column of numbers in characters, including the space before it.
pub(super) const CELL: usize = 7;
/// The minimum width of the name column, in characters.
const NAME_LEAST: usize = 22;
const HEADER_LINES: u16 = 3;
const COMPLAINT_LINES: u16 = 3;
/// The minimum height of a table without the focus, in lines, including the heading.
const LINES_LEAST: u16 = 3;
/// The smallest supported screen.
const SCREEN_LEAST: (u16, u16) = (40, 10);

const DIM: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws the frame for `now` and the sample before it on `area`. Reduces scroll positions in `state` beyond the end.
pub(super) fn frame(
    before: Option<&Sample>,
    now: Option<&Sample>,
    state: &mut State,
    area: Rect,
    buf: &mut Buffer,
) {
    if area.width < SCREEN_LEAST.0 || area.height < SCREEN_LEAST.1 {
        let text = format!("causeway top needs {} x {} characters", SCREEN_LEAST.0, SCREEN_LEAST.1);
        Paragraph::new(text).wrap(Wrap { trim: true }).render(area, buf);
        return;
    }
    if state.help {
        help::draw(state, area, buf);
        return;
    }
    let body = Rect { y: area.y + HEADER_LINES, height: area.height - HEADER_LINES - 1, ..area };
    match now.map(|n| View::new(before, n)) {
        Some(view) => {
            header(&view, state, area, buf);
            let above = if state.lost.is_some() { COMPLAINT_LINES.min(body.height) } else { 0 };
            complaint(state, Rect { height: above, ..body }, buf);
            let body = Rect { y: body.y + above, height: body.height - above, ..body };
            tables(&view, state, page(state.focus), body, buf);
            if above > 0 {
                // The displayed values are stale.
                buf.set_style(body, DIM);
            }
        }
        None => {
            line(buf, area, 0, Line::from(Span::styled("causeway top", BOLD)));
            match state.lost {
                Some(_) => complaint(state, Rect { height: COMPLAINT_LINES.min(body.height), ..body }, buf),
                None => line(buf, body, 0, Line::from("waiting for the server …")),
            }
        }
    }
    keys(state, Rect { y: area.bottom() - 1, height: 1, ..area }, buf);
}

/// The frame of `--once`, with all columns and all rows.
pub(super) fn whole(before: &Sample, now: &Sample, state: &mut State) -> String {
    let view = View::new(Some(before), now);
    let blocks = blocks(&view, state);
    let width = blocks.iter().map(Block::width).max().unwrap_or(0).max(80) as u16;
    let height = HEADER_LINES + blocks.iter().map(|b| b.wants() + 1).sum::<u16>();
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    header(&view, state, area, &mut buf);
    let body = Rect { y: HEADER_LINES, height: height - HEADER_LINES, ..area };
    tables(&view, state, 0..KINDS.len(), body, &mut buf);
    text(&buf)
}

/// A frame as text, without trailing blanks.
pub(super) fn text(buf: &Buffer) -> String {
    let area = buf.area;
    let lines = (area.top()..area.bottom()).map(|y| {
        let mut text = String::new();
        let mut x = area.left();
        while x < area.right() {
            let symbol = buf[(x, y)].symbol();
            text += symbol;
            x += Span::raw(symbol).width().max(1) as u16;
        }
        text.trim_end().to_owned() + "\n"
    });
    lines.collect::<String>().trim_end().to_owned() + "\n"
}

fn line(buf: &mut Buffer, area: Rect, y: u16, line: Line<'_>) {
    buf.set_line(area.x, area.y + y, &line, area.width);
}

/// Draws facts with bold values, as many as fit into the line.
fn facts(buf: &mut Buffer, area: Rect, y: u16, facts: &[(&str, String)]) {
    let mut spans = Vec::new();
    let mut used = 0;
    for (name, value) in facts {
        let gap = if spans.is_empty() { 0 } else { 2 };
        used += gap + name.len() + 1 + Span::raw(value).width();
        if used > usize::from(area.width) && !spans.is_empty() {
            break;
        }
        spans.push(Span::raw(format!("{}{name} ", " ".repeat(gap))));
        spans.push(Span::styled(value.clone(), BOLD));
    }
    line(buf, area, y, Line::from(spans));
}

fn header(view: &View, state: &State, area: Rect, buf: &mut Buffer) {
    let s = &view.server;
    let time = human_time((view.unix_ms / 1000) as i64);
    let mode = match (state.paused, view.interval_s) {
        (true, _) => "PAUSED".to_owned(),
        (false, Some(n)) => format!("over {n:.1} s"),
        (false, None) => "first sample".to_owned(),
    };
    let left = Line::from(vec![
        Span::styled(printable(&s.name), BOLD),
        Span::raw(format!("  causeway {}  up {}", printable(&s.version), human_seconds(s.uptime_s))),
    ]);
    // Less important parts are omitted if there is no room.
    let long = format!("  {time} UTC  {mode}");
    let wide = left.width() + long.chars().count() <= usize::from(area.width);
    let right = if wide { long } else { format!("  {mode}") };
    let width = right.chars().count() as u16;
    line(buf, area, 0, left);
    let style = if state.paused { Style::new().fg(Color::Yellow) } else { Style::new() };
    buf.set_string(area.right().saturating_sub(width), area.y, &right, style);
    let unknown = || "-".to_owned();
    facts(
        buf,
        area,
        1,
        &[
            ("CPU", s.cpu_percent.map_or_else(unknown, |n| format!("{n:.0}% of a core"))),
            ("Memory", memory(s)),
            ("Connections", s.connections.to_string()),
            ("Credit stalls/s", s.credit_stalls_per_s.map_or_else(unknown, table::number)),
            ("Sessions", s.sessions.to_string()),
            ("Files", s.opens.to_string()),
            ("Process", s.pid.to_string()),
            ("Resident", s.resident.map_or_else(unknown, human_bytes)),
            ("Descriptors", s.open_files.map_or_else(unknown, |n| n.to_string())),
        ],
    );
}

fn memory(s: &Header) -> String {
    let waiting = if s.memory_waiting > 0 { format!(", {} wait", s.memory_waiting) } else { String::new() };
    format!("{}/{}{waiting}", human_bytes(s.memory_used), human_bytes(s.memory_budget))
}

fn tables(view: &View, state: &mut State, shown: Range<usize>, body: Rect, buf: &mut Buffer) {
    let blocks = blocks(view, state);
    let wants: Vec<u16> = blocks[shown.clone()].iter().map(Block::wants).collect();
    let heights = share_out(&wants, state.focus - shown.start, body.height);
    let mut y = body.y;
    for (i, height) in shown.zip(heights) {
        blocks[i].draw(&mut state.tables[i], i == state.focus, Rect { y, height, ..body }, buf);
        y += if height > 0 { height + 1 } else { 0 };
    }
}

/// Lines for each table, with a blank one between them. The table with the focus comes first.
fn share_out(wants: &[u16], focus: usize, height: u16) -> Vec<u16> {
    let mut heights = vec![0; wants.len()];
    let mut left = height.saturating_sub(wants.len() as u16 - 1);
    let order = || std::iter::once(focus).chain((0..wants.len()).filter(move |i| *i != focus));
    for most in [LINES_LEAST, u16::MAX] {
        for i in order() {
            let more = wants[i].min(most).saturating_sub(heights[i]).min(left);
            heights[i] += more;
            left -= more;
        }
    }
    heights
}

fn complaint(state: &State, area: Rect, buf: &mut Buffer) {
    let Some(why) = &state.lost else { return };
    let again = format!(
        "{} - trying again every {} (for {})",
        printable(why),
        seconds(state.pause()),
        human_seconds(state.lost_s)
    );
    let style = Style::new().fg(Color::White).bg(Color::Red);
    Paragraph::new(again).wrap(Wrap { trim: true }).style(style).render(area, buf);
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn keys(state: &State, area: Rect, buf: &mut Buffer) {
    let sort = match state.tables[state.focus].sort {
        0 => "name",
        n => KINDS[state.focus].columns()[n - 1].title,
    };
    let keys = [
        ("q", "uit".to_owned()),
        ("1-8", " table".to_owned()),
        ("s", format!("ort: {sort}")),
        ("p", if state.paused { "lay".to_owned() } else { "ause".to_owned() }),
        ("+-", format!(" {}", seconds(state.interval))),
        ("←→↑↓", " scroll".to_owned()),
        ("h", "elp".to_owned()),
    ];
    let spans = keys.iter().flat_map(|(key, rest)| {
        [Span::styled((*key).to_owned(), BOLD.fg(Color::Cyan)), Span::styled(format!("{rest}   "), DIM)]
    });
    line(buf, area, 0, Line::from(spans.collect::<Vec<_>>()));
}

#[cfg(test)]
mod tests;
