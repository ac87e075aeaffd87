//! Message signatures (MS-SMB2 3.1.4.1).
//!
//! A [`SigningKey`] belongs to one channel and is shared by every message on it: `sign` and `verify` take `&self`.
//! The message may consist of several segments and is never modified: its signature field of 16 bytes counts as
//! zeros.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};

mod cmac;
mod gmac;

/// Offset of the signature in the SMB2 header (MS-SMB2 2.2.1.2).
pub const SIGNATURE_OFFSET: usize = 48;
/// Length of an SMB2 header in bytes; no shorter message can be signed.
pub const HEADER_LEN: usize = 64;
/// Length of a signature in bytes, whatever the algorithm.
pub const SIGNATURE_LEN: usize = 16;

const ZERO_SIGNATURE: [u8; SIGNATURE_LEN] = [0; SIGNATURE_LEN];

/// How a channel's messages are signed (MS-SMB2 2.2.3.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SigningAlgorithm {
    /// Dialects 2.0.2 and 2.1; 3.1.1 when negotiated.
    HmacSha256,
    /// Dialects 3.0 and 3.0.2; the default of 3.1.1.
    AesCmac,
    /// Dialect 3.1.1 if negotiated: the fastest by far.
    AesGmac,
}

impl SigningAlgorithm {
    /// The algorithm with this `SigningAlgorithmId` of SMB2_SIGNING_CAPABILITIES; `None` if it is unknown.
    pub fn from_wire(id: u16) -> Option<Self> {
        match id {
            0 => Some(Self::HmacSha256),
            1 => Some(Self::AesCmac),
            2 => Some(Self::AesGmac),
            _ => None,
        }
    }

    /// The `SigningAlgorithmId` of SMB2_SIGNING_CAPABILITIES.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::HmacSha256 => 0,
            Self::AesCmac => 1,
            Self::AesGmac => 2,
        }
    }

    /// The algorithm of a dialect if SMB2_SIGNING_CAPABILITIES chose none (MS-SMB2 3.3.5.4).
    pub fn default_for_dialect(dialect: u16) -> Self {
        if dialect >= 0x0300 { Self::AesCmac } else { Self::HmacSha256 }
    }
}

/// Why a message could not be signed or was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The first segment of the message, ours or the peer's, does not contain a whole SMB2 header.
    #[error("the first segment is shorter than an SMB2 header")]
    ShortHeader,
    /// The peer's signature does not match this key and message.
    #[error("signature mismatch")]
    Mismatch,
}

/// One channel's key and algorithm. Many threads can use it at once; the library wipes it when dropped.
pub struct SigningKey {
    inner: Inner,
}

enum Inner {
    Hmac(Box<hmac::Key>),
    Cmac(Box<cmac::CmacKey>),
    Gmac(Box<gmac::GmacKey>),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm()).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Creates a key for `algorithm`.
    pub fn new(algorithm: SigningAlgorithm, key: &[u8; 16]) -> Self {
        let inner = match algorithm {
            SigningAlgorithm::HmacSha256 => Inner::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key))),
            SigningAlgorithm::AesCmac => Inner::Cmac(Box::new(cmac::CmacKey::new(key))),
            SigningAlgorithm::AesGmac => Inner::Gmac(Box::new(gmac::GmacKey::new(key))),
        };
        Self { inner }
    }

    /// The algorithm this key was made for.
    pub fn algorithm(&self) -> SigningAlgorithm {
        match self.inner {
            Inner::Hmac(_) => SigningAlgorithm::HmacSha256,
            Inner::Cmac(_) => SigningAlgorithm::AesCmac,
            Inner::Gmac(_) => SigningAlgorithm::AesGmac,
        }
    }

    /// Returns the signature of the message in `segments`, in order, for storing at [`SIGNATURE_OFFSET`].
    ///
    /// `segments[0]` starts with the SMB2 header, whose signature field counts as zeros. Only AES-GMAC uses
    /// `message_id`, `from_server` and `is_cancel`: they form its nonce. Signing makes one pass over the payload
    /// without copying it, with two exceptions. AES-CMAC copies it in chunks that stay in the processor's cache.
    /// AES-GMAC copies messages of up to 4 KiB, and at most 15 bytes at the end of a segment. AES-GMAC is slow on
    /// many small segments: see its file for figures.
    ///
    /// # Errors
    /// [`SignError::ShortHeader`] if `segments[0]` is shorter than a header.
    // MS-SMB2 3.1.4.1
    pub fn sign(
        &self,
        segments: &[&[u8]],
        message_id: u64,
        from_server: bool,
        is_cancel: bool,
    ) -> Result<[u8; SIGNATURE_LEN], SignError> {
        self.sign_behind(&[], segments, message_id, from_server, is_cancel)
    }

    /// [`sign`](Self::sign) over `prefix` followed by the message.
    fn sign_behind(
        &self,
        prefix: &[u8],
        segments: &[&[u8]],
        message_id: u64,
        from_server: bool,
        is_cancel: bool,
    ) -> Result<[u8; SIGNATURE_LEN], SignError> {
        let first = segments.first().filter(|s| s.len() >= HEADER_LEN).ok_or(SignError::ShortHeader)?;
        let before = &first[..SIGNATURE_OFFSET];
        let after = &first[SIGNATURE_OFFSET + SIGNATURE_LEN..];
        let rest = &segments[1..];
        Ok(match &self.inner {
            Inner::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                for part in [prefix, before, &ZERO_SIGNATURE, after].into_iter().chain(rest.iter().copied()) {
                    context.update(part);
                }
                first_16(context.sign().as_ref())
            }
            Inner::Cmac(key) => {
                let parts = [prefix, before, &ZERO_SIGNATURE, after];
                key.tag(parts.into_iter().chain(rest.iter().copied()))
            }
            Inner::Gmac(key) => {
                let nonce = gmac_nonce(message_id, from_server, is_cancel);
                let parts = [prefix, before, &ZERO_SIGNATURE, after];
                key.tag(&nonce, parts.into_iter().chain(rest.iter().copied()))
            }
        })
    }

    /// Verifies the signature in the message's own header, in constant time.
    ///
    /// # Errors
    /// [`SignError::ShortHeader`] if `segments[0]` is shorter than a header; [`SignError::Mismatch`] if the message
    /// was not signed with this key.
    // MS-SMB2 3.1.5.1
    pub fn verify(
        &self,
        segments: &[&[u8]],
        message_id: u64,
        from_server: bool,
        is_cancel: bool,
    ) -> Result<(), SignError> {
        self.verify_behind(&[], segments, message_id, from_server, is_cancel)
    }

    /// [`verify`](Self::verify) for a peer that signs the transport `prefix` together with the message, as Linux's
    /// ksmbd does for some responses.
    ///
    /// # Errors
    /// The errors of [`verify`](Self::verify).
    pub fn verify_behind(
        &self,
        prefix: &[u8],
        segments: &[&[u8]],
        message_id: u64,
        from_server: bool,
        is_cancel: bool,
    ) -> Result<(), SignError> {
        let expected = self.sign_behind(prefix, segments, message_id, from_server, is_cancel)?;
        let found = &segments[0][SIGNATURE_OFFSET..SIGNATURE_OFFSET + SIGNATURE_LEN];
        constant_time::verify_slices_are_equal(&expected, found).map_err(|_| SignError::Mismatch)
    }
}

/// The AES-GMAC nonce: MessageId, then a word in which bit 0 means "from the server" and bit 1 means CANCEL.
// MS-SMB2 3.1.4.1
fn gmac_nonce(message_id: u64, from_server: bool, is_cancel: bool) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&message_id.to_le_bytes());
    let bits = u32::from(from_server) | (u32::from(is_cancel) << 1);
    nonce[8..].copy_from_slice(&bits.to_le_bytes());
    nonce
}

fn first_16(bytes: &[u8]) -> [u8; SIGNATURE_LEN] {
    let mut out = [0; SIGNATURE_LEN];
    out.copy_from_slice(&bytes[..SIGNATURE_LEN]);
    out
}

#[cfg(test)]
mod tests;
