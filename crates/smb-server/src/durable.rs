//! Opens that outlive their connection (MS-SMB2 3.3.5.9.6, 3.3.5.9.10, 3.3.5.15.9, 3.3.7.1).
//!
//! An open is *closed* by its client's CLOSE, or when its session ends and it is not durable: then its locks, share
//! mode and caching rights end. A durable open is *disconnected* when its session ends: it loses only its owner, and
//! waits for its client to reconnect until its timeout.
//!
//! [`Open::ownership`] has the open's owner.

use std::sync::Arc;
use std::time::Duration;

use env::Moment;
use smb_wire::Guid;
use smb_wire::msg::LeaseState;

use crate::Server;
use crate::commands::close::UnattachedOpen;
use crate::journal::RecordRemoval;
use crate::open::{Open, Owner};
use crate::session::Session;

/// The kind of handle, which decides whether the open survives its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Not durable: the open is closed with its session.
    #[default]
    No,
    /// A durable handle: as long as the client may cache the handle.
    Durable,
    /// A resilient handle.
    Resilient,
    /// A persistent handle: the open survives also a restart of the server.
    Persistent,
}

/// The durability of an open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Durable {
    pub(crate) durability: Durability,
    /// How long it is kept without a connection.
    pub(crate) timeout: Duration,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// Its last connection was lost, the client set up another session in its place, or it logged off: durable opens
    /// are disconnected.
    Disconnected,
    /// An administrator ended it: all opens are closed.
    Closed,
}

/// MS-SMB2 3.3.5.9.6 <335>: the timeout that Windows grants a durable handle of version 1.
pub(crate) const DURABLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest timeout that a client may request (MS-SMB2 3.3.5.9.10, 3.3.5.15.9).
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// The timeout of a resilient open that asks for none (MS-SMB2 3.3.5.15.9, Windows' value).
pub(crate) const RESILIENT_DEFAULT: Duration = Duration::from_secs(120);
/// The timeout of a durable open of version 2 that asks for none (MS-SMB2 3.3.5.9.10 <344>).
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(180);

impl Open {
    /// Whether it survives the loss of its connection (MS-SMB2 3.3.7.1).
    pub(crate) fn survives_disconnect(&self) -> bool {
        match self.durable.lock().durability {
            Durability::No => false,
            Durability::Resilient | Durability::Persistent => true,
            Durability::Durable => {
                let held = self.file().and_then(|f| f.file.held(f.holder?));
                held.is_some_and(|h| h.state.contains(LeaseState::HANDLE_CACHING) && !h.breaking)
            }
        }
    }

    /// Reconnects it to its client; false when it is not disconnected any more.
    pub(crate) fn reconnect(&self, owner: Owner, volatile: u64) -> bool {
        let tree = owner.tree.id;
        self.ownership.reconnect(owner, tree, volatile)
    }

    /// Whether it is disconnected.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.ownership.is_disconnected()
    }
}

impl Server {
    /// Removes an open from the server's tables, to close it; `None` when it is being closed already.
    pub(crate) fn release(self: &Arc<Self>, open: &Arc<Open>) -> Option<UnattachedOpen> {
        let owner = open.ownership.begin_close(None)?;
        Some(self.detach(open, owner, self.remove_record(open)))
    }

    /// Removes an open that is being closed, and had this owner, from the tables. `record_removal` completes when its
    /// record is removed from the journal.
    fn detach(
        self: &Arc<Self>,
        open: &Arc<Open>,
        owner: Option<Owner>,
        record_removal: RecordRemoval,
    ) -> UnattachedOpen {
        if let Some(owner) = owner {
            owner.session.remove_open(open.persistent);
        }
        self.opens.remove(open.persistent);
        self.creates.forget(open);
        UnattachedOpen::with_record_removal(self, Arc::clone(open), record_removal)
    }

    /// Disconnects or closes the opens of a session that ends. The opens that must be closed are closed when the future
    /// completes; if it is dropped, even unpolled, they are closed in the background.
    pub(crate) fn end_session(
        self: &Arc<Self>,
        session: &Arc<Session>,
        how: SessionEnd,
    ) -> impl Future<Output = ()> + Send + use<> {
        let opens: Vec<_> = session.end().into_iter().filter_map(|id| self.opens.find(id)).collect();
        let closing: Vec<UnattachedOpen> = opens
            .iter()
            .filter(|open| how == SessionEnd::Closed || !self.disconnect(open))
            .filter_map(|open| self.release(open))
            .collect();
        async move {
            for open in closing {
                open.close().await;
            }
        }
    }

    /// The disconnected persistent open that the CREATE with this CreateGuid created.
    pub(crate) fn find_persistent(&self, create_guid: Guid) -> Option<Arc<Open>> {
        let is_it = |open: &Arc<Open>| {
            open.durable.lock().durability == Durability::Persistent && open.is_disconnected()
        };
        self.opens.find_by_create_guid(create_guid).into_iter().find(is_it)
    }

    /// Disconnects a durable open, and starts its timeout; false for one that does not survive its connection.
    fn disconnect(self: &Arc<Self>, open: &Arc<Open>) -> bool {
        if !open.survives_disconnect() {
            return false;
        }
        let Some(disconnection) = open.ownership.disconnect() else { return true };
        let timeout = open.durable.lock().timeout;
        self.suspend_break(open, timeout);
        self.expire_later(open, disconnection, timeout);
        true
    }

    /// Undoes a reconnect whose session could not take the open.
    pub(crate) async fn disconnect_or_close(self: &Arc<Self>, open: &Arc<Open>) {
        if !self.disconnect(open)
            && let Some(open) = self.release(open)
        {
            open.close().await;
        }
    }

    /// Closes an open after its timeout if its client has not reconnected (MS-SMB2 3.3.6.2, 3.3.6.4).
    pub(crate) fn expire_later(self: &Arc<Self>, open: &Arc<Open>, disconnection: u64, after: Duration) {
        let (server, open) = (Arc::downgrade(self), Arc::downgrade(open));
        let env = self.env.clone();
        self.env.spawn(async move {
            let mut disconnection = Some(disconnection);
            while let Some(this) = disconnection {
                env.sleep(after).await;
                let (Some(server), Some(open)) = (server.upgrade(), open.upgrade()) else { return };
                disconnection = server.expire(&open, this).await;
            }
        });
    }

    /// Closes an open at the end of a disconnection. Its record is removed from the journal first: after a restart its
    /// client must not find it again, for other opens may have used the file since. If that fails, the open stays
    /// disconnected for another disconnection, whose number is returned.
    async fn expire(self: &Arc<Self>, open: &Arc<Open>, disconnection: u64) -> Option<u64> {
        if !open.ownership.begin_expiry(disconnection) {
            return None;
        }
        if let Err(e) = self.remove_record(open).await {
            tracing::error!("the end of a persistent open cannot be stored, so the open is kept: {e}");
            *open.record_removed.lock() = false;
            let disconnection = open.ownership.cancel_expiry();
            // The removal may have reached stable storage in part.
            let _ = self.store_open(open).await;
            return Some(disconnection);
        }
        open.ownership.finish_expiry();
        self.detach(open, None, Box::pin(std::future::ready(Ok(())))).close().await;
        None
    }

    /// Closes a disconnected open; does nothing when its client has reconnected, or the open is being closed already.
    pub(crate) fn close_disconnected(self: &Arc<Self>, open: &Arc<Open>) {
        if let Some(disconnection) = open.ownership.disconnection()
            && let Some(owner) = open.ownership.begin_close(Some(disconnection))
        {
            self.env.spawn(self.detach(open, owner, self.remove_record(open)).close());
        }
    }

    /// The [`Moment`] as an instant of the environment's clock.
    pub(crate) fn until(&self, moment: Moment) -> std::time::Instant {
        self.env.instant(moment)
    }
}
