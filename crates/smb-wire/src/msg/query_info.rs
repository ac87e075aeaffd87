//! QUERY_INFO (MS-SMB2 2.2.37, 2.2.38). The contents of the buffers are in [`crate::fscc`] and [`crate::security`].

use super::{part32, put_request_part};
use crate::cursor::{Field, Reader, fit_u32, patch_u32};
use crate::macros::{flag_set, open_enum, record};
use crate::{Decode, Encode, FileId, MessageBuilder, WireError};

open_enum! {
    /// The type of an information class.
    pub struct InfoType(u8) {
        /// File information (MS-FSCC 2.4).
        FILE = 1,
        /// File system information (MS-FSCC 2.5).
        FILESYSTEM = 2,
        /// A security descriptor.
        SECURITY = 3,
        /// Quotas.
        QUOTA = 4,
    }
}

flag_set! {
    /// SECURITY_INFORMATION: the parts of a security descriptor (MS-DTYP 2.4.7).
    pub struct SecurityInformation: u32 {
        /// Owner.
        const OWNER = 0x0000_0001;
        /// Group.
        const GROUP = 0x0000_0002;
        /// DACL.
        const DACL = 0x0000_0004;
        /// SACL.
        const SACL = 0x0000_0008;
        /// Integrity label.
        const LABEL = 0x0000_0010;
        /// Resource attributes.
        const ATTRIBUTE = 0x0000_0020;
        /// Central access policy.
        const SCOPE = 0x0000_0040;
        /// All parts, for backup.
        const BACKUP = 0x0001_0000;
    }
}

flag_set! {
    /// Flags of QUERY_INFO, for extended attributes.
    pub struct QueryInfoFlags: u32 {
        /// Restart the scan.
        const RESTART_SCAN = 1;
        /// Return one entry.
        const RETURN_SINGLE_ENTRY = 2;
        /// Start at the given index.
        const INDEX_SPECIFIED = 4;
    }
}

/// QUERY_INFO request (MS-SMB2 2.2.37).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryInfoRequest<'a> {
    /// File, file system, security or quota.
    pub info_type: InfoType,
    /// The information class of that type: [`crate::fscc::FileInfoClass`], [`crate::fscc::FsInfoClass`].
    pub info_class: u8,
    /// Maximum length of the response data in bytes.
    pub output_buffer_length: u32,
    /// For `InfoType::SECURITY`: the requested parts. For extended attributes: the index.
    pub additional_information: SecurityInformation,
    /// Flags.
    pub flags: QueryInfoFlags,
    /// The open.
    pub file_id: FileId,
    /// The requested quotas or extended attributes.
    pub input: &'a [u8],
}

impl<'a> Decode<'a> for QueryInfoRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "QUERY_INFO request", 41)?;
        let info_type = r.get()?;
        let info_class = r.get()?;
        let output_buffer_length = r.get()?;
        let offset: u16 = r.get()?;
        r.skip(2)?;
        let len: u32 = r.get()?;
        let additional_information = r.get()?;
        let flags = r.get()?;
        let file_id = r.get()?;
        let input = r.range(offset.into(), len as usize, "QUERY_INFO input")?;
        Ok(Self {
            info_type,
            info_class,
            output_buffer_length,
            additional_information,
            flags,
            file_id,
            input,
        })
    }
}

impl Encode for QueryInfoRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let (offset, len) = part32(m.offset() + 40, self.input, "QUERY_INFO input")?;
        let out = m.out();
        41u16.put(out);
        self.info_type.put(out);
        self.info_class.put(out);
        self.output_buffer_length.put(out);
        offset.put(out);
        0u16.put(out);
        len.put(out);
        self.additional_information.put(out);
        self.flags.put(out);
        self.file_id.put(out);
        put_request_part(m, self.input);
        Ok(())
    }
}

record! {
    /// SMB2_QUERY_QUOTA_INFO (MS-SMB2 2.2.37.1), followed by a SID or a list of SIDs.
    pub struct QueryQuotaInfo [16] {
        /// Return one entry.
        pub return_single: bool,
        /// Restart the scan.
        pub restart_scan: bool => pad 2,
        /// Length in bytes of the list of FILE_GET_QUOTA_INFORMATION.
        pub sid_list_length: u32,
        /// Length in bytes of the SID to start at.
        pub start_sid_length: u32,
        /// Offset of that SID after this structure.
        pub start_sid_offset: u32,
    }
}

/// QUERY_INFO response (MS-SMB2 2.2.38).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryInfoResponse<'a> {
    /// The information.
    pub buffer: &'a [u8],
}

const RESPONSE: &str = "QUERY_INFO response";

impl QueryInfoResponse<'_> {
    /// Encodes a response whose buffer `fill` appends in place, without a copy of the buffer.
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

impl<'a> Decode<'a> for QueryInfoResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        output(msg, RESPONSE).map(|buffer| Self { buffer })
    }
}

impl Encode for QueryInfoResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        put_output(m, self.buffer)
    }
}

/// The common body of QUERY_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY responses: OutputBufferOffset (u16),
/// OutputBufferLength (u32), the buffer.
pub(super) fn output<'a>(msg: &'a [u8], what: &'static str) -> Result<&'a [u8], WireError> {
    let mut r = Reader::body(msg, what, 9)?;
    let (offset, len): (u16, u32) = (r.get()?, r.get()?);
    r.range(offset.into(), len as usize, what)
}

pub(super) fn put_output(m: &mut MessageBuilder<'_>, buffer: &[u8]) -> Result<(), WireError> {
    let (offset, len) = part32(m.offset() + 8, buffer, "output buffer")?;
    let out = m.out();
    9u16.put(out);
    offset.put(out);
    len.put(out);
    out.extend_from_slice(buffer);
    Ok(())
}

pub(super) fn put_output_with<E: From<WireError>>(
    m: &mut MessageBuilder<'_>,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_output(m, &[])?;
    let out = m.out();
    let at = out.len();
    fill(out)?;
    let len = fit_u32(out.len() - at, "output buffer")?;
    patch_u32(out, at - 4, len);
    Ok(())
}
