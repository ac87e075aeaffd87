//! NTLMv2 (MS-NLMP): messages, responses, session security, and both ends as [mechanisms](crate::mechanism).
//!
//! NTLMv1, LM and sessions without extended session security are refused, each with its own [`Refusal`]; so is
//! anonymous log-on by default. Of OEM character sets only ASCII is supported. The client's timestamp is not
//! compared with the clock: the server challenge already prevents replay, and a client with a wrong clock is not an
//! attacker.

mod av;
mod message;
mod response;
mod session;

pub mod accept;
pub mod initiate;

pub use av::{AvFlags, AvId, AvPairs};
pub use message::{Authenticate, Challenge, Flags, NO_VERSION, Negotiate, OUR_VERSION};
pub use response::{
    NtHash, Ntlmv2Response, lmv2_response, nt_proof, response_key_nt, session_base_key, upcase, utf16le,
};
pub use session::{Side, SigningSession, exported_session_key, message_mic, rc4};

/// First bytes of every NTLM message.
pub const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";

/// Why the peer's bytes are not the expected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NtlmError {
    /// The peer's message is shorter than its fixed part.
    #[error("NTLM message ends inside its fixed part")]
    Truncated,
    /// The peer's message does not begin with "NTLMSSP".
    #[error("not an NTLM message")]
    NotNtlm,
    /// The peer sent another type of message than the exchange expects.
    #[error("unexpected NTLM message type {0}")]
    UnexpectedType(u32),
    /// A field of the peer's message extends beyond its end.
    #[error("NTLM field reaches beyond its message")]
    FieldOutside,
    /// A name in the peer's message has more than 512 bytes, or an odd number of them in UTF-16.
    #[error("malformed name")]
    BadName,
    /// The peer's list of attribute-value pairs is not terminated, or an attribute has the wrong length.
    #[error("malformed attribute-value pairs")]
    BadAvPairs,
    /// The peer's NTLMv2 response is shorter than its fixed part or of another version.
    #[error("malformed NTLMv2 response")]
    BadResponse,
    /// The peer negotiated a key exchange but sent no 16-byte key.
    #[error("malformed exchanged session key")]
    BadSessionKey,
}

/// Features of the protocol that we refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The client answered with a 24-byte NTLMv1 response.
    #[error("NTLMv1 is refused: allow NTLMv2 on the client (LmCompatibilityLevel 3 or higher)")]
    Ntlmv1,
    /// The client sent only an LM or LMv2 response.
    #[error("LM is refused: allow NTLMv2 on the client (LmCompatibilityLevel 3 or higher)")]
    Lm,
    /// The client asked for a null session.
    #[error("anonymous log-on is refused")]
    Anonymous,
    /// The client asked for the guest account.
    #[error("guest log-on is refused")]
    Guest,
    /// The peer offers neither Unicode nor an OEM character set, or only one that we do not support.
    #[error("no character set in common")]
    CharacterSet,
    /// The client did not offer extended session security, or the server did not accept it.
    #[error("NTLM without extended session security is refused")]
    NoExtendedSessionSecurity,
}

#[cfg(test)]
mod tests;
