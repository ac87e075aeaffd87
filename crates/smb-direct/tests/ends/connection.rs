//! Connections over the simulated fabric: messages, RDMA transfers, invalidation, limits, memory.

use std::time::Duration;

use crate::pair::{CLIENT, Ends, SERVER, bytes, env, payload};
use arena::{Arena, Class, sg_to_vec};
use env::Env;
use rdma::sim::{self, Options};
use rdma::{Down, Exposed, Rights};
use smb_direct::{BufferDescriptorV1, Event, SmbDirect, SmbDirectError, SmbDirectOptions, Timer};

fn small() -> SmbDirectOptions {
    SmbDirectOptions { max_send_size: 1364, max_receive_size: 1364, ..SmbDirectOptions::default() }
}

fn faulty(seed: u64) -> Options {
    Options {
        latency: Duration::from_micros(50),
        jitter: Duration::from_micros(200),
        reorder: true,
        ..Options::new(Env::simulated(seed))
    }
}

/// MS-SMBD 3.1.6.2: no keep-alive is sent to a peer whose memory is read and written.
#[tokio::test(start_paused = true)]
async fn transfers_are_a_sign_of_life() {
    let env = env();
    let patient =
        SmbDirectOptions { idle_timeout: Duration::from_secs(1 << 20), ..SmbDirectOptions::default() };
    let arena = Arena::new(32 << 20).expect("a mapping");
    let options = [patient, SmbDirectOptions::default()];
    let mut ends = Ends::try_new(Options::new(env), options, arena).await.expect("a connection");
    let source = Exposed::Source(payload(&bytes(5000, 0), 5000));
    let source = ends.client().expose(source, Rights::RemoteRead).expect("a registration");
    let what = Exposed::Sink { bufs: ends.sinks(5000), length: 5000 };
    let sink = ends.client().expose(what, Rights::RemoteWrite).expect("a registration");
    let mut sends = None;
    for id in 0..8 {
        let quiet = tokio::time::timeout(Duration::from_secs(100), ends.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        let before = *sends.get_or_insert(ends.server().counters().sends);
        assert_eq!(ends.server().counters().sends, before, "it was asked at {id}00 s");
        if id % 2 == 0 {
            let sinks = ends.sinks(5000);
            ends.server().rdma_read(id, &[source.into()], sinks).expect("it fits");
        } else {
            ends.server().rdma_write(id, payload(&bytes(5000, 0), 5000), &[sink.into()]).expect("it fits");
        }
        assert!(matches!(ends.of(SERVER).await, Event::RdmaDone { result: Ok(_), .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_every_size_go_both_ways() {
    for (fabric, options) in [
        (Options::new(env()), SmbDirectOptions::default()),
        (faulty(1), small()),
        (Options { max_sge: 2, max_wr: 3, ..faulty(2) }, small()),
    ] {
        let mut ends = Ends::new(fabric, options).await;
        let sizes = [1, 100, 512, 513, 1339, 1340, 1341, 2680, 4072, 4073, 100_000, 1 << 20];
        for (i, n) in sizes.into_iter().enumerate() {
            ends.client().send(payload(&bytes(n, i), 700), None).expect("it fits");
            ends.server().send(payload(&bytes(n, i + 50), 5000), None).expect("it fits");
        }
        let mut seen = [0, 0];
        while seen != [sizes.len(); 2] {
            let (side, event) = ends.next().await;
            let Ok(Event::Message { data, invalidated: None }) = event else { panic!("{event:?}") };
            let salt = seen[side] + if side == CLIENT { 50 } else { 0 };
            assert!(sg_to_vec(&data) == bytes(sizes[seen[side]], salt), "message {} to {side}", seen[side]);
            seen[side] += 1;
        }
        let (a, b) = (ends.ends[0].counters(), ends.ends[1].counters());
        assert!(a.sends > 12 && b.receives > 12 && b.bytes_received > 1 << 20);
        let arena = ends.arena.clone();
        drop(ends);
        assert_eq!(arena.usage().used, 0);
    }
}

/// A READ over the channel: the server queues the write and the answer together; the answer invalidates the buffer.
#[tokio::test(start_paused = true)]
async fn written_data_is_there_before_the_answer() {
    for seed in 0..20 {
        let max_wr = if seed % 2 == 0 { 3 } else { 1024 };
        let mut ends = Ends::new(Options { max_wr, max_sge: 3, ..faulty(seed) }, small()).await;
        for round in 0..10 {
            let length = [1, 4096, 70_000, 300_000][round % 4];
            let bufs = ends.sinks(length);
            let what = Exposed::Sink { bufs, length: length as u32 };
            let exposure = ends.client().expose(what, Rights::RemoteWrite).expect("a registration");
            ends.client().send(payload(b"read", 4), None).expect("it fits");
            assert_eq!(ends.message(SERVER).await, b"read");

            let data = bytes(length, round);
            let to = [BufferDescriptorV1::from(exposure)];
            let answer = bytes(3000, round);
            ends.server().rdma_write(7, payload(&data, 9000), &to).expect("it fits");
            ends.server().send(payload(&answer, 3000), Some(exposure.stag)).expect("it fits");
            let (mut written, mut answered) = (false, false);
            while !(written && answered) {
                match ends.next().await {
                    (SERVER, Ok(Event::RdmaDone { id: 7, result: Ok(None) })) => written = true,
                    (CLIENT, Ok(Event::Message { data: got, invalidated })) => {
                        let Some((stag, Exposed::Sink { mut bufs, .. })) = invalidated else {
                            panic!("not invalidated")
                        };
                        assert_eq!((stag, sg_to_vec(&got)), (exposure.stag, answer.clone()));
                        let mut placed: Vec<u8> = bufs.iter_mut().flat_map(|b| b.space().to_vec()).collect();
                        placed.truncate(length);
                        assert!(placed == data, "the data of round {round} are not all there");
                        answered = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let counters = ends.client().counters();
        assert_eq!(
            (counters.rdma_registrations, counters.remote_invalidations, counters.memory_regions),
            (10, 10, 0)
        );
    }
}

/// A WRITE over the channel, with one or many descriptors that end anywhere in the sinks, under any ORD.
#[tokio::test(start_paused = true)]
async fn reads_come_whole_and_in_order() {
    for (seed, ord) in [(1, 1), (2, 2), (3, 16)] {
        let mut ends = Ends::new(Options { ord, ..faulty(seed) }, small()).await;
        for lengths in [&[5000][..], &[4096, 4096], &[1, 0, 70_000, 3], &[100_000; 8]] {
            let mut sources = Vec::new();
            for (i, n) in lengths.iter().filter(|n| **n > 0).enumerate() {
                let source = Exposed::Source(payload(&bytes(*n, i), 8000));
                let e = ends.client().expose(source, Rights::RemoteRead).expect("a registration");
                sources.push(BufferDescriptorV1::from(e));
            }
            let mut from = sources.clone();
            from.insert(1.min(from.len()), BufferDescriptorV1 { offset: 9, token: 9, length: 0 });
            let total: usize = lengths.iter().sum();
            let sinks = ends.sinks(total);
            ends.server().rdma_read(3, &from, sinks).expect("it fits");
            let Event::RdmaDone { id: 3, result: Ok(Some(got)) } = ends.of(SERVER).await else {
                panic!("no data")
            };
            let want: Vec<u8> =
                lengths.iter().filter(|n| **n > 0).enumerate().flat_map(|(i, n)| bytes(*n, i)).collect();
            assert!(got.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>() == want);
            for d in sources {
                ends.client().invalidate(rdma::Stag(d.token)).expect("it is open");
                let Event::Invalidated { stag, result: Ok(Exposed::Source(_)) } = ends.of(CLIENT).await
                else {
                    panic!("the buffer does not come back")
                };
                assert_eq!(stag.0, d.token);
            }
        }
        let counters = ends.server().counters();
        assert_eq!(counters.bytes_rdma_read, 5000 + 8192 + 70_004 + 800_000);
        assert_eq!(counters.stalls_rdma_read > 0, ord < 8);
        assert_eq!(ends.client().counters().local_invalidations, 1 + 2 + 3 + 8);
    }
}

/// RDMA Reads beyond ORD wait without delaying messages.
#[tokio::test(start_paused = true)]
async fn waiting_reads_do_not_hold_up_messages() {
    let fabric = Options { ord: 1, latency: Duration::from_millis(10), ..Options::new(env()) };
    let mut ends = Ends::new(fabric, small()).await;
    ends.client().send(payload(b"hello", 5), None).expect("it fits");
    assert_eq!(ends.message(SERVER).await, b"hello"); // The server now has credits, too.
    let source = Exposed::Source(payload(&bytes(4096, 0), 4096));
    let e = ends.client().expose(source, Rights::RemoteRead).expect("a registration");
    for id in 0..10 {
        let sinks = ends.sinks(4096);
        ends.server().rdma_read(id, &[e.into()], sinks).expect("it fits");
    }
    ends.server().send(payload(b"first", 5), None).expect("it fits");
    assert_eq!(ends.message(CLIENT).await, b"first");
    for want in 0..10 {
        let Event::RdmaDone { id, result: Ok(Some(_)) } = ends.of(SERVER).await else { panic!("no data") };
        assert_eq!(id, want);
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_refused() {
    let options = SmbDirectOptions {
        max_queued_messages: 3,
        max_queued_transfers: 2,
        max_read_write_size: 1 << 20,
        ..small()
    };
    let mut ends = Ends::new(Options::new(env()), options).await;
    let one = || payload(b"x", 1);
    let d = |length| [BufferDescriptorV1 { offset: 0, token: 1, length }];
    let s = ends.server();
    let limit = s.limits().max_fragmented_send_size as usize;
    assert!(matches!(s.send(payload(&[], 1), None), Err(SmbDirectError::MessageLength { length: 0, .. })));
    let long = payload(&vec![0; limit + 1], 1 << 20);
    assert!(matches!(s.send(long, None), Err(SmbDirectError::MessageLength { .. })));
    for _ in 0..3 {
        s.send(one(), None).expect("there is room");
    }
    assert!(matches!(s.send(one(), None), Err(SmbDirectError::QueueFull("max_queued_messages"))));
    assert!(matches!(s.rdma_write(1, payload(b"xy", 2), &d(1)), Err(SmbDirectError::TransferLength { .. })));
    let many = vec![d(1)[0]; smb_direct::pdu::MAX_DESCRIPTORS + 1];
    assert!(matches!(s.rdma_write(1, one(), &many), Err(SmbDirectError::TooManyDescriptors(65))));
    let sinks = ends.sinks(4096);
    assert!(matches!(
        ends.server().rdma_read(1, &d(4097), sinks),
        Err(SmbDirectError::TransferLength { .. })
    ));
    let sinks = ends.sinks(2 << 20);
    assert!(matches!(
        ends.server().rdma_read(1, &d(1 << 21), sinks),
        Err(SmbDirectError::TransferLength { .. })
    ));
    // Nothing to transfer completes too.
    ends.server().rdma_write(5, payload(&[], 1), &d(0)).expect("nothing");
    assert!(matches!(ends.of(SERVER).await, Event::RdmaDone { id: 5, result: Ok(None) }));
    // None of that affected the connection.
    for _ in 0..3 {
        assert_eq!(ends.message(CLIENT).await, b"x");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_sends_what_is_queued() {
    let mut ends = Ends::new(Options::new(env()), small()).await;
    ends.client().send(payload(b"last words", 3), None).expect("it fits");
    ends.client().close();
    assert!(matches!(ends.client().send(payload(b"x", 1), None), Err(SmbDirectError::Ended)));
    let closed = ends.client().event().await;
    assert!(matches!(closed, Err(SmbDirectError::Down(Down::Closed))), "{closed:?}");
    assert!(matches!(ends.client().event().await, Err(SmbDirectError::Ended)));
    let Ok(Event::Message { data, .. }) = ends.server().event().await else { panic!("nothing came") };
    assert_eq!(sg_to_vec(&data), b"last words");
    let gone = ends.server().event().await;
    assert!(matches!(gone, Err(SmbDirectError::Down(Down::PeerClosed))), "{gone:?}");
}

/// MS-SMBD 3.1.6.2: if the peer is silent, the connection ends after the idle time and the answer time. If the peer
/// answers keep-alives, the connection is kept, however long it is idle.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    let environment = env();
    let mut ends = Ends::new(Options::new(environment.clone()), small()).await;
    let quiet = tokio::time::timeout(Duration::from_secs(3600), ends.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    let since = environment.now();
    let given_up = ends.server().event().await;
    assert!(matches!(given_up, Err(SmbDirectError::TimedOut(Timer::KeepAlive))), "{given_up:?}");
    assert!(environment.now() - since <= Duration::from_secs(126));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_negotiate_is_given_up() {
    let e = env();
    let (_mute, qp) = sim::pair(Options::new(e.clone()));
    let arena = Arena::new(2 << 20).expect("a mapping");
    let since = e.now();
    let end = SmbDirect::accept(Box::new(qp), arena.clone(), e.clone(), small()).await;
    assert!(matches!(end, Err(SmbDirectError::TimedOut(Timer::Negotiation))));
    assert_eq!(e.now() - since, Duration::from_secs(30));
    assert_eq!(arena.usage().used, 0);
}

/// A listener without memory for its first receive waits; so does the peer's request.
#[tokio::test(start_paused = true)]
async fn a_full_arena_delays_but_does_not_break() {
    let arena = Arena::new(2 << 20).expect("a mapping");
    let mut hog = Vec::new();
    while let Some(b) = arena.try_alloc(4096, Class::Control) {
        hog.push(b);
    }
    let e = env();
    let (a, b) = sim::pair(Options::new(e.clone()));
    let other = Arena::new(2 << 20).expect("a mapping");
    let both = async {
        tokio::join!(
            SmbDirect::connect(Box::new(a), other, e.clone(), small()),
            SmbDirect::accept(Box::new(b), arena, e.clone(), small())
        )
    };
    let free = async {
        e.sleep(Duration::from_secs(1)).await;
        while hog.pop().is_some() {
            e.sleep(Duration::from_millis(1)).await;
        }
    };
    let ((client, server), ()) = tokio::join!(both, free);
    let (mut client, mut server) = (client.expect("connected"), server.expect("connected"));
    client.send(payload(b"hello", 5), None).expect("it fits");
    let (got, _) = tokio::join!(server.event(), tokio::time::timeout(Duration::from_secs(1), client.event()));
    assert!(matches!(got, Ok(Event::Message { .. })));
    assert_eq!(server.counters().stalls_receive_memory, 1);
}

/// DESIGN: the memory budget is never exceeded, and many clients that use all their credits are slow but correct.
/// Here 250 connections share a quarter of 64 MiB; each client sends as much as it can at once, and continues to
/// send.
#[tokio::test(start_paused = true)]
async fn many_clients_share_one_budget() {
    const CLIENTS: usize = 250;
    let e = env();
    let (arena, theirs) =
        (Arena::new(16 << 20).expect("a mapping"), Arena::new(64 << 20).expect("a mapping"));
    let mut pairs = Vec::new();
    for _ in 0..CLIENTS {
        let (a, b) = sim::pair(Options::new(e.clone()));
        let (client, server) = tokio::join!(
            SmbDirect::connect(Box::new(a), theirs.clone(), e.clone(), SmbDirectOptions::default()),
            SmbDirect::accept(Box::new(b), arena.clone(), e.clone(), SmbDirectOptions::default()),
        );
        let mut client = client.expect("connected");
        for i in 0..40 {
            client.send(payload(&bytes(3000, i), 3000), None).expect("it fits");
        }
        pairs.push((client, server.expect("connected")));
    }
    let most = std::sync::atomic::AtomicUsize::new(0);
    let run = |(mut client, mut server): (SmbDirect, SmbDirect)| {
        let (arena, most) = (arena.clone(), &most);
        async move {
            let mut held = Vec::new();
            for i in 0..40 {
                let data = tokio::select! {
                    event = server.event() => match event {
                        Ok(Event::Message { data, .. }) => data,
                        other => panic!("{other:?}"),
                    },
                    event = client.event() => panic!("{event:?}"),
                };
                assert_eq!(sg_to_vec(&data), bytes(3000, i));
                most.fetch_max(arena.usage().used, std::sync::atomic::Ordering::Relaxed);
                // A slow server: it keeps the last four requests.
                held.push(data);
                if held.len() > 4 {
                    held.remove(0);
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    let mut all: Vec<_> = pairs.into_iter().map(|p| Box::pin(run(p))).collect();
    std::future::poll_fn(|cx| {
        all.retain_mut(|f| f.as_mut().poll(cx).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    drop(all);
    assert_eq!(arena.usage().used, 0);
    let most = most.into_inner();
    assert!(most <= arena.usage().budget / 4 * 3, "{most} bytes: nothing is left for payload");
}
