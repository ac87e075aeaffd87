//! Names of resources: validation and canonical form (MS-SRVS 2.2.2.8, 3.1.4.32, 3.1.4.33).

use super::Win32;
use crate::macros::open_enum;
use crate::rpc::ndr::NdrWriter;

/// Maximum length of a canonical name in characters (MS-SRVS 3.1.4.33).
pub const MAX_CANONICAL: usize = 64_000;
/// Flags of NetprNameCanonicalize: the buffer fits every name of the type; use the old rules.
const ROOM_FOR_ANY: u32 = 1;
const OLD_RULES: u32 = 0x8000_0000;

open_enum! {
    /// The type of a name.
    pub struct NameType(u32) {
        /// User.
        USER = 1,
        /// Password.
        PASSWORD = 2,
        /// Group.
        GROUP = 3,
        /// Computer.
        COMPUTER = 4,
        /// Event.
        EVENT = 5,
        /// Domain.
        DOMAIN = 6,
        /// Service.
        SERVICE = 7,
        /// Net.
        NET = 8,
        /// Share.
        SHARE = 9,
        /// Message.
        MESSAGE = 10,
        /// Destination of a message.
        MESSAGE_DESTINATION = 11,
        /// Password of a share.
        SHARE_PASSWORD = 12,
        /// Workgroup.
        WORKGROUP = 13,
    }
}

/// Minimum and maximum length of valid names. `old` and `new` are the maximum length of the canonical form, and
/// whether it is in capitals, by the old and the new rules.
struct Rules {
    min: usize,
    max: usize,
    old: (usize, bool),
    new: (usize, bool),
}

impl NameType {
    fn rules(self) -> Option<Rules> {
        let (min, max, old, new) = match self {
            Self::USER | Self::GROUP => (1, 256, (20, true), (256, false)),
            Self::PASSWORD => (0, 256, (14, false), (256, false)),
            Self::COMPUTER => (1, 260, (15, true), (259, false)),
            Self::EVENT => (1, 16, (16, true), (16, true)),
            Self::DOMAIN | Self::WORKGROUP => (1, 15, (15, true), (15, false)),
            Self::SERVICE => (1, 80, (15, true), (80, false)),
            Self::NET | Self::MESSAGE_DESTINATION => (1, 260, (259, true), (259, true)),
            Self::SHARE => (1, 80, (12, true), (80, false)),
            Self::MESSAGE => (1, 15, (259, true), (259, true)),
            Self::SHARE_PASSWORD => (0, 8, (8, false), (8, false)),
            _ => return None,
        };
        Some(Rules { min, max, old, new })
    }

    fn allows(self, name: &str) -> bool {
        let default = |c: char| !c.is_control() && !"\"/\\[]:|<>+=;,?".contains(c);
        match self {
            Self::PASSWORD | Self::SHARE_PASSWORD => !name.contains('\0'),
            Self::COMPUTER => name.chars().all(|c| default(c) && c != '*') && name.trim_matches(' ') == name,
            Self::DOMAIN => name.chars().all(|c| default(c) && c != '*' && c != ' '),
            Self::MESSAGE_DESTINATION => {
                let (head, starred) = name.strip_suffix('*').map_or((name, false), |head| (head, true));
                head.chars().all(|c| default(c) && c != '*') && (starred || crate::len_utf16(name) / 2 < 260)
            }
            _ => name.chars().all(default),
        }
    }

    /// Whether `name` is a valid name of this type (MS-SRVS 3.1.4.32).
    ///
    /// # Errors
    /// INVALID_PARAMETER for an unknown type, INVALID_NAME.
    pub fn validate(self, name: &str) -> Result<(), Win32> {
        let rules = self.rules().ok_or(Win32::INVALID_PARAMETER)?;
        let length = crate::len_utf16(name) / 2;
        let valid = (rules.min..=rules.max).contains(&length) && self.allows(name);
        if valid { Ok(()) } else { Err(Win32::INVALID_NAME) }
    }

    /// Returns the canonical form of `name`, of less than `room` characters (MS-SRVS 3.1.4.33).
    ///
    /// # Errors
    /// Those of [`NameType::validate`]; INVALID_PARAMETER for unknown flags, NERR_BUF_TOO_SMALL.
    pub fn canonicalize(self, name: &str, room: u32, flags: u32) -> Result<String, Win32> {
        let rules = self.rules().ok_or(Win32::INVALID_PARAMETER)?;
        if flags & !(ROOM_FOR_ANY | OLD_RULES) != 0 {
            return Err(Win32::INVALID_PARAMETER);
        }
        self.validate(name)?;
        let (max, capitals) = if flags & OLD_RULES != 0 { rules.old } else { rules.new };
        let mut canonical = if capitals { name.to_uppercase() } else { name.to_owned() };
        while crate::len_utf16(&canonical) / 2 > max {
            canonical.pop();
        }
        let needed = if flags & ROOM_FOR_ANY != 0 { max } else { crate::len_utf16(&canonical) / 2 };
        if (room as usize) <= needed { Err(Win32::NERR_BUF_TOO_SMALL) } else { Ok(canonical) }
    }
}

/// Appends a response stub that consists of a status: of NetprNameValidate, and of refused changes.
pub fn put_status(out: &mut Vec<u8>, with_parameter: bool, status: Win32) {
    let mut w = NdrWriter::new(out);
    if with_parameter {
        w.pointer(false);
    }
    w.u32(status.0);
}

/// Appends the response stub of NetprNameCanonicalize, whose buffer has `room` characters.
pub fn put_canonical_name(out: &mut Vec<u8>, room: u32, name: Result<&str, Win32>) {
    let mut w = NdrWriter::new(out);
    let room = room.min(MAX_CANONICAL as u32);
    w.u32(room);
    let units = name.unwrap_or("").encode_utf16().chain(std::iter::repeat(0));
    units.take(room as usize).for_each(|unit| w.u16(unit));
    w.u32(name.err().unwrap_or(Win32::SUCCESS).0);
}
