//! FileStreamInformation (MS-FSCC 2.4): the data streams of a file.

use super::list::{Fits, ListBuilder, split_entry};
use crate::cursor::{Field, Reader, fit_u32};
use crate::{Utf16Le, WireError};

/// One stream; the unnamed stream is called `::$DATA`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamEntry<'a> {
    /// Length of the stream in bytes.
    pub size: u64,
    /// Allocated size in bytes.
    pub allocation_size: u64,
    /// Name in the form `:name:$DATA`.
    pub name: Utf16Le<'a>,
}

/// Length of the fixed part before the name, in bytes.
const FIXED_LEN: usize = 24;

/// Writes a list of streams within a budget.
#[derive(Debug)]
pub struct StreamList<'v>(ListBuilder<'v>);

impl<'v> StreamList<'v> {
    /// A list at the end of `out`, of at most `budget` bytes.
    pub fn new(out: &'v mut Vec<u8>, budget: usize) -> Self {
        Self(ListBuilder::new(out, budget, 8))
    }

    /// Adds a stream if it fits the budget.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn push(&mut self, entry: &StreamEntry<'_>) -> Result<Fits, WireError> {
        let len = fit_u32(entry.name.len(), "stream name")?;
        Ok(self.0.push(FIXED_LEN + entry.name.len(), |out| {
            0u32.put(out);
            len.put(out);
            entry.size.put(out);
            entry.allocation_size.put(out);
            out.extend_from_slice(entry.name.as_bytes());
        }))
    }
}

/// Reads a list of streams; ends after the first error.
#[derive(Debug, Clone)]
pub struct StreamEntries<'a>(Option<&'a [u8]>);

impl<'a> StreamEntries<'a> {
    /// The streams in `bytes`; empty bytes are an empty list.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Some(bytes).filter(|b| !b.is_empty()))
    }
}

impl<'a> Iterator for StreamEntries<'a> {
    type Item = Result<StreamEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        const WHAT: &str = "stream entry";
        let bytes = self.0.take()?;
        Some(split_entry(bytes, FIXED_LEN, WHAT).and_then(|(entry, rest)| {
            let mut r = Reader::new(entry, WHAT);
            r.skip(4)?;
            let len: u32 = r.get()?;
            let (size, allocation_size) = (r.get()?, r.get()?);
            let name = Utf16Le::new(r.take(len as usize)?, WHAT)?;
            self.0 = rest;
            Ok(StreamEntry { size, allocation_size, name })
        }))
    }
}
