//! Problems of a configuration: the place, the problem, and the cure.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It was read, and these are its problems.
    #[error("{0}")]
    Invalid(Problems),
}

impl ConfigError {
    /// The action that helps, if the message does not contain it.
    pub fn cure(&self) -> Option<String> {
        match self {
            ConfigError::Unreadable { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
                Some(format!("write one with: causeway config example > {}", path.display()))
            }
            ConfigError::Unreadable { .. } => Some("pass a file you may read with --config".to_owned()),
            ConfigError::Unwritable { .. } => {
                Some("give the server write permission for the file and its directory".to_owned())
            }
            ConfigError::Invalid(_) => None,
        }
    }
}

/// Every problem of one file, in the file's order.
#[derive(Debug, Default)]
pub struct Problems(pub Vec<Problem>);

/// One problem.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The key, with its section (`share.files.path`); empty for a fault of the file as a whole.
    pub key: String,
    /// The problem.
    pub kind: ProblemKind,
}

/// Whether a server can start with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can.
    Warning,
}

/// The problem; each text ends in its cure.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ProblemKind {
    /// It is no TOML.
    #[error("{message}: correct the TOML")]
    Syntax {
        /// The parser's words.
        message: String,
    },
    /// A text without quotes.
    #[error("{text} is a text: put it in quotes: {key} = \"{text}\"")]
    Unquoted {
        /// The key as it is written.
        key: String,
        /// The text.
        text: String,
    },
    /// Another word for true or false.
    #[error("{text} is no value: write true or false, or a text in quotes")]
    Truth {
        /// The word.
        text: String,
    },
    /// `[share]`.
    #[error("there can be several shares, each with a section of its own: write [[share]]")]
    OneShare,
    /// Nothing has this name.
    #[error("there is no such key: {}", match near {
        Some(near) => format!("did you mean {near}?"),
        None => format!("remove it; the keys here are {known}"),
    })]
    UnknownKey {
        /// The name that is nearest.
        near: Option<&'static str>,
        /// All names.
        known: String,
    },
    /// It is missing.
    #[error("is missing: add {example}")]
    Missing {
        /// A line that would do.
        example: &'static str,
    },
    /// A value of another type.
    #[error("is {found}, not {wanted}: write {example}")]
    Type {
        /// The value.
        found: &'static str,
        /// The valid form.
        wanted: &'static str,
        /// A line that would do.
        example: &'static str,
    },
    /// A word that means nothing here.
    #[error("{found:?} is not one of {known}: {}", match near {
        Some(near) => format!("did you mean {near:?}?"),
        None => "use one of them".to_owned(),
    })]
    Word {
        /// The present value.
        found: String,
        /// The valid values.
        known: String,
        /// The most similar one.
        near: Option<&'static str>,
    },
    /// No address.
    #[error("{found:?} is not an address with a port: write {example}")]
    Address {
        /// The present value.
        found: String,
        /// A line that would do.
        example: &'static str,
    },
    /// Twice the same address.
    #[error("{address} is listed twice: remove one")]
    AddressTwice {
        /// It.
        address: std::net::SocketAddr,
    },
    /// No listeners at all.
    #[error("is empty: name at least one address, or leave the key out")]
    NoListeners,
    /// No size.
    #[error("{found:?} is not a size: write it like \"512MiB\" or \"4GiB\"")]
    Size {
        /// The present value.
        found: String,
    },
    /// Out of range.
    #[error("{found} is out of range: use {least} to {most}")]
    Range {
        /// The present value.
        found: String,
        /// The least.
        least: String,
        /// The most.
        most: String,
    },
    /// No entry of a share's permission.
    #[error("{found:?} is not an entry: write it like \"NAME=read\", with read, change, full or deny")]
    Acl {
        /// The present value.
        found: String,
    },
    /// A name that cannot be one.
    #[error("{name:?} cannot be a name: {rule}")]
    Name {
        /// It.
        name: String,
        /// The rule for names.
        rule: &'static str,
    },
    /// Two shares of one name.
    #[error("{name:?} is also the name of the share in line {line}: rename one (case does not count)")]
    NameTwice {
        /// It.
        name: String,
        /// Where the other is.
        line: usize,
    },
    /// A path that is not absolute.
    #[error("{} is not absolute: begin it with /", path.display())]
    NotAbsolute {
        /// It.
        path: PathBuf,
    },
    /// A path that is not there.
    #[error("{} does not exist: create it or change the path", path.display())]
    NoPath {
        /// It.
        path: PathBuf,
    },
    /// A path that cannot be looked at.
    #[error("{}: {kind}: let the server read it or change the path", path.display())]
    BadPath {
        /// It.
        path: PathBuf,
        /// The system's reason.
        kind: std::io::ErrorKind,
    },
    /// A file where a directory should be.
    #[error("{} is not a directory: share the directory that it is in", path.display())]
    NotDirectory {
        /// It.
        path: PathBuf,
    },
    /// No users.
    #[error("{} does not exist, so no user can log on: causeway user add NAME --users {}", path.display(), path.display())]
    NoUsers {
        /// The file.
        path: PathBuf,
    },
    /// A key of another backend.
    #[error("means nothing for backend \"{backend}\": remove it, or use backend = \"{other}\"")]
    NotForBackend {
        /// The share's.
        backend: &'static str,
        /// The backend that has the key.
        other: &'static str,
    },
    /// The oldest dialect is newer than the newest.
    #[error("{min} is newer than max_dialect {max}: swap them")]
    Dialects {
        /// The oldest.
        min: super::Dialect,
        /// The newest.
        max: super::Dialect,
    },
    /// Encryption wanted where there is none.
    #[error("needs encryption, which is {why}: {cure}")]
    NoEncryption {
        /// Why it is not there.
        why: &'static str,
        /// The change that helps.
        cure: &'static str,
    },
    /// Continuous availability wanted without a place for the opens.
    #[error(
        "needs a directory that keeps the opens over a restart: set server.state = \"/var/lib/causeway\""
    )]
    NoState,
    /// No shares.
    #[error("there are no shares: add [[share]], or run causeway share add NAME PATH")]
    NoShares,
}

impl ProblemKind {
    /// Whether a server can start with it.
    pub fn severity(&self) -> Severity {
        match self {
            ProblemKind::NoUsers { .. } | ProblemKind::NoShares => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl Problems {
    /// Whether any of them stops a server.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|p| p.kind.severity() == Severity::Error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if self.kind.severity() == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        self.kind.fmt(f)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            p.fmt(f)?;
        }
        Ok(())
    }
}
