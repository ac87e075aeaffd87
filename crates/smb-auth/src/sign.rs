//! Message signatures (MS-SMB2 3.1.4.1).
//!
//! A [`SigningKey`] belongs to one channel and is shared by every message on it: `sign` and `verify` take `&self`.
//! The message may lie in several segments and is never modified: the 16 bytes of its signature field count as zero
//! whatever they hold.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};

mod cmac;
mod gmac;

/// Offset of the signature in the SMB2 header (MS-SMB2 2.2.1.2).
pub const SIGNATURE_OFFSET: usize = 48;
/// Length of an SMB2 header; no shorter message can be signed.
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
    /// Dialect 3.1.1 when negotiated: the fastest by far.
    AesGmac,
}

impl SigningAlgorithm {
    /// The algorithm that a `SigningAlgorithmId` of SMB2_SIGNING_CAPABILITIES names, if we know it.
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

    /// The algorithm a dialect uses when SMB2_SIGNING_CAPABILITIES chose none (MS-SMB2 3.3.5.4).
    pub fn default_for_dialect(dialect: u16) -> Self {
        if dialect >= 0x0300 { Self::AesCmac } else { Self::HmacSha256 }
    }
}

/// Why a message could not be signed or was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The peer's message, or ours, does not begin with a whole SMB2 header in its first segment.
    #[error("the first segment is shorter than an SMB2 header")]
    ShortHeader,
    /// The peer's signature is not the one this key gives.
    #[error("signature mismatch")]
    Mismatch,
}

/// One channel's key and algorithm. Cheap to use from many threads; wiped by the library when dropped.
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
    /// A key for `algorithm`.
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

    /// The signature of the message that `segments` hold one after the other, to be stored at
    /// [`SIGNATURE_OFFSET`].
    ///
    /// `segments[0]` begins with the SMB2 header, whose signature field counts as zero. `message_id`, `from_server`
    /// and `is_cancel` matter to AES-GMAC only, whose nonce they make up. One pass over the payload, which is
    /// not copied, except that AES-CMAC copies it in pieces within the processor's cache, and AES-GMAC copies messages of
    /// up to 4 KiB, and at most 15 bytes at a segment's end. AES-GMAC is slow on many small segments: see its file for
    /// figures.
    ///
    /// # Errors
    /// [`SignError::ShortHeader`] when `segments[0]` holds less than a header.
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

    /// As [`sign`](Self::sign), over `prefix` and then the message.
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

    /// Checks the signature stored in the message's own header, in constant time.
    ///
    /// # Errors
    /// [`SignError::ShortHeader`] as for [`sign`](Self::sign); [`SignError::Mismatch`] when the message was not
    /// signed with this key.
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

    /// As [`verify`](Self::verify), for a peer that signed the message together with the `prefix` that its transport
    /// puts in front of it: Linux's ksmbd does that with some answers.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
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

/// The AES-GMAC nonce: MessageId, then a word whose bit 0 is the sender's role and bit 1 marks a CANCEL.
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
