//! Flushing: data and checksums durable.
//!
//! Invariants:
//! 1. A block holds what was acknowledged before its round, and perhaps later writes; those are marked active.
//! 2. A block says that a unit is written only when data of it is durable on every copy. Units written for
//!    the first time since they were zeros cost the round a flush of the data before the blocks.
//! 3. A group is durable only if each of its regions that was written since has a current copy on a disk that
//!    accepted block and flush, and no copy that did not is current there. Otherwise it is *skipped*
//!    (`left`): it stays dirty and marked, the next round tries again, and all others continue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arena::IoBuf;
use disk::DiskError;
use futures_util::StreamExt;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::MutexGuard;

use super::copies::{Copies, Copy, blame};
use super::left::{Fate, Left};
use super::own::{Untold, with_own};
use super::rounds::Rounds;
use super::{Space, SpaceError};
use crate::blocks::checksums::{Table, decode, encode};
use crate::blocks::{BLOCK, BlockId, Units};
use crate::disks::DataDisk;
use crate::groups::{Group, GroupKey};
use crate::{Absence, DiskNumber};

/// Outstanding blocks at a time, for each copy.
const AT_ONCE: usize = 16;

/// How often marks that are not needed are taken back.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Flusher {
    rounds: Rounds,
    /// Acknowledged data is lost, and the next flush must report it.
    owed: Mutex<Option<SpaceError>>,
    swept: Mutex<Option<Instant>>,
}

impl Flusher {
    /// Whether marks are to be taken back now. The first time is no reason to.
    fn sweeps(&self, now: Instant) -> bool {
        let mut swept = self.swept.lock();
        let due = swept.is_some_and(|at| now - at >= SWEEP_EVERY);
        if due || swept.is_none() {
            *swept = Some(now);
        }
        due
    }
}

/// Regions of slabs, by disk, slab and generation.
type Kept = BTreeMap<(DiskNumber, u32, u32), u64>;

/// The result of a round for one group.
struct Written {
    group: Arc<Group>,
    written: Units,
    copies: Vec<(Copy, Result<(), DiskError>)>,
}

impl Space {
    /// Makes all writes that were acknowledged before this call durable.
    ///
    /// # Errors
    /// [`SpaceError::Disk`] when a disk with the only copy of some data failed: then writes since
    /// the last flush may be lost.
    pub async fn flush_all(&self) -> Result<(), SpaceError> {
        self.flush_most().await?.nothing()
    }

    /// The same, as far as possible: returns the groups that are not durable.
    ///
    /// # Errors
    /// When the result is unknown: the metadata accepts no changes.
    pub(crate) async fn flush_most(&self) -> Result<Left, SpaceError> {
        if let Some(striped) = self.striped() {
            return Box::pin(striped.flush()).await;
        }
        let flusher = &self.inner.flusher;
        let mut sweep = false;
        let round = async {
            let result = self.flush_round().await;
            sweep = flusher.sweeps(self.path.env.now());
            result
        };
        let result = flusher.rounds.run(round).await;
        if sweep {
            self.path.sweep(1).await;
        }
        result
    }

    /// A flush for a writer that is about to change another group while too many are dirty.
    ///
    /// # Errors
    /// When too many stay so.
    pub(super) async fn flush_too_dirty(&self) -> Result<(), SpaceError> {
        let left = self.flush_most().await?;
        if self.inner.groups.are_too_dirty() { left.nothing() } else { Ok(()) }
    }

    /// As [`Space::flush_all`], for a user: data lost since the user's last flush fails it, once.
    ///
    /// # Errors
    /// As there.
    pub async fn flush_for_user(&self) -> Result<(), SpaceError> {
        let result = self.flush_all().await;
        if result.is_ok() {
            self.empty_due().await;
        }
        match self.inner.flusher.owed.lock().take() {
            Some(error) => result.and(Err(error)),
            None => result,
        }
    }

    /// The next user's flush fails with this.
    pub(crate) fn owe_flush(&self, error: SpaceError) {
        *self.inner.flusher.owed.lock() = Some(error);
    }

    /// Keeps flushes from beginning.
    pub(crate) async fn no_flush(&self) -> MutexGuard<'_, ()> {
        self.inner.flusher.rounds.none().await
    }

    async fn flush_round(&self) -> Result<Left, SpaceError> {
        loop {
            let fates = self.flush_once().await?;
            if fates.iter().all(|(_, fate)| *fate != Fate::Again) {
                let left = fates.into_iter().filter_map(|(key, fate)| match fate {
                    Fate::Left(error) => Some((key, error)),
                    Fate::Durable | Fate::Again => None,
                });
                return Ok(left.collect());
            }
        }
    }

    /// One round; the groups that are not durable after it.
    async fn flush_once(&self) -> Result<Vec<(GroupKey, Fate)>, SpaceError> {
        let disks = self.path.disks();
        let began: Vec<u64> = disks.iter().map(|d| d.log.with(|core| core.now())).collect();
        let dirty = self.inner.groups.all_dirty();
        let (dirty, settled) = self.settle_data(&disks, dirty).await;
        let blocks: Vec<_> =
            dirty.into_iter().map(|(group, durable)| self.write_blocks(group, durable, &settled)).collect();
        let mut blocks = futures_util::stream::iter(blocks).buffered(AT_ONCE);
        let mut groups: Vec<Written> = Vec::new();
        while let Some(written) = blocks.next().await {
            groups.extend(written);
        }
        let touched = |d: &DataDisk| {
            groups.iter().any(|g| g.copies.iter().any(|(c, _)| c.number == d.number))
                || d.log.with(|core| core.is_in_use(self.inner.id))
        };
        let flushes = disks.iter().map(|d| async move { if touched(d) { d.flush().await } else { Ok(()) } });
        let mut flushed: Vec<Result<(), DiskError>> = join_all(flushes).await;
        for (disk, flushed) in disks.iter().zip(&mut flushed) {
            if let Some(error) = settled.get(&disk.number) {
                *flushed = Err(*error);
            }
        }
        let fates = self.account(&disks, &flushed, &mut groups).await;
        let (mut left, mut kept) = (Vec::new(), Kept::new());
        for (at, written) in groups.iter().enumerate() {
            let fate = fates.as_ref().ok().map(|fates| &fates[at]);
            let mut state = written.group.state.lock();
            if fate == Some(&Fate::Durable) {
                state.settled = written.written;
                continue;
            }
            self.inner.groups.dirty(&written.group, &mut state);
            drop(state);
            self.keep_marks(written, &mut kept);
            left.extend(fate.map(|fate| (written.group.key, fate.clone())));
        }
        fates?;
        for ((disk, began), flushed) in disks.iter().zip(began).zip(&flushed) {
            let keep = |slab, generation| kept.get(&(disk.number, slab, generation)).copied().unwrap_or(0);
            if flushed.is_ok() {
                disk.log.with(|core| core.flushed(self.inner.id, began, keep));
            }
        }
        Ok(left)
    }

    /// The marks of a group that is not durable stay, on every disk that has a copy or had one.
    fn keep_marks(&self, written: &Written, kept: &mut Kept) {
        let key = written.group.key;
        let regions = self.inner.regions.of(&key.units());
        let now = self.inner.copies(&self.path, key.row, key.column).unwrap_or_default();
        for copy in written.copies.iter().map(|(copy, _)| copy).chain(&now) {
            *kept.entry((copy.number, copy.slab, copy.generation)).or_default() |= regions;
        }
    }

    /// Flushes the data of units that are new, before a block says that they are there. Gives each group with
    /// the units that may be in its block, and the disks that failed.
    async fn settle_data(
        &self,
        disks: &[Arc<DataDisk>],
        dirty: Vec<Arc<Group>>,
    ) -> (Vec<(Arc<Group>, Units)>, BTreeMap<DiskNumber, DiskError>) {
        let mut new: BTreeSet<DiskNumber> = BTreeSet::new();
        let mut groups = Vec::with_capacity(dirty.len());
        for group in dirty {
            let (written, settled) = {
                let state = group.state.lock();
                (state.table.written, state.settled)
            };
            if !written.without(&settled).is_empty() {
                let copies = self.inner.copies(&self.path, group.key.row, group.key.column);
                new.extend(copies.iter().flatten().map(|c| c.number));
            }
            groups.push((group, written.or(&settled)));
        }
        let of_new = disks.iter().filter(|d| new.contains(&d.number));
        let flushes = of_new.map(|d| async { (d.number, d.flush().await) });
        let results = join_all(flushes).await.into_iter();
        (groups, results.filter_map(|(disk, r)| Some((disk, r.err()?))).collect())
    }

    /// Handles failures, and returns the result of each group.
    async fn account(
        &self,
        disks: &[Arc<DataDisk>],
        flushed: &[Result<(), DiskError>],
        groups: &mut [Written],
    ) -> Result<Vec<Fate>, SpaceError> {
        for (disk, result) in disks.iter().zip(flushed) {
            if let Err(error) = result {
                self.path.fail(disk, error, Absence::FlushFailed, None).await?;
                for (copy, result) in groups.iter_mut().flat_map(|g| &mut g.copies) {
                    if copy.number == disk.number {
                        *result = Err(*error);
                    }
                }
            }
        }
        for written in groups.iter() {
            let key = written.group.key;
            let mask = self.inner.regions.of(&key.units());
            for (copy, result) in &written.copies {
                let Err(error) = result else { continue };
                let also = Some((self.inner.id, key.row, copy.index, mask));
                if let Some(disk) = &copy.disk {
                    self.path.fail(disk, error, Absence::WriteFailed, also).await?;
                }
            }
        }
        Ok(groups.iter().map(|written| self.fate(written)).collect())
    }

    /// Invariant 3.
    fn fate(&self, written: &Written) -> Fate {
        let key = written.group.key;
        let now = self.inner.copies(&self.path, key.row, key.column).unwrap_or_default();
        // On disks that were removed meanwhile too: no other copy may have those writes.
        let used = written.copies.iter().map(|(c, _)| c).chain(&now);
        let used = used.fold(0, |used, c| used | self.in_use(c)) & self.inner.regions.of(&key.units());
        let mut have = 0;
        for (copy, result) in &written.copies {
            let Some(now) = now.iter().find(|c| c.index == copy.index) else { continue };
            match result {
                Ok(()) => have |= now.current(),
                Err(_) if now.current() & used == 0 => {}
                Err(_) if !now.is_as(copy) => return Fate::Again,
                Err(error) => return Fate::Left(blame(copy.number, *error)),
            }
        }
        let lost = used & !have;
        if lost == 0 {
            return Fate::Durable;
        }
        let failed = written.copies.iter().find_map(|(c, result)| Some((c.number, result.err()?)));
        if let Some((number, error)) = failed {
            return Fate::Left(blame(number, error));
        }
        let disks = now.iter().filter(|c| self.in_use(c) & lost != 0).map(|c| c.number).collect();
        Fate::Left(SpaceError::Unavailable { space: self.inner.id, row: key.row, disks })
    }

    /// Regions of a copy that were written since its last flush, according to its disk's log, also after the
    /// disk's removal.
    fn in_use(&self, copy: &Copy) -> u64 {
        let disk = copy.disk.clone().or_else(|| self.path.last_seen(copy.number));
        disk.map_or(0, |d| d.log.with(|core| core.in_use(copy.slab, copy.generation)))
    }

    /// Gives a group a new generation and writes its block to every copy; `None` when its row is gone.
    async fn write_blocks(
        &self,
        group: Arc<Group>,
        durable: Units,
        failed: &BTreeMap<DiskNumber, DiskError>,
    ) -> Option<Written> {
        let key = group.key;
        let copies = self.inner.copies(&self.path, key.row, key.column)?;
        let (table, generation, untold) = {
            let mut state = group.state.lock();
            if state.flags.dead {
                return None;
            }
            self.inner.groups.clean(&group, &mut state);
            state.generation += 1;
            let mut table = state.table.clone();
            table.written = table.written.and(&durable);
            if table.written != state.table.written {
                // Later changes wait for the next round.
                self.inner.groups.dirty(&group, &mut state);
            }
            let doubtful = state.hearsay | self.inner.unresolved.of(key);
            (table, state.generation, Untold { regions: state.unknown | state.hearsay, doubtful })
        };
        let present: Copies = copies.into_iter().filter(|c| c.disk.is_some()).collect();
        let said = match untold.regions {
            0 => Vec::new(),
            regions => self.read_blocks(&group, &present, regions).await,
        };
        let units_of = |region| self.inner.regions.in_group(key.group, region);
        let writes = present.iter().map(|copy| async {
            let disk = copy.disk.as_ref()?;
            if let Some(error) = failed.get(&copy.number) {
                return Some(Err(*error));
            }
            let own = match with_own(&table, copy, untold, &said, units_of) {
                Ok(own) => own,
                Err(error) => return Some(Err(error)),
            };
            let block = encode(&self.block_id(key, copy), generation, own.as_ref().unwrap_or(&table));
            let src = [IoBuf::from(block)].into_iter().collect();
            Some(disk.write(copy.block_at(disk, key.group), src).await)
        });
        let results = join_all(writes).await;
        let copies = present.iter().cloned().zip(results.into_iter().flatten()).collect();
        Some(Written { group, written: table.written, copies })
    }

    pub(super) fn block_id(&self, key: GroupKey, copy: &Copy) -> BlockId {
        BlockId {
            pool: self.path.pool,
            space: self.inner.id,
            row: key.row,
            index: copy.slab_of as u8,
            group: key.group,
            allocation: copy.generation,
        }
    }

    /// A copy's checksum block.
    pub(super) async fn read_block(
        &self,
        copy: &Copy,
        disk: &DataDisk,
        key: GroupKey,
    ) -> Result<(u64, Box<Table>), BadBlock> {
        let at = copy.block_at(disk, key.group);
        let read = disk.read_vec(&self.path.io, at, BLOCK).await;
        let bytes = read.map_err(BadBlock::Disk)?;
        decode(&bytes, &self.block_id(key, copy)).map_err(|_| BadBlock::Damaged)
    }
}

/// Why a checksum block says nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum BadBlock {
    Damaged,
    Disk(DiskError),
}
