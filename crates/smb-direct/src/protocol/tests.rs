//! Runs pairs of cores in virtual time against a naive model of the credits; tests hostile peers and timers.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::*;
use crate::pdu::VERSION;
use smb_wire::NtStatus;

const MS: Duration = Duration::from_millis(1);

fn options() -> SmbDirectOptions {
    SmbDirectOptions { idle_timeout: Duration::from_secs(1_000_000), ..SmbDirectOptions::default() }
}

/// One side with the state of a shell, and the model's state: how many messages the other side may send to it.
struct Peer {
    core: Protocol,
    /// Receives posted at its queue pair; a message that finds none would end the connection.
    posted: usize,
    /// Upper-layer messages that were queued, in order, with their content.
    queued: VecDeque<Vec<u8>>,
    to_queue: VecDeque<Vec<u8>>,
    /// When the upper layer sends next.
    next_send: Time,
    sent: Vec<Vec<u8>>,
    partial: Vec<u8>,
    received: Vec<Vec<u8>>,
    /// Arriving messages.
    wire: VecDeque<(Time, Vec<u8>)>,
    /// When memory is available again.
    memory_at: Option<Time>,
    messages: usize,
}

impl Peer {
    fn new(core: Protocol, messages: Vec<Vec<u8>>) -> Peer {
        Peer {
            core,
            posted: 0,
            queued: VecDeque::new(),
            next_send: Time::ZERO,
            sent: messages.clone(),
            to_queue: messages.into(),
            partial: Vec::new(),
            received: Vec::new(),
            wire: VecDeque::new(),
            memory_at: None,
            messages: 0,
        }
    }
}

struct Pair {
    ends: [Peer; 2],
    random: ChaCha8Rng,
    now: Time,
    max_delay: u64,
    /// How often posting a receive fails, of 8.
    short: u64,
}

impl Pair {
    fn new(
        active: SmbDirectOptions,
        passive: SmbDirectOptions,
        messages: [Vec<Vec<u8>>; 2],
        seed: u64,
    ) -> Pair {
        let [a, b] = messages;
        let a = Peer::new(Protocol::active(Time::ZERO, active), a);
        let b = Peer::new(Protocol::passive(Time::ZERO, passive), b);
        let random = ChaCha8Rng::seed_from_u64(seed);
        Pair { ends: [a, b], random, now: Time::ZERO, max_delay: 3, short: 0 }
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random.next_u64() % of
    }

    /// Runs until no event before `until` is left; returns the time of the last event.
    fn run(&mut self, until: Time) -> Time {
        let mut last = self.now;
        loop {
            for side in 0..2 {
                self.act(side);
            }
            let due = |e: &Peer| {
                let timeout = e.core.poll_timeout();
                let send = (e.core.is_established() && !e.to_queue.is_empty()).then_some(e.next_send);
                [e.wire.front().map(|w| w.0), e.memory_at, send, timeout].into_iter().flatten().min()
            };
            let next = self.ends.iter().filter_map(due).min();
            let Some(next) = next.filter(|n| *n <= until) else {
                self.now = until;
                return last;
            };
            self.now = self.now.max(next);
            last = self.now;
            let side = self.chance(2) as usize;
            for side in [side, 1 - side] {
                self.deliver(side);
            }
        }
    }

    fn deliver(&mut self, side: usize) {
        let now = self.now;
        let end = &mut self.ends[side];
        end.core.handle_timeout(now).expect("no timeout here");
        if end.memory_at.is_some_and(|t| t <= now) {
            end.memory_at = None;
        }
        while end.wire.front().is_some_and(|w| w.0 <= now) {
            let (_, message) = end.wire.pop_front().expect("just seen");
            // The model: a queue pair without a posted receive ends the connection.
            assert!(end.posted > 0, "a message overran the credits");
            end.posted -= 1;
            let head = &message[..message.len().min(32)];
            match end.core.handle_receive(now, head, message.len()).expect("a peer that keeps the rules") {
                Received::Nothing | Received::Established => {}
                Received::Data { offset, length, last } => {
                    end.partial.extend(&message[offset as usize..(offset + length) as usize]);
                    if last {
                        end.received.push(std::mem::take(&mut end.partial));
                    }
                }
            }
        }
    }

    fn act(&mut self, side: usize) {
        // The upper layer sends a few messages at random times.
        let (few, pause) = (1 + self.chance(3) as usize, MS * self.chance(40) as u32);
        let end = &mut self.ends[side];
        if end.core.is_established() && end.next_send <= self.now {
            end.next_send = self.now + pause;
            for m in (0..few).map_while(|_| end.to_queue.pop_front()) {
                end.core.queue_message(m.len()).expect("within limits");
                end.queued.push_back(m);
            }
        }
        loop {
            self.post(side);
            let Some(transmit) = self.ends[side].core.poll_transmit(self.now) else { return };
            let (peer, end) = (self.ends[1 - side].core.limits(), &mut self.ends[side]);
            let bytes = match transmit {
                Transmit::Request(m) => m.to_bytes().to_vec(),
                Transmit::Response(m) => m.to_bytes().to_vec(),
                Transmit::Refusal(..) => panic!("nothing to refuse"),
                Transmit::Data(header, None) => header.to_bytes()[..DataTransfer::LEN].to_vec(),
                Transmit::Data(header, Some(f)) => {
                    let front = end.queued.front().expect("there is a message");
                    let mut b = header.to_bytes().to_vec();
                    b.extend(&front[f.start as usize..(f.start + f.length) as usize]);
                    assert_eq!(f.last, (f.start + f.length) as usize == front.len());
                    if f.last {
                        end.queued.pop_front();
                    }
                    b
                }
            };
            assert!(bytes.len() <= peer.max_receive_size as usize);
            end.messages += 1;
            assert!(end.messages < 100_000, "the two ends answer each other for ever");
            let at = self.now + MS * self.chance(self.max_delay + 1) as u32;
            let wire = &mut self.ends[1 - side].wire;
            let at = wire.back().map_or(at, |w| w.0.max(at));
            wire.push_back((at, bytes));
        }
    }

    /// Posts the wanted receives, as far as memory is available.
    fn post(&mut self, side: usize) {
        if self.ends[side].memory_at.is_some() {
            return;
        }
        let wanted = self.ends[side].core.receives_wanted();
        // A listener accepts no connection until its first receive is posted.
        let short = if self.ends[side].core.phase == Phase::AwaitRequest { 0 } else { self.short };
        let mut posted = 0;
        while posted < wanted && self.chance(8) >= short {
            posted += 1;
        }
        let now = self.now;
        let end = &mut self.ends[side];
        end.core.handle_posted(posted);
        end.posted += posted;
        assert_eq!(end.posted, end.core.posted());
        if posted < wanted {
            end.memory_at = Some(now + 7 * MS);
        }
    }

    fn check(&self) {
        for (me, peer) in [(0, 1), (1, 0)] {
            assert_eq!(self.ends[me].received, self.ends[peer].sent);
        }
    }
}

fn content(random: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    let mut b = vec![0; length];
    random.fill_bytes(&mut b);
    b
}

fn end_options(credits: u16, start: u16, size: u32) -> SmbDirectOptions {
    SmbDirectOptions {
        receive_credit_max: credits,
        receive_credit_target: start,
        max_send_size: size,
        max_receive_size: size,
        ..options()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Both ends send at once, with arbitrary credits, sizes and delays, and with occasional memory shortage.
    /// Nothing is lost, reordered or duplicated, no credit is overrun, and all messages arrive in finite time.
    #[test]
    fn everything_arrives(
        credits in (1u16..6, 1u16..6),
        start in (1u16..6, 1u16..6),
        sizes in (prop_oneof![128u32..300, 128u32..5000], prop_oneof![128u32..300, 128u32..5000]),
        lengths in (prop::collection::vec(1usize..3000, 0..12), prop::collection::vec(1usize..3000, 0..12)),
        delay in 0u64..20,
        short in 0u64..7,
        seed in any::<u64>(),
    ) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let messages = [lengths.0, lengths.1].map(|l| l.iter().map(|n| content(&mut random, *n)).collect());
        let mut pair = Pair::new(
            end_options(credits.0, start.0, sizes.0),
            // A listener whose preferred send size exceeds the other side's receive size would violate the protocol:
            // the minimum is used.
            end_options(credits.1, start.1, sizes.1),
            messages,
            seed,
        );
        pair.max_delay = delay;
        pair.short = short;
        pair.run(Duration::from_secs(600));
        pair.check();
    }

    /// The core never panics on arbitrary input: it ends the connection or continues. It never accepts more
    /// messages than it granted credits for.
    #[test]
    fn arbitrary_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        plausible in prop::collection::vec((0u16..3, 0u16..300, 0u16..2, 0u32..200_000, 0u32..9, 0u32..2000, 0usize..2100), 0..40),
    ) {
        crate::fuzzing::connection(&bytes);
        crate::fuzzing::connection(&[&[0, 20], &request().to_bytes()[..], &bytes].concat());
        let mut p = established(options());
        for (requested, granted, flags, remaining, offset, length, message) in plausible {
            while p.poll_transmit(Time::ZERO).is_some() {}
            let wanted = p.receives_wanted();
            p.handle_posted(wanted);
            let m = DataTransfer {
                credits_requested: requested,
                credits_granted: granted,
                flags: DataTransferFlags::from_bits_retain(flags),
                remaining_data_length: remaining,
                data_offset: offset * 8,
                data_length: length,
            };
            match p.handle_receive(Time::ZERO, &m.to_bytes(), message) {
                Ok(Received::Data { offset, length, .. }) => prop_assert!((offset + length) as usize <= message),
                Ok(_) => {}
                Err(_) => break,
            }
            prop_assert!(p.granted <= p.posted && p.posted <= 256);
            prop_assert!(p.remaining <= p.limits().max_fragmented_receive_size);
        }
    }
}

/// A passive end that has granted four credits and holds three.
fn established(options: SmbDirectOptions) -> Protocol {
    let mut p = Protocol::passive(Time::ZERO, options);
    p.handle_posted(1);
    let r = request();
    assert_eq!(p.handle_receive(Time::ZERO, &r.to_bytes(), 20), Ok(Received::Nothing));
    assert_eq!(p.receives_wanted(), 4);
    p.handle_posted(4);
    assert!(matches!(p.poll_transmit(Time::ZERO), Some(Transmit::Response(m)) if m.credits_granted == 4));
    p.send_credits = 3;
    p
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

fn data(length: u32, remaining: u32) -> DataTransfer {
    DataTransfer {
        credits_requested: 255,
        credits_granted: 1,
        flags: DataTransferFlags::empty(),
        remaining_data_length: remaining,
        data_offset: if length == 0 { 0 } else { 24 },
        data_length: length,
    }
}

fn receive(p: &mut Protocol, m: DataTransfer) -> Result<Received, End> {
    p.handle_receive(Time::ZERO, &m.to_bytes(), 24 + m.data_length as usize)
}

/// The violation that one hostile message causes.
fn verdict(m: DataTransfer, message: usize) -> Violation {
    let mut p = established(options());
    match p.handle_receive(Time::ZERO, &m.to_bytes()[..message.min(24)], message) {
        Err(End::Peer(v)) => {
            // The connection has ended: no message is accepted or sent, and no timer runs any more.
            assert_eq!(receive(&mut p, data(1, 0)), Ok(Received::Nothing));
            assert_eq!((p.receives_wanted(), p.poll_timeout()), (0, None));
            assert_eq!(p.poll_transmit(Time::ZERO), None);
            v
        }
        other => panic!("{m:?} gave {other:?}"),
    }
}

/// MS-SMBD 3.1.5.8.
#[test]
fn hostile_data_transfers() {
    let ok = data(100, 0);
    assert_eq!(verdict(ok, 19), Violation::DataLength(19));
    assert_eq!(verdict(ok, 1365), Violation::TooLong(1365));
    assert_eq!(verdict(DataTransfer { credits_requested: 0, ..ok }, 124), Violation::NoCreditsRequested);
    for offset in [25, 20, 16, 8, 0, u32::MAX] {
        assert_eq!(verdict(DataTransfer { data_offset: offset, ..ok }, 124), Violation::DataOffset(offset));
    }
    for (offset, length) in [(24, 101), (32, 100), (24, u32::MAX), (u32::MAX - 7, 8), (128, 1)] {
        let m = DataTransfer { data_offset: offset, data_length: length, ..ok };
        assert_eq!(verdict(m, 124), Violation::DataOutside { offset, length, message: 124 });
    }
    let limit = options().max_fragmented_size;
    assert_eq!(verdict(data(100, limit), 124), Violation::FragmentedTooLong(u64::from(limit) + 100));
    assert_eq!(verdict(data(100, u32::MAX), 124), Violation::FragmentedTooLong(u64::from(u32::MAX) + 100));
    let mut p = established(options());
    assert_eq!(
        receive(&mut p, data(100, limit - 100)),
        Ok(Received::Data { offset: 24, length: 100, last: false })
    );
}

/// MS-SMBD 3.1.5.8: fragments must add up; messages without data may arrive between them.
#[test]
fn fragments_must_add_up() {
    let first = |p: &mut Protocol| receive(p, data(100, 200)).expect("a first fragment");
    for (length, remaining) in [(100, 101), (100, 0), (200, 1), (1, 198)] {
        let mut p = established(options());
        first(&mut p);
        let got = u64::from(length + remaining);
        let bad = Violation::Remaining { expected: 200, got };
        assert_eq!(receive(&mut p, data(length, remaining)), Err(bad.into()));
    }
    let mut p = established(options());
    first(&mut p);
    assert_eq!(receive(&mut p, data(0, 0)), Ok(Received::Nothing));
    assert_eq!(receive(&mut p, data(200, 0)), Ok(Received::Data { offset: 24, length: 200, last: true }));
}

#[test]
fn a_message_without_a_credit() {
    let mut p = established(options());
    for _ in 0..4 {
        assert!(receive(&mut p, data(1, 0)).is_ok());
    }
    // Receives are posted again, but no credit was granted for them yet.
    p.handle_posted(4);
    assert_eq!(receive(&mut p, data(1, 0)), Err(Violation::NoCredit.into()));
}

/// MS-SMBD 3.1.5.6.
#[test]
fn hostile_negotiate_requests() {
    let ask = |r: NegotiateRequest, n: usize| {
        let mut p = Protocol::passive(Time::ZERO, options());
        p.handle_posted(1);
        p.handle_receive(Time::ZERO, &r.to_bytes()[..n], n).map(|_| p)
    };
    let bad = |r| ask(r, 20).err().expect("it is refused");
    assert_eq!(ask(request(), 19).err(), Some(Violation::NegotiateLength(19).into()));
    assert_eq!(
        bad(NegotiateRequest { credits_requested: 0, ..request() }),
        Violation::NoCreditsRequested.into()
    );
    assert_eq!(
        bad(NegotiateRequest { max_receive_size: 127, ..request() }),
        Violation::MaxReceiveSize(127).into()
    );
    let small = NegotiateRequest { max_fragmented_size: 131_071, ..request() };
    assert_eq!(bad(small), Violation::MaxFragmentedSize(131_071).into());

    // The peer first gets that reply if there is no common version.
    for (min, max) in [(0, 0xFF), (0x101, 0x200), (0x200, 0)] {
        let mut p =
            ask(NegotiateRequest { min_version: min, max_version: max, ..request() }, 20).expect("a refusal");
        let Some(Transmit::Refusal(m, why)) = p.poll_transmit(Time::ZERO) else { panic!("no refusal") };
        assert_eq!(
            (m.status, m.credits_granted, why),
            (NtStatus::NOT_SUPPORTED, 0, Violation::Version { min, max })
        );
        assert_eq!(p.poll_transmit(Time::ZERO), None);
    }

    // Tiny and huge sizes.
    let huge = NegotiateRequest {
        preferred_send_size: u32::MAX,
        max_receive_size: u32::MAX,
        max_fragmented_size: u32::MAX,
        credits_requested: u16::MAX,
        ..request()
    };
    let p = ask(huge, 20).expect("it is taken");
    assert_eq!((p.limits().max_send_size, p.limits().max_receive_size, p.receives_wanted()), (8192, 4096, 4));
    let tiny = NegotiateRequest { preferred_send_size: 0, max_receive_size: 128, ..request() };
    let p = ask(tiny, 20).expect("it is taken");
    assert_eq!((p.limits().max_send_size, p.limits().max_receive_size), (128, 128));
}

/// MS-SMBD 3.1.5.7.
#[test]
fn hostile_negotiate_responses() {
    let ok = NegotiateResponse {
        min_version: VERSION,
        max_version: VERSION,
        negotiated_version: VERSION,
        credits_requested: 255,
        credits_granted: 254,
        status: NtStatus::SUCCESS,
        max_read_write_size: 1 << 20,
        preferred_send_size: 1364,
        max_receive_size: 1364,
        max_fragmented_size: 173_910,
    };
    let answer = |r: NegotiateResponse, n: usize| {
        let mut p = Protocol::active(Time::ZERO, options());
        assert_eq!(p.poll_transmit(Time::ZERO), None, "a receive is posted before the request is sent");
        p.handle_posted(1);
        assert!(matches!(p.poll_transmit(Time::ZERO), Some(Transmit::Request(_))));
        p.handle_receive(Time::ZERO, &r.to_bytes()[..n], n).map(|r| (r, p))
    };
    let bad = |r| answer(r, 32).err().expect("it is refused");
    assert_eq!(answer(ok, 31).err(), Some(Violation::NegotiateLength(31).into()));
    assert_eq!(bad(NegotiateResponse { status: NtStatus::NOT_SUPPORTED, ..ok }), End::Refused(0xC000_00BB));
    let version = NegotiateResponse { negotiated_version: 0x200, ..ok };
    assert_eq!(bad(version), Violation::Version { min: VERSION, max: VERSION }.into());
    assert_eq!(bad(NegotiateResponse { credits_granted: 0, ..ok }), Violation::NoCreditsGranted.into());
    assert_eq!(bad(NegotiateResponse { credits_requested: 0, ..ok }), Violation::NoCreditsRequested.into());
    assert_eq!(bad(NegotiateResponse { max_receive_size: 0, ..ok }), Violation::MaxReceiveSize(0).into());
    assert_eq!(
        bad(NegotiateResponse { max_fragmented_size: 0, ..ok }),
        Violation::MaxFragmentedSize(0).into()
    );
    let eager = NegotiateResponse { preferred_send_size: 4097, ..ok };
    assert_eq!(bad(eager), Violation::PreferredSendSize(4097).into());
    let (received, p) = answer(ok, 32).expect("it is taken");
    assert_eq!((received, p.send_credits()), (Received::Established, 254));
    let limits = Limits {
        max_send_size: 1364,
        max_receive_size: 1364,
        max_fragmented_send_size: 173_910,
        max_fragmented_receive_size: options().max_fragmented_size,
        max_read_write_size: 1 << 20,
    };
    assert_eq!(p.limits(), limits);
}

/// Every size around the boundaries between one, two and three fragments.
#[test]
fn fragmentation_at_the_boundaries() {
    let room = 1364 - 24;
    let sizes: Vec<usize> =
        [1, room, 2 * room, 3 * room].iter().flat_map(|n| n - 1..=n + 1).filter(|n| *n > 0).collect();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut messages = || sizes.iter().map(|n| content(&mut random, *n)).collect::<Vec<_>>();
    let mut pair = Pair::new(end_options(9, 4, 1364), end_options(9, 4, 1364), [messages(), messages()], 1);
    pair.run(Duration::from_secs(60));
    pair.check();
    // The longest message is accepted; longer and empty ones are refused.
    let core = &mut pair.ends[0].core;
    let limit = core.limits().max_fragmented_send_size as usize;
    assert!(core.queue_message(limit).is_ok());
    for length in [0, limit + 1] {
        assert!(matches!(core.queue_message(length), Err(SmbDirectError::MessageLength { .. })));
    }
}

/// A server ends the connection of a vanished client within a minute (MS-SMBD 3.1.6.2): also if it has no credit
/// for the keep-alive or if the send queue is full.
#[test]
fn a_server_notices_a_vanished_client() {
    for (credits, is_sent) in [(2, true), (0, false), (2, false)] {
        let mut p = established(SmbDirectOptions::server());
        p.send_credits = credits;
        let end = loop {
            let at = p.poll_timeout().expect("established");
            if let Err(end) = p.handle_timeout(at) {
                break (at, end);
            }
            if is_sent && p.poll_transmit(at).is_some() {
                p.handle_keep_alive_sent(at);
            }
        };
        assert_eq!(end.1, End::TimedOut(Timer::KeepAlive));
        assert!(end.0 < Duration::from_secs(55), "{credits} credits: after {:?}", end.0);
    }
}

/// Grants are not exchanged endlessly, and the last credit is not spent without a grant.
#[test]
fn quiet_when_nothing_is_sent() {
    for (a, b) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (3, 3), (4, 4), (255, 255)] {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut messages = || (0..20).map(|_| content(&mut random, 300)).collect::<Vec<_>>();
        let mut pair = Pair::new(end_options(a, a, 128), end_options(b, b, 128), [messages(), messages()], 7);
        pair.run(Duration::from_secs(100));
        pair.check();
        let before: usize = pair.ends.iter().map(|e| e.messages).sum();
        pair.run(Duration::from_secs(200));
        let idle = pair.ends.iter().map(|e| e.messages).sum::<usize>() - before;
        // With one credit each, the ends must pass the credits back and forth, at the rate of the grant delay.
        let most = if a == 1 && b == 1 { 100 * 20 } else { 0 };
        assert!(idle <= most, "{idle} messages in 100 idle seconds with {a} and {b} credits");
    }
}

/// MS-SMBD 3.1.6.1 and 3.1.6.2.
#[test]
fn timers() {
    let mut p = Protocol::passive(Time::ZERO, SmbDirectOptions::default());
    let s = Duration::from_secs;
    assert_eq!(p.poll_timeout(), Some(s(30)));
    assert_eq!(p.handle_timeout(s(29)), Ok(()));
    assert_eq!(p.handle_timeout(s(30)), Err(End::TimedOut(Timer::Negotiation)));

    let mut p = established(SmbDirectOptions::default());
    assert_eq!(p.poll_timeout(), Some(s(120)));
    assert_eq!(p.handle_timeout(s(120)), Ok(()));
    let Some(Transmit::Data(m, None)) = p.poll_transmit(s(120)) else { panic!("no keep-alive") };
    assert_eq!((m.flags, m.data_length), (DataTransferFlags::RESPONSE_REQUESTED, 0));
    // The time for the answer starts when the keep-alive has been sent.
    assert_eq!((p.poll_transmit(s(120)), p.poll_timeout()), (None, Some(s(125))));
    p.handle_keep_alive_sent(s(124));
    assert_eq!((p.poll_timeout(), p.handle_timeout(s(128))), (Some(s(129)), Ok(())));
    // An answer keeps the connection; without one it ends.
    let mut alive = established(SmbDirectOptions::default());
    assert_eq!(alive.handle_timeout(s(120)), Ok(()));
    assert!(alive.poll_transmit(s(120)).is_some());
    alive.handle_keep_alive_sent(s(120));
    assert_eq!(alive.handle_receive(s(121), &data(0, 0).to_bytes(), 20), Ok(Received::Nothing));
    assert_eq!((alive.poll_timeout(), alive.handle_timeout(s(125))), (Some(s(241)), Ok(())));
    assert_eq!(p.handle_timeout(s(129)), Err(End::TimedOut(Timer::KeepAlive)));

    // So does a completed transfer, before the keep-alive and after it.
    let mut p = established(SmbDirectOptions::default());
    p.handle_transfer(s(100));
    assert_eq!((p.poll_timeout(), p.handle_timeout(s(120))), (Some(s(220)), Ok(())));
    assert_eq!((p.handle_timeout(s(220)), p.poll_transmit(s(220)).is_some()), (Ok(()), true));
    p.handle_keep_alive_sent(s(220));
    p.handle_transfer(s(224));
    assert_eq!((p.poll_timeout(), p.handle_timeout(s(225))), (Some(s(344)), Ok(())));

    // A full send queue delays the keep-alive.
    let mut p = established(SmbDirectOptions::default());
    assert_eq!((p.handle_timeout(s(120)), p.handle_timeout(s(140))), (Ok(()), Ok(())));
    assert!(p.poll_transmit(s(140)).is_some());
    assert_eq!(p.poll_timeout(), Some(s(145)));
    // A keep-alive that cannot be sent ends the connection too: sooner if there is no credit for it.
    for (credits, patience) in [(0, 5), (2, 120)] {
        let mut p = established(SmbDirectOptions::default());
        p.send_credits = credits;
        assert_eq!(p.handle_timeout(s(120)), Ok(()));
        assert_eq!(p.handle_timeout(s(119 + patience)), Ok(()));
        assert_eq!(p.handle_timeout(s(120 + patience)), Err(End::TimedOut(Timer::KeepAlive)));
    }
}

/// MS-SMBD 3.1.5.1: the last credit is spent only with a grant. MS-SMBD 3.1.5.9: an additional receive is posted
/// for that grant.
#[test]
fn the_last_credit_carries_a_grant() {
    let s = Duration::from_secs;
    let mut p = established(options());
    p.send_credits = 2;
    for _ in 0..3 {
        p.queue_message(10).expect("it fits");
    }
    assert!(
        matches!(p.poll_transmit(Time::ZERO), Some(Transmit::Data(m, Some(_))) if m.credits_granted == 0)
    );
    assert_eq!((p.poll_transmit(Time::ZERO), p.stalls()), (None, 1));
    assert_eq!((p.receives_wanted(), p.receive_needed()), (2, true));
    p.handle_posted(2);
    // This side keeps it for a while as long as the peer has credits.
    assert_eq!((p.poll_transmit(Time::ZERO), p.poll_timeout()), (None, Some(s(1))));
    assert!(matches!(p.poll_transmit(s(1)), Some(Transmit::Data(m, Some(_))) if m.credits_granted == 2));
    assert_eq!((p.send_credits(), p.poll_transmit(s(1)), p.receives_wanted()), (0, None, 0));
}

/// Linux 6.12 sends requests until it has no credit, without granting any, and only then grants what it has freed.
/// The last credit of this side is kept for that moment.
#[test]
fn a_peer_that_spends_its_last_credit_without_a_grant() {
    const REQUESTS: usize = 60;
    let mut p = established(options());
    p.send_credits = 255;
    let (mut credits, mut freed, mut requests, mut answered) = (4, 0, 0, 0);
    // Grants wait for requests at first: the peer's thread that frees receive buffers is busy with the first reply.
    let mut grants_waited = false;
    while answered < REQUESTS {
        let before = (credits, freed, requests, answered);
        while credits > 0 && requests < REQUESTS {
            credits -= 1;
            requests += 1;
            let request = DataTransfer { credits_granted: 0, ..data(100, 0) };
            assert_eq!(receive(&mut p, request), Ok(Received::Data { offset: 24, length: 100, last: true }));
            p.queue_message(170_000).expect("it fits");
            if grants_waited {
                break;
            }
        }
        grants_waited |= requests == REQUESTS || (credits == 0 && p.send_credits <= 1);
        if grants_waited && credits > 0 && freed > 0 {
            credits -= 1;
            assert_eq!(
                receive(&mut p, DataTransfer { credits_granted: freed, ..data(0, 0) }),
                Ok(Received::Nothing)
            );
            freed = 0;
        }
        p.handle_posted(p.receives_wanted());
        while let Some(Transmit::Data(m, fragment)) = p.poll_transmit(Time::ZERO) {
            credits += m.credits_granted;
            freed += 1;
            answered += usize::from(fragment.is_some_and(|f| f.last));
            p.handle_posted(p.receives_wanted());
        }
        assert_ne!((credits, freed, requests, answered), before, "neither side can send");
    }
}

/// MS-SMBD 3.1.5.8: a keep-alive is answered, once, by the next message sent.
#[test]
fn keep_alives_are_answered() {
    let mut p = established(options());
    let asked = DataTransfer { flags: DataTransferFlags::RESPONSE_REQUESTED, ..data(0, 0) };
    assert_eq!(receive(&mut p, asked), Ok(Received::Nothing));
    assert!(matches!(p.poll_transmit(Time::ZERO), Some(Transmit::Data(m, None)) if m.flags.is_empty()));
    assert_eq!(p.poll_transmit(Time::ZERO), None);
    // Also with the last credit: a receive is posted for the grant that it needs.
    p.send_credits = 1;
    p.granted = p.posted;
    assert_eq!(receive(&mut p, DataTransfer { credits_granted: 0, ..asked }), Ok(Received::Nothing));
    let wanted = p.receives_wanted();
    p.handle_posted(wanted);
    assert!(matches!(p.poll_transmit(Time::ZERO), Some(Transmit::Data(m, None)) if m.credits_granted > 0));
    assert_eq!(p.send_credits(), 0);
}

#[test]
fn credits_grow_with_use_and_shrink_on_demand() {
    let mut p = established(options());
    for _ in 0..6 {
        while p.granted > 0 {
            assert!(receive(&mut p, data(1, 0)).is_ok());
        }
        let wanted = p.receives_wanted();
        p.handle_posted(wanted);
        while p.poll_transmit(Time::ZERO).is_some() {}
    }
    assert_eq!(p.posted(), 255);
    p.set_credit_target(2);
    assert_eq!(p.receives_wanted(), 0);
    while p.granted > 2 {
        assert!(receive(&mut p, data(1, 0)).is_ok());
        assert_eq!((p.receives_wanted(), p.poll_transmit(Time::ZERO)), (0, None));
    }
    assert_eq!((p.posted(), p.granted), (2, 2));
    // When memory is free again, the peer gets as many credits as it used before, not a few at first: a peer that
    // uses those for requests would have none left for grants.
    p.set_credit_target(u16::MAX);
    assert_eq!(p.receives_wanted(), 253);
}
