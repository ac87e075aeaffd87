//! Borrowed and owned UTF-16LE strings.
//!
//! File names on disk may contain unpaired surrogates, and SMB peers send them. The codec keeps the bytes
//! unchanged; only the conversion to a Rust string fails.

use std::fmt;

use smallvec::SmallVec;

use crate::WireError;

/// A UTF-16LE string borrowed from a message; its length is even.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Utf16Le<'a>(&'a [u8]);

impl<'a> Utf16Le<'a> {
    /// The empty string.
    pub const EMPTY: Self = Self(&[]);

    /// Wraps bytes.
    ///
    /// # Errors
    /// `Utf16` naming `what` if the length is odd. Surrogates are not checked.
    pub const fn new(bytes: &'a [u8], what: &'static str) -> Result<Self, WireError> {
        if bytes.len().is_multiple_of(2) { Ok(Self(bytes)) } else { Err(WireError::Utf16 { what }) }
    }

    /// The bytes as on the wire.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Length in bytes, as counted by the length fields on the wire.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether the string is empty.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The code units.
    pub fn units(self) -> impl DoubleEndedIterator<Item = u16> + ExactSizeIterator + Clone + 'a {
        self.0.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]]))
    }

    /// The characters; an unpaired surrogate is an error item.
    pub fn chars(self) -> impl Iterator<Item = Result<char, WireError>> + 'a {
        char::decode_utf16(self.units()).map(|c| c.map_err(|_| WireError::Utf16 { what: "string" }))
    }

    /// Converts the string to UTF-8.
    ///
    /// # Errors
    /// `Utf16` on an unpaired surrogate.
    #[allow(clippy::inherent_to_string_shadow_display, reason = "the fallible conversion is the one to use")]
    pub fn to_string(self) -> Result<String, WireError> {
        let mut out = String::with_capacity(self.0.len() / 2);
        for c in self.chars() {
            out.push(c?);
        }
        Ok(out)
    }

    /// Converts the string to UTF-8 for logs, with U+FFFD for unpaired surrogates.
    pub fn to_string_lossy(self) -> String {
        char::decode_utf16(self.units()).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    /// Whether the string equals `other` exactly, without case folding.
    pub fn eq_str(self, other: &str) -> bool {
        self.units().eq(other.encode_utf16())
    }
}

impl fmt::Debug for Utf16Le<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

impl fmt::Display for Utf16Le<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

/// An owned UTF-16LE string, to be borrowed by a message that is then encoded.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Utf16Buf(SmallVec<[u8; 128]>);

impl Utf16Buf {
    /// Borrows the string.
    pub fn as_utf16(&self) -> Utf16Le<'_> {
        Utf16Le(&self.0)
    }
}

impl From<&str> for Utf16Buf {
    fn from(s: &str) -> Self {
        Self(s.encode_utf16().flat_map(u16::to_le_bytes).collect())
    }
}

impl From<Utf16Le<'_>> for Utf16Buf {
    fn from(s: Utf16Le<'_>) -> Self {
        Self(SmallVec::from_slice(s.0))
    }
}

impl fmt::Debug for Utf16Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_utf16().fmt(f)
    }
}

/// Appends `s` to `out` as UTF-16LE without a terminator.
pub fn put_str(out: &mut Vec<u8>, s: &str) {
    for unit in s.encode_utf16() {
        out.extend_from_slice(&unit.to_le_bytes());
    }
}

/// Length of `s` in UTF-16LE without a terminator, in bytes.
pub fn len_utf16(s: &str) -> usize {
    s.encode_utf16().count() * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_round_trip_beyond_the_basic_plane() {
        for text in ["", "a", "Grüße", "日本語", "🎻 𝄞"] {
            let wide = Utf16Buf::from(text);
            assert_eq!(wide.as_utf16().to_string().as_deref(), Ok(text));
            assert_eq!(wide.as_utf16().len(), len_utf16(text));
            assert!(wide.as_utf16().eq_str(text));
            let mut out = Vec::new();
            put_str(&mut out, text);
            assert_eq!(out, wide.as_utf16().as_bytes());
        }
    }

    #[test]
    fn a_lone_surrogate_is_kept_and_refused_as_a_string() {
        let wide = Utf16Le::new(&[0x61, 0, 0x00, 0xD8], "name").unwrap();
        assert!(matches!(wide.to_string(), Err(WireError::Utf16 { .. })));
        assert_eq!(wide.to_string_lossy(), "a\u{FFFD}");
        assert_eq!(Utf16Buf::from(wide).as_utf16(), wide);
        assert!(Utf16Le::new(&[1, 2, 3], "name").is_err());
    }
}
