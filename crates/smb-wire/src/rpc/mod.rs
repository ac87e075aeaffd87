//! DCE/RPC over named pipes (MS-RPCE, C706), limited to what clients of a file server need.
//!
//! A pipe carries PDUs ([`pdu`]); a request's stub is NDR ([`ndr`]), 32-bit, little-endian. The interfaces are
//! [`srvsvc`] and [`wkssvc`] (shares, sessions, the machine), [`lsarpc`] (translation of SIDs) and [`samr`]
//! (accounts). No call is authenticated at the RPC level; the SMB session authenticates the client.

pub mod lsarpc;
pub mod ndr;
pub mod pdu;
pub mod samr;
pub mod srvsvc;
pub mod wkssvc;

use crate::macros::record;

record! {
    /// An interface or transfer syntax: UUID and version.
    pub struct SyntaxId [20] {
        /// UUID.
        pub uuid: crate::Guid,
        /// Major version.
        pub major: u16,
        /// Minor version.
        pub minor: u16,
    }
}

impl SyntaxId {
    /// NDR, 32 bits: 8a885d04-1ceb-11c9-9fe8-08002b104860, version 2.
    pub const NDR32: Self = Self::new(
        [0x04, 0x5D, 0x88, 0x8A, 0xEB, 0x1C, 0xC9, 0x11, 0x9F, 0xE8, 0x08, 0x00, 0x2B, 0x10, 0x48, 0x60],
        2,
    );
    /// NDR, 64 bits: 71710533-beba-4937-8319-b5dbef9ccc36, version 1. The server refuses it.
    pub const NDR64: Self = Self::new(
        [0x33, 0x05, 0x71, 0x71, 0xBA, 0xBE, 0x37, 0x49, 0x83, 0x19, 0xB5, 0xDB, 0xEF, 0x9C, 0xCC, 0x36],
        1,
    );
    /// srvsvc: 4b324fc8-1670-01d3-1278-5a47bf6ee188, version 3 (MS-SRVS 1.9).
    pub const SRVSVC: Self = Self::new(
        [0xC8, 0x4F, 0x32, 0x4B, 0x70, 0x16, 0xD3, 0x01, 0x12, 0x78, 0x5A, 0x47, 0xBF, 0x6E, 0xE1, 0x88],
        3,
    );
    /// wkssvc: 6bffd098-a112-3610-9833-46c3f87e345a, version 1 (MS-WKST 1.9).
    pub const WKSSVC: Self = Self::new(
        [0x98, 0xD0, 0xFF, 0x6B, 0x12, 0xA1, 0x10, 0x36, 0x98, 0x33, 0x46, 0xC3, 0xF8, 0x7E, 0x34, 0x5A],
        1,
    );

    /// lsarpc: 12345778-1234-abcd-ef00-0123456789ab, version 0 (MS-LSAD 1.9).
    pub const LSARPC: Self = Self::new(
        [0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xCD, 0xAB, 0xEF, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xAB],
        0,
    );
    /// samr: 12345778-1234-abcd-ef00-0123456789ac, version 1 (MS-SAMR 1.9).
    pub const SAMR: Self = Self::new(
        [0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xCD, 0xAB, 0xEF, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xAC],
        1,
    );

    const fn new(uuid: [u8; 16], major: u16) -> Self {
        Self { uuid: crate::Guid(uuid), major, minor: 0 }
    }

    /// Returns the offered features if this is bind-time feature negotiation, 6cb71c2c-9812-4540-XXXX-… version 1
    /// (MS-RPCE 3.3.1.5.3); otherwise `None`.
    pub fn bind_time_features(&self) -> Option<u16> {
        let [0x2C, 0x1C, 0xB7, 0x6C, 0x12, 0x98, 0x40, 0x45, low, high, ..] = self.uuid.0 else {
            return None;
        };
        (self.major == 1).then_some(u16::from_le_bytes([low, high]))
    }
}

record! {
    /// A context handle (C706 14.2.16.6): the identifier of state that a server keeps for a client between calls.
    pub struct ContextHandle [20] {
        /// Attributes: 0.
        pub attributes: u32,
        /// The server's identifier; all zeros for no handle.
        pub uuid: crate::Guid,
    }
}

impl ContextHandle {
    /// No handle: returned by a call that closes one or fails to open one.
    pub const NULL: Self = Self { attributes: 0, uuid: crate::Guid([0; 16]) };
}

crate::macros::open_enum! {
    /// The kind of a SID's account: SID_NAME_USE (MS-LSAT 2.2.13, MS-SAMR 2.2.2.3).
    pub struct SidNameUse(u16) {
        /// A user.
        USER = 1,
        /// A group of a domain.
        GROUP = 2,
        /// A domain.
        DOMAIN = 3,
        /// A local group.
        ALIAS = 4,
        /// One of the well-known SIDs.
        WELL_KNOWN_GROUP = 5,
        /// Unknown.
        UNKNOWN = 8,
        /// An integrity level.
        LABEL = 10,
    }
}

#[cfg(test)]
mod tests;
