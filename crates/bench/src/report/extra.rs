//! Results that DiskSPD's report does not contain: I/O method, errors, cost.

use std::collections::BTreeMap;

use crate::engine::{Fault, SpanResults, WorkRequests};

/// Sums over the threads of a time span.
pub(super) struct Extra {
    pub short: u64,
    pub overdue: u64,
    pub errors: BTreeMap<Fault, u64>,
}

/// Sums over the threads.
pub(super) fn sums(span: &SpanResults) -> Extra {
    let mut errors = BTreeMap::new();
    for (fault, count) in span.targets().flat_map(|t| &t.errors) {
        *errors.entry(*fault).or_default() += count;
    }
    Extra {
        short: span.targets().map(|t| t.short).sum(),
        overdue: span.targets().map(|t| t.overdue).sum(),
        errors,
    }
}

/// Microseconds of processor time per I/O. Returns `None` without I/Os.
pub(super) fn us_per_io(cpu_s: f64, ios: u64) -> Option<f64> {
    (ios > 0).then(|| cpu_s * 1e6 / ios as f64)
}

/// The section of the text report; empty if there are no such results.
pub(super) fn text(span: &SpanResults) -> String {
    let mut lines = Vec::new();
    if !span.engine.is_empty() {
        lines.push(format!("engine:\t\t\t{}", span.engine));
    }
    if span.stopped {
        lines.push("stopped:\t\tbefore its end; the results until then are above".to_owned());
    }
    let sums = sums(span);
    for (fault, count) in &sums.errors {
        lines.push(format!("FAILED:\t\t\t{count} I/Os: {fault}"));
    }
    if sums.short > 0 {
        lines.push(format!("SHORT:\t\t\t{} I/Os moved less than a block", sums.short));
    }
    if span.unfinished > 0 {
        lines.push(format!(
            "UNFINISHED:\t\t{} I/Os did not complete within a minute after the run",
            span.unfinished
        ));
    }
    if sums.overdue > 0 {
        lines.push(format!(
            "overdue:\t\t{} I/Os were due in the measured time but did not complete in it: the target is slower than -g",
            sums.overdue
        ));
    }
    if let Some((w, ios)) = span.posted()
        && let Some(per_io) = w.per_io(ios)
    {
        let WorkRequests { register, send, local_invalidate, remote_invalidations, .. } = w;
        lines.push(format!(
            "work requests:\t\t{per_io:.2} per I/O: {register} registrations, {send} sends, {local_invalidate} local invalidations ({remote_invalidations} by the peer)"
        ));
    }
    if let Some(v) = span.verified() {
        let mut text = format!("verified:\t\t{} sectors of 512 bytes are correct", v.sectors);
        for (count, what) in [
            (v.unstamped, "were never written by a verified run"),
            (v.raced, "were being written and could not be checked"),
        ] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        lines.push(text);
        if v.deferred > 0 {
            let n = v.deferred;
            lines.push(format!(
                "deferred:\t\t{n} writes became reads: another write of the same sectors was in flight"
            ));
        }
        if v.mismatches > 0 {
            lines.push(format!("MISMATCH:\t\t{} sectors", v.mismatches));
        }
        if let Some(first) = &v.first {
            lines.push(format!("first mismatch:\t\t{first}"));
        }
    }
    let mut out = String::new();
    if !lines.is_empty() {
        out.push_str("\nCauseway\n--------\n");
        out.push_str(&lines.join("\n"));
        out.push('\n');
    }
    if !span.processes.is_empty() && !span.elapsed.is_zero() {
        out.push_str("\nProcess CPU\n    pid |  CPU (s) |  cores | us per I/O | process\n");
        out.push_str("------------------------------------------------------\n");
        for p in &span.processes {
            let per = us_per_io(p.cpu_s, span.ios()).map_or("N/A".to_owned(), |us| format!("{us:.3}"));
            let cores = p.cpu_s / span.elapsed.as_secs_f64();
            out.push_str(&format!("{:7} | {:8.2} | {cores:6.2} | {per:>10} | {}\n", p.pid, p.cpu_s, p.name));
        }
    }
    out
}
