//! The caller's access check before a file is created.

use crate::{EntrySecurity, FileKey, Posix, Stat};

/// The directory in which a file is about to be created.
pub struct Parent {
    /// Its metadata.
    pub stat: Stat,
    /// Its stored security descriptor: see [`crate::Node::security`].
    pub security: EntrySecurity,
    /// The directories on the path to it: see [`crate::Opened::restricted_directories`].
    pub restricted_directories: Vec<Posix>,
}

/// Decides whether [`crate::Vfs::open`] may create a file, and with which security descriptor.
///
/// The backend calls it when it has found that the name is free, before it creates anything. Until the file is created,
/// no other call of the backend can take the name. The file is created in the directory that was checked. A backend
/// that loses a race against another program may call it again; the last result is used.
///
/// Its methods run on a thread of the backend and under its locks: they must not block or call the backend.
pub trait CreateCheck: Send + Sync {
    /// Returns the security descriptor of the new file, self-relative; `None` refuses the creation
    /// ([`crate::VfsError::Refused`]).
    fn check(&self, parent: &Parent) -> Option<Vec<u8>>;

    /// Whether a named stream may be created in `file`, which exists. If not, the file itself is opened, for the caller
    /// to check ([`crate::Opened::stream`] is `None`).
    fn allows_stream(&self, _file: FileKey) -> bool {
        false
    }
}
