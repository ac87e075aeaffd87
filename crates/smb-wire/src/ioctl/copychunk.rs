//! Server-side copy: FSCTL_SRV_REQUEST_RESUME_KEY (MS-SMB2 2.2.32.3), FSCTL_SRV_COPYCHUNK (2.2.31.1, 2.2.32.1).
//! Also the snapshot list (2.2.32.2).

use crate::cursor::{Field, Reader, fit_u32, zeros};
use crate::macros::{record, record_list};
use crate::{Utf16Le, WireError};

/// Length of a resume key in bytes.
pub const RESUME_KEY_LEN: usize = 24;

record! {
    /// SRV_REQUEST_RESUME_KEY response (MS-SMB2 2.2.32.3) with the empty context that Windows sends.
    pub struct ResumeKey [32] {
        /// The server's key for the source of copies.
        pub key: [u8; 24],
        /// Zero.
        pub context_length: u32 => pad 4,
    }
}

record! {
    /// SRV_COPYCHUNK (MS-SMB2 2.2.31.1.1): one range.
    pub struct CopyChunk [24] {
        /// Offset in the source, in bytes.
        pub source_offset: u64,
        /// Offset in the target, in bytes.
        pub target_offset: u64,
        /// Length in bytes.
        pub length: u32 => pad 4,
    }
}

record_list! {
    /// The ranges of a request.
    pub struct CopyChunks of CopyChunk, "SRV_COPYCHUNK"
}

/// SRV_COPYCHUNK_COPY (MS-SMB2 2.2.31.1). The server limits the number and size of ranges, not this codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyChunkRequest<'a> {
    /// The key of the source.
    pub source_key: [u8; RESUME_KEY_LEN],
    /// The ranges.
    pub chunks: CopyChunks<'a>,
}

impl<'a> CopyChunkRequest<'a> {
    /// Decodes the input.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(input: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(input, "SRV_COPYCHUNK_COPY");
        let source_key = r.get()?;
        let count: u32 = r.get()?;
        r.skip(4)?;
        let chunks = CopyChunks::from_bytes(r.take((count as usize).saturating_mul(CopyChunk::LEN))?)?;
        Ok(Self { source_key, chunks })
    }

    /// Appends the input to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let count = fit_u32(self.chunks.len(), "ChunkCount")?;
        self.source_key.put(out);
        count.put(out);
        0u32.put(out);
        out.extend_from_slice(self.chunks.as_bytes());
        Ok(())
    }
}

record! {
    /// SRV_COPYCHUNK_RESPONSE (MS-SMB2 2.2.32.1). With STATUS_INVALID_PARAMETER the fields contain the server's
    /// limits.
    pub struct CopyChunkResponse [12] {
        /// Number of ranges written; or the maximum number of ranges.
        pub chunks_written: u32,
        /// Number of bytes written of a partially written range; or the maximum length of a range.
        pub chunk_bytes_written: u32,
        /// Number of bytes written; or the maximum number of bytes per request.
        pub total_bytes_written: u32,
    }
}

/// SRV_SNAPSHOT_ARRAY (MS-SMB2 2.2.32.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotArray<'a> {
    /// Number of existing snapshots.
    pub number_of_snapshots: u32,
    /// Number of snapshots in `names`.
    pub number_returned: u32,
    /// Length of all names in bytes.
    pub array_size: u32,
    /// Names of the form `@GMT-YYYY.MM.DD-HH.MM.SS`, each terminated by a zero, followed by one more zero.
    pub names: Utf16Le<'a>,
}

impl<'a> SnapshotArray<'a> {
    /// Decodes the output.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(output: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(output, "SRV_SNAPSHOT_ARRAY");
        let (number_of_snapshots, number_returned, array_size) = (r.get()?, r.get()?, r.get()?);
        let names = if number_returned == 0 { &[][..] } else { r.take(array_size as usize)? };
        Ok(Self {
            number_of_snapshots,
            number_returned,
            array_size,
            names: Utf16Le::new(names, "snapshots")?,
        })
    }

    /// Appends the output to `out`. If there are no names, appends two zeros, as Windows does.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.number_of_snapshots.put(out);
        self.number_returned.put(out);
        self.array_size.put(out);
        if self.names.is_empty() {
            zeros(out, 4);
        }
        out.extend_from_slice(self.names.as_bytes());
    }
}
