//! A peer that violates one rule at a time. Each violation ends that connection, with the code from the RFCs,
//! before a byte is placed.

use super::*;
use crate::iwarp::core::Phase;
use crate::iwarp::ddp::{Header, Queue, Tagged, Untagged};
use crate::iwarp::rdmap::ReadRequest;
use crate::iwarp::terminate;
use crate::violation::Violation;
use crate::{Done, Down, Remote, Stag, WcError};

const WRITE: u8 = 0x40;
const READ_REQUEST: u8 = 0x41;
const READ_RESPONSE: u8 = 0x42;
const SEND: u8 = 0x43;
const SEND_INVALIDATE: u8 = 0x44;
pub(super) const TERMINATE: u8 = 0x47;

/// An FPDU with a zero trailer.
fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut out = (ulpdu.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(ulpdu);
    out.resize(mpa::fpdu_len(ulpdu.len()), 0);
    out
}

fn with_header(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = Vec::new();
    header.write(&mut ulpdu);
    ulpdu.extend_from_slice(payload);
    fpdu(&ulpdu)
}

fn tagged(control: u8, stag: Stag, offset: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    with_header(Header::Tagged(Tagged { last, control, stag, offset }), payload)
}

fn untagged(control: u8, queue: u32, msn: u32, offset: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    let queue = Queue(queue);
    with_header(Header::Untagged(Untagged { last, control, word: 0, queue, msn, offset }), payload)
}

fn request(stag: Stag, offset: u64, length: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    let from = Remote { stag, offset, length };
    ReadRequest { sink: Stag(1), sink_offset: 0, from }.write(&mut payload);
    payload
}

/// An RDMA Write to an unknown tag.
pub(super) fn unknown_tag() -> Vec<u8> {
    tagged(WRITE, Stag(5), 0, true, b"x")
}

/// The peer's first message.
pub(super) fn message(payload: &[u8]) -> Vec<u8> {
    untagged(SEND, 0, 1, 0, true, payload)
}

/// A connection that is attacked.
struct Victim {
    peer: Peer,
    arena: Arena,
    sink: Exposure,
    source: Exposure,
    /// The tag of the sink of the Read in flight.
    reading: Stag,
}

/// A sink and a source of 5000 bytes, one posted receive of 4096 bytes, and one Read of 3000 bytes in flight.
fn victim(crc: bool) -> Victim {
    let arena = memory();
    let mut peer = Peer::new(7, Config { crc, ..config() });
    let sink = peer.sink(&arena, 5000);
    for slice in peer.core.stags.write_target(sink.stag, 0, 5000).expect("exposed") {
        slice.fill(0xEE);
    }
    let source = peer.source(&[0x55; 5000]);
    peer.receive(&arena, 1, 4096);
    let from = Remote { stag: Stag(77), offset: 0, length: 3000 };
    peer.post(2, Wr::Read { sink: arena.try_alloc(3000, Class::Payload).expect("memory"), from });
    peer.say_all();
    let reading = peer.core.reads.front().expect("in flight").stag;
    Victim { peer, arena, sink, source, reading }
}

impl Victim {
    /// Checks that the attack ends the connection as `expected`, that the peer is notified, and that `last` placed
    /// nothing.
    fn falls_to(mut self, stream: &[u8], expected: Violation) {
        self.peer.hear(stream);
        let down = Down::Protocol { what: expected.what, code: expected.code };
        assert_eq!(*self.peer.core.phase(), Phase::Terminating(down.clone()), "{}", expected.what);
        assert_eq!(self.peer.core.exposed(), 0, "exposures die first");
        let said = self.peer.say_all();
        let all = fpdus(&said);
        let last = all.last().expect("a Terminate");
        let (header, at) = Header::parse(&last[2..]).expect("version 1").expect("a header");
        assert_eq!((header.control(), header.last()), (TERMINATE, true));
        assert_eq!(terminate::parse(&last[2 + at..]), Ok(expected.code));
        // Further input is ignored.
        self.peer.hear(stream);
        assert!(self.peer.core.ready_to_end());
        self.peer.core.end(down);
        self.peer.core.drain(&mut self.peer.done);
        let flushed = |c: &&Completion| c.result.as_ref().err() == Some(&WcError::Flushed);
        assert_eq!(self.peer.done.iter().filter(flushed).count(), 2, "the receive and the Read");
        self.peer.done.clear();
        assert_eq!(self.arena.usage().used, 0);
    }
}

#[test]
fn tagged_segments() {
    let v = victim(false);
    let (sink, source) = (v.sink.stag, v.source.stag);
    v.falls_to(&tagged(WRITE, Stag(sink.0 ^ 1), 0, true, b"x"), Violation::INVALID_STAG);
    victim(false).falls_to(&tagged(WRITE, sink, 5000, true, b"x"), Violation::BOUNDS);
    victim(false).falls_to(&tagged(WRITE, sink, 4993, false, &[1; 8]), Violation::BOUNDS);
    victim(false).falls_to(&tagged(WRITE, sink, u64::MAX, true, &[1; 2]), Violation::WRAP);
    victim(false).falls_to(&tagged(WRITE, source, 0, true, b"x"), Violation::WRITE_RIGHTS);
    // RFC 5040 4.8: a Send or a Read Request is not a tagged message.
    victim(false).falls_to(&tagged(SEND, sink, 0, true, b"x"), Violation::UNEXPECTED_OPCODE);
    victim(false).falls_to(&tagged(0x00, sink, 0, true, b"x"), Violation::RDMAP_VERSION);
    victim(false).falls_to(&tagged(0x4F, sink, 0, true, b"x"), Violation::UNEXPECTED_OPCODE);
}

#[test]
fn nothing_is_placed_by_a_bad_segment() {
    let mut v = victim(false);
    // The first byte would fit, but the last does not; the header alone decides.
    let bad = tagged(WRITE, v.sink.stag, 4999, true, &[1, 1]);
    let good = tagged(WRITE, v.sink.stag, 10, true, &[2; 3]);
    v.peer.hear(&good);
    let Some(crate::Exposed::Sink { mut bufs, .. }) = v.peer.core.stags.invalidate(v.sink.stag) else {
        panic!("it was exposed")
    };
    let mut expected = vec![0xEE; 5000];
    expected[10..13].fill(2);
    assert!(bufs[0].space()[..5000] == expected);
    let again = v.peer.core.expose(crate::Exposed::Sink { bufs, length: 5000 }, Rights::RemoteWrite);
    let stag = again.expect("exposed").stag;
    assert_ne!(stag, v.sink.stag, "a tag is not given out again soon");
    let mut bad = bad;
    bad[4..8].copy_from_slice(&stag.0.to_be_bytes());
    // Only the length is wrong: 2 bytes at the last offset.
    v.peer.hear(&bad[..bad.len() - 6]);
    assert_eq!(*v.peer.core.phase(), Phase::Terminating(Violation::BOUNDS.into()));
}

/// A tag invalidated in the middle of a segment: the rest of the segment is not placed.
#[test]
fn invalidated_while_bytes_arrive() {
    let mut v = victim(false);
    let stream = tagged(WRITE, v.sink.stag, 0, true, &[1; 100]);
    v.peer.hear(&stream[..60]);
    v.peer.post(9, Wr::Invalidate(v.sink.stag));
    v.peer.core.drain(&mut v.peer.done);
    assert!(v.peer.core.direct(1).is_none());
    v.peer.hear(&stream[60..]);
    assert_eq!(*v.peer.core.phase(), Phase::Terminating(Violation::INVALID_STAG.into()));
    let bytes = match v.peer.done.pop().map(|c| c.result) {
        Some(Ok(Done::Invalidate(crate::Exposed::Sink { mut bufs, .. }))) => bufs[0].space()[..100].to_vec(),
        other => panic!("not {other:?}"),
    };
    assert!(bytes[..44] == [1; 44] && bytes[44..] == [0xEE; 56]);
}

#[test]
fn read_responses() {
    let respond = |offset, last, n| {
        let v = victim(false);
        tagged(READ_RESPONSE, v.reading, offset, last, &vec![1; n])
    };
    // RFC 5040 5.2: a response must go to the sink of the oldest Read, from its next byte on, with exactly the
    // missing length.
    victim(false).falls_to(&tagged(READ_RESPONSE, Stag(5), 0, true, &[1; 8]), Violation::INVALID_STAG);
    let sink = victim(false).sink.stag;
    victim(false).falls_to(&tagged(READ_RESPONSE, sink, 0, true, &[1; 8]), Violation::INVALID_STAG);
    let reading = victim(false).reading;
    victim(false).falls_to(&tagged(WRITE, reading, 0, true, &[1; 8]), Violation::INVALID_STAG);
    victim(false).falls_to(&respond(1, false, 8), Violation::BOUNDS);
    victim(false).falls_to(&respond(0, true, 3001), Violation::BOUNDS);
    victim(false).falls_to(&respond(0, true, 2999), Violation::RESPONSE_SIZE);
    let twice = [respond(0, false, 100), respond(0, false, 100)].concat();
    victim(false).falls_to(&twice, Violation::BOUNDS);
    // After the Read is answered its tag is invalid.
    let mut v = victim(false);
    v.peer.hear(&respond(0, true, 3000));
    assert!(matches!(v.peer.done[0].result, Ok(Done::Read(_))));
    v.peer.hear(&respond(0, true, 3000));
    assert_eq!(*v.peer.core.phase(), Phase::Terminating(Violation::INVALID_STAG.into()));
}

#[test]
fn sends() {
    let send = |msn, offset, last, n: usize| untagged(SEND, 0, msn, offset, last, &vec![1; n]);
    victim(false).falls_to(&send(0, 0, true, 1), Violation::MSN);
    victim(false).falls_to(&send(2, 0, true, 1), Violation::MSN);
    victim(false).falls_to(&send(1, 1, true, 1), Violation::MESSAGE_OFFSET);
    victim(false).falls_to(&send(1, 0, true, 4097), Violation::TOO_LONG);
    let gap = [send(1, 0, false, 10), send(1, 11, true, 1)].concat();
    victim(false).falls_to(&gap, Violation::MESSAGE_OFFSET);
    let creeping = [send(1, 0, false, 4096), send(1, 4096, true, 1)].concat();
    victim(false).falls_to(&creeping, Violation::TOO_LONG);
    let changed = [send(1, 0, false, 10), untagged(0x45, 0, 1, 10, true, b"x")].concat();
    victim(false).falls_to(&changed, Violation::UNEXPECTED_OPCODE);
    victim(false).falls_to(&untagged(SEND_INVALIDATE, 0, 1, 0, true, b"x"), Violation::CANNOT_INVALIDATE);
    victim(false).falls_to(&untagged(WRITE, 0, 1, 0, true, b"x"), Violation::UNEXPECTED_OPCODE);
    victim(false).falls_to(&untagged(SEND, 3, 1, 0, true, b"x"), Violation::QUEUE_NUMBER);
    victim(false).falls_to(&untagged(SEND, 2, 1, 0, true, b"x"), Violation::UNEXPECTED_OPCODE);
    let mut v = victim(false);
    v.peer.hear(&send(1, 0, true, 4096));
    v.peer.hear(&send(2, 0, true, 0));
    assert_eq!(*v.peer.core.phase(), Phase::Terminating(Violation::NO_BUFFER.into()));
}

#[test]
fn read_requests() {
    let source = victim(false).source.stag;
    let read = |msn, payload: &[u8]| untagged(READ_REQUEST, 1, msn, 0, true, payload);
    victim(false).falls_to(&read(1, &request(source, 1, 5000)), Violation::READ_BOUNDS);
    victim(false).falls_to(&read(1, &request(source, u64::MAX, 2)), Violation::READ_WRAP);
    victim(false).falls_to(&read(1, &request(Stag(source.0 ^ 2), 0, 1)), Violation::READ_INVALID_STAG);
    let sink = victim(false).sink.stag;
    victim(false).falls_to(&read(1, &request(sink, 0, 1)), Violation::READ_RIGHTS);
    victim(false).falls_to(&read(2, &request(source, 0, 1)), Violation::MSN);
    victim(false).falls_to(&read(1, &request(source, 0, 1)[..27]), Violation::MESSAGE_SIZE);
    let good = request(source, 0, 5000);
    victim(false).falls_to(&untagged(READ_REQUEST, 1, 1, 0, false, &good), Violation::TOO_LONG);
    victim(false).falls_to(&untagged(READ_REQUEST, 1, 1, 4, true, &good), Violation::MESSAGE_OFFSET);
    victim(false).falls_to(&untagged(SEND, 1, 1, 0, true, &good), Violation::UNEXPECTED_OPCODE);
    // RFC 5040 5.2: concurrent Reads beyond our IRD of 2 find no buffer.
    let three = [read(1, &good), read(2, &good), read(3, &good)].concat();
    victim(false).falls_to(&three, Violation::NO_BUFFER);
}

/// If a source is invalidated while a Read of it is being answered, no further byte of it is sent.
#[test]
fn source_invalidated_while_read() {
    let mut v = victim(false);
    v.peer.hear(&untagged(READ_REQUEST, 1, 1, 0, true, &request(v.source.stag, 0, 5000)));
    v.peer.post(9, Wr::Invalidate(v.source.stag));
    let said = v.peer.say_all();
    assert_eq!(*v.peer.core.phase(), Phase::Terminating(Violation::READ_REVOKED.into()));
    assert_eq!(fpdus(&said).len(), 1, "a Terminate and nothing else");
}

#[test]
fn segments_that_are_none() {
    // RFC 5041 4.1: a version that is not 1.
    victim(false).falls_to(&fpdu(&[0x02; 20]), Violation::UNTAGGED_VERSION);
    victim(false).falls_to(&fpdu(&[0x80; 20]), Violation::TAGGED_VERSION);
    // An FPDU that cannot hold its header.
    victim(false).falls_to(&fpdu(&[0x41; 17]), Violation::FPDU_LENGTH);
    victim(false).falls_to(&fpdu(&[0xC1; 13]), Violation::FPDU_LENGTH);
    victim(false).falls_to(&fpdu(&[]), Violation::FPDU_LENGTH);
    // Garbage.
    victim(false).falls_to(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", Violation::UNTAGGED_VERSION);
}

/// A Terminate ends the connection and is not answered; one without a complete code is itself a violation.
#[test]
fn terminates() {
    let mut v = victim(false);
    v.peer.hear(&untagged(TERMINATE, 2, 1, 0, true, &[0x12, 0x05, 0, 0]));
    let code = Violation::TOO_LONG.code;
    assert_eq!(*v.peer.core.phase(), Phase::Down(Down::Terminated(code)));
    assert!(v.peer.say_all().is_empty() && v.peer.core.exposed() == 0);
    victim(false).falls_to(&untagged(TERMINATE, 2, 1, 0, true, &[0x12, 0x05, 0]), Violation::MESSAGE_SIZE);
    victim(false).falls_to(&untagged(TERMINATE, 2, 2, 0, true, &[0; 4]), Violation::MSN);
}

/// RFC 5044 5: no byte of an FPDU is used before its CRC matches.
#[test]
fn bad_crc() {
    let mut whole = Peer::new(1, Config { crc: true, ..config() });
    let to = Remote { stag: victim(true).sink.stag, offset: 0, length: 64 };
    whole.post(1, Wr::Write { src: [vec![9; 64].into()].into_iter().collect(), to });
    let good = whole.say_all();
    let mut v = victim(true);
    v.peer.hear(&good);
    assert_eq!(*v.peer.core.phase(), Phase::Open);
    for at in [1, 2, 6, 15, 16, 79, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        bad.extend_from_slice(&[0; 64]); // the damaged length field may claim more bytes
        let mut v = victim(true);
        v.peer.hear(&bad);
        assert_eq!(*v.peer.core.phase(), Phase::Terminating(Violation::CRC.into()), "byte {at}");
    }
    let mut v = victim(true);
    v.peer.hear(&good[..good.len() - 1]);
    for slice in v.peer.core.stags.write_target(to.stag, 0, 64).expect("exposed") {
        assert_eq!(slice[..], [0xEE; 64], "an FPDU that is not whole is not used");
    }
}

/// The connection holds less than one FPDU of unprocessed bytes.
#[test]
fn a_slow_peer_makes_us_hold_little() {
    for crc in [false, true] {
        let mut v = victim(crc);
        let stream = tagged(WRITE, v.sink.stag, 0, true, &[1; 4000]);
        for byte in &stream[..stream.len() - 1] {
            v.peer.hear(&[*byte]);
            assert!(v.peer.held.len() < if crc { stream.len() } else { 20 });
        }
        assert_eq!(*v.peer.core.phase(), Phase::Open);
        assert_eq!(
            v.peer.core.input_ended(v.peer.held.len()),
            Down::Transport(std::io::ErrorKind::UnexpectedEof)
        );
    }
}

/// RFC 5044 7.1.2: the responder sends nothing before the initiator's first FPDU. RFC 6581 8: that may be any of
/// the ready-to-receive messages; a Send among them uses no posted receive.
#[test]
fn the_responder_waits() {
    let ready = [
        fpdu(&[]),
        untagged(SEND, 0, 1, 0, true, &[]),
        tagged(WRITE, Stag(1), 0, true, &[]),
        untagged(READ_REQUEST, 1, 1, 0, true, &request(Stag(1), 0, 0)),
    ];
    for (i, message) in ready.iter().enumerate() {
        let arena = memory();
        let mut peer = Peer::new(1, Config { wait: true, ready: Ready::ALL, ..config() });
        peer.post(1, Wr::Send { sg: [vec![5].into()].into_iter().collect(), invalidate: None });
        assert!(peer.say_all().is_empty());
        peer.hear(message);
        let answers = if i == 3 { 2 } else { 1 };
        assert_eq!(fpdus(&peer.say_all()).len(), answers, "message {i}");
        peer.receive(&arena, 2, 10);
        let msn = if i == 1 { 2 } else { 1 };
        peer.hear(&untagged(SEND, 0, msn, 0, true, b"first"));
        assert!(
            peer.done.iter().any(|c| matches!(&c.result, Ok(Done::Recv { buf, .. }) if buf[..] == *b"first"))
        );
    }
}
