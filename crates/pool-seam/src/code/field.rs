//! GF(2^8) with the polynomial 0x11d; the powers of 2 are all its elements except 0.

mod wide;

const EXP: [u8; 255] = exp();
const LOG: [u8; 256] = log();

const fn exp() -> [u8; 255] {
    let mut table = [0; 255];
    let (mut x, mut i) = (1_u16, 0);
    while i < 255 {
        table[i] = x as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= 0x11d;
        }
        i += 1;
    }
    table
}

const fn log() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// 2 to the power of `n`.
pub(super) fn power(n: usize) -> u8 {
    EXP[n % 255]
}

/// The inverse of `x`, which is not 0.
pub(super) fn inverse(x: u8) -> u8 {
    debug_assert!(x != 0);
    EXP[(255 - LOG[usize::from(x)] as usize) % 255]
}

/// The product of two elements.
const fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[(LOG[a as usize] as usize + LOG[b as usize] as usize) % 255]
}

/// Multiplies each of eight bytes by 2.
fn double(x: u64) -> u64 {
    let over = (x >> 7) & 0x0101_0101_0101_0101;
    let shifted = (x & 0x7f7f_7f7f_7f7f_7f7f) << 1;
    // Adds 0x1d to each byte whose top bit was shifted out.
    shifted ^ over ^ (over << 2) ^ (over << 3) ^ (over << 4)
}

/// Bytes that are processed together.
const BLOCK: usize = 64;

/// Adds `by` times each byte of `from` to those of `to`.
///
/// # Panics
/// If the lengths differ or are not multiples of 8.
pub(super) fn mul_add(to: &mut [u8], from: &[u8], by: u8) {
    assert!(to.len() == from.len() && to.len().is_multiple_of(8));
    let (blocks, rest) = to.as_chunks_mut::<BLOCK>();
    let (from_blocks, from_rest) = from.as_chunks::<BLOCK>();
    if !wide::mul_add(blocks, from_blocks, by) {
        for (to, from) in blocks.iter_mut().zip(from_blocks) {
            words::<{ BLOCK / 8 }>(to, from, by);
        }
    }
    for (to, from) in rest.chunks_exact_mut(8).zip(from_rest.chunks_exact(8)) {
        words::<1>(to, from, by);
    }
}

fn words<const N: usize>(to: &mut [u8], from: &[u8], by: u8) {
    let word = |bytes: &[u8], i: usize| u64::from_le_bytes(std::array::from_fn(|b| bytes[i * 8 + b]));
    let mut x: [u64; N] = std::array::from_fn(|i| word(from, i));
    let mut sum: [u64; N] = std::array::from_fn(|i| word(to, i));
    let mut by = by;
    loop {
        if by & 1 != 0 {
            sum.iter_mut().zip(&x).for_each(|(s, x)| *s ^= x);
        }
        by >>= 1;
        if by == 0 {
            break;
        }
        x.iter_mut().for_each(|x| *x = double(*x));
    }
    for (bytes, sum) in to.chunks_exact_mut(8).zip(sum) {
        bytes.copy_from_slice(&sum.to_le_bytes());
    }
}

/// Long multiplication.
#[cfg(test)]
pub(super) fn naive(a: u8, b: u8) -> u8 {
    let (mut product, mut a) = (0_u16, u16::from(a));
    for bit in 0..8 {
        if b & 1 << bit != 0 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= 0x11d;
        }
    }
    product as u8
}

#[cfg(test)]
mod tests;
