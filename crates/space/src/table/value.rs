//! The value of a unit, of one content and of all contents of its set.

use smallvec::SmallVec;

/// The value of a unit of one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The unit reads as zeros.
    Unwritten,
    /// The unit's bytes have this checksum.
    Written(u32),
    /// No copy has the unit; only bytes with this checksum restore it. The checksum of a parity may be invalid: the
    /// parity is then recomputed.
    Lost(u32),
    /// No copy has the unit, and its checksum is lost.
    LostWithoutSum,
    /// The block of this content is not loaded, and no entry has the value.
    Unknown {
        /// Whether the bitmaps of the other blocks declare it written.
        written: bool,
    },
}

/// One value for each content of the set.
pub type Values = SmallVec<[Value; 1]>;

impl Value {
    /// Whether it is unwritten, according to the bitmaps.
    pub fn is_zeros(&self) -> bool {
        matches!(self, Value::Unwritten | Value::Unknown { written: false })
    }

    /// The checksum of the unit's bytes, if known.
    pub(super) fn sum(&self) -> Option<u32> {
        match *self {
            Value::Written(sum) | Value::Lost(sum) => Some(sum),
            _ => None,
        }
    }

    /// Whether the bitmap of its column declares it written.
    pub(super) fn is_written(&self) -> bool {
        matches!(self, Value::Written(_) | Value::Lost(_) | Value::Unknown { written: true })
    }
}

/// Whether a unit, or any unit of a stripe, was written since it was discarded.
pub(super) fn is_written(values: &[Value]) -> bool {
    values.iter().any(|value| value.is_written() || *value == Value::LostWithoutSum)
}

pub(super) fn value_of(written: bool, lost: bool, sum: u32) -> Value {
    match (written, lost) {
        (false, false) => Value::Unwritten,
        (true, false) => Value::Written(sum),
        (true, true) => Value::Lost(sum),
        (false, true) => Value::LostWithoutSum,
    }
}

/// Invariant 2.
pub(super) fn normalize(values: &mut [Value], data: usize) {
    let (data, parities) = values.split_at_mut(data);
    let written = data.iter().any(Value::is_written);
    let is_lost = data.contains(&Value::LostWithoutSum);
    for parity in parities {
        *parity = match *parity {
            Value::Unknown { .. } => Value::Unknown { written },
            Value::LostWithoutSum | Value::Unwritten if written => Value::Lost(0),
            value if written => value,
            _ if is_lost => Value::LostWithoutSum,
            _ => Value::Unwritten,
        };
    }
}
