//! Positions in a log and blocks of its ring: `docs/on-disk-format.md`, "The space log".
//!
//! Invariants:
//! 1. A position counts blocks since the log was created and never decreases; position `p` is ring block `p mod n`.
//! 2. A record is contiguous in the ring: one that would pass the ring's end begins at ring block 0, and the
//!    blocks before it stay unused.
//! 3. From the tail to the end of the newest record are at most `n` positions, unused ones included, so that no
//!    two of them share a ring block.

/// The most blocks of a ring: 64 MiB.
pub const RING_BLOCKS_MAX: u64 = 16_384;

/// A place in a log between two records: the next record has this sequence, and begins at this position or, if
/// it does not fit before the ring's end, at the ring's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Blocks since the log was created.
    pub position: u64,
    /// Records since the log was created.
    pub sequence: u64,
}

/// A ring of `n` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    blocks: u64,
}

impl Ring {
    /// A ring of this many blocks; `None` if that is none or more than [`RING_BLOCKS_MAX`].
    pub fn new(blocks: u64) -> Option<Ring> {
        (1..=RING_BLOCKS_MAX).contains(&blocks).then_some(Ring { blocks })
    }

    /// Blocks of the ring.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The ring block of a position.
    pub fn block(&self, position: u64) -> u64 {
        position % self.blocks
    }

    /// Blocks from a position to the ring's end.
    pub fn to_end(&self, position: u64) -> u64 {
        self.blocks - self.block(position)
    }

    /// The most blocks of a record: an eighth of the ring, but at least one.
    pub fn record_max(&self) -> u64 {
        (self.blocks / 8).max(1)
    }

    /// The position where a record of `blocks` begins if the record before it ends at position `end`.
    pub fn place(&self, end: u64, blocks: u64) -> u64 {
        if blocks <= self.to_end(end) { end } else { end + self.to_end(end) }
    }

    /// Blocks that are left for records before the tail's ring block is reached; `end` is the position after the
    /// newest record.
    pub fn room(&self, tail: u64, end: u64) -> u64 {
        self.blocks.saturating_sub(end.saturating_sub(tail))
    }

    /// The position for a record of `blocks` after position `end`; `None` if it does not fit before the tail.
    pub fn fit(&self, tail: u64, end: u64, blocks: u64) -> Option<u64> {
        let position = self.place(end, blocks);
        (blocks <= self.room(tail, position)).then_some(position)
    }
}
