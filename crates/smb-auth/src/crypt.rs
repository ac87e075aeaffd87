//! Message encryption (MS-SMB2 3.1.4.3) and the SMB2 TRANSFORM_HEADER (MS-SMB2 2.2.41).
//!
//! Encryption keys belong to a session, not to a channel, so a session owns one [`Sealer`] and one [`Opener`] shared by
//! all its channels: nonces then come from one [`NonceAllocator`] and never repeat under one key.
//!
//! The transform header has 52 bytes, little-endian. The tag covers the last 32 of them and the message:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | 0xFD 'S' 'M' 'B' |
//! | 4 | 16 | signature: the tag |
//! | 20 | 16 | nonce: 11 (CCM) or 12 (GCM) bytes, then zeros |
//! | 36 | 4 | original message size, bytes |
//! | 40 | 2 | reserved |
//! | 42 | 2 | flags: 1 = encrypted (3.0, 3.0.2: the algorithm, also 1) |
//! | 44 | 8 | session id |

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::Aad;

mod aead;

use aead::{AeadInner, AeadKey, gcm_nonce, seal_scatter};

/// Length of the transform header in bytes.
pub const TRANSFORM_LEN: usize = 52;
/// Length of a tag in bytes, whatever the cipher.
pub const TAG_LEN: usize = 16;
/// Length of the transform header's nonce field in bytes.
pub const NONCE_FIELD_LEN: usize = 16;

const TRANSFORM_PROTOCOL_ID: [u8; 4] = *b"\xfdSMB";
/// Offset of the part of the transform header that the tag covers.
const AAD_OFFSET: usize = 20;
const FLAGS_ENCRYPTED: u16 = 1;

/// A cipher of SMB2_ENCRYPTION_CAPABILITIES (MS-SMB2 2.2.3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// The only cipher of 3.0 and 3.0.2; slow in this implementation.
    Aes128Ccm,
    /// The usual cipher of 3.1.1; the fastest.
    Aes128Gcm,
    /// 256-bit keys; slow in this implementation.
    Aes256Ccm,
    /// 256-bit keys.
    Aes256Gcm,
}

impl Cipher {
    /// The cipher with this `CipherId`; `None` if it is unknown.
    pub fn from_wire(id: u16) -> Option<Self> {
        match id {
            1 => Some(Self::Aes128Ccm),
            2 => Some(Self::Aes128Gcm),
            3 => Some(Self::Aes256Ccm),
            4 => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    /// The `CipherId` of SMB2_ENCRYPTION_CAPABILITIES.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::Aes128Ccm => 1,
            Self::Aes128Gcm => 2,
            Self::Aes256Ccm => 3,
            Self::Aes256Gcm => 4,
        }
    }

    /// Key length in bytes.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// How many bytes of the nonce field the cipher uses.
    pub fn nonce_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes256Ccm => 11,
            Self::Aes128Gcm | Self::Aes256Gcm => 12,
        }
    }
}

/// Why a message could not be encrypted or decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptError {
    /// The caller's key is not of the cipher's length.
    #[error("the key has the wrong length for the cipher")]
    KeyLength,
    /// The caller's output buffer is not as long as the message, or the message exceeds 4 GiB.
    #[error("buffer and message lengths differ")]
    BufferLength,
    /// Every nonce of this key has been used: the peers must set up a new session.
    #[error("no unused nonce is left for this key")]
    NoncesExhausted,
    /// The peer's transform header is malformed, or its sizes contradict the message.
    #[error("malformed transform header")]
    BadHeader,
    /// The peer's message was encrypted with another key, or was modified.
    #[error("decryption failed")]
    Mismatch,
}

/// Allocates for each message of one key a nonce that was never used before (MS-SMB2 3.1.4.3).
///
/// A 64-bit counter fills the first bytes of the nonce; the remaining bytes are zero. Threads may share the
/// allocator.
#[derive(Debug)]
pub struct NonceAllocator {
    next: AtomicU64,
}

impl NonceAllocator {
    /// Creates an allocator for a new key.
    pub fn new() -> Self {
        Self { next: AtomicU64::new(1) }
    }

    /// Returns the next nonce.
    ///
    /// # Errors
    /// [`CryptError::NoncesExhausted`] on every call once the counter has reached its end.
    pub fn allocate(&self) -> Result<MessageNonce, CryptError> {
        let count = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1))
            .map_err(|_| CryptError::NoncesExhausted)?;
        let mut field = [0; NONCE_FIELD_LEN];
        field[..8].copy_from_slice(&count.to_le_bytes());
        Ok(MessageNonce { field })
    }
}

impl Default for NonceAllocator {
    fn default() -> Self {
        Self::new()
    }
}

/// A nonce for one message: not cloneable, and consumed by sealing.
#[derive(Debug)]
pub struct MessageNonce {
    field: [u8; NONCE_FIELD_LEN],
}

impl MessageNonce {
    /// The bytes of the transform header's nonce field.
    pub fn field(&self) -> &[u8; NONCE_FIELD_LEN] {
        &self.field
    }
}

/// Encrypts the messages that we send in one session.
pub struct Sealer {
    key: AeadKey,
    nonces: NonceAllocator,
}

impl Sealer {
    /// Creates a sealer for a key that was never used before.
    ///
    /// # Errors
    /// [`CryptError::KeyLength`].
    pub fn new(cipher: Cipher, key: &[u8]) -> Result<Self, CryptError> {
        Ok(Self { key: AeadKey::new(cipher, key)?, nonces: NonceAllocator::new() })
    }

    /// The cipher of this session.
    pub fn cipher(&self) -> Cipher {
        self.key.cipher
    }

    /// Encrypts `message` in place and returns the transform header to send before it.
    ///
    /// # Errors
    /// [`CryptError::NoncesExhausted`], [`CryptError::BufferLength`] beyond 4 GiB; the message is then unchanged.
    pub fn seal_message(
        &self,
        session_id: u64,
        message: &mut [u8],
    ) -> Result<[u8; TRANSFORM_LEN], CryptError> {
        let nonce = self.nonces.allocate()?;
        let mut header = transform_header(&nonce, message.len(), session_id)?;
        let tag = self.seal_in_place(nonce, &header[AAD_OFFSET..], message);
        header[4..AAD_OFFSET].copy_from_slice(&tag);
        Ok(header)
    }

    /// Encrypts the message in `segments`, in order, into `out`, and returns the transform header to send before
    /// it. The segments are not modified, so they may be shared.
    ///
    /// `out` is as long as the message, or [`TAG_LEN`] bytes longer. With GCM and that extra space, two segments (a
    /// header and a payload) are encrypted directly into `out`; the extra bytes are undefined afterwards. A single
    /// segment never needs the extra space. In all other cases the segments are copied to `out` first and encrypted
    /// there while they are in the cache.
    ///
    /// # Errors
    /// The errors of [`seal_message`](Self::seal_message); [`CryptError::BufferLength`] if the lengths differ.
    pub fn seal_message_into(
        &self,
        session_id: u64,
        segments: &[&[u8]],
        out: &mut [u8],
    ) -> Result<[u8; TRANSFORM_LEN], CryptError> {
        let length: usize = segments.iter().map(|segment| segment.len()).sum();
        if out.len() != length && out.len() != length + TAG_LEN {
            return Err(CryptError::BufferLength);
        }
        let nonce = self.nonces.allocate()?;
        let mut header = transform_header(&nonce, length, session_id)?;
        let aad = &header[AAD_OFFSET..];
        let tag = match (segments, &self.key.inner) {
            ([segment], AeadInner::Gcm(key)) => {
                let mut tag = [0; TAG_LEN];
                seal_scatter(key, &nonce, aad, (segment, &mut out[..length]), (&[], &mut tag));
                tag
            }
            ([first, second], AeadInner::Gcm(key)) if out.len() > length => {
                let (first_out, second_out) = out.split_at_mut(first.len());
                seal_scatter(key, &nonce, aad, (first, first_out), (second, second_out));
                second_out[second.len()..].try_into().expect("room for a tag")
            }
            _ => {
                let out = &mut out[..length];
                gather(segments, out);
                self.seal_in_place(nonce, aad, out)
            }
        };
        header[4..AAD_OFFSET].copy_from_slice(&tag);
        Ok(header)
    }

    /// Returns a nonce for [`seal_in_place`](Self::seal_in_place).
    ///
    /// # Errors
    /// [`CryptError::NoncesExhausted`].
    pub fn next_nonce(&self) -> Result<MessageNonce, CryptError> {
        self.nonces.allocate()
    }

    /// Encrypts `message` in place without a transform header. Returns the tag over `message` and `aad`. `nonce`
    /// must come from this sealer's own [`next_nonce`](Self::next_nonce).
    pub fn seal_in_place(&self, nonce: MessageNonce, aad: &[u8], message: &mut [u8]) -> [u8; TAG_LEN] {
        self.key.seal(nonce.field(), aad, message)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("cipher", &self.key.cipher).finish_non_exhaustive()
    }
}

/// Decrypts the messages that the peer sends in one session.
pub struct Opener {
    key: AeadKey,
}

impl Opener {
    /// Creates an opener for the peer's key.
    ///
    /// # Errors
    /// [`CryptError::KeyLength`].
    pub fn new(cipher: Cipher, key: &[u8]) -> Result<Self, CryptError> {
        Ok(Self { key: AeadKey::new(cipher, key)? })
    }

    /// The cipher of this session.
    pub fn cipher(&self) -> Cipher {
        self.key.cipher
    }

    /// Decrypts in place the message that followed `header`. The caller has already found the session by the header's
    /// session id.
    ///
    /// # Errors
    /// [`CryptError::BadHeader`] if the header is not a transform header, lacks the "encrypted" flag, or announces
    /// another length than that of `message`. [`CryptError::Mismatch`] if the tag is wrong. In both cases `message`
    /// is not plaintext and must be discarded.
    // MS-SMB2 3.3.5.2.1.1, 3.2.5.1.1.1
    pub fn open_message(&self, header: &[u8; TRANSFORM_LEN], message: &mut [u8]) -> Result<(), CryptError> {
        check_transform(header, message.len())?;
        self.key.open(&nonce_field(header), &header[AAD_OFFSET..], &header[4..AAD_OFFSET], message)
    }

    /// Decrypts the message in `segments`, in order, into `out`, which has the same total length.
    ///
    /// # Errors
    /// The errors of [`open_message`](Self::open_message), and [`CryptError::BufferLength`].
    pub fn open_message_into(
        &self,
        header: &[u8; TRANSFORM_LEN],
        segments: &[&[u8]],
        out: &mut [u8],
    ) -> Result<(), CryptError> {
        if segments.iter().map(|s| s.len()).sum::<usize>() != out.len() {
            return Err(CryptError::BufferLength);
        }
        check_transform(header, out.len())?;
        let (tag, aad) = (&header[4..AAD_OFFSET], &header[AAD_OFFSET..]);
        match (segments, &self.key.inner) {
            ([segment], AeadInner::Gcm(key)) => key
                .open_separate_gather(gcm_nonce(&nonce_field(header)), Aad::from(aad), segment, tag, out)
                .map_err(|_| CryptError::Mismatch),
            _ => {
                gather(segments, out);
                self.key.open(&nonce_field(header), aad, tag, out)
            }
        }
    }

    /// Verifies `tag` over `aad` and `message`, and decrypts `message` in place, without a transform header.
    ///
    /// # Errors
    /// [`CryptError::Mismatch`]; `message` is then not plaintext.
    pub fn open_in_place(
        &self,
        nonce: &[u8; NONCE_FIELD_LEN],
        aad: &[u8],
        tag: &[u8; TAG_LEN],
        message: &mut [u8],
    ) -> Result<(), CryptError> {
        self.key.open(nonce, aad, tag, message)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("cipher", &self.key.cipher).finish_non_exhaustive()
    }
}

fn nonce_field(header: &[u8; TRANSFORM_LEN]) -> [u8; NONCE_FIELD_LEN] {
    let mut field = [0; NONCE_FIELD_LEN];
    field.copy_from_slice(&header[AAD_OFFSET..AAD_OFFSET + NONCE_FIELD_LEN]);
    field
}

/// Builds a transform header with a zero tag.
// MS-SMB2 2.2.41
fn transform_header(
    nonce: &MessageNonce,
    message_len: usize,
    session_id: u64,
) -> Result<[u8; TRANSFORM_LEN], CryptError> {
    let message_len = u32::try_from(message_len).map_err(|_| CryptError::BufferLength)?;
    let mut header = [0; TRANSFORM_LEN];
    header[..4].copy_from_slice(&TRANSFORM_PROTOCOL_ID);
    header[20..36].copy_from_slice(nonce.field());
    header[36..40].copy_from_slice(&message_len.to_le_bytes());
    header[42..44].copy_from_slice(&FLAGS_ENCRYPTED.to_le_bytes());
    header[44..].copy_from_slice(&session_id.to_le_bytes());
    Ok(header)
}

// MS-SMB2 3.3.5.2.1.1
fn check_transform(header: &[u8; TRANSFORM_LEN], message_len: usize) -> Result<(), CryptError> {
    let announced = u32::from_le_bytes([header[36], header[37], header[38], header[39]]);
    let flags = u16::from_le_bytes([header[42], header[43]]);
    if header[..4] != TRANSFORM_PROTOCOL_ID
        || flags != FLAGS_ENCRYPTED
        || u32::try_from(message_len).ok() != Some(announced)
    {
        return Err(CryptError::BadHeader);
    }
    Ok(())
}

/// Copies `segments` into `out`, which has their total length.
fn gather(segments: &[&[u8]], out: &mut [u8]) {
    let mut at = 0;
    for segment in segments {
        out[at..at + segment.len()].copy_from_slice(segment);
        at += segment.len();
    }
}

#[cfg(test)]
mod tests;
