//! What other threads have to say to a connection: oplock and lease breaks, ends of sessions.
//!
//! A connection belongs to one worker. Any thread may put a notice into its inbox; that wakes the connection's task,
//! which turns the notice into a message in its next turn. The inbox is bounded: a client that does not take its
//! notices is treated as one that cannot be reached.

use std::collections::VecDeque;
use std::task::Context;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use smb_wire::FileId;
use smb_wire::msg::{LeaseBreakNotification, OplockLevel};

/// Notices that wait in one inbox at most. Each open or lease of a client waits with one, mostly.
pub(crate) const NOTICES_MAX: usize = 16_384;

/// Something for a client, or for its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// MS-SMB2 2.2.23.1.
    OplockBreak { session: u64, file_id: FileId, level: OplockLevel },
    /// MS-SMB2 2.2.23.2.
    LeaseBreak(LeaseBreakNotification),
    /// The session has ended on another connection, or by an administrator.
    SessionEnded(u64),
    /// The limit of unauthenticated connections is reached, and this is the oldest.
    Crowded,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    waker: AtomicWaker,
}

#[derive(Default)]
struct State {
    notices: VecDeque<Notice>,
    /// Requests of this connection, by slot, whose clients are to be told that they wait (MS-SMB2 3.3.4.2).
    pending: Vec<u64>,
    closed: bool,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

impl Inbox {
    /// Puts a notice in and wakes the connection; false when the connection has ended or takes no more.
    pub(crate) fn send(&self, notice: Notice) -> bool {
        {
            let mut state = self.state.lock();
            if state.closed || state.notices.len() >= NOTICES_MAX {
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
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Option<Notice> {
        // Registered first: a notice that comes in between wakes the task.
        self.waker.register(cx.waker());
        self.state.lock().notices.pop_front()
    }

    /// Asks for an interim response to a request of this connection; its handler may run in a task of its own.
    pub(crate) fn announce(&self, slot: u64) {
        self.state.lock().pending.push(slot);
        self.waker.wake();
    }

    /// The requests to send interim responses to.
    pub(crate) fn take_pending(&self) -> Vec<u64> {
        std::mem::take(&mut self.state.lock().pending)
    }

    /// The connection ends: nothing is taken any more. Returns the notices that were not sent, for another connection.
    pub(crate) fn close(&self) -> VecDeque<Notice> {
        let mut state = self.state.lock();
        state.closed = true;
        std::mem::take(&mut state.notices)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn bounded_and_closed() {
        let inbox = Inbox::default();
        let mut sent = 0;
        while inbox.send(Notice::SessionEnded(sent)) {
            sent += 1;
        }
        assert_eq!(sent as usize, NOTICES_MAX);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(inbox.poll(&mut cx), Some(Notice::SessionEnded(0))));
        assert!(inbox.send(Notice::SessionEnded(7)), "there is room again");
        assert_eq!(inbox.close().len(), NOTICES_MAX);
        assert!(!inbox.send(Notice::SessionEnded(8)));
        assert!(inbox.poll(&mut cx).is_none());
    }

    /// From several threads, each notice arrives once and wakes the task.
    #[tokio::test]
    async fn from_many_threads() {
        const EACH: u64 = 2000;
        let inbox = std::sync::Arc::new(Inbox::default());
        for t in 0..4 {
            let inbox = std::sync::Arc::clone(&inbox);
            std::thread::spawn(move || {
                for n in 0..EACH {
                    assert!(inbox.send(Notice::SessionEnded(t * EACH + n)));
                }
            });
        }
        let mut seen = std::collections::BTreeSet::new();
        std::future::poll_fn(|cx| {
            while let Some(Notice::SessionEnded(n)) = inbox.poll(cx) {
                assert!(seen.insert(n));
            }
            if seen.len() == 4 * EACH as usize {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}
