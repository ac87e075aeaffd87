//! A bounded queue of notices with a waker: any thread puts some in, one task takes them out. See [`crate::inbox`] for
//! the notices.
//!
//! Invariants:
//! 1. A notice that [`Mailbox::send`] has accepted is returned once: by [`Mailbox::poll`], or by [`Mailbox::close`].
//! 2. When a notice or an announcement is added after the task has found none, the task is woken.
//! 3. Nothing is accepted once it is closed.

use std::collections::VecDeque;
use std::task::Context;

use crate::sync::{AtomicU32, AtomicWaker, Mutex, Ordering};

/// The most notices in one inbox. Each open or lease of a client usually has at most one.
pub(crate) const NOTICES_MAX: usize = 16_384;

/// See the module.
pub(crate) struct Mailbox<N> {
    capacity: usize,
    state: Mutex<State<N>>,
    waker: AtomicWaker,
    /// An announcement was added since the last `take_pending`: most turns find none, and take no lock.
    announced: AtomicU32,
}

struct State<N> {
    notices: VecDeque<N>,
    /// Requests of this connection, by slot, that need an interim response (MS-SMB2 3.3.4.2).
    pending: Vec<u64>,
    closed: bool,
}

impl<N> std::fmt::Debug for Mailbox<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mailbox")
    }
}

impl<N> Default for Mailbox<N> {
    fn default() -> Mailbox<N> {
        Mailbox::with_capacity(NOTICES_MAX)
    }
}

impl<N> Mailbox<N> {
    /// A mailbox for at most `capacity` notices.
    pub(crate) fn with_capacity(capacity: usize) -> Mailbox<N> {
        let state = State { notices: VecDeque::new(), pending: Vec::new(), closed: false };
        Mailbox {
            capacity,
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            announced: AtomicU32::new(0),
        }
    }

    /// Adds a notice and wakes the connection; false when the connection has ended or the mailbox is full.
    pub(crate) fn send(&self, notice: N) -> bool {
        {
            let mut state = self.state.lock();
            if state.closed || state.notices.len() >= self.capacity {
                return false;
            }
            state.notices.push_back(notice);
        }
        self.waker.wake();
        true
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Takes the next notice; when there is none, the task of `cx` is woken by the next one.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Option<N> {
        // Registered first: a notice that is added in between wakes the task.
        self.waker.register(cx.waker());
        self.state.lock().notices.pop_front()
    }

    /// Asks for an interim response to a request of this connection; its handler may run in a task of its own.
    pub(crate) fn announce(&self, slot: u64) {
        self.state.lock().pending.push(slot);
        self.announced.store(1, Ordering::Release);
        self.waker.wake();
    }

    /// The requests to send interim responses to.
    pub(crate) fn take_pending(&self) -> Vec<u64> {
        if self.announced.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.announced.store(0, Ordering::Relaxed);
        std::mem::take(&mut self.state.lock().pending)
    }

    /// The connection ends: nothing is accepted any more. Returns the notices that were not sent, for another
    /// connection.
    pub(crate) fn close(&self) -> VecDeque<N> {
        let mut state = self.state.lock();
        state.closed = true;
        std::mem::take(&mut state.notices)
    }
}
