//! The addresses that a conversion is copying to other rows: writes and discards of them wait.
//!
//! Invariants:
//! 1. While a window is open, no write or discard of its addresses is in progress, and none begins.
//! 2. The addresses of a write or discard in progress stay in the same rows: the map of addresses changes only while a
//!    window is open, and only for its addresses.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedRwLockReadGuard, RwLock};

/// See the module.
#[derive(Default)]
pub(crate) struct Window {
    start: AtomicU64,
    end: AtomicU64,
    /// Held shared by calls that use the map of addresses. Each window replaces it, so that later calls do not wait for
    /// earlier ones.
    users: Mutex<Arc<RwLock<()>>>,
    closed: Notify,
}

/// An open window; dropping it closes it.
pub(crate) struct OpenWindow<'a>(&'a Window);

impl Window {
    /// Whether some of these addresses are in the window.
    pub(crate) fn has_any_of(&self, range: &Range<u64>) -> bool {
        let (start, end) = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        start < range.end && range.start < end
    }

    /// Waits until none of these addresses is in the window. While the caller has the guard, none gets into it.
    pub(crate) async fn wait_outside(&self, range: Range<u64>) -> OwnedRwLockReadGuard<()> {
        loop {
            let mut closed = pin!(self.closed.notified());
            closed.as_mut().enable();
            let users = Arc::clone(&self.users.lock());
            let user = Arc::clone(&users).read_owned().await;
            // A window that opened meanwhile has waited for the earlier users, and later ones would not wait for them.
            if !Arc::ptr_eq(&users, &self.users.lock()) {
                continue;
            }
            if !self.has_any_of(&range) {
                return user;
            }
            drop(user);
            closed.await;
        }
    }

    /// Opens the window, and waits for the calls that have a guard. Only one window is open at a time.
    pub(crate) async fn open(&self, range: Range<u64>) -> OpenWindow<'_> {
        self.start.store(range.start, Ordering::SeqCst);
        self.end.store(range.end, Ordering::SeqCst);
        let window = OpenWindow(self);
        let users = std::mem::take(&mut *self.users.lock());
        drop(users.write_owned().await);
        window
    }
}

impl Drop for OpenWindow<'_> {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::SeqCst);
        self.0.closed.notify_waiters();
    }
}
