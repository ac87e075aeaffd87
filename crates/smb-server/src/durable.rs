//! Opens that outlive their connection (MS-SMB2 3.3.5.9.6, 3.3.5.9.10, 3.3.5.15.9, 3.3.7.1).
//!
//! An open is *closed* when its client says so, or when nothing keeps it: then its locks, share mode and caching rights
//! end. It is *disconnected* when its session goes and it is durable: then it only loses its owner, and waits for a
//! client to reconnect until its time is over.
//!
//! [`Open::tenure`] has the open's owner.

use std::sync::Arc;
use std::time::Duration;

use env::Moment;
use smb_wire::Guid;
use smb_wire::msg::LeaseState;

use crate::Server;
use crate::commands::close::Loose;
use crate::journal::Forgotten;
use crate::open::{Open, Owner};
use crate::session::Session;

/// What keeps an open without a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nothing.
    #[default]
    No,
    /// A durable handle: as long as the client may cache the handle.
    Durable,
    /// A resilient handle.
    Resilient,
    /// A persistent handle: across a restart of the server too.
    Persistent,
}

/// An open's part of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Durable {
    pub(crate) kept: Kept,
    /// How long it is kept without a connection.
    pub(crate) timeout: Duration,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// Its last connection was lost, the client set up another session in its place, or it logged off: durable opens stay.
    Disconnected,
    /// An administrator ended it: nothing stays.
    Closed,
}

/// MS-SMB2 3.3.5.9.6 <335>: what Windows grants a durable handle of version 1.
pub(crate) const DURABLE_TIMEOUT: Duration = Duration::from_secs(120);
/// The most that a client may ask for (MS-SMB2 3.3.5.9.10, 3.3.5.15.9).
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// A resilient open that asks for no time (MS-SMB2 3.3.5.15.9, what Windows gives).
pub(crate) const RESILIENT_DEFAULT: Duration = Duration::from_secs(120);
/// What one gets that asks for no time (MS-SMB2 3.3.5.9.10 <344>).
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(180);

impl Open {
    /// Whether it stays when its connection is lost (MS-SMB2 3.3.7.1).
    pub(crate) fn stays(&self) -> bool {
        match self.durable.lock().kept {
            Kept::No => false,
            Kept::Resilient | Kept::Persistent => true,
            Kept::Durable => {
                let held = self.file().and_then(|f| f.file.held(f.holder?));
                held.is_some_and(|h| h.state.contains(LeaseState::HANDLE_CACHING) && !h.breaking)
            }
        }
    }

    /// Gives it to a client that has come back; false when it is not away any more.
    pub(crate) fn reconnect(&self, owner: Owner, volatile: u64) -> bool {
        let tree = owner.tree.id;
        self.tenure.reconnect(owner, tree, volatile)
    }

    /// Whether its client is away.
    pub(crate) fn is_away(&self) -> bool {
        self.tenure.is_away()
    }
}

impl Server {
    /// Takes an open out of the server's tables, to close it; `None` when it is being closed already.
    pub(crate) fn release(self: &Arc<Self>, open: &Arc<Open>) -> Option<Loose> {
        let owner = open.tenure.begin_close(None)?;
        Some(self.detach(open, owner, self.forget_stored(open)))
    }

    /// Takes an open that is being closed, and had this owner, out of the tables. `forgotten` completes when its record is
    /// gone.
    fn detach(self: &Arc<Self>, open: &Arc<Open>, owner: Option<Owner>, forgotten: Forgotten) -> Loose {
        if let Some(owner) = owner {
            owner.session.remove_open(open.persistent);
        }
        self.opens.remove(open.persistent);
        self.creates.forget(open);
        Loose::forgotten(self, Arc::clone(open), forgotten)
    }

    /// Ends a session's part of its opens. What must be closed is closed when the future completes; should it be dropped,
    /// even before it was polled, in the background.
    pub(crate) fn end_session(
        self: &Arc<Self>,
        session: &Arc<Session>,
        how: SessionEnd,
    ) -> impl Future<Output = ()> + Send + use<> {
        let opens: Vec<_> = session.end().into_iter().filter_map(|id| self.opens.find(id)).collect();
        let closing: Vec<Loose> = opens
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

    /// The persistent open of an absent client that a CREATE of this name made.
    pub(crate) fn find_persistent(&self, create_guid: Guid) -> Option<Arc<Open>> {
        let is_it = |open: &Arc<Open>| open.durable.lock().kept == Kept::Persistent && open.is_away();
        self.opens.made_by(create_guid).into_iter().find(is_it)
    }

    /// Disconnects an open that stays without its connection, and starts its time; false for one that does not stay.
    fn disconnect(self: &Arc<Self>, open: &Arc<Open>) -> bool {
        if !open.stays() {
            return false;
        }
        let Some(absence) = open.tenure.disconnect() else { return true };
        let timeout = open.durable.lock().timeout;
        self.suspend_break(open, timeout);
        self.expire_later(open, absence, timeout);
        true
    }

    /// Undoes a reconnect whose session cannot have the open.
    pub(crate) async fn disconnect_or_close(self: &Arc<Self>, open: &Arc<Open>) {
        if !self.disconnect(open)
            && let Some(open) = self.release(open)
        {
            open.close().await;
        }
    }

    /// Closes an open that nobody has reconnected to when its time is over (MS-SMB2 3.3.6.2, 3.3.6.4).
    pub(crate) fn expire_later(self: &Arc<Self>, open: &Arc<Open>, absence: u64, after: Duration) {
        let (server, open) = (Arc::downgrade(self), Arc::downgrade(open));
        let env = self.env.clone();
        self.env.spawn(async move {
            let mut absence = Some(absence);
            while let Some(this) = absence {
                env.sleep(after).await;
                let (Some(server), Some(open)) = (server.upgrade(), open.upgrade()) else { return };
                absence = server.expire(&open, this).await;
            }
        });
    }

    /// Closes an open at the end of an absence. Its end is stored first: after a restart its client must not find it again,
    /// when others have used the file since. If that fails, the open stays until the end of another absence, which is
    /// returned.
    async fn expire(self: &Arc<Self>, open: &Arc<Open>, absence: u64) -> Option<u64> {
        if !open.tenure.begin_end(absence) {
            return None;
        }
        if let Err(e) = self.forget_stored(open).await {
            tracing::error!("the end of a persistent open cannot be stored; the open stays: {e}");
            *open.forgotten.lock() = false;
            let absence = open.tenure.stays_away();
            // Part of the removal may be on stable storage.
            let _ = self.store_open(open).await;
            return Some(absence);
        }
        open.tenure.end();
        self.detach(open, None, Box::pin(std::future::ready(Ok(())))).close().await;
        None
    }

    /// Closes an open whose client is away; nothing when it has come back, or nobody waits for it.
    pub(crate) fn close_away(self: &Arc<Self>, open: &Arc<Open>) {
        if let Some(absence) = open.tenure.absence()
            && let Some(owner) = open.tenure.begin_close(Some(absence))
        {
            self.env.spawn(self.detach(open, owner, self.forget_stored(open)).close());
        }
    }

    /// The time until a moment from now.
    pub(crate) fn until(&self, moment: Moment) -> std::time::Instant {
        self.env.instant(moment)
    }
}
