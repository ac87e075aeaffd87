//! The user's selections, and the effect of each key on them.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::columns::KINDS;

/// Steps of + and -, in milliseconds.
const INTERVALS_MS: [u64; 9] = [200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000];

/// The longest time until a server that does not respond is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) interval: Duration,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// First line of the help that is shown.
    pub(super) help_line: usize,
    /// The table in focus, an index into [`KINDS`].
    pub(super) focus: usize,
    /// The state of each table.
    pub(super) tables: [TableState; KINDS.len()],
    /// Why the server does not respond, with the cure.
    pub(super) lost: Option<String>,
    /// Seconds since the last response, while the server does not respond.
    pub(super) lost_s: u64,
}

/// How one table is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TableState {
    /// 0: by name, ascending; n: by the n-th column, descending.
    pub(super) sort: usize,
    /// First column that is shown.
    pub(super) column: usize,
    /// First line that is shown.
    pub(super) line: usize,
}

/// The action that a key requests from the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Leave.
    Quit,
    /// Draw again.
    Redraw,
    /// The key means nothing here.
    None,
}

impl State {
    /// All tables by name.
    pub(super) fn new(interval: Duration) -> State {
        State {
            interval,
            paused: false,
            help: false,
            help_line: 0,
            focus: 0,
            tables: Default::default(),
            lost: None,
            lost_s: 0,
        }
    }

    /// The time from one request to the next.
    pub(super) fn pause(&self) -> Duration {
        if self.lost.is_some() { self.interval.min(AGAIN) } else { self.interval }
    }

    /// Applies a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::None };
        }
        if self.help {
            return self.key_in_help(key.code);
        }
        let columns = KINDS[self.focus].columns().len();
        let table = &mut self.tables[self.focus];
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char(c @ '1'..='8') => self.focus = c as usize - '1' as usize,
            KeyCode::Tab => self.focus = (self.focus + 1) % KINDS.len(),
            KeyCode::BackTab => self.focus = (self.focus + KINDS.len() - 1) % KINDS.len(),
            KeyCode::Char('s') => table.sort = (table.sort + 1) % (columns + 1),
            KeyCode::Char('S') => table.sort = (table.sort + columns) % (columns + 1),
            KeyCode::Right => table.column = (table.column + 1).min(columns - 1),
            KeyCode::Left => table.column = table.column.saturating_sub(1),
            // A position beyond the end is reduced when it is drawn.
            KeyCode::Down => table.line += 1,
            KeyCode::Up => table.line = table.line.saturating_sub(1),
            KeyCode::PageDown => table.line += 10,
            KeyCode::PageUp => table.line = table.line.saturating_sub(10),
            KeyCode::Home => (table.line, table.column) = (0, 0),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => (self.help, self.help_line) = (true, 0),
            KeyCode::Char('+') => return self.pace(INTERVALS_MS.iter().find(|ms| **ms > self.interval_ms())),
            KeyCode::Char('-') => {
                return self.pace(INTERVALS_MS.iter().rev().find(|ms| **ms < self.interval_ms()));
            }
            _ => return Action::None,
        }
        Action::Redraw
    }

    fn key_in_help(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('h' | '?') | KeyCode::Esc | KeyCode::Enter | KeyCode::F(1) => self.help = false,
            KeyCode::Char(c @ '1'..='8') => (self.focus, self.help_line) = (c as usize - '1' as usize, 0),
            KeyCode::Tab => (self.focus, self.help_line) = ((self.focus + 1) % KINDS.len(), 0),
            KeyCode::Down => self.help_line += 1,
            KeyCode::Up => self.help_line = self.help_line.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.help_line += 10,
            KeyCode::PageUp => self.help_line = self.help_line.saturating_sub(10),
            _ => return Action::None,
        }
        Action::Redraw
    }

    fn pace(&mut self, ms: Option<&u64>) -> Action {
        match ms {
            Some(ms) => {
                self.interval = Duration::from_millis(*ms);
                Action::Redraw
            }
            None => Action::None,
        }
    }

    fn interval_ms(&self) -> u64 {
        self.interval.as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(state: &mut State, keys: &[KeyCode]) -> Action {
        keys.iter().map(|k| state.key(KeyEvent::new(*k, KeyModifiers::NONE))).last().expect("a key")
    }

    #[test]
    fn keys_choose_and_never_leave_the_range() {
        let mut s = State::new(Duration::from_secs(1));
        assert_eq!(press(&mut s, &[KeyCode::Char('3')]), Action::Redraw);
        assert_eq!(s.focus, 2);
        press(&mut s, &[KeyCode::Tab; 6]);
        assert_eq!(s.focus, 0);
        press(&mut s, &[KeyCode::BackTab]);
        assert_eq!(s.focus, 7);
        press(&mut s, &[KeyCode::Char('4')]);
        let columns = KINDS[3].columns().len();
        press(&mut s, &[KeyCode::Char('S')]);
        assert_eq!(s.tables[3].sort, columns);
        press(&mut s, &[KeyCode::Char('s'), KeyCode::Char('s')]);
        assert_eq!(s.tables[3].sort, 1);
        press(&mut s, &[KeyCode::Right; 99]);
        assert_eq!(s.tables[3].column, columns - 1);
        press(&mut s, &[KeyCode::Left; 99]);
        assert_eq!(s.tables[3], TableState { sort: 1, ..TableState::default() });
        press(&mut s, &[KeyCode::Char('p')]);
        assert!(s.paused);
        assert_eq!(press(&mut s, &[KeyCode::Char('x')]), Action::None);
        assert_eq!(press(&mut s, &[KeyCode::Char('q')]), Action::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(s.key(control_c), Action::Quit);
    }

    #[test]
    fn the_interval_goes_by_steps_from_where_it_is() {
        let mut s = State::new(Duration::from_millis(700));
        assert_eq!(press(&mut s, &[KeyCode::Char('+')]), Action::Redraw);
        assert_eq!(s.interval, Duration::from_secs(1));
        press(&mut s, &[KeyCode::Char('-'); 2]);
        assert_eq!(s.interval, Duration::from_millis(200));
        assert_eq!(press(&mut s, &[KeyCode::Char('-')]), Action::None);
        press(&mut s, &[KeyCode::Char('+'); 20]);
        assert_eq!(s.interval, Duration::from_secs(300));
    }

    #[test]
    fn help_has_keys_of_its_own() {
        let mut s = State::new(Duration::from_secs(1));
        press(&mut s, &[KeyCode::Char('h'), KeyCode::Char('s'), KeyCode::Down]);
        assert!(s.help && s.help_line == 1 && s.tables[0].sort == 0);
        press(&mut s, &[KeyCode::Char('2')]);
        assert_eq!((s.focus, s.help_line), (1, 0));
        press(&mut s, &[KeyCode::Esc]);
        assert!(!s.help);
    }
}
