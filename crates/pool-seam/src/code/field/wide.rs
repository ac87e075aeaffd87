//! Multiplies 32 or 64 bytes at a time, with instructions that not every processor has.
//!
//! * GFNI and AVX-512: a product with a constant is linear in the bits of the other factor, so it is a matrix
//!   of 8 by 8 bits. One instruction applies the matrix to 64 bytes.
//! * AVX2: a byte is the sum of its two halves, and so is its product. Two tables of 16 products each are
//!   looked up for 32 bytes at a time.
//!
//! **Unsafe** only to call code for these instructions, after checking that the processor has them.
#![allow(unsafe_code)]

use super::BLOCK;

/// The instruction sets, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Gfni,
    Avx2,
}

impl Way {
    pub(super) const ALL: [Way; 2] = [Way::Gfni, Way::Avx2];
}

/// Like [`super::mul_add`], for whole blocks. Returns false, and does nothing, if the processor lacks the
/// instructions.
pub(super) fn mul_add(to: &mut [[u8; BLOCK]], from: &[[u8; BLOCK]], by: u8) -> bool {
    Way::ALL.into_iter().any(|way| mul_add_by(way, to, from, by))
}

#[cfg(target_arch = "x86_64")]
pub(super) fn mul_add_by(way: Way, to: &mut [[u8; BLOCK]], from: &[[u8; BLOCK]], by: u8) -> bool {
    match way {
        Way::Gfni if is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512f") => {
            // SAFETY: the processor has the instructions, as just checked.
            unsafe { x86::gfni(to, from, by) };
        }
        Way::Avx2 if is_x86_feature_detected!("avx2") => {
            // SAFETY: as above.
            unsafe { x86::avx2(to, from, by) };
        }
        _ => return false,
    }
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn mul_add_by(_: Way, _: &mut [[u8; BLOCK]], _: &[[u8; BLOCK]], _: u8) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm_set_epi64x, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
        _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
        _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64, _mm512_storeu_si512,
        _mm512_xor_si512,
    };

    use super::super::product;
    use super::BLOCK;

    /// The matrix of each factor. Row `i` computes bit `i` of the product and is byte `7 - i` of the matrix.
    /// Bit `j` of the row is set if bit `j` of the other factor contributes (Intel SDM, GF2P8AFFINEQB).
    static MATRICES: [i64; 256] = {
        let mut all = [0; 256];
        let mut by = 0;
        while by < 256 {
            let (mut rows, mut bit) = ([0_u8; 8], 0);
            while bit < 64 {
                let (i, j) = (bit / 8, bit % 8);
                rows[i] |= (product(by as u8, 1 << j) >> i & 1) << j;
                bit += 1;
            }
            all[by] = i64::from_be_bytes(rows);
            by += 1;
        }
        all
    };

    /// For each factor: its products with 0 to 15, and with 0, 16, ... 240.
    static HALVES: [[[u8; 16]; 2]; 256] = {
        let mut all = [[[0; 16]; 2]; 256];
        let mut by = 0;
        while by < 256 {
            let mut x = 0;
            while x < 16 {
                all[by][0][x] = product(by as u8, x as u8);
                all[by][1][x] = product(by as u8, (x as u8) << 4);
                x += 1;
            }
            by += 1;
        }
        all
    };

    #[target_feature(enable = "gfni,avx512f")]
    pub(super) fn gfni(to: &mut [[u8; BLOCK]], from: &[[u8; BLOCK]], by: u8) {
        let matrix = _mm512_set1_epi64(MATRICES[usize::from(by)]);
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: both are arrays of 64 bytes; the instructions require no alignment.
            let (x, sum) =
                unsafe { (_mm512_loadu_si512(from.as_ptr().cast()), _mm512_loadu_si512(to.as_ptr().cast())) };
            let sum = _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix));
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), sum) };
        }
    }

    /// A register with two copies of 16 products.
    #[target_feature(enable = "avx2")]
    fn table(products: [u8; 16]) -> __m256i {
        let all = u128::from_le_bytes(products);
        _mm256_broadcastsi128_si256(_mm_set_epi64x((all >> 64) as i64, all as i64))
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(to: &mut [[u8; BLOCK]], from: &[[u8; BLOCK]], by: u8) {
        let [low, high] = HALVES[usize::from(by)];
        let (low, high, half) = (table(low), table(high), _mm256_set1_epi8(15));
        let (to, _) = to.as_flattened_mut().as_chunks_mut::<32>();
        for (to, from) in to.iter_mut().zip(from.as_flattened().as_chunks::<32>().0) {
            // SAFETY: both are arrays of 32 bytes; the instructions require no alignment.
            let (x, sum) =
                unsafe { (_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(to.as_ptr().cast())) };
            let lows = _mm256_shuffle_epi8(low, _mm256_and_si256(x, half));
            let highs = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(x), half));
            let sum = _mm256_xor_si256(sum, _mm256_xor_si256(lows, highs));
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), sum) };
        }
    }
}
