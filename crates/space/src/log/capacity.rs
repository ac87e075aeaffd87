//! The size of a record, and its limit.

use super::BLOCK;
use super::record::{HEAD_BLOCKS_MAX, HEAD_BYTES, PAYLOAD_UNITS_MAX};

/// The size of entries and their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the entries.
    pub body: usize,
    /// Payload units.
    pub units: usize,
}

/// Room for entries in a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordCapacity {
    blocks: u64,
    used: Size,
}

impl Size {
    /// Blocks of a record of this size.
    pub fn blocks(&self) -> u64 {
        ((HEAD_BYTES + self.body).div_ceil(BLOCK) + self.units) as u64
    }

    fn and(self, other: Size) -> Size {
        Size { body: self.body + other.body, units: self.units + other.units }
    }
}

impl RecordCapacity {
    /// An empty record of at most so many blocks.
    pub fn new(blocks: u64) -> RecordCapacity {
        RecordCapacity { blocks, used: Size::default() }
    }

    /// Whether entries of this size fit.
    pub fn fits(&self, size: Size) -> bool {
        let with = self.used.and(size);
        with.blocks() <= self.blocks
            && with.blocks() - with.units as u64 <= u64::from(HEAD_BLOCKS_MAX)
            && with.units <= usize::from(PAYLOAD_UNITS_MAX)
    }

    /// Adds entries of this size, if they fit; returns whether they do.
    pub fn add(&mut self, size: Size) -> bool {
        let fits = self.fits(size);
        if fits {
            self.used = self.used.and(size);
        }
        fits
    }
}
