//! Little-endian numbers in bytes from a disk, and the CRC of a block.

use crc_fast::{CrcAlgorithm, Digest};

/// The offset of the CRC in a block that has one: four bytes after the magic.
const CRC_AT: usize = 8;

/// The bytes are not a valid encoding, although their checksum may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not valid metadata of this version")]
pub struct Malformed;

/// Puts a block's CRC in its place.
pub(crate) fn seal(block: &mut [u8]) {
    let crc = crc_of(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// CRC32C of a block with the CRC's own bytes as zeros.
pub(crate) fn crc_of(block: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&block[CRC_AT + 4..]);
    digest.finalize() as u32
}

/// The bytes that are not decoded yet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A position or a sequence.
    pub(crate) fn counter(&mut self) -> Result<u64, Malformed> {
        self.u64().and_then(|value| if value < crate::log::COUNTER_MAX { Ok(value) } else { Err(Malformed) })
    }

    /// Reads reserved bytes, which must be zeros: each value has one encoding.
    pub(crate) fn zeros(&mut self, bytes: usize) -> Result<(), Malformed> {
        if is_zeros(self.take(bytes)?) { Ok(()) } else { Err(Malformed) }
    }

    /// Checks that no bytes remain.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

pub(crate) fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Changes a byte and recomputes the CRC, so that the other checks are reached.
#[cfg(test)]
pub(crate) fn resealed(mut block: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    block[at] = byte;
    seal(&mut block);
    block
}
