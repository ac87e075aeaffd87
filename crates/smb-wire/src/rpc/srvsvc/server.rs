//! Information about the server, and its time.

use std::time::Duration;

use super::Win32;
use crate::WireError;
use crate::rpc::ndr::NdrWriter;

/// A server, for the levels of NetrServerGetInfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerInfo<'a> {
    /// Name.
    pub name: &'a str,
    /// Comment.
    pub comment: &'a str,
    /// Version, major.
    pub version_major: u32,
    /// Version, minor.
    pub version_minor: u32,
    /// SV_TYPE_ bits: 1 workstation, 2 server, 0x1000 NT, 0x8000 member.
    pub server_type: u32,
}

/// PLATFORM_ID_NT (MS-SRVS 2.2.2.6).
const PLATFORM_ID_NT: u32 = 500;

/// Appends the response stub of NetrServerGetInfo; it refuses levels other than 100, 101 and 102.
///
/// # Errors
/// `Unencodable`.
pub fn put_server_get_info(out: &mut Vec<u8>, level: u32, server: &ServerInfo<'_>) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.u32(level);
    let known = matches!(level, 100..=102);
    w.pointer(known);
    if !known {
        w.u32(Win32::INVALID_LEVEL.0);
        return Ok(());
    }
    w.u32(PLATFORM_ID_NT);
    w.pointer(true);
    if level >= 101 {
        w.u32(server.version_major);
        w.u32(server.version_minor);
        w.u32(server.server_type);
        w.pointer(true);
    }
    if level == 102 {
        w.u32(u32::MAX); // users: no limit
        w.u32(15); // minutes until an idle session is closed
        w.u32(0); // not hidden
        w.u32(240); // seconds between announcements, their variation in ms, licences
        w.u32(3000);
        w.u32(0);
        w.pointer(true);
    }
    w.string(server.name)?;
    if level >= 101 {
        w.string(server.comment)?;
    }
    if level == 102 {
        w.string("c:\\")?; // location of home directories: unused
    }
    w.u32(Win32::SUCCESS.0);
    Ok(())
}

/// Appends the response stub of NetrRemoteTOD: the time in UTC, with UTC as the server's time zone (MS-SRVS
/// 2.2.4.105).
pub fn put_time_of_day(out: &mut Vec<u8>, since_1970: Duration, uptime: Duration) {
    const DAY: u64 = 86_400;
    /// Interval of a clock tick, in 0.1 ms.
    const INTERVAL: u32 = 310;
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / DAY, (seconds % DAY) as u32);
    let (year, month, day) = date(days);
    let mut w = NdrWriter::new(out);
    w.pointer(true);
    for value in [
        seconds as u32,
        uptime.as_millis() as u32,
        second / 3600,
        second / 60 % 60,
        second % 60,
        since_1970.subsec_millis() / 10,
        0,
        INTERVAL,
        day,
        month,
        year,
        ((days + 4) % 7) as u32, // 1970 began on a Thursday
    ] {
        w.u32(value);
    }
    w.u32(Win32::SUCCESS.0);
}

/// Returns year, month and day of the date `days` after 1970-01-01.
fn date(days: u64) -> (u32, u32, u32) {
    const OF_400_YEARS: u64 = 146_097;
    // If years start in March, the leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days / OF_400_YEARS, days % OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    ((year + era * 400 + next) as u32, month as u32, day_of_month as u32)
}

#[test]
fn dates() {
    for (days, expected) in [
        (0, (1970, 1, 1)),
        (59, (1970, 3, 1)),
        (11_016, (2000, 2, 29)),
        (11_017, (2000, 3, 1)),
        (20_453, (2025, 12, 31)),
        (20_454, (2026, 1, 1)),
        (47_540, (2100, 2, 28)),
        (47_541, (2100, 3, 1)),
    ] {
        assert_eq!(date(days), expected, "{days}");
    }
}
