//! Lists linked by NextEntryOffset, the first field of each entry.

use crate::WireError;
use crate::cursor::{pad, patch_u32, slice};

/// Whether an entry was added to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fits {
    /// The entry was added.
    Yes,
    /// The entry would exceed the budget; nothing was written.
    No,
}

/// Appends linked entries to a buffer, limited to a number of bytes.
#[derive(Debug)]
pub struct ListBuilder<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    budget: usize,
    align: usize,
    last: Option<usize>,
}

impl<'v> ListBuilder<'v> {
    /// Starts a list at the end of `out`, of at most `budget` bytes. Entries are aligned to `align` bytes from its
    /// start.
    pub fn new(out: &'v mut Vec<u8>, budget: usize, align: usize) -> Self {
        let start = out.len();
        Self { out, start, budget, align, last: None }
    }

    /// Adds an entry of exactly `len` bytes, which `write` writes with a NextEntryOffset of 0.
    pub fn push(&mut self, len: usize, write: impl FnOnce(&mut Vec<u8>)) -> Fits {
        let at = self.len().next_multiple_of(self.align);
        if at.saturating_add(len) > self.budget {
            return Fits::No;
        }
        pad(self.out, self.start, self.align);
        let at = self.out.len();
        if let Some(last) = self.last {
            patch_u32(self.out, last, (at - last) as u32);
        }
        write(self.out);
        debug_assert_eq!(self.out.len(), at + len, "an entry has the length it was announced with");
        self.last = Some(at);
        Fits::Yes
    }

    /// Length so far, in bytes.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether the list has no entry.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}

/// Splits off the first entry of a list; returns its bytes, and the rest if there is another entry. `fixed` is the
/// minimum length of an entry: NextEntryOffset must be at least that.
pub(super) fn split_entry<'a>(
    bytes: &'a [u8],
    fixed: usize,
    what: &'static str,
) -> Result<(&'a [u8], Option<&'a [u8]>), WireError> {
    let head = slice(bytes, 0, fixed, what)?;
    let next = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if next == 0 {
        return Ok((bytes, None));
    }
    if next < fixed {
        return Err(WireError::Malformed { what });
    }
    let entry = slice(bytes, 0, next, what)?;
    Ok((entry, Some(&bytes[next..])))
}
