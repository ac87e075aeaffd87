//! The client's side of NetrShareEnum.

use super::Win32;
use crate::cursor::{Field, Reader};
use crate::rpc::ndr::{NdrReader, NdrWriter};
use crate::{Utf16Le, WireError};

/// Maximum number of shares in one response.
pub const MAX_SHARES: usize = 65_536;

/// Appends the request stub of NetrShareEnum, without a size limit.
///
/// # Errors
/// `Unencodable`.
pub fn put_share_enum_request(
    out: &mut Vec<u8>,
    server: &str,
    level: u32,
    resume_handle: Option<u32>,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.unique_string(Some(server))?;
    w.u32(level);
    w.u32(level);
    w.pointer(true);
    w.u32(0);
    w.pointer(false);
    w.u32(u32::MAX);
    w.pointer(resume_handle.is_some());
    if let Some(resume) = resume_handle {
        w.u32(resume);
    }
    Ok(())
}

/// A share in a response of level 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareEntry<'a> {
    /// Name.
    pub name: Utf16Le<'a>,
    /// One of [`share_type`].
    pub share_type: u32,
    /// Remark.
    pub remark: Utf16Le<'a>,
}

/// A NetrShareEnum response of level 1. It borrows the array; the strings follow the array.
#[derive(Debug, Clone)]
pub struct ShareEnumResponse<'a> {
    entries: &'a [u8],
    strings: NdrReader<'a>,
    /// Number of existing shares.
    pub total_entries: u32,
    /// The resume handle.
    pub resume_handle: Option<u32>,
    /// SUCCESS, MORE_DATA, or the error.
    pub status: Win32,
}

/// Length of an entry in bytes: pointer, type, pointer.
const ENTRY_1_LEN: usize = 12;

impl<'a> ShareEnumResponse<'a> {
    /// Decodes a stub.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(stub: &'a [u8]) -> Result<Self, WireError> {
        let mut r = NdrReader::new(stub);
        if r.u32()? != 1 || r.u32()? != 1 {
            return Err(WireError::malformed("SHARE_ENUM_STRUCT level"));
        }
        let mut entries: &[u8] = &[];
        if r.pointer()? {
            let count = r.u32()? as usize;
            if r.pointer()? {
                if r.u32()? as usize != count {
                    return Err(WireError::malformed("SHARE_INFO_1 count"));
                }
                if count > MAX_SHARES {
                    return Err(WireError::TooLarge { what: "shares", len: count, max: MAX_SHARES });
                }
                entries = r.take(count * ENTRY_1_LEN)?;
            }
        }
        let mut this =
            Self { entries, strings: r, total_entries: 0, resume_handle: None, status: Win32::SUCCESS };
        let mut shares = this.shares();
        shares.by_ref().try_for_each(|share| share.map(|_| ()))?;
        let mut r = shares.strings;
        this.total_entries = r.u32()?;
        this.resume_handle = if r.pointer()? { Some(r.u32()?) } else { None };
        this.status = Win32(r.u32()?);
        Ok(this)
    }

    /// The shares.
    pub fn shares(&self) -> ShareEntries<'a> {
        ShareEntries { entries: self.entries, strings: self.strings.clone() }
    }
}

/// Iterates over the shares of a response; ends after the first error.
#[derive(Debug, Clone)]
pub struct ShareEntries<'a> {
    entries: &'a [u8],
    strings: NdrReader<'a>,
}

impl<'a> Iterator for ShareEntries<'a> {
    type Item = Result<ShareEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (entry, rest) = self.entries.split_at_checked(ENTRY_1_LEN)?;
        self.entries = rest;
        let mut step = || {
            let mut r = Reader::new(entry, "SHARE_INFO_1");
            let (name, share_type, remark): (u32, u32, u32) = (r.get()?, u32::get(&mut r)?, r.get()?);
            let mut string =
                |referent| if referent == 0 { Ok(Utf16Le::EMPTY) } else { self.strings.string() };
            Ok(ShareEntry { name: string(name)?, share_type, remark: string(remark)? })
        };
        let item = step();
        if item.is_err() {
            self.entries = &[];
        }
        Some(item)
    }
}
