//! What a change of the namespace is to those who watch it.

use smallvec::{SmallVec, smallvec};
use smb_wire::fscc::notify::NotifyAction;
use smb_wire::msg::{CompletionFilter, LeaseKey};
use vfs::{Kind, VfsPath};

/// A change that has happened: see [`super::Namespace::publish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// The name that changed; in a rename the old one.
    pub(crate) path: &'a VfsPath,
    pub(crate) what: What<'a>,
    pub(crate) origin: Origin,
}

/// Where a change came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An open of the server. The lease of this key on the directory is not broken by it: the open was made by who holds
    /// that lease (MS-SMB2 2.2.13.2.10, ParentLeaseKey).
    Open { parent_lease: Option<LeaseKey> },
    /// Another program.
    Outside,
}

/// What happened to the name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    Added(Kind),
    /// A link has taken the place of another file.
    Replaced,
    Removed(Kind),
    /// `replaced`: another file had the new name before.
    Renamed {
        to: &'a VfsPath,
        kind: Kind,
        replaced: bool,
    },
    /// Of the file's metadata or data, what the filter names.
    Modified(CompletionFilter),
}

/// One entry of a notification (MS-FSCC 2.7.1), and for which filters.
pub(super) type Notice<'a> = (NotifyAction, &'a VfsPath, CompletionFilter);

/// All that is new about a name whose file was replaced (MS-FSA 2.1.5.15.12).
const REPLACED: CompletionFilter = CompletionFilter::ATTRIBUTES
    .union(CompletionFilter::SIZE)
    .union(CompletionFilter::LAST_WRITE)
    .union(CompletionFilter::LAST_ACCESS)
    .union(CompletionFilter::CREATION)
    .union(CompletionFilter::SECURITY)
    .union(CompletionFilter::EA);

impl<'a> Event<'a> {
    /// The entries that watchers get, in order. Those of a rename are delivered together.
    pub(super) fn notices(&self) -> SmallVec<[Notice<'a>; 2]> {
        let path = self.path;
        match self.what {
            What::Added(kind) => smallvec![(NotifyAction::ADDED, path, name_of(kind))],
            What::Replaced => smallvec![(NotifyAction::MODIFIED, path, REPLACED)],
            What::Removed(kind) => smallvec![(NotifyAction::REMOVED, path, name_of(kind))],
            What::Modified(filter) => smallvec![(NotifyAction::MODIFIED, path, filter)],
            What::Renamed { to, kind, replaced } => {
                let name = name_of(kind);
                let stays = path.parent() == to.parent();
                let (old, new) = match () {
                    // MS-FSA 2.1.5.15.12: the new name was there, with another file.
                    () if replaced => {
                        ((NotifyAction::REMOVED, path, name), (NotifyAction::MODIFIED, to, REPLACED))
                    }
                    () if stays => (
                        (NotifyAction::RENAMED_OLD_NAME, path, name),
                        (NotifyAction::RENAMED_NEW_NAME, to, name),
                    ),
                    () => ((NotifyAction::REMOVED, path, name), (NotifyAction::ADDED, to, name)),
                };
                smallvec![old, new]
            }
        }
    }
}

fn name_of(kind: Kind) -> CompletionFilter {
    match kind {
        Kind::Directory => CompletionFilter::DIR_NAME,
        Kind::File => CompletionFilter::FILE_NAME,
    }
}
