//! AES-128-CMAC (RFC 4493) over a scattered message, without an allocation.
//!
//! CMAC is AES in CBC mode, of which only the last block is used, with one of two subkeys added to the last block of the
//! message. The library's own CMAC allocates a context for each message. Here its CBC encrypts a copy of the message,
//! [`CHUNK`] bytes at a time, which stay in the processor's cache. The time is that of AES one block after the other,
//! whatever the implementation: `examples/signing_speed.rs` compares both.

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use zeroize::Zeroize;

type Block = [u8; BLOCK];

const BLOCK: usize = 16;
/// Bytes that are encrypted at a time.
const CHUNK: usize = 1024;
/// R_128 of RFC 4493 section 2.3: the polynomial of the field.
const POLYNOMIAL: u128 = 0x87;

pub(super) struct CmacKey {
    cbc: EncryptingKey,
    /// K1 and K2 of RFC 4493 section 2.3: for a last block that is complete, and for one that is not.
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

    /// The tag of `parts`, one after the other.
    // RFC 4493 section 2.4
    pub(super) fn tag<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Block {
        let (mut chunk, mut filled, mut state) = ([0; CHUNK], 0, Block::default());
        for mut part in parts {
            while !part.is_empty() {
                // The last block of the message stays for the end.
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

    /// Encrypts whole blocks behind the block `state`; returns the last one.
    fn encrypt(&self, blocks: &mut [u8], state: Block) -> Block {
        self.cbc
            .less_safe_encrypt(blocks, EncryptionContext::Iv128(state.into()))
            .expect("whole blocks and a block before them");
        *blocks.last_chunk().expect("a block at least")
    }
}

impl Drop for CmacKey {
    fn drop(&mut self) {
        // Knowledge of them permits forgery. The library wipes its own key.
        self.subkeys.zeroize();
    }
}

/// Twice the element of the field, in constant time.
fn doubled(element: u128) -> u128 {
    (element << 1) ^ ((element >> 127) * POLYNOMIAL)
}
