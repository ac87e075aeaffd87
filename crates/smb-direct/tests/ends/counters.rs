//! Provokes each kind of stall separately, and checks that work requests are counted where they are posted.

use counters::transfers as t;
use rdma::sim::Options;
use rdma::{Exposed, Rights};
use smb_direct::{BufferDescriptorV1, Counters, Event, SmbDirectOptions};

use crate::pair::{CLIENT, Ends, SERVER, bytes, env, payload};

/// The stalls of both ends, by kind: send credit, send queue, registration, RDMA read, receive memory.
fn stalls(ends: &Ends) -> [[u64; 5]; 2] {
    let of = |c: Counters| {
        let credit = [c.stalls_send_credit, c.stalls_send_queue, c.stalls_rdma_registrations];
        [credit[0], credit[1], credit[2], c.stalls_rdma_read, c.stalls_receive_memory]
    };
    [of(ends.ends[CLIENT].counters()), of(ends.ends[SERVER].counters())]
}

const NONE: [u64; 5] = [0; 5];

async fn quiet(fabric: Options, options: SmbDirectOptions) -> Ends {
    let ends = Ends::new(fabric, options).await;
    assert_eq!(stalls(&ends), [NONE, NONE], "negotiation stalls nowhere");
    ends
}

#[tokio::test(start_paused = true)]
async fn a_message_longer_than_the_credits_stalls_for_a_send_credit() {
    let mut ends = quiet(Options::new(env()), SmbDirectOptions::default()).await;
    // The server starts with few posted receives: 100 fragments need more.
    ends.client().send(payload(&bytes(100_000, 0), 4096), None).expect("it is short enough");
    assert_eq!(ends.message(SERVER).await.len(), 100_000);
    let [client, server] = stalls(&ends);
    assert!(client[0] > 0, "{client:?}");
    assert_eq!((&client[1..], server), (&NONE[1..], NONE));
}

#[tokio::test(start_paused = true)]
async fn more_work_than_the_queue_pair_takes_stalls_for_the_send_queue() {
    let fabric = Options { max_wr: 8, ..Options::new(env()) };
    let mut ends = quiet(fabric, SmbDirectOptions::default()).await;
    let sink = Exposed::Sink { bufs: ends.sinks(64 << 10), length: 64 << 10 };
    let e = ends.client().expose(sink, Rights::RemoteWrite).expect("a registration");
    let to = BufferDescriptorV1 { length: 1024, ..BufferDescriptorV1::from(e) };
    for id in 0..20 {
        ends.server().rdma_write(id, payload(&bytes(1024, 0), 1024), &[to]).expect("it is queued");
    }
    for id in 0..20 {
        assert!(matches!(ends.of(SERVER).await, Event::RdmaDone { id: i, .. } if i == id));
    }
    let [client, server] = stalls(&ends);
    assert_eq!(client, NONE);
    assert!(server[1] > 0, "{server:?}");
    assert_eq!((server[0], &server[2..]), (0, &NONE[2..]));
    assert_eq!(ends.server().counters().work_requests.rdma_write, 20);
}

#[tokio::test(start_paused = true)]
async fn more_buffers_than_the_provider_exposes_stall_for_registration_once() {
    let fabric = Options { max_regions: 2, ..Options::new(env()) };
    let mut ends = quiet(fabric, SmbDirectOptions::default()).await;
    let expose = |ends: &mut Ends| {
        ends.client().expose(Exposed::Source(payload(&bytes(100, 0), 100)), Rights::RemoteRead)
    };
    let first = expose(&mut ends).expect("there is room");
    expose(&mut ends).expect("there is room");
    for _ in 0..3 {
        expose(&mut ends).expect_err("there are two");
    }
    assert_eq!(stalls(&ends), [[0, 0, 1, 0, 0], NONE], "a stall is not counted for each attempt");
    ends.client().invalidate(first.stag).expect("it is open");
    assert!(matches!(ends.of(CLIENT).await, Event::Invalidated { result: Ok(_), .. }));
    expose(&mut ends).expect("there is room again");
    expose(&mut ends).expect_err("there are two again");
    assert_eq!(stalls(&ends), [[0, 0, 2, 0, 0], NONE]);
    let c = ends.client().counters();
    assert_eq!((c.work_requests.register, c.work_requests.local_invalidate, c.memory_regions), (3, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn more_reads_than_the_depth_stall_for_an_rdma_read() {
    let fabric = Options { ord: 1, ..Options::new(env()) };
    let mut ends = quiet(fabric, SmbDirectOptions::default()).await;
    let source = Exposed::Source(payload(&bytes(100, 0), 100));
    let e = ends.client().expose(source, Rights::RemoteRead).expect("a registration");
    for id in 0..2 {
        let sinks = ends.sinks(100);
        ends.server().rdma_read(id, &[e.into()], sinks).expect("it is queued");
        assert_eq!(stalls(&ends), [NONE, [0, 0, 0, id, 0]], "the first does not wait, the second does");
    }
    for _ in 0..2 {
        assert!(matches!(ends.of(SERVER).await, Event::RdmaDone { result: Ok(Some(_)), .. }));
    }
    assert_eq!(stalls(&ends), [NONE, [0, 0, 0, 1, 0]]);
    assert_eq!(ends.server().counters().work_requests.rdma_read, 2);
}

/// The sum of both ends' provider counts matches the operations; the provider counts in the connection's block.
#[tokio::test(start_paused = true)]
async fn work_requests_are_those_that_were_posted() {
    let mut ends = quiet(Options::new(env()), SmbDirectOptions::default()).await;
    let before = ends.ends.each_ref().map(|e| e.counters());
    let sink = Exposed::Sink { bufs: ends.sinks(8192), length: 8192 };
    let e = ends.client().expose(sink, Rights::RemoteWrite).expect("a registration");
    ends.client().send(payload(b"read, please", 100), None).expect("it fits");
    assert_eq!(ends.message(SERVER).await, b"read, please");
    ends.server().rdma_write(1, payload(&bytes(8192, 0), 8192), &[e.into()]).expect("it fits");
    ends.server().send(payload(b"done", 100), Some(e.stag)).expect("it fits");
    let mut answered = false;
    while !answered {
        answered = matches!(ends.next().await, (CLIENT, Ok(Event::Message { invalidated: Some(_), .. })));
    }
    let [client, server] = ends.ends.each_ref().map(|e| e.counters());
    let [c, s] = [client.work_requests, server.work_requests];
    assert_eq!(c.register - before[CLIENT].work_requests.register, 1);
    assert_eq!(s.rdma_write - before[SERVER].work_requests.rdma_write, 1);
    assert_eq!(s.send_invalidate - before[SERVER].work_requests.send_invalidate, 1);
    assert_eq!((c.rdma_read, c.rdma_write, c.local_invalidate, c.send_invalidate), (0, 0, 0, 0));
    for (counters, end) in [(client, &ends.ends[CLIENT]), (server, &ends.ends[SERVER])] {
        let w = counters.work_requests;
        assert_eq!(w.send + w.send_invalidate, counters.sends);
        assert!(w.receive >= counters.receives);
        assert_eq!((end.tally().get(t::WR_SEND), end.tally().get(t::SENDS)), (w.send, counters.sends));
    }
    assert_eq!((client.remote_invalidations, client.memory_regions), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn exposed_buffers_are_none_after_the_end() {
    let mut ends = quiet(Options::new(env()), SmbDirectOptions::default()).await;
    let source = Exposed::Source(payload(&bytes(100, 0), 100));
    ends.client().expose(source, Rights::RemoteRead).expect("a registration");
    let tally = std::sync::Arc::clone(ends.client().tally());
    assert_eq!(tally.get(t::MEMORY_REGIONS), 1);
    ends.client().close();
    while ends.client().event().await.is_ok() {}
    assert_eq!(tally.get(t::MEMORY_REGIONS), 0);
}
