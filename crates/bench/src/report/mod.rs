//! The reports: DiskSPD's text ([`text`]), its XML ([`xml`]), JSON ([`json`]), and SQLIO's summary
//! ([`sqlio`]).
//!
//! Text and XML have DiskSPD's exact layout, so that programs that parse its output can parse ours. Values
//! that DiskSPD does not have (failures, verification, processor time of processes, I/O method) follow in a
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

/// The input of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The run.
    pub profile: &'a Profile,
    /// The machine.
    pub system: &'a SystemInfo,
    /// The results of each time span.
    pub spans: &'a [SpanResults],
}

/// Formats a time like DiskSPD.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = env::calendar::date(days as i64);
    format!("{year}/{month:02}/{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests;
