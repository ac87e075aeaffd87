//! How many connections there are, which of them are unauthenticated, and how they are brought to an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Server;
use crate::inbox::{Inbox, Notice};

/// How long connections that are cut may take to close what they have open. The last words of an SMB Direct connection
/// take half of it at most.
const CLOSING: Duration = Duration::from_secs(10);

impl Server {
    /// Connections now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Stops taking requests: connections finish what they have begun and close. Those that have not after `limit` are
    /// cut: their requests are given up, their opens closed. Returns when none is left; a connection whose backend does
    /// not even close is given up after some seconds more.
    pub async fn drain(&self, limit: Duration) {
        self.draining.store(true, Ordering::Release);
        if self.emptied(limit).await {
            return;
        }
        self.cutting.store(true, Ordering::Release);
        self.emptied(CLOSING).await;
    }

    /// Waits until there are no connections; false when there still are after `limit`.
    async fn emptied(&self, limit: Duration) -> bool {
        let end = self.env.now() + limit;
        loop {
            self.drained.notify_waiters(); // connections look at what was set when woken
            if self.connections.load(Ordering::Acquire) == 0 {
                return true;
            }
            if self.env.now() >= end {
                return false;
            }
            self.env.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Completes when the server drains.
    pub(crate) async fn draining(&self) {
        self.told(&self.draining).await;
    }

    /// Completes when its connections must close at once.
    pub(crate) async fn cutting(&self) {
        self.told(&self.cutting).await;
    }

    async fn told(&self, what: &AtomicBool) {
        loop {
            let wake = self.drained.notified();
            if what.load(Ordering::Acquire) {
                return;
            }
            wake.await;
        }
    }

    /// Counts a connection for as long as the guard lives; `None` at the bound.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<(u64, ConnectionGuard)> {
        let n = self.connections.fetch_add(1, Ordering::AcqRel);
        let guard = ConnectionGuard(Arc::clone(self));
        if n >= self.config.limits.connections || self.draining.load(Ordering::Acquire) {
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some((self.next_connection.fetch_add(1, Ordering::Relaxed), guard))
    }

    /// Counts an unauthenticated connection; `None` when their number is at its bound, because they hold memory too.
    pub(crate) fn enter_unauthenticated(self: &Arc<Self>, now: Instant) -> Option<Unauthenticated> {
        let n = self.unauthenticated.fetch_add(1, Ordering::AcqRel);
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let guard = Unauthenticated { server: Arc::clone(self), id, since: now };
        let most = self.config.limits.unauthenticated;
        // At the limit the oldest is closed and the new one taken: a client that means to log on does so at once, and a flood
        // of connections must not keep it out. One that is being closed counts until it is gone.
        (n < most || n < 2 * most && self.close_oldest_unauthenticated()).then_some(guard)
    }

    /// Closes the oldest unauthenticated connection; false when there is none that can be closed.
    fn close_oldest_unauthenticated(&self) -> bool {
        let oldest = self.unauthenticated_inboxes.lock().pop_first();
        oldest.is_some_and(|(_, inbox)| inbox.send(Notice::Crowded))
    }
}

/// An unauthenticated connection, counted until this is dropped.
pub(crate) struct Unauthenticated {
    server: Arc<Server>,
    /// In order of age.
    id: u64,
    pub(crate) since: Instant,
}

impl Unauthenticated {
    /// From now on the connection can be closed for another one, with a notice to this inbox.
    pub(crate) fn may_be_closed(&self, inbox: &Arc<Inbox>) {
        self.server.unauthenticated_inboxes.lock().insert(self.id, Arc::clone(inbox));
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        self.server.unauthenticated_inboxes.lock().remove(&self.id);
        self.server.unauthenticated.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See [`Server::enter`].
pub(crate) struct ConnectionGuard(Arc<Server>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
