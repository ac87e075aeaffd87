//! What comes out: DiskSPD's text ([`text`]), its XML ([`xml`]), JSON ([`json`]), and SQLIO's summary ([`sqlio`]).
//!
//! Text and XML have DiskSPD's layout to the letter, so that what reads its output reads ours. What it has no place
//! for (failures, verification, processor time of processes, how I/O was done) follows in a section of its own, and in an
//! element of its own at the end of a time span.

mod distribution;
mod extra;
pub mod json;
mod size;
pub mod sqlio;
pub mod text;
mod text_profile;
pub mod xml;
mod xml_profile;
mod xml_writer;

use crate::engine::{SpanResults, SystemInfo};
use crate::profile::Profile;

/// All that a report is made of.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What was run.
    pub profile: &'a Profile,
    /// On which machine.
    pub system: &'a SystemInfo,
    /// What each time span found.
    pub spans: &'a [SpanResults],
}

/// A time of day as DiskSPD writes it.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to civil (Hinnant): years begin in March, so that the leap day is the last.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year}/{month:02}/{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests;
