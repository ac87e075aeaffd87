//! WRITE (MS-SMB2 2.2.21, 2.2.22). The payload is not part of the structures: see [`WriteRequest`].

use super::Channel;
use super::read::channel_info;
use crate::cursor::{Field, Reader, fit_u16, slice, zeros};
use crate::macros::flag_set;
use crate::{Decode, Encode, FileId, HEADER_LEN, MessageBuilder, WireError};

flag_set! {
    /// Flags of a WRITE request.
    pub struct WriteFlags: u32 {
        /// Write through to stable storage (SMB 2.1 on).
        const WRITE_THROUGH = 1;
        /// The server must not cache (SMB 3.0.2 on).
        const UNBUFFERED = 2;
    }
}

/// The head of a WRITE request (MS-SMB2 2.2.21): all bytes before the payload.
///
/// Decoding needs the first [`WriteRequest::HEAD_LEN`] bytes of the message, and the channel information if there
/// is a channel; the payload may be in another buffer. Encoding writes the head and the channel information. The
/// caller adds `length` bytes at `data_offset`, which usually directly follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteRequest<'a> {
    /// Offset of the payload from the header, in bytes.
    pub data_offset: u16,
    /// Length of the payload in the message, in bytes; 0 if it is transferred by RDMA.
    pub length: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The open.
    pub file_id: FileId,
    /// How the payload is transferred.
    pub channel: Channel,
    /// Number of bytes transferred by RDMA; a hint if there is no channel.
    pub remaining_bytes: u32,
    /// Buffer descriptors ([`crate::smbd`]) if `channel` is an RDMA channel; otherwise empty.
    pub channel_info: &'a [u8],
    /// Flags.
    pub flags: WriteFlags,
}

impl WriteRequest<'_> {
    /// Length of header and fixed part in bytes.
    pub const HEAD_LEN: usize = HEADER_LEN + 48;

    /// Returns the payload in `msg`.
    ///
    /// # Errors
    /// `Truncated` or `Malformed` if it is not within `msg`.
    pub fn data<'m>(&self, msg: &'m [u8]) -> Result<&'m [u8], WireError> {
        payload(msg, self.data_offset, self.length, Self::HEAD_LEN, "WRITE data")
    }
}

/// Returns the payload at `offset`, which must not be before `head`.
pub(super) fn payload<'m>(
    msg: &'m [u8],
    offset: u16,
    length: u32,
    head: usize,
    what: &'static str,
) -> Result<&'m [u8], WireError> {
    if length == 0 {
        return Ok(&[]);
    }
    if usize::from(offset) < head {
        return Err(WireError::Malformed { what });
    }
    slice(msg, offset.into(), length as usize, what)
}

impl<'a> Decode<'a> for WriteRequest<'a> {
    #[inline]
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "WRITE request", 49)?;
        let data_offset = r.get()?;
        let length = r.get()?;
        let offset = r.get()?;
        let file_id = r.get()?;
        let channel = r.get()?;
        let remaining_bytes = r.get()?;
        let (at, len): (u16, u16) = (r.get()?, r.get()?);
        let flags = r.get()?;
        let channel_info = channel_info(&r, channel, at, len, "WRITE channel information")?;
        Ok(Self { data_offset, length, offset, file_id, channel, remaining_bytes, channel_info, flags })
    }
}

impl Encode for WriteRequest<'_> {
    #[inline]
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let info_at = m.offset() + 48;
        let info_len = fit_u16(self.channel_info.len(), "WRITE channel information")?;
        let info_offset = if info_len == 0 { 0 } else { fit_u16(info_at, "WRITE channel information")? };
        let gap = usize::from(self.data_offset).saturating_sub(info_at + usize::from(info_len));
        let out = m.out();
        49u16.put(out);
        self.data_offset.put(out);
        self.length.put(out);
        self.offset.put(out);
        self.file_id.put(out);
        self.channel.put(out);
        self.remaining_bytes.put(out);
        info_offset.put(out);
        info_len.put(out);
        self.flags.put(out);
        out.extend_from_slice(self.channel_info);
        if self.length != 0 {
            zeros(out, gap);
        } else if info_len == 0 {
            // An odd StructureSize implies at least one byte of variable part.
            out.push(0);
        }
        Ok(())
    }
}

/// WRITE response (MS-SMB2 2.2.22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteResponse {
    /// Number of bytes written.
    pub count: u32,
    /// Reserved by the specification.
    pub remaining: u32,
}

impl<'a> Decode<'a> for WriteResponse {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "WRITE response", 17)?;
        r.skip(2)?;
        Ok(Self { count: r.get()?, remaining: r.get()? })
    }
}

impl Encode for WriteResponse {
    #[inline]
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let out = m.out();
        17u16.put(out);
        0u16.put(out);
        self.count.put(out);
        self.remaining.put(out);
        0u32.put(out); // channel information: offset and length, unused
        Ok(())
    }
}
