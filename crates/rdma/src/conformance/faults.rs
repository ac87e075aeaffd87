//! A forbidden operation ends its connection with the right code and writes no memory.

use super::*;
use crate::Stag;
use crate::violation::Violation;

/// B detects the violation that A committed, and notifies A.
async fn expect(p: &mut Pair, log: &mut Log, violation: Violation) {
    let (a, b) = p.until_down(log).await;
    assert_eq!(b, Down::Protocol { what: violation.what, code: violation.code });
    assert_eq!(a, Down::Terminated(violation.code));
    assert_eq!((p.a.exposed(), p.b.exposed()), (0, 0), "no exposure outlives its connection");
}

fn send(p: &Pair, bytes: &[u8]) -> Wr {
    Wr::Send { sg: p.sg(bytes, 4096), invalidate: None }
}

/// RFC 5041 8.2: no buffer available for an untagged message.
pub(crate) async fn send_without_receive_ends_it(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let wr = send(&p, b"hello");
    p.post(Side::A, 1, wr);
    expect(&mut p, &mut log, Violation::NO_BUFFER).await;
}

pub(crate) async fn too_long_a_send_ends_it(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    for (id, len) in [(1, 4096), (2, 4097)] {
        let buf = p.buf(4096);
        p.post(Side::B, id, Wr::Recv(buf));
        let wr = send(&p, &pattern(len, 1));
        p.post(Side::A, id, wr);
    }
    expect(&mut p, &mut log, Violation::TOO_LONG).await;
    assert_eq!(log.received(Side::B, 1).len(), 4096);
    assert_eq!(log.take(Side::B, 2).result.err(), Some(WcError::Flushed));
}

/// A writes 8 bytes at `offset` of a sink of 10,000 bytes, with a tag derived from the sink's tag.
async fn bad_write(
    make: &mut impl AsyncFnMut(PairOptions) -> Pair,
    offset: u64,
    tag: impl Fn(Stag) -> Stag,
    violation: Violation,
) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let sink = p.sink(10_000);
    let e = p.expose(Side::B, sink, Rights::RemoteWrite);
    let src = p.sg(&pattern(8, 1), 8);
    let good = Remote { stag: e.stag, offset: 9_992, length: 8 };
    p.post(Side::A, 1, Wr::Write { src: src.clone(), to: good });
    p.post(Side::A, 2, Wr::Write { src, to: Remote { stag: tag(e.stag), offset, length: 8 } });
    expect(&mut p, &mut log, violation).await;
    assert!(matches!(log.done(Side::A, 1), Done::Write));
}

pub(crate) async fn write_out_of_bounds_by_one(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    bad_write(make, 9_993, |t| t, Violation::BOUNDS).await;
}

pub(crate) async fn write_wrapping_around(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    bad_write(make, u64::MAX - 3, |t| t, Violation::WRAP).await;
}

pub(crate) async fn write_with_a_bad_tag(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    bad_write(make, 0, |t| Stag(t.0 ^ 1), Violation::INVALID_STAG).await;
}

pub(crate) async fn write_into_a_source(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let source = Exposed::Source(p.sg(&pattern(100, 1), 100));
    let e = p.expose(Side::B, source, Rights::RemoteRead);
    let src = p.sg(b"x", 1);
    p.post(Side::A, 1, Wr::Write { src, to: whole(e) });
    expect(&mut p, &mut log, Violation::WRITE_RIGHTS).await;
}

async fn bad_read(
    make: &mut impl AsyncFnMut(PairOptions) -> Pair,
    from: impl Fn(Exposure) -> Remote,
    violation: Violation,
) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let source = Exposed::Source(p.sg(&pattern(10_000, 1), 3000));
    let e = p.expose(Side::B, source, Rights::RemoteRead);
    for (id, from) in [(1, Remote { offset: 9_900, length: 100, ..whole(e) }), (2, from(e)), (3, whole(e))] {
        let sink = p.buf(from.length as usize);
        p.post(Side::A, id, Wr::Read { sink, from });
    }
    expect(&mut p, &mut log, violation).await;
    let flushed = |log: &mut Log, id| matches!(log.take(Side::A, id).result, Err(WcError::Flushed));
    assert!(flushed(&mut log, 2) && flushed(&mut log, 3));
}

pub(crate) async fn read_out_of_bounds_by_one(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    bad_read(make, |e| Remote { offset: 9_901, length: 100, ..whole(e) }, Violation::READ_BOUNDS).await;
}

pub(crate) async fn read_with_a_bad_tag(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let from = |e| Remote { stag: Stag(whole(e).stag.0 ^ 0x8000_0000), ..whole(e) };
    bad_read(make, from, Violation::READ_INVALID_STAG).await;
}

pub(crate) async fn read_from_a_sink(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let sink = p.sink(5000);
    let e = p.expose(Side::B, sink, Rights::RemoteWrite);
    let sink = p.buf(5000);
    p.post(Side::A, 1, Wr::Read { sink, from: whole(e) });
    expect(&mut p, &mut log, Violation::READ_RIGHTS).await;
}

/// No byte is placed after the invalidation has completed.
pub(crate) async fn write_after_invalidation(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let mut first = p.buf(4096);
    first.space().fill(0xEE);
    let sink = Exposed::Sink { bufs: [first].into_iter().collect(), length: 4096 };
    let e = p.expose(Side::B, sink, Rights::RemoteWrite);
    p.post(Side::B, 1, Wr::Invalidate(e.stag));
    p.until(&mut log, 0, 1).await;
    let Done::Invalidate(what) = log.done(Side::B, 1) else { panic!("it is invalidated") };
    let src = p.sg(&[0x11; 4096], 4096);
    p.post(Side::A, 2, Wr::Write { src, to: whole(e) });
    expect(&mut p, &mut log, Violation::INVALID_STAG).await;
    assert_eq!(sink_bytes(what), vec![0xEE; 4096]);
}

pub(crate) async fn invalidating_a_bad_tag(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let buf = p.buf(4096);
    p.post(Side::B, 1, Wr::Recv(buf));
    let sg = p.sg(b"x", 1);
    p.post(Side::A, 2, Wr::Send { sg, invalidate: Some(Stag(0x1234_5678)) });
    expect(&mut p, &mut log, Violation::CANNOT_INVALIDATE).await;
    assert!(matches!(log.take(Side::B, 1).result, Err(WcError::Flushed)), "the message is not delivered");
}

/// The queue pair is the protection domain: a tag of another connection is not found.
pub(crate) async fn another_connections_tag_is_not_found(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut other) = (make(PairOptions::default()).await, make(PairOptions::default()).await);
    let sink = other.sink(4096);
    let e = other.expose(Side::B, sink, Rights::RemoteWrite);
    let src = p.sg(b"x", 1);
    p.post(Side::A, 1, Wr::Write { src, to: whole(e) });
    expect(&mut p, &mut Log::default(), Violation::INVALID_STAG).await;
    assert_eq!(other.b.exposed(), 1);
}

/// RFC 5040 5.1, 5.2.1: the tag of a zero-length RDMA Write or Read is not checked.
pub(crate) async fn a_zero_length_write_needs_no_tag(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let nowhere = Remote { stag: Stag(0), offset: 77, length: 0 };
    p.post(Side::A, 1, Wr::Write { src: Sg::new(), to: nowhere });
    let sink = p.buf(1);
    p.post(Side::A, 2, Wr::Read { sink, from: nowhere });
    p.until(&mut log, 2, 0).await;
    assert!(matches!(log.done(Side::A, 1), Done::Write));
    assert!(matches!(log.done(Side::A, 2), Done::Read(b) if b.is_empty()));
}

pub(crate) async fn close_lets_queued_sends_leave(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let data = pattern(300_000, 4);
    let buf = p.buf(data.len());
    p.post(Side::B, 1, Wr::Recv(buf));
    let buf = p.buf(100);
    p.post(Side::B, 2, Wr::Recv(buf));
    let wr = send(&p, &data);
    p.post(Side::A, 3, wr);
    p.a.close();
    let wr = send(&p, b"too late");
    assert_eq!(p.a.post(WrId(4), wr).map_err(|(e, _)| e), Err(RdmaError::Down));
    assert_eq!(p.until_down(&mut log).await, (Down::Closed, Down::PeerClosed));
    assert!(log.received(Side::B, 1) == data);
    assert!(matches!(log.take(Side::B, 2).result, Err(WcError::Flushed)));
    assert!(matches!(log.done(Side::A, 3), Done::Send));
}

pub(crate) async fn down_flushes_everything(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    for at in [Side::A, Side::B] {
        for i in 0..3 {
            let buf = p.buf(4096);
            p.post(at, i, Wr::Recv(buf));
            let sink = p.sink(4096);
            p.expose(at, sink, Rights::RemoteWrite);
        }
    }
    let sink = p.buf(4096);
    p.post(Side::A, 10, Wr::Read { sink, from: Remote { stag: Stag(5), offset: 0, length: 4096 } });
    expect(&mut p, &mut log, Violation::READ_INVALID_STAG).await;
    for (at, id) in (0..3).flat_map(|i| [(Side::A, i), (Side::B, i)]).chain([(Side::A, 10)]) {
        assert_eq!(log.take(at, id).result.err(), Some(WcError::Flushed));
    }
    assert!(log.a.is_empty() && log.b.is_empty());
    assert_eq!(p.arena.usage().used, 0);
    let what = p.sink(1);
    assert_eq!(p.a.expose(what, Rights::RemoteWrite), Err(RdmaError::Down));
    let wr = Wr::Recv(p.buf(1));
    assert_eq!(p.b.post(WrId(1), wr).map_err(|(e, _)| e), Err(RdmaError::Down));
}

pub(crate) async fn drop_is_noticed(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (p, mut log) = (make(PairOptions::default()).await, Log::default());
    let Pair { a, mut b, arena } = p;
    let buf = arena.try_alloc(1, Class::Payload).expect("memory");
    b.post(WrId(1), Wr::Recv(buf)).map_err(|(e, _)| e).expect("it is posted");
    drop(a);
    let down = poll_fn(|cx| {
        loop {
            match b.poll(cx, &mut log.b) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(down)) => return Poll::Ready(down),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    assert_eq!(down, Down::PeerClosed);
    assert_eq!(log.take(Side::B, 1).result.err(), Some(WcError::Flushed));
}

pub(crate) async fn misuse_is_refused_at_the_call(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let mut p = make(PairOptions { ird: 0, ord: 4, ..PairOptions::default() }).await;
    let refused = |p: &mut Pair, wr| p.a.post(WrId(1), wr).map_err(|(e, _)| e).expect_err("it is misuse");
    let to = Remote { stag: Stag(1), offset: 0, length: 3 };
    let wr = Wr::Write { src: p.sg(b"four", 4), to };
    assert_eq!(refused(&mut p, wr), RdmaError::Length);
    let wr = Wr::Read { sink: p.buf(4096), from: to };
    assert_eq!(refused(&mut p, wr), RdmaError::NoReads);
    assert_eq!(refused(&mut p, Wr::Invalidate(Stag(9))), RdmaError::UnknownStag);
    let pieces = p.a.caps().max_sge + 1;
    let wr = Wr::Send { sg: p.sg(&vec![0; pieces], 1), invalidate: None };
    assert_eq!(refused(&mut p, wr), RdmaError::Length);
    let mut p = make(PairOptions::default()).await;
    let wr = Wr::Read { sink: p.buf(4096), from: Remote { length: 4097, ..to } };
    assert_eq!(refused(&mut p, wr), RdmaError::Length);
}

pub(crate) async fn queues_are_bounded(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let shape = PairOptions { max_wr: 3, max_regions: 2, ..PairOptions::default() };
    let (mut p, mut log) = (make(shape).await, Log::default());
    assert_eq!(p.a.caps().max_wr, 3);
    for i in 0..3 {
        let wr = send(&p, b"x");
        p.post(Side::A, i, wr);
        let buf = p.buf(1);
        p.post(Side::A, 10 + i, Wr::Recv(buf));
        let buf = p.buf(1);
        p.post(Side::B, i, Wr::Recv(buf));
    }
    let wr = send(&p, b"y");
    assert_eq!(p.a.post(WrId(4), wr).map_err(|(e, _)| e), Err(RdmaError::QueueFull));
    let wr = Wr::Recv(p.buf(1));
    assert_eq!(p.a.post(WrId(5), wr).map_err(|(e, _)| e), Err(RdmaError::QueueFull));
    for _ in 0..2 {
        let sink = p.sink(1);
        p.expose(Side::A, sink, Rights::RemoteWrite);
    }
    let sink = p.sink(1);
    assert_eq!(p.a.expose(sink, Rights::RemoteWrite), Err(RdmaError::TooManyRegions));
    p.until(&mut log, 3, 3).await;
    let wr = send(&p, b"z");
    p.post(Side::A, 6, wr);
}
