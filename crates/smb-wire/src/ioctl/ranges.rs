//! Ranges of a file: sparse, zero, allocated, trim (MS-FSCC 2.3).

use crate::WireError;
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::{record, record_list};

/// FSCTL_SET_SPARSE (MS-FSCC 2.3): whether the file must become sparse. Empty input means yes.
pub fn sparse_requested(input: &[u8]) -> bool {
    input.first().is_none_or(|&set| set != 0)
}

record! {
    /// FILE_ZERO_DATA_INFORMATION (MS-FSCC 2.3).
    pub struct ZeroData [16] {
        /// Offset of the first byte to zero.
        pub file_offset: u64,
        /// Offset of the first byte after the range.
        pub beyond_final_zero: u64,
    }
}

record! {
    /// FILE_ALLOCATED_RANGE_BUFFER (MS-FSCC 2.3): the queried range, and each range of the response.
    pub struct AllocatedRange [16] {
        /// Offset of the first byte.
        pub file_offset: u64,
        /// Length in bytes.
        pub length: u64,
    }
}

record_list! {
    /// The ranges of a response.
    pub struct AllocatedRanges of AllocatedRange, "FILE_ALLOCATED_RANGE_BUFFER"
}

record! {
    /// FILE_LEVEL_TRIM_RANGE (MS-FSCC 2.3).
    pub struct TrimRange [16] {
        /// Offset of the first byte.
        pub offset: u64,
        /// Length in bytes.
        pub length: u64,
    }
}

record_list! {
    /// The ranges of a trim.
    pub struct TrimRanges of TrimRange, "FILE_LEVEL_TRIM_RANGE"
}

/// FILE_LEVEL_TRIM (MS-FSCC 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileLevelTrim<'a> {
    /// Reserved.
    pub key: u32,
    /// The ranges.
    pub ranges: TrimRanges<'a>,
}

impl<'a> FileLevelTrim<'a> {
    /// Decodes the input.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(input: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(input, "FILE_LEVEL_TRIM");
        let key = r.get()?;
        let count: u32 = r.get()?;
        let ranges = TrimRanges::from_bytes(r.take((count as usize).saturating_mul(TrimRange::LEN))?)?;
        Ok(Self { key, ranges })
    }

    /// Appends the input to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let count = fit_u32(self.ranges.len(), "NumRanges")?;
        self.key.put(out);
        count.put(out);
        out.extend_from_slice(self.ranges.as_bytes());
        Ok(())
    }
}

record! {
    /// FILE_LEVEL_TRIM_OUTPUT (MS-FSCC 2.3).
    pub struct TrimResponse [4] {
        /// Number of processed ranges.
        pub num_ranges_processed: u32,
    }
}
