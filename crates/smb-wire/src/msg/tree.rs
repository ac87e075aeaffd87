//! TREE_CONNECT (MS-SMB2 2.2.9, 2.2.10) and TREE_DISCONNECT (2.2.11, 2.2.12).

use super::{part16, put_request_part};
use crate::cursor::{Field, Reader, slice};
use crate::macros::{fixed_message, flag_set, open_enum};
use crate::{AccessMask, Decode, Encode, MessageBuilder, Utf16Le, WireError};

flag_set! {
    /// Flags of a TREE_CONNECT request (SMB 3.1.1).
    pub struct TreeConnectFlags: u16 {
        /// The client is reconnecting to a cluster share.
        const CLUSTER_RECONNECT = 1;
        /// The client handles share redirects.
        const REDIRECT_TO_OWNER = 2;
        /// The extension of 2.2.9.1 is present.
        const EXTENSION_PRESENT = 4;
    }
}

open_enum! {
    /// ShareType of a TREE_CONNECT response.
    pub struct ShareType(u8) {
        /// Files.
        DISK = 1,
        /// Named pipes.
        PIPE = 2,
        /// Printer.
        PRINT = 3,
    }
}

flag_set! {
    /// ShareFlags of a TREE_CONNECT response. The two bits of [`ShareFlags::CACHING_MASK`] form a number.
    pub struct ShareFlags: u32 {
        /// The share is in a DFS namespace.
        const DFS = 0x0000_0001;
        /// The share is a DFS root.
        const DFS_ROOT = 0x0000_0002;
        /// Clients may cache automatically.
        const AUTO_CACHING = 0x0000_0010;
        /// Clients may cache for offline use.
        const VDO_CACHING = 0x0000_0020;
        /// Offline caching: manual 0x00, automatic 0x10, VDO 0x20, none 0x30.
        const CACHING_MASK = 0x0000_0030;
        /// Exclusive opens that deny reads are not allowed.
        const RESTRICT_EXCLUSIVE_OPENS = 0x0000_0100;
        /// Opens that deny deletion are not allowed.
        const FORCE_SHARED_DELETE = 0x0000_0200;
        /// Name caching is allowed.
        const ALLOW_NAMESPACE_CACHING = 0x0000_0400;
        /// Entries that the user cannot access are hidden.
        const ACCESS_BASED_DIRECTORY_ENUM = 0x0000_0800;
        /// Exclusive oplocks are not granted.
        const FORCE_LEVELII_OPLOCK = 0x0000_1000;
        /// Branch cache hashes.
        const ENABLE_HASH_V1 = 0x0000_2000;
        /// Branch cache hashes, version 2.
        const ENABLE_HASH_V2 = 0x0000_4000;
        /// The share requires encryption.
        const ENCRYPT_DATA = 0x0000_8000;
        /// Identity remoting.
        const IDENTITY_REMOTING = 0x0004_0000;
        /// The share compresses.
        const COMPRESS_DATA = 0x0010_0000;
        /// Isolated transport.
        const ISOLATED_TRANSPORT = 0x0020_0000;
    }
}

flag_set! {
    /// Capabilities of a TREE_CONNECT response.
    pub struct ShareCapabilities: u32 {
        /// DFS.
        const DFS = 0x0000_0008;
        /// Continuous availability.
        const CONTINUOUS_AVAILABILITY = 0x0000_0010;
        /// Scale-out.
        const SCALEOUT = 0x0000_0020;
        /// Cluster.
        const CLUSTER = 0x0000_0040;
        /// Asymmetric.
        const ASYMMETRIC = 0x0000_0080;
        /// The share may redirect clients to its owner.
        const REDIRECT_TO_OWNER = 0x0000_0100;
    }
}

/// The tree connect contexts of the extension (MS-SMB2 2.2.9.2), undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeConnectContexts<'a> {
    /// The contexts' bytes, each 8-byte aligned.
    pub bytes: &'a [u8],
    /// The announced number.
    pub count: u16,
}

/// TREE_CONNECT request (MS-SMB2 2.2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeConnectRequest<'a> {
    /// Flags; reserved before SMB 3.1.1. EXTENSION_PRESENT also determines whether `encode` writes the extension.
    pub flags: TreeConnectFlags,
    /// Path of the form `\\server\share`.
    pub path: Utf16Le<'a>,
    /// Contexts; only with EXTENSION_PRESENT.
    pub contexts: TreeConnectContexts<'a>,
}

const REQUEST: &str = "TREE_CONNECT request";
/// Length of ContextOffset, ContextCount and ten reserved bytes, which precede the path (MS-SMB2 2.2.9.1).
const EXTENSION_LEN: usize = 16;

impl<'a> Decode<'a> for TreeConnectRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, REQUEST, 9)?;
        let flags: TreeConnectFlags = r.get()?;
        let (offset, len): (u16, u16) = (r.get()?, r.get()?);
        let mut contexts = TreeConnectContexts::default();
        if flags.contains(TreeConnectFlags::EXTENSION_PRESENT) {
            let extension = r.rest();
            let mut e = Reader::new(extension, "TREE_CONNECT extension");
            let at: u32 = e.get()?;
            let count: u16 = e.get()?;
            e.skip(10)?;
            if count != 0 {
                let at = at as usize;
                let len = extension.len().saturating_sub(at);
                contexts = TreeConnectContexts { bytes: slice(extension, at, len, e.what())?, count };
            }
        }
        let path =
            Utf16Le::new(r.range(offset.into(), len.into(), "TREE_CONNECT path")?, "TREE_CONNECT path")?;
        Ok(Self { flags, path, contexts })
    }
}

impl Encode for TreeConnectRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let extended = self.flags.contains(TreeConnectFlags::EXTENSION_PRESENT);
        let extension_at = m.offset() + 8;
        let at = extension_at + if extended { EXTENSION_LEN } else { 0 };
        let (offset, len) = part16(at, self.path.as_bytes(), "TREE_CONNECT path")?;
        let out = m.out();
        9u16.put(out);
        self.flags.put(out);
        offset.put(out);
        len.put(out);
        if !extended {
            put_request_part(m, self.path.as_bytes());
            return Ok(());
        }
        let contexts_at = (at + self.path.len()).next_multiple_of(8) - extension_at;
        (contexts_at as u32).put(out);
        self.contexts.count.put(out);
        [0u8; 10].put(out);
        out.extend_from_slice(self.path.as_bytes());
        m.align(8);
        m.out().extend_from_slice(self.contexts.bytes);
        Ok(())
    }
}

fixed_message! {
    /// TREE_CONNECT response (MS-SMB2 2.2.10).
    pub struct TreeConnectResponse [16, "TREE_CONNECT response"] {
        /// Disk, pipe or printer.
        pub share_type: ShareType => pad 1,
        /// Properties.
        pub share_flags: ShareFlags,
        /// Capabilities.
        pub capabilities: ShareCapabilities,
        /// The maximal access of the user.
        pub maximal_access: AccessMask,
    }
}

fixed_message! {
    /// TREE_DISCONNECT request (MS-SMB2 2.2.11).
    pub struct TreeDisconnectRequest [4, "TREE_DISCONNECT request", pad 2] {}
}

fixed_message! {
    /// TREE_DISCONNECT response (MS-SMB2 2.2.12).
    pub struct TreeDisconnectResponse [4, "TREE_DISCONNECT response", pad 2] {}
}
