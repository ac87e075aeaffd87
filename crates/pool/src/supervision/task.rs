//! The supervision of the disks while there is I/O: finds outliers and disks that do not respond, and handles them.
//!
//! Each pool has one task. It starts with an I/O, checks the disks once a [`SPAN`], and ends after a span without
//! I/O.
//!
//! * A disk that is slow according to [`outliers`](super::outliers) is reported, and owners read other copies if
//!   there are any, unless a long queue may be the reason. If it should be removed, it is removed only if it may be
//!   [spared](may_remove_slow): it still serves its data, so this is not urgent.
//! * A disk with an I/O beyond its [deadline](crate::Deadlines::of) is removed if the pool can
//!   [continue](may_continue_without) without it and the other disks that hang. Its waiting I/O then fails over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use disk::Media;
use env::Moment;

use super::Supervision;
use super::outliers::{RecentIo, SPAN, Slowness, SpanResult};
use super::record::Record;
use crate::metadata::{MembershipToEnd, Removal};
use crate::{Absence, DiskNumber, MediaClass, Pool, State};

/// The default of the [deadline](crate::Deadlines) after which a disk with an incomplete I/O is removed, if possible:
/// disks made for arrays stop recovering a sector after 7 s, and clients of a file server time out after 15 s or more.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the driver of a disk that seems to hang may take to report completions that have already happened.
pub(crate) const HANG_GATHER: Duration = Duration::from_millis(50);

/// If the task wakes later than planned by this time, the whole machine was paused, and the ages of I/Os are
/// meaningless.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// The right to run the task; it ends on drop, even if the task was never started.
pub(super) struct Running(pub(super) Arc<Supervision>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.runs.store(false, Ordering::Release);
    }
}

pub(super) async fn run(running: Running) {
    let supervision = Arc::clone(&running.0);
    let env = supervision.env.clone();
    let least = supervision.deadlines.least();
    let mut span_ends = env.moment().after(SPAN);
    loop {
        let now = env.moment();
        // A disk that hangs and cannot be removed is checked again later.
        let again = now.after(LATE.min(least));
        let due = supervision.records().iter().filter_map(|record| record.first_due()).min();
        let due = due.map(|due| if due.at > now { due.at } else { again });
        // An I/O that begins meanwhile may have a shorter deadline.
        let wake =
            [due, Some(now.after(least)), Some(span_ends)].into_iter().flatten().min().unwrap_or(again);
        env.sleep_until(env.instant(wake)).await;
        let Some(pool) = supervision.pool.get().and_then(|pool| pool.upgrade()) else { return };
        let now = env.moment();
        let late = Duration::from_nanos(now.ns_since(wake)) >= LATE.min(least / 2);
        if !late {
            supervision.drop_hung(&pool).await;
        }
        if now >= span_ends {
            let quiet = supervision.end_span(&pool, now, late).await;
            span_ends = env.moment().after(SPAN);
            if quiet {
                drop(running);
                // An I/O that began meanwhile found the task running, and has not started another one.
                if !supervision.is_quiet() {
                    supervision.wake();
                }
                return;
            }
        }
    }
}

impl Supervision {
    /// Ends a span: compares the disks. Returns whether there was no I/O.
    async fn end_span(&self, pool: &Pool, now: Moment, late: bool) -> bool {
        let records = self.in_service(pool);
        let media: BTreeMap<_, _> = pool.read(|s| s.disks.iter().map(|(d, r)| (*d, r.media())).collect());
        let io = |record: &Arc<Record>| {
            let number = record.number;
            let media = media.get(&number).copied().unwrap_or(Media::Unspecified);
            (number, with_media(record.recent_io(now), media))
        };
        let disks_io: BTreeMap<_, _> = records.iter().map(io).collect();
        if late {
            return false;
        }
        let SpanResult { slow, to_remove } = self.scores.lock().span(&disks_io);
        for record in &records {
            record.set_slow(slow.get(&record.number).is_some_and(|why| !why.crowded));
        }
        pool.events().set_slow(&slow);
        for disk in to_remove {
            let unverified = pool.unverified();
            let is_verified = |s: &State| !s.spaces_on(disk).any(|space| unverified.contains(&space));
            if pool.read(|s| may_remove_slow(s, disk) && is_verified(s))
                && let Some(record) = records.iter().find(|record| record.number == disk)
            {
                remove(pool, vec![(Arc::clone(record), slow.get(&disk).copied())]).await;
            }
        }
        slow.is_empty() && disks_io.values().all(|io| io.longest.is_zero()) && self.is_quiet()
    }

    /// Whether no I/O is outstanding on a disk in service.
    fn is_quiet(&self) -> bool {
        self.records().iter().all(|record| record.has_ended() || record.is_idle())
    }

    /// Removes disks with a hanging I/O, as far as possible. Disks that hang now are removed together.
    async fn drop_hung(&self, pool: &Pool) {
        let mut seen = BTreeSet::new();
        loop {
            // A removal may take long: afterwards the next disks are chosen among those that hang then.
            let new: BTreeSet<_> = self.hung(pool).iter().map(|(record, _)| record.number).collect();
            let new: BTreeSet<_> = new.difference(&seen).copied().collect();
            if new.is_empty() {
                return;
            }
            self.env.sleep(HANG_GATHER).await;
            let hung = self.hung(pool);
            let numbers: BTreeSet<_> = hung.iter().map(|(record, _)| record.number).collect();
            let zero = Duration::ZERO;
            let why = |age| Slowness { median: zero, peers: zero, longest: age, crowded: false };
            let leave = hung.into_iter().filter(|(record, _)| {
                new.contains(&record.number)
                    && pool.read(|s| may_continue_without(s, record.number, &numbers))
            });
            remove(pool, leave.map(|(record, age)| (record, Some(why(age)))).collect()).await;
            seen.extend(new);
        }
    }

    /// The disks in service with an I/O that hangs now, and for how long, the longest first.
    fn hung(&self, pool: &Pool) -> Vec<(Arc<Record>, Duration)> {
        let now = self.env.moment();
        let records = self.in_service(pool).into_iter();
        let age = |r: Arc<Record>| {
            let due = r.first_due().filter(|due| due.at <= now)?;
            Some((r, Duration::from_nanos(now.ns_since(due.began))))
        };
        let mut hung: Vec<_> = records.filter_map(age).collect();
        hung.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
        hung
    }

    fn in_service(&self, pool: &Pool) -> Vec<Arc<Record>> {
        let records = self.records().into_iter();
        pool.read(|s| records.filter(|record| s.membership(record.number) == Some(record.of)).collect())
    }
}

/// Removes slow disks from service. Only one task does this, so each decision includes the previous removals.
async fn remove(pool: &Pool, slow: Vec<(Arc<Record>, Option<Slowness>)>) {
    let is_in_service = |record: &Record| pool.read(|s| s.membership(record.number)) == Some(record.of);
    let (members, mut removals) = (pool.members(), Vec::new());
    // A disk that is no member any more is already being removed.
    let is_leaving = |record: &Record| members.get(record.number).is_none() || !is_in_service(record);
    let slow: Vec<_> = slow.into_iter().filter(|(record, _)| !is_leaving(record)).collect();
    for member in slow.iter().filter_map(|(record, _)| members.get(record.number)) {
        let membership = MembershipToEnd::OfMember(Arc::clone(member));
        removals.push(Removal { disk: member.number, membership, reason: Absence::Slow });
    }
    let left = pool.metadata().remove_all_from_service(removals).await;
    for ((record, why), left) in slow.into_iter().zip(left) {
        let number = record.number;
        match left {
            Ok(()) if !is_in_service(&record) => {
                tracing::warn!(disk = number.0, ?why, "a disk is too slow and was removed from service");
                if let Some(why) = why {
                    pool.events().removed_as_slow(number, why);
                }
            }
            // The disk has returned meanwhile.
            Ok(()) => {}
            // The disk is needed by now, or the pool accepts no changes.
            Err(error) => {
                tracing::warn!(disk = number.0, %error, "a disk is too slow, but cannot be removed")
            }
        }
    }
}

/// Sets the medium that determines a disk's peers: the one in the pool's metadata, which a command may have set; if
/// it has none, the one that the system reports.
pub(crate) fn with_media(io: RecentIo, media: Media) -> RecentIo {
    match media {
        Media::Unspecified => io,
        media => RecentIo { media: media as u8, flash: MediaClass::flash().takes(media), ..io },
    }
}

/// Whether the pool can continue without a disk, and without the others of `hung`: no data is only on these disks,
/// and enough voters remain.
pub(crate) fn may_continue_without(state: &State, disk: DiskNumber, hung: &BTreeSet<DiskNumber>) -> bool {
    let answers = |d: DiskNumber| state.is_present(d) && !hung.contains(&d);
    let alone = state.has_alone(disk, |other| other != disk && answers(other));
    let left = state.voters.iter().filter(|v| **v != disk && !hung.contains(v)).count();
    !alone && (!state.voters.contains(&disk) || left >= state.quorum_to_continue())
}

/// Whether a merely slow disk may be removed: the pool continues without it, and no more disks are absent then than
/// every space promises to survive.
pub(crate) fn may_remove_slow(state: &State, disk: DiskNumber) -> bool {
    let away = state.disks.keys().filter(|d| !state.is_present(**d)).count();
    let all = state.spaces.values().map(|record| record.promised());
    let promised = all.filter(|failures| *failures > 0).min();
    may_continue_without(state, disk, &BTreeSet::new()) && promised.is_some_and(|promised| away < promised)
}
