//! Handles of disks for owners of spaces, and the supervision of disks.
//!
//! An owner has its own [handle](Pool::disk_of) for each disk of its space. The I/O of a space to a disk is in one
//! [`SpaceIo`](space_io::SpaceIo): the outstanding I/Os with their start times, and the recent latencies. All
//! `SpaceIo`s of a disk are in one [`Record`]. While there is I/O, a [task](task) checks the records, compares disks
//! with their peers ([`outliers`]), and removes disks that hang or are far too slow. Another task reports late reads
//! to their owners ([`hedge`]), which then read another copy too.
//!
//! Invariants:
//! 1. An I/O is outstanding until the disk has completed it, even if its caller does not wait any more: the disk owns
//!    the buffers until then.
//! 2. I/O to a disk in service is never abandoned before the disk has completed it. When the disk's removal is durable,
//!    callers get [`DiskError::Timeout`](disk::DiskError::Timeout), and no further I/O begins.
//! 3. A disk does not return before all modifying I/O of earlier memberships has completed.
//! 4. A handle belongs to one space, one disk and one membership. Its fence waits for I/O of earlier owners of that
//!    space only. The disk itself gets only the pool's epoch.
//! 5. A record holds its disk open until the membership ends; then the device or file closes with its last outstanding I/O.

pub(crate) mod budget;
mod handle;
pub(crate) mod hedge;
mod histogram;
pub(crate) mod latencies;
pub mod outliers;
pub(crate) mod recent_latencies;
mod record;
mod space_io;
pub(crate) mod task;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use disk::{Disk, DiskId};
use env::{Env, Epoch};
use parking_lot::Mutex;
use pool_seam::{Membership, OwnerId, SpaceId};

use crate::pool::WeakPool;
use crate::{Deadlines, DiskNumber, Pool};
use handle::OwnerDisk;
use hedge::Hedging;
use outliers::OutlierScores;
use record::Record;
pub use task::HANG_TIMEOUT;

/// See the module. Each open pool has one.
pub(crate) struct Supervision {
    env: Env,
    /// The pool's epoch.
    epoch: Epoch,
    /// The deadlines, each at least [`Deadlines::LEAST`].
    deadlines: Deadlines,
    pool: OnceLock<WeakPool>,
    /// Whether the task is running.
    runs: AtomicBool,
    /// The records, which handles and outstanding I/Os keep alive.
    records: Mutex<Vec<Weak<Record>>>,
    scores: Mutex<OutlierScores>,
    hedging: Hedging,
}

impl Supervision {
    pub(crate) fn new(env: &Env, epoch: u64, deadlines: Deadlines) -> Arc<Supervision> {
        Arc::new(Supervision {
            env: env.clone(),
            epoch: Epoch(epoch),
            deadlines: deadlines.supervised(),
            pool: OnceLock::new(),
            runs: AtomicBool::new(false),
            records: Mutex::default(),
            scores: Mutex::default(),
            hedging: Hedging::default(),
        })
    }

    /// Sets the pool of these disks. Called once.
    pub(crate) fn set_pool(&self, pool: WeakPool) {
        let _ = self.pool.set(pool);
    }

    /// A handle of a disk for a space.
    fn open(
        self: &Arc<Supervision>,
        number: DiskNumber,
        of: Membership,
        disk: Arc<dyn Disk>,
        space: SpaceId,
    ) -> OwnerDisk {
        let mut records = self.records.lock();
        records.retain(|record| record.strong_count() > 0);
        let mut present = records.iter().filter_map(Weak::upgrade);
        let record = present.find(|record| record.is_of(number, of, &disk)).unwrap_or_else(|| {
            let record = Record::new(self, number, of, disk);
            records.push(Arc::downgrade(&record));
            record
        });
        OwnerDisk(record.of_space(space))
    }

    /// Ends all records except those of current memberships; the end of the others is durable.
    pub(crate) fn keep(&self, is_member: impl Fn(DiskNumber, Membership) -> bool) {
        let all = self.records();
        all.iter().filter(|record| !is_member(record.number, record.of)).for_each(|record| record.end());
    }

    /// Whether owners' I/O that changes the disk is outstanding, even of an earlier membership. The disk is found by
    /// number or identity.
    pub(crate) fn is_modifying(&self, number: Option<DiskNumber>, id: &DiskId) -> bool {
        let is_it = |record: &&Arc<Record>| Some(record.number) == number || record.info.id == *id;
        self.records().iter().filter(is_it).any(|record| record.is_modifying())
    }

    fn records(&self) -> Vec<Arc<Record>> {
        self.records.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Starts the task, because there is I/O.
    fn wake(self: &Arc<Supervision>) {
        if self.runs.load(Ordering::Relaxed) || self.pool.get().is_none() {
            return;
        }
        if !self.runs.swap(true, Ordering::AcqRel) {
            let running = task::Running(Arc::clone(self));
            self.env.spawn_if_running(task::run(running));
        }
    }
}

impl Pool {
    /// A handle of a disk for the owner of a space, in this membership, which the disk may be about to join with.
    /// Returns `None` if this process has no such disk, or the space has another owner by now.
    ///
    /// The handle's epochs are those of the space: [`Disk::fence`] ends only the I/O of earlier owners of this space.
    /// When the end of the membership is durable, all calls of the handle fail. The device is closed when its last
    /// outstanding I/O has completed, even if the handle is kept.
    pub fn disk_of(&self, owner: OwnerId, disk: DiskNumber, of: Membership) -> Option<Arc<dyn Disk>> {
        let is_deposed =
            || self.read(|s| s.spaces.get(&owner.space).is_none_or(|r| owner.epoch < r.ownership.epoch));
        if is_deposed() {
            return None;
        }
        let member = self.member_disk(disk, of)?;
        let handle = self.metadata().supervision().open(disk, of, member, owner.space);
        // A later owner may have ended meanwhile, and its fence with it.
        if is_deposed() {
            return None;
        }
        if self.member_disk(disk, of).is_some() {
            return Some(Arc::new(handle));
        }
        // The disk may have been removed before the record was added. Checked in a task, because the caller may hold
        // locks that callbacks of I/O need.
        let pool = self.clone();
        self.metadata().env.spawn_if_running(async move { pool.end_memberships() });
        None
    }

    /// Ends the handles of disks that are neither in service nor about to join.
    pub(crate) fn end_memberships(&self) {
        let metadata = self.metadata();
        let is_present = |disk, of| self.read(|s| s.membership(disk)) == Some(of);
        metadata
            .supervision()
            .keep(|disk, of| is_present(disk, of) || metadata.owners().joining(disk, of).is_some());
    }
}
