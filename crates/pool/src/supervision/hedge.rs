//! Detects late reads of owners, and notifies their callers, which may then read the data elsewhere.
//!
//! One task handles all reads of a pool, because a timer per read would almost always be cancelled. It runs while
//! there are outstanding reads that are not late yet. It sleeps until the first of them is late, or for
//! [`HEDGE_LEAST`]: a read that begins meanwhile cannot be late earlier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use env::Moment;
use parking_lot::Mutex;

use super::Supervision;
use super::budget::Budget;
use super::recent_latencies::RecentLatencies;
use crate::{DiskNumber, Pool};

/// The minimum time before a read is late: timers have a precision of a millisecond, and faster reads need no hedge.
pub const HEDGE_LEAST: Duration = Duration::from_millis(5);

/// The maximum time before a read is late, also without measurements of the disk: a rotating disk with a long queue
/// completes a read within it.
pub const HEDGE_MOST: Duration = Duration::from_millis(100);

/// A read is late after this many medians at most: if every fiftieth read is slow, the percentile is that of the slow
/// ones. The [budget](super::budget) limits the number of hedged reads.
const HEDGE_MEDIANS: u32 = 10;

/// The number of reads needed for a 99th percentile.
pub(crate) const KNOWN: u64 = 100;

/// An avoided disk gets a trial read after this time without a read, to check whether it is still slow.
pub(crate) const TRIAL: Duration = Duration::from_secs(5);

/// How often the percentile of a disk is recomputed.
pub(super) const RENEWAL: Duration = Duration::from_millis(100);

/// The state of hedging in a pool.
#[derive(Default)]
pub(super) struct Hedging {
    /// Whether the task is running.
    runs: AtomicBool,
    budget: Mutex<Budget>,
}

/// The right to run the task; it ends on drop, even if the task was never started.
struct Running(Arc<Supervision>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.hedging.runs.store(false, Ordering::Release);
    }
}

/// The latency after which a read of a disk is late: the 99th percentile of its recent reads, within bounds.
pub(crate) fn hedge_after(reads: &RecentLatencies) -> Duration {
    let is_known = reads.count() >= KNOWN;
    let of = |percent| reads.percentile(percent).filter(|_| is_known);
    let after = match (of(99), of(50)) {
        (Some(most), Some(median)) => most.min(median * HEDGE_MEDIANS),
        _ => HEDGE_MOST,
    };
    after.clamp(HEDGE_LEAST, HEDGE_MOST)
}

impl Supervision {
    /// Starts the task, because there is a read.
    pub(super) fn wake_hedger(self: &Arc<Supervision>) {
        let runs = &self.hedging.runs;
        if !runs.load(Ordering::Relaxed) && !runs.swap(true, Ordering::AcqRel) {
            self.env.spawn_if_running(run(Running(Arc::clone(self))));
        }
    }

    /// Whether one more read may be hedged; counts the read if so.
    pub(super) fn may_hedge(&self) -> bool {
        let reads = self.reads();
        self.hedging.budget.lock().take(reads)
    }

    /// The number of owners' reads from all disks in service.
    fn reads(&self) -> u64 {
        self.records().iter().map(|record| record.reads()).sum()
    }

    /// Reports the reads that are late now; returns when the next one will be.
    fn report_late(&self, now: Moment) -> Option<Moment> {
        let next = self.records().into_iter().filter_map(|record| {
            let (late, next) = record.late_reads(now);
            late.into_iter().for_each(|(caller, which)| caller.late(which));
            next
        });
        next.min()
    }
}

async fn run(running: Running) {
    let supervision = Arc::clone(&running.0);
    let env = supervision.env.clone();
    let mut quiet = false;
    loop {
        let now = env.moment();
        let next = supervision.report_late(now);
        if next.is_none() && quiet {
            drop(running);
            // A read that began since has not started another task.
            if supervision.report_late(env.moment()).is_some() {
                supervision.wake_hedger();
            }
            return;
        }
        quiet = next.is_none();
        let latest = now.after(HEDGE_LEAST);
        env.sleep_until(env.instant(next.map_or(latest, |next| next.min(latest)))).await;
    }
}

impl Pool {
    /// Reads of owners of spaces from the disks in service, and how many reads were hedged since the pool was opened.
    pub fn hedged_reads(&self) -> (u64, u64) {
        let supervision = self.metadata().supervision();
        (supervision.reads(), supervision.hedging.budget.lock().taken())
    }

    /// Reads of a disk by owners that were late and hedged, in its present membership.
    pub fn hedged_reads_of(&self, disk: DiskNumber) -> u64 {
        let records = self.metadata().supervision().records();
        records.iter().filter(|record| record.number == disk && !record.has_ended()).map(|r| r.hedged()).sum()
    }
}
