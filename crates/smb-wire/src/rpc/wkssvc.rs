//! wkssvc (MS-WKST): NetrWkstaGetInfo.

use super::ndr::{NdrReader, NdrWriter};
use super::srvsvc::Win32;
use crate::WireError;

/// NetrWkstaGetInfo (MS-WKST 3.2.4.1).
pub const OP_WKSTA_GET_INFO: u16 = 0;

/// A request, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// NetrWkstaGetInfo.
    WkstaGetInfo {
        /// 100, 101, 102.
        level: u32,
    },
    /// An unimplemented operation; the server responds with a fault.
    Unknown(u16),
}

impl Request {
    /// Decodes a stub. The server's name in it is ignored.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(opnum: u16, stub: &[u8]) -> Result<Self, WireError> {
        if opnum != OP_WKSTA_GET_INFO {
            return Ok(Self::Unknown(opnum));
        }
        let mut r = NdrReader::new(stub);
        r.unique_string()?;
        Ok(Self::WkstaGetInfo { level: r.u32()? })
    }
}

/// A machine, for the levels of NetrWkstaGetInfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkstationInfo<'a> {
    /// Name.
    pub computer_name: &'a str,
    /// Domain or workgroup.
    pub domain: &'a str,
    /// Version, major.
    pub version_major: u32,
    /// Version, minor.
    pub version_minor: u32,
}

/// PLATFORM_ID_NT.
const PLATFORM_ID_NT: u32 = 500;

/// Appends the response stub of NetrWkstaGetInfo; it refuses levels other than 100, 101 and 102.
///
/// # Errors
/// `Unencodable`.
pub fn put_wksta_get_info(
    out: &mut Vec<u8>,
    level: u32,
    info: &WorkstationInfo<'_>,
) -> Result<(), WireError> {
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
    w.pointer(true);
    w.u32(info.version_major);
    w.u32(info.version_minor);
    if level >= 101 {
        w.pointer(true);
    }
    if level == 102 {
        w.u32(0); // logged-on users
    }
    w.string(info.computer_name)?;
    w.string(info.domain)?;
    if level >= 101 {
        w.string("")?; // LAN root
    }
    w.u32(Win32::SUCCESS.0);
    Ok(())
}
