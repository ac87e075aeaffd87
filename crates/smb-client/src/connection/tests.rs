//! Tests the core with scripted responses, and a connection with a scripted peer on the simulated fabric.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use arena::{Arena, Class, IoBuf, Sg, sg_to_vec};
use env::Env;
use proptest::prelude::*;
use rdma::{Exposed, Exposure, Stag, sim};
use smb_auth::crypt::{Cipher, Opener, Sealer};
use smb_auth::sign::{SigningAlgorithm, SigningKey};
use smb_direct::{BufferDescriptorV1, Event, SmbDirect, SmbDirectOptions};
use smb_wire::msg::{
    CreateResponse, EchoRequest, EchoResponse, ErrorResponse, ReadRequest, ReadResponse, WriteRequest,
};
use smb_wire::{
    Command, Decode, Encode, FileId, HEADER_LEN, Header, HeaderFlags, MessageBuilder, NtStatus, compound,
};
use tokio::sync::oneshot;

use super::core::Core;
use super::queue::{Setting, SubmittedRequest};
use super::{
    Channel, Ciphers, Connection, Limits, NegotiatedParameters, Rdma, Request, Response, Setup, Transport,
};
use crate::{Lost, RequestError};

const LIMITS: Limits = Limits { credits: 100, request_timeout: Duration::from_secs(60) };

type Answer = oneshot::Receiver<Result<Response, RequestError>>;

/// A core, and the time.
struct Bench {
    core: Core,
    now: Instant,
    tickets: u64,
}

impl Bench {
    fn new() -> Bench {
        let arena = Arena::new(4 << 20).expect("memory");
        Bench { core: Core::new(LIMITS, arena), now: Env::real().now(), tickets: 0 }
    }

    /// A core with large MTU and a session that signs messages as `channel` says.
    fn with(channel: Channel) -> Bench {
        let mut b = Bench::new();
        b.core
            .apply(Setting::Parameters(NegotiatedParameters { multi_credit: true, message_limit: 1 << 20 }));
        b.core.apply(Setting::Channel(Arc::new(channel)));
        b
    }

    /// Starts a request; returns the header that was sent, and the receiver of the response.
    fn start(&mut self, request: Request, exposure: Option<Exposure>) -> (Header, Answer) {
        let (reply, answer) = oneshot::channel();
        self.tickets += 1;
        let submitted = SubmittedRequest { request, reply: Some(reply), ticket: self.tickets };
        self.core.start(self.now, submitted, exposure).expect("started");
        (self.sent(), answer)
    }

    fn echo(&mut self) -> (Header, Answer) {
        self.start(echo(), None)
    }

    /// Returns the header of the oldest message not yet examined.
    fn sent(&mut self) -> Header {
        let (head, _) = self.core.out.pop_front().expect("a message");
        Header::decode(&head).expect("a header")
    }

    fn hear(&mut self, message: Vec<u8>) -> Result<(), Lost> {
        self.core.message(self.now, sg(message), None)
    }
}

fn sg(bytes: Vec<u8>) -> Sg {
    [IoBuf::from(bytes)].into_iter().collect()
}

/// Applies a change to a request.
fn but(mut request: Request, change: impl FnOnce(&mut Request)) -> Request {
    change(&mut request);
    request
}

fn echo() -> Request {
    Request::new(Command::ECHO, &EchoRequest {}).expect("encoded")
}

/// Builds the server's response to a request; it grants credits.
fn answer<B: Encode>(to: &Header, status: NtStatus, credits: u16, body: &B) -> Vec<u8> {
    let mut out = Vec::new();
    let header = to.response(status, credits);
    MessageBuilder::new(&mut out)
        .push(&Header { flags: HeaderFlags::SERVER_TO_REDIR, ..header }, body)
        .expect("encoded");
    out
}

fn pending(to: &Header, async_id: u64, credits: u16) -> Vec<u8> {
    let mut header = to.response(NtStatus::PENDING, credits);
    header.flags |= HeaderFlags::ASYNC;
    header.async_id = async_id;
    let mut out = Vec::new();
    MessageBuilder::new(&mut out).push(&header, &ErrorResponse::EMPTY).expect("encoded");
    out
}

fn ok(to: &Header, credits: u16) -> Vec<u8> {
    answer(to, NtStatus::SUCCESS, credits, &EchoResponse {})
}

fn key() -> Arc<SigningKey> {
    Arc::new(SigningKey::new(SigningAlgorithm::AesGmac, &[9; 16]))
}

fn channel(signing_required: bool) -> Channel {
    let (signing, sequence) = (key(), Arc::default());
    Channel { session_id: 0x77, signing, signing_required, ciphers: None, encrypt: false, sequence }
}

/// Signs a response as the server does.
fn signed(mut message: Vec<u8>) -> Vec<u8> {
    let header = Header::decode(&message).expect("a header");
    message[16..20].copy_from_slice(&(header.flags | HeaderFlags::SIGNED).bits().to_le_bytes());
    let signature = key().sign(&[&message], header.message_id, true, false).expect("signed");
    message[48..64].copy_from_slice(&signature);
    message
}

/// MS-SMB2 3.2.4.1.2, 3.2.4.1.3, 3.2.4.1.5: ids are assigned in order, one per credit of the charge; the client
/// asks for credits up to the configured number.
#[test]
fn ids_charges_and_credits() {
    let mut b = Bench::with(channel(false));
    let (first, _kept) = b.echo();
    assert_eq!((first.message_id, first.credit_charge, first.session_id), (0, 1, 0x77));
    assert_eq!(u32::from(first.credits), 100);
    assert!(!b.core.can_pay(b.now, 1).expect("no error"));
    b.hear(ok(&first, 100)).expect("fine");
    let (second, _kept) = b.start(echo().charged(3 * 65_536), None);
    assert_eq!((second.message_id, second.credit_charge), (1, 3));
    let (third, _kept) = b.echo();
    assert_eq!(third.message_id, 4);
    // 96 remain, and the request does not ask for more than the maximum.
    assert_eq!(b.core.credits(), 96);
    assert_eq!(second.credits + third.credits, 4);
    assert!(b.core.can_pay(b.now, 96).expect("no error") && !b.core.can_pay(b.now, 97).expect("no error"));
}

/// A request whose charge exceeds the credits asks for more, and finally fails.
#[test]
fn credits_that_never_come() {
    let mut b = Bench::with(channel(false));
    for _ in 0..8 {
        assert!(!b.core.can_pay(b.now, 16).expect("it still hopes"));
        let probe = b.sent();
        assert_eq!((probe.command, probe.credits), (Command::ECHO, 100));
        assert!(b.core.out.is_empty(), "one at a time");
        b.hear(ok(&probe, 1)).expect("fine");
    }
    assert!(matches!(b.core.can_pay(b.now, 16), Err(RequestError::Credits { needed: 16, granted: 1 })));
    // Credits that the server grants later are used.
    assert!(!b.core.can_pay(b.now, 16).expect("it hopes again"));
    let probe = b.sent();
    b.hear(ok(&probe, 40)).expect("fine");
    assert!(b.core.can_pay(b.now, 16).expect("no error"));
}

/// MS-SMB2 3.2.5.1.5: an interim response grants the credits, and restarts the timeout.
#[test]
fn interim_responses() {
    let mut b = Bench::with(channel(false));
    let (h, mut reply) = b.echo();
    b.now += Duration::from_secs(59);
    assert!(!b.core.is_late(b.now));
    b.hear(pending(&h, 5, 10)).expect("fine");
    assert_eq!(b.core.credits(), 10);
    b.now += Duration::from_secs(59);
    assert!(!b.core.is_late(b.now));
    assert!(reply.try_recv().is_err());
    b.hear(ok(&h, 0)).expect("fine");
    assert!(reply.try_recv().expect("answered").is_ok());
    assert!(b.core.is_idle());
    let (_, _kept) = b.echo();
    assert!(b.core.is_late(b.now + Duration::from_secs(60)));
}

/// MS-SMB2 3.2.4.24: CANCEL has the AsyncId and MessageId of its request, and no charge.
#[test]
fn dropped_calls_are_cancelled_where_they_are_pending() {
    let mut b = Bench::with(channel(true));
    let (h, reply) = b.echo();
    b.hear(signed(pending(&h, 42, 5))).expect("fine");
    drop(reply);
    b.core.cancel(1).expect("fine");
    let cancel = b.sent();
    assert_eq!((cancel.command, cancel.async_id, cancel.message_id), (Command::CANCEL, 42, 0));
    assert!(cancel.flags.contains(HeaderFlags::ASYNC | HeaderFlags::SIGNED));
    assert_eq!(b.core.credits(), 5);
    b.hear(signed(answer(&h, NtStatus::CANCELLED, 0, &ErrorResponse::EMPTY))).expect("fine");
    assert!(b.core.is_idle());
    // Dropped before the interim response: cancelled as soon as that arrives.
    let (h, reply) = b.echo();
    drop(reply);
    b.core.cancel(2).expect("fine");
    assert!(b.core.out.is_empty());
    b.hear(signed(pending(&h, 43, 0))).expect("fine");
    assert_eq!(b.sent().async_id, 43);
    // An unknown message id.
    b.core.cancel(99).expect("fine");
    assert!(b.core.out.is_empty());
}

/// MS-SMB2 3.1.4.1: a CANCEL's nonce is derived from its MessageId, so only one may be sent. Interim responses are
/// not authenticated: further ones neither cause a CANCEL nor change the AsyncId.
#[test]
fn a_call_is_cancelled_once() {
    for dropped_first in [false, true] {
        let mut b = Bench::with(channel(true));
        let (h, reply) = b.echo();
        if dropped_first {
            b.core.cancel(1).expect("fine");
        }
        b.hear(pending(&h, 42, 5)).expect("fine");
        b.hear(pending(&h, 43, 0)).expect("fine");
        drop(reply);
        b.core.cancel(1).expect("fine");
        assert_eq!(b.sent().async_id, 42);
        b.hear(pending(&h, 44, 0)).expect("fine");
        b.core.cancel(1).expect("fine");
        assert!(b.core.out.is_empty(), "a second CANCEL under one nonce");
        b.hear(signed(answer(&h, NtStatus::CANCELLED, 0, &ErrorResponse::EMPTY))).expect("fine");
        assert!(b.core.is_idle());
    }
}

/// MS-SMB2 2.2.1.2, 3.2.7.1: every request carries the number of lost channels of the session.
#[test]
fn requests_have_the_channel_sequence() {
    let sequence = Arc::new(AtomicU16::new(0));
    let mut b = Bench::with(Channel { sequence: Arc::clone(&sequence), ..channel(true) });
    let said = |h: Header| h.status.0;
    let (h, _kept) = b.echo();
    assert_eq!(said(h), 0);
    b.hear(signed(pending(&h, 1, 10))).expect("fine");
    sequence.store(0x1234, Ordering::Relaxed);
    let (h, _kept_too) = b.echo();
    assert_eq!(said(h), 0x1234);
    b.core.cancel(1).expect("fine");
    let cancel = b.sent();
    assert_eq!((cancel.command, said(cancel)), (Command::CANCEL, 0x1234));
    // The log-on of a new channel, before that channel is set.
    let mut b = Bench::new();
    let setup = Setup { session_id: 0x77, key: Some(key()), sequence: 7 };
    let (h, _kept) = b.start(but(echo(), |r| r.setup = Some(setup)), None);
    assert_eq!((said(h), h.session_id), (7, 0x77));
}

/// A file that is opened for a caller that has dropped its call is closed.
#[test]
fn orphans_are_closed() {
    let mut b = Bench::with(channel(false));
    let mut request = echo();
    request.message[12..14].copy_from_slice(&Command::CREATE.0.to_le_bytes());
    request.tree_id = 3;
    let (h, reply) = b.start(request, None);
    drop(reply);
    let file_id = FileId { persistent: 1, volatile: 2 };
    b.hear(answer(&h, NtStatus::SUCCESS, 2, &CreateResponse { file_id, ..Default::default() }))
        .expect("fine");
    let close = b.sent();
    assert_eq!((close.command, close.tree_id), (Command::CLOSE, 3));
}

/// MS-SMB2 3.2.5.1.3: signatures are verified, and required signatures must be present.
#[test]
fn signatures() {
    for (required, sign, forge, believed) in [
        (true, true, false, true),
        (true, true, true, false),
        (true, false, false, false),
        (false, false, false, true),
        (false, true, false, true),
        (false, true, true, false),
    ] {
        let mut b = Bench::with(channel(required));
        let (h, mut reply) = b.echo();
        assert_eq!(h.flags.contains(HeaderFlags::SIGNED), required);
        let mut message = ok(&h, 1);
        if sign {
            message = signed(message);
        }
        if forge {
            *message.last_mut().expect("bytes") ^= 1;
        }
        let heard = b.hear(message);
        assert_eq!(heard, if believed { Ok(()) } else { Err(Lost::NotAuthentic) });
        assert_eq!(reply.try_recv().is_ok(), believed);
    }
    // The caller alone requests the signature.
    let mut b = Bench::with(channel(false));
    let (h, _kept) = b.start(but(echo(), |r| r.sign = true), None);
    assert!(h.flags.contains(HeaderFlags::SIGNED));
}

/// Linux's ksmbd signs a READ response without payload together with the transport's length prefix. No other
/// message may be signed so.
#[test]
fn answers_signed_with_their_length() {
    for (command, payload, believed) in
        [(Command::READ, 0, true), (Command::READ, 1000, false), (Command::ECHO, 0, false)]
    {
        let cmac = Arc::new(SigningKey::new(SigningAlgorithm::AesCmac, &[9; 16]));
        let mut b = Bench::with(Channel { signing: cmac, ..channel(true) });
        let mut request = echo();
        request.message[12..14].copy_from_slice(&command.0.to_le_bytes());
        let (h, mut reply) = b.start(request, None);
        let mut message = answer(&h, NtStatus::SUCCESS, 1, &ReadResponse::rdma(4096));
        message.extend(vec![0; payload]);
        message[16] |= 8;
        let framed = [&(message.len() as u32).to_be_bytes()[..], &message].concat();
        let key = aws_lc_rs::cmac::Key::new(aws_lc_rs::cmac::AES_128, &[9; 16]).expect("a key");
        let signature = aws_lc_rs::cmac::sign(&key, &framed).expect("signed");
        message[48..64].copy_from_slice(signature.as_ref());
        assert_eq!(b.hear(message).is_ok(), believed, "{command:?} {payload}");
        assert_eq!(reply.try_recv().is_ok(), believed);
    }
}

fn encrypting() -> (Channel, Sealer, Opener) {
    let (up, down) = ([1; 16], [2; 16]);
    let new = |k: &[u8]| Sealer::new(Cipher::Aes128Gcm, k).expect("a key");
    let open = |k: &[u8]| Opener::new(Cipher::Aes128Gcm, k).expect("a key");
    let ciphers = Some(Arc::new(Ciphers { sealer: new(&up), opener: open(&down) }));
    (Channel { ciphers, encrypt: true, ..channel(true) }, new(&down), open(&up))
}

/// MS-SMB2 3.2.5.1.1: the response to an encrypted request must be encrypted, for the same session.
#[test]
fn encryption() {
    let (channel, sealer, opener) = encrypting();
    let mut b = Bench::with(channel);
    let (reply, mut answered) = oneshot::channel();
    let submitted = SubmittedRequest { request: echo(), reply: Some(reply), ticket: 1 };
    b.core.start(b.now, submitted, None).expect("started");
    let (head, body) = b.core.out.pop_front().expect("a message");
    let mut plain = sg_to_vec(&body);
    opener.open_message(head.as_slice().try_into().expect("a transform header"), &mut plain).expect("ours");
    let h = Header::decode(&plain).expect("a header");
    assert!(!h.flags.contains(HeaderFlags::SIGNED));
    let sealed = |session, bytes: &[u8]| {
        let mut body = bytes.to_vec();
        let head = sealer.seal_message(session, &mut body).expect("sealed");
        [&head[..], &body].concat()
    };
    let other = Err(Lost::Protocol("a message encrypted for another session"));
    assert_eq!(b.hear(sealed(0x78, &ok(&h, 1))), other);
    let mut damaged = sealed(0x77, &ok(&h, 1));
    *damaged.last_mut().expect("bytes") ^= 1;
    assert_eq!(b.hear(damaged), Err(Lost::NotAuthentic));
    assert_eq!(b.hear(ok(&h, 1)), Err(Lost::Protocol("an unencrypted response to an encrypted request")));
    let nested = sealed(0x77, &sealed(0x77, &ok(&h, 1)));
    assert_eq!(b.hear(nested), Err(Lost::Protocol("an encrypted message contains no SMB2 message")));
    assert!(answered.try_recv().is_err());
    b.hear(sealed(0x77, &ok(&h, 1))).expect("fine");
    assert!(answered.try_recv().expect("answered").expect("an answer").encrypted);
}

/// MS-SMB2 3.2.5.1.2: a response must belong to a request.
#[test]
fn responses_without_a_request_end_the_connection() {
    let mut b = Bench::with(channel(false));
    let (h, _kept) = b.echo();
    let protocol = |what| Err(Lost::Protocol(what));
    let other = Header { message_id: 9, ..h };
    assert_eq!(b.hear(ok(&other, 1)), protocol("a response without a request"));
    let other = Header { command: Command::READ, ..h };
    assert_eq!(b.hear(ok(&other, 1)), protocol("a response to another command than the requested one"));
    let mut request = ok(&h, 1);
    request[16] = 0;
    assert_eq!(b.hear(request), protocol("a request from a server"));
    assert_eq!(b.hear(b"\xffSMB and so on".to_vec()), protocol("not an SMB2 message"));
    assert_eq!(b.hear(ok(&h, 1)[..40].to_vec()), protocol("a malformed header"));
    assert_eq!(b.hear(b"\xfdSMB".to_vec()), protocol("an encrypted message in an unencrypted session"));
    // Breaks and notifications belong to no request.
    let unsolicited = Header { message_id: u64::MAX, command: Command::OPLOCK_BREAK, ..h };
    assert_eq!(b.hear(ok(&unsolicited, 0)), Ok(()));
    assert_eq!(b.hear(ok(&h, 1)), Ok(()));
}

/// MS-SMB2 3.2.5.1.9: responses may be chained.
#[test]
fn chains_of_answers() {
    let mut b = Bench::with(channel(false));
    let (first, mut one) = b.echo();
    b.hear(ok(&first, 10)).expect("fine");
    let (h2, mut two) = b.echo();
    let (h3, mut three) = b.echo();
    let mut out = Vec::new();
    smb_wire::chain(&mut out, [&ok(&h2, 1)[..], &ok(&h3, 1)]);
    assert_eq!(compound::split(&out).count(), 2);
    // In two buffers, split inside a message.
    let cut = out.split_off(70);
    let message = [IoBuf::from(out), IoBuf::from(cut)].into_iter().collect();
    b.core.message(b.now, message, None).expect("fine");
    assert!([&mut one, &mut two, &mut three].into_iter().all(|r| r.try_recv().expect("answered").is_ok()));
}

fn exposure(stag: u32) -> Exposure {
    Exposure { stag: Stag(stag), offset: 0x1_0000, length: 8192 }
}

fn read() -> Request {
    let body = ReadRequest { channel_info: &[0; 16], length: 8192, ..ReadRequest::default() };
    Request::new(Command::READ, &body).expect("encoded")
}

fn sink() -> Exposed {
    let arena = Arena::new(1 << 20).expect("memory");
    Exposed::Sink { bufs: arena.try_alloc_sg(8192, Class::Payload).expect("memory"), length: 8192 }
}

/// S3-16: a steering tag is invalidated by its own response, or by the client before the call completes, or by the
/// end of the connection.
#[test]
fn steering_tags() {
    let mut b = Bench::with(channel(false));
    let (h, _) = b.echo();
    b.hear(ok(&h, 10)).expect("fine");
    let body = |n| ReadResponse::rdma(n);

    // The server invalidates the tag with its response.
    let (h, mut reply) = b.start(read(), Some(exposure(7)));
    let invalidated = Some((Stag(7), sink()));
    let message = sg(answer(&h, NtStatus::SUCCESS, 1, &body(8192)));
    b.core.message(b.now, message, invalidated).expect("fine");
    assert!(b.core.stags_to_invalidate.is_empty());
    assert!(reply.try_recv().expect("answered").expect("an answer").sink.is_some());

    // The server does not: the call completes after the client has invalidated the tag.
    let (h, mut reply) = b.start(read(), Some(exposure(8)));
    b.hear(answer(&h, NtStatus::SUCCESS, 1, &body(8192))).expect("fine");
    assert_eq!(b.core.stags_to_invalidate, [Stag(8)]);
    assert!(reply.try_recv().is_err() && !b.core.is_idle());
    b.core.invalidated(b.now, Stag(8), Some(sink())).expect("fine");
    assert!(reply.try_recv().expect("answered").expect("an answer").sink.is_some());
    b.core.stags_to_invalidate.clear();

    // The response to a failed READ frees its tag too.
    let (h, mut reply) = b.start(read(), Some(exposure(9)));
    b.hear(answer(&h, NtStatus::ACCESS_DENIED, 1, &ErrorResponse::EMPTY)).expect("fine");
    assert_eq!(b.core.stags_to_invalidate, [Stag(9)]);
    // A server that invalidates after its response violates the protocol.
    let late = b.core.invalidated(b.now, Stag(9), None);
    let why = Lost::Protocol("it invalidated a steering tag after its response");
    assert_eq!(late, Err(why));
    assert_eq!(reply.try_recv().err(), Some(oneshot::error::TryRecvError::Empty));
    b.core.fail(why);
    assert!(matches!(reply.try_recv(), Ok(Err(RequestError::Lost(w))) if w == why));
    b.core.stags_to_invalidate.clear();

    // The tag of another request.
    let (one, _kept) = b.start(read(), Some(exposure(10)));
    let (_, _kept_too) = b.start(read(), Some(exposure(11)));
    let message = sg(answer(&one, NtStatus::SUCCESS, 1, &body(8192)));
    let wrong = b.core.message(b.now, message, Some((Stag(11), sink())));
    assert_eq!(wrong, Err(Lost::Protocol("it invalidated a steering tag of another request")));
}

/// The descriptor of an exposure is written at its offset in READ and WRITE (MS-SMB2 2.2.19, 2.2.21; MS-SMBD
/// 2.2.3.1).
#[test]
fn descriptors_are_filled_in() {
    let mut b = Bench::with(channel(false));
    let (h, _) = b.echo();
    b.hear(ok(&h, 10)).expect("fine");
    let write = WriteRequest { channel_info: &[0; 16], remaining_bytes: 8192, ..WriteRequest::default() };
    for request in [read(), Request::new(Command::WRITE, &write).expect("encoded")] {
        let submitted = SubmittedRequest { request, reply: None, ticket: 0 };
        b.core.start(b.now, submitted, Some(exposure(0x0506_0708))).expect("started");
        let (head, _) = b.core.out.pop_front().expect("a message");
        let want = [&0x1_0000u64.to_le_bytes()[..], &[8, 7, 6, 5], &8192u32.to_le_bytes()].concat();
        assert_eq!(head[HEADER_LEN + 48..], want[..]);
    }
}

/// The end of the connection completes every caller.
#[test]
fn the_end_fails_all_callers() {
    let mut b = Bench::with(channel(false));
    let (h, _) = b.echo();
    b.hear(ok(&h, 10)).expect("fine");
    let (_, mut waiting) = b.echo();
    let (h, mut parked) = b.start(read(), Some(exposure(1)));
    b.hear(answer(&h, NtStatus::SUCCESS, 1, &ReadResponse::rdma(1))).expect("fine");
    b.core.fail(Lost::ByServer);
    for reply in [&mut waiting, &mut parked] {
        assert!(matches!(reply.try_recv(), Ok(Err(RequestError::Lost(Lost::ByServer)))));
    }
    assert!(b.core.is_idle());
}

proptest! {
    /// No bytes from the server cause a panic; a damaged message does not complete a signed call.
    #[test]
    fn damaged_answers(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        apart in any::<prop::sample::Index>(),
    ) {
        let mut b = Bench::with(channel(true));
        let (h, mut reply) = b.echo();
        let intact = signed(ok(&h, 1));
        let mut bytes = intact.clone();
        for (at, x) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= x;
        }
        if let Some(at) = cut {
            bytes.truncate(at.index(bytes.len()));
        }
        let is_intact = bytes == intact;
        let split = apart.index(bytes.len() + 1);
        let tail = bytes.split_off(split);
        let message: Sg = [bytes, tail].into_iter().filter(|b| !b.is_empty()).map(IoBuf::from).collect();
        let heard = b.core.message(b.now, message, None);
        let answered = matches!(reply.try_recv(), Ok(Ok(_)));
        prop_assert_eq!(answered, is_intact);
        prop_assert!(heard.is_ok() || !is_intact);
    }
}

/// A connection over the simulated fabric, and the peer's end.
async fn pair(env: &Env) -> (Connection, SmbDirect) {
    let arena = Arena::new(16 << 20).expect("memory");
    let (ours, theirs) = sim::pair(sim::Options::new(env.clone()));
    let (ours, theirs) = tokio::join!(
        SmbDirect::connect(Box::new(ours), arena.clone(), env.clone(), SmbDirectOptions::default()),
        SmbDirect::accept(Box::new(theirs), arena.clone(), env.clone(), SmbDirectOptions::default()),
    );
    let transport = Transport::direct(ours.expect("connected"));
    (Connection::start(transport, LIMITS, arena, env.clone(), None), theirs.expect("accepted"))
}

async fn hear(peer: &mut SmbDirect) -> Vec<u8> {
    loop {
        if let Event::Message { data, .. } = peer.event().await.expect("connected") {
            return sg_to_vec(&data);
        }
    }
}

fn rdma_read() -> Request {
    but(read(), |r| r.rdma = Some(Rdma::Read(8192)))
}

fn token(request: &[u8]) -> Stag {
    let info = ReadRequest::decode(request).map(|_| &request[HEADER_LEN + 48..]).expect("a READ");
    Stag(u32::from_le_bytes(info[8..12].try_into().expect("four bytes")))
}

/// A server that does not respond in time loses the connection; every caller is completed.
#[tokio::test(start_paused = true)]
async fn silence() {
    let env = Env::simulated(1);
    let (connection, mut peer) = pair(&env).await;
    let started = env.now();
    let call = connection.call(echo());
    let talk = async { while peer.event().await.is_ok() {} };
    let (answer, ()) = tokio::join!(call, talk);
    assert!(matches!(answer, Err(RequestError::Lost(Lost::TimedOut))));
    assert!(env.now() - started < LIMITS.request_timeout + Duration::from_secs(10));
    assert_eq!(connection.ended(), Some(Lost::TimedOut));
    assert!(matches!(connection.call(echo()).await, Err(RequestError::Lost(Lost::TimedOut))));
}

/// S3-16 on a fabric: a server that invalidates another request's tag loses the connection. The server can access
/// no buffer any more when a caller gets the error.
#[tokio::test(start_paused = true)]
async fn a_tag_of_another_request() {
    let env = Env::simulated(2);
    let (connection, mut peer) = pair(&env).await;
    let warm = connection.call(echo());
    let heard = Header::decode(&hear(&mut peer).await).expect("a header");
    peer.send(sg(ok(&heard, 10)), None).expect("sent");
    let talk = async {
        let (one, two) = (hear(&mut peer).await, hear(&mut peer).await);
        let head = Header::decode(&one).expect("a header");
        let body = ReadResponse::rdma(8192);
        peer.send(sg(answer(&head, NtStatus::SUCCESS, 1, &body)), Some(token(&two))).expect("sent");
        while peer.event().await.is_ok() {}
    };
    let calls = async {
        warm.await.expect("answered");
        tokio::join!(connection.call(rdma_read()), connection.call(rdma_read()))
    };
    let (answers, ()) = tokio::join!(calls, talk);
    let why = Lost::Protocol("it invalidated a steering tag of another request");
    for answer in [answers.0, answers.1] {
        assert!(matches!(answer, Err(RequestError::Lost(w)) if w == why));
    }
    assert_eq!(connection.direct_counters().expect("SMB Direct").memory_regions, 0);
}

/// If a call is dropped while the server may still write, its buffer is kept until the response.
#[tokio::test(start_paused = true)]
async fn a_dropped_read_keeps_its_buffer() {
    let env = Env::simulated(3);
    let (connection, mut peer) = pair(&env).await;
    let call = connection.call(but(rdma_read(), |r| r.charge = 1));
    let request = hear(&mut peer).await;
    drop(call);
    let head = Header::decode(&request).expect("a header");
    let info = &request[HEADER_LEN + 48..];
    let descriptor = BufferDescriptorV1 {
        offset: u64::from_le_bytes(info[..8].try_into().expect("eight bytes")),
        token: token(&request).0,
        length: 8192,
    };
    peer.rdma_write(1, sg(vec![5; 8192]), &[descriptor]).expect("queued");
    peer.send(sg(answer(&head, NtStatus::SUCCESS, 5, &ReadResponse::rdma(8192))), None).expect("sent");
    // The next call proves that the connection still works.
    let next = connection.call(echo());
    let talk = async {
        let head = Header::decode(&hear(&mut peer).await).expect("a header");
        peer.send(sg(ok(&head, 1)), None).expect("sent");
        while peer.event().await.is_ok() {}
    };
    let work = async {
        next.await.expect("answered");
        let counters = connection.direct_counters().expect("SMB Direct");
        assert_eq!((counters.memory_regions, counters.local_invalidations), (0, 1));
        connection.close();
        connection.closed().await;
    };
    tokio::join!(work, talk);
}

/// Calls beyond the queue's limit wait in their callers; all of them are answered in order.
#[tokio::test(start_paused = true)]
async fn a_full_queue() {
    let env = Env::simulated(4);
    let (connection, mut peer) = pair(&env).await;
    let many = super::queue::QUEUE_MAX + 100;
    let mut calls: VecDeque<_> = (0..many).map(|_| connection.call(echo())).collect();
    let talk = async {
        for i in 0..many as u64 {
            let head = Header::decode(&hear(&mut peer).await).expect("a header");
            assert_eq!(head.message_id, i);
            peer.send(sg(ok(&head, 2)), None).expect("sent");
        }
        while peer.event().await.is_ok() {}
    };
    let wait = async {
        while let Some(call) = calls.pop_front() {
            call.await.expect("answered");
        }
        connection.close();
    };
    tokio::join!(talk, wait);
}

/// A connection whose client has a separate arena.
async fn pair_with(env: &Env, arena: &Arena) -> (Connection, SmbDirect) {
    let (ours, theirs) = sim::pair(sim::Options::new(env.clone()));
    let options = SmbDirectOptions::default();
    let there = Arena::new(16 << 20).expect("memory");
    let (ours, theirs) = tokio::join!(
        SmbDirect::connect(Box::new(ours), arena.clone(), env.clone(), options.clone()),
        SmbDirect::accept(Box::new(theirs), there, env.clone(), options),
    );
    let transport = Transport::direct(ours.expect("connected"));
    (Connection::start(transport, LIMITS, arena.clone(), env.clone(), None), theirs.expect("accepted"))
}

/// A READ waits for memory of the client's arena as long as for a response; then only that READ fails. Requests
/// without memory are not delayed. Memory freed in time goes to the READ that has waited longest.
#[tokio::test(start_paused = true)]
async fn a_read_without_memory() {
    let env = Env::simulated(5);
    let arena = Arena::new(4 << 20).expect("memory");
    let (connection, mut peer) = pair_with(&env, &arena).await;
    let talk = async {
        let mut reads = 0;
        while let Ok(event) = peer.event().await {
            let Event::Message { data, .. } = event else { continue };
            let head = Header::decode(&sg_to_vec(&data)).expect("a header");
            let reply = match head.command {
                Command::READ => {
                    reads += 1;
                    answer(&head, NtStatus::ACCESS_DENIED, 10, &ErrorResponse::EMPTY)
                }
                _ => ok(&head, 10),
            };
            peer.send(sg(reply), None).expect("sent");
        }
        reads
    };
    let work = async {
        connection.call(echo()).await.expect("answered");
        let mut held = Vec::new();
        let fill = |held: &mut Vec<_>| {
            while let Some(buf) = arena.try_alloc(4096, Class::Payload) {
                held.push(buf);
            }
        };
        fill(&mut held);
        let started = env.now();
        let (late, soon) = (connection.call(rdma_read()), connection.call(rdma_read()));
        connection.call(echo()).await.expect("it needs no memory");
        assert_eq!(env.now(), started);
        assert!(matches!(late.await, Err(RequestError::NoMemory { needed: 8192 })));
        assert!(matches!(soon.await, Err(RequestError::NoMemory { needed: 8192 })));
        let waited = env.now() - started;
        assert!(waited >= LIMITS.request_timeout && waited < LIMITS.request_timeout * 2, "{waited:?}");
        connection.call(echo()).await.expect("the connection goes on");

        fill(&mut held);
        let dropped = connection.call(rdma_read());
        let reads = [connection.call(rdma_read()), connection.call(rdma_read())];
        connection.call(echo()).await.expect("it needs no memory");
        drop((dropped, held));
        for read in reads {
            assert_eq!(read.await.expect("answered").header.status, NtStatus::ACCESS_DENIED);
        }
        assert_eq!(arena.usage().waiting, 0);
        connection.close();
        connection.closed().await;
    };
    let (reads, ()) = tokio::join!(talk, work);
    assert_eq!(reads, 2);
}
