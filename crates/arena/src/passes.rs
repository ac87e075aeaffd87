//! Passes over payload, counted: how many bytes user space read or wrote, and why. The figure per byte moved is
//! the one that tells whether a path is as short as it should be.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why payload was touched in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Copied from one buffer to another.
    Copy,
    /// Placed into its final buffer from a receive buffer, as a card would place it by DMA.
    Place,
    /// Read for a CRC.
    Crc,
    /// Read for a signature.
    Mac,
    /// Encrypted or decrypted.
    Cipher,
}

/// Bytes touched since the process started, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// See [`Pass::Copy`].
    pub copy: u64,
    /// See [`Pass::Place`].
    pub place: u64,
    /// See [`Pass::Crc`].
    pub crc: u64,
    /// See [`Pass::Mac`].
    pub mac: u64,
    /// See [`Pass::Cipher`].
    pub cipher: u64,
}

static BYTES: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// Counts `bytes` of payload touched for `pass`.
pub fn count(pass: Pass, bytes: usize) {
    BYTES[pass as usize].fetch_add(bytes as u64, Ordering::Relaxed);
}

/// The counts now.
pub fn counts() -> Counts {
    let b = |p: Pass| BYTES[p as usize].load(Ordering::Relaxed);
    Counts {
        copy: b(Pass::Copy),
        place: b(Pass::Place),
        crc: b(Pass::Crc),
        mac: b(Pass::Mac),
        cipher: b(Pass::Cipher),
    }
}
