//! Changes of a file's data and metadata (MS-FSA: PendingNotifications).
//!
//! A WRITE is not published at once: its notification stays pending, and is published with the next change of metadata,
//! with a FLUSH, or when an open of the file is closed, as on NTFS. The same holds for WRITEs to a named stream.

use std::sync::Arc;

use smb_wire::fscc::notify::NotifyAction;
use smb_wire::msg::CompletionFilter;
use vfs::{StreamName, VfsPath};

use super::{Event, EventKind};
use crate::Server;
use crate::open::{FileOpen, Open};
use crate::share::Share;

/// What happened to a named stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamChange {
    Added,
    Removed,
    Data,
}

impl Server {
    /// Reports a change of a named stream to the watches (MS-FSA 2.1.5.1.1, 2.1.5.1.2, 2.1.5.4). Leases on the directory
    /// stay: its entries tell nothing about named streams.
    pub(crate) fn publish_stream(
        &self,
        share: &Share,
        path: &VfsPath,
        name: &StreamName,
        change: StreamChange,
    ) {
        if !share.watches.any() {
            return;
        }
        let (action, filter) = match change {
            StreamChange::Added => (NotifyAction::ADDED_STREAM, CompletionFilter::STREAM_NAME),
            StreamChange::Removed => (NotifyAction::REMOVED_STREAM, CompletionFilter::STREAM_NAME),
            StreamChange::Data => (
                NotifyAction::MODIFIED_STREAM,
                CompletionFilter::STREAM_SIZE | CompletionFilter::STREAM_WRITE,
            ),
        };
        share.watches.report(&[(action, &path.with_stream(name), filter)]);
    }

    /// Publishes a change of a file through an open, and the file's pending notifications.
    pub(crate) fn modified(self: &Arc<Self>, open: &Open, f: &FileOpen, filter: CompletionFilter) {
        f.file.add_pending_change(filter);
        self.publish_pending_changes(open, f);
    }

    /// Publishes a file's pending notifications, under the path of `open`.
    pub(crate) fn publish_pending_changes(self: &Arc<Self>, open: &Open, f: &FileOpen) {
        if f.stream.take_change()
            && let Some(name) = f.file.stream_name(&f.stream)
            && let Some((share, path)) = f.file.place_of(open.persistent)
        {
            self.publish_stream(&share, &path, &name, StreamChange::Data);
        }
        if !f.file.has_pending_changes() {
            return;
        }
        let Some((share, path)) = f.file.place_of(open.persistent) else { return };
        // Without watches it stays pending: a watch may begin before the file is closed.
        if !share.is_watched() {
            return;
        }
        let event_kind = EventKind::Modified(f.file.take_pending_changes());
        self.publish(&share, &Event { path: &path, event_kind, origin: f.origin() });
    }
}
