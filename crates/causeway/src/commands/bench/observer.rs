//! Progress of a run on standard error: a bar on a terminal, DiskSPD's dots (`-P`), or nothing.

use std::io::{IsTerminal, Write};

use bench::engine::{Observer, Phase, Tick};
use bench::profile::Profile;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::left;
use crate::output::human_bytes;

/// See the module.
pub(super) struct Progress {
    bar: ProgressBar,
    dots: bool,
    shown: u64,
    span: usize,
    before: Option<Tick>,
}

impl Progress {
    pub(super) fn new(profile: &Profile, quiet: bool) -> Progress {
        let dots = profile.progress > 0;
        let bar = ProgressBar::new(0);
        // Dots and a bar would overwrite each other.
        let hidden = quiet || dots || !std::io::stderr().is_terminal();
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
        bar.set_draw_target(target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:10} {bar:24} {msg}") {
            bar.set_style(style);
        }
        Progress { bar, dots: dots && !quiet, shown: 0, span: 0, before: None }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
        if self.shown > 0 {
            eprintln!();
        }
    }
}

impl Observer for Progress {
    fn creating(&mut self, path: &str, done: u64, size: u64) {
        self.bar.set_length(size);
        self.bar.set_position(done);
        self.bar.set_prefix("creating");
        self.bar.set_message(format!("{} of {} {path}", human_bytes(done), human_bytes(size)));
    }

    fn tick(&mut self, tick: &Tick) {
        if tick.span != self.span {
            (self.span, self.shown, self.before) = (tick.span, 0, None);
        }
        if self.dots && tick.dots > self.shown {
            eprint!("{}", ".".repeat((tick.dots - self.shown).min(10_000) as usize));
            let _ = std::io::stderr().flush(); // a lost dot is harmless
            self.shown = tick.dots;
        }
        let since = self
            .before
            .map_or((0, 0, 0.0), |b| (b.ios, b.bytes, tick.elapsed.saturating_sub(b.elapsed).as_secs_f64()));
        // Rates over about a second are steady enough to be read.
        if since.2 >= 1.0 {
            let iops = (tick.ios - since.0) as f64 / since.2;
            let bytes = ((tick.bytes - since.1) as f64 / since.2) as u64;
            let failed = if tick.errors > 0 { format!(", {} FAILED", tick.errors) } else { String::new() };
            let left = left(tick.total, tick.elapsed);
            self.bar.set_message(format!("{iops:.0} IOPS, {}/s, {left} s left{failed}", human_bytes(bytes)));
        }
        if since.2 >= 1.0 || self.before.is_none() {
            self.before = Some(*tick);
        }
        self.bar.set_length(tick.total.as_millis() as u64);
        self.bar.set_position(tick.elapsed.as_millis() as u64);
        self.bar.set_prefix(match tick.phase {
            Phase::WarmUp => "warm-up",
            Phase::Measuring => "measuring",
            Phase::CoolDown => "cool-down",
        });
    }
}
