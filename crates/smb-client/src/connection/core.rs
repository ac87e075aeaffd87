//! The state of a connection, without I/O: message ids, credits and waiting callers. This file builds requests;
//! `answers` processes responses.
//!
//! Invariants:
//! 1. A message id is used once, and ids are assigned in order (MS-SMB2 3.2.4.1.3).
//! 2. `credits` never goes below zero: a request is sent only if the credits cover its charge.
//! 3. `credits_requested` is the sum of the credits that the requests in flight asked for.
//! 4. A request ends once: when its response has arrived and its steering tag is invalidated, or with the
//!    connection.

mod responses;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arena::{Arena, Sg};
use rdma::{Exposed, Exposure, Stag};
use smb_wire::header::{
    OFFSET_CREDIT_CHARGE, OFFSET_CREDITS, OFFSET_MESSAGE_ID, OFFSET_SESSION_ID, OFFSET_STATUS, OFFSET_TREE_ID,
};
use smb_wire::msg::{CancelRequest, EchoRequest, ReadResponse};
use smb_wire::{Command, HEADER_LEN, Header, HeaderFlags};

use super::counting::{Counted, Counting, Tallies};
use super::protect::{self, Channel};
use super::queue::{Reply, Setting, SubmittedRequest};
use super::{Parts, Request, Response};
use crate::{Lost, RequestError};
pub(super) use responses::close_orphan;

/// The negotiated values that a connection's traffic needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NegotiatedParameters {
    /// Whether requests carry a credit charge (MS-SMB2 3.2.4.1.5).
    pub(crate) multi_credit: bool,
    /// The longest message that the server may send, in bytes.
    pub(crate) message_limit: usize,
}

/// Limits set by the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of credits to hold.
    pub(crate) credits: u16,
    /// Maximum time for a response of the server.
    pub(crate) request_timeout: Duration,
}

pub(super) struct Core {
    arena: Arena,
    limits: Limits,
    parameters: NegotiatedParameters,
    channel: Option<Arc<Channel>>,
    outstanding: HashMap<u64, Box<OutstandingRequest>, BuildHasherDefault<IdHasher>>,
    /// Responses that wait until this side has invalidated their steering tag, by tag.
    parked: HashMap<u32, (Box<OutstandingRequest>, Response)>,
    next_id: u64,
    credits: u32,
    credits_requested: u32,
    /// Number of consecutive requests that were sent only to get credits.
    probes: u8,
    tallies: Tallies,
    /// Steering tags for this side to invalidate.
    pub(super) stags_to_invalidate: Vec<Stag>,
    /// Messages to send: head and payload.
    pub(super) out: VecDeque<(Vec<u8>, Sg)>,
}

struct OutstandingRequest {
    reply: Option<Reply>,
    ticket: u64,
    command: Command,
    credits_requested: u16,
    /// Set by the first interim response. Interim responses are not authenticated, so a later one does not change
    /// it.
    async_id: Option<u64>,
    cancelled: bool,
    /// Whether its CANCEL has been sent.
    cancel_sent: bool,
    deadline: Instant,
    encrypted: bool,
    setup: bool,
    tree_id: u32,
    request: Option<Vec<u8>>,
    stag: Option<Stag>,
    /// The exposed buffers, set once they are invalidated.
    exposed: Option<Exposed>,
    counting: Option<Counting>,
}

/// A cheap hasher: message ids are sequential, so one multiplication spreads them well enough.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(8) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Maximum number of consecutive requests that are sent only to get credits.
const PROBES_MAX: u8 = 8;
/// The longest response before negotiation, in bytes.
const SMALL_MESSAGE: usize = 128 << 10;
/// Maximum number of credits that one request asks for.
const CREDIT_REQUEST_MAX: u32 = 8192;
/// Offset of the buffer descriptor in a READ and in a WRITE: after the header and the fixed part.
const DESCRIPTOR_AT: usize = HEADER_LEN + 48;

impl Core {
    pub(super) fn new(limits: Limits, arena: Arena) -> Core {
        Core {
            arena,
            limits,
            parameters: NegotiatedParameters { multi_credit: false, message_limit: SMALL_MESSAGE },
            channel: None,
            outstanding: HashMap::default(),
            parked: HashMap::new(),
            next_id: 0,
            // MS-SMB2 3.2.4.1.2: a connection starts with one credit.
            credits: 1,
            credits_requested: 0,
            probes: 0,
            tallies: Tallies::default(),
            stags_to_invalidate: Vec::new(),
            out: VecDeque::new(),
        }
    }

    pub(super) fn apply(&mut self, setting: Setting) {
        match setting {
            Setting::Parameters(a) => self.parameters = a,
            Setting::Channel(c) => self.channel = Some(c),
        }
    }

    /// The longest message that the server may send at present, in bytes.
    pub(super) fn message_limit(&self) -> usize {
        self.parameters.message_limit
    }

    /// Credits held plus credits requested.
    pub(super) fn credits_due(&self) -> u32 {
        self.credits.saturating_add(self.credits_requested)
    }

    pub(super) fn credits(&self) -> u32 {
        self.credits
    }

    /// Whether no request is in flight and no response waits for its steering tag.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && self.parked.is_empty()
    }

    /// Whether the credits cover a charge now. If they do not, and no request in flight could bring more, sends an
    /// ECHO to ask for credits. Returns an error after too many of these in vain.
    pub(super) fn can_pay(&mut self, now: Instant, charge: u16) -> Result<bool, RequestError> {
        let charge = self.charge(charge);
        if self.credits >= charge {
            self.probes = 0;
            return Ok(true);
        }
        if self.outstanding.is_empty() {
            if self.probes >= PROBES_MAX || self.credits == 0 {
                self.probes = 0;
                return Err(RequestError::Credits { needed: charge, granted: self.credits });
            }
            self.probes += 1;
            let echo = Request::new(Command::ECHO, &EchoRequest {})?;
            let submitted = SubmittedRequest { request: echo, reply: None, ticket: 0 };
            if let Err(error) = self.start(now, submitted, None) {
                return Err(RequestError::Lost(error));
            }
        }
        Ok(false)
    }

    /// Counts that a request on this share starts to wait for credits.
    pub(super) fn credit_stall(&mut self, share: &Counted) {
        self.tallies.of(share).credit_stall();
    }

    fn charge(&self, charge: u16) -> u32 {
        if self.parameters.multi_credit { u32::from(charge.max(1)) } else { 1 }
    }

    /// Assigns a message id to a request and puts it into `out`. The caller has checked [`Core::can_pay`], and
    /// exposed the request's buffers.
    pub(super) fn start(
        &mut self,
        now: Instant,
        submitted: SubmittedRequest,
        exposure: Option<Exposure>,
    ) -> Result<(), Lost> {
        let SubmittedRequest { mut request, reply, ticket } = submitted;
        let charge = self.charge(request.charge);
        assert!(self.credits >= charge, "the caller has looked");
        let message_id = self.next_id;
        self.next_id += u64::from(charge);
        self.credits -= charge;
        let wish = u32::from(self.limits.credits).saturating_sub(self.credits_due());
        // At least one: the response to a request that asks for none may grant none.
        let credits_requested = wish.clamp(1, CREDIT_REQUEST_MAX) as u16;
        self.credits_requested += u32::from(credits_requested);

        let Parts { message: head, tree_id, setup, payload, encrypt, sign, .. } = &mut *request;
        let command = Command(u16::from_le_bytes([head[12], head[13]]));
        put(
            head,
            OFFSET_CREDIT_CHARGE,
            &if self.parameters.multi_credit { charge as u16 } else { 0 }.to_le_bytes(),
        );
        put(head, OFFSET_CREDITS, &credits_requested.to_le_bytes());
        put(head, OFFSET_MESSAGE_ID, &message_id.to_le_bytes());
        put(head, OFFSET_TREE_ID, &tree_id.to_le_bytes());
        if let Some(e) = exposure {
            // MS-SMBD 2.2.3.1: offset, token, length.
            put(head, DESCRIPTOR_AT, &e.offset.to_le_bytes());
            put(head, DESCRIPTOR_AT + 8, &e.stag.0.to_le_bytes());
            put(head, DESCRIPTOR_AT + 12, &e.length.to_le_bytes());
        }
        let mut encrypted = false;
        match (&*setup, &self.channel) {
            (Some(setup), _) => {
                put(head, OFFSET_SESSION_ID, &setup.session_id.to_le_bytes());
                put(head, OFFSET_STATUS, &setup.sequence.to_le_bytes());
                if let Some(key) = &setup.key {
                    protect::sign(key, head, payload, message_id, false);
                }
            }
            (None, Some(channel)) => {
                put(head, OFFSET_SESSION_ID, &channel.session_id.to_le_bytes());
                put(head, OFFSET_STATUS, &channel.sequence.load(Ordering::Relaxed).to_le_bytes());
                encrypted = channel.encrypt || *encrypt;
                // MS-SMB2 3.2.4.1.1: encrypted messages are not signed.
                if !encrypted && (channel.signing_required || *sign) {
                    protect::sign(&channel.signing, head, payload, message_id, false);
                }
            }
            (None, None) => {}
        }
        let sent = request.message.len() + arena::sg_len(&request.payload);
        let counting = request.counted.take().map(|share| {
            let tally = Arc::clone(self.tallies.of(&share));
            Counting::begin(tally, command, now, sent, exposure.map(|e| e.length))
        });
        let entry = Box::new(OutstandingRequest {
            reply,
            ticket,
            command,
            credits_requested,
            async_id: None,
            cancelled: false,
            cancel_sent: false,
            deadline: now + self.limits.request_timeout,
            encrypted,
            setup: request.setup.is_some(),
            tree_id: request.tree_id,
            request: request.setup.is_some().then(|| request.message.clone()),
            stag: exposure.map(|e| e.stag),
            exposed: None,
            counting,
        });
        self.outstanding.insert(message_id, entry);
        let (head, payload) = (std::mem::take(&mut request.message), std::mem::take(&mut request.payload));
        self.emit(head, payload, encrypted)
    }

    fn emit(&mut self, head: Vec<u8>, payload: Sg, encrypted: bool) -> Result<(), Lost> {
        let message = match (encrypted, &self.channel) {
            (true, Some(channel)) => {
                let ciphers = channel.ciphers.as_ref().ok_or(Lost::Protocol("no cipher was negotiated"))?;
                protect::seal(channel, ciphers, &self.arena, &head, &payload)?
            }
            _ => (head, payload),
        };
        self.out.push_back(message);
        Ok(())
    }

    /// The caller dropped its call: cancels the request at the server if it is pending (MS-SMB2 3.2.4.24).
    pub(super) fn cancel(&mut self, ticket: u64) -> Result<(), Lost> {
        let Some((id, entry)) = self.outstanding.iter_mut().find(|(_, f)| f.ticket == ticket) else {
            return Ok(());
        };
        entry.cancelled = true;
        let id = *id;
        self.send_cancel(id)
    }

    /// Sends the CANCEL of a request that is cancelled and pending, but only once. A CANCEL has the MessageId of its
    /// request, so with AES-GMAC two of them would be signed under one nonce (MS-SMB2 3.1.4.1). Without an interim
    /// response the final response is already on its way.
    fn send_cancel(&mut self, message_id: u64) -> Result<(), Lost> {
        let Some(entry) = self.outstanding.get_mut(&message_id) else { return Ok(()) };
        let (Some(async_id), true, false) = (entry.async_id, entry.cancelled, entry.cancel_sent) else {
            return Ok(());
        };
        entry.cancel_sent = true;
        let encrypted = entry.encrypted;
        let mut head = Vec::with_capacity(HEADER_LEN + 4);
        let header = Header {
            command: Command::CANCEL,
            flags: HeaderFlags::ASYNC,
            message_id,
            async_id,
            session_id: self.channel.as_ref().map_or(0, |c| c.session_id),
            ..Header::default()
        };
        smb_wire::MessageBuilder::new(&mut head)
            .push(&header, &CancelRequest {})
            .expect("a CANCEL has no variable part");
        if let Some(channel) = &self.channel {
            put(&mut head, OFFSET_STATUS, &channel.sequence.load(Ordering::Relaxed).to_le_bytes());
        }
        if let Some(channel) = self.channel.as_ref().filter(|c| c.signing_required && !encrypted) {
            protect::sign(&channel.signing, &mut head, &Sg::new(), message_id, true);
        }
        self.emit(head, Sg::new(), encrypted)
    }

    /// Sends a request of this client's own, if there is a credit for it.
    fn send_own(&mut self, now: Instant, request: Request) -> Result<(), Lost> {
        if self.credits == 0 {
            return Ok(()); // the file stays open until the session ends
        }
        self.start(now, SubmittedRequest { request, reply: None, ticket: 0 }, None)
    }

    /// Whether a request has waited too long for its response.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.outstanding.values().any(|f| f.deadline <= now)
    }

    /// The connection has ended: completes all waiting callers with an error.
    pub(super) fn fail(&mut self, why: Lost) {
        let parked = self.parked.drain().map(|(_, (entry, _))| entry);
        for entry in self.outstanding.drain().map(|(_, f)| f).chain(parked) {
            if let Some(counting) = entry.counting {
                counting.abandon();
            }
            if let Some(reply) = entry.reply {
                let _ = reply.send(Err(RequestError::Lost(why)));
            }
        }
    }
}

fn put(message: &mut [u8], at: usize, bytes: &[u8]) {
    message[at..at + bytes.len()].copy_from_slice(bytes);
}

const _: () = assert!(ReadResponse::HEAD_LEN < DESCRIPTOR_AT);
