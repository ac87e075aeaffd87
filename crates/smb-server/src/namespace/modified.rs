//! Changes of a file's data and metadata (MS-FSA: PendingNotifications).
//!
//! A WRITE is not published at once: its notification stays pending, and is published with the next change of metadata,
//! with a FLUSH, or when an open of the file is closed, as on NTFS.

use smb_wire::msg::CompletionFilter;

use std::sync::Arc;

use super::{Event, What};
use crate::Server;
use crate::open::{FileOpen, Open};

impl Server {
    /// Publishes a change of a file through an open, and the file's pending notifications.
    pub(crate) fn modified(self: &Arc<Self>, open: &Open, f: &FileOpen, filter: CompletionFilter) {
        f.file.add_pending_change(filter);
        self.publish_pending_changes(open, f);
    }

    /// Publishes a file's pending notifications, under the path of `open`.
    pub(crate) fn publish_pending_changes(self: &Arc<Self>, open: &Open, f: &FileOpen) {
        if !f.file.owes() {
            return;
        }
        let Some((share, path)) = f.file.place_of(open.persistent) else { return };
        // Without watches it stays pending: a watch may begin before the file is closed.
        if !share.is_watched() {
            return;
        }
        let what = What::Modified(f.file.take_pending_changes());
        self.publish(&share, &Event { path: &path, what, origin: f.origin() });
    }
}
