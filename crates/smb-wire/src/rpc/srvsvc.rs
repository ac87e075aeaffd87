//! srvsvc (MS-SRVS): shares, sessions, opens, the server and its clock, names of resources. Read only: requests for
//! changes are refused.

mod client;
mod names;
mod server;
mod sessions;
mod shares;

pub use client::*;
pub use names::*;
pub use server::*;
pub use sessions::*;
pub use shares::*;

use super::ndr::NdrReader;
use crate::macros::open_enum;
use crate::{Utf16Le, WireError};

/// NetrConnectionEnum (MS-SRVS 3.1.4.1).
pub const OP_CONNECTION_ENUM: u16 = 8;
/// NetrFileEnum (MS-SRVS 3.1.4.2).
pub const OP_FILE_ENUM: u16 = 9;
/// NetrFileClose (MS-SRVS 3.1.4.4).
pub const OP_FILE_CLOSE: u16 = 11;
/// NetrSessionEnum (MS-SRVS 3.1.4.5).
pub const OP_SESSION_ENUM: u16 = 12;
/// NetrSessionDel (MS-SRVS 3.1.4.6).
pub const OP_SESSION_DEL: u16 = 13;
/// NetrShareAdd (MS-SRVS 3.1.4.7).
pub const OP_SHARE_ADD: u16 = 14;
/// NetrShareEnum (MS-SRVS 3.1.4.8).
pub const OP_SHARE_ENUM: u16 = 15;
/// NetrShareGetInfo (MS-SRVS 3.1.4.10).
pub const OP_SHARE_GET_INFO: u16 = 16;
/// NetrShareSetInfo (MS-SRVS 3.1.4.11).
pub const OP_SHARE_SET_INFO: u16 = 17;
/// NetrShareDel (MS-SRVS 3.1.4.12).
pub const OP_SHARE_DEL: u16 = 18;
/// NetrServerGetInfo (MS-SRVS 3.1.4.17).
pub const OP_SERVER_GET_INFO: u16 = 21;
/// NetrServerSetInfo (MS-SRVS 3.1.4.18).
pub const OP_SERVER_SET_INFO: u16 = 22;
/// NetrRemoteTOD (MS-SRVS 3.1.4.21).
pub const OP_REMOTE_TOD: u16 = 28;
/// NetprNameValidate (MS-SRVS 3.1.4.32).
pub const OP_NAME_VALIDATE: u16 = 33;
/// NetprNameCanonicalize (MS-SRVS 3.1.4.33).
pub const OP_NAME_CANONICALIZE: u16 = 34;
/// NetrShareEnumSticky (MS-SRVS 3.1.4.9): handled like NetrShareEnum.
pub const OP_SHARE_ENUM_STICKY: u16 = 36;

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
        /// The name is invalid.
        INVALID_NAME = 123,
        /// The level is unknown.
        INVALID_LEVEL = 124,
        /// More entries follow.
        MORE_DATA = 234,
        /// The buffer is too small.
        NERR_BUF_TOO_SMALL = 2123,
        /// No session belongs to the user.
        NERR_USER_NOT_FOUND = 2221,
        /// No session belongs to the client.
        NERR_CLIENT_NAME_NOT_FOUND = 2312,
        /// A computer name does not start with two backslashes.
        NERR_INVALID_COMPUTER = 2351,
        /// The share does not exist.
        NERR_NET_NAME_NOT_FOUND = 2310,
    }
}

/// The type of a share: STYPE_ values (MS-SRVS 2.2.2.4).
pub mod share_type {
    /// Files.
    pub const DISK: u32 = 0;
    /// Printer.
    pub const PRINT: u32 = 1;
    /// Named pipes.
    pub const IPC: u32 = 3;
    /// Flag in addition to a type: administrative; clients hide the share.
    pub const SPECIAL: u32 = 0x8000_0000;
}

/// Common fields of the enumerations of sessions, opens and tree connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumeration {
    /// The level.
    pub level: u32,
    /// Approximate length of the response in bytes; all ones for no limit.
    pub preferred_maximum_length: u32,
    /// The resume handle.
    pub resume_handle: Option<u32>,
}

/// A request, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// NetrShareEnum, also the sticky one.
    ShareEnum {
        /// 0, 1, 2, 501, 502, 503.
        level: u32,
        /// Approximate length of the response in bytes; all ones for no limit.
        preferred_maximum_length: u32,
        /// The resume handle.
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
    /// NetrSessionEnum.
    SessionEnum {
        /// Only sessions of this client, in the form `\\\\client`.
        client: Option<Utf16Le<'a>>,
        /// Only sessions of this user.
        user: Option<Utf16Le<'a>>,
        /// Levels 0, 1, 2, 10, 502.
        enumeration: Enumeration,
    },
    /// NetrFileEnum.
    FileEnum {
        /// Only opens below this path.
        base_path: Option<Utf16Le<'a>>,
        /// Only opens of this user.
        user: Option<Utf16Le<'a>>,
        /// Levels 2, 3.
        enumeration: Enumeration,
    },
    /// NetrConnectionEnum.
    ConnectionEnum {
        /// A share, or a client in the form `\\\\client`.
        qualifier: Option<Utf16Le<'a>>,
        /// Levels 0, 1.
        enumeration: Enumeration,
    },
    /// NetrRemoteTOD.
    RemoteTimeOfDay,
    /// NetprNameValidate.
    NameValidate {
        /// The name.
        name: Utf16Le<'a>,
        /// One of [`NameType`].
        name_type: NameType,
        /// Reserved.
        flags: u32,
    },
    /// NetprNameCanonicalize.
    NameCanonicalize {
        /// The name.
        name: Utf16Le<'a>,
        /// Size of the response's buffer in characters.
        room: u32,
        /// One of [`NameType`].
        name_type: NameType,
        /// 1: the buffer fits any name; 0x80000000: use the old rules.
        flags: u32,
    },
    /// An operation that would change the server: not decoded, but refused.
    Change {
        /// Whether the response contains the index of the invalid parameter, before its status.
        with_parameter: bool,
    },
    /// An unimplemented operation; the server responds with a fault.
    Unknown(u16),
}

impl<'a> Request<'a> {
    /// Decodes a stub. The server's name in it is ignored.
    ///
    /// # Errors
    /// Malformed input from the peer: answered with [`super::pdu::FaultStatus::BAD_STUB_DATA`].
    pub fn decode(opnum: u16, stub: &'a [u8]) -> Result<Self, WireError> {
        let mut r = NdrReader::new(stub);
        match opnum {
            OP_SHARE_ENUM | OP_SHARE_ENUM_STICKY => {
                r.unique_string()?;
                let Enumeration { level, preferred_maximum_length, resume_handle } = enumeration(&mut r)?;
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
            OP_SESSION_ENUM => {
                r.unique_string()?;
                let (client, user) = (r.unique_string()?, r.unique_string()?);
                Ok(Self::SessionEnum { client, user, enumeration: enumeration(&mut r)? })
            }
            OP_FILE_ENUM => {
                r.unique_string()?;
                let (base_path, user) = (r.unique_string()?, r.unique_string()?);
                Ok(Self::FileEnum { base_path, user, enumeration: enumeration(&mut r)? })
            }
            OP_CONNECTION_ENUM => {
                r.unique_string()?;
                let qualifier = r.unique_string()?;
                Ok(Self::ConnectionEnum { qualifier, enumeration: enumeration(&mut r)? })
            }
            OP_REMOTE_TOD => Ok(Self::RemoteTimeOfDay),
            OP_NAME_VALIDATE => {
                r.unique_string()?;
                let name = r.string()?;
                Ok(Self::NameValidate { name, name_type: NameType(r.u32()?), flags: r.u32()? })
            }
            OP_NAME_CANONICALIZE => {
                r.unique_string()?;
                let name = r.string()?;
                let room = r.count("canonical name", MAX_CANONICAL)? as u32;
                Ok(Self::NameCanonicalize { name, room, name_type: NameType(r.u32()?), flags: r.u32()? })
            }
            OP_SHARE_ADD | OP_SHARE_SET_INFO | OP_SERVER_SET_INFO => {
                Ok(Self::Change { with_parameter: true })
            }
            OP_SHARE_DEL | OP_SESSION_DEL | OP_FILE_CLOSE => Ok(Self::Change { with_parameter: false }),
            _ => Ok(Self::Unknown(opnum)),
        }
    }
}

/// Decodes the structure of an enumeration. Its container must be empty: clients send no entries.
fn enumeration(r: &mut NdrReader<'_>) -> Result<Enumeration, WireError> {
    let (level, switch) = (r.u32()?, r.u32()?);
    if level != switch {
        return Err(WireError::malformed("enumeration level"));
    }
    if r.pointer()? {
        let (entries, buffer) = (r.u32()?, r.pointer()?);
        if entries != 0 || (buffer && r.u32()? != 0) {
            return Err(WireError::malformed("container in a request"));
        }
    }
    let preferred_maximum_length = r.u32()?;
    let resume_handle = if r.pointer()? { Some(r.u32()?) } else { None };
    Ok(Enumeration { level, preferred_maximum_length, resume_handle })
}
