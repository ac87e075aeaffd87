//! Dates of the Gregorian calendar, in UTC. Years begin in March here, so that a leap day is the last of its year.

/// Seconds per day.
pub const SECONDS_OF_DAY: i64 = 86_400;
const DAYS_OF_400_YEARS: i64 = 146_097;
/// Days from 0000-03-01, where eras of 400 years begin, to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_468;

/// Days since 1970-01-01 of a year, a month (1 to 12) and a day (from 1).
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_OF_400_YEARS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_BEFORE_1970
}

/// The year, month (1 to 12) and day (from 1) that is `days` days after 1970-01-01.
pub fn date(days: i64) -> (i64, i64, i64) {
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
    fn both_ways() {
        for day in (-800_000..800_000).step_by(97) {
            let (y, m, d) = date(day);
            assert_eq!(days(y, m, d), day);
        }
    }
}
