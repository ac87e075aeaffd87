//! Problems of a configuration: the place, the problem, and the cure.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Why a configuration cannot be used or changed.
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
    /// The file has problems.
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
            ConfigError::Unreadable { .. } => Some("pass a file that you may read with --config".to_owned()),
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
    /// The path of the file as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The key, with its section (`share.files.path`); empty for a problem of the whole file.
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
    /// Invalid TOML.
    #[error("{message}: correct the TOML")]
    Syntax {
        /// The message of the parser.
        message: String,
    },
    /// A string without quotes.
    #[error("{text} is a string: put it in quotes: {key} = \"{text}\"")]
    Unquoted {
        /// The key as it is written.
        key: String,
        /// The string.
        text: String,
    },
    /// Another word for true or false.
    #[error("{text} is not a value: write true or false, or a string in quotes")]
    Truth {
        /// The word.
        text: String,
    },
    /// `[share]`.
    #[error("each share has its own section: write [[share]] instead of [share]")]
    OneShare,
    /// An unknown key.
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
        /// A valid line.
        example: &'static str,
    },
    /// A value of another type.
    #[error("is {found}, not {wanted}: write {example}")]
    Type {
        /// The value.
        found: &'static str,
        /// The valid form.
        wanted: &'static str,
        /// A valid line.
        example: &'static str,
    },
    /// An invalid word.
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
    /// Not an address.
    #[error("{found:?} is not an address with a port: write {example}")]
    Address {
        /// The present value.
        found: String,
        /// A valid line.
        example: &'static str,
    },
    /// The same address twice.
    #[error("{address} is listed twice: remove one")]
    AddressTwice {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// No listeners at all.
    #[error("is empty: add at least one address, or remove the key")]
    NoListeners,
    /// Not a size.
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
    /// Not an entry of a share's permission.
    #[error("{found:?} is not a permission: write it like \"NAME=read\", with read, change, full or deny")]
    Acl {
        /// The present value.
        found: String,
    },
    /// An invalid name.
    #[error("{name:?} cannot be a name: {rule}")]
    Name {
        /// The name.
        name: String,
        /// The rule for names.
        rule: &'static str,
    },
    /// Two shares of one name.
    #[error(
        "{name:?} is also the name of the share in line {line}: rename one (upper and lower case count as equal)"
    )]
    NameTwice {
        /// The name.
        name: String,
        /// The line of the other share.
        line: usize,
    },
    /// A path that is not absolute.
    #[error("{} is not absolute: begin it with /", path.display())]
    NotAbsolute {
        /// The path.
        path: PathBuf,
    },
    /// A path that does not exist.
    #[error("{} does not exist: create it or change the path", path.display())]
    NoPath {
        /// The path.
        path: PathBuf,
    },
    /// An inaccessible path.
    #[error("{} is not accessible ({kind}): give the server permission to read it, or change the path", path.display())]
    BadPath {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        kind: std::io::ErrorKind,
    },
    /// A file where a directory should be.
    #[error("{} is not a directory: share the directory that contains it", path.display())]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// No users file.
    #[error("{} does not exist, so no user can log on: causeway user add NAME --users {}", path.display(), path.display())]
    NoUsers {
        /// The file.
        path: PathBuf,
    },
    /// A key of another backend.
    #[error("is not valid for backend \"{backend}\": remove it, or use backend = \"{other}\"")]
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
    /// Encryption is required but not available.
    #[error("needs encryption, which is {why}: {cure}")]
    NoEncryption {
        /// Why it is not available.
        why: &'static str,
        /// The change that helps.
        cure: &'static str,
    },
    /// Continuous availability without a directory for persistent opens.
    #[error(
        "needs a directory for the opens that survive a restart: set server.state = \"/var/lib/causeway\""
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
