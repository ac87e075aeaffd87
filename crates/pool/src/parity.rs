//! Parity of a stripe: P is the exclusive or of its data units, Q their Reed-Solomon sum over GF(2^8). Pure.
//!
//! With `D0..Dk` the data units, `P = D0 + D1 + ... + Dk` and `Q = g^0 D0 + g^1 D1 + ... + g^k Dk`, where `+` is exclusive or, `g = 2` and the field's
//! polynomial is `x^8 + x^4 + x^3 + x^2 + 1`. Both are linear, so a change of a unit changes them by the difference alone, and any two units
//! that are lost are two equations with two unknowns. A unit that was never written is zeros.
//!
//! Bytes are handled eight to a word, without tables, so that the compiler makes vectors of it.

mod field;
#[cfg(test)]
mod tests;

use field::{inverse, power};

/// The most parity units of a stripe.
pub const PARITY_MAX: usize = 2;

/// The most data units of a stripe.
pub const DATA_MAX: usize = 16;

/// The factor of data column `column` in parity `parity`.
fn factor(parity: usize, column: usize) -> u8 {
    power(parity * column)
}

/// Adds what a data column has, or the difference between new and old, to parity unit `parity`.
///
/// # Panics
/// When the lengths differ, or are not multiples of 8.
pub fn add(parity: usize, column: usize, bytes: &[u8], to: &mut [u8]) {
    field::mul_add(to, bytes, factor(parity, column));
}

/// The parity units of a stripe; `None` is zeros.
pub fn encode(parity: usize, length: usize, data: &[Option<&[u8]>]) -> Vec<Vec<u8>> {
    let mut out = vec![vec![0; length]; parity];
    for (j, to) in out.iter_mut().enumerate() {
        for (i, bytes) in data.iter().enumerate() {
            if let Some(bytes) = bytes {
                add(j, i, bytes, to);
            }
        }
    }
    out
}

/// Fills in the missing units of a stripe: `data` data columns, then the parity columns. False, with nothing changed, when too few are there.
pub fn recover(data: usize, length: usize, columns: &mut [Option<Vec<u8>>]) -> bool {
    let parity = columns.len() - data;
    let missing: Vec<usize> = (0..data).filter(|i| columns[*i].is_none()).collect();
    let have: Vec<usize> = (0..parity).filter(|j| columns[data + j].is_some()).collect();
    if missing.len() > have.len() {
        return false;
    }
    // What the missing ones together are in a parity unit.
    let rest = |j: usize, columns: &[Option<Vec<u8>>]| {
        let mut rest = columns[data + j].clone().unwrap_or_else(|| vec![0; length]);
        for (i, bytes) in columns[..data].iter().enumerate() {
            if let Some(bytes) = bytes {
                add(j, i, bytes, &mut rest);
            }
        }
        rest
    };
    match missing[..] {
        [] => {}
        [x] => {
            let j = have[0];
            let mut found = vec![0; length];
            field::mul_add(&mut found, &rest(j, columns), inverse(factor(j, x)));
            columns[x] = Some(found);
        }
        [x, y] => {
            // a = Dx + Dy, b = g^x Dx + g^y Dy: so (g^x + g^y) Dx = b + g^y a.
            let (a, mut b) = (rest(have[0], columns), rest(have[1], columns));
            let (fx, fy) = (factor(have[1], x), factor(have[1], y));
            field::mul_add(&mut b, &a, fy);
            let mut first = vec![0; length];
            field::mul_add(&mut first, &b, inverse(fx ^ fy));
            let mut second = a;
            field::mul_add(&mut second, &first, 1);
            (columns[x], columns[y]) = (Some(first), Some(second));
        }
        _ => return false,
    }
    for j in (0..parity).filter(|j| columns[data + j].is_none()).collect::<Vec<_>>() {
        let mut whole = vec![0; length];
        for (i, bytes) in columns[..data].iter().enumerate() {
            if let Some(bytes) = bytes {
                add(j, i, bytes, &mut whole);
            }
        }
        columns[data + j] = Some(whole);
    }
    true
}
