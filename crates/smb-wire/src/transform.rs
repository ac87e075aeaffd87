//! SMB2 TRANSFORM_HEADER (MS-SMB2 2.2.41), which precedes an encrypted message.
//!
//! ```text
//! 0 FD 'S' 'M' 'B'   4 Signature (16)   20 Nonce (16)   36 OriginalMessageSize   40 reserved   42 Flags   44 SessionId
//! ```

use std::ops::Range;

use crate::WireError;
use crate::cursor::{Field, Reader};
use crate::macros::record;

/// The protocol identifier of an encrypted message.
pub const TRANSFORM_PROTOCOL_ID: [u8; 4] = [0xFD, b'S', b'M', b'B'];
/// Length of the header in bytes; the ciphertext follows.
pub const TRANSFORM_LEN: usize = 52;
/// The authenticated part of the header: from the nonce to the end (MS-SMB2 3.1.4.3).
pub const TRANSFORM_AAD: Range<usize> = 20..TRANSFORM_LEN;
/// Range of the signature.
pub const TRANSFORM_SIGNATURE: Range<usize> = 4..20;
/// Flags of an encrypted message (before SMB 3.1.1 the field is EncryptionAlgorithm, and 1 is AES-128-CCM).
pub const TRANSFORM_ENCRYPTED: u16 = 1;

record! {
    /// The header, without its protocol identifier.
    pub struct TransformFields [48] {
        /// Authentication tag.
        pub signature: [u8; 16],
        /// The first 11 (CCM) or 12 (GCM) bytes are the nonce, the others zero.
        pub nonce: [u8; 16],
        /// Length of the message in bytes.
        pub original_message_size: u32 => pad 2,
        /// [`TRANSFORM_ENCRYPTED`].
        pub flags: u16,
        /// The session whose key is used.
        pub session_id: u64,
    }
}

/// Whether `bytes` start with a transform header.
pub fn is_transform(bytes: &[u8]) -> bool {
    bytes.starts_with(&TRANSFORM_PROTOCOL_ID)
}

impl TransformFields {
    /// Decodes a header with its protocol identifier at the start of `bytes`. Checks that the ciphertext after it
    /// has the announced length, and that the flags are [`TRANSFORM_ENCRYPTED`].
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode_header(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "TRANSFORM_HEADER");
        if r.array::<4>()? != TRANSFORM_PROTOCOL_ID {
            return Err(WireError::malformed("TRANSFORM_HEADER protocol identifier"));
        }
        let fields: Self = r.get()?;
        if fields.flags != TRANSFORM_ENCRYPTED {
            return Err(WireError::malformed("TRANSFORM_HEADER flags"));
        }
        let have = bytes.len() - TRANSFORM_LEN;
        if fields.original_message_size as usize > have {
            let need = TRANSFORM_LEN.saturating_add(fields.original_message_size as usize);
            return Err(WireError::Truncated { what: "encrypted message", need, have: bytes.len() });
        }
        Ok(fields)
    }

    /// Appends the header with its protocol identifier to `out`.
    pub fn encode_header(&self, out: &mut Vec<u8>) {
        TRANSFORM_PROTOCOL_ID.put(out);
        self.put(out);
    }
}
