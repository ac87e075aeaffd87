//! Moves data of an open pool to other disks automatically: from disks that are to be removed, from lost disks, and
//! to new disks.
//!
//! Invariants:
//! 1. A disk that is to be removed and has data has a job, and so has a disk that has been lost for longer than the
//!    pool's policy allows. A job that cannot continue stays listed with the reason. It tries again when something
//!    changes, or after a minute.
//! 2. A job that was stopped by command does not start again before another command, or the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use env::Env;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use pool::jobs::{DelayReason, Job, Kind, NotMoved, Subject};
use pool::{Absence, DiskNumber, Policy, Pool, Presence, State, Usage, placement};
use tokio::sync::watch;

use super::reporter::{EventReporter, ReportedJob};
use crate::control::events::EventKind;

/// A job that could not continue tries again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// If several disks are lost or leave at once, their jobs work on the same rows, of which one slab moves at a time. A
/// job that found some of its rows in use tries again after this delay, which grows each time. After [`PASSES`]
/// attempts without progress it waits like a failed job.
const PASS_PAUSE: Duration = Duration::from_millis(200);
const PASSES: u32 = 20;

/// At the start a pool is rebalanced if the fill levels of its disks differ by more than this percentage: a disk was
/// added, and the rebalance did not complete.
const UNEVEN: u64 = 20;

/// The event text for a removed disk that is empty.
const EMPTIED: &str = "its data is on other disks, and it was removed from the pool";

/// Moves data of an open pool; it ends with the owners.
pub(super) struct Mover {
    env: Env,
    pool: Pool,
    /// Counts requests for a rebalance.
    rebalance_requests: watch::Sender<u64>,
    rebalance: AtomicBool,
    /// When this process found that a disk is lost.
    lost: Mutex<BTreeMap<DiskNumber, Instant>>,
    stopped_by_command: Mutex<BTreeSet<(Kind, Subject)>>,
    stopping: AtomicBool,
    reporter: EventReporter,
}

impl Mover {
    /// Starts to search for data to move.
    pub(super) fn start(env: &Env, pool: &Pool, reporter: &EventReporter) -> Arc<Mover> {
        let mover = Arc::new(Mover {
            env: env.clone(),
            pool: pool.clone(),
            rebalance_requests: watch::Sender::new(0),
            rebalance: AtomicBool::new(pool.read(is_uneven)),
            lost: Mutex::default(),
            stopped_by_command: Mutex::default(),
            stopping: AtomicBool::new(false),
            reporter: reporter.clone(),
        });
        env.spawn(Arc::clone(&mover).run());
        mover
    }

    /// Checks for work after a command changed the usage of a disk or the policy.
    pub(super) fn check_for_work(&self) {
        self.stopped_by_command.lock().clear();
        self.rebalance_requests.send_modify(|n| *n += 1);
    }

    /// Requests a rebalance; false if one runs already.
    pub(super) fn rebalance(&self) -> bool {
        self.rebalance.store(true, Ordering::Relaxed);
        let running = self.is_listed(Kind::Rebalance, Subject::Pool);
        self.check_for_work();
        !running
    }

    /// Starts no more jobs; the board stops the existing ones.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.rebalance_requests.send_modify(|n| *n += 1);
    }

    async fn run(self: Arc<Mover>) {
        while !self.stopping.load(Ordering::Relaxed) {
            let required = self.pool.read(RequiredActions::of);
            let due = self.due(&required.lost);
            let change = self.change(due);
            for disk in required.empty {
                self.take_out(disk).await;
            }
            for disk in required.lost.into_iter().filter(|d| self.is_due(*d)) {
                self.begin(Kind::Rebuild, disk);
            }
            required.leaving.iter().for_each(|disk| self.begin(Kind::Drain, *disk));
            self.end_needless();
            self.begin_rebalance();
            change.await;
        }
    }

    /// The time until the first lost disk must be rebuilt.
    fn due(&self, lost: &BTreeSet<DiskNumber>) -> Option<Duration> {
        let (now, policy) = (self.env.now(), self.pool.read(|s| s.policy));
        let mut since = self.lost.lock();
        since.retain(|d, _| lost.contains(d));
        for disk in lost {
            since.entry(*disk).or_insert(now);
        }
        if policy.repair_after_s == Policy::NEVER {
            return None;
        }
        let after = Duration::from_secs(policy.repair_after_s.into());
        since.values().map(|at| (*at + after).saturating_duration_since(now)).min()
    }

    fn is_due(&self, disk: DiskNumber) -> bool {
        let after = Duration::from_secs(self.pool.read(|s| s.policy.repair_after_s).into());
        self.lost.lock().get(&disk).is_some_and(|at| self.env.now() >= *at + after)
    }

    fn begin(self: &Arc<Mover>, kind: Kind, disk: DiskNumber) {
        let subject = Subject::Disk(disk);
        if self.stopped_by_command.lock().contains(&(kind, subject)) {
            return;
        }
        if let Some(job) = self.reporter.begin(self.pool.jobs(), kind, subject) {
            self.env.spawn(Arc::clone(self).empty(job, kind, disk));
        }
    }

    fn begin_rebalance(self: &Arc<Mover>) {
        let other = [Kind::Drain, Kind::Rebuild];
        let busy = self.pool.jobs().list().iter().any(|j| other.contains(&j.kind));
        let left = !busy && self.pool.read(|s| s.is_moving());
        let is_stopped = self.stopped_by_command.lock().contains(&(Kind::Rebalance, Subject::Pool));
        if is_stopped || !(left || self.rebalance.load(Ordering::Relaxed)) {
            return;
        }
        if let Some(job) = self.reporter.begin(self.pool.jobs(), Kind::Rebalance, Subject::Pool) {
            self.env.spawn(Arc::clone(self).even_out(job));
        }
    }

    /// Stops rebuilding disks that returned, and emptying disks that are to stay.
    fn end_needless(&self) {
        for job in self.pool.jobs().list() {
            let Subject::Disk(disk) = job.subject else { continue };
            let needed = self.pool.read(|s| match job.kind {
                Kind::Rebuild => is_lost(s, disk),
                Kind::Drain => s.disks.get(&disk).is_some_and(|d| d.usage.is_leaving()),
                _ => true,
            });
            if !needed {
                // The job may have ended in the meantime.
                let _ = self.pool.jobs().stop(job.id);
            }
        }
    }

    fn is_listed(&self, kind: Kind, subject: Subject) -> bool {
        self.pool.jobs().list().iter().any(|j| (j.kind, j.subject) == (kind, subject))
    }

    /// Completes when a disk joins or leaves, a command arrives, or the delay `due` has passed.
    fn change(&self, due: Option<Duration>) -> impl Future<Output = ()> + Send + use<> {
        let (mut changes, mut requests, env) =
            (self.pool.changes(), self.rebalance_requests.subscribe(), self.env.clone());
        let wait = due.filter(|d| *d > Duration::ZERO).map_or(RETRY_INTERVAL, |d| d.min(RETRY_INTERVAL));
        async move {
            let time = std::pin::pin!(env.sleep(wait));
            let joined = std::pin::pin!(changes.changed());
            let requests = std::pin::pin!(requests.changed());
            let event = select(joined, requests);
            if let Either::Left((Either::Left((Err(_), _)), time)) = select(event, time).await {
                // The pool reports no more changes: only the time remains.
                time.await;
            }
        }
    }

    /// Whether a job is to end; remembers a job that was stopped by command.
    fn must_end(&self, job: &Job, kind: Kind, subject: Subject) -> bool {
        if job.is_stopped() && !self.stopping.load(Ordering::Relaxed) {
            self.stopped_by_command.lock().insert((kind, subject));
        }
        job.is_stopped()
    }

    /// Moves all data from a disk that is to be removed, or rebuilds that of a lost disk on other disks.
    async fn empty(self: Arc<Mover>, job: ReportedJob, kind: Kind, disk: DiskNumber) {
        let (name, number) = (self.name(), disk.0);
        tracing::info!(
            pool = name,
            disk = number,
            job = kind.name(),
            "the disk's data is being moved to other disks"
        );
        let mut passes = 0;
        loop {
            let change = self.change(None);
            job.forget_unfinished();
            let result = self.pool.evacuate(disk, &job).await;
            let (why, soon) = match result {
                Ok(done) if done.remaining == 0 => {
                    tracing::info!(pool = name, disk = number, "the disk is empty");
                    break;
                }
                Ok(done) => {
                    passes = if done.moved > 0 { 1 } else { passes + 1 };
                    let why = done.why.unwrap_or(NotMoved::Unfinished);
                    let continues = (done.moved > 0 || why == NotMoved::Unfinished) && passes <= PASSES;
                    (why.to_string(), continues.then(|| PASS_PAUSE * passes))
                }
                Err(error) => (error.to_string(), None),
            };
            if self.must_end(&job, kind, Subject::Disk(disk)) {
                return;
            }
            if soon.is_none() {
                tracing::warn!(pool = name, disk = number, why, "some data could not be moved off the disk");
            }
            let time = async {
                match soon {
                    Some(soon) => self.env.sleep(soon).await,
                    None => std::future::pending().await,
                }
            };
            let (change, time) = (std::pin::pin!(change), std::pin::pin!(time));
            let why = if soon.is_some() { DelayReason::Incomplete(why) } else { DelayReason::Failed(why) };
            if !job.wait_for(why, select(change, time).map(drop)).await {
                self.must_end(&job, kind, Subject::Disk(disk));
                return;
            }
        }
        drop(job);
        // Removes the disk, if that was requested.
        self.rebalance_requests.send_modify(|n| *n += 1);
    }

    /// Completes the moves in progress, and balances the disks if that is requested or needed.
    async fn even_out(self: Arc<Mover>, job: ReportedJob) {
        let name = self.name();
        let resumed = self.pool.resume_moves(&job).await;
        // A row has one move at a time, so moves that a restart interrupted hide other necessary moves.
        let wanted = self.rebalance.swap(false, Ordering::Relaxed) || self.pool.read(is_uneven);
        let result = match resumed {
            Ok(()) if wanted => self.pool.optimize(&job).await,
            other => other.map(|()| 0),
        };
        match result {
            Ok(moved) if wanted => tracing::info!(pool = name, moved, "the disks are evenly full"),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(pool = name, %error, "cannot make the disks evenly full");
                job.fail(error.to_string());
            }
        }
        self.must_end(&job, Kind::Rebalance, Subject::Pool);
    }

    /// Removes a disk from the pool that is to be removed and is empty.
    async fn take_out(&self, disk: DiskNumber) {
        let (name, number) = (self.name(), disk.0);
        let object = self.reporter.object(Subject::Disk(disk));
        match self.pool.remove_disk(disk).await {
            Ok(()) => {
                self.reporter.report_object(EventKind::DiskRemoved, object, EMPTIED.to_owned());
                tracing::info!(pool = name, disk = number, "the disk was removed from the pool");
            }
            Err(error) => {
                tracing::warn!(pool = name, disk = number, %error, "the disk cannot be removed from the pool")
            }
        }
    }

    fn name(&self) -> String {
        self.pool.read(|s| s.name.clone())
    }
}

/// The actions required for disks.
#[derive(Debug, Default, PartialEq, Eq)]
struct RequiredActions {
    /// Disks that are to be emptied and still have data.
    leaving: Vec<DiskNumber>,
    /// Disks that are to be removed and are empty.
    empty: Vec<DiskNumber>,
    /// Lost disks whose data must be rebuilt on others.
    lost: BTreeSet<DiskNumber>,
}

impl RequiredActions {
    fn of(s: &State) -> RequiredActions {
        let mut required = RequiredActions::default();
        for (&disk, record) in &*s.disks {
            let empty = s.slabs_used(disk).next().is_none();
            match record.usage {
                Usage::Leaving if empty => required.empty.push(disk),
                usage if usage.is_leaving() && !empty => required.leaving.push(disk),
                _ if !empty && is_lost(s, disk) => drop(required.lost.insert(disk)),
                _ => {}
            }
        }
        required
    }
}

/// Whether a disk is absent, other than by command.
fn is_lost(s: &State, disk: DiskNumber) -> bool {
    let presence = s.disks.get(&disk).map(|d| d.presence);
    matches!(presence, Some(Presence::Absent(why)) if why != Absence::ByCommand)
}

/// Whether slabs are on other media than allowed, or the disks are so unevenly full that an earlier rebalance
/// cannot have completed.
fn is_uneven(s: &State) -> bool {
    let outside = || s.spaces.keys().any(|space| placement::outside(s, *space) > 0);
    let auto = s.disks.iter().filter(|(d, r)| r.usage == Usage::AutoSelect && s.is_present(**d));
    let fills = auto.map(|(d, r)| {
        let used = u64::from(r.slabs - s.slabs_free(*d).min(r.slabs));
        used * 100 / u64::from(r.slabs.max(1))
    });
    let fills: Vec<u64> = fills.collect();
    let (most, least) = (fills.iter().max(), fills.iter().min());
    (most.zip(least).is_some_and(|(m, l)| m - l > UNEVEN) || outside())
        && placement::rebalance(s, &BTreeSet::new()).is_some()
}

#[cfg(test)]
mod tests {
    use pool::testing::{disk, mirror};
    use pool::{DiskId, DiskRecord, Op, PoolId, RowNumber, SlabPlace};

    use super::*;

    fn pool_of(disks: u16) -> State {
        let mut s = State::new(PoolId([1; 16]), "p".into(), 2 << 20);
        for n in 0..disks {
            s.apply(&Op::AddDisk { disk: DiskNumber(n), record: disk(n) }).expect("a disk");
        }
        let record = mirror("m");
        let space = s.make(record);
        for row in 0..4 {
            let slabs = [0, 1].map(|d| SlabPlace { disk: DiskNumber(d), slab: row });
            s.fill(space, RowNumber(row), slabs).expect("free slabs");
        }
        s
    }

    #[test]
    fn required_actions_of_each_disk() {
        let mut s = pool_of(3);
        assert_eq!(RequiredActions::of(&s), RequiredActions::default());
        let usage = |disk, usage| Op::SetUsage { disk: DiskNumber(disk), usage };
        s.apply(&usage(0, Usage::Leaving)).expect("it may");
        s.apply(&usage(2, Usage::Leaving)).expect("it may");
        let required = RequiredActions::of(&s);
        assert_eq!((required.leaving, required.empty), (vec![DiskNumber(0)], vec![DiskNumber(2)]));
        // A retired disk that is empty stays in the pool.
        s.apply(&usage(2, Usage::Retired)).expect("it may");
        assert!(RequiredActions::of(&s).empty.is_empty());
        // A disk that is to be removed is emptied at once, whether present or absent; a lost disk after the delay; a
        // disk that a command took offline is not emptied.
        for (why, lost) in [(Absence::Gone, 1), (Absence::WriteFailed, 1), (Absence::ByCommand, 0)] {
            s.apply(&Op::DiskAbsent { disk: DiskNumber(1), reason: why }).expect("it may");
            assert_eq!(RequiredActions::of(&s).lost.len(), lost, "{why:?}");
        }
        s.apply(&usage(1, Usage::Retired)).expect("it may");
        assert_eq!(RequiredActions::of(&s).leaving, [0, 1].map(DiskNumber));
    }

    #[test]
    fn a_new_disk_makes_a_pool_uneven() {
        let mut s = pool_of(2);
        assert!(!is_uneven(&s));
        let record = DiskRecord { id: DiskId([9; 16]), ..s.disks[&DiskNumber(0)].clone() };
        s.apply(&Op::AddDisk { disk: DiskNumber(2), record }).expect("a disk");
        assert!(is_uneven(&s));
        s.apply(&Op::SetUsage { disk: DiskNumber(2), usage: Usage::HotSpare }).expect("it may");
        assert!(!is_uneven(&s), "a spare waits for its day");
    }
}
