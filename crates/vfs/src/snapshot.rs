//! The time at which a snapshot of a tree was taken.

use std::fmt;

use env::calendar::{SECONDS_OF_DAY, date, days};

use crate::Timestamp;

/// The time of a snapshot, in whole seconds. As text it is the token by which clients name one: `@GMT-YYYY.MM.DD-HH.MM.SS`,
/// in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotTime {
    /// Since 1970-01-01 UTC.
    seconds: i64,
}

const PREFIX: &str = "@GMT-";

impl SnapshotTime {
    /// The second that `time` lies in.
    pub fn at(time: Timestamp) -> SnapshotTime {
        SnapshotTime { seconds: time.seconds }
    }

    /// Since 1970-01-01 UTC.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Reads a token; `None` for any other text.
    pub fn parse(token: &str) -> Option<SnapshotTime> {
        let rest = token.strip_prefix(PREFIX)?;
        let (mut fields, mut at) = ([0; 6], 0);
        for (i, (field, digits)) in fields.iter_mut().zip([4, 2, 2, 2, 2, 2]).enumerate() {
            let separator = if i == 3 { "-" } else { "." };
            if i > 0 {
                at += rest.get(at..)?.starts_with(separator).then_some(1)?;
            }
            let text = rest.get(at..at + digits)?;
            *field = if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok()? } else { return None };
            at += digits;
        }
        let [year, month, day, hour, minute, second] = fields;
        let legal = (1..=12).contains(&month) && day >= 1 && hour < 24 && minute < 60 && second < 60;
        if at != rest.len() || !legal || day > days_of(year, month) {
            return None;
        }
        let of_day = (hour * 60 + minute) * 60 + second;
        Some(SnapshotTime { seconds: days(year, month, day) * SECONDS_OF_DAY + of_day })
    }
}

impl fmt::Display for SnapshotTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.seconds.div_euclid(SECONDS_OF_DAY));
        let s = self.seconds.rem_euclid(SECONDS_OF_DAY);
        let (hour, minute, second) = (s / 3600, s / 60 % 60, s % 60);
        write!(f, "{PREFIX}{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}")
    }
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        for (token, seconds) in [
            ("@GMT-1970.01.01-00.00.00", 0),
            ("@GMT-2015.10.31-19.40.30", 1_446_320_430),
            ("@GMT-2000.02.29-23.59.59", 951_868_799),
            ("@GMT-1969.12.31-23.59.59", -1),
            ("@GMT-1601.01.01-00.00.00", -11_644_473_600),
        ] {
            assert_eq!(SnapshotTime::parse(token), Some(SnapshotTime { seconds }), "{token}");
            assert_eq!(SnapshotTime { seconds }.to_string(), token);
        }
    }

    #[test]
    fn what_is_no_token() {
        for text in [
            "",
            "@GMT-",
            "@GMT-2015.10.31-19.40.3",
            "@GMT-2015.10.31-19.40.300",
            "@GMT-2015.10.31.19.40.30",
            "@GMT-2015-10-31-19.40.30",
            "@GMT-2015.13.01-00.00.00",
            "@GMT-2015.02.29-00.00.00",
            "@GMT-2015.01.00-00.00.00",
            "@GMT-2015.01.01-24.00.00",
            "@GMT-+015.01.01-00.00.00",
            "@GMT-201é.01.01-00.00.00",
            "@gmt-2015.10.31-19.40.30",
        ] {
            assert_eq!(SnapshotTime::parse(text), None, "{text}");
        }
    }
}
