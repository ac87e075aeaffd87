//! CRC32C of blocks that are not in this processor's cache.
//!
//! Data from a disk is in memory, or in the cache of the processor that copied it; fetching it takes most of
//! the time of its CRC. Carry-less multiplication of 64 bytes at a time is fast enough for that (`crc-fast`,
//! if the processor has AVX-512). On other processors each step depends on the previous one, so a single CRC
//! has few fetches outstanding. Four CRCs therefore run side by side here, of four blocks or of the quarters
//! of one, which keeps four streams of fetches outstanding.
//!
//! **Unsafe** only to call code for instructions that not every processor has, after checking for them.
#![allow(unsafe_code)]

/// Bytes of a block.
pub const CRC_BLOCK: usize = 4096;

/// CRC32C (RFC 3720) of a block.
pub fn crc32c_of_block(block: &[u8; CRC_BLOCK]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if x86::is_best() {
        // SAFETY: the processor has the instructions, as just checked.
        return unsafe { x86::one(block) };
    }
    crc_fast::crc32_iscsi(block)
}

/// CRC32C of each of four blocks; can take less than four times the time of one.
pub fn crc32c_of_four(blocks: &[[u8; CRC_BLOCK]; 4]) -> [u32; 4] {
    #[cfg(target_arch = "x86_64")]
    if x86::is_best() {
        // SAFETY: as above.
        return unsafe { x86::four(blocks) };
    }
    blocks.each_ref().map(|block| crc_fast::crc32_iscsi(block))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64};

    use super::CRC_BLOCK;

    /// Bytes of a word.
    const WORD: usize = 8;
    const QUARTER: usize = CRC_BLOCK / 4;
    const LAST: usize = QUARTER / WORD - 1;

    /// Whether the processor has these instructions but not the wider ones.
    pub(super) fn is_best() -> bool {
        is_able() && !(is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("vpclmulqdq"))
    }

    pub(super) fn is_able() -> bool {
        is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
    }

    #[target_feature(enable = "sse4.2")]
    fn step(crc: u64, word: [u8; WORD]) -> u64 {
        _mm_crc32_u64(crc, u64::from_le_bytes(word))
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn four(blocks: &[[u8; CRC_BLOCK]; 4]) -> [u32; 4] {
        let [a, b, c, d] = blocks.each_ref().map(|block| block.as_chunks::<WORD>().0);
        let mut crcs = [u64::from(u32::MAX); 4];
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            crcs = [step(crcs[0], *a), step(crcs[1], *b), step(crcs[2], *c), step(crcs[3], *d)];
        }
        crcs.map(|crc| !(crc as u32))
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn one(block: &[u8; CRC_BLOCK]) -> u32 {
        let (quarters, _) = block.as_chunks::<QUARTER>();
        let [a, b, c, d] = std::array::from_fn(|n| quarters[n].as_chunks::<WORD>().0);
        let mut crcs = [u64::from(u32::MAX), 0, 0, 0];
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d).take(LAST) {
            crcs = [step(crcs[0], *a), step(crcs[1], *b), step(crcs[2], *c), step(crcs[3], *d)];
        }
        let ends = [step(crcs[0], a[LAST]), step(crcs[1], b[LAST]), step(crcs[2], c[LAST])];
        // The last word is combined with the CRC of the quarters before, advanced to its place.
        let before =
            over::<{ 3 * QUARTER }>(ends[0]) ^ over::<{ 2 * QUARTER }>(ends[1]) ^ over::<QUARTER>(ends[2]);
        let last = u64::from_le_bytes(d[LAST]) ^ before;
        !(_mm_crc32_u64(crcs[3], last) as u32)
    }

    /// The value to add to the last word of a block of this many bytes, in place of starting with this CRC.
    /// It is the product of the CRC and x^(8 · bytes - 64); the step adds a factor of x^64, less the x^31 by
    /// which a product of reflected numbers is short.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn over<const BYTES: usize>(crc: u64) -> u64 {
        let power = const { power_of_x(BYTES * 8 - 33) };
        let (crc, power) = (_mm_cvtsi32_si128(crc as i32), _mm_cvtsi32_si128(power as i32));
        _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(crc, power)) as u64
    }

    /// x^n modulo CRC32C's polynomial, the highest bit the coefficient of x^0.
    const fn power_of_x(n: usize) -> u32 {
        const POLYNOMIAL: u32 = 0x82f6_3b78;
        let (mut power, mut i) = (1 << 31, 0);
        while i < n {
            power = if power & 1 == 0 { power >> 1 } else { power >> 1 ^ POLYNOMIAL };
            i += 1;
        }
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn naive(bytes: &[u8]) -> u32 {
        let bit = |crc: u32, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x82f6_3b78 };
        !bytes.iter().fold(u32::MAX, |crc, b| (0..8).fold(crc ^ u32::from(*b), bit))
    }

    #[test]
    fn fast_crcs_equal_the_bitwise_crc() {
        // RFC 3720, B.4.
        assert_eq!(naive(&[0; 32]), 0x8a91_36aa);
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 56) as u8
        };
        for round in 0..8 {
            let mut blocks = [[0; CRC_BLOCK]; 4];
            // Few non-zero bytes, so that a misplaced part shows.
            let bytes = blocks.as_flattened_mut();
            bytes.iter_mut().step_by(1 << (2 * round % 13)).for_each(|b| *b = next());
            let expected = blocks.each_ref().map(|b| naive(b));
            let found = (crc32c_of_four(&blocks), crc32c_of_block(&blocks[3]));
            assert_eq!(found, (expected, expected[3]), "round {round}");
            #[cfg(target_arch = "x86_64")]
            if x86::is_able() {
                // SAFETY: the processor has the instructions, as just checked.
                let found = unsafe { (x86::four(&blocks), x86::one(&blocks[3])) };
                assert_eq!(found, (expected, expected[3]), "round {round}, ours");
            }
        }
    }
}
