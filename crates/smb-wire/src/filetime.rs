//! FILETIME (MS-DTYP 2.3.3): 100-nanosecond ticks since 1601-01-01 UTC.

use crate::WireError;
use crate::cursor::{Field, Reader};

/// Seconds from 1601-01-01 to 1970-01-01.
const UNIX_EPOCH_SECONDS: i64 = 11_644_473_600;
const TICKS_PER_SECOND: i64 = 10_000_000;

/// A FILETIME in ticks of 100 ns.
///
/// In SET_INFO, 0 means "leave unchanged", -1 "stop implicit updates" and -2 "resume implicit updates" (MS-FSCC
/// 2.4). Elsewhere 0 means "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime(pub u64);

impl FileTime {
    /// Not set, or leave unchanged.
    pub const ZERO: Self = Self(0);
    /// SET_INFO: operations on this handle no longer update the time.
    pub const FREEZE: Self = Self(u64::MAX);
    /// SET_INFO: operations on this handle update the time again.
    pub const THAW: Self = Self(u64::MAX - 1);

    /// Converts seconds since 1970 (may be negative) and nanoseconds (0 to 999,999,999), rounding down to 100 ns.
    /// Times outside the range of the type are clamped.
    pub const fn from_unix(seconds: i64, nanos: u32) -> Self {
        let Some(since_1601) = seconds.checked_add(UNIX_EPOCH_SECONDS) else {
            return Self(i64::MAX as u64);
        };
        if since_1601 < 0 {
            return Self(0);
        }
        match since_1601.checked_mul(TICKS_PER_SECOND) {
            Some(ticks) => match ticks.checked_add((nanos / 100) as i64) {
                Some(ticks) => Self(ticks as u64),
                None => Self(i64::MAX as u64),
            },
            None => Self(i64::MAX as u64),
        }
    }

    /// Returns seconds since 1970 (negative before) and nanoseconds (0 to 999,999,900).
    pub const fn to_unix(self) -> (i64, u32) {
        let seconds = (self.0 / TICKS_PER_SECOND as u64) as i64 - UNIX_EPOCH_SECONDS;
        (seconds, (self.0 % TICKS_PER_SECOND as u64) as u32 * 100)
    }

    /// Whether the value is a time, not zero or one of the markers of SET_INFO.
    pub const fn is_time(self) -> bool {
        self.0 != 0 && self.0 != Self::FREEZE.0 && self.0 != Self::THAW.0
    }
}

impl Field for FileTime {
    const SIZE: usize = 8;
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self(r.get()?))
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_known_from_elsewhere() {
        assert_eq!(FileTime::from_unix(0, 0).0, 116_444_736_000_000_000);
        // 2020-02-02T02:02:02.123456700Z
        let time = FileTime::from_unix(1_580_608_922, 123_456_789);
        assert_eq!(time.0, 132_250_825_221_234_567);
        assert_eq!(time.to_unix(), (1_580_608_922, 123_456_700));
        assert_eq!(FileTime(0).to_unix(), (-11_644_473_600, 0));
        assert_eq!(FileTime::from_unix(-1, 500_000_000).to_unix(), (-1, 500_000_000));
    }

    #[test]
    fn times_outside_are_clamped() {
        assert_eq!(FileTime::from_unix(i64::MIN, 0), FileTime(0));
        assert_eq!(FileTime::from_unix(-11_644_473_601, 0), FileTime(0));
        assert_eq!(FileTime::from_unix(i64::MAX, 999_999_999), FileTime(i64::MAX as u64));
    }

    #[test]
    fn markers_are_no_times() {
        for marker in [FileTime::ZERO, FileTime::FREEZE, FileTime::THAW] {
            assert!(!marker.is_time());
        }
        assert!(FileTime::from_unix(0, 0).is_time());
    }
}
