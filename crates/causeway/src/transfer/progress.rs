//! The progress display during a copy, and the summary at the end.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use env::Env;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Output, some, with_unit};

/// One line; the bar takes the remaining width.
const BAR: &str = "{msg:20!} {bytes:>10} {wide_bar} {binary_bytes_per_sec:>12} {eta:>4}";

/// A bar on a terminal, and the totals of the copy.
pub struct Progress {
    bar: ProgressBar,
    out: Output,
    env: Env,
    started: Instant,
    bytes: Cell<u64>,
    files: Cell<u64>,
    resumed: Cell<u64>,
    holes: Cell<u64>,
}

/// The bytes that a command transferred, and the transport.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Summary {
    /// Number of files.
    pub files: u64,
    /// Transferred bytes.
    pub bytes: u64,
    /// Bytes that an earlier attempt had copied (`--resume`).
    pub resumed_bytes: u64,
    /// Bytes of holes, which were not transferred.
    pub hole_bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Million bytes per second.
    pub mb_per_s: f64,
    /// `tcp` or `rdma`.
    pub transport: &'static str,
    /// Why it is not RDMA, unless the user chose so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not_rdma: Option<String>,
}

impl Progress {
    /// Starts the display. JSON output has no bar.
    pub fn new(out: Output, env: &Env) -> Progress {
        let bar = ProgressBar::new(0);
        let target = if !out.json && std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        bar.set_draw_target(target);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        Progress {
            bar,
            out,
            env: env.clone(),
            started: env.now(),
            bytes: Cell::new(0),
            files: Cell::new(0),
            resumed: Cell::new(0),
            holes: Cell::new(0),
        }
    }

    /// Adds bytes to the expected total.
    pub fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Starts the next file.
    pub fn file(&self, name: &str) {
        self.files.update(|n| n + 1);
        self.bar.set_message(crate::output::printable(name));
    }

    /// Counts bytes that an earlier attempt had copied.
    pub fn skip(&self, bytes: u64) {
        self.resumed.update(|n| n + bytes);
        self.bar.inc(bytes);
    }

    /// Counts bytes of a hole.
    pub fn hole(&self, bytes: u64) {
        self.holes.update(|n| n + bytes);
        self.bar.inc(bytes);
    }

    /// Counts transferred bytes.
    pub fn moved(&self, bytes: u64) {
        self.bytes.update(|n| n + bytes);
        self.bar.inc(bytes);
    }

    /// Prints above the bar why a file was not copied.
    pub fn failed(&self, failure: &Failure) {
        self.bar.suspend(|| self.out.failed(&failure.to_string(), failure.cure()));
    }

    /// Removes the bar and returns the summary.
    pub fn finish(self, transport: &'static str, why_not_rdma: Option<String>) -> Summary {
        self.bar.finish_and_clear();
        let took = self.env.now() - self.started;
        Summary {
            files: self.files.get(),
            bytes: self.bytes.get(),
            resumed_bytes: self.resumed.get(),
            hole_bytes: self.holes.get(),
            seconds: took.as_secs_f64(),
            mb_per_s: rate(self.bytes.get(), took),
            transport,
            why_not_rdma,
        }
    }
}

/// Million bytes per second; a duration of zero counts as a microsecond.
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64().max(1e-6)
}

impl Summary {
    /// The summary as a line of text.
    pub fn text(&self) -> String {
        let files = some(self.files as usize, "file");
        let bytes = with_unit(self.bytes);
        let resumed = match self.resumed_bytes {
            0 => String::new(),
            n => format!(" ({} already copied)", with_unit(n)),
        };
        let holes = match self.hole_bytes {
            0 => String::new(),
            n => format!(" and {} of holes", with_unit(n)),
        };
        let rate = if self.mb_per_s < 99.95 {
            format!("{:.1}", self.mb_per_s)
        } else {
            format!("{:.0}", self.mb_per_s)
        };
        let transport = match (self.transport, &self.why_not_rdma) {
            ("rdma", _) => "SMB Direct".to_owned(),
            (_, Some(why)) => format!("TCP (no SMB Direct: {why})"),
            (_, None) => "TCP".to_owned(),
        };
        format!("{files}, {bytes}{holes}{resumed} in {:.1} s, {rate} MB/s, {transport}", self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_how_fast_and_why() {
        let s = Summary {
            files: 1,
            bytes: 5_000_000,
            resumed_bytes: 0,
            hole_bytes: 0,
            seconds: 0.5,
            mb_per_s: rate(5_000_000, Duration::from_millis(500)),
            transport: "tcp",
            why_not_rdma: Some("the server announces no RDMA interface".to_owned()),
        };
        assert_eq!(
            s.text(),
            "1 file, 4.8 MiB in 0.5 s, 10.0 MB/s, TCP (no SMB Direct: the server announces no RDMA interface)"
        );
        let r = Summary { files: 3, resumed_bytes: 1 << 30, transport: "rdma", why_not_rdma: None, ..s };
        assert_eq!(r.text(), "3 files, 4.8 MiB (1 GiB already copied) in 0.5 s, 10.0 MB/s, SMB Direct");
        let h = Summary { hole_bytes: 3 << 20, resumed_bytes: 0, ..r };
        assert_eq!(h.text(), "3 files, 4.8 MiB and 3 MiB of holes in 0.5 s, 10.0 MB/s, SMB Direct");
        let small = Summary { files: 1, bytes: 17, hole_bytes: 0, mb_per_s: 1234.5, ..h };
        assert_eq!(small.text(), "1 file, 17 bytes in 0.5 s, 1234 MB/s, SMB Direct");
    }
}
