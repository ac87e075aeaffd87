//! Supervision of the disks while there is I/O: finds outliers and disks that do not answer, and acts on
//! them.
//!
//! One task for a data path. It starts with an I/O, checks the disks once a [`SPAN`], and ends after a span
//! without I/O.
//!
//! * A slow disk is reported, and avoided by reads unless a long queue may be the reason.
//! * One that is slow for a minute without that reason is removed from service, if all data is available
//!   without it and no more disks are absent then than every space promises to survive. The slow disk still
//!   serves its data, so there is no hurry.
//! * A disk with an I/O that has not completed after [`HANGS`] is removed as soon as the pool can continue
//!   without it, and without the other hung disks. Its waiting I/O then fails over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use disk::Media;
use env::{Env, Moment};
use parking_lot::Mutex;

use crate::book::Life;
use crate::disks::DataDisk;
use crate::path::DataPath;
use crate::supervision::standing::{SPAN, Slowness, Standings, Verdict};
pub(crate) use crate::supervision::task::{HANGS, goes_on_without};
use crate::supervision::task::{LATE, NUDGE, may_spare, with_media};
use crate::{Absence, DiskNumber, SpaceId};

/// Starts its tasks when there is I/O and they do not run.
pub(crate) struct Watch {
    pub(super) path: OnceLock<Weak<DataPath>>,
    runs: AtomicBool,
    pub(super) hedges: AtomicBool,
    standings: Mutex<Standings>,
}

/// Reports the end of a task, also if it was never started.
pub(super) struct Running {
    pub(super) watch: Arc<Watch>,
    of: fn(&Watch) -> &AtomicBool,
}

impl Drop for Running {
    fn drop(&mut self) {
        (self.of)(&self.watch).store(false, Ordering::Release);
    }
}

impl Watch {
    pub(crate) fn new() -> Arc<Watch> {
        Arc::new(Watch {
            path: OnceLock::new(),
            runs: AtomicBool::new(false),
            hedges: AtomicBool::new(false),
            standings: Mutex::default(),
        })
    }

    /// The disks to look after. Called once.
    pub(crate) fn set_path(&self, path: &Arc<DataPath>) {
        let _ = self.path.set(Arc::downgrade(path));
    }

    /// There is I/O.
    pub(crate) fn wake(self: &Arc<Watch>, env: &Env) {
        if let Some(running) = self.start(|watch| &watch.runs) {
            env.spawn_if_running(run(env.clone(), running));
        }
    }

    /// The right to run one of the tasks, if it does not run.
    pub(super) fn start(self: &Arc<Watch>, of: fn(&Watch) -> &AtomicBool) -> Option<Running> {
        if of(self).load(Ordering::Relaxed) || self.path.get().is_none() {
            return None;
        }
        (!of(self).swap(true, Ordering::AcqRel)).then(|| Running { watch: Arc::clone(self), of })
    }
}

async fn run(env: Env, running: Running) {
    let watch = Arc::clone(&running.watch);
    let Some(path) = watch.path.get().cloned() else { return };
    let mut span_ends = env.moment().after(SPAN);
    loop {
        let wake = {
            let Some(path) = path.upgrade() else { return };
            let oldest = path.all_disks().iter().filter_map(|d| d.pulse.oldest()).min();
            let now = env.moment();
            // One that hangs and has to be waited for is looked at again after a while.
            let next = |o: Moment| if o.after(HANGS) > now { o.after(HANGS) } else { now.after(LATE) };
            oldest.map_or(span_ends, |o| next(o).min(span_ends))
        };
        env.sleep_until(env.instant(wake)).await;
        let Some(path) = path.upgrade() else { return };
        let now = env.moment();
        let late = Duration::from_nanos(now.ns_since(wake)) >= LATE;
        if !late {
            path.drop_hung().await;
        }
        if now >= span_ends {
            let quiet = path.end_span(&watch.standings, now, late).await;
            span_ends = env.moment().after(SPAN);
            if quiet {
                drop(running);
                // An I/O that began since was not to start another one.
                if !path.is_quiet() {
                    watch.wake(&env);
                }
                return;
            }
        }
    }
}

impl DataPath {
    /// Checks all disks; returns whether there was no I/O.
    async fn end_span(self: &Arc<DataPath>, standings: &Mutex<Standings>, now: Moment, late: bool) -> bool {
        let disks = self.disks();
        let said: BTreeMap<_, _> = self.read(|s| s.disks.iter().map(|(d, r)| (*d, r.media())).collect());
        let look = |d: &Arc<DataDisk>| {
            let look = d.pulse.look(d.member.disk.info(), now);
            (d.number, with_media(look, said.get(&d.number).copied().unwrap_or(Media::Unspecified)))
        };
        let looks: BTreeMap<_, _> = disks.iter().map(look).collect();
        if late {
            return false;
        }
        let verdict = standings.lock().span(&looks);
        for disk in &disks {
            disk.pulse.set_slow(verdict.slow.get(&disk.number).is_some_and(|why| !why.crowded));
        }
        self.events.slow_now(&verdict.slow);
        let Verdict { slow, leave } = verdict;
        for disk in leave {
            let why = slow.get(&disk).copied();
            let may = || self.read(|s| may_spare(s, disk));
            if may() {
                self.lets_go(disk, why, may).await;
            }
        }
        slow.is_empty() && looks.values().all(|l| l.longest.is_zero()) && self.is_quiet()
    }

    /// Whether no I/O is outstanding, or awaited on a removed disk.
    fn is_quiet(&self) -> bool {
        self.disks().iter().all(|d| d.pulse.is_idle())
            && self.all_disks().iter().all(|d| d.pulse.oldest().is_none())
    }

    /// Disks with an I/O that does not end leave, as far as that is possible.
    async fn drop_hung(self: &Arc<DataPath>) {
        let mut seen = BTreeSet::new();
        // Each leaving may take long: the next one is of those that hang then.
        while let Some((number, _)) = self.hung().into_iter().find(|(d, _)| seen.insert(*d)) {
            // Perhaps it has completed, and its waiter has not checked.
            let since = self.env.moment().before(HANGS);
            self.all_disks().iter().for_each(|d| d.pulse.nudge(since));
            self.env.sleep(NUDGE).await;
            let Some(age) = self.hung().into_iter().find(|(d, _)| *d == number).map(|(_, age)| age) else {
                continue;
            };
            if !self.read(|s| s.is_present(number)) {
                // It was removed for another reason, and that is durable.
                self.last_seen(number).iter().for_each(|d| d.pulse.abandon());
                continue;
            }
            let why =
                Slowness { median: Duration::ZERO, peers: Duration::ZERO, longest: age, crowded: false };
            let may = || {
                let hung: BTreeSet<_> = self.hung().into_iter().map(|(d, _)| d).collect();
                hung.contains(&number) && self.read(|s| goes_on_without(s, number, &hung))
            };
            if may() {
                self.lets_go(number, Some(why), may).await;
            }
        }
    }

    /// The disks with an I/O that hangs now, and for how long; the longest first.
    fn hung(&self) -> Vec<(DiskNumber, Duration)> {
        let now = self.env.moment();
        let age = |d: &Arc<DataDisk>| Some((d.number, Duration::from_nanos(now.ns_since(d.pulse.oldest()?))));
        let mut hung: Vec<_> = self.all_disks().iter().filter_map(age).filter(|h| h.1 >= HANGS).collect();
        hung.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
        hung
    }

    /// Removes a slow disk from service, if that is still allowed after the decisions about others; then its
    /// I/O is no longer awaited.
    async fn lets_go(
        self: &Arc<DataPath>,
        number: DiskNumber,
        why: Option<Slowness>,
        may: impl Fn() -> bool,
    ) {
        let _one = self.failing.lock().await;
        let Some(disk) = self.disk(number) else { return };
        // Another one may have been removed meanwhile.
        if !may() {
            return;
        }
        match self.book.leave(number, Life::Of(Arc::clone(&disk.member)), Absence::Slow).await {
            Ok(()) if !self.read(|s| s.is_present(number)) => {
                tracing::warn!(disk = number.0, ?why, "a disk is too slow and was removed from service");
                if let Some(why) = why {
                    self.events.leaves_slow(number, why);
                }
                disk.pulse.abandon();
            }
            // It is back already, and another one.
            Ok(()) => {}
            // It is needed by now, or the pool accepts no changes: the waiters get the error from there.
            Err(error) => tracing::warn!(disk = number.0, %error, "a disk is too slow, but stays in service"),
        }
    }

    /// The disks in service, and removed ones that are not closed yet.
    pub(super) fn all_disks(&self) -> Vec<Arc<DataDisk>> {
        self.disks.read().values().cloned().collect()
    }

    /// Whether a removed disk still has outstanding I/O that changes it.
    pub(crate) fn is_writing(&self, disk: DiskNumber) -> bool {
        self.last_seen(disk).is_some_and(|d| d.pulse.is_writing())
    }

    /// Reads of users that could have been hedged, and how many of them were, since the pool was opened.
    pub fn hedged_reads(&self) -> (u64, u64) {
        (self.user_reads(), self.hedges.lock().taken())
    }

    /// Reads of a disk since it joined that took so long that another copy was read too.
    pub fn hedged_reads_of(&self, disk: DiskNumber) -> u64 {
        self.last_seen(disk).map_or(0, |d| d.pulse.hedged())
    }

    /// How often a checksum table of a space that was needed was in memory, and how often it was not; since the space
    /// was first used.
    pub fn table_cache(&self, space: SpaceId) -> (u64, u64) {
        let Some(inner) = self.inner_of(space) else { return (0, 0) };
        match &inner.parity {
            Some(parity) => parity.tables_found(),
            None => inner.groups.hits_and_misses(),
        }
    }

    /// Whether reads may be hedged from now on, for measurements: they may when a pool is opened.
    pub fn set_hedging(&self, on: bool) {
        self.hedging.store(on, Ordering::Relaxed);
    }

    fn user_reads(&self) -> u64 {
        self.disks.read().values().map(|d| d.pulse.user_reads()).sum()
    }

    /// Whether reads may be hedged at all.
    pub(crate) fn is_hedging(&self) -> bool {
        self.hedging.load(Ordering::Relaxed)
    }

    /// Whether one more read may be hedged, where reads are.
    pub(crate) fn may_hedge(&self) -> bool {
        let reads = self.user_reads();
        self.hedges.lock().take(reads)
    }
}
