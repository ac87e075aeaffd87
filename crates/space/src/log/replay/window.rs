//! The bytes of one replica that a replay has buffered.

use crate::log::BLOCK;

/// Contiguous positions of one replica.
#[derive(Debug)]
pub(super) struct Window {
    /// The first position that the replica contains; `None` if it contains none.
    pub(super) joined: Option<u64>,
    /// The position after all requested reads.
    pub(super) asked: u64,
    /// The position of the first byte of `bytes`.
    from: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(super) fn new(joined: Option<u64>, tail: u64) -> Window {
        let from = joined.unwrap_or(u64::MAX).max(tail);
        Window { joined, asked: from, from, bytes: Vec::new() }
    }

    pub(super) fn takes_part(&self, position: u64) -> bool {
        self.joined.is_some_and(|joined| joined <= position)
    }

    /// The position after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.from + (self.bytes.len() / BLOCK) as u64
    }

    /// Adds the result of the oldest read. Blocks that could not be read are zeros, which no record begins with.
    pub(super) fn extend(&mut self, blocks: u64, bytes: Option<&[u8]>) {
        assert!(blocks > 0 && self.end() + blocks <= self.asked, "no read is outstanding");
        let length = blocks as usize * BLOCK;
        match bytes.filter(|bytes| bytes.len() == length) {
            Some(bytes) => self.bytes.extend_from_slice(bytes),
            None => self.bytes.resize(self.bytes.len() + length, 0),
        }
    }

    pub(super) fn has(&self, position: u64, blocks: u64) -> bool {
        position + blocks <= self.end()
    }

    /// Blocks that the window has.
    pub(super) fn get(&self, position: u64, blocks: u64) -> &[u8] {
        let from = (position - self.from) as usize * BLOCK;
        &self.bytes[from..from + blocks as usize * BLOCK]
    }

    /// Frees positions before this one, once they are half of the buffer, so that each byte is moved at most once.
    pub(super) fn drop_before(&mut self, position: u64) {
        let unused = (position.saturating_sub(self.from) as usize * BLOCK).min(self.bytes.len());
        if unused * 2 >= self.bytes.len() {
            self.bytes.drain(..unused);
            self.from += (unused / BLOCK) as u64;
        }
    }
}
