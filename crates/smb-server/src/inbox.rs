//! Notices from other threads to a connection: oplock and lease breaks, ends of sessions.
//!
//! A connection belongs to one worker. Any thread may put a notice into its inbox; that wakes the connection's task,
//! which turns the notice into a message in its next turn. The inbox is bounded: a client that does not receive its
//! notices is treated as unreachable.

use smb_wire::FileId;
use smb_wire::msg::{LeaseBreakNotification, OplockLevel};

use crate::mailbox::Mailbox;
pub(crate) use crate::mailbox::NOTICES_MAX;

/// See the module.
pub(crate) type Inbox = Mailbox<Notice>;

/// A notice for a client, or for its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// MS-SMB2 2.2.23.1.
    OplockBreak { session: u64, file_id: FileId, level: OplockLevel },
    /// MS-SMB2 2.2.23.2.
    LeaseBreak(LeaseBreakNotification),
    /// The session has ended on another connection, or by an administrator.
    SessionEnded(u64),
    /// The limit of unauthenticated connections is reached, and this one is closed for another.
    Crowded,
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

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
