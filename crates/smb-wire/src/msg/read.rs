//! READ (MS-SMB2 2.2.19, 2.2.20). The payload is not part of the structures: see [`ReadResponse`].

use super::{part16, put_request_part};
use crate::cursor::{Field, Reader};
use crate::macros::{flag_set, open_enum};
use crate::{Decode, Encode, FileId, HEADER_LEN, MessageBuilder, WireError};

open_enum! {
    /// How the payload of a READ or WRITE is transferred.
    pub struct Channel(u32) {
        /// In the message.
        NONE = 0,
        /// By RDMA; the channel information is an array of buffer descriptors.
        RDMA_V1 = 1,
        /// By RDMA; the server invalidates the first descriptor's token with its response.
        RDMA_V1_INVALIDATE = 2,
        /// By RDMA, transformed (MS-SMB2 2.2.43).
        RDMA_TRANSFORM = 3,
    }
}

flag_set! {
    /// Flags of a READ request.
    pub struct ReadFlags: u8 {
        /// Read from the device, not from a cache (SMB 3.0.2 on).
        const UNBUFFERED = 1;
        /// The response may be compressed (SMB 3.1.1).
        const REQUEST_COMPRESSED = 2;
    }
}

/// READ request (MS-SMB2 2.2.19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadRequest<'a> {
    /// Offset that the client prefers for the data in the response, in bytes from the header.
    pub padding: u8,
    /// Flags.
    pub flags: ReadFlags,
    /// Requested length in bytes.
    pub length: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The open.
    pub file_id: FileId,
    /// The read fails if fewer bytes than this are available.
    pub minimum_count: u32,
    /// How the payload is transferred.
    pub channel: Channel,
    /// Number of bytes that later reads will request; a hint.
    pub remaining_bytes: u32,
    /// Buffer descriptors ([`crate::smbd`]) if `channel` is an RDMA channel; otherwise empty.
    pub channel_info: &'a [u8],
}

impl<'a> Decode<'a> for ReadRequest<'a> {
    #[inline]
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "READ request", 49)?;
        let padding = r.get()?;
        let flags = r.get()?;
        let length = r.get()?;
        let offset = r.get()?;
        let file_id = r.get()?;
        let minimum_count = r.get()?;
        let channel = r.get()?;
        let remaining_bytes = r.get()?;
        let (at, len): (u16, u16) = (r.get()?, r.get()?);
        let channel_info = channel_info(&r, channel, at, len, "READ channel information")?;
        Ok(Self {
            padding,
            flags,
            length,
            offset,
            file_id,
            minimum_count,
            channel,
            remaining_bytes,
            channel_info,
        })
    }
}

/// MS-SMB2 2.2.19, 2.2.21: the receiver ignores the two fields if there is no channel.
pub(super) fn channel_info<'a>(
    r: &Reader<'a>,
    channel: Channel,
    offset: u16,
    len: u16,
    what: &'static str,
) -> Result<&'a [u8], WireError> {
    if channel == Channel::NONE { Ok(&[]) } else { r.range(offset.into(), len.into(), what) }
}

impl Encode for ReadRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let (at, len) = match self.channel_info {
            [] => (0, 0),
            info => part16(m.offset() + 48, info, "READ channel information")?,
        };
        let out = m.out();
        49u16.put(out);
        self.padding.put(out);
        self.flags.put(out);
        self.length.put(out);
        self.offset.put(out);
        self.file_id.put(out);
        self.minimum_count.put(out);
        self.channel.put(out);
        self.remaining_bytes.put(out);
        at.put(out);
        len.put(out);
        put_request_part(m, self.channel_info);
        Ok(())
    }
}

flag_set! {
    /// Flags of a READ response (SMB 3.1.1; reserved before).
    pub struct ReadResponseFlags: u32 {
        /// The data was transformed and transferred by RDMA.
        const RDMA_TRANSFORM = 1;
    }
}

/// The head of a READ response (MS-SMB2 2.2.20): all bytes before the payload.
///
/// Encoding writes [`ReadResponse::HEAD_LEN`] bytes, including the header. The caller adds `data_length` bytes of
/// payload: it appends them to the builder's buffer or sends them after it. Decoding needs only the head;
/// [`ReadResponse::data`] then returns the payload if it is part of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadResponse {
    /// Offset of the payload from the header, in bytes; meaningless if `data_length` is 0.
    pub data_offset: u8,
    /// Length of the payload in the message, in bytes.
    pub data_length: u32,
    /// Length of the payload transferred by RDMA, in bytes.
    pub data_remaining: u32,
    /// Flags.
    pub flags: ReadResponseFlags,
}

impl ReadResponse {
    /// Length of header and fixed part in bytes.
    pub const HEAD_LEN: usize = HEADER_LEN + 16;

    /// The head for `data_length` bytes of payload that follow immediately.
    pub const fn inline(data_length: u32) -> Self {
        Self {
            data_offset: Self::HEAD_LEN as u8,
            data_length,
            data_remaining: 0,
            flags: ReadResponseFlags::empty(),
        }
    }

    /// The response if `length` bytes were transferred by RDMA (MS-SMB2 3.3.5.12).
    pub const fn rdma(length: u32) -> Self {
        Self {
            data_offset: Self::HEAD_LEN as u8,
            data_length: 0,
            data_remaining: length,
            flags: ReadResponseFlags::empty(),
        }
    }

    /// Returns the payload in `msg`.
    ///
    /// # Errors
    /// `Truncated` or `Malformed` if it is not within `msg`.
    pub fn data<'a>(&self, msg: &'a [u8]) -> Result<&'a [u8], WireError> {
        super::write::payload(msg, self.data_offset.into(), self.data_length, Self::HEAD_LEN, "READ data")
    }
}

impl<'a> Decode<'a> for ReadResponse {
    #[inline]
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "READ response", 17)?;
        let data_offset = r.get()?;
        r.skip(1)?;
        Ok(Self { data_offset, data_length: r.get()?, data_remaining: r.get()?, flags: r.get()? })
    }
}

impl Encode for ReadResponse {
    #[inline]
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let out = m.out();
        17u16.put(out);
        self.data_offset.put(out);
        0u8.put(out);
        self.data_length.put(out);
        self.data_remaining.put(out);
        self.flags.put(out);
        Ok(())
    }
}
