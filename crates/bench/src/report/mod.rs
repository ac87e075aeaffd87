//! The reports: DiskSPD's text ([`text`]), its XML ([`xml`]), JSON ([`json`]), and SQLIO's summary
//! ([`sqlio`]).
//!
//! Text and XML have DiskSPD's exact layout, so that programs that parse its output parse ours. Values
//! without a place there (failures, verification, processor time of processes, I/O method) follow in a
//! separate section, and in a separate element at the end of a time span.

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
    /// The run.
    pub profile: &'a Profile,
    /// On which machine.
    pub system: &'a SystemInfo,
    /// The results of each time span.
    pub spans: &'a [SpanResults],
}

/// A time of day as DiskSPD writes it.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = env::calendar::date(days as i64);
    format!("{year}/{month:02}/{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests;
