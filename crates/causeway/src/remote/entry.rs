//! The attributes of a file or directory in a listing.

use std::fmt;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use smb_client::{FileTime, Metadata};

use crate::output::human_time;

/// A file or directory of a server.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Entry {
    /// Its name; empty for a share's root.
    pub name: String,
    /// Whether it is a directory.
    pub directory: bool,
    /// In bytes.
    pub size: u64,
    /// Space taken, in bytes.
    pub allocation: u64,
    /// MS-FSCC 2.6.
    pub attributes: u32,
    /// The time of creation.
    #[schemars(with = "Option<String>")]
    pub created: Time,
    /// Last access.
    #[schemars(with = "Option<String>")]
    pub accessed: Time,
    /// Last change of data.
    #[schemars(with = "Option<String>")]
    pub written: Time,
    /// Last change of anything.
    #[schemars(with = "Option<String>")]
    pub changed: Time,
}

/// A time of a server, printed in UTC.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub FileTime);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == FileTime::ZERO {
            return f.write_str("-");
        }
        write!(f, "{} UTC", human_time(self.0.to_unix().0))
    }
}

/// In the form of RFC 3339.
impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0 == FileTime::ZERO {
            return s.serialize_none();
        }
        let (seconds, nanos) = self.0.to_unix();
        s.serialize_str(&format!("{}.{:07}Z", human_time(seconds).replace(' ', "T"), nanos / 100))
    }
}

impl Entry {
    pub(super) fn new(name: &str, m: &Metadata) -> Entry {
        Entry {
            name: name.to_owned(),
            directory: m.is_directory(),
            size: m.size,
            allocation: m.allocated,
            attributes: m.attributes.bits(),
            created: Time(m.created),
            accessed: Time(m.accessed),
            written: Time(m.modified),
            changed: Time(m.changed),
        }
    }

    /// Whether it is a link or another reparse point.
    pub fn is_link(&self) -> bool {
        self.attributes & 0x400 != 0
    }

    /// Letters as PowerShell's: directory, archive, read-only, hidden, system, link.
    pub fn mode(&self) -> String {
        let letters = [(0x10, 'd'), (0x20, 'a'), (0x1, 'r'), (0x2, 'h'), (0x4, 's'), (0x400, 'l')];
        letters.iter().map(|(bit, c)| if self.attributes & bit != 0 { *c } else { '-' }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_people_and_programs() {
        let time = Time(FileTime::from_unix(951_868_799, 1_234_500));
        assert_eq!(time.to_string(), "2000-02-29 23:59:59 UTC");
        assert_eq!(serde_json::to_string(&time).expect("JSON"), "\"2000-02-29T23:59:59.0012345Z\"");
        assert_eq!(Time(FileTime::ZERO).to_string(), "-");
    }

    #[test]
    fn modes_are_letters() {
        let time = Time(FileTime::ZERO);
        let mode = |attributes| {
            let name = String::new();
            let (created, accessed, written, changed) = (time, time, time, time);
            let (directory, size, allocation) = (false, 0, 0);
            Entry { name, directory, size, allocation, attributes, created, accessed, written, changed }
                .mode()
        };
        assert_eq!(mode(0x10), "d-----");
        assert_eq!(mode(0x27), "-arhs-");
        assert_eq!(mode(0x80), "------");
    }
}
