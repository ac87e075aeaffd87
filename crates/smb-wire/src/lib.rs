#![doc = include_str!("../README.md")]

mod builder;
pub mod compound;
pub mod compression;
pub mod context;
mod cursor;
mod error;
mod filetime;
pub mod frame;
pub mod fscc;
pub mod header;
mod ids;
pub mod ioctl;
mod macros;
pub mod msg;
pub mod ntstatus;
mod rights;
pub mod rpc;
pub mod security;
pub mod smb1;
pub mod smbd;
pub mod transform;
mod utf16;

pub use builder::{MessageBuilder, MessageRanges, chain};
pub use error::WireError;
pub use filetime::FileTime;
pub use header::{Command, HEADER_LEN, Header, HeaderFlags};
pub use ids::{FileId, Guid};
pub use ntstatus::NtStatus;
pub use rights::{AccessMask, FileAttributes, ShareAccess};
pub use utf16::{Utf16Buf, Utf16Le, len_utf16, put_str};

/// A message body that can be decoded.
pub trait Decode<'a>: Sized {
    /// Decodes the body of `msg`, one message of a chain including its 64-byte header. The header is skipped: the
    /// caller has already decoded it.
    ///
    /// # Errors
    /// Malformed input from the peer. Never panics and never allocates.
    fn decode(msg: &'a [u8]) -> Result<Self, WireError>;
}

/// A message body that can be encoded after a header.
pub trait Encode {
    /// Appends the body to the message that was started in `m`.
    ///
    /// # Errors
    /// [`WireError::Unencodable`] if a variable part is too long for its length field. Bytes appended before the
    /// error remain; [`MessageBuilder::push`] removes them.
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError>;
}
