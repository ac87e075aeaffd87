//! AES-128-CMAC (RFC 4493) over a scattered message, without an allocation.
//!
//! CMAC is the last block of AES in CBC mode, where one of two subkeys is added to the last block of the message.
//! The library's own CMAC allocates a context for each message. This one passes a copy of the message to the
//! library's CBC, [`CHUNK`] bytes at a time, which stay in the processor's cache. CBC is sequential, so the speed
//! is that of AES one block after the other. `examples/signing_speed.rs` compares both.

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use zeroize::Zeroize;

type Block = [u8; BLOCK];

const BLOCK: usize = 16;
/// Number of bytes encrypted in one call.
const CHUNK: usize = 1024;
/// R_128 of RFC 4493 section 2.3: the polynomial of the field.
const POLYNOMIAL: u128 = 0x87;

pub(super) struct CmacKey {
    cbc: EncryptingKey,
    /// K1 and K2 of RFC 4493 section 2.3: for a complete and for an incomplete last block.
    subkeys: [Block; 2],
}

impl CmacKey {
    // RFC 4493 section 2.3
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let unbound = UnboundCipherKey::new(&AES_128, key).expect("16 bytes are an AES-128 key");
        let cbc = EncryptingKey::cbc(unbound).expect("AES-128 has this mode");
        let mut cipher = Self { cbc, subkeys: [Block::default(); 2] };
        let mut l = Block::default();
        cipher.encrypt(&mut l, Block::default());
        let first = doubled(u128::from_be_bytes(l));
        cipher.subkeys = [first.to_be_bytes(), doubled(first).to_be_bytes()];
        l.zeroize();
        cipher
    }

    /// Returns the tag of the concatenation of `parts`.
    // RFC 4493 section 2.4
    pub(super) fn tag<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Block {
        let (mut chunk, mut filled, mut state) = ([0; CHUNK], 0, Block::default());
        for mut part in parts {
            while !part.is_empty() {
                // Keeps the last block of the message for the end.
                if filled == CHUNK {
                    state = self.encrypt(&mut chunk, state);
                    filled = 0;
                }
                let (now, later) = part.split_at(part.len().min(CHUNK - filled));
                chunk[filled..filled + now.len()].copy_from_slice(now);
                filled += now.len();
                part = later;
            }
        }
        let end = filled.next_multiple_of(BLOCK).max(BLOCK);
        let subkey = if filled == end {
            &self.subkeys[0]
        } else {
            chunk[filled..end].fill(0);
            chunk[filled] = 0x80;
            &self.subkeys[1]
        };
        chunk[end - BLOCK..end].iter_mut().zip(subkey).for_each(|(byte, key)| *byte ^= key);
        self.encrypt(&mut chunk[..end], state)
    }

    /// Encrypts whole blocks with `state` as the preceding ciphertext block; returns the last block.
    fn encrypt(&self, blocks: &mut [u8], state: Block) -> Block {
        self.cbc
            .less_safe_encrypt(blocks, EncryptionContext::Iv128(state.into()))
            .expect("whole blocks and a block before them");
        *blocks.last_chunk().expect("a block at least")
    }
}

impl Drop for CmacKey {
    fn drop(&mut self) {
        // An attacker who knows the subkeys could forge signatures. The library wipes its own key.
        self.subkeys.zeroize();
    }
}

/// Doubles an element of the field, in constant time.
fn doubled(element: u128) -> u128 {
    (element << 1) ^ ((element >> 127) * POLYNOMIAL)
}
