//! Paths inside a share.
//!
//! Invariant: a [`VfsPath`] has no empty, `.` or `..` component and no separator, NUL or control character inside a
//! component, so joining it to a root cannot leave the root by its text.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use thiserror::Error;

use crate::StreamName;
use crate::fold::{fold, fold_char};
use crate::hostdir::visible;

/// A path relative to a share's root, as validated components; the root has none. Comparisons ignore whether a path is
/// exact ([`VfsPath::parse_posix`]).
#[derive(Clone, Debug, Default)]
pub struct VfsPath {
    parts: Vec<String>,
    exact: bool,
}

/// Why a text is no valid path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathError {
    /// A component has a character that is invalid in names (MS-FSCC 2.1.5).
    #[error("a name contains a character that is not allowed")]
    Character,
    /// `.` or `..`, an empty component, or a leading separator.
    #[error("a component is empty, '.' or '..'")]
    Component,
    /// A component is longer than 255 UTF-16 units, or the whole longer than 32,760.
    #[error("the path is too long")]
    TooLong,
    /// A component has a colon (see [`VfsPath::parse_stream`] for paths with a stream), or the type of a stream is
    /// invalid.
    #[error("the path names a stream")]
    Stream,
}

/// The longest component, in UTF-16 units (MS-FSCC 2.1.5).
const COMPONENT_MAX: usize = 255;
/// The longest path, in UTF-16 units.
const PATH_MAX: usize = 32_760;

impl VfsPath {
    /// The share's root.
    pub fn root() -> VfsPath {
        VfsPath::default()
    }

    /// Parses a path with backslashes, as a CREATE carries it: no leading separator, `""` is the root. One trailing
    /// separator is accepted. `<>"|?*` and control characters are refused. A slash separates too: Windows refuses it,
    /// but other servers accept it, and so clients send it.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn parse(text: &str) -> Result<VfsPath, PathError> {
        if text.is_empty() {
            return Ok(VfsPath::root());
        }
        if text.encode_utf16().count() > PATH_MAX {
            return Err(PathError::TooLong);
        }
        let text = text.strip_suffix(['\\', '/']).unwrap_or(text);
        let mut parts = Vec::new();
        for part in text.split(['\\', '/']) {
            check_name(part)?;
            parts.push(part.to_owned());
        }
        Ok(VfsPath { parts, exact: false })
    }

    /// Parses a path as a client with POSIX extensions sends it: names may contain characters that Windows forbids,
    /// which are stored as the substitutes that other opens use ([`posix_name`]). The path is exact: names that differ
    /// in case only are different names.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn parse_posix(text: &str) -> Result<VfsPath, PathError> {
        if text.encode_utf16().count() > PATH_MAX {
            return Err(PathError::TooLong);
        }
        let mut parts = Vec::new();
        if !text.is_empty() {
            let text = text.strip_suffix(['\\', '/']).unwrap_or(text);
            for part in text.split(['\\', '/']) {
                let shown = match part {
                    "" | "." | ".." => return Err(PathError::Component),
                    _ if part.contains('\0') => return Err(PathError::Character),
                    part => visible::shown_always(part),
                };
                check_name(&shown)?;
                parts.push(shown.into_owned());
            }
        }
        Ok(VfsPath { parts, exact: true })
    }

    /// A path of names that a backend has checked.
    pub(crate) fn from_parts(parts: Vec<String>) -> VfsPath {
        debug_assert!(parts.iter().all(|p| check_name(p).is_ok()));
        VfsPath { parts, exact: false }
    }

    /// Whether its names are case-sensitive.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Appends a component.
    ///
    /// # Errors
    /// When `name` is not a valid component.
    pub fn join(&self, name: &str) -> Result<VfsPath, PathError> {
        check_name(name)?;
        let mut parts = self.parts.clone();
        parts.push(name.to_owned());
        Ok(VfsPath { parts, exact: self.exact })
    }

    /// The name of a stream of this file in reports of changes; not a path of the tree.
    pub fn with_stream(&self, stream: &StreamName) -> VfsPath {
        let mut parts = self.parts.clone();
        if let Some(last) = parts.last_mut() {
            last.push(':');
            last.push_str(stream.as_str());
        }
        VfsPath { parts, exact: self.exact }
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.parts.is_empty()
    }

    /// The components from the root down.
    pub fn components(&self) -> &[String] {
        &self.parts
    }

    /// The last component; `None` for the root.
    pub fn name(&self) -> Option<&str> {
        self.parts.last().map(String::as_str)
    }

    /// The parent's path; `None` for the root.
    pub fn parent(&self) -> Option<VfsPath> {
        let (_, above) = self.parts.split_last()?;
        Some(VfsPath { parts: above.to_vec(), exact: self.exact })
    }

    /// The hashes of the root, of each directory on the path, and of the path itself. Paths that differ in case only
    /// have the same hashes.
    pub fn folded_hashes<H: Hasher + Clone + Default>(&self) -> impl Iterator<Item = u64> {
        let mut state = H::default();
        let parts = self.parts.iter().map(move |part| {
            part.chars().for_each(|c| state.write_u32(fold_char(c) as u32));
            state.write_u32(u32::from(b'\\'));
            state.finish()
        });
        std::iter::once(H::default().finish()).chain(parts)
    }

    /// The last of [`VfsPath::folded_hashes`].
    pub fn folded_hash<H: Hasher + Clone + Default>(&self) -> u64 {
        self.folded_hashes::<H>().last().expect("the root's")
    }

    /// Whether `self` is below `above`, or equal to it.
    pub fn starts_with(&self, above: &VfsPath) -> bool {
        self.parts.starts_with(&above.parts)
    }

    /// Whether both are equal without regard to case.
    pub fn is_same_name(&self, other: &VfsPath) -> bool {
        self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(a, b)| a == b || fold(a) == fold(b))
    }

    /// `self` with its prefix `from` replaced by `to`; `None` if it is not below `from`.
    pub fn rebased(&self, from: &VfsPath, to: &VfsPath) -> Option<VfsPath> {
        let rest = self.parts.strip_prefix(from.parts.as_slice())?;
        Some(VfsPath { parts: to.parts.iter().chain(rest).cloned().collect(), exact: self.exact })
    }
}

impl PartialEq for VfsPath {
    fn eq(&self, other: &VfsPath) -> bool {
        self.parts == other.parts
    }
}

impl Eq for VfsPath {}

impl Hash for VfsPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.hash(state);
    }
}

impl PartialOrd for VfsPath {
    fn partial_cmp(&self, other: &VfsPath) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VfsPath {
    fn cmp(&self, other: &VfsPath) -> Ordering {
        self.parts.cmp(&other.parts)
    }
}

/// A name as shown to a client with POSIX extensions: with the characters that Windows forbids, apart from the
/// backslash, which separates names for these clients too.
pub fn posix_name(shown: &str) -> Cow<'_, str> {
    match visible::stored(shown) {
        Cow::Owned(name) if name.contains('\\') => Cow::Owned(name.replace('\\', "\u{f026}")),
        name => name,
    }
}

/// Whether one component is a legal name (MS-FSCC 2.1.5.1, 2.1.5.2).
///
/// # Errors
/// See [`PathError`].
pub fn check_name(name: &str) -> Result<(), PathError> {
    if name.is_empty() || name == "." || name == ".." {
        return Err(PathError::Component);
    }
    if name.encode_utf16().count() > COMPONENT_MAX {
        return Err(PathError::TooLong);
    }
    for c in name.chars() {
        match c {
            ':' => return Err(PathError::Stream),
            '\0'..='\x1f' | '"' | '*' | '/' | '<' | '>' | '?' | '|' | '\\' => {
                return Err(PathError::Character);
            }
            _ => {}
        }
    }
    Ok(())
}

impl fmt::Display for VfsPath {
    /// Formats the path with backslashes and without a leading one; the root is empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            if i > 0 {
                f.write_str("\\")?;
            }
            f.write_str(part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_the_root() {
        for bad in
            ["..", "a\\..\\b", "a/../b", "\\a", "/a", "a\\\\b", "a//b", ".", "a\\b\0c", "*", "a?b", "\\"]
        {
            assert!(VfsPath::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(VfsPath::parse("a:b"), Err(PathError::Stream));
        assert!(VfsPath::parse(&"x".repeat(256)).is_err());
    }

    #[test]
    fn posix_names() {
        let parse = |text: &str| VfsPath::parse_posix(text).map(|p| p.to_string());
        assert_eq!(parse("a:b\\c*?.").as_deref(), Ok("a\u{f022}b\\c\u{f021}\u{f025}\u{f029}"));
        // The substitutes mean the same as the characters.
        assert_eq!(parse("a\u{f022}b"), parse("a:b"));
        assert_eq!(posix_name("c\u{f021}\u{f025}\u{f029}"), "c*?.");
        assert_eq!(posix_name("back\u{f026}slash"), "back\u{f026}slash");
        for bad in ["..", "a\\..\\b", ".", "\\a", "a\\\\b", "a\0b"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&":".repeat(256)).is_err());
        let exact = VfsPath::parse_posix("a\\b").expect("legal");
        let plain = VfsPath::parse("a\\b").expect("legal");
        assert!(exact.is_exact() && exact.parent().expect("has one").is_exact() && !plain.is_exact());
        assert_eq!(exact, plain, "how a path is meant plays no part in comparisons");
    }

    #[test]
    fn parts() {
        let p = VfsPath::parse("a\\Bc\\d e").expect("legal");
        assert_eq!(p.name(), Some("d e"));
        assert_eq!(p.to_string(), "a\\Bc\\d e");
        let up = p.parent().expect("has one");
        let moved = p.rebased(&up, &VfsPath::parse("x").expect("legal")).expect("lies under");
        assert_eq!(moved.to_string(), "x\\d e");
        assert!(VfsPath::parse("").expect("legal").is_root());
    }
}
