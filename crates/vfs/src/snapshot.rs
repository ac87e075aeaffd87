//! When a snapshot of a tree was taken.

use std::fmt;

use crate::Timestamp;

/// The time of a snapshot, in whole seconds. As text it is the token by which clients name one: `@GMT-YYYY.MM.DD-HH.MM.SS`,
/// in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotTime {
    /// Since 1970-01-01 UTC.
    seconds: i64,
}

const PREFIX: &str = "@GMT-";
const SECONDS_OF_DAY: i64 = 86_400;
const DAYS_OF_400_YEARS: i64 = 146_097;
/// Days from 0000-03-01, where eras of 400 years begin, to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_468;

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

/// Days since 1970-01-01 of a date of the Gregorian calendar. Years begin in March here, so that a leap day is their last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_OF_400_YEARS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_BEFORE_1970
}

/// The inverse of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + DAYS_BEFORE_1970;
    let (era, of_era) = (shifted.div_euclid(DAYS_OF_400_YEARS), shifted.rem_euclid(DAYS_OF_400_YEARS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
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
        for day in (-800_000..800_000).step_by(97) {
            let (y, m, d) = date(day);
            assert_eq!(days(y, m, d), day);
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
