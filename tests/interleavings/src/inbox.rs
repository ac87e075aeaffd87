//! The inbox of a connection: no wake-up is lost, and each notice is either delivered or reported as
//! undelivered.

use std::task::Poll;

use loom::future::block_on;
use loom::thread;

use crate::explore;
use crate::mailbox::Mailbox;
use crate::sync::Arc;

/// Receives `count` notices like a connection's task, which sleeps while there is none.
fn receive(mailbox: &Mailbox<u32>, count: usize) -> Vec<u32> {
    let mut got = Vec::new();
    block_on(std::future::poll_fn(|cx| {
        while got.len() < count {
            match mailbox.poll(cx) {
                Some(notice) => got.push(notice),
                None => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }));
    got
}

#[test]
fn no_wake_up_is_lost() {
    explore(|| {
        let mailbox = Arc::new(Mailbox::default());
        let senders: Vec<_> = (0..2)
            .map(|n| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || assert!(mailbox.send(n)))
            })
            .collect();
        let mut got = receive(&mailbox, 2);
        got.sort_unstable();
        assert_eq!(got, [0, 1], "each once");
        senders.into_iter().for_each(|s| s.join().expect("no panic"));
    });
}

/// Requesting an interim response wakes the task too. The second handler may request one while the first
/// request is being processed.
#[test]
fn announcements_are_heard() {
    explore(|| {
        let mailbox = Arc::new(Mailbox::<u32>::default());
        let handlers: Vec<_> = (7..9)
            .map(|slot| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || mailbox.announce(slot))
            })
            .collect();
        let mut slots = Vec::new();
        block_on(std::future::poll_fn(|cx| {
            assert!(mailbox.poll(cx).is_none());
            slots.extend(mailbox.take_pending());
            if slots.len() < 2 { Poll::Pending } else { Poll::Ready(()) }
        }));
        slots.sort_unstable();
        assert_eq!(slots, [7, 8], "each once");
        handlers.into_iter().for_each(|h| h.join().expect("no panic"));
    });
}

#[test]
fn a_full_one_refuses() {
    explore(|| {
        let mailbox = Arc::new(Mailbox::with_capacity(1));
        let senders: Vec<_> = (0..2)
            .map(|n| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || mailbox.send(n))
            })
            .collect();
        let got = receive(&mailbox, 1);
        let taken = senders.into_iter().map(|s| s.join().expect("no panic"));
        let taken = taken.filter(|taken| *taken).count();
        let left = mailbox.close();
        assert!(taken >= 1 && left.len() <= 1, "never more than there is room for");
        assert_eq!(taken, got.len() + left.len(), "what was taken is delivered or handed back");
    });
}

/// The connection ends while others send: notices accepted before are received or returned, later ones are
/// refused.
#[test]
fn nothing_is_lost_when_the_receiver_goes() {
    explore(|| {
        let mailbox = Arc::new(Mailbox::default());
        let senders: Vec<_> = (0..2)
            .map(|n| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || mailbox.send(n))
            })
            .collect();
        let waker = std::task::Waker::noop();
        let received = mailbox.poll(&mut std::task::Context::from_waker(waker));
        let handed_back = mailbox.close();
        let mut delivered: Vec<u32> = received.into_iter().chain(handed_back).collect();
        delivered.sort_unstable();
        let taken: Vec<bool> = senders.into_iter().map(|s| s.join().expect("no panic")).collect();
        let taken: Vec<u32> = (0..2).filter(|n| taken[*n as usize]).collect();
        assert_eq!(delivered, taken);
        assert!(!mailbox.send(9) && mailbox.is_closed());
    });
}
