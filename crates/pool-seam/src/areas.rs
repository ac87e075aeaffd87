//! The areas of a disk: `docs/on-disk-format.md`, "A disk".

use crate::{GROUP, UNIT};

/// A byte range of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes from the beginning of the disk.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
}

/// The position of each area of a disk, as recorded in its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// Bytes of the disk that the pool uses.
    pub size: u64,
    /// The first label.
    pub label_a: Extent,
    /// The second one.
    pub label_b: Extent,
    /// The two blocks of the claim.
    pub claim: Extent,
    /// The two blocks of the fence table.
    pub fences: Extent,
    /// The slots of marks.
    pub marks: Extent,
    /// The first checkpoint of the metadata.
    pub checkpoint_0: Extent,
    /// The second one.
    pub checkpoint_1: Extent,
    /// The ring buffer of the metadata's journal.
    pub journal: Extent,
    /// The slabs, each with its checksum blocks.
    pub slabs: Extent,
    /// Bytes of data in a slab.
    pub slab_bytes: u64,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Bytes of a slot of marks: two blocks.
const SLOT: u64 = 2 * UNIT;

/// A new pool gets at most this many slabs if the slab size allows it: each slab takes some 60 bytes of
/// memory, and operations on all slabs take time.
const SLABS_MANY: u64 = 1 << 20;

impl Extent {
    /// The `length` bytes from `offset` on.
    pub const fn new(offset: u64, length: u64) -> Extent {
        Extent { offset, length }
    }

    /// The offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

impl Areas {
    /// The first label: the one that is read first.
    pub const LABEL_A: Extent = Extent::new(64 * KIB, UNIT);

    /// The smallest disk that a pool accepts, in bytes.
    pub const DISK_MIN: u64 = 16 * MIB;

    /// The smallest slab, in bytes.
    pub const SLAB_MIN: u64 = GROUP;

    /// The largest slab, in bytes.
    pub const SLAB_MAX: u64 = 1024 * MIB;

    /// The position of the second label on a disk of `size` bytes.
    pub fn label_b(size: u64) -> Extent {
        Extent::new((size / UNIT).saturating_sub(1) * UNIT, UNIT)
    }

    /// The slab size, in bytes, for disks with `all` bytes in total, the smallest with `smallest`. It is
    /// usually 256 MiB; up to 1 GiB to keep the pool below a million slabs; less, to give the smallest disk
    /// 64 slabs.
    pub fn slab_bytes_for(smallest: u64, all: u64) -> u64 {
        let usual = all.div_ceil(SLABS_MANY).next_power_of_two().clamp(256 * MIB, Self::SLAB_MAX);
        let share: u64 = 1 << (smallest / 64).max(1).ilog2();
        share.clamp(Self::SLAB_MIN, usual)
    }

    /// Lays out a disk of `size` bytes. Returns `None` if it is too small for one slab.
    pub fn plan(size: u64, slab_bytes: u64) -> Option<Areas> {
        if size < Self::DISK_MIN {
            return None;
        }
        let share = |part: u64, least, most| (size / part / (64 * KIB) * (64 * KIB)).clamp(least, most);
        let after = |before: Extent, length| Extent::new(before.end(), length);
        let marks = Extent::new(128 * KIB, share(1024, 128 * KIB, 32 * MIB));
        let checkpoint_0 = after(marks, share(2048, 256 * KIB, 256 * MIB));
        let checkpoint_1 = after(checkpoint_0, checkpoint_0.length);
        let journal = after(checkpoint_1, (checkpoint_0.length / 4).clamp(256 * KIB, 16 * MIB));
        let label_b = Self::label_b(size);
        let start = journal.end().next_multiple_of(MIB);
        let areas = Areas {
            size: label_b.end(),
            label_a: Self::LABEL_A,
            label_b,
            claim: after(Self::LABEL_A, 2 * UNIT),
            fences: Extent::new(80 * KIB, 2 * UNIT),
            marks,
            checkpoint_0,
            checkpoint_1,
            journal,
            slabs: Extent::new(start, label_b.offset.checked_sub(start)?),
            slab_bytes,
        };
        (areas.is_sound() && areas.slab_count() > 0).then_some(areas)
    }

    /// The two checkpoints.
    pub fn checkpoints(&self) -> [Extent; 2] {
        [self.checkpoint_0, self.checkpoint_1]
    }

    /// Block 0 or 1 of the claim.
    pub fn claim_place(&self, place: u64) -> Extent {
        Extent::new(self.claim.offset + (place & 1) * UNIT, UNIT)
    }

    /// The number of slots of marks: a space with a higher slot number has no slabs on this disk.
    pub fn slots(&self) -> u16 {
        u16::try_from(self.marks.length / SLOT).unwrap_or(u16::MAX)
    }

    /// The number of slabs.
    pub fn slab_count(&self) -> u32 {
        u32::try_from(self.slabs.length / self.stride()).unwrap_or(u32::MAX)
    }

    /// The checksum blocks of a slab, one for each group.
    pub fn checksums(&self, slab: u32) -> Extent {
        let offset = self.slabs.offset + u64::from(slab) * self.stride();
        Extent::new(offset, self.slab_bytes / GROUP * UNIT)
    }

    /// The data of a slab.
    pub fn data(&self, slab: u32) -> Extent {
        Extent::new(self.checksums(slab).end(), self.slab_bytes)
    }

    /// Validates areas from a label that another program may have written: they must be in order, disjoint,
    /// aligned, inside the disk and large enough.
    pub fn is_sound(&self) -> bool {
        let in_order = [
            self.label_a,
            self.claim,
            self.fences,
            self.marks,
            self.checkpoint_0,
            self.checkpoint_1,
            self.journal,
            self.slabs,
            self.label_b,
        ];
        let aligned = in_order.iter().all(|e| e.offset.is_multiple_of(UNIT) && e.length.is_multiple_of(UNIT));
        let apart = in_order
            .windows(2)
            .all(|w| w[0].offset.checked_add(w[0].length).is_some_and(|end| end <= w[1].offset));
        aligned
            && apart
            && self.label_a == Self::LABEL_A
            && self.label_b == Self::label_b(self.size)
            && [self.claim, self.fences].iter().all(|e| e.length == 2 * UNIT)
            && self.marks.length.is_multiple_of(SLOT)
            && (16 * SLOT..=4096 * SLOT).contains(&self.marks.length)
            && self.checkpoints().iter().all(|c| (256 * KIB..=1024 * MIB).contains(&c.length))
            && (256 * KIB..=64 * MIB).contains(&self.journal.length)
            && self.slab_bytes.is_power_of_two()
            && (Self::SLAB_MIN..=Self::SLAB_MAX).contains(&self.slab_bytes)
    }

    fn stride(&self) -> u64 {
        self.slab_bytes + self.slab_bytes / GROUP * UNIT
    }
}

#[cfg(test)]
mod tests;
