use std::time::Duration;

use env::Env;

use super::{Options, pair};
use std::future::poll_fn;
use std::task::Poll;

use arena::{Arena, Class, IoBuf, Sg};

use crate::conformance::{Pair, PairOptions, conformance};
use crate::{Down, Exposed, QueuePair, Remote, Rights, Wr, WrId};

fn options(shape: PairOptions, seed: u64) -> Options {
    Options {
        ird: shape.ird,
        ord: shape.ord,
        max_wr: shape.max_wr,
        max_regions: shape.max_regions,
        ..Options::new(Env::simulated(seed))
    }
}

mod plain {
    use super::*;

    async fn make(shape: PairOptions) -> Pair {
        let (a, b) = pair(options(shape, 1));
        Pair::new(a, b)
    }

    conformance!(make);
}

mod slow {
    use super::*;

    async fn make(shape: PairOptions) -> Pair {
        let (a, b) = pair(Options {
            latency: Duration::from_micros(50),
            jitter: Duration::from_micros(200),
            ..options(shape, 2)
        });
        Pair::new(a, b)
    }

    conformance!(make);
}

/// Runs Sends, Writes and Reads from one side with faults. Returns the completions in order, and why the connection
/// ended.
async fn story(seed: u64, cut_at: Option<u64>) -> (Vec<String>, Option<Down>) {
    let (mut a, mut b) = pair(Options { cut_at, reorder: true, ..options(PairOptions::default(), seed) });
    let arena = Arena::new(4 << 20).expect("a mapping");
    let sg = |n| -> Sg { [IoBuf::from(vec![n; 100])].into_iter().collect() };
    let sink = Exposed::Sink { bufs: arena.try_alloc_sg(100, Class::Payload).expect("memory"), length: 100 };
    let into = b.expose(sink, Rights::RemoteWrite).expect("exposed");
    let from = b.expose(Exposed::Source(sg(9)), Rights::RemoteRead).expect("exposed");
    let at = |stag| Remote { stag, offset: 0, length: 100 };
    let buf = || arena.try_alloc(100, Class::Payload).expect("memory");
    for i in 0..8 {
        b.post(WrId(i), Wr::Recv(buf())).map_err(|e| e.0).expect("posted");
        for (id, wr) in [
            (10, Wr::Send { sg: sg(1), invalidate: None }),
            (20, Wr::Write { src: sg(2), to: at(into.stag) }),
            (30, Wr::Read { sink: buf(), from: at(from.stag) }),
        ] {
            a.post(WrId(id + i), wr).map_err(|e| e.0).expect("posted");
        }
    }
    let (mut story, mut down) = (Vec::new(), None);
    poll_fn(|cx| {
        loop {
            let mut idle = true;
            for (name, qp) in [("a", &mut a), ("b", &mut b)] {
                let mut out = Vec::new();
                match qp.poll(cx, &mut out) {
                    Poll::Ready(Ok(())) => idle = false,
                    Poll::Ready(Err(e)) => down = Some(e),
                    Poll::Pending => {}
                }
                story.extend(out.iter().map(|c| format!("{name} {} {}", c.id.0, c.result.is_ok())));
            }
            if idle {
                return Poll::Ready(());
            }
        }
    })
    .await;
    if down.is_some() {
        assert_eq!((a.exposed(), b.exposed()), (0, 0));
        assert_eq!(arena.usage().used, 0, "nothing is held after the end");
    }
    (story, down)
}

#[tokio::test]
async fn a_seed_replays_and_reorders() {
    let (one, down) = story(5, None).await;
    assert_eq!((one.len(), down), (32, None));
    assert_eq!(one, story(5, None).await.0);
    assert_ne!(one, story(6, None).await.0, "another seed tells another story");
    for kind in ["a 1", "a 2", "a 3", "b "] {
        let of_kind: Vec<&String> = one.iter().filter(|s| s.starts_with(kind)).collect();
        assert_eq!(of_kind.len(), 8);
        assert!(of_kind.is_sorted(), "requests of one kind keep their order");
    }
}

/// Cuts the connection at every operation: every request completes once, and no memory leaks.
#[tokio::test]
async fn cut_at_every_operation() {
    for n in 1..=32 {
        let (story, down) = story(n, Some(n)).await;
        assert_eq!(down, Some(Down::Transport(std::io::ErrorKind::ConnectionReset)));
        let mut ids: Vec<&str> = story.iter().filter_map(|s| s.rsplit_once(' ')).map(|s| s.0).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((story.len(), ids.len()), (32, 32), "cut at {n}");
        assert!(story.iter().any(|s| s.ends_with("false")), "cut at {n}: something was flushed");
    }
}
