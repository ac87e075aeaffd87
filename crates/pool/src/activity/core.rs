//! Which regions of a disk are marked, which must stay so, and what to write.
//!
//! Invariants:
//! 1. A region passed to [`Core::begin`] is marked in the log on the disk from the moment
//!    [`Core::is_durable`] returns true until every write to it has ended and a flush that began after that
//!    is reported ([`Core::flushed`]).
//! 2. An entry is evicted from its slot only while none of its regions is in use: in flight, unflushed, or
//!    unresolved since a crash. Exception: regions for which this disk has stale data ([`Core::yields`]) may
//!    be evicted, because the disks with the newest data have their marks.
//! 3. A block has one writer at a time, and uses its two places alternately; the disk has an older state of
//!    it, never a mixture.
//! 4. Entries are bounded by the slots. When all are in use [`Core::begin`] says [`Full`] and changes nothing.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::blocks::activity::{Entry, Header, decode, encode};
use crate::{DiskNumber, PoolId, SpaceId};

/// The log of one disk.
pub struct Core {
    pool: PoolId,
    disk: DiskNumber,
    epoch: u64,
    per_block: usize,
    slots: Vec<Option<u32>>,
    blocks: Vec<Block>,
    slabs: FxHashMap<u32, Slab>,
    clock: u64,
    /// How many entries were ever given out.
    taken: u64,
}

/// When a mark counts: see [`Core::is_durable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    block: usize,
    version: u64,
}

/// All entries are in use: flush, and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A block to write durably; then call [`Core::written`].
#[derive(Debug)]
pub struct LogWrite {
    /// Its number.
    pub block: usize,
    /// Which of its two places.
    pub place: usize,
    /// The bytes to write there.
    pub bytes: Vec<u8>,
    version: u64,
}

#[derive(Clone, Default)]
struct Block {
    /// Counts the changes in memory; the disk has the state `durable`.
    version: u64,
    durable: u64,
    writing: bool,
    sequence: u64,
}

struct Slab {
    slot: usize,
    owner: SpaceId,
    generation: u32,
    /// The contents of the block, or of its next write.
    marked: u64,
    /// Unresolved since a crash.
    pinned: u64,
    /// Pinned, while other disks have the decisive mark: may be evicted if no other slot is free.
    yielding: u64,
    /// Begun since the last sweep.
    recent: u64,
    in_use: RegionsInUse,
    used_at: u64,
}

/// The state of the regions in use: entry n belongs to the n-th set bit, so that a writer reads only its own.
#[derive(Default)]
struct RegionsInUse {
    bits: u64,
    each: SmallVec<[InUse; 2]>,
}

struct InUse {
    in_flight: u32,
    /// When a write last began or ended.
    touched_at: u64,
}

impl Core {
    /// An empty log of `blocks` blocks of `per_block` entries, for a disk whose log on the disk is empty too.
    pub fn new(pool: PoolId, disk: DiskNumber, epoch: u64, blocks: usize, per_block: usize) -> Core {
        Core {
            pool,
            disk,
            epoch,
            per_block,
            slots: vec![None; blocks * per_block],
            blocks: vec![Block::default(); blocks],
            slabs: FxHashMap::default(),
            clock: 0,
            taken: 0,
        }
    }

    /// Loads a log: `places` are the bytes of each block's two places. `owner` returns the owner of a slab if
    /// the entry's generation is still that of the slab; entries without an owner are dropped. The others are
    /// pinned.
    ///
    /// All blocks are due to be written, in order and before anything is begun: an entry that was in two
    /// blocks is in the first now.
    pub fn restore(
        mut self,
        places: &[[Vec<u8>; 2]],
        mut owner: impl FnMut(u32, u32) -> Option<SpaceId>,
    ) -> Core {
        let newest: Vec<_> = self.newest(places).collect();
        for (number, header, entries) in newest {
            self.blocks[number].sequence = header.sequence;
            for entry in entries {
                let Some(owner) = owner(entry.slab, entry.generation).filter(|_| entry.regions != 0) else {
                    continue;
                };
                // A full log can only come from a disk with more slots than this one has: its other copies
                // have the mark too.
                let _ = self.pin(owner, entry.slab, entry.generation, entry.regions);
            }
        }
        if places.iter().flatten().any(|b| b.iter().any(|x| *x != 0)) {
            self.blocks.iter_mut().for_each(|b| b.version += 1);
        }
        self
    }

    /// The slabs that such a log names, by number and generation.
    pub fn named(&self, places: &[[Vec<u8>; 2]]) -> BTreeSet<(u32, u32)> {
        let marked = self.newest(places).flat_map(|(.., entries)| entries).filter(|e| e.regions != 0);
        marked.map(|e| (e.slab, e.generation)).collect()
    }

    /// The newer one of each block's two places.
    fn newest(&self, places: &[[Vec<u8>; 2]]) -> impl Iterator<Item = (usize, Header, Vec<Entry>)> {
        places.iter().enumerate().take(self.blocks.len()).filter_map(|(number, both)| {
            let whole = both.iter().filter_map(|b| decode(b, self.pool, self.disk, number as u16));
            whole
                .max_by_key(|(h, _)| (h.epoch, h.sequence))
                .map(|(header, entries)| (number, header, entries))
        })
    }

    /// A write to regions of a slab of `owner`'s begins.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn begin(&mut self, owner: SpaceId, slab: u32, generation: u32, regions: u64) -> Result<Begun, Full> {
        let now = self.tick();
        let entry = self.entry(owner, slab, generation)?;
        let changed = regions & !entry.marked != 0;
        entry.marked |= regions;
        entry.recent |= regions;
        entry.used_at = now;
        for region in bits(regions) {
            let u = entry.in_use.of(region);
            (u.in_flight, u.touched_at) = (u.in_flight + 1, now);
        }
        let block = entry.slot / self.per_block;
        self.blocks[block].version += u64::from(changed);
        Ok(Begun { block, version: self.blocks[block].version })
    }

    /// A write that began has ended, well or not.
    pub fn end(&mut self, slab: u32, generation: u32, regions: u64) {
        let now = self.tick();
        let Some(entry) = self.slabs.get_mut(&slab).filter(|e| e.generation == generation) else { return };
        for region in bits(regions & entry.in_use.bits) {
            let u = entry.in_use.of(region);
            (u.in_flight, u.touched_at) = (u.in_flight.saturating_sub(1), now);
        }
    }

    /// Whether the marks of a write that began are on the disk.
    pub fn is_durable(&self, begun: Begun) -> bool {
        self.blocks[begun.block].durable >= begun.version
    }

    /// The lowest block that differs from the disk's and is not being written.
    pub fn next_write(&mut self) -> Option<LogWrite> {
        let number = self.blocks.iter().position(|b| b.version > b.durable && !b.writing)?;
        let block = &mut self.blocks[number];
        block.writing = true;
        block.sequence += 1;
        let (version, sequence) = (block.version, block.sequence);
        let header =
            Header { pool: self.pool, disk: self.disk, block: number as u16, epoch: self.epoch, sequence };
        let slots = &self.slots[number * self.per_block..(number + 1) * self.per_block];
        let entries: Vec<Entry> = slots
            .iter()
            .flatten()
            .filter_map(|slab| {
                let e = self.slabs.get(slab)?;
                Some(Entry { slab: *slab, generation: e.generation, regions: e.marked })
            })
            .collect();
        Some(LogWrite {
            block: number,
            place: (sequence % 2) as usize,
            bytes: encode(&header, &entries),
            version,
        })
    }

    /// A block that was to be written is durable, or could not be written.
    pub fn written(&mut self, write: &LogWrite, well: bool) {
        let block = &mut self.blocks[write.block];
        block.writing = false;
        if well {
            block.durable = write.version;
        }
    }

    /// The time, to give to [`Core::flushed`].
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// A flush of everything that a space had written by `began` is durable, checksums too, except for the
    /// regions that `left` returns for a slab and its generation.
    pub fn flushed(&mut self, owner: SpaceId, began: u64, left: impl Fn(u32, u32) -> u64) {
        for (slab, entry) in self.slabs.iter_mut().filter(|(_, e)| e.owner == owner) {
            let left = left(*slab, entry.generation);
            entry.in_use.keep(|region, u| left & region != 0 || u.in_flight != 0 || u.touched_at > began);
        }
    }

    /// The spaces whose flush could free entries.
    pub fn owners_in_use(&self) -> BTreeSet<SpaceId> {
        self.slabs.values().filter(|e| e.in_use.bits != 0).map(|e| e.owner).collect()
    }

    /// Whether a space has written here since it was flushed.
    pub fn is_in_use(&self, owner: SpaceId) -> bool {
        self.slabs.values().any(|e| e.owner == owner && e.in_use.bits != 0)
    }

    /// Regions of a slab that may differ from what is durable: in flight, unflushed or unresolved.
    pub fn active(&self, slab: u32, generation: u32) -> u64 {
        let entry = self.slabs.get(&slab).filter(|e| e.generation == generation);
        entry.map_or(0, |e| e.busy())
    }

    /// Regions of a slab that have writes in flight or unflushed.
    pub fn in_use(&self, slab: u32, generation: u32) -> u64 {
        let entry = self.slabs.get(&slab).filter(|e| e.generation == generation);
        entry.map_or(0, |e| e.in_use.bits)
    }

    /// Keeps regions marked until they are resolved.
    ///
    /// # Errors
    /// [`Full`].
    pub fn pin(&mut self, owner: SpaceId, slab: u32, generation: u32, regions: u64) -> Result<(), Full> {
        let entry = self.entry(owner, slab, generation)?;
        let changed = regions & !entry.marked != 0;
        entry.marked |= regions;
        entry.pinned |= regions;
        entry.yielding &= !regions;
        let block = entry.slot / self.per_block;
        self.blocks[block].version += u64::from(changed);
        Ok(())
    }

    /// Marks pinned regions as evictable, because other disks have their newest data and their marks.
    pub fn yields(&mut self, slab: u32, generation: u32, regions: u64) {
        if let Some(entry) = self.slabs.get_mut(&slab).filter(|e| e.generation == generation) {
            entry.yielding |= regions & entry.pinned;
        }
    }

    /// The disk has, or is about to have, the newest data of these regions: their pinned entries may no
    /// longer be evicted.
    pub fn stands(&mut self, slab: u32, generation: u32, regions: u64) {
        if let Some(entry) = self.slabs.get_mut(&slab).filter(|e| e.generation == generation) {
            entry.yielding &= !regions;
        }
    }

    /// Regions that were pinned are resolved, and that is durable.
    pub fn unpin(&mut self, slab: u32, generation: u32, regions: u64) {
        if let Some(entry) = self.slabs.get_mut(&slab).filter(|e| e.generation == generation) {
            entry.pinned &= !regions;
            entry.yielding &= !regions;
        }
    }

    /// The pinned regions: slab, generation, regions.
    pub fn pinned(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        self.slabs.iter().filter(|(_, e)| e.pinned != 0).map(|(s, e)| (*s, e.generation, e.pinned))
    }

    /// The slab no longer belongs to its row, and no write to it is in flight.
    pub fn forget(&mut self, slab: u32) {
        if let Some(entry) = self.slabs.remove(&slab) {
            self.slots[entry.slot] = None;
        }
    }

    /// Takes back marks that are not in use and were not since the last sweep; their blocks are due to be written.
    pub fn sweep(&mut self) {
        let mut empty = Vec::new();
        for (slab, entry) in &mut self.slabs {
            let keep = entry.marked & (entry.busy() | entry.recent);
            entry.recent = 0;
            if keep != entry.marked {
                entry.marked = keep;
                self.blocks[entry.slot / self.per_block].version += 1;
            }
            if keep == 0 {
                empty.push(*slab);
            }
        }
        empty.into_iter().for_each(|slab| self.forget(slab));
    }

    /// Whether another slab can have an entry now.
    pub fn has_room(&self) -> bool {
        self.slabs.len() < self.slots.len() || self.slabs.values().any(|e| e.firm() == 0)
    }

    /// The number of entries ever assigned: it grows while the log makes progress.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// How many entries there are, and room for.
    pub fn entries(&self) -> (usize, usize) {
        (self.slabs.len(), self.slots.len())
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn entry(&mut self, owner: SpaceId, slab: u32, generation: u32) -> Result<&mut Slab, Full> {
        let found = self.slabs.get(&slab).map(|e| e.generation);
        if found != Some(generation) {
            self.forget(slab);
            let slot = self.free_slot()?;
            self.taken += 1;
            self.slots[slot] = Some(slab);
            let fresh = Slab {
                slot,
                owner,
                generation,
                marked: 0,
                pinned: 0,
                yielding: 0,
                recent: 0,
                in_use: RegionsInUse::default(),
                used_at: self.clock,
            };
            self.slabs.insert(slab, fresh);
        }
        self.slabs.get_mut(&slab).ok_or(Full)
    }

    /// A free slot, or the one unused for the longest time; an evictable one only if there is no other.
    fn free_slot(&mut self) -> Result<usize, Full> {
        if let Some(slot) = self.slots.iter().position(Option::is_none) {
            return Ok(slot);
        }
        let idle = self.slabs.iter().filter(|(_, e)| e.firm() == 0);
        let first = idle.min_by_key(|(s, e)| (e.pinned != 0, e.used_at, **s));
        let (slab, slot) = first.map(|(s, e)| (*s, e.slot)).ok_or(Full)?;
        self.forget(slab);
        Ok(slot)
    }
}

impl Slab {
    fn busy(&self) -> u64 {
        self.pinned | self.in_use.bits
    }

    /// Regions that keep the entry.
    fn firm(&self) -> u64 {
        self.pinned & !self.yielding | self.in_use.bits
    }
}

impl RegionsInUse {
    /// The state of a region, which is in use from now on.
    fn of(&mut self, region: u8) -> &mut InUse {
        let bit = 1 << region;
        let at = (self.bits & (bit - 1)).count_ones() as usize;
        if self.bits & bit == 0 {
            self.bits |= bit;
            self.each.insert(at, InUse { in_flight: 0, touched_at: 0 });
        }
        &mut self.each[at]
    }

    fn keep(&mut self, mut wanted: impl FnMut(u64, &InUse) -> bool) {
        let mut left = bits(self.bits);
        let mut kept = 0;
        self.each.retain(|u| {
            let bit = left.next().map_or(0, |region| 1 << region);
            let keep = wanted(bit, u);
            kept |= if keep { bit } else { 0 };
            keep
        });
        self.bits = kept;
    }
}

fn bits(mut regions: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = (regions != 0).then(|| regions.trailing_zeros() as u8)?;
        regions &= regions - 1;
        Some(bit)
    })
}
