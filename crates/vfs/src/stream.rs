//! Names of streams (MS-FSCC 2.1.5.3, 2.1.5.4).
//!
//! A path in a CREATE is `path[:stream[:type]]`. The type is `$DATA` or left out. `path::$DATA` is the unnamed stream,
//! as is `path` alone. On a directory `:$I30:$INDEX_ALLOCATION` and `::$INDEX_ALLOCATION` mean the directory itself.

use std::fmt;
use std::sync::Arc;

use crate::fold::fold;
use crate::{PathError, VfsPath};

/// The name of a named stream, without its type: 1 to 255 UTF-16 units. Equal without regard to case.
#[derive(Clone)]
pub struct StreamName {
    name: Arc<str>,
    folded: Arc<str>,
}

/// The part of a name behind the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// Nothing: the file or directory.
    None,
    /// `::$DATA`: the unnamed stream. A directory has none.
    Unnamed,
    /// `:name` or `:name:$DATA`.
    Named(StreamName),
    /// `::$INDEX_ALLOCATION` or `:$I30:$INDEX_ALLOCATION`: the directory itself. A file has none.
    Directory,
}

/// The longest name of a stream, in UTF-16 units (MS-FSCC 2.1.5.3).
const NAME_MAX: usize = 255;
/// The type of every stream that holds data.
const DATA: &str = "$DATA";
/// The type of the stream that holds a directory's entries.
const INDEX: &str = "$INDEX_ALLOCATION";
/// The name of that stream.
const INDEX_NAME: &str = "$I30";

impl StreamName {
    /// Checks a name: any character except `:`, `/`, `\` and NUL.
    ///
    /// # Errors
    /// `Character`, `TooLong`, or `Component` for an empty one.
    pub fn new(name: &str) -> Result<StreamName, PathError> {
        if name.is_empty() {
            return Err(PathError::Component);
        }
        if name.contains([':', '/', '\\', '\0']) {
            return Err(PathError::Character);
        }
        if name.encode_utf16().count() > NAME_MAX {
            return Err(PathError::TooLong);
        }
        Ok(StreamName { name: name.into(), folded: fold(name).into() })
    }

    /// The name as it was given, in its original case.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The form under which it is looked up.
    pub fn folded(&self) -> &Arc<str> {
        &self.folded
    }
}

impl StreamPart {
    /// Parses what begins with the colon: `:stream`, `:stream:type`, `::type`.
    ///
    /// # Errors
    /// `Character` for an invalid name, `Stream` for an invalid type or an empty stream, `TooLong`.
    pub fn parse(text: &str) -> Result<StreamPart, PathError> {
        let text = text.strip_prefix(':').ok_or(PathError::Stream)?;
        let (name, kind) = match text.split_once(':') {
            Some((name, kind)) => (name, Some(kind)),
            None => (text, None),
        };
        match (name, kind) {
            ("", None) => Err(PathError::Stream),
            ("", Some(kind)) if kind.eq_ignore_ascii_case(DATA) => Ok(StreamPart::Unnamed),
            ("", Some(kind)) if kind.eq_ignore_ascii_case(INDEX) => Ok(StreamPart::Directory),
            (name, Some(kind))
                if kind.eq_ignore_ascii_case(INDEX) && name.eq_ignore_ascii_case(INDEX_NAME) =>
            {
                Ok(StreamPart::Directory)
            }
            (name, None) => StreamName::new(name).map(StreamPart::Named),
            (name, Some(kind)) if kind.eq_ignore_ascii_case(DATA) => {
                StreamName::new(name).map(StreamPart::Named)
            }
            _ => Err(PathError::Stream),
        }
    }
}

impl VfsPath {
    /// Parses `path[:stream[:type]]`, as a CREATE carries it: [`VfsPath::parse`] of what precedes the first colon of
    /// the last component, and [`StreamPart::parse`] of the rest. An empty path with a stream is the root's stream.
    ///
    /// # Errors
    /// See [`PathError`]; `Stream` for a colon in an earlier component and for an invalid type.
    pub fn parse_stream(text: &str) -> Result<(VfsPath, StreamPart), PathError> {
        let Some(colon) = text.find(':') else { return Ok((VfsPath::parse(text)?, StreamPart::None)) };
        let (path, stream) = text.split_at(colon);
        if path.ends_with('\\') {
            return Err(PathError::Component);
        }
        Ok((VfsPath::parse(path)?, StreamPart::parse(stream)?))
    }
}

impl PartialEq for StreamName {
    fn eq(&self, other: &StreamName) -> bool {
        self.folded == other.folded
    }
}

impl Eq for StreamName {}

impl fmt::Debug for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKey, StreamKey};

    fn named(text: &str) -> StreamPart {
        StreamPart::Named(StreamName::new(text).expect("a legal name"))
    }

    #[test]
    fn paths_with_streams() {
        let parse = |text: &str| VfsPath::parse_stream(text).map(|(path, stream)| (path.to_string(), stream));
        for (text, path, stream) in [
            ("a\\b", "a\\b", StreamPart::None),
            ("a\\b:s", "a\\b", named("s")),
            ("a\\b:s:$DATA", "a\\b", named("s")),
            ("a\\b:s:$data", "a\\b", named("S")),
            ("a\\b::$Data", "a\\b", StreamPart::Unnamed),
            (":s", "", named("s")),
            ("", "", StreamPart::None),
            ("d::$INDEX_ALLOCATION", "d", StreamPart::Directory),
            ("d:$i30:$Index_Allocation", "d", StreamPart::Directory),
            ("f:\u{1}\"*<>?| .", "f", named("\u{1}\"*<>?| .")),
        ] {
            assert_eq!(parse(text), Ok((path.to_owned(), stream)), "{text:?}");
        }
    }

    #[test]
    fn what_names_no_stream() {
        for bad in [
            "a:",
            "a::",
            "a:s:",
            "a:s:$OTHER",
            "a:s:$DATA:x",
            "a:b\\c",
            "a:b/c",
            "a:b\0",
            "a\\:s",
            "a:s:$INDEX_ALLOCATION",
            "a:$I30:$DATA:",
            "a:::$DATA",
            "a:b\\c:d",
        ] {
            assert!(VfsPath::parse_stream(bad).is_err(), "{bad:?}");
        }
        assert!(StreamName::new(&"x".repeat(255)).is_ok());
        assert_eq!(StreamName::new(&"x".repeat(256)).err(), Some(PathError::TooLong));
        assert_eq!(StreamName::new("\u{10000}".repeat(128).as_str()).err(), Some(PathError::TooLong));
    }

    #[test]
    fn keys_ignore_case() {
        let file = FileKey { volume: 1, file: 2 };
        let key = |name: &str| StreamKey::new(file, Some(&StreamName::new(name).expect("legal")));
        assert_eq!(key("Žluť"), key("žLUŤ"));
        assert_ne!(key("a"), key("b"));
        assert_ne!(key("a"), StreamKey::from(file));
        assert!(StreamKey::new(file, None).is_unnamed());
    }
}
