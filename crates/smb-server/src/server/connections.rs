//! The number of connections, and their orderly end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Server;

/// How long connections that are cut may take to close their opens. Sending the last messages of an SMB Direct
/// connection takes at most half of it.
const CLOSING: Duration = Duration::from_secs(10);

impl Server {
    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Refuses new connections. An existing one is closed once its client has sent nothing for a second, so that running
    /// transfers complete. After `limit` the others are cut: their requests are abandoned, their opens closed. Returns when
    /// no connection is left, or some seconds later if a backend does not close.
    pub async fn drain(&self, limit: Duration) {
        self.draining.store(true, Ordering::Release);
        if self.wait_until_empty(limit).await {
            return;
        }
        self.force_closing.store(true, Ordering::Release);
        self.wait_until_empty(CLOSING).await;
    }

    /// Waits until there are no connections; false when there are any after `limit`.
    async fn wait_until_empty(&self, limit: Duration) -> bool {
        let end = self.env.now() + limit;
        loop {
            self.drained.notify_waiters(); // woken connections check the flags set before
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
        self.wait_for_flag(&self.draining).await;
    }

    /// Completes when its connections must close at once.
    pub(crate) async fn force_closing(&self) {
        self.wait_for_flag(&self.force_closing).await;
    }

    async fn wait_for_flag(&self, flag: &AtomicBool) {
        loop {
            let wake = self.drained.notified();
            if flag.load(Ordering::Acquire) {
                return;
            }
            wake.await;
        }
    }

    /// Counts a connection until the guard is dropped; `None` at the bound.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<(u64, ConnectionGuard)> {
        let n = self.connections.fetch_add(1, Ordering::AcqRel);
        let guard = ConnectionGuard(Arc::clone(self));
        let most = self.config.limits.connections;
        if n >= most && self.full.lock().due(self.env.now()) {
            tracing::warn!("connections are refused: {most} are open, which is the limit");
        }
        if n >= most || self.draining.load(Ordering::Acquire) {
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some((self.next_connection.fetch_add(1, Ordering::Relaxed), guard))
    }
}

/// See [`Server::enter`].
pub(crate) struct ConnectionGuard(Arc<Server>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
