//! A connection's channel of a session (MS-SMB2 3.3.1.14), with the tree connect and open that its requests used last.

use std::sync::Arc;

use smb_auth::sign::SigningKey;
use smb_wire::{Command, FileId, NtStatus};

use super::counting::Tallies;
use crate::Server;
use crate::open::Open;
use crate::session::Session;
use crate::share::Tree;

/// A channel. Its requests borrow session, tree connect and open from it: a READ that completes at once touches no
/// reference count.
pub(super) struct Channel {
    pub(super) session: Arc<Session>,
    pub(super) signing: Arc<SigningKey>,
    /// The tree connect used last: nearly always the next request uses the same.
    pub(super) last_tree: Option<Arc<Tree>>,
    /// The open used last, cached for the same reason.
    pub(super) last_open: Option<Arc<Open>>,
    pub(super) tallies: Tallies,
}

impl Channel {
    /// A new channel.
    pub(super) fn new(session: Arc<Session>, signing: Arc<SigningKey>) -> Channel {
        Channel { session, signing, last_tree: None, last_open: None, tallies: Tallies::default() }
    }

    /// Looks up the session's tree connect with this id, and makes it the one used last (MS-SMB2 3.3.5.2.11).
    ///
    /// # Errors
    /// STATUS_NETWORK_NAME_DELETED when there is none.
    #[inline]
    pub(super) fn turn_to_tree(&mut self, server: &Server, id: u32) -> Result<&Arc<Tree>, NtStatus> {
        if self.last_tree.as_ref().is_none_or(|tree| tree.id != id || !tree.is_live()) {
            self.last_tree = self.session.tree(id).filter(|tree| tree.is_live());
            if let Some(tree) = &self.last_tree {
                self.tallies.turn_to(server, &self.session, tree);
            }
        }
        self.last_tree.as_ref().ok_or(NtStatus::NETWORK_NAME_DELETED)
    }

    /// Looks up the session's open with this id, and makes it the one used last.
    #[inline]
    pub(super) fn turn_to_open(&mut self, server: &Server, id: FileId) -> Option<&Arc<Open>> {
        if self.last_open.as_ref().is_none_or(|open| open.id() != id) {
            let open = server.opens.get(id).filter(|open| open.is_named_by(&self.session, id.volatile))?;
            self.last_open = Some(open);
        }
        self.last_open.as_ref()
    }

    /// Drops the cached references to a tree connect or open that a request with this command ends.
    #[inline]
    pub(super) fn forget(&mut self, command: Command) {
        match command {
            Command::CLOSE => self.last_open = None,
            Command::TREE_DISCONNECT => self.last_tree = None,
            _ => {}
        }
    }
}
