//! The caller's access check before a file is created.

use crate::{EntrySecurity, FileKey, Posix, Stat};

/// The directory in which a file is about to be created.
pub struct Parent {
    /// Its metadata.
    pub stat: Stat,
    /// Its stored security descriptor: see [`crate::Node::security`].
    pub security: EntrySecurity,
    /// The directories on the path to it: see [`crate::Opened::closed`].
    pub closed: Vec<Posix>,
}

/// Decides whether [`crate::Vfs::open`] may create a file, and with which security descriptor.
///
/// The backend calls it after it has found that the name is free, and before it creates anything. Until the file is
/// created no other call of the backend takes the name, and the file is created in the very directory that was checked.
/// A backend that loses a race against another program may call it again; the last answer is valid.
///
/// Its methods run on a thread of the backend and under its locks: they must not block or call the backend.
pub trait CreateCheck: Send + Sync {
    /// The security descriptor of the new file, self-relative; `None` refuses ([`crate::VfsError::Refused`]).
    fn check(&self, parent: &Parent) -> Option<Vec<u8>>;

    /// Whether a named stream may be created in `file`, which exists. If not, the file itself is opened, for the caller
    /// to check ([`crate::Opened::stream`] is `None`).
    fn allows_stream(&self, _file: FileKey) -> bool {
        false
    }
}
