//! The footer of a fixed VHD: 512 bytes behind the data (Virtual Hard Disk Image Format Specification, "Hard Disk
//! Footer Format"). Numbers are big-endian; all other bytes are zero.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `conectix` |
//! | 8 | 4 | features: 2, the bit that is always set |
//! | 12 | 4 | format version 1.0 |
//! | 16 | 8 | offset of the next structure: all ones, there is none |
//! | 28 | 4 | creator: `win `, whose readers take the size from the next two numbers and not from the geometry |
//! | 36 | 4 | the creator's host: `Wi2k` |
//! | 40 | 8 | size at creation, in bytes |
//! | 48 | 8 | size, in bytes |
//! | 56 | 4 | geometry: cylinders (2), heads (1), sectors (1) |
//! | 60 | 4 | kind: 2, fixed |
//! | 64 | 4 | the complement of the sum of all other bytes |
//! | 68 | 16 | unique id: volume and number of the virtual disk |

use crate::FileKey;

/// Bytes of a footer.
pub(super) const FOOTER: u64 = 512;
/// The largest virtual disk that the format supports, in bytes.
pub(super) const SIZE_MAX: u64 = 2040 << 30;

/// The footer of a virtual disk of `size` bytes.
pub(super) fn footer(id: FileKey, size: u64) -> [u8; FOOTER as usize] {
    let mut out = [0; FOOTER as usize];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"conectix");
    put(8, &2u32.to_be_bytes());
    put(12, &0x0001_0000u32.to_be_bytes());
    put(16, &u64::MAX.to_be_bytes());
    put(28, b"win ");
    put(36, b"Wi2k");
    put(40, &size.to_be_bytes());
    put(48, &size.to_be_bytes());
    put(56, &geometry(size));
    put(60, &2u32.to_be_bytes());
    put(68, &(id.volume as u64).to_be_bytes());
    put(76, &id.number().to_be_bytes());
    let sum: u32 = out.iter().map(|b| u32::from(*b)).sum();
    out[64..68].copy_from_slice(&(!sum).to_be_bytes());
    out
}

/// Whether a file that begins with these bytes is a dynamic or differencing VHD, which begins with a copy of its footer.
pub(super) fn is_dynamic(start: &[u8]) -> bool {
    start.starts_with(b"conectix") && matches!(start.get(60..64), Some([0, 0, 0, 3 | 4]))
}

/// Cylinders, heads and sectors (the specification's appendix "CHS Calculation").
fn geometry(size: u64) -> [u8; 4] {
    let total = (size / 512).min(65_535 * 16 * 255);
    let (heads, sectors) = if total >= 65_535 * 16 * 63 {
        (16, 255)
    } else {
        let heads = (total / 17).div_ceil(1024).max(4);
        match (heads, total / 17) {
            (..=16, tracks) if tracks < heads * 1024 => (heads, 17),
            _ if total / 31 < 16 * 1024 => (16, 31),
            _ => (16, 63),
        }
    };
    let cylinders = (total / sectors / heads) as u16;
    [(cylinders >> 8) as u8, cylinders as u8, heads as u8, sectors as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand for each branch of the algorithm.
    #[test]
    fn the_geometry_is_that_of_the_specification() {
        assert_eq!(geometry(64 << 20), [0x03, 0xc3, 8, 17]);
        assert_eq!(geometry(10 << 30), [0x51, 0x45, 16, 63]);
        assert_eq!(geometry(1 << 41), [0xff, 0xff, 16, 255]);
        assert_eq!(geometry(0), [0, 0, 4, 17]);
    }

    #[test]
    fn the_checksum_is_the_complement_of_the_sum_of_the_other_bytes() {
        let made = footer(FileKey { volume: 5, file: 7 }, 1 << 30);
        let others = made.iter().enumerate().filter(|(at, _)| !(64..68).contains(at));
        let sum: u32 = others.map(|(_, b)| u32::from(*b)).sum();
        assert_eq!(made[64..68], (!sum).to_be_bytes());
        assert_eq!((&made[..8], &made[48..56]), (&b"conectix"[..], &(1u64 << 30).to_be_bytes()[..]));
    }
}
