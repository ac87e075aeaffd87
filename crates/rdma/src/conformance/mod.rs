//! Requirements on every provider of [`QueuePair`], as tests that run on a connected pair.

pub(crate) mod faults;
pub(crate) mod moves;

use std::future::poll_fn;
use std::task::Poll;

use arena::{Arena, Class, IoBuf, IoBufMut, Sg};

use crate::{
    Completion, Done, Down, Exposed, Exposure, QueuePair, RdmaError, Remote, Rights, WcError, Wr, WrId,
};

/// Two connected queue pairs and memory for them.
pub(crate) struct Pair {
    pub(crate) a: Box<dyn QueuePair>,
    pub(crate) b: Box<dyn QueuePair>,
    pub(crate) arena: Arena,
}

/// Which side of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    A,
    B,
}

/// Completions, and the reason for the end of the connection, at both sides.
#[derive(Default)]
struct Log {
    a: Vec<Completion>,
    b: Vec<Completion>,
    down_a: Option<Down>,
    down_b: Option<Down>,
}

impl Pair {
    pub(crate) fn new(a: impl QueuePair + 'static, b: impl QueuePair + 'static) -> Pair {
        Pair { a: Box::new(a), b: Box::new(b), arena: Arena::new(64 << 20).expect("a mapping") }
    }

    fn buf(&self, len: usize) -> IoBufMut {
        self.arena.try_alloc(len, Class::Payload).expect("the tests' arena is large")
    }

    /// Splits `bytes` into buffers of at most `piece` bytes.
    fn sg(&self, bytes: &[u8], piece: usize) -> Sg {
        bytes.chunks(piece.max(1)).map(|c| IoBuf::from(c.to_vec())).collect()
    }

    fn sink(&self, length: usize) -> Exposed {
        let bufs = self.arena.try_alloc_sg(length, Class::Payload).expect("the tests' arena is large");
        Exposed::Sink { bufs, length: length as u32 }
    }

    fn at(&mut self, at: Side) -> &mut dyn QueuePair {
        match at {
            Side::A => &mut *self.a,
            Side::B => &mut *self.b,
        }
    }

    fn post(&mut self, at: Side, id: u64, wr: Wr) {
        self.at(at).post(WrId(id), wr).map_err(|(e, _)| e).expect("the request is taken");
    }

    fn expose(&mut self, at: Side, what: Exposed, rights: Rights) -> Exposure {
        self.at(at).expose(what, rights).expect("it is exposed")
    }

    /// Polls both sides until `done` returns true.
    async fn run(&mut self, log: &mut Log, done: impl Fn(&Log) -> bool) {
        poll_fn(|cx| {
            loop {
                let mut moved = false;
                for (qp, out, down) in
                    [(&mut self.a, &mut log.a, &mut log.down_a), (&mut self.b, &mut log.b, &mut log.down_b)]
                {
                    if down.is_some() {
                        continue;
                    }
                    match qp.poll(cx, out) {
                        Poll::Ready(Err(e)) => *down = Some(e),
                        Poll::Ready(Ok(())) => {}
                        Poll::Pending => continue,
                    }
                    moved = true;
                }
                if done(log) {
                    return Poll::Ready(());
                }
                if !moved {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Runs until each side has had this many completions since the log began.
    async fn until(&mut self, log: &mut Log, a: usize, b: usize) {
        self.run(log, |l| l.a.len() >= a && l.b.len() >= b).await;
    }

    /// Runs until both sides are down; returns the reasons.
    async fn until_down(&mut self, log: &mut Log) -> (Down, Down) {
        self.run(log, |l| l.down_a.is_some() && l.down_b.is_some()).await;
        (log.down_a.clone().expect("down"), log.down_b.clone().expect("down"))
    }
}

impl Log {
    fn of(&mut self, at: Side) -> &mut Vec<Completion> {
        match at {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// Takes the completion of this request; panics unless there is exactly one.
    fn take(&mut self, at: Side, id: u64) -> Completion {
        let list = self.of(at);
        let found: Vec<usize> = (0..list.len()).filter(|i| list[*i].id == WrId(id)).collect();
        assert_eq!(found.len(), 1, "request {id} at {at:?} completes once: {list:?}");
        list.remove(found[0])
    }

    fn done(&mut self, at: Side, id: u64) -> Done {
        self.take(at, id).result.expect("the request succeeded")
    }

    fn invalidated(&mut self, at: Side, id: u64) -> Vec<u8> {
        match self.done(at, id) {
            Done::Invalidate(what) => sink_bytes(what),
            other => panic!("an Invalidate completes as one, not {other:?}"),
        }
    }

    fn received(&mut self, at: Side, id: u64) -> Vec<u8> {
        match self.done(at, id) {
            Done::Recv { buf, .. } => buf.to_vec(),
            other => panic!("a receive completes as one, not {other:?}"),
        }
    }
}

/// The full range of an exposure.
fn whole(e: Exposure) -> Remote {
    Remote { stag: e.stag, offset: e.offset, length: e.length }
}

/// A pattern of bytes that depends on `seed`.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

/// The bytes of an exposed sink.
fn sink_bytes(what: Exposed) -> Vec<u8> {
    match what {
        Exposed::Sink { mut bufs, length } => {
            let mut all: Vec<u8> = bufs.iter_mut().flat_map(|b| b.space().to_vec()).collect();
            all.truncate(length as usize);
            all
        }
        Exposed::Source(sg) => arena::sg_to_vec(&sg),
    }
}

/// Declares the suite for a provider: `$pair` is an async function that makes a [`Pair`] from a [`Shape`].
macro_rules! conformance {
    ($pair:path) => {
        $crate::conformance::conformance!(@tests $pair;
            moves: sends_arrive_in_order_in_posted_receives, writes_land_before_the_send_after_them, reads_fetch_what_is_exposed,
            reads_beyond_ord_wait, both_directions_at_once, send_with_invalidate_ends_an_exposure,
            invalidate_gives_the_buffer_back, large_messages_cross_whole, empty_messages_cross, buffers_return_to_the_arena;
            faults: send_without_receive_ends_it, too_long_a_send_ends_it, write_out_of_bounds_by_one, write_wrapping_around,
            write_with_a_bad_tag, write_into_a_source, read_out_of_bounds_by_one, read_from_a_sink, read_with_a_bad_tag,
            write_after_invalidation, invalidating_a_bad_tag, another_connections_tag_is_not_found, a_zero_length_write_needs_no_tag,
            close_lets_queued_sends_leave, down_flushes_everything, drop_is_noticed, misuse_is_refused_at_the_call,
            queues_are_bounded
        );
    };
    (@tests $pair:path; $($module:ident: $($test:ident),*);*) => {
        $($(
            #[tokio::test]
            async fn $test() {
                $crate::conformance::$module::$test(&mut async |shape| $pair(shape).await).await;
            }
        )*)*
    };
}
pub(crate) use conformance;

/// The requirements of a test on its pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairOptions {
    pub(crate) ird: u32,
    pub(crate) ord: u32,
    pub(crate) max_wr: usize,
    pub(crate) max_regions: usize,
}

impl Default for PairOptions {
    fn default() -> PairOptions {
        PairOptions { ird: 4, ord: 4, max_wr: 64, max_regions: 64 }
    }
}
