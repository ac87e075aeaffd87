//! Messages and transfers arrive once, in order and complete.

use super::*;

pub(crate) async fn sends_arrive_in_order_in_posted_receives(
    make: &mut impl AsyncFnMut(PairOptions) -> Pair,
) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    for i in 0..20 {
        let buf = p.buf(4096);
        p.post(Side::B, i, Wr::Recv(buf));
        let sg = p.sg(&pattern(i as usize * 37, i as u8), 100);
        p.post(Side::A, 100 + i, Wr::Send { sg, invalidate: None });
    }
    p.until(&mut log, 20, 20).await;
    assert!(log.b.is_sorted_by_key(|c| c.id.0), "receives complete in the order they were posted");
    for i in 0..20 {
        assert_eq!(log.received(Side::B, i), pattern(i as usize * 37, i as u8));
        assert!(matches!(log.done(Side::A, 100 + i), Done::Send));
    }
}

/// RFC 5040 5.5: the data of an RDMA Write is placed before a later Send of the same stream is delivered.
pub(crate) async fn writes_land_before_the_send_after_them(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let data = pattern(200_000, 7);
    let what = p.sink(data.len());
    let e = p.expose(Side::B, what, Rights::RemoteWrite);
    let buf = p.buf(4096);
    p.post(Side::B, 1, Wr::Recv(buf));
    for (i, chunk) in data.chunks(70_001).enumerate() {
        let to = Remote { stag: e.stag, offset: i as u64 * 70_001, length: chunk.len() as u32 };
        let src = p.sg(chunk, 9_999);
        p.post(Side::A, 10 + i as u64, Wr::Write { src, to });
    }
    let sg = p.sg(b"done", 4);
    p.post(Side::A, 20, Wr::Send { sg, invalidate: None });
    p.run(&mut log, |l| !l.b.is_empty()).await;
    assert_eq!(log.received(Side::B, 1), b"done");
    p.post(Side::B, 2, Wr::Invalidate(e.stag));
    p.until(&mut log, 4, 1).await;
    assert!(log.invalidated(Side::B, 2) == data, "every byte lies where it belongs");
    assert_eq!(p.b.exposed(), 0);
    assert!((10..13).all(|i| matches!(log.done(Side::A, i), Done::Write)));
}

pub(crate) async fn reads_fetch_what_is_exposed(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let data = pattern(300_000, 3);
    let source = Exposed::Source(p.sg(&data, 12_345));
    let e = p.expose(Side::B, source, Rights::RemoteRead);
    let parts = [(0usize, 300_000usize), (1, 0), (299_999, 1), (12_344, 2), (100_000, 150_000), (0, 1)];
    for (i, (offset, len)) in parts.iter().enumerate() {
        let sink = p.buf(*len);
        let from = Remote { stag: e.stag, offset: *offset as u64, length: *len as u32 };
        p.post(Side::A, i as u64, Wr::Read { sink, from });
    }
    p.until(&mut log, parts.len(), 0).await;
    for (i, (offset, len)) in parts.iter().enumerate() {
        match log.done(Side::A, i as u64) {
            Done::Read(buf) => assert!(buf[..] == data[*offset..offset + len], "part {i}"),
            other => panic!("not {other:?}"),
        }
    }
}

/// At most ORD Reads are in flight; requests posted after a waiting Read start after it.
pub(crate) async fn reads_beyond_ord_wait(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let shape = PairOptions { ord: 2, ird: 1, ..PairOptions::default() };
    let (mut p, mut log) = (make(shape).await, Log::default());
    assert_eq!((p.a.caps().ord, p.a.caps().ird), (1, 1), "the peer's IRD bounds our ORD");
    let data = pattern(50_000, 9);
    let source = Exposed::Source(p.sg(&data, 4096));
    let e = p.expose(Side::B, source, Rights::RemoteRead);
    for i in 0..10 {
        let sink = p.buf(50_000);
        p.post(Side::A, i, Wr::Read { sink, from: whole(e) });
    }
    let buf = p.buf(4096);
    p.post(Side::B, 0, Wr::Recv(buf));
    let sg = p.sg(b"after", 2);
    p.post(Side::A, 10, Wr::Send { sg, invalidate: None });
    p.until(&mut log, 11, 1).await;
    for i in 0..10 {
        assert!(matches!(log.done(Side::A, i), Done::Read(b) if b[..] == data[..]));
    }
    assert_eq!(log.received(Side::B, 0), b"after");
}

pub(crate) async fn both_directions_at_once(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let (sides, data) = ([Side::A, Side::B], [pattern(400_000, 1), pattern(400_000, 2)]);
    let sink = p.sink(400_000);
    let into_a = p.expose(Side::A, sink, Rights::RemoteWrite);
    let sink = p.sink(400_000);
    let into_b = p.expose(Side::B, sink, Rights::RemoteWrite);
    let source = Exposed::Source(p.sg(&data[0], 60_000));
    let from_a = p.expose(Side::A, source, Rights::RemoteRead);
    let source = Exposed::Source(p.sg(&data[1], 60_000));
    let from_b = p.expose(Side::B, source, Rights::RemoteRead);
    for (at, mine, to, from) in [(Side::A, 0, into_b, from_b), (Side::B, 1, into_a, from_a)] {
        for i in 0..8 {
            let buf = p.buf(8192);
            p.post(at, i, Wr::Recv(buf));
        }
        for i in 0..8u64 {
            let src = p.sg(&data[mine], 100_000);
            p.post(at, 100 + i, Wr::Write { src, to: whole(to) });
            let sink = p.buf(400_000);
            p.post(at, 200 + i, Wr::Read { sink, from: whole(from) });
            let sg = p.sg(&data[mine][..8000], 3000);
            p.post(at, 300 + i, Wr::Send { sg, invalidate: None });
        }
    }
    p.until(&mut log, 32, 32).await;
    for (at, mine, other) in [(sides[0], 0, 1), (sides[1], 1, 0)] {
        for i in 0..8 {
            assert!(log.received(at, i)[..] == data[other][..8000]);
            assert!(matches!(log.done(at, 100 + i), Done::Write));
            assert!(matches!(log.done(at, 200 + i), Done::Read(b) if b[..] == data[other][..]));
            assert!(matches!(log.done(at, 300 + i), Done::Send));
        }
        let stag = if at == Side::A { into_a.stag } else { into_b.stag };
        p.post(at, 400, Wr::Invalidate(stag));
        p.run(&mut log, |l| !(if at == Side::A { &l.a } else { &l.b }).is_empty()).await;
        assert!(log.invalidated(at, 400) == data[mine ^ 1]);
    }
}

/// RFC 5040 5.3, 7.2: the tag is invalid once the message has been delivered.
pub(crate) async fn send_with_invalidate_ends_an_exposure(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let sink = p.sink(10_000);
    let e = p.expose(Side::A, sink, Rights::RemoteWrite);
    let sink = p.sink(10_000);
    let kept = p.expose(Side::A, sink, Rights::RemoteWrite);
    let buf = p.buf(4096);
    p.post(Side::A, 1, Wr::Recv(buf));
    let data = pattern(10_000, 5);
    let src = p.sg(&data, 4096);
    p.post(Side::B, 2, Wr::Write { src, to: whole(e) });
    let sg = p.sg(b"there", 3);
    p.post(Side::B, 3, Wr::Send { sg, invalidate: Some(e.stag) });
    p.until(&mut log, 1, 2).await;
    match log.done(Side::A, 1) {
        Done::Recv { buf, invalidated: Some((stag, what)) } => {
            assert_eq!((&buf[..], stag), (&b"there"[..], e.stag));
            assert!(sink_bytes(what) == data);
        }
        other => panic!("the receive says what was invalidated, not {other:?}"),
    }
    assert_eq!(p.a.exposed(), 1);
    let refused = p.a.post(WrId(4), Wr::Invalidate(e.stag)).map_err(|(e, _)| e);
    assert_eq!(refused, Err(RdmaError::UnknownStag));
    p.post(Side::A, 5, Wr::Invalidate(kept.stag));
    p.until(&mut log, 1, 0).await;
    assert!(matches!(log.done(Side::A, 5), Done::Invalidate(_)));
}

pub(crate) async fn invalidate_gives_the_buffer_back(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let source = Exposed::Source(p.sg(b"the source", 3));
    let e = p.expose(Side::A, source, Rights::RemoteRead);
    assert_eq!((e.length, p.a.exposed()), (10, 1));
    p.post(Side::A, 1, Wr::Invalidate(e.stag));
    p.until(&mut log, 1, 0).await;
    assert_eq!(log.invalidated(Side::A, 1), b"the source");
    assert_eq!(p.a.exposed(), 0);
}

pub(crate) async fn large_messages_cross_whole(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let data = pattern(1 << 20, 11);
    for i in 0..4 {
        let buf = p.buf(1 << 20);
        p.post(Side::B, i, Wr::Recv(buf));
        let sg = p.sg(&data, 1 << 18);
        p.post(Side::A, i, Wr::Send { sg, invalidate: None });
    }
    let what = p.sink(3 << 20);
    let e = p.expose(Side::B, what, Rights::RemoteWrite);
    let src = p.sg(&data.repeat(3), (1 << 19) + 13);
    p.post(Side::A, 9, Wr::Write { src, to: whole(e) });
    p.until(&mut log, 5, 4).await;
    assert!((0..4).all(|i| log.received(Side::B, i) == data));
    let buf = p.buf(1);
    p.post(Side::B, 5, Wr::Recv(buf));
    let sg = p.sg(b"", 1);
    p.post(Side::A, 5, Wr::Send { sg, invalidate: Some(e.stag) });
    p.until(&mut log, 6, 1).await;
    match log.done(Side::B, 5) {
        Done::Recv { invalidated: Some((_, what)), .. } => assert!(sink_bytes(what) == data.repeat(3)),
        other => panic!("not {other:?}"),
    }
}

pub(crate) async fn empty_messages_cross(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    for i in 0..3 {
        let buf = p.buf(4096);
        p.post(Side::B, i, Wr::Recv(buf));
        p.post(Side::A, i, Wr::Send { sg: Sg::new(), invalidate: None });
    }
    p.until(&mut log, 3, 3).await;
    assert!((0..3).all(|i| log.received(Side::B, i).is_empty()));
}

/// Every posted buffer is returned or dropped: the queue pair keeps none.
pub(crate) async fn buffers_return_to_the_arena(make: &mut impl AsyncFnMut(PairOptions) -> Pair) {
    let (mut p, mut log) = (make(PairOptions::default()).await, Log::default());
    let filled = |p: &Pair| {
        let mut b = p.buf(100_000);
        b.append(&pattern(100_000, 1));
        b.freeze()
    };
    let source: Sg = [filled(&p)].into_iter().collect();
    let e = p.expose(Side::B, Exposed::Source(source), Rights::RemoteRead);
    let sink = p.sink(100_000);
    let w = p.expose(Side::B, sink, Rights::RemoteWrite);
    for i in 0..10 {
        let buf = p.buf(100_000);
        p.post(Side::B, i, Wr::Recv(buf));
        let sg = [filled(&p)].into_iter().collect();
        p.post(Side::A, i, Wr::Send { sg, invalidate: None });
        let src = [filled(&p)].into_iter().collect();
        p.post(Side::A, 10 + i, Wr::Write { src, to: whole(w) });
        let sink = p.buf(100_000);
        p.post(Side::A, 20 + i, Wr::Read { sink, from: whole(e) });
    }
    p.until(&mut log, 30, 10).await;
    for (i, stag) in [e.stag, w.stag].into_iter().enumerate() {
        p.post(Side::B, 90 + i as u64, Wr::Invalidate(stag));
    }
    p.until(&mut log, 30, 12).await;
    log.a.clear();
    log.b.clear();
    assert_eq!(p.arena.usage().used, 0, "every buffer came back with its completion");
}
