//! Authentication and message protection for SMB2/3: the peer's identity, and integrity and confidentiality
//! of its messages.
//!
//! # Contents
//!
//! | module | what | specification |
//! |---|---|---|
//! | [`spnego`] | the negotiation wrapper round a mechanism's tokens | RFC 4178, MS-SPNG |
//! | [`ntlm`] | NTLMv2 messages, responses, MIC, session security | MS-NLMP |
//! | [`acceptor`], [`initiator`] | both ends of a log-on, SPNEGO and mechanism together | MS-SMB2 3.3.5.5, 3.2.5.3 |
//! | [`users`] | the file of local users | – |
//! | [`mod@derive`] | session keys and the pre-authentication integrity hash | MS-SMB2 3.1.4.2 |
//! | [`sign`] | HMAC-SHA256, AES-CMAC and AES-GMAC signatures | MS-SMB2 3.1.4.1 |
//! | [`crypt`] | AES-128/256-CCM/GCM, nonces, the transform header | MS-SMB2 3.1.4.3 |
//!
//! # What is deliberately absent
//!
//! NTLMv1, LM and guest log-on are refused, each with its own reason; anonymous log-on is refused unless the server
//! is configured to accept it. There is no channel to a domain controller. Kerberos is not implemented yet; it will
//! implement [`mechanism`].
//!
//! # I/O model
//!
//! Except for [`users`], which reads and writes one small file, nothing here does I/O, reads a clock or draws
//! randomness: challenges, keys and the current FILETIME are arguments, so a seed replays a log-on byte for byte.
//!
//! # Lifetime of values
//!
//! An [`acceptor::Acceptor`] lives for one SESSION_SETUP exchange and yields a session key. [`derive::SessionKeys`]
//! are derived from it: for a [`sign::SigningKey`] per channel, and a [`crypt::Sealer`] and a [`crypt::Opener`] per
//! session. Keys are wiped when dropped, and their `Debug` output contains no secret.
//!
//! # Error model
//!
//! One enum per stage. Bytes from the peer never cause a panic or an allocation beyond [`spnego::MAX_TOKEN`].

pub mod acceptor;
pub mod crypt;
pub mod derive;
pub mod initiator;
pub mod mechanism;
pub mod ntlm;
pub mod sid;
pub mod sign;
pub mod spnego;
pub mod users;

#[cfg(test)]
mod test_vectors;
