//! NEGOTIATE (MS-SMB2 2.2.3, 2.2.4).

use super::part16;
use crate::context::NegotiateContexts;
use crate::cursor::{Field, Reader, fit_u16, fit_u32, patch_u32};
use crate::macros::{flag_set, open_enum};
use crate::{Decode, Encode, FileTime, Guid, MessageBuilder, WireError};

/// Maximum number of dialects in one request; five exist.
pub const MAX_DIALECTS: usize = 64;

open_enum! {
    /// A dialect revision.
    pub struct Dialect(u16) {
        /// SMB 2.0.2.
        SMB_2_0_2 = 0x0202,
        /// SMB 2.1.
        SMB_2_1 = 0x0210,
        /// SMB 3.0.
        SMB_3_0 = 0x0300,
        /// SMB 3.0.2.
        SMB_3_0_2 = 0x0302,
        /// SMB 3.1.1.
        SMB_3_1_1 = 0x0311,
        /// Response to "SMB 2.???" in an SMB1 negotiate: a second negotiate follows.
        WILDCARD = 0x02FF,
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::SMB_2_0_2 => f.write_str("2.0.2"),
            Self::SMB_2_1 => f.write_str("2.1"),
            Self::SMB_3_0 => f.write_str("3.0"),
            Self::SMB_3_0_2 => f.write_str("3.0.2"),
            Self::SMB_3_1_1 => f.write_str("3.1.1"),
            Self::WILDCARD => f.write_str("2.???"),
            Self(other) => write!(f, "{other:#06x}"),
        }
    }
}

flag_set! {
    /// SecurityMode of NEGOTIATE and SESSION_SETUP.
    pub struct SecurityMode: u16 {
        /// Signing is possible.
        const SIGNING_ENABLED = 1;
        /// Signing is required.
        const SIGNING_REQUIRED = 2;
    }
}

flag_set! {
    /// Capabilities of NEGOTIATE (of the client: from SMB 3.0 on).
    pub struct Capabilities: u32 {
        /// DFS.
        const DFS = 0x01;
        /// Leases.
        const LEASING = 0x02;
        /// Requests with a charge of more than one credit.
        const LARGE_MTU = 0x04;
        /// Several channels in one session.
        const MULTI_CHANNEL = 0x08;
        /// Persistent handles.
        const PERSISTENT_HANDLES = 0x10;
        /// Directory leases.
        const DIRECTORY_LEASING = 0x20;
        /// Encryption (SMB 3.0 and 3.0.2; a context in 3.1.1).
        const ENCRYPTION = 0x40;
        /// Server notifications.
        const NOTIFICATIONS = 0x80;
    }
}

/// The dialects of a request, encoded as 16-bit values.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Dialects<'a>(&'a [u8]);

impl<'a> Dialects<'a> {
    /// Wraps little-endian values.
    ///
    /// # Errors
    /// `Malformed` if the length is odd.
    pub const fn from_bytes(bytes: &'a [u8]) -> Result<Self, WireError> {
        if bytes.len().is_multiple_of(2) { Ok(Self(bytes)) } else { Err(WireError::malformed("dialects")) }
    }

    /// The dialects in the client's order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Dialect> + 'a {
        self.0.chunks_exact(2).map(|c| Dialect(u16::from_le_bytes([c[0], c[1]])))
    }

    /// Whether `dialect` is offered.
    pub fn contains(self, dialect: Dialect) -> bool {
        self.iter().any(|d| d == dialect)
    }

    /// Number of offered dialects.
    pub const fn len(self) -> usize {
        self.0.len() / 2
    }

    /// Whether no dialect is offered.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The five dialects of this protocol, oldest first.
    pub const fn all() -> Self {
        Self(&[0x02, 0x02, 0x10, 0x02, 0x00, 0x03, 0x02, 0x03, 0x11, 0x03])
    }
}

impl std::fmt::Debug for Dialects<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// NEGOTIATE request (MS-SMB2 2.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NegotiateRequest<'a> {
    /// The client's signing mode.
    pub security_mode: SecurityMode,
    /// The client's capabilities.
    pub capabilities: Capabilities,
    /// The client's identifier.
    pub client_guid: Guid,
    /// The offered dialects.
    pub dialects: Dialects<'a>,
    /// The contexts; only if the dialects contain 3.1.1 (otherwise the field is a reserved time).
    pub contexts: NegotiateContexts<'a>,
}

const REQUEST: &str = "NEGOTIATE request";

impl<'a> Decode<'a> for NegotiateRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, REQUEST, 36)?;
        let count = usize::from(r.get::<u16>()?);
        let security_mode = r.get()?;
        r.skip(2)?;
        let capabilities = r.get()?;
        let client_guid = r.get()?;
        let context_offset: u32 = r.get()?;
        let context_count: u16 = r.get()?;
        r.skip(2)?;
        if count > MAX_DIALECTS {
            return Err(WireError::TooLarge { what: "NEGOTIATE dialects", len: count, max: MAX_DIALECTS });
        }
        let dialects = Dialects(r.take(count * 2)?);
        let contexts = if dialects.contains(Dialect::SMB_3_1_1) && context_count != 0 {
            contexts_at(&r, msg, context_offset as usize, context_count)?
        } else {
            NegotiateContexts::default()
        };
        Ok(Self { security_mode, capabilities, client_guid, dialects, contexts })
    }
}

/// The contexts from `offset` to the end of the message.
fn contexts_at<'a>(
    r: &Reader<'a>,
    msg: &'a [u8],
    offset: usize,
    count: u16,
) -> Result<NegotiateContexts<'a>, WireError> {
    const WHAT: &str = "NegotiateContextOffset";
    let Some(len) = msg.len().checked_sub(offset).filter(|&len| len > 0) else {
        return Err(WireError::Truncated { what: WHAT, need: offset.saturating_add(1), have: msg.len() });
    };
    // MS-SMB2 2.2.3: the first context must be 8-byte aligned.
    if !offset.is_multiple_of(8) {
        return Err(WireError::malformed(WHAT));
    }
    NegotiateContexts::from_bytes(r.range(offset, len, WHAT)?, count)
}

impl Encode for NegotiateRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let count = fit_u16(self.dialects.len(), "NEGOTIATE dialects")?;
        let out = m.out();
        36u16.put(out);
        count.put(out);
        self.security_mode.put(out);
        0u16.put(out);
        self.capabilities.put(out);
        self.client_guid.put(out);
        let offset_at = out.len();
        0u32.put(out);
        self.contexts.count().put(out);
        0u16.put(out);
        out.extend_from_slice(self.dialects.0);
        put_contexts(m, offset_at, self.contexts)
    }
}

fn put_contexts(
    m: &mut MessageBuilder<'_>,
    offset_at: usize,
    contexts: NegotiateContexts<'_>,
) -> Result<(), WireError> {
    if contexts.count() == 0 {
        return Ok(());
    }
    m.align(8);
    let offset = fit_u32(m.offset(), "NegotiateContextOffset")?;
    let out = m.out();
    patch_u32(out, offset_at, offset);
    out.extend_from_slice(contexts.as_bytes());
    Ok(())
}

/// NEGOTIATE response (MS-SMB2 2.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NegotiateResponse<'a> {
    /// The server's signing mode.
    pub security_mode: SecurityMode,
    /// The chosen dialect.
    pub dialect: Dialect,
    /// The server's identifier.
    pub server_guid: Guid,
    /// The server's capabilities.
    pub capabilities: Capabilities,
    /// Maximum buffer of QUERY_INFO, QUERY_DIRECTORY, SET_INFO, CHANGE_NOTIFY and IOCTL, in bytes.
    pub max_transact_size: u32,
    /// Maximum READ size in bytes.
    pub max_read_size: u32,
    /// Maximum WRITE size in bytes.
    pub max_write_size: u32,
    /// The server's time.
    pub system_time: FileTime,
    /// When the server started; 0 if not disclosed.
    pub server_start_time: FileTime,
    /// The GSS token.
    pub security_buffer: &'a [u8],
    /// The contexts; only with dialect 3.1.1.
    pub contexts: NegotiateContexts<'a>,
}

const RESPONSE: &str = "NEGOTIATE response";

impl<'a> Decode<'a> for NegotiateResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, RESPONSE, 65)?;
        let security_mode = r.get()?;
        let dialect = r.get()?;
        let context_count: u16 = r.get()?;
        let server_guid = r.get()?;
        let capabilities = r.get()?;
        let max_transact_size = r.get()?;
        let max_read_size = r.get()?;
        let max_write_size = r.get()?;
        let system_time = r.get()?;
        let server_start_time = r.get()?;
        let (offset, len): (u16, u16) = (r.get()?, r.get()?);
        let context_offset: u32 = r.get()?;
        let security_buffer = r.range(offset.into(), len.into(), "NEGOTIATE security buffer")?;
        let contexts = if dialect == Dialect::SMB_3_1_1 && context_count != 0 {
            contexts_at(&r, msg, context_offset as usize, context_count)?
        } else {
            NegotiateContexts::default()
        };
        Ok(Self {
            security_mode,
            dialect,
            server_guid,
            capabilities,
            max_transact_size,
            max_read_size,
            max_write_size,
            system_time,
            server_start_time,
            security_buffer,
            contexts,
        })
    }
}

impl Encode for NegotiateResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let (offset, len) = part16(m.offset() + 64, self.security_buffer, "NEGOTIATE security buffer")?;
        let out = m.out();
        65u16.put(out);
        self.security_mode.put(out);
        self.dialect.put(out);
        self.contexts.count().put(out);
        self.server_guid.put(out);
        self.capabilities.put(out);
        self.max_transact_size.put(out);
        self.max_read_size.put(out);
        self.max_write_size.put(out);
        self.system_time.put(out);
        self.server_start_time.put(out);
        offset.put(out);
        len.put(out);
        let offset_at = out.len();
        0u32.put(out);
        out.extend_from_slice(self.security_buffer);
        put_contexts(m, offset_at, self.contexts)
    }
}
