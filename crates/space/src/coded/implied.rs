//! Parities that the log stores no payload for, because they can be computed from the other payload of their stripe.
//! (With 4 + 1 columns, a write of whole stripes needs a fifth less of the log.)

use arena::{IoBuf, Pages, Sg};
use pool_seam::UNIT;
use pool_seam::code::Code;

use super::{bits, unit_of_content};
use crate::table::{Table, Value, Values};

/// The parities (bits) that a payload of these contents implies: all data that they cover is in the payload, or
/// zeros.
pub(super) fn implied(code: Code, values: &Values, contents: u32) -> u32 {
    let is_new = |c: usize| contents & 1 << c != 0;
    let follows = |parity: &usize| {
        let covered = || (0..code.data()).filter(|c| code.covers(*parity) & 1 << c != 0);
        matches!(values[*parity], Value::Written(_))
            && covered().any(is_new)
            && covered().all(|c| is_new(c) || values[c].is_zeros())
    };
    bits((code.data()..code.columns()).filter(follows))
}

/// The payload of a stripe that is in the log and not in place, with the implied parities among the `wanted` contents
/// (bits).
pub(super) fn payload(code: Code, table: &Table, unit: usize, wanted: u32) -> Option<(u32, Sg)> {
    let stored = table.redo(unit)?;
    let missing = implied(code, &table.values(unit), stored.0) & !stored.0 & wanted;
    if missing == 0 {
        return Some(stored);
    }
    let made = |parity: usize| {
        let mut sum = Pages::zeros(UNIT as usize);
        let data = (0..code.data()).filter_map(|c| Some((c, unit_of_content(&stored, c)?)));
        data.for_each(|(c, bytes)| code.add(parity - code.data(), c, &bytes, &mut sum));
        IoBuf::from(sum)
    };
    let all = (0..code.columns()).filter_map(|c| match missing & 1 << c {
        0 => unit_of_content(&stored, c),
        _ => Some(made(c)),
    });
    Some((stored.0 | missing, all.collect()))
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn parities_follow_from_all_data_that_they_cover() {
        let (written, zeros, lost) = (Value::Written(1), Value::Unwritten, Value::Lost(1));
        let code = Code::new(4, 1, false);
        let values: Values = smallvec![written; 5];
        assert_eq!(implied(code, &values, 0b1111), 0b10000);
        assert_eq!(implied(code, &values, 0b11111), 0b10000);
        assert_eq!(implied(code, &values, 0b1110), 0, "a unit is in place only");
        let part: Values = smallvec![zeros, written, written, zeros, written];
        assert_eq!(implied(code, &part, 0b0110), 0b10000);
        assert_eq!(implied(code, &part, 0), 0);
        let of_lost: Values = smallvec![lost, written, written, written, written];
        assert_eq!(implied(code, &of_lost, 0b1110), 0);
        let without: Values = smallvec![written, written, written, written, Value::LostWithoutSum];
        assert_eq!(implied(code, &without, 0b1111), 0);
        // Two groups of two, each with a parity, and one over all.
        let code = Code::new(4, 2, true);
        let values: Values = smallvec![written; 7];
        assert_eq!(implied(code, &values, 0b1111), 0b111_0000);
        assert_eq!(implied(code, &values, 0b0011), 0b001_0000);
        assert_eq!(implied(code, &values, 0b0111), 0b001_0000);
    }
}
