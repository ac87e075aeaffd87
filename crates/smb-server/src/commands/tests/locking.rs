use futures_util::future::{join, poll_immediate};

use super::*;

const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE_LOCK;

// MS-SMB2 3.3.5.14.2: the request waits, the client gets an interim response, and the lock is granted when the other
// open closes.
#[tokio::test(start_paused = true)]
async fn waiting_for_another() {
    let w = World::new();
    let (a, b) = (w.create("f", How::CREATE).await, w.create("f", How::OPEN).await);
    assert_eq!(
        super::super::lock::handle(w.lock_request(a, 0, 10, EXCLUSIVE)).await.status,
        NtStatus::SUCCESS
    );
    let at_once = w.lock_request(b, 5, 1, EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY);
    assert_eq!(super::super::lock::handle(at_once).await.status, NtStatus::LOCK_NOT_GRANTED);
    let request = w.lock_request(b, 5, 1, EXCLUSIVE);
    let inbox = Arc::clone(&request.pending.inbox);
    let mut waiting = Box::pin(super::super::lock::handle(request));
    assert!(poll_immediate(&mut waiting).await.is_none());
    assert_eq!(inbox.take_pending().len(), 1);
    let (reply, ()) = join(waiting, w.close(a)).await;
    assert_eq!(reply.status, NtStatus::SUCCESS);
    w.close(b).await;
}

// MS-SMB2 3.3.5.16; and 3.3.5.10 for a lock that waits while its open is closed.
#[tokio::test(start_paused = true)]
async fn giving_up() {
    let w = World::new();
    let (a, b) = (w.create("f", How::CREATE).await, w.create("f", How::OPEN).await);
    assert_eq!(
        super::super::lock::handle(w.lock_request(a, 0, 10, EXCLUSIVE)).await.status,
        NtStatus::SUCCESS
    );
    let request = w.lock_request(b, 0, 1, EXCLUSIVE);
    let cancel = request.cancel.clone();
    let waiting = super::super::lock::handle(request);
    let (reply, ()) = join(waiting, async { cancel.cancel() }).await;
    assert_eq!(reply.status, NtStatus::CANCELLED);
    let waiting = super::super::lock::handle(w.lock_request(b, 0, 1, EXCLUSIVE));
    let (reply, ()) = join(waiting, w.close(b)).await;
    assert_eq!(reply.status, NtStatus::RANGE_NOT_LOCKED);
    // A handler that is dropped leaves the queue too: the lock is free for the next request.
    let b = w.create("f", How::OPEN).await;
    let mut dropped = Box::pin(super::super::lock::handle(w.lock_request(b, 0, 1, EXCLUSIVE)));
    assert!(poll_immediate(&mut dropped).await.is_none());
    drop(dropped);
    w.close(a).await;
    let c = w.create("f", How::OPEN).await;
    let at_once = w.lock_request(c, 0, 1, EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY);
    assert_eq!(super::super::lock::handle(at_once).await.status, NtStatus::SUCCESS);
}

#[tokio::test(start_paused = true)]
async fn elements() {
    let w = World::new();
    let f = w.create("f", How::CREATE).await;
    for (flags, offset, length, status) in [
        (LockFlags::empty(), 0, 1, NtStatus::INVALID_PARAMETER),
        (EXCLUSIVE | LockFlags::SHARED_LOCK, 0, 1, NtStatus::INVALID_PARAMETER),
        (LockFlags::UNLOCK | LockFlags::FAIL_IMMEDIATELY, 0, 1, NtStatus::INVALID_PARAMETER),
        (LockFlags::UNLOCK, 0, 1, NtStatus::RANGE_NOT_LOCKED),
        (EXCLUSIVE, u64::MAX, 2, NtStatus(0xC000_01A1)),
        (EXCLUSIVE, u64::MAX, 1, NtStatus::SUCCESS),
    ] {
        let reply = super::super::lock::handle(w.lock_request(f, offset, length, flags)).await;
        assert_eq!(reply.status, status, "{flags:?} {offset} {length}");
    }
}
