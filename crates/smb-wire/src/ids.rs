//! Identifiers: FileId, GUID.

use std::fmt;

use crate::WireError;
use crate::cursor::{Field, Reader};
use crate::macros::record;

record! {
    /// SMB2_FILEID (MS-SMB2 2.2.14.1).
    #[derive(Hash)]
    pub struct FileId [16] {
        /// Identifies a durable open after a reconnect.
        pub persistent: u64,
        /// Valid for one connection of the open.
        pub volatile: u64,
    }
}

impl FileId {
    /// In a related request: inherit the FileId. In an IOCTL: no open.
    pub const NONE: Self = Self { persistent: u64::MAX, volatile: u64::MAX };

    /// Whether this is [`FileId::NONE`].
    pub const fn is_none(self) -> bool {
        self.persistent == u64::MAX && self.volatile == u64::MAX
    }
}

/// A GUID as its sixteen wire bytes (MS-DTYP 2.3.4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.0;
        let a = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let (c, d) = (u16::from_le_bytes([b[4], b[5]]), u16::from_le_bytes([b[6], b[7]]));
        write!(f, "{a:08x}-{c:04x}-{d:04x}-{:02x}{:02x}-", b[8], b[9])?;
        b[10..].iter().try_for_each(|x| write!(f, "{x:02x}"))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Field for Guid {
    const SIZE: usize = 16;
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self(r.array()?))
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}
