//! The growing table on standard error: repainted in place on a terminal, one line for each row elsewhere.

use std::io::{IsTerminal, Write};

use bench::demo::{PoolCost, Row};
use bench::engine::{Observer, Tick};

use super::pool::PoolReads;
use super::table::{grouped, painted};
use crate::failure::Failure;
use crate::output::human_bytes;

const TITLE: &str = "Well-known demonstrations of SMB Direct, repeated";

/// See the module.
pub(super) struct Screen {
    terminal: bool,
    quiet: bool,
    /// Painted lines on the screen.
    lines: usize,
}

impl Screen {
    pub(super) fn new(quiet: bool) -> Screen {
        Screen { terminal: std::io::stderr().is_terminal() && !quiet, quiet, lines: 0 }
    }

    /// Paints the rows and a status line over the previous ones.
    fn paint(&mut self, rows: &[Row], now: &str) {
        if !self.terminal {
            return;
        }
        let (columns, height) = match rustix::termios::tcgetwinsize(std::io::stderr()) {
            Ok(size) => (usize::from(size.ws_col).max(20), usize::from(size.ws_row).max(4)),
            Err(_) => (80, 24),
        };
        let text = format!("{TITLE}\n\n{}\n\n{now}", painted(rows));
        let all: Vec<&str> = text.lines().collect();
        // Lines above the screen cannot be repainted.
        let shown = &all[all.len().saturating_sub(height - 1)..];
        let cut = |line: &&str| line.chars().take(columns - 1).collect::<String>();
        let body: String = shown.iter().map(|l| cut(l) + "\n").collect();
        let over = self.over();
        // One write, so that nothing flickers; a failed repaint is harmless.
        let _ = std::io::stderr().lock().write_all(format!("{over}{body}").as_bytes());
        self.lines = shown.len();
    }

    /// Moves to the first line painted and clears from there.
    fn over(&self) -> String {
        if self.lines == 0 { String::new() } else { format!("\x1b[{}F\x1b[J", self.lines) }
    }

    /// A row is complete: repaints, or prints it as a line.
    pub(super) fn done(&self, what: &str, row: &Row) {
        if !self.terminal && !self.quiet {
            let (iops, mb) = (grouped(row.iops), grouped(row.mb_per_s));
            eprintln!("{what}: {iops} IOPS, {mb} MB/s, {:.2} ms", row.mean_ms);
        }
    }

    /// Clears the painted lines.
    pub(super) fn clear(&mut self) {
        let _ = std::io::stderr().lock().write_all(self.over().as_bytes());
        self.lines = 0;
    }
}

/// Shows one run on the screen, and reads the pool's counters at its start and end.
pub(super) struct Watch<'a> {
    screen: &'a mut Screen,
    rows: &'a [Row],
    what: &'a str,
    before: Option<Tick>,
    pool_reads: &'a dyn Fn() -> Result<Option<PoolReads>, Failure>,
    read: Vec<Result<Option<PoolReads>, Failure>>,
}

impl<'a> Watch<'a> {
    /// `pool_reads` returns the pool's counters, if the data is on a pool.
    pub(super) fn new(
        screen: &'a mut Screen,
        rows: &'a [Row],
        what: &'a str,
        pool_reads: &'a dyn Fn() -> Result<Option<PoolReads>, Failure>,
    ) -> Watch<'a> {
        screen.paint(rows, what);
        Watch { screen, rows, what, before: None, pool_reads, read: Vec::new() }
    }

    /// The cost of the pool's reads during the measurement.
    ///
    /// # Errors
    /// The server did not answer.
    pub(super) fn pool_cost(self) -> Result<Option<PoolCost>, Failure> {
        let reads: Result<Vec<_>, _> = self.read.into_iter().collect();
        Ok(match reads?[..] {
            [Some(before), Some(after)] => after.since(&before),
            _ => None,
        })
    }
}

impl Observer for Watch<'_> {
    fn creating(&mut self, path: &str, done: u64, size: u64) {
        let line = format!("{}: creating {path}, {} of {}", self.what, human_bytes(done), human_bytes(size));
        self.screen.paint(self.rows, &line);
    }

    fn measures(&mut self, _begins: bool) {
        self.read.push((self.pool_reads)());
    }

    fn tick(&mut self, tick: &Tick) {
        let before =
            self.before.unwrap_or(Tick { ios: 0, bytes: 0, elapsed: std::time::Duration::ZERO, ..*tick });
        let seconds = tick.elapsed.saturating_sub(before.elapsed).as_secs_f64();
        // Rates over at least a fifth of a second are readable.
        if seconds < 0.2 {
            return;
        }
        let iops = (tick.ios - before.ios) as f64 / seconds;
        let mb = (tick.bytes - before.bytes) as f64 / seconds / 1e6;
        let left = tick.total.saturating_sub(tick.elapsed).as_secs_f64();
        let failed = if tick.errors > 0 { format!(", {} FAILED", tick.errors) } else { String::new() };
        let line =
            format!("{}: {} IOPS, {} MB/s, {left:.0} s left{failed}", self.what, grouped(iops), grouped(mb));
        self.screen.paint(self.rows, &line);
        self.before = Some(*tick);
    }
}
