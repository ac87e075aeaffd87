//! The data path of an open pool, shared by its spaces.
//!
//! Invariants:
//! 1. A disk's log is closed before its active regions are counted for leaving, so a write is counted or does
//!    not begin.
//! 2. Rows are allocated and slabs moved by one at a time, because a slab's checksum blocks are written with
//!    the generation that it is about to get.
//! 3. The handling of a failed disk is decided by one task at a time.
//! 4. At most [`WRITES_MAX`] runs of writes are outstanding, so that they never use all entries of a log.
//! 5. No change begins on a disk, and none is acknowledged, without the [`Tenure`].

mod checking;
mod joining;
mod leaving;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arena::Arena;
use env::{Env, Epoch};
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use crate::authority::Tenure;
use crate::blocks::activity::{BLOCKS, ENTRIES};
use crate::book::Book;
use crate::disks::{DataDisk, RawIo};
use crate::events::Events;
use crate::jobs::Board;
use crate::jobs::pacer::Pacing;
use crate::pulse::watch::Watch;
use crate::space::{Space, SpaceError, SpaceInner};
use crate::supervision::budget::Budget;
use crate::{CommitError, DiskNumber, Op, Pool, PoolId, Row, RowNumber, SlabPlace, SpaceId, State};

/// Concurrent runs of writes, over all spaces; a run is at most one group of one column.
pub const WRITES_MAX: usize = 512;

/// How the data path of a pool is opened.
#[derive(Clone, Copy, Debug)]
pub struct PathOptions {
    /// Checksum tables kept in memory for each space; one is 2.3 KiB and covers 2 MiB of a column.
    pub tables: usize,
    /// Entries of a block of the activity log that are used; fewer make tests fill it.
    pub log_entries: usize,
    /// The spaces take no writes.
    pub read_only: bool,
}

impl Default for PathOptions {
    fn default() -> PathOptions {
        PathOptions { tables: 16384, log_entries: ENTRIES, read_only: false }
    }
}

/// The data path of an open pool. Dropping it leaves the logs as after a crash; flush and
/// [`DataPath::quiesce`] before.
pub struct DataPath {
    pub(crate) env: Env,
    pub(crate) book: Arc<dyn Book>,
    pub(crate) pool: PoolId,
    pub(crate) slab_bytes: u64,
    pub(crate) options: PathOptions,
    pub(crate) io: RawIo,
    pub(crate) tenure: Arc<Tenure>,
    /// Findings and repairs.
    pub events: Events,
    /// The background jobs of the spaces.
    pub jobs: Arc<Board>,
    pub(crate) writes: Arc<Semaphore>,
    pub(crate) allocating: tokio::sync::Mutex<()>,
    pub(crate) failing: tokio::sync::Mutex<()>,
    /// Disks join one at a time; the holder of this prevents joins. Taken before `allocating`.
    pub(crate) joining: tokio::sync::Mutex<()>,
    /// One task at a time records losses in the metadata.
    pub(crate) losses: tokio::sync::Mutex<()>,
    /// Rows with a move in progress.
    pub(crate) moving: Mutex<BTreeSet<(SpaceId, RowNumber)>>,
    pub(crate) hedges: Mutex<Budget>,
    pub(crate) hedging: AtomicBool,
    watch: Arc<Watch>,
    pub(crate) disks: RwLock<BTreeMap<DiskNumber, Arc<DataDisk>>>,
    /// Counts changes of `disks`; changed while they are locked.
    joined: AtomicU64,
    spaces: Mutex<BTreeMap<SpaceId, Arc<SpaceInner>>>,
}

/// The copies that slabs of a disk are, by number and generation of the slab.
type Owners = BTreeMap<(u32, u32), (SpaceId, RowNumber, usize)>;

impl DataPath {
    /// Reads the activity logs of the members: marked regions are unresolved from now on. `epoch` is that of
    /// the pool's claim.
    ///
    /// The caller then makes [`DataPath::active`] known to the metadata.
    ///
    /// # Errors
    /// What the metadata says when a disk whose log cannot be written has to leave.
    pub async fn open(
        env: Env,
        arena: Arena,
        book: Arc<dyn Book>,
        epoch: Epoch,
        options: PathOptions,
    ) -> Result<Arc<DataPath>, SpaceError> {
        let (mut pool, mut slab_bytes) = (PoolId([0; 16]), 0);
        book.view(&mut |s| (pool, slab_bytes) = (s.pool, s.slab_bytes));
        let jobs = Board::new(env.clone(), Pacing::default());
        let path = Arc::new(DataPath {
            env,
            tenure: book.tenure(),
            book,
            pool,
            slab_bytes,
            options,
            io: RawIo { arena, epoch },
            events: Events::default(),
            jobs,
            writes: Arc::new(Semaphore::new(WRITES_MAX.min(options.log_entries * BLOCKS / 4).max(1))),
            allocating: tokio::sync::Mutex::new(()),
            failing: tokio::sync::Mutex::new(()),
            joining: tokio::sync::Mutex::new(()),
            losses: tokio::sync::Mutex::new(()),
            moving: Mutex::default(),
            hedges: Mutex::default(),
            hedging: AtomicBool::new(true),
            watch: Watch::new(),
            disks: RwLock::default(),
            joined: AtomicU64::new(0),
            spaces: Mutex::default(),
        });
        path.watch.set_path(&path);
        let members = path.book.members();
        for member in members.iter() {
            path.join_with(member).await?;
        }
        Ok(path)
    }

    /// The data path of an open pool, which from now on asks it which regions a failed disk may have lost.
    ///
    /// # Errors
    /// As for [`DataPath::open`].
    pub async fn of_pool(
        pool: &Pool,
        env: Env,
        arena: Arena,
        options: PathOptions,
    ) -> Result<Arc<DataPath>, SpaceError> {
        let options = PathOptions { read_only: options.read_only || pool.is_read_only(), ..options };
        let book: Arc<dyn Book> = Arc::new(pool.clone());
        let path = DataPath::open(env, arena, book, Epoch(pool.epoch()), options).await?;
        let weak = Arc::downgrade(&path);
        // Without a data path the unflushed regions are unknown: all of them are assumed.
        pool.set_active_regions(move |space, row, index| {
            weak.upgrade().map_or(u64::MAX, |path| path.active(space, row, index))
        });
        let weak = Arc::downgrade(&path);
        pool.set_still_writing(move |disk| weak.upgrade().is_some_and(|path| path.is_writing(disk)));
        Ok(path)
    }

    /// A space of the pool, as a disk.
    ///
    /// # Errors
    /// [`SpaceError::Deleted`] when the pool has none of that number.
    pub fn space(self: &Arc<DataPath>, space: SpaceId) -> Result<Space, SpaceError> {
        let found = self.read(|s| Some((s.spaces.get(&space)?.clone(), s.journal_units(space))));
        let (record, journal) = found.ok_or(SpaceError::Deleted(space))?;
        let mut spaces = self.spaces.lock();
        let inner =
            spaces.entry(space).or_insert_with(|| Arc::new(SpaceInner::new(self, space, &record, journal)));
        Ok(Space::new(Arc::clone(self), Arc::clone(inner)))
    }

    /// Regions of a copy that its disk may not have durably: in flight, unflushed, or unresolved. For the
    /// metadata, when the copy's disk leaves; from then on no write begins there.
    pub fn active(&self, space: SpaceId, row: RowNumber, index: usize) -> u64 {
        let found = self.read(|s| {
            let copies = s.spaces.get(&space)?.resiliency.copies();
            let r: &Row = s.rows.get(&(space, row))?;
            Some((*r.copy(index)?, (r.slab_of(index) / copies) as u8))
        });
        let Some((copy, column)) = found else { return 0 };
        let disk = self.disks.read().get(&copy.place.disk).cloned();
        let marked = disk.map_or(u64::MAX, |d| {
            if self.book.members().get(d.number).is_none() {
                d.log.close();
            }
            d.log.active(copy.place.slab, copy.generation)
        });
        let inner = self.spaces.lock().get(&space).cloned();
        if let Some(parity) = inner.as_ref().and_then(|i| i.parity.as_ref()) {
            return parity.active(row);
        }
        marked | inner.map_or(0, |s| s.unresolved_regions(row, column))
    }

    /// Takes back all marks that are not needed and makes that durable: after this and no write since, a
    /// crash finds nothing to resolve.
    ///
    /// # Errors
    /// Of flushing the spaces; the others are quiet all the same.
    pub async fn quiesce(self: &Arc<DataPath>) -> Result<(), SpaceError> {
        let mut result = Ok(());
        // Those with parity first: it is their journals that they write to.
        for space in self.open_spaces() {
            if let Some(striped) = space.striped() {
                result = result.and(striped.quiesce().await);
            }
        }
        for space in self.open_spaces() {
            result = result.and(space.flush_all().await);
        }
        self.sweep(2).await;
        result
    }

    /// Takes back marks that were not used lately.
    pub(crate) async fn sweep(&self, times: u32) {
        let disks: Vec<_> = self.disks.read().values().cloned().collect();
        for disk in disks {
            disk.log.with(|core| (0..times).for_each(|_| core.sweep()));
            // Marks that stay only cost a resolution after a crash: the next user of the log gets its error.
            let _ = disk.log.write_due().await;
        }
    }

    pub(crate) fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        let (mut f, mut out) = (Some(f), None);
        self.book.view(&mut |state| out = f.take().map(|f| f(state)));
        out.expect("the book shows its state once")
    }

    /// Increases with each change of where copies are or which disks are in service, before the change is
    /// reported.
    pub(crate) fn version(&self) -> u64 {
        // Neither ever falls.
        self.book.version() + self.joined.load(Ordering::Acquire)
    }

    fn change_disks(&self, change: impl FnOnce(&mut BTreeMap<DiskNumber, Arc<DataDisk>>)) {
        {
            let mut disks = self.disks.write();
            change(&mut disks);
            self.joined.fetch_add(1, Ordering::AcqRel);
        }
        // An earlier lookup may hold a disk that is to be closed.
        let spaces: Vec<_> = self.spaces.lock().values().cloned().collect();
        spaces.iter().for_each(|space| space.forget_routes(self));
    }

    /// The disk, if it is in service.
    pub(crate) fn disk(&self, disk: DiskNumber) -> Option<Arc<DataDisk>> {
        let members = self.book.members();
        let member = members.get(disk)?;
        // One that has returned and not joined yet is another one: the old one's log is closed.
        self.disks.read().get(&disk).filter(|d| Arc::ptr_eq(&d.member, member)).cloned()
    }

    /// The disk as it last took part.
    pub(crate) fn last_seen(&self, disk: DiskNumber) -> Option<Arc<DataDisk>> {
        self.disks.read().get(&disk).cloned()
    }

    /// The disks in service.
    pub(crate) fn disks(&self) -> Vec<Arc<DataDisk>> {
        let members = self.book.members();
        let takes_part =
            |d: &&Arc<DataDisk>| members.get(d.number).is_some_and(|m| Arc::ptr_eq(&d.member, m));
        self.disks.read().values().filter(takes_part).cloned().collect()
    }

    pub(crate) fn inner_of(&self, space: SpaceId) -> Option<Arc<SpaceInner>> {
        self.spaces.lock().get(&space).cloned()
    }

    /// The slabs of a row, also one that it moves to.
    pub(crate) fn slabs(&self, space: SpaceId, row: RowNumber) -> Vec<SlabPlace> {
        self.read(|s| {
            s.rows.get(&(space, row)).map(|r| r.copies().map(|(_, c)| c.place).collect()).unwrap_or_default()
        })
    }

    /// Commits a change of a row's slabs. Returns those that it frees: their marks are forgotten, and the caller discards
    /// them with [`DataPath::discard_slabs`].
    ///
    /// # Errors
    /// Of the metadata; then nothing is changed.
    pub(crate) async fn commit_row(
        &self,
        space: SpaceId,
        row: RowNumber,
        ops: Vec<Op>,
    ) -> Result<Vec<SlabPlace>, CommitError> {
        let before = self.slabs(space, row);
        self.book.commit(ops).await?;
        let after = self.slabs(space, row);
        let freed: Vec<_> = before.into_iter().filter(|place| !after.contains(place)).collect();
        for place in &freed {
            if let Some(disk) = self.disk(place.disk) {
                disk.log.with(|core| core.forget(place.slab));
            }
        }
        Ok(freed)
    }

    /// Discards slabs that were freed a moment ago, so that their room on the medium is free, too. The caller keeps
    /// others from allocating them meanwhile. A disk that cannot discard keeps what they hold: they are free all the same.
    pub(crate) async fn discard_slabs(&self, slabs: Vec<SlabPlace>) {
        let slabs = slabs.into_iter().filter_map(|place| Some((self.disk(place.disk)?, place.slab)));
        let discards = slabs.map(|(disk, slab)| async move {
            let checksums = disk.member.areas.checksums(slab);
            let length = disk.member.areas.data(slab).end() - checksums.offset;
            let _ = disk.discard(checksums.offset, length).await;
        });
        join_all(discards).await;
    }

    pub(crate) fn open_spaces(self: &Arc<DataPath>) -> Vec<Space> {
        let mut spaces = self.spaces.lock();
        self.read(|s| spaces.retain(|id, _| s.spaces.contains_key(id)));
        spaces.values().map(|i| Space::new(Arc::clone(self), Arc::clone(i))).collect()
    }

    /// Whose those slabs of a disk are that `wanted` wants, by number and generation: few, for the memory.
    fn owners(&self, disk: DiskNumber, wanted: impl Fn((u32, u32)) -> bool) -> Owners {
        self.read(|s| {
            let mut owners = Owners::new();
            for (&(space, row), r) in &s.rows {
                for (index, c) in r.copies().filter(|(_, c)| c.place.disk == disk) {
                    let slab = (c.place.slab, c.generation);
                    if wanted(slab) {
                        owners.insert(slab, (space, row, index));
                    }
                }
            }
            owners
        })
    }
}
