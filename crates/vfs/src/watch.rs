//! Changes of a tree that a backend reports.

use std::any::Any;
use std::sync::Arc;

use crate::{Kind, VfsPath};

/// A change of a watched directory's entries: see [`crate::Vfs::watch`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TreeChange {
    /// A name was added.
    Added(VfsPath, Kind),
    /// A name was removed.
    Removed(VfsPath, Kind),
    /// A name was changed.
    Renamed {
        /// The old name.
        from: VfsPath,
        /// The new name.
        to: VfsPath,
        /// The kind of the renamed file.
        kind: Kind,
    },
    /// A file's data was changed.
    Data(VfsPath),
    /// A file's or directory's metadata was changed.
    Metadata(VfsPath),
    /// Changes were lost: anything may have changed.
    Lost,
}

/// The callback for each change, called on a thread of the backend: it must not block.
pub type ReportChange = Arc<dyn Fn(TreeChange) + Send + Sync>;

/// A watched directory; dropping it ends the watch.
pub type WatchGuard = Box<dyn Any + Send + Sync>;
