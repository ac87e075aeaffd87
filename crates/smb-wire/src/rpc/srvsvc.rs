//! srvsvc (MS-SRVS): NetrShareEnum, NetrShareGetInfo, NetrServerGetInfo.

use super::ndr::{NdrReader, NdrWriter};
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::open_enum;
use crate::{Utf16Le, WireError};

/// NetrShareEnum (MS-SRVS 3.1.4.8).
pub const OP_SHARE_ENUM: u16 = 15;
/// NetrShareGetInfo (MS-SRVS 3.1.4.10).
pub const OP_SHARE_GET_INFO: u16 = 16;
/// NetrServerGetInfo (MS-SRVS 3.1.4.17).
pub const OP_SERVER_GET_INFO: u16 = 21;
/// NetrShareEnumSticky (MS-SRVS 3.1.4.9): as NetrShareEnum.
pub const OP_SHARE_ENUM_STICKY: u16 = 36;
/// Shares in one answer at most, for readers.
pub const MAX_SHARES: usize = 65_536;

open_enum! {
    /// Win32 error codes that these calls return.
    pub struct Win32(u32) {
        /// Success.
        SUCCESS = 0,
        /// Access denied.
        ACCESS_DENIED = 5,
        /// Not supported.
        NOT_SUPPORTED = 50,
        /// Invalid parameter.
        INVALID_PARAMETER = 87,
        /// The level is not known.
        INVALID_LEVEL = 124,
        /// More entries follow.
        MORE_DATA = 234,
        /// There is no such share.
        NERR_NET_NAME_NOT_FOUND = 2310,
    }
}

/// What kind of share: STYPE_ values (MS-SRVS 2.2.2.4).
pub mod share_type {
    /// Files.
    pub const DISK: u32 = 0;
    /// Printer.
    pub const PRINT: u32 = 1;
    /// Named pipes.
    pub const IPC: u32 = 3;
    /// With one of the others: administrative, hidden by clients.
    pub const SPECIAL: u32 = 0x8000_0000;
}

/// A request, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// NetrShareEnum, also the sticky one.
    ShareEnum {
        /// 0, 1, 2, 501, 502.
        level: u32,
        /// Bytes of the answer, about; all ones for everything.
        preferred_maximum_length: u32,
        /// Where to go on.
        resume_handle: Option<u32>,
    },
    /// NetrShareGetInfo.
    ShareGetInfo {
        /// The share.
        name: Utf16Le<'a>,
        /// 0, 1, 2, 501, 502, 1005.
        level: u32,
    },
    /// NetrServerGetInfo.
    ServerGetInfo {
        /// 100, 101, 102.
        level: u32,
    },
    /// An operation that is not here; answered with a fault.
    Unknown(u16),
}

impl<'a> Request<'a> {
    /// Decodes a stub. The server's name in it is not looked at.
    ///
    /// # Errors
    /// What is wrong with the peer's bytes: answered with [`super::pdu::FaultStatus::BAD_STUB_DATA`].
    pub fn decode(opnum: u16, stub: &'a [u8]) -> Result<Self, WireError> {
        let mut r = NdrReader::new(stub);
        match opnum {
            OP_SHARE_ENUM | OP_SHARE_ENUM_STICKY => {
                r.unique_string()?;
                let (level, switch) = (r.u32()?, r.u32()?);
                if level != switch {
                    return Err(WireError::malformed("SHARE_ENUM_STRUCT level"));
                }
                if r.pointer()? {
                    // The container of a request is empty: no client has shares to tell.
                    let (entries, buffer) = (r.u32()?, r.pointer()?);
                    if entries != 0 || (buffer && r.u32()? != 0) {
                        return Err(WireError::malformed("SHARE_INFO container in a request"));
                    }
                }
                let preferred_maximum_length = r.u32()?;
                let resume_handle = if r.pointer()? { Some(r.u32()?) } else { None };
                Ok(Self::ShareEnum { level, preferred_maximum_length, resume_handle })
            }
            OP_SHARE_GET_INFO => {
                r.unique_string()?;
                let name = r.string()?;
                Ok(Self::ShareGetInfo { name, level: r.u32()? })
            }
            OP_SERVER_GET_INFO => {
                r.unique_string()?;
                Ok(Self::ServerGetInfo { level: r.u32()? })
            }
            _ => Ok(Self::Unknown(opnum)),
        }
    }
}

/// A share, as the levels show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareInfo<'a> {
    /// Name.
    pub name: &'a str,
    /// One of [`share_type`].
    pub share_type: u32,
    /// Remark.
    pub remark: &'a str,
    /// Connections allowed; all ones for no limit.
    pub max_uses: u32,
    /// Connections.
    pub current_uses: u32,
    /// Path on the server; empty where that is nobody's business.
    pub path: &'a str,
    /// Flags of levels 501 and 1005: the low half of [`crate::msg::ShareFlags`].
    pub flags: u32,
    /// Security descriptor, self-relative, of level 502.
    pub security_descriptor: Option<&'a [u8]>,
}

/// Whether NetrShareEnum has the level.
pub const fn is_share_enum_level(level: u32) -> bool {
    matches!(level, 0 | 1 | 2 | 501 | 502)
}

impl ShareInfo<'_> {
    /// The part of the structure that lies in the array.
    fn put_fixed(&self, w: &mut NdrWriter<'_>, level: u32) {
        if level == 1005 {
            w.u32(self.flags);
            return;
        }
        w.pointer(true);
        if level == 0 {
            return;
        }
        w.u32(self.share_type);
        w.pointer(true);
        match level {
            501 => w.u32(self.flags),
            2 | 502 => {
                w.u32(0); // permissions: of share-level security, which there is no more
                w.u32(self.max_uses);
                w.u32(self.current_uses);
                w.pointer(true);
                w.pointer(false); // password
            }
            _ => {}
        }
        if level == 502 {
            w.u32(self.security_descriptor.map_or(0, |sd| sd.len() as u32));
            w.pointer(self.security_descriptor.is_some());
        }
    }

    /// What its pointers point to.
    fn put_deferred(&self, w: &mut NdrWriter<'_>, level: u32) -> Result<(), WireError> {
        if level == 1005 {
            return Ok(());
        }
        w.string(self.name)?;
        if level == 0 {
            return Ok(());
        }
        w.string(self.remark)?;
        if matches!(level, 2 | 502) {
            w.string(self.path)?;
        }
        match self.security_descriptor {
            Some(sd) if level == 502 => w.bytes(sd),
            _ => Ok(()),
        }
    }
}

/// Appends the stub of an answer to NetrShareEnum. A level that [`is_share_enum_level`] denies is answered with no
/// entries, whatever `shares` holds: pass [`Win32::INVALID_LEVEL`] as `status`.
///
/// # Errors
/// `Unencodable`.
pub fn put_share_enum(
    out: &mut Vec<u8>,
    level: u32,
    shares: &[ShareInfo<'_>],
    total_entries: u32,
    resume_handle: Option<u32>,
    status: Win32,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.u32(level);
    w.u32(level);
    let known = is_share_enum_level(level);
    w.pointer(known);
    if known {
        let count = fit_u32(shares.len(), "shares")?;
        w.u32(count);
        w.pointer(true);
        w.u32(count);
        shares.iter().for_each(|share| share.put_fixed(&mut w, level));
        shares.iter().try_for_each(|share| share.put_deferred(&mut w, level))?;
    }
    w.u32(total_entries);
    w.pointer(resume_handle.is_some());
    if let Some(resume) = resume_handle {
        w.u32(resume);
    }
    w.u32(status.0);
    Ok(())
}

/// Appends the stub of an answer to NetrShareGetInfo: the share, or the reason why there is none.
///
/// # Errors
/// `Unencodable`.
pub fn put_share_get_info(
    out: &mut Vec<u8>,
    level: u32,
    share: Result<&ShareInfo<'_>, Win32>,
) -> Result<(), WireError> {
    let share = share.and_then(|share| {
        if level == 1005 || is_share_enum_level(level) { Ok(share) } else { Err(Win32::INVALID_LEVEL) }
    });
    let mut w = NdrWriter::new(out);
    w.u32(level);
    w.pointer(share.is_ok());
    if let Ok(share) = share {
        share.put_fixed(&mut w, level);
        share.put_deferred(&mut w, level)?;
    }
    w.u32(share.err().unwrap_or(Win32::SUCCESS).0);
    Ok(())
}

/// A server, as the levels of NetrServerGetInfo show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerInfo<'a> {
    /// Name.
    pub name: &'a str,
    /// Comment.
    pub comment: &'a str,
    /// Version, major.
    pub version_major: u32,
    /// Version, minor.
    pub version_minor: u32,
    /// SV_TYPE_ bits: 1 workstation, 2 server, 0x1000 NT, 0x8000 member.
    pub server_type: u32,
}

/// PLATFORM_ID_NT (MS-SRVS 2.2.2.6).
const PLATFORM_ID_NT: u32 = 500;

/// Appends the stub of an answer to NetrServerGetInfo; a level other than 100, 101 and 102 is refused in it.
///
/// # Errors
/// `Unencodable`.
pub fn put_server_get_info(out: &mut Vec<u8>, level: u32, server: &ServerInfo<'_>) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.u32(level);
    let known = matches!(level, 100..=102);
    w.pointer(known);
    if !known {
        w.u32(Win32::INVALID_LEVEL.0);
        return Ok(());
    }
    w.u32(PLATFORM_ID_NT);
    w.pointer(true);
    if level >= 101 {
        w.u32(server.version_major);
        w.u32(server.version_minor);
        w.u32(server.server_type);
        w.pointer(true);
    }
    if level == 102 {
        w.u32(u32::MAX); // users: no limit
        w.u32(15); // minutes until an idle session is closed
        w.u32(0); // not hidden
        w.u32(240); // seconds between announcements, their variation in ms, licences
        w.u32(3000);
        w.u32(0);
        w.pointer(true);
    }
    w.string(server.name)?;
    if level >= 101 {
        w.string(server.comment)?;
    }
    if level == 102 {
        w.string("c:\\")?; // where home directories are: asked for by nobody
    }
    w.u32(Win32::SUCCESS.0);
    Ok(())
}

/// Appends the stub of a request of NetrShareEnum for everything.
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

/// A share of an answer of level 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareEntry<'a> {
    /// Name.
    pub name: Utf16Le<'a>,
    /// One of [`share_type`].
    pub share_type: u32,
    /// Remark.
    pub remark: Utf16Le<'a>,
}

/// An answer of level 1 to NetrShareEnum. The array is borrowed, its strings are behind it.
#[derive(Debug, Clone)]
pub struct ShareEnumResponse<'a> {
    entries: &'a [u8],
    strings: NdrReader<'a>,
    /// Shares that there are.
    pub total_entries: u32,
    /// Where to go on.
    pub resume_handle: Option<u32>,
    /// SUCCESS, MORE_DATA, or why there is nothing.
    pub status: Win32,
}

/// Pointer, type, pointer.
const ENTRY_1_LEN: usize = 12;

impl<'a> ShareEnumResponse<'a> {
    /// Decodes a stub.
    ///
    /// # Errors
    /// What is wrong with the peer's bytes.
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

/// Walks the shares of an answer; ends after the first error.
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
