//! A change of the namespace as the watches report it.

use smallvec::{SmallVec, smallvec};
use smb_wire::fscc::notify::NotifyAction;
use smb_wire::msg::{CompletionFilter, LeaseKey};
use vfs::{Kind, VfsPath};

/// A change that has happened: see [`super::Namespace::publish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// The name that changed; in a rename the old one.
    pub(crate) path: &'a VfsPath,
    pub(crate) event_kind: EventKind<'a>,
    pub(crate) origin: Origin,
}

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An open of the server. It does not break the directory's lease with this key: the open belongs to the client
    /// that holds that lease (MS-SMB2 2.2.13.2.10, ParentLeaseKey).
    Open { parent_lease: Option<LeaseKey> },
    /// Another program.
    OtherProgram,
}

/// What happened to the name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventKind<'a> {
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
    /// The file's metadata or data changed, as the filter states.
    Modified(CompletionFilter),
}

/// One entry of a notification (MS-FSCC 2.7.1), and the filters that it matches.
pub(super) type Notice<'a> = (NotifyAction, &'a VfsPath, CompletionFilter);

/// The properties that may have changed of a name whose file was replaced (MS-FSA 2.1.5.15.12).
const REPLACED: CompletionFilter = CompletionFilter::ATTRIBUTES
    .union(CompletionFilter::SIZE)
    .union(CompletionFilter::LAST_WRITE)
    .union(CompletionFilter::LAST_ACCESS)
    .union(CompletionFilter::CREATION)
    .union(CompletionFilter::SECURITY)
    .union(CompletionFilter::EA);

impl<'a> Event<'a> {
    /// The entries that watches report, in order. Those of a rename are reported together.
    pub(super) fn notices(&self) -> SmallVec<[Notice<'a>; 2]> {
        let path = self.path;
        match self.event_kind {
            EventKind::Added(kind) => smallvec![(NotifyAction::ADDED, path, name_of(kind))],
            EventKind::Replaced => smallvec![(NotifyAction::MODIFIED, path, REPLACED)],
            EventKind::Removed(kind) => smallvec![(NotifyAction::REMOVED, path, name_of(kind))],
            EventKind::Modified(filter) => smallvec![(NotifyAction::MODIFIED, path, filter)],
            EventKind::Renamed { to, kind, replaced } => {
                let name = name_of(kind);
                let stays = path.parent() == to.parent();
                let (old, new) = match () {
                    // MS-FSA 2.1.5.15.12: another file had the new name before.
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
