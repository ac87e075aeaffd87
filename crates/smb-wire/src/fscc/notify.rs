//! FILE_NOTIFY_INFORMATION (MS-FSCC 2.7): the changes in a watched directory.

use super::list::{Fits, ListBuilder, split_entry};
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::open_enum;
use crate::{Utf16Le, WireError};

open_enum! {
    /// The kind of change.
    pub struct NotifyAction(u32) {
        /// Added.
        ADDED = 1,
        /// Removed.
        REMOVED = 2,
        /// Modified.
        MODIFIED = 3,
        /// Renamed, the old name.
        RENAMED_OLD_NAME = 4,
        /// Renamed, the new name.
        RENAMED_NEW_NAME = 5,
        /// A stream was added.
        ADDED_STREAM = 6,
        /// A stream was removed.
        REMOVED_STREAM = 7,
        /// A stream was modified.
        MODIFIED_STREAM = 8,
    }
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change<'a> {
    /// The kind of change.
    pub action: NotifyAction,
    /// Path from the watched directory.
    pub name: Utf16Le<'a>,
}

const FIXED_LEN: usize = 12;

/// Writes a list of changes within a budget.
#[derive(Debug)]
pub struct ChangeList<'v>(ListBuilder<'v>);

impl<'v> ChangeList<'v> {
    /// A list at the end of `out`, of at most `budget` bytes.
    pub fn new(out: &'v mut Vec<u8>, budget: usize) -> Self {
        Self(ListBuilder::new(out, budget, 4))
    }

    /// Adds a change if it fits the budget.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn push(&mut self, change: &Change<'_>) -> Result<Fits, WireError> {
        let len = fit_u32(change.name.len(), "change's name")?;
        Ok(self.0.push(FIXED_LEN + change.name.len(), |out| {
            0u32.put(out);
            change.action.put(out);
            len.put(out);
            out.extend_from_slice(change.name.as_bytes());
        }))
    }
}

/// Reads a list of changes; ends after the first error.
#[derive(Debug, Clone)]
pub struct Changes<'a>(Option<&'a [u8]>);

impl<'a> Changes<'a> {
    /// The changes in `bytes`; empty bytes are an empty list.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Some(bytes).filter(|b| !b.is_empty()))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        const WHAT: &str = "change notification";
        let bytes = self.0.take()?;
        Some(split_entry(bytes, FIXED_LEN, WHAT).and_then(|(entry, rest)| {
            let mut r = Reader::new(entry, WHAT);
            r.skip(4)?;
            let action = r.get()?;
            let len: u32 = r.get()?;
            let name = Utf16Le::new(r.take(len as usize)?, WHAT)?;
            self.0 = rest;
            Ok(Change { action, name })
        }))
    }
}
