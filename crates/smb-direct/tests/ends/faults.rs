//! Connections that break, and peers that violate the protocol.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::pair::{CLIENT, Ends, SERVER, bytes, env, payload};
use arena::{Arena, Class, IoBuf, Sg, sg_to_vec};
use env::Env;
use proptest::prelude::*;
use rdma::sim::{self, Options, SimQueuePair};
use rdma::{Completion, Done, Down, Exposed, QueuePair, Rights, Stag, WcError, Wr, WrId};
use smb_direct::pdu::{DataTransfer, DataTransferFlags, NegotiateRequest, NegotiateResponse, VERSION};
use smb_direct::{BufferDescriptorV1, Event, SmbDirect, SmbDirectError, SmbDirectOptions, Violation};

/// Cuts the connection at its n-th operation, for every n, while transfers and messages are in progress. Each
/// transfer completes once, both ends get the reason, and no memory leaks.
#[tokio::test(start_paused = true)]
async fn cut_anywhere() {
    let mut whole = 0;
    for n in 1..120 {
        let arena = Arena::new(32 << 20).expect("a mapping");
        let fabric = Options {
            cut_at: Some(n),
            ord: 2,
            reorder: n % 2 == 0,
            latency: Duration::from_micros(20),
            ..Options::new(Env::simulated(n))
        };
        let options = SmbDirectOptions { max_receive_size: 1364, ..SmbDirectOptions::default() };
        let ends = Ends::try_new(fabric, [options.clone(), options], arena.clone()).await;
        if let Ok(mut ends) = ends {
            whole += u32::from(transfers(&mut ends).await);
        }
        assert_eq!(arena.usage().used, 0, "memory is lost when it breaks at {n}");
    }
    assert!(whole > 3, "the last cuts come after everything");
}

/// Whether everything completed before the connection broke.
async fn transfers(ends: &mut Ends) -> bool {
    let bufs = ends.sinks(20_000);
    let sink = ends.client().expose(Exposed::Sink { bufs, length: 20_000 }, Rights::RemoteWrite);
    let source = Exposed::Source(payload(&bytes(20_000, 0), 6000));
    let source = ends.client().expose(source, Rights::RemoteRead);
    let (Ok(sink), Ok(source)) = (sink, source) else { return false };
    for i in 0..4 {
        let _ = ends.client().send(payload(&bytes(4000, i), 4000), None);
    }
    let mut open = Vec::new();
    for id in 0..6 {
        let started = if id % 2 == 0 {
            let to = [BufferDescriptorV1::from(sink)];
            ends.server().rdma_write(id, payload(&bytes(20_000, 0), 3000), &to)
        } else {
            let sinks = ends.sinks(20_000);
            ends.server().rdma_read(id, &[source.into()], sinks)
        };
        if started.is_ok() {
            open.push(id);
        }
    }
    let _ = ends.server().send(payload(&bytes(3000, 0), 3000), Some(sink.stag));
    let (mut over, mut messages, mut done) = ([false; 2], 0, 0);
    while over != [true; 2] {
        if done == 6 && messages == 5 && over == [false; 2] {
            return true;
        }
        let live = over.iter().position(|o| !o).expect("one is not over");
        let (side, event) =
            if over == [false; 2] { ends.next().await } else { (live, ends.ends[live].event().await) };
        match event {
            Ok(Event::Message { .. }) => messages += 1,
            Ok(Event::RdmaDone { id, result }) => {
                assert_eq!(side, SERVER);
                let at = open.iter().position(|o| *o == id).expect("each completes once");
                open.swap_remove(at);
                done += u32::from(result.is_ok());
            }
            Ok(other) => panic!("{other:?}"),
            Err(SmbDirectError::Down(Down::Transport(_))) => {
                over[side] = true;
                assert!(side == CLIENT || open.is_empty(), "{open:?} never completed");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    false
}

/// A peer that uses the queue pair directly.
struct Raw {
    qp: SimQueuePair,
    done: Vec<Completion>,
}

impl Raw {
    async fn next(&mut self) -> Result<Done, Down> {
        poll_fn(|cx| {
            loop {
                if !self.done.is_empty() {
                    let c = self.done.remove(0);
                    if let Ok(done) = c.result {
                        return Poll::Ready(Ok(done));
                    }
                    continue;
                }
                match self.qp.poll(cx, &mut self.done) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(down)) if self.done.is_empty() => return Poll::Ready(Err(down)),
                    Poll::Ready(Err(_)) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    async fn received(&mut self) -> Vec<u8> {
        loop {
            match self.next().await {
                Ok(Done::Recv { buf, .. }) => return buf.to_vec(),
                Ok(_) => {}
                Err(down) => panic!("{down}"),
            }
        }
    }

    fn send(&mut self, message: &[u8], invalidate: Option<Stag>) {
        let sg = Sg::from_iter([IoBuf::from(message.to_vec())]);
        let _ = self.qp.post(WrId(2), Wr::Send { sg, invalidate });
    }
}

fn request() -> NegotiateRequest {
    NegotiateRequest {
        min_version: VERSION,
        max_version: VERSION,
        credits_requested: 255,
        preferred_send_size: 1364,
        max_receive_size: 1364,
        max_fragmented_size: 1 << 20,
    }
}

/// A server, its arena, and a raw client that has negotiated.
async fn raw_client(arena: &Arena) -> (SmbDirect, Raw) {
    let e = env();
    let (a, b) = sim::pair(Options::new(e.clone()));
    let mut raw = Raw { qp: a, done: Vec::new() };
    for _ in 0..100 {
        let buf = arena.try_alloc(4096, Class::Payload).expect("memory");
        raw.qp.post(WrId(1), Wr::Recv(buf)).expect("room");
    }
    raw.send(&request().to_bytes(), None);
    let accept = SmbDirect::accept(Box::new(b), arena.clone(), e, SmbDirectOptions::default());
    let (server, response) = tokio::join!(accept, raw.received());
    let response = NegotiateResponse::decode(&response).expect("a response");
    assert_eq!((response.status.0, response.credits_granted, response.max_receive_size), (0, 4, 1364));
    (server.expect("negotiated"), raw)
}

fn data(length: u32, remaining: u32) -> Vec<u8> {
    let m = DataTransfer {
        credits_requested: 1,
        credits_granted: 1,
        flags: DataTransferFlags::empty(),
        remaining_data_length: remaining,
        data_offset: 24,
        data_length: length,
    };
    let mut b = m.to_bytes().to_vec();
    b.resize(24 + length as usize, 0x55);
    b
}

async fn ends_with(server: &mut SmbDirect, raw: &mut Raw) -> SmbDirectError {
    let (why, peer) = tokio::join!(
        async {
            loop {
                if let Err(e) = server.event().await {
                    return e;
                }
            }
        },
        async {
            loop {
                if let Err(down) = raw.next().await {
                    return down;
                }
            }
        }
    );
    assert!(matches!(peer, Down::PeerClosed | Down::Terminated(_)), "{peer:?}");
    why
}

#[tokio::test(start_paused = true)]
async fn rule_breakers_are_cut_off() {
    let arena = Arena::new(8 << 20).expect("a mapping");
    for (message, want) in [
        (vec![1; 7], Violation::DataLength(7)),
        (data(100, 2 << 20), Violation::FragmentedTooLong((2 << 20) + 100)),
        (data(1341, 0), Violation::TooLong(1365)),
        ([&data(10, 0)[..12], &[25], &data(10, 0)[13..]].concat(), Violation::DataOffset(25)),
    ] {
        let (mut server, mut raw) = raw_client(&arena).await;
        raw.send(&message, None);
        match ends_with(&mut server, &mut raw).await {
            SmbDirectError::Peer(v) => assert_eq!(v, want),
            other => panic!("{other:?}"),
        }
        drop((server, raw));
        assert_eq!(arena.usage().used, 0);
    }
    // Messages beyond the credits find no receive: the fabric ends the connection.
    let (mut server, mut raw) = raw_client(&arena).await;
    for _ in 0..50 {
        raw.send(&data(600, 10_000), None);
    }
    let why = ends_with(&mut server, &mut raw).await;
    assert!(matches!(why, SmbDirectError::Down(Down::Protocol { .. }) | SmbDirectError::Peer(_)), "{why:?}");
}

/// The peer is notified of a refused version before the connection ends (MS-SMBD 3.1.5.6).
#[tokio::test(start_paused = true)]
async fn another_version_is_refused_with_a_status() {
    let arena = Arena::new(8 << 20).expect("a mapping");
    let e = env();
    let (a, b) = sim::pair(Options::new(e.clone()));
    let mut raw = Raw { qp: a, done: Vec::new() };
    raw.qp.post(WrId(1), Wr::Recv(arena.try_alloc(4096, Class::Payload).expect("memory"))).expect("room");
    raw.send(&NegotiateRequest { min_version: 0x200, max_version: 0x300, ..request() }.to_bytes(), None);
    let accept = SmbDirect::accept(Box::new(b), arena.clone(), e, SmbDirectOptions::default());
    let (server, response) = tokio::join!(accept, raw.received());
    assert!(matches!(server, Err(SmbDirectError::Peer(Violation::Version { min: 0x200, max: 0x300 }))));
    assert_eq!(NegotiateResponse::decode(&response).map(|r| r.status.0), Ok(0xC000_00BB));
}

/// S3-16: one message invalidates at most one tag, and no message without data does.
#[tokio::test(start_paused = true)]
async fn stray_invalidations_end_the_connection() {
    let arena = Arena::new(8 << 20).expect("a mapping");
    for stray in [data(0, 0), data(100, 0)] {
        let (mut server, mut raw) = raw_client(&arena).await;
        let mut stags = Vec::new();
        for _ in 0..2 {
            let source = Exposed::Source(payload(b"secret", 6));
            stags.push(server.expose(source, Rights::RemoteRead).expect("a registration").stag);
        }
        if stray.len() > 24 {
            raw.send(&data(100, 100), Some(stags[0]));
        }
        raw.send(&stray, Some(stags[1]));
        let why = ends_with(&mut server, &mut raw).await;
        assert!(matches!(why, SmbDirectError::Peer(Violation::Invalidation)), "{why:?}");
        // A single invalidation with the first fragment, instead of the last, belongs to the message.
        let (mut server, mut raw) = raw_client(&arena).await;
        let source = Exposed::Source(payload(b"secret", 6));
        let stag = server.expose(source, Rights::RemoteRead).expect("a registration").stag;
        raw.send(&data(600, 600), Some(stag));
        raw.send(&data(600, 0), None);
        let (event, _) = tokio::join!(server.event(), raw.next());
        let Ok(Event::Message { data, invalidated: Some((which, Exposed::Source(_))) }) = event else {
            panic!("{event:?}")
        };
        assert_eq!((sg_to_vec(&data).len(), which), (1200, stag));
        // This side's invalidation is too late: it gets an error, and the connection continues.
        server.invalidate(stag).expect("it is open");
        let (event, _) =
            tokio::join!(server.event(), tokio::time::timeout(Duration::from_secs(1), raw.next()));
        let late = Event::Invalidated { stag, result: Err(rdma::WcError::UnknownStag) };
        assert_eq!(format!("{event:?}"), format!("{:?}", Ok::<_, SmbDirectError>(late)));
    }
}

/// The memory of a message in tiny fragments is bounded by its data, not by the receive buffers of the fragments.
#[tokio::test(start_paused = true)]
async fn tiny_fragments_hold_little() {
    let arena = Arena::new(8 << 20).expect("a mapping");
    let (mut server, mut raw) = raw_client(&arena).await;
    let before = arena.usage().used;
    for left in (0..1000).rev() {
        let room = arena.try_alloc(4096, Class::Payload).expect("memory");
        raw.qp.post(WrId(1), Wr::Recv(room)).expect("room");
        // Sends no faster than the credits allow.
        raw.send(&data(1, left), None);
        if left > 0 {
            let (quiet, _) = tokio::join!(
                tokio::time::timeout(Duration::from_millis(1), server.event()),
                tokio::time::timeout(Duration::from_millis(1), async { while raw.next().await.is_ok() {} })
            );
            assert!(quiet.is_err(), "{quiet:?}");
            // The number of this side's posted receives varies, but stays far below a thousand.
            assert!(arena.usage().used < before + 20 * 4096, "{left}: {}", arena.usage().used - before);
        }
    }
    let (event, _) = tokio::join!(server.event(), raw.next());
    let Ok(Event::Message { data, .. }) = event else { panic!("{event:?}") };
    assert_eq!(sg_to_vec(&data), [0x55; 1000]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever a peer sends, the connection ends with a typed reason and no memory leaks.
    #[test]
    fn arbitrary_peers(messages in prop::collection::vec((any::<[u8; 24]>(), 0usize..1400, any::<bool>(), 0u32..400), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let arena = Arena::new(8 << 20).expect("a mapping");
            let (mut server, mut raw) = raw_client(&arena).await;
            for (head, length, sound, size) in messages {
                let mut message = if sound { data(size, 0) } else { head.to_vec() };
                if !sound {
                    message.resize(length, 0);
                }
                raw.send(&message, None);
                let one = Duration::from_millis(1);
                let (event, _) = tokio::join!(tokio::time::timeout(one, server.event()), tokio::time::timeout(one, raw.next()));
                if let Ok(Err(_)) = event {
                    break;
                }
            }
            drop((server, raw));
            assert_eq!(arena.usage().used, 0);
        });
    }
}

/// An invalidation that is not posted because the connection has ended is flushed: it does not fail with an unknown
/// tag, and the peer made no error.
#[tokio::test(start_paused = true)]
async fn an_invalidation_after_the_end_is_flushed() {
    let mut ends = Ends::new(Options::new(env()), SmbDirectOptions::default()).await;
    // The server has its credits.
    assert!(tokio::time::timeout(Duration::from_secs(1), ends.next()).await.is_err());
    let bufs = ends.sinks(4096);
    let Ends { ends: [mut client, mut server], arena } = ends;
    let sink = client.expose(Exposed::Sink { bufs, length: 4096 }, Rights::RemoteWrite).expect("room");
    server.send(payload(b"the last", 8), None).expect("it fits");
    assert!(tokio::time::timeout(Duration::from_millis(1), server.event()).await.is_err());
    drop(server);
    // The end arrived with the message, and is reported after it.
    let event = client.event().await;
    assert!(matches!(event, Ok(Event::Message { .. })), "{event:?}");
    drop(event);
    client.invalidate(sink.stag).expect("the failure is not noticed yet");
    let event = client.event().await;
    assert!(matches!(event, Ok(Event::Invalidated { result: Err(WcError::Flushed), .. })), "{event:?}");
    let why = client.event().await;
    assert!(matches!(why, Err(SmbDirectError::Down(Down::PeerClosed))), "{why:?}");
    drop(client);
    assert_eq!(arena.usage().used, 0);
}
