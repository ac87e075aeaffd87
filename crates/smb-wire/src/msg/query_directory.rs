//! QUERY_DIRECTORY (MS-SMB2 2.2.33, 2.2.34). The entries are in [`crate::fscc`].

use super::query_info::{output, put_output, put_output_with};
use super::{part16, put_request_part};
use crate::cursor::{Field, Reader};
use crate::macros::flag_set;
use crate::{Decode, Encode, FileId, MessageBuilder, Utf16Le, WireError};

flag_set! {
    /// Flags of QUERY_DIRECTORY.
    pub struct QueryDirectoryFlags: u8 {
        /// Restart the scan.
        const RESTART_SCANS = 0x01;
        /// Return one entry.
        const RETURN_SINGLE_ENTRY = 0x02;
        /// Start at `file_index`.
        const INDEX_SPECIFIED = 0x04;
        /// Restart the scan with a new pattern.
        const REOPEN = 0x10;
    }
}

/// QUERY_DIRECTORY request (MS-SMB2 2.2.33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryDirectoryRequest<'a> {
    /// The information class: [`crate::fscc::FileInfoClass`].
    pub info_class: u8,
    /// Flags.
    pub flags: QueryDirectoryFlags,
    /// Where to start, if INDEX_SPECIFIED is set.
    pub file_index: u32,
    /// The open directory.
    pub file_id: FileId,
    /// The search pattern.
    pub pattern: Utf16Le<'a>,
    /// Maximum length of the response data in bytes.
    pub output_buffer_length: u32,
}

impl<'a> Decode<'a> for QueryDirectoryRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        const PATTERN: &str = "QUERY_DIRECTORY pattern";
        let mut r = Reader::body(msg, "QUERY_DIRECTORY request", 33)?;
        let info_class = r.get()?;
        let flags = r.get()?;
        let file_index = r.get()?;
        let file_id = r.get()?;
        let (offset, len): (u16, u16) = (r.get()?, r.get()?);
        let output_buffer_length = r.get()?;
        let pattern = Utf16Le::new(r.range(offset.into(), len.into(), PATTERN)?, PATTERN)?;
        Ok(Self { info_class, flags, file_index, file_id, pattern, output_buffer_length })
    }
}

impl Encode for QueryDirectoryRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let (offset, len) = part16(m.offset() + 32, self.pattern.as_bytes(), "QUERY_DIRECTORY pattern")?;
        let out = m.out();
        33u16.put(out);
        self.info_class.put(out);
        self.flags.put(out);
        self.file_index.put(out);
        self.file_id.put(out);
        offset.put(out);
        len.put(out);
        self.output_buffer_length.put(out);
        put_request_part(m, self.pattern.as_bytes());
        Ok(())
    }
}

/// QUERY_DIRECTORY response (MS-SMB2 2.2.34).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryDirectoryResponse<'a> {
    /// The entries.
    pub buffer: &'a [u8],
}

impl QueryDirectoryResponse<'_> {
    /// Encodes a response whose buffer `fill` appends in place.
    ///
    /// # Errors
    /// The error of `fill`, or `Unencodable`.
    pub fn encode_with<E: From<WireError>>(
        m: &mut MessageBuilder<'_>,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        put_output_with(m, fill)
    }
}

impl<'a> Decode<'a> for QueryDirectoryResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        output(msg, "QUERY_DIRECTORY response").map(|buffer| Self { buffer })
    }
}

impl Encode for QueryDirectoryResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        put_output(m, self.buffer)
    }
}
