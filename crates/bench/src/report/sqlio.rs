//! SQLIO's summary: throughput, latency, and its histogram in whole milliseconds.

use crate::engine::{SpanResults, Tally};

/// The last column of the histogram: this many milliseconds or more.
const LAST_MS: u64 = 24;

/// The summary of a time span.
pub fn summary(span: &SpanResults) -> String {
    let seconds = span.elapsed.as_secs_f64();
    if span.elapsed.is_zero() {
        return "the run was stopped before anything was measured\n".to_owned();
    }
    let mut all = Tally::default();
    span.targets().for_each(|t| all.merge(&t.total()));
    let mut out = format!(
        "CUMULATIVE DATA:\nthroughput metrics:\nIOs/sec: {:8.2}\nMBs/sec: {:8.2}\n",
        all.ios as f64 / seconds,
        all.bytes as f64 / 1024.0 / 1024.0 / seconds
    );
    let latency = &all.latency;
    if latency.count() > 0 {
        out.push_str(&format!(
            "latency metrics:\nMin_Latency(ms): {:.0}\nAvg_Latency(ms): {:.0}\nMax_Latency(ms): {:.0}\nhistogram:\nms:",
            latency.min_ms().floor(),
            latency.mean_ms().floor(),
            latency.max_ms().floor()
        ));
        for ms in 0..LAST_MS {
            out.push_str(&format!(" {ms:2}"));
        }
        out.push_str(&format!(" {LAST_MS}+\n%: "));
        for ms in 0..LAST_MS {
            out.push_str(&format!(" {:2.0}", latency.share_ms(ms, ms + 1)));
        }
        out.push_str(&format!(" {:3.0}\n", latency.share_ms(LAST_MS, u64::MAX)));
    }
    out
}
