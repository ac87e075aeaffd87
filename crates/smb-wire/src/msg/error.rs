//! ERROR response (MS-SMB2 2.2.2) with its contexts (2.2.2.1) and error data (2.2.2.2).

use crate::cursor::{Field, Reader, fit_u16, fit_u32, pad};
use crate::ioctl::{ReparseTag, SymlinkReparse};
use crate::macros::open_enum;
use crate::{Decode, Encode, MessageBuilder, WireError};

open_enum! {
    /// The type of an error context (SMB 3.1.1).
    pub struct ErrorId(u32) {
        /// The error data that the status defines: a symbolic link, or the required buffer size.
        DEFAULT = 0,
        /// A share redirect.
        SHARE_REDIRECT = 0x7264_5253,
    }
}

/// ERROR response (MS-SMB2 2.2.2).
///
/// Before SMB 3.1.1, or if `context_count` is 0, `data` is the error data itself. Otherwise it is a list of
/// contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorResponse<'a> {
    /// Number of error contexts in `data`.
    pub context_count: u8,
    /// Error data.
    pub data: &'a [u8],
}

impl<'a> ErrorResponse<'a> {
    /// A response without data, the usual case.
    pub const EMPTY: ErrorResponse<'static> = ErrorResponse { context_count: 0, data: &[] };

    /// The contexts in `data`; none if `context_count` is 0.
    pub fn contexts(&self) -> ErrorContexts<'a> {
        ErrorContexts { bytes: self.data, left: self.context_count }
    }
}

impl<'a> Decode<'a> for ErrorResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "ERROR response", 9)?;
        let context_count = r.get()?;
        r.skip(1)?;
        let len: u32 = r.get()?;
        let data = r.take(len as usize)?;
        Ok(Self { context_count, data })
    }
}

impl Encode for ErrorResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let len = fit_u32(self.data.len(), "error data")?;
        let out = m.out();
        9u16.put(out);
        self.context_count.put(out);
        0u8.put(out);
        len.put(out);
        // MS-SMB2 2.2.2: empty error data is encoded as one byte.
        if self.data.is_empty() {
            out.push(0);
        } else {
            out.extend_from_slice(self.data);
        }
        Ok(())
    }
}

/// One error context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawErrorContext<'a> {
    /// Its identifier.
    pub id: ErrorId,
    /// Its data.
    pub data: &'a [u8],
}

impl RawErrorContext<'_> {
    /// Appends the context to a list that starts at offset `start` of `out`, padded to 8 bytes.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>, start: usize) -> Result<(), WireError> {
        let len = fit_u32(self.data.len(), "error context")?;
        pad(out, start, 8);
        len.put(out);
        self.id.put(out);
        out.extend_from_slice(self.data);
        Ok(())
    }
}

/// Iterates over the contexts of an error response; ends after the first error.
#[derive(Debug, Clone)]
pub struct ErrorContexts<'a> {
    bytes: &'a [u8],
    left: u8,
}

impl<'a> Iterator for ErrorContexts<'a> {
    type Item = Result<RawErrorContext<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut r = Reader::new(self.bytes, "error context");
        let mut step = || {
            let len: u32 = r.get()?;
            let id = r.get()?;
            let data = r.take(len as usize)?;
            r.align(8);
            Ok(RawErrorContext { id, data })
        };
        let item = step();
        if item.is_ok() {
            self.bytes = r.rest();
        } else {
            self.left = 0;
        }
        Some(item)
    }
}

/// SYMBOLIC_LINK_ERROR_RESPONSE (MS-SMB2 2.2.2.2.1): the data of STATUS_STOPPED_ON_SYMLINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SymlinkError<'a> {
    /// Length in bytes of the part of the path after the link.
    pub unparsed_path_length: u16,
    /// The link's target.
    pub link: SymlinkReparse<'a>,
}

const SYMLINK_ERROR_TAG: u32 = 0x4C4D_5953;

impl<'a> SymlinkError<'a> {
    /// Decodes error data.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(data: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(data, "symbolic link error");
        r.skip(4)?; // SymLinkLength
        if r.get::<u32>()? != SYMLINK_ERROR_TAG || r.get::<ReparseTag>()? != ReparseTag::SYMLINK {
            return Err(WireError::malformed("symbolic link error tag"));
        }
        r.skip(2)?; // ReparseDataLength
        let unparsed_path_length = r.get()?;
        Ok(Self { unparsed_path_length, link: SymlinkReparse::decode(r.rest())? })
    }

    /// Appends the error data to `out`.
    ///
    /// # Errors
    /// `Unencodable` if the names are too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let data_len = fit_u16(self.link.len(), "symbolic link names")?;
        // SymLinkLength counts the bytes that follow it: two tags, two 16-bit fields, the data.
        (u32::from(data_len) + 12).put(out);
        SYMLINK_ERROR_TAG.put(out);
        ReparseTag::SYMLINK.put(out);
        data_len.put(out);
        self.unparsed_path_length.put(out);
        self.link.encode(out)
    }
}
