//! SESSION_SETUP (MS-SMB2 2.2.5, 2.2.6) and LOGOFF (2.2.7, 2.2.8).

use super::{Capabilities, SecurityMode, part16, put_request_part};
use crate::cursor::{Field, Reader};
use crate::macros::{fixed_message, flag_set};
use crate::{Decode, Encode, MessageBuilder, WireError};

flag_set! {
    /// Flags of a SESSION_SETUP request.
    pub struct SessionSetupFlags: u8 {
        /// Bind this connection to an existing session as another channel (SMB 3.x).
        const BINDING = 1;
    }
}

flag_set! {
    /// SessionFlags of a SESSION_SETUP response.
    pub struct SessionFlags: u16 {
        /// Authenticated as guest.
        const IS_GUEST = 1;
        /// Anonymous.
        const IS_NULL = 2;
        /// The server requires encryption on this session.
        const ENCRYPT_DATA = 4;
    }
}

/// SESSION_SETUP request (MS-SMB2 2.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionSetupRequest<'a> {
    /// Flags.
    pub flags: SessionSetupFlags,
    /// The client's signing mode; one byte on the wire in this message.
    pub security_mode: SecurityMode,
    /// The client's capabilities; only DFS is significant.
    pub capabilities: Capabilities,
    /// Reserved by the specification.
    pub channel: u32,
    /// The client's previous session, which lost its connection.
    pub previous_session_id: u64,
    /// The GSS token.
    pub security_buffer: &'a [u8],
}

const REQUEST: &str = "SESSION_SETUP request";

impl<'a> Decode<'a> for SessionSetupRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, REQUEST, 25)?;
        let flags = r.get()?;
        let security_mode = SecurityMode::from_bits_retain(u16::from(r.get::<u8>()?));
        let capabilities = r.get()?;
        let channel = r.get()?;
        let (offset, len): (u16, u16) = (r.get()?, r.get()?);
        let previous_session_id = r.get()?;
        let security_buffer = r.range(offset.into(), len.into(), "SESSION_SETUP security buffer")?;
        Ok(Self { flags, security_mode, capabilities, channel, previous_session_id, security_buffer })
    }
}

impl Encode for SessionSetupRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let (offset, len) = part16(m.offset() + 24, self.security_buffer, "SESSION_SETUP security buffer")?;
        let out = m.out();
        25u16.put(out);
        self.flags.put(out);
        (self.security_mode.bits() as u8).put(out);
        self.capabilities.put(out);
        self.channel.put(out);
        offset.put(out);
        len.put(out);
        self.previous_session_id.put(out);
        put_request_part(m, self.security_buffer);
        Ok(())
    }
}

/// SESSION_SETUP response (MS-SMB2 2.2.6), for success and for STATUS_MORE_PROCESSING_REQUIRED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionSetupResponse<'a> {
    /// Flags.
    pub session_flags: SessionFlags,
    /// The GSS token.
    pub security_buffer: &'a [u8],
}

const RESPONSE: &str = "SESSION_SETUP response";

impl<'a> Decode<'a> for SessionSetupResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, RESPONSE, 9)?;
        let session_flags = r.get()?;
        let (offset, len): (u16, u16) = (r.get()?, r.get()?);
        let security_buffer = r.range(offset.into(), len.into(), "SESSION_SETUP security buffer")?;
        Ok(Self { session_flags, security_buffer })
    }
}

impl Encode for SessionSetupResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let (offset, len) = part16(m.offset() + 8, self.security_buffer, "SESSION_SETUP security buffer")?;
        let out = m.out();
        9u16.put(out);
        self.session_flags.put(out);
        offset.put(out);
        len.put(out);
        out.extend_from_slice(self.security_buffer);
        Ok(())
    }
}

fixed_message! {
    /// LOGOFF request (MS-SMB2 2.2.7).
    pub struct LogoffRequest [4, "LOGOFF request", pad 2] {}
}

fixed_message! {
    /// LOGOFF response (MS-SMB2 2.2.8).
    pub struct LogoffResponse [4, "LOGOFF response", pad 2] {}
}
