//! Conversion between names on the disk and names shown to clients.
//!
//! Linux allows every byte but `/` and NUL. Windows refuses control characters, `" * / < > ? | \ :`, and a space or a
//! dot at the end (MS-FSCC 2.1.5.2). In the shown name these characters are replaced by the private-use characters that
//! the Linux and macOS clients use, so that clients can open such a file by the name in a listing:
//!
//! | on the disk    | shown           | on the disk | shown  |
//! |----------------|-----------------|-------------|--------|
//! | 0x01 to 0x1F   | U+F001 to F01F  | `?`         | U+F025 |
//! | `"`            | U+F020          | `\`         | U+F026 |
//! | `*`            | U+F021          | pipe        | U+F027 |
//! | `:`            | U+F022          | last space  | U+F028 |
//! | `<`            | U+F023          | last dot    | U+F029 |
//! | `>`            | U+F024          |             |        |
//!
//! Names that are not UTF-8, or longer than 255 UTF-16 units, are not shown; nor are the temporary names of new files
//! ([`is_temporary`]).

use std::borrow::Cow;

/// The longest name shown, in UTF-16 units (MS-FSCC 2.1.5).
const SHOWN_MAX: usize = 255;

/// The prefix of the temporary names of new files.
pub(super) const TEMPORARY: &str = ".causeway-new-";

/// Whether a name on the disk is a temporary one, hidden from clients.
pub(crate) fn is_temporary(disk: &str) -> bool {
    disk.starts_with(TEMPORARY)
}

/// The shown form of a name; `None` if it cannot be shown.
pub(crate) fn shown(disk: &[u8]) -> Option<Cow<'_, str>> {
    let name = std::str::from_utf8(disk).ok()?;
    if is_temporary(name) {
        return None;
    }
    if name.len() > SHOWN_MAX && name.encode_utf16().count() > SHOWN_MAX {
        return None;
    }
    Some(shown_always(name))
}

/// The shown form of any name.
pub(crate) fn shown_always(name: &str) -> Cow<'_, str> {
    let special = |b: u8| b < 0x20 || matches!(b, b'"' | b'*' | b':' | b'<' | b'>' | b'?' | b'\\' | b'|');
    if !name.bytes().any(special) && !name.ends_with([' ', '.']) {
        return Cow::Borrowed(name);
    }
    let last = name.char_indices().next_back().map(|(i, _)| i);
    name.char_indices().map(|(i, c)| show(c, Some(i) == last)).collect()
}

/// The name on the disk for one that a client gave.
pub(crate) fn stored(shown: &str) -> Cow<'_, str> {
    // U+F0xx begins with 0xEF in UTF-8.
    if !shown.as_bytes().contains(&0xEF) {
        return Cow::Borrowed(shown);
    }
    let last = shown.char_indices().next_back().map(|(i, _)| i);
    let name: String = shown.char_indices().map(|(i, c)| store(c, Some(i) == last)).collect();
    // The result must not become `.` or `..`, which are no names.
    if name == "." || name == ".." { Cow::Borrowed(shown) } else { Cow::Owned(name) }
}

fn show(c: char, last: bool) -> char {
    let code = match c {
        '\x01'..='\x1f' => 0xF000 + c as u32,
        '"' => 0xF020,
        '*' => 0xF021,
        ':' => 0xF022,
        '<' => 0xF023,
        '>' => 0xF024,
        '?' => 0xF025,
        '\\' => 0xF026,
        '|' => 0xF027,
        ' ' if last => 0xF028,
        '.' if last => 0xF029,
        _ => return c,
    };
    char::from_u32(code).unwrap_or(c)
}

fn store(c: char, last: bool) -> char {
    match c as u32 {
        code @ 0xF001..=0xF01F => char::from_u32(code - 0xF000).unwrap_or(c),
        0xF020 => '"',
        0xF021 => '*',
        0xF022 => ':',
        0xF023 => '<',
        0xF024 => '>',
        0xF025 => '?',
        0xF026 => '\\',
        0xF027 => '|',
        0xF028 if last => ' ',
        0xF029 if last => '.',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::{shown, stored};

    #[test]
    fn there_and_back() {
        for disk in ["plain", "a:b", "what?", "\"*<>|\\", "tab\there", "end.", "end ", "in . between", "ž:"]
        {
            let seen = shown(disk.as_bytes()).expect("it can be shown");
            assert!(crate::path::check_name(&seen).is_ok(), "{disk:?} is shown as {seen:?}");
            assert_eq!(stored(&seen), disk);
        }
        for trick in [".\u{f029}", "\u{f029}"] {
            assert_eq!(stored(trick), trick);
        }
        assert_eq!(shown(b"a:b").as_deref(), Some("a\u{f022}b"));
        assert_eq!(shown(b"\xff"), None);
        assert_eq!(shown("ž".repeat(256).as_bytes()), None);
    }
}
