//! The engine of one connection: messages in, messages out; no I/O and no clock of its own.
//!
//! A transport calls [`Engine::message`] for each arriving message, [`Engine::poll`] in each of its turns, and sends
//! the messages that [`Engine::pop`] returns, in that order. RDMA Reads that WRITEs need come out of
//! [`Engine::pop_pull`] and their results go back through [`Engine::pulled`].
//!
//! Invariants:
//! 1. Each request gets exactly one final reply, or the connection ends; a CANCEL gets none.
//! 2. Every reply grants credits once: the interim response, where one was sent, else the final one.
//! 3. A message that came encrypted is answered encrypted; one that was signed is answered signed.
//! 4. A chain is in exactly one place: being run, parked in `parked`, or turned into an [`OutMessage`].

mod binding;
mod chain;
mod channel;
mod compound;
mod counting;
mod credits;
mod dispatch;
mod encode;
mod error;
mod handlers;
mod incoming;
mod negotiate;
mod notices;
mod outgoing;
mod preauth;
mod receive;
mod sealing;
mod session_setup;
mod verify;

pub(crate) use chain::Outcome;
pub use credits::Credits;
pub(crate) use credits::SharedCredits;
pub use error::ConnectionError;
pub(crate) use notices::LOST;
pub(crate) use outgoing::OutMessage;
pub(crate) use preauth::HashInto;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arena::{PipedPayload, Sg};
use env::{BoxFuture, Moment};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustc_hash::FxHashMap;
use smb_auth::derive::PreauthHash;
use smb_direct::BufferDescriptorV1;
use smb_wire::{Guid, NtStatus};

use crate::durable::SessionEnd;
use crate::inbox::Inbox;
use crate::request::{ConnectionFacts, Reply};
use crate::server::{ConnectionGuard, Progress, Unauthenticated};
use crate::transport::Admitted;
use crate::{Server, TransportKind};
use chain::Chain;
use channel::Channel;
use credits::CreditWindow;
use negotiate::Negotiated;
use sealing::Unsealed;
use session_setup::Setup;

/// One connection (MS-SMB2 3.3.1.7).
pub(crate) struct Engine {
    server: Arc<Server>,
    facts: Arc<ConnectionFacts>,
    negotiated: Option<Negotiated>,
    /// An SMB1 negotiate was answered with the wildcard dialect: an SMB2 NEGOTIATE must follow.
    multi_protocol: bool,
    preauth: PreauthHash,
    credits: CreditWindow,
    channels: FxHashMap<u64, Channel>,
    setups: HashMap<u64, Setup>,
    parked: FxHashMap<u64, Box<Chain>>,
    /// Which slot a parked request is in, by its MessageId.
    parked_ids: FxHashMap<u64, u64>,
    /// See [`Engine::interims_at`]; at the latest when a request has been parked for [`SLOW`].
    interims_at: Option<Moment>,
    running: FuturesUnordered<ParkedFuture>,
    next_slot: u64,
    /// Notices from other threads.
    inbox: Arc<Inbox>,
    sent_notices: notices::SentNotices,
    /// See [`Engine::is_urgent`].
    urgent: bool,
    out: VecDeque<OutMessage>,
    out_bytes: usize,
    /// Replies that wait for memory for their encryption; while there are any, no further request is started.
    unsealed: VecDeque<Unsealed>,
    pulls: VecDeque<Pull>,
    /// Set when the connection must end after the queued messages are sent.
    ending: Option<ConnectionError>,
    /// Present while the connection has no session: counts it as unauthenticated, and has the time since when.
    unauthenticated: Option<Unauthenticated>,
    now: Moment,
    _guard: ConnectionGuard,
}

/// The future of a parked request, with the slot of its chain.
struct ParkedFuture {
    slot: u64,
    future: BoxFuture<Reply>,
}

impl Future for ParkedFuture {
    type Output = (u64, Reply);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(u64, Reply)> {
        let slot = self.slot;
        self.future.as_mut().poll(cx).map(|reply| (slot, reply))
    }
}

/// An RDMA Read to do for a WRITE.
pub(crate) struct Pull {
    pub(crate) slot: u64,
    pub(crate) from: Vec<BufferDescriptorV1>,
    pub(crate) length: u32,
}

/// Payload waiting to be sent, in bytes, above which no further request is started.
const OUT_HIGH: usize = 4 << 20;
/// Messages waiting to be sent above which no further request is started.
const OUT_MESSAGES: usize = 2048;
/// A request that has been parked for so long gets an interim response (MS-SMB2 3.3.4.2): the client then knows that
/// the server works on it, and waits longer.
const SLOW: Duration = Duration::from_millis(100);
/// The most replies to parked requests that are sent together.
const GROUP: usize = 8;
/// The longest message accepted before the first log-on, in bytes. With its framing this is the initial size of a
/// receiver. A NEGOTIATE has some hundred bytes, a message of NTLM some thousand.
pub(crate) const UNAUTHENTICATED_MAX: usize = (16 << 10) - 4;
/// The most bytes of a message in addition to its payload: headers, contexts, padding, transform header.
pub(crate) const OVERHEAD: usize = 64 << 10;

/// The limits of a transport's messages, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct MessageLimits {
    /// The longest payload of a READ or WRITE.
    pub(crate) max_io: u32,
    /// The longest message that the peer accepts.
    pub(crate) send_max: u32,
}

impl MessageLimits {
    /// For a transport whose messages may be longer than any message of the server.
    pub(crate) const NONE: MessageLimits = MessageLimits { max_io: u32::MAX, send_max: u32::MAX };
}

impl Engine {
    /// A new connection.
    pub(crate) fn new(
        admitted: Admitted,
        transport: TransportKind,
        peer: SocketAddr,
        local: SocketAddr,
        limits: MessageLimits,
    ) -> Engine {
        let Admitted { server, id, guard, unauthenticated } = admitted;
        let now = server.env.moment();
        let inbox = Arc::<Inbox>::default();
        unauthenticated.may_be_closed(&inbox);
        let facts = ConnectionFacts {
            id,
            dialect: 0,
            client_guid: Guid::default(),
            client_capabilities: 0,
            client_security_mode: 0,
            server_capabilities: 0,
            server_security_mode: 0,
            max_io: server.config.limits.max_io.min(limits.max_io),
            max_read: server.config.limits.max_io.min(limits.max_io),
            send_max: limits.send_max,
            peer,
            local,
            transport,
            multi_credit: false,
            posix: false,
            pipes: Arc::default(),
        };
        Engine {
            facts: Arc::new(facts),
            negotiated: None,
            multi_protocol: false,
            preauth: PreauthHash::new(),
            credits: CreditWindow::new(server.config.limits.max_credits),
            channels: FxHashMap::default(),
            setups: HashMap::new(),
            parked: FxHashMap::default(),
            parked_ids: FxHashMap::default(),
            interims_at: None,
            running: FuturesUnordered::new(),
            next_slot: 1,
            inbox,
            sent_notices: notices::SentNotices::default(),
            urgent: false,
            out: VecDeque::new(),
            out_bytes: 0,
            unsealed: VecDeque::new(),
            pulls: VecDeque::new(),
            ending: None,
            unauthenticated: Some(unauthenticated),
            now,
            _guard: guard,
            server,
        }
    }

    /// The connection's number, for logs.
    pub(crate) fn id(&self) -> u64 {
        self.facts.id
    }

    /// The longest message that is accepted now, in bytes, without the transport's framing.
    pub(crate) fn message_limit(&self) -> usize {
        if self.channels.is_empty() { UNAUTHENTICATED_MAX } else { self.facts.max_io as usize + OVERHEAD }
    }

    /// Whether the next message should wait, because too much is queued to be sent. The number of parked requests does
    /// not count: they may wait for an acknowledgement, CLOSE or CANCEL, which must still be read.
    pub(crate) fn is_full(&self) -> bool {
        !self.unsealed.is_empty() || self.out_bytes >= OUT_HIGH || self.out.len() >= OUT_MESSAGES
    }

    /// Whether so many requests are parked that no further one may wait for other clients.
    fn is_crowded(&self) -> bool {
        self.parked.len() >= self.server.config.limits.pending_per_connection
    }

    /// When the next interim responses may be due.
    pub(crate) fn interims_at(&self) -> Option<Moment> {
        self.interims_at
    }

    /// Whether anything is still to be answered or sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty() && self.unsealed.is_empty() && self.parked.is_empty()
    }

    /// When the connection of a client that has not logged on is closed; `None` once it has, and while a request is
    /// parked.
    pub(crate) fn authenticate_by(&self) -> Option<Instant> {
        let limit = Duration::from_secs(self.server.config.limits.authenticate_s);
        let since = self.unauthenticated.as_ref()?.since;
        self.parked.is_empty().then(|| since + limit)
    }

    /// Processes one message. Returns the time at which its last request was answered, if the clock was read for its
    /// counters: the transport's next turn may begin with it and saves another reading of the clock.
    ///
    /// # Errors
    /// The connection must end; replies already queued may be sent first.
    pub(crate) fn message(&mut self, now: Moment, message: Sg) -> Result<Option<Moment>, ConnectionError> {
        self.message_piped(now, message, None)
    }

    /// Like [`Engine::message`] for an unsigned, unencrypted WRITE: `message` is its head, its payload is in a pipe.
    pub(crate) fn message_piped(
        &mut self,
        now: Moment,
        message: Sg,
        piped: Option<PipedPayload>,
    ) -> Result<Option<Moment>, ConnectionError> {
        self.now = now;
        // The peer is alive, and has acknowledged the messages sent before.
        self.urgent = false;
        let answered = self.receive(message, piped)?;
        self.ended()?;
        Ok(answered)
    }

    /// Whether the payload of the next unsigned and unencrypted WRITE should be received into a pipe.
    pub(crate) fn prefers_pipes(&self) -> bool {
        self.facts.pipes.load(Ordering::Relaxed)
    }

    /// Polls the parked requests. Ready when one has completed: messages may be queued to be sent.
    ///
    /// # Errors
    /// The errors of [`Engine::message`].
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Result<(), ConnectionError>> {
        self.now = now;
        let mut any = false;
        let mut finished = 0;
        loop {
            // Completed I/O is answered in small groups, so that the client sends its next requests while the rest is encoded.
            if finished == GROUP {
                return Poll::Ready(Ok(()));
            }
            any |= self.seal_waiting(cx);
            let next = self.running.poll_next_unpin(cx);
            // A break that a request has caused is sent before the replies to later requests.
            any |= self.take_notices(cx);
            self.ended()?;
            any |= self.send_interims() | self.send_slow_interims();
            match next {
                Poll::Ready(Some((slot, reply))) => {
                    (any, finished) = (true, finished + 1);
                    self.finished(slot, reply);
                    self.ended()?;
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if any { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// The next message to send.
    pub(crate) fn pop(&mut self) -> Option<OutMessage> {
        let m = self.out.pop_front()?;
        self.out_bytes -= m.cost();
        Some(m)
    }

    /// The next RDMA Read to do.
    pub(crate) fn pop_pull(&mut self) -> Option<Pull> {
        self.pulls.pop_front()
    }

    /// Resumes a WRITE with the payload that was fetched for it.
    ///
    /// # Errors
    /// The errors of [`Engine::message`].
    pub(crate) fn pulled(
        &mut self,
        now: Moment,
        slot: u64,
        data: Result<Sg, NtStatus>,
    ) -> Result<(), ConnectionError> {
        self.now = now;
        self.resume_pull(slot, data);
        self.ended()
    }

    /// Releases the state of the connection: sessions without another channel end, and their opens are closed or
    /// disconnected (MS-SMB2 3.3.7.1). Requests still running are cancelled where that is possible, awaited, and not
    /// answered.
    pub(crate) async fn end(mut self) {
        let unsent = self.inbox.close();
        self.server.clients.remove(self.facts.client_guid, &self.inbox);
        let id = self.facts.id;
        let mut ending = Vec::new();
        for (_, channel) in self.channels.drain() {
            let mut channels = channel.session.channels.lock();
            channels.retain(|c| c.connection != id);
            let last = channels.is_empty() && !channel.session.is_ended();
            drop(channels);
            if last {
                ending.push(channel.session);
            }
        }
        for notice in self.sent_notices.unacknowledged(self.server.env.moment()).chain(unsent) {
            self.server.resend_break(self.facts.client_guid, notice);
        }
        for chain in self.parked.values() {
            let Some(running) = &chain.running else { continue };
            // The session that a related request inherited counts, not the one in its header.
            let over = ending.iter().any(|s| s.id == chain.related.session_id);
            if over { running.cancel.cancel() } else { running.cancel.abandon() }
        }
        // A WRITE that still waits for its RDMA Read is dropped: a replay on another channel need not wait for it.
        self.parked.retain(|_, chain| chain.running.as_ref().is_some_and(|r| r.then.is_none()));
        // The backend's operations cannot be aborted: wait until all are complete.
        loop {
            match AssertUnwindSafe(self.running.next()).catch_unwind().await {
                Ok(Some((slot, _))) => drop(self.parked.remove(&slot)),
                Err(_) => {}
                Ok(None) => break,
            }
        }
        self.parked.clear();
        for session in ending {
            self.server.remove_session(session.id);
            self.server.end_session(&session, SessionEnd::Disconnected).await;
        }
    }

    /// A session of the connection has ended: after its last one the connection counts as unauthenticated again.
    fn session_removed(&mut self) {
        if self.channels.is_empty() {
            self.unauthenticated =
                self.server.enter_unauthenticated(self.facts.peer, self.server.env.instant(self.now));
            if let Some(unauthenticated) = &self.unauthenticated {
                unauthenticated.may_be_closed(&self.inbox);
            }
        }
    }

    /// Records the progress of an unauthenticated connection.
    fn reached(&mut self, progress: Progress) {
        if let Some(unauthenticated) = &mut self.unauthenticated {
            unauthenticated.reached(progress);
        }
    }

    fn ended(&mut self) -> Result<(), ConnectionError> {
        self.ending.take().map_or(Ok(()), Err)
    }

    fn push_out(&mut self, mut message: OutMessage) {
        let then = std::mem::take(&mut message.then);
        self.out_bytes += message.cost();
        self.out.push_back(message);
        for notice in then {
            self.deliver(notice);
        }
    }
}
