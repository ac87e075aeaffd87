//! The paths of opens, and the names of a file's streams.

use std::sync::Arc;

use vfs::{StreamName, VfsPath};

use super::{FileState, Member, StreamState};
use crate::share::Share;

impl FileState {
    /// The path of the file in an open.
    pub(crate) fn path_of(&self, open: u64) -> VfsPath {
        let state = self.state.lock();
        state.members.iter().find(|m| m.open == open).map(|m| m.path.clone()).unwrap_or_default()
    }

    /// The path that a running rename gives it.
    pub(crate) fn renamed_to(&self) -> Option<VfsPath> {
        self.state.lock().renamed_to.clone()
    }

    /// A rename is about to give it this path, or has ended.
    pub(crate) fn set_renamed_to(&self, path: Option<VfsPath>) {
        self.state.lock().renamed_to = path;
    }

    /// The share and path of the file in an open.
    pub(crate) fn place_of(&self, open: u64) -> Option<(Arc<Share>, VfsPath)> {
        let state = self.state.lock();
        state.members.iter().find(|m| m.open == open).map(|m| (Arc::clone(&m.share), m.path.clone()))
    }

    /// The name of an open's stream.
    pub(crate) fn stream_of(&self, open: u64) -> Option<StreamName> {
        self.state.lock().members.iter().find(|m| m.open == open)?.stream.clone()
    }

    /// The name of the share of an open.
    pub(crate) fn share_of(&self, open: u64) -> String {
        let state = self.state.lock();
        state.members.iter().find(|m| m.open == open).map(|m| m.share.name.clone()).unwrap_or_default()
    }

    /// Whether an open is of this share.
    pub(crate) fn is_of_share(&self, open: u64, share: &Arc<Share>) -> bool {
        let state = self.state.lock();
        state.members.iter().any(|m| m.open == open && Arc::ptr_eq(&m.share, share))
    }

    /// Whether an open has this path in this share, without regard to case.
    pub(crate) fn is_known_as(&self, open: u64, share: &Arc<Share>, path: &VfsPath) -> bool {
        let same = |m: &Member| Arc::ptr_eq(&m.share, share) && m.path.is_same_name(path);
        self.state.lock().members.iter().any(|m| m.open == open && same(m))
    }

    /// The name of one of its streams; `None` for the unnamed one.
    pub(crate) fn stream_name(&self, stream: &StreamState) -> Option<StreamName> {
        let state = self.state.lock();
        state.streams.iter().find(|e| std::ptr::eq(&*e.stream, stream)).and_then(|e| e.name.clone())
    }

    /// Whether a stream of this name is open or being removed.
    pub(crate) fn has_stream(&self, name: &StreamName) -> bool {
        self.state.lock().streams.iter().any(|e| e.name.as_ref() == Some(name))
    }

    /// A stream was renamed: updates the name in its opens.
    pub(crate) fn stream_renamed(&self, stream: &StreamState, to: &StreamName) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.streams.iter_mut().find(|e| std::ptr::eq(&*e.stream, stream)) else { return };
        let from = entry.name.replace(to.clone());
        for member in state.members.iter_mut().filter(|m| m.stream == from) {
            member.stream.clone_from(&entry.name);
        }
    }
}
