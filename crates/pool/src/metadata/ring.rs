//! The position of the next record in a journal's ring. Pure.
//!
//! A record is contiguous: one that does not fit before the end of the ring starts at its beginning. No record since
//! the newest checkpoint is overwritten.

/// The position of the next record, and the part of the ring used since the checkpoint; in bytes, whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    length: u64,
    at: u64,
    used: u64,
}

impl Ring {
    /// A ring of `length` bytes without records, whose next record goes to `at`.
    pub(crate) fn new(length: u64, at: u64) -> Ring {
        Ring { length, at: at % length, used: 0 }
    }

    /// The position of the next record, unless it does not fit there.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Allocates a record of `size` bytes: returns its position, or `None` when a checkpoint must be written first.
    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let at = if self.at + size > self.length { 0 } else { self.at };
        let skipped = if at == self.at { 0 } else { self.length - self.at };
        // One block stays free: a full ring and an empty one differ.
        if self.used + skipped + size >= self.length {
            return None;
        }
        self.used += skipped + size;
        self.at = (at + size) % self.length;
        Some(at)
    }

    /// Whether it is time for a checkpoint.
    pub(crate) fn is_filling(&self) -> bool {
        self.used > self.length / 4 * 3
    }

    /// A checkpoint is durable: earlier records may be overwritten.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests;
