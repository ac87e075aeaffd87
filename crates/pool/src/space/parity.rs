//! A parity space: rows of data and parity columns, a unit of each column a *stripe*. `docs/0002-parity.md`
//! has the reasons.
//!
//! Invariants:
//! 1. A stripe is changed under its lock only. One that is written, durably or about to be, is changed in
//!    place only after the change is durable in the journal; one that is not (*fresh*) is changed in place at
//!    once, and is in the journal before a block says that it is written.
//! 2. Before a stripe is changed its region is marked, and every column with an absent disk has missed it,
//!    durably. A region is used only with enough current columns to compute all others.
//! 3. The newest journal entry defines a stripe; without one, the blocks define it: so blocks may be written
//!    at any time, in any order.
//! 4. A change that has begun and not ended stays in `stuck`; its stripes are not read or changed before it
//!    is carried out.
//! 5. Entries stay in the journal until they are durable, in place and in the block, on every column that
//!    counts in their region: that has not missed it, whether its disk is present or absent.
//! 6. A returning disk counts only where it has everything: if it could not be spared when it was removed,
//!    the state in memory is discarded and the journal is replayed to it. Each user of the space holds
//!    `life`, shared, so that the space is unused then.
//! 7. Locks are taken in the order of `docs/0001-pool.md`; no task waits for room, or for a flush, while it
//!    holds a range.

mod agree;
mod carry;
mod change;
mod checkpoint;
mod columns;
mod doubt;
mod flush;
mod hedge;
mod load;
mod log;
mod marks;
mod read;
mod rebuild;
mod replay;
mod resync;
mod rows;
mod stuck;
mod table;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arena::passes::{Pass, count};
use parking_lot::Mutex;
use tokio::sync::RwLockWriteGuard;

use super::left::Left;
use super::locks::RangeLock;
use super::rounds::Rounds;
use super::{Space, SpaceError};
use crate::journal::record;
use crate::parity::Code;
use crate::{DiskNumber, RowNumber, SpaceId, UNIT};
use log::Log;
use marks::Marks;
pub(crate) use resync::Resynced;
use stuck::Stuck;
use table::{RowGroup, RowGroups};

/// The most stripes that are changed together.
const STRIPES_MAX: u32 = 64;

/// Concurrent changes.
const CHANGES_MAX: usize = 128;

/// Groups that are not dropped.
type Held = Vec<Arc<RowGroup>>;

/// The state of a parity space beside that of every space.
pub(crate) struct Parity {
    pub(crate) code: Code,
    pub(crate) journal: SpaceId,
    groups: RowGroups,
    marks: Arc<Marks>,
    log: Log,
    stuck: Stuck,
    flushes: Rounds,
    changes: tokio::sync::Semaphore,
    checkpointing: tokio::sync::Mutex<()>,
    open: AtomicBool,
    /// The last checkpoint left something.
    leaves: AtomicBool,
    /// Held, shared, by each user of the space; exclusively while its state in memory is discarded.
    life: tokio::sync::RwLock<()>,
    /// Groups that have sums which a resync found and no block has, by row and column.
    resyncing: Mutex<BTreeMap<(RowNumber, usize), Held>>,
    /// The highest that a block has been given.
    generation: AtomicU64,
    opening: tokio::sync::Mutex<()>,
    /// Stripes that are changed together: a power of two.
    together: u32,
    counts: Counts,
}

/// I/O of users and of the disks, in units.
#[derive(Default)]
struct Counts {
    written: AtomicU64,
    read_to_write: AtomicU64,
    in_place: AtomicU64,
    journal: AtomicU64,
}

/// The I/O of a parity space for its writes since it was opened, in units of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParityCounts {
    /// Written, and discarded, by users.
    pub written: u64,
    /// Read from disks to find the new parity.
    pub read_to_write: u64,
    /// Written to disks in their places, parity too.
    pub in_place: u64,
    /// Written to the journal, once for all its copies.
    pub journal: u64,
}

impl Parity {
    pub(crate) fn new(tables: usize, id: SpaceId, code: Code, journal_units: u64) -> Parity {
        let columns = code.columns();
        let log = Log::new(journal_units.saturating_sub(log::HEADERS).max(log::LEAST));
        let fits = |stripes: u32| {
            let payload = stripes as usize * columns;
            record::units(stripes as usize, columns, payload) <= log.most()
        };
        let mut together = STRIPES_MAX;
        while together > 1 && !fits(together) {
            together /= 2;
        }
        Parity {
            code,
            journal: SpaceId(id.0.wrapping_add(1)),
            groups: RowGroups::with(tables / columns, code),
            marks: Arc::default(),
            log,
            stuck: Stuck::default(),
            flushes: Rounds::default(),
            changes: tokio::sync::Semaphore::new(CHANGES_MAX),
            checkpointing: tokio::sync::Mutex::default(),
            open: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            life: tokio::sync::RwLock::default(),
            resyncing: Mutex::default(),
            generation: AtomicU64::new(0),
            opening: tokio::sync::Mutex::default(),
            together,
            counts: Counts::default(),
        }
    }

    /// Data columns of a row.
    pub(crate) fn data(&self) -> usize {
        self.code.data()
    }

    fn columns(&self) -> usize {
        self.code.columns()
    }

    /// Regions of a row that may not be durable in their places, or whose blocks may not be.
    pub(crate) fn active(&self, row: RowNumber) -> u64 {
        self.marks.may_be_lost(row)
    }

    /// How often a group that is wanted was in memory, and how often it was not.
    pub(crate) fn tables_found(&self) -> (u64, u64) {
        self.groups.hits_and_misses()
    }

    /// Clean groups are read, and compared, again.
    pub(crate) fn forget_clean(&self) {
        self.groups.forget_clean();
    }
}

/// A parity space in use.
#[derive(Clone)]
pub(crate) struct Striped {
    space: Space,
    p: Arc<Parity>,
}

impl Space {
    /// The space as one with parity, if it is.
    pub(crate) fn striped(&self) -> Option<Striped> {
        let p = self.inner.parity.as_ref()?;
        Some(Striped { space: self.clone(), p: Arc::clone(p) })
    }

    /// The I/O of a parity space for its writes; `None` for others.
    pub fn parity_counts(&self) -> Option<ParityCounts> {
        let counts = &self.inner.parity.as_ref()?.counts;
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Some(ParityCounts {
            written: of(&counts.written),
            read_to_write: of(&counts.read_to_write),
            in_place: of(&counts.in_place),
            journal: of(&counts.journal),
        })
    }
}

impl Striped {
    /// The space that the journal lies in.
    pub(super) fn journal(&self) -> Result<Space, SpaceError> {
        let path = &self.space.path;
        match path.read(|s| s.owner_of(self.p.journal)) {
            Some(owner) if owner == self.space.inner.id => path.space(self.p.journal),
            _ => Err(SpaceError::Deleted(self.p.journal)),
        }
    }

    /// The lock of stripes.
    async fn lock(&self, row: RowNumber, units: Range<u32>) -> RangeLock {
        self.space.inner.locks.lock(row, 0, units).await
    }

    fn regions(&self, units: &Range<u32>) -> u64 {
        self.space.inner.regions.of(units)
    }

    /// The sum of a unit of a column.
    fn sum(&self, row: RowNumber, column: usize, unit: u32, bytes: &[u8]) -> u32 {
        count(Pass::Crc, bytes.len());
        crate::blocks::checksums::checksum(self.space.inner.id, row, column as u8, unit, [bytes])
    }

    /// The space's address of a unit; of a parity unit, the stripe's first.
    fn address(&self, row: RowNumber, column: usize, unit: u32) -> u64 {
        let column = if column < self.p.data() { column } else { 0 };
        self.space.inner.address(row, column as u8, unit)
    }

    fn corrupt(&self, row: RowNumber, column: usize, unit: u32) -> SpaceError {
        let address = self.address(row, column, unit);
        SpaceError::Corrupt { space: self.space.inner.id, address, length: UNIT }
    }

    /// Makes room and takes back marks: after this and no change since, the next opening has nothing to replay.
    pub(crate) async fn quiesce(&self) -> Result<(), SpaceError> {
        let _use = self.p.life.read().await;
        if !self.p.open.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut left = Left::default();
        for _ in 0..3 {
            left = self.flush_now().await?.and(self.checkpoint().await?);
            if self.p.log.is_empty() {
                break;
            }
        }
        left.nothing()
    }

    /// How much is in doubt: everything before the journal was replayed, if there is one yet, then changes
    /// that could not be carried out.
    pub(crate) fn in_doubt(&self) -> usize {
        let closed = !self.p.open.load(Ordering::Acquire)
            && self.space.path.read(|s| s.rows.contains_key(&(self.p.journal, RowNumber(0))));
        usize::from(closed) + self.p.stuck.count()
    }

    /// Replays and carries out what can be.
    pub(crate) async fn settle(&self) -> Result<(), SpaceError> {
        let _use = self.p.life.read().await;
        self.opened().await?;
        self.settle_stuck(|_| true).await?.nothing()
    }

    /// Whether a returning disk counts although it may have lost writes: it could not be spared when it was
    /// removed, so nothing there counts as missed. Then only the journal defines the stripes.
    pub(crate) fn doubts(&self, disk: DiskNumber) -> bool {
        let id = self.space.inner.id;
        self.space.path.read(|s| {
            let of = |(row, index): (RowNumber, usize)| {
                let copy = s.rows.get(&(id, row)).and_then(|r| r.copy(index));
                copy.is_some_and(|c| self.p.marks.of(row) & !c.missed != 0)
            };
            s.copies_on(disk).any(|(space, row, index)| space == id && of((row, index)))
        })
    }

    /// The space is unused as long as the result is held.
    pub(crate) async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.p.life.write().await
    }

    /// Discards all state in memory, because a disk for which [`Striped::doubts`] is true has returned: the
    /// space is opened again, as after a crash. If acknowledged data is lost by that, the next flush reports
    /// it. The caller is [`Striped::alone`].
    pub(crate) fn forget(&self, disk: DiskNumber) {
        let fresh = self.p.groups.all_dirty().into_iter().find(|g| !g.state.lock().fresh.is_empty());
        if let Some(group) = fresh {
            let space = self.space.inner.id;
            self.space.owe_flush(SpaceError::Returned { space, row: group.key.row, disk });
        }
        self.p.open.store(false, Ordering::Release);
        self.p.groups.kill_all(|_| true);
        self.p.stuck.clear();
        self.p.resyncing.lock().clear();
        self.p.marks.clear();
        self.p.log.forget();
    }
}
