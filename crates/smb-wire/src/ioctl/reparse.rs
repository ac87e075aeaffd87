//! REPARSE_DATA_BUFFER and REPARSE_GUID_DATA_BUFFER (MS-FSCC 2.1.2).

use crate::cursor::{Field, Reader, fit_u16, slice};
use crate::macros::open_enum;
use crate::{Guid, Utf16Le, WireError};

open_enum! {
    /// Reparse tag.
    pub struct ReparseTag(u32) {
        /// Mount point (junction).
        MOUNT_POINT = 0xA000_0003,
        /// Symbolic link.
        SYMLINK = 0xA000_000C,
        /// Network file system: special files of Unix.
        NFS = 0x8000_0014,
        /// Symbolic link of the Linux subsystem.
        LX_SYMLINK = 0xA000_001D,
        /// Unix socket.
        AF_UNIX = 0x8000_0023,
        /// FIFO of the Linux subsystem.
        LX_FIFO = 0x8000_0024,
        /// Character device of the Linux subsystem.
        LX_CHR = 0x8000_0025,
        /// Block device of the Linux subsystem.
        LX_BLK = 0x8000_0026,
    }
}

impl ReparseTag {
    /// Whether Microsoft owns the tag: the data of other tags starts with their owner's GUID (MS-FSCC 2.1.2.1).
    pub const fn is_microsoft(self) -> bool {
        self.0 >> 31 == 1
    }

    /// Whether the tag is reserved, so that no reparse point may use it: 0, 1 and 2 (MS-FSCC 2.1.2.1).
    pub const fn is_reserved(self) -> bool {
        self.0 <= 2
    }
}

/// REPARSE_DATA_BUFFER, or REPARSE_GUID_DATA_BUFFER if the tag is not owned by Microsoft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReparseBuffer<'a> {
    /// Tag.
    pub tag: ReparseTag,
    /// GUID of the tag's owner; ignored for tags of Microsoft.
    pub guid: Guid,
    /// Data; its format depends on the tag.
    pub data: &'a [u8],
}

impl<'a> ReparseBuffer<'a> {
    /// Decodes the structure.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "REPARSE_DATA_BUFFER");
        let tag = r.get()?;
        let len: u16 = r.get()?;
        r.skip(2)?;
        let guid = if ReparseTag::is_microsoft(tag) { Guid::default() } else { r.get()? };
        Ok(Self { tag, guid, data: r.take(len.into())? })
    }

    /// Encoded length in bytes.
    pub const fn len(&self) -> usize {
        ReparseBuffer::fixed_len(self.tag) + self.data.len()
    }

    /// Length of the part before the data, in bytes.
    pub const fn fixed_len(tag: ReparseTag) -> usize {
        if tag.is_microsoft() { 8 } else { 24 }
    }

    /// Always false: there is a fixed part. The lint for [`ReparseBuffer::len`] requires this function.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Appends the structure to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let len = fit_u16(self.data.len(), "ReparseDataLength")?;
        self.tag.put(out);
        len.put(out);
        0u16.put(out);
        if !self.tag.is_microsoft() {
            self.guid.put(out);
        }
        out.extend_from_slice(self.data);
        Ok(())
    }
}

/// The data of a symbolic link (MS-FSCC 2.1.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SymlinkReparse<'a> {
    /// The target.
    pub substitute_name: Utf16Le<'a>,
    /// The target as shown to users.
    pub print_name: Utf16Le<'a>,
    /// Whether the target is relative to the link's directory.
    pub relative: bool,
}

impl<'a> SymlinkReparse<'a> {
    /// Decodes the data of a [`ReparseBuffer`] with tag SYMLINK.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(data: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "symbolic link reparse data";
        let mut r = Reader::new(data, WHAT);
        let (substitute_at, substitute_len): (u16, u16) = (r.get()?, r.get()?);
        let (print_at, print_len): (u16, u16) = (r.get()?, r.get()?);
        let flags: u32 = r.get()?;
        let names = r.rest();
        let name = |at: u16, len: u16| Utf16Le::new(slice(names, at.into(), len.into(), WHAT)?, WHAT);
        Ok(Self {
            substitute_name: name(substitute_at, substitute_len)?,
            print_name: name(print_at, print_len)?,
            relative: flags & 1 != 0,
        })
    }

    /// Encoded length in bytes.
    pub(crate) const fn len(&self) -> usize {
        12 + self.substitute_name.len() + self.print_name.len()
    }

    /// Appends the data to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (substitute, print) = (self.substitute_name.len(), self.print_name.len());
        fit_u16(self.len(), "symbolic link names")?;
        0u16.put(out);
        (substitute as u16).put(out);
        (substitute as u16).put(out);
        (print as u16).put(out);
        u32::from(self.relative).put(out);
        out.extend_from_slice(self.substitute_name.as_bytes());
        out.extend_from_slice(self.print_name.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Utf16Buf;

    // MS-FSCC 2.1.2.2, 2.1.2.3
    #[test]
    fn golden() {
        let mut out = Vec::new();
        let fifo = ReparseBuffer { tag: ReparseTag::NFS, data: b"FIFO\0\0\0\0", ..Default::default() };
        fifo.encode(&mut out).unwrap();
        assert_eq!(out, b"\x14\0\0\x80\x08\0\0\0FIFO\0\0\0\0");
        assert_eq!((ReparseBuffer::decode(&out), fifo.len()), (Ok(fifo), 16));
        let owned = ReparseBuffer { tag: ReparseTag(0x1234), guid: Guid([9; 16]), data: b"x" };
        out.clear();
        owned.encode(&mut out).unwrap();
        assert_eq!(out, b"\x34\x12\0\0\x01\0\0\0\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\tx");
        assert_eq!((ReparseBuffer::decode(&out), owned.len()), (Ok(owned), 25));
        for short in 0..25 {
            assert!(ReparseBuffer::decode(&out[..short]).is_err(), "{short} bytes");
        }
    }

    // MS-FSCC 2.1.2.4: the names may be in either order.
    #[test]
    fn names_of_a_link() {
        let (target, shown) = (Utf16Buf::from("a\\b"), Utf16Buf::from("c"));
        let link = SymlinkReparse {
            substitute_name: target.as_utf16(),
            print_name: shown.as_utf16(),
            relative: true,
        };
        let mut out = Vec::new();
        link.encode(&mut out).unwrap();
        assert_eq!(out, b"\0\0\x06\0\x06\0\x02\0\x01\0\0\0a\0\\\0b\0c\0");
        assert_eq!(SymlinkReparse::decode(&out), Ok(link));
        let swapped = b"\x02\0\x06\0\0\0\x02\0\x01\0\0\0c\0a\0\\\0b\0";
        assert_eq!(SymlinkReparse::decode(swapped), Ok(link));
        let outside = b"\x02\0\x08\0\0\0\x02\0\x01\0\0\0c\0a\0\\\0b\0";
        assert!(SymlinkReparse::decode(outside).is_err());
    }
}
