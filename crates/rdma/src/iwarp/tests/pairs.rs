//! Two cores, connected by byte streams that deliver pieces of any size, against a naive model.

use proptest::prelude::*;

use super::*;
use crate::iwarp::core::Phase;
use crate::{Done, Remote, Stag};

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    SendInvalidate(usize),
    Write { offset: usize, len: usize },
    Read { offset: usize, len: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let len = prop_oneof![Just(0usize), 1usize..200, 1000usize..6000];
    let op = prop_oneof![
        len.clone().prop_map(Op::Send),
        len.clone().prop_map(Op::SendInvalidate),
        (0usize..4000, len.clone()).prop_map(|(offset, len)| Op::Write { offset, len }),
        (0usize..4000, len).prop_map(|(offset, len)| Op::Read { offset, len }),
    ];
    proptest::collection::vec(op, 0..25)
}

const AREA: usize = 10_000;

/// One direction: the requests of `from` to `to`, and their expected results.
struct Direction {
    sink: Exposure,
    expected_sink: Vec<u8>,
    messages: Vec<Vec<u8>>,
    reads: Vec<Vec<u8>>,
    invalidated: Vec<Stag>,
    requests: usize,
}

fn bytes(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

fn plan(from: &mut Peer, to: &mut Peer, arena: &Arena, ops: &[Op]) -> Direction {
    let area = bytes(AREA, 99);
    let (sink, source) = (to.sink(arena, AREA), to.source(&area));
    let mut d = Direction {
        sink,
        expected_sink: vec![0; AREA],
        messages: Vec::new(),
        reads: Vec::new(),
        invalidated: Vec::new(),
        requests: ops.len(),
    };
    for (i, op) in ops.iter().enumerate() {
        let id = 1000 + i as u64;
        let payload = |n| bytes(n, i).chunks(777).map(|c| c.to_vec().into()).collect();
        let at = |e: Exposure, offset: &usize, len: &usize| Remote {
            stag: e.stag,
            offset: *offset as u64,
            length: *len as u32,
        };
        match op {
            Op::Send(n) | Op::SendInvalidate(n) => {
                to.receive(arena, i as u64, 6000);
                let invalidate = matches!(op, Op::SendInvalidate(_)).then(|| to.sink(arena, 1).stag);
                d.invalidated.extend(invalidate);
                d.messages.push(bytes(*n, i));
                from.post(id, Wr::Send { sg: payload(*n), invalidate });
            }
            Op::Write { offset, len } => {
                d.expected_sink[*offset..offset + len].copy_from_slice(&bytes(*len, i));
                from.post(id, Wr::Write { src: payload(*len), to: at(sink, offset, len) });
            }
            Op::Read { offset, len } => {
                d.reads.push(area[*offset..offset + len].to_vec());
                let sink = arena.try_alloc(*len, Class::Payload).expect("memory");
                from.post(id, Wr::Read { sink, from: at(source, offset, len) });
            }
        }
    }
    // The memory is recycled, so it is cleared for the comparison.
    for slice in to.core.stags.write_target(sink.stag, 0, AREA).expect("it is exposed") {
        slice.fill(0);
    }
    d
}

fn verify(from: &mut Peer, to: &mut Peer, d: &Direction) -> Result<(), TestCaseError> {
    let (mut messages, mut reads, mut invalidated, mut done) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for c in &to.done {
        if let Ok(Done::Recv { buf, invalidated: i }) = &c.result {
            messages.push(buf.to_vec());
            invalidated.extend(i.as_ref().map(|(stag, _)| *stag));
        }
    }
    for c in &from.done {
        match &c.result {
            Ok(Done::Read(buf)) => reads.push(buf.to_vec()),
            Ok(Done::Send | Done::Write) => {}
            Ok(Done::Recv { .. }) => continue,
            other => prop_assert!(false, "{:?}", other),
        }
        done += 1;
    }
    prop_assert_eq!(done, d.requests, "every request completes once");
    prop_assert!(messages == d.messages && reads == d.reads && invalidated == d.invalidated);
    let placed = to.core.stags.write_target(d.sink.stag, 0, AREA).expect("it is exposed");
    let placed: Vec<u8> = placed.iter().flat_map(|s| s.to_vec()).collect();
    prop_assert!(placed == d.expected_sink, "the sink holds what was written");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_the_stream_does(
        crc: bool,
        max in 128usize..2000,
        seed: u64,
        forth in ops(),
        back in ops(),
        pieces in proptest::collection::vec((any::<bool>(), prop_oneof![1usize..40, 40usize..5000], any::<bool>()), 1..50),
    ) {
        let arena = memory();
        let config = Config { crc, max_ulpdu: mpa::max_ulpdu(max), ..config() };
        let (mut a, mut b) = (Peer::new(seed, config), Peer::new(seed ^ 1, config));
        let there = plan(&mut a, &mut b, &arena, &forth);
        let here = plan(&mut b, &mut a, &arena, &back);
        let mut silent = 0;
        for (from_a, n, direct) in pieces.iter().cycle() {
            let (from, to) = if *from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
            let said = from.say(*n);
            from.core.drain(&mut from.done);
            if *direct { to.hear_directly(&said) } else { to.hear(&said) };
            silent = if said.is_empty() { silent + 1 } else { 0 };
            if silent > pieces.len() {
                break;
            }
        }
        // `pieces` may have selected only one of the sides.
        loop {
            let (x, y) = (a.say(700), b.say(700));
            b.hear(&x);
            a.hear(&y);
            if x.is_empty() && y.is_empty() {
                break;
            }
        }
        a.core.drain(&mut a.done);
        b.core.drain(&mut b.done);
        prop_assert_eq!((a.core.phase(), b.core.phase()), (&Phase::Open, &Phase::Open));
        prop_assert!(a.held.is_empty() && b.held.is_empty());
        verify(&mut a, &mut b, &there)?;
        verify(&mut b, &mut a, &here)?;
        // After the end no buffer is held.
        for mut peer in [a, b] {
            peer.core.end(crate::Down::PeerClosed);
        }
        prop_assert_eq!(arena.usage().used, 0);
    }

    /// The stream may end anywhere: then every request is flushed or complete, and every exposure has ended.
    #[test]
    fn ended_anywhere(crc: bool, seed: u64, forth in ops(), back in ops(), cut in 0usize..60_000) {
        let arena = memory();
        let config = Config { crc, ..config() };
        let (mut a, mut b) = (Peer::new(seed, config), Peer::new(seed ^ 1, config));
        let there = plan(&mut a, &mut b, &arena, &forth);
        let here = plan(&mut b, &mut a, &arena, &back);
        let mut left = cut;
        loop {
            let (x, y) = (a.say(left.min(1000)), b.say(left.min(1000)));
            left -= x.len().max(y.len()).min(left);
            b.hear(&x);
            a.hear(&y);
            if (x.is_empty() && y.is_empty()) || left == 0 {
                break;
            }
        }
        for (peer, requests) in [(&mut a, there.requests + here.messages.len()), (&mut b, here.requests + there.messages.len())] {
            let why = peer.core.input_ended(peer.held.len());
            peer.core.end(why);
            peer.core.drain(&mut peer.done);
            let mut ids: Vec<u64> = peer.done.iter().map(|c| c.id.0).collect();
            prop_assert_eq!(ids.len(), requests);
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), requests, "each once");
            prop_assert_eq!(peer.core.exposed(), 0);
        }
    }

    /// No input causes a panic; at worst it ends the connection.
    #[test]
    fn no_input_panics(crc: bool, stream in proptest::collection::vec(any::<u8>(), 0..600)) {
        super::super::fuzzing::connection(crc, &memory(), &stream);
        super::super::fuzzing::frame(&stream);
    }

    /// No panic either if the stream starts with valid FPDUs of which a few bytes are changed.
    #[test]
    fn no_damaged_input_panics(ops in ops(), seed: u64, damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let arena = memory();
        let (mut a, mut b) = (Peer::new(seed, config()), Peer::new(seed ^ 1, config()));
        plan(&mut a, &mut b, &arena, &ops);
        let mut said = a.say_all();
        if said.is_empty() {
            return Ok(());
        }
        for (at, value) in &damage {
            let at = at.index(said.len());
            said[at] = *value;
        }
        b.hear(&said);
        b.say_all();
        if matches!(b.core.phase(), Phase::Terminating(_) | Phase::Down(_)) {
            prop_assert_eq!(b.core.exposed(), 0, "exposures die first");
        }
    }
}
