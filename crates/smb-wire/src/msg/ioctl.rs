//! IOCTL (MS-SMB2 2.2.31, 2.2.32). The contents of the buffers are in [`crate::ioctl`].

use crate::cursor::{Field, Reader, fit_u32, patch_u32};
use crate::macros::{flag_set, open_enum};
use crate::{Decode, Encode, FileId, MessageBuilder, WireError};

open_enum! {
    /// An FSCTL code (MS-SMB2 2.2.31, MS-FSCC 2.3).
    pub struct FsctlCode(u32) {
        /// DFS referral.
        DFS_GET_REFERRALS = 0x0006_0194,
        /// DFS referral, extended.
        DFS_GET_REFERRALS_EX = 0x0006_01B0,
        /// Read from a pipe without removing the data.
        PIPE_PEEK = 0x0011_400C,
        /// Wait until a pipe has a free instance.
        PIPE_WAIT = 0x0011_0018,
        /// Write to a pipe and read the answer.
        PIPE_TRANSCEIVE = 0x0011_C017,
        /// Server-side copy.
        SRV_COPYCHUNK = 0x0014_40F2,
        /// Server-side copy; the target handle needs no read access.
        SRV_COPYCHUNK_WRITE = 0x0014_80F2,
        /// Snapshots.
        SRV_ENUMERATE_SNAPSHOTS = 0x0014_4064,
        /// Key for the source of server-side copies.
        SRV_REQUEST_RESUME_KEY = 0x0014_0078,
        /// Branch cache hashes.
        SRV_READ_HASH = 0x0014_41BB,
        /// Resilient handles.
        LMR_REQUEST_RESILIENCY = 0x0014_01D4,
        /// The server's network interfaces.
        QUERY_NETWORK_INTERFACE_INFO = 0x0014_01FC,
        /// Check that the negotiation was not tampered with.
        VALIDATE_NEGOTIATE_INFO = 0x0014_0204,
        /// Set a reparse point.
        SET_REPARSE_POINT = 0x0009_00A4,
        /// Get a reparse point.
        GET_REPARSE_POINT = 0x0009_00A8,
        /// Delete a reparse point.
        DELETE_REPARSE_POINT = 0x0009_00AC,
        /// Deallocate blocks of storage.
        FILE_LEVEL_TRIM = 0x0009_8208,
        /// Make a file sparse.
        SET_SPARSE = 0x0009_00C4,
        /// Zero a range.
        SET_ZERO_DATA = 0x0009_80C8,
        /// Query the allocated ranges.
        QUERY_ALLOCATED_RANGES = 0x0009_40CF,
        /// Object identifier, created if missing.
        CREATE_OR_GET_OBJECT_ID = 0x0009_00C0,
        /// Object identifier.
        GET_OBJECT_ID = 0x0009_009C,
        /// Set the object identifier.
        SET_OBJECT_ID = 0x0009_0098,
        /// Get compression.
        GET_COMPRESSION = 0x0009_003C,
        /// Set compression.
        SET_COMPRESSION = 0x0009_C040,
        /// Get integrity.
        GET_INTEGRITY_INFORMATION = 0x0009_027C,
        /// Set integrity.
        SET_INTEGRITY_INFORMATION = 0x0009_C280,
        /// Share blocks between files.
        DUPLICATE_EXTENTS_TO_FILE = 0x0009_8344,
        /// Share blocks between files, atomically.
        DUPLICATE_EXTENTS_TO_FILE_EX = 0x0009_83E8,
        /// NTFS volume data.
        GET_NTFS_VOLUME_DATA = 0x0009_0064,
        /// Offloaded read.
        OFFLOAD_READ = 0x0009_4264,
        /// Offloaded write.
        OFFLOAD_WRITE = 0x0009_8268,
        /// Location of a file's extents.
        GET_RETRIEVAL_POINTERS = 0x0009_0073,
        /// Regions of a file and their use.
        QUERY_FILE_REGIONS = 0x0009_0284,
        /// USN journal.
        READ_FILE_USN_DATA = 0x0009_00EB,
        /// Shared virtual disk support.
        QUERY_SHARED_VIRTUAL_DISK_SUPPORT = 0x0009_0300,
        /// Shared virtual disk request.
        SVHDX_SYNC_TUNNEL_REQUEST = 0x0009_0304,
        /// Storage quality of service.
        STORAGE_QOS_CONTROL = 0x0009_0350,
    }
}

flag_set! {
    /// Flags of IOCTL.
    pub struct IoctlFlags: u32 {
        /// The code is an FSCTL, not an IOCTL.
        const IS_FSCTL = 1;
    }
}

/// IOCTL request (MS-SMB2 2.2.31).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoctlRequest<'a> {
    /// The operation.
    pub ctl_code: FsctlCode,
    /// The open, or [`FileId::NONE`].
    pub file_id: FileId,
    /// The input.
    pub input: &'a [u8],
    /// Maximum number of input bytes in the response.
    pub max_input_response: u32,
    /// Unused in requests; kept for the few peers that send data.
    pub output: &'a [u8],
    /// Maximum number of output bytes in the response.
    pub max_output_response: u32,
    /// Flags.
    pub flags: IoctlFlags,
}

impl<'a> Decode<'a> for IoctlRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "IOCTL request", 57)?;
        r.skip(2)?;
        let ctl_code = r.get()?;
        let file_id = r.get()?;
        let (input_at, input_len): (u32, u32) = (r.get()?, r.get()?);
        let max_input_response = r.get()?;
        let (output_at, output_len): (u32, u32) = (r.get()?, r.get()?);
        let max_output_response = r.get()?;
        let flags = r.get()?;
        r.skip(4)?;
        let input = r.range(input_at as usize, input_len as usize, "IOCTL input")?;
        let output = r.range(output_at as usize, output_len as usize, "IOCTL output")?;
        Ok(Self { ctl_code, file_id, input, max_input_response, output, max_output_response, flags })
    }
}

impl Encode for IoctlRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let parts = Parts::new(m.offset() + 56, self.input, self.output)?;
        let out = m.out();
        57u16.put(out);
        0u16.put(out);
        self.ctl_code.put(out);
        self.file_id.put(out);
        parts.input_at.put(out);
        parts.input_len.put(out);
        self.max_input_response.put(out);
        parts.output_at.put(out);
        parts.output_len.put(out);
        self.max_output_response.put(out);
        self.flags.put(out);
        0u32.put(out);
        parts.put(m, self.input, self.output);
        if self.input.is_empty() && self.output.is_empty() {
            m.out().push(0);
        }
        Ok(())
    }
}

/// IOCTL response (MS-SMB2 2.2.32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoctlResponse<'a> {
    /// The operation.
    pub ctl_code: FsctlCode,
    /// The open, or [`FileId::NONE`].
    pub file_id: FileId,
    /// Returned input; usually empty.
    pub input: &'a [u8],
    /// The output.
    pub output: &'a [u8],
    /// Reserved.
    pub flags: IoctlFlags,
}

impl IoctlResponse<'_> {
    /// Encodes a response without input whose output `fill` appends in place.
    ///
    /// # Errors
    /// The error of `fill`, or `Unencodable`.
    pub fn encode_with<E: From<WireError>>(
        ctl_code: FsctlCode,
        file_id: FileId,
        m: &mut MessageBuilder<'_>,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let body = m.out().len();
        IoctlResponse { ctl_code, file_id, ..Default::default() }.encode(m)?;
        let at = m.out().len();
        fill(m.out())?;
        let len = fit_u32(m.out().len() - at, "IOCTL output")?;
        patch_u32(m.out(), body + RESPONSE_OUTPUT_COUNT, len);
        Ok(())
    }
}

/// Offset of OutputCount in the response's body.
const RESPONSE_OUTPUT_COUNT: usize = 36;

impl<'a> Decode<'a> for IoctlResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "IOCTL response", 49)?;
        r.skip(2)?;
        let ctl_code = r.get()?;
        let file_id = r.get()?;
        let (input_at, input_len): (u32, u32) = (r.get()?, r.get()?);
        let (output_at, output_len): (u32, u32) = (r.get()?, r.get()?);
        let flags = r.get()?;
        r.skip(4)?;
        let input = r.range(input_at as usize, input_len as usize, "IOCTL input")?;
        let output = r.range(output_at as usize, output_len as usize, "IOCTL output")?;
        Ok(Self { ctl_code, file_id, input, output, flags })
    }
}

impl Encode for IoctlResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let parts = Parts::new(m.offset() + 48, self.input, self.output)?;
        let out = m.out();
        49u16.put(out);
        0u16.put(out);
        self.ctl_code.put(out);
        self.file_id.put(out);
        parts.input_at.put(out);
        parts.input_len.put(out);
        parts.output_at.put(out);
        parts.output_len.put(out);
        self.flags.put(out);
        0u32.put(out);
        parts.put(m, self.input, self.output);
        Ok(())
    }
}

/// Position of input and output: the input follows the fixed part, and the output follows the input, 8-byte aligned
/// (MS-SMB2 2.2.32).
struct Parts {
    input_at: u32,
    input_len: u32,
    output_at: u32,
    output_len: u32,
}

impl Parts {
    fn new(at: usize, input: &[u8], output: &[u8]) -> Result<Self, WireError> {
        // An empty output has the offset of the input, as in Windows, so its offset never exceeds the message's
        // length.
        let output_at = if output.is_empty() { at } else { (at + input.len()).next_multiple_of(8) };
        Ok(Self {
            input_at: fit_u32(at, "IOCTL input")?,
            input_len: fit_u32(input.len(), "IOCTL input")?,
            output_at: fit_u32(output_at, "IOCTL output")?,
            output_len: fit_u32(output.len(), "IOCTL output")?,
        })
    }

    fn put(&self, m: &mut MessageBuilder<'_>, input: &[u8], output: &[u8]) {
        m.out().extend_from_slice(input);
        if !output.is_empty() {
            m.align(8);
            m.out().extend_from_slice(output);
        }
    }
}
