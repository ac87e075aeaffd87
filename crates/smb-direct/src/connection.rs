//! A connection, as the server and the client use it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use arena::{Arena, IoBufMut, Sg, SgMut, sg_len};
use counters::{Block, transfers as t};
use env::{BoxFuture, Env};
use rdma::{
    Completion, Exposed, Exposure, QueuePair, QueuePairCaps, RdmaError, Remote, Rights, Stag, WcError, Wr,
    WrId,
};

use crate::assembly::Assembly;
use crate::progress::Completed;
use crate::protocol::{Protocol, Time};
use crate::transfers::{Transfers, cut_read, cut_write, total};
use crate::{BufferDescriptorV1, Counters, Limits, SmbDirectError, SmbDirectOptions};

/// One SMB Direct connection over a queue pair.
///
/// The methods only queue requests; [`SmbDirect::poll_event`] does all work. A connection is used from one task, or
/// behind a lock: a request wakes the task that waits in [`SmbDirect::poll_event`].
///
/// **Order.** Messages arrive in the order of the calls to [`SmbDirect::send`]. A message sent after
/// [`SmbDirect::rdma_write`] arrives after the written data is placed: both use one queue pair, in order (RFC 5041
/// 5.3, InfiniBand 9.5). So a server queues the write and then its response without waiting for the write's
/// completion. RDMA Reads are not ordered with messages.
pub struct SmbDirect {
    pub(crate) qp: Option<Box<dyn QueuePair>>,
    pub(crate) caps: QueuePairCaps,
    pub(crate) arena: Arena,
    pub(crate) env: Env,
    pub(crate) options: SmbDirectOptions,
    started: Instant,
    pub(crate) protocol: Protocol,
    pub(crate) assembly: Assembly,
    /// Last argument of [`SmbDirect::set_credit_target`].
    pub(crate) credit_target: u16,

    /// Queued upper-layer messages; in the same order as the protocol's queue.
    pub(crate) messages: VecDeque<Message>,
    /// RDMA Writes and invalidations to post, in order.
    pub(crate) work: VecDeque<(WrId, Wr)>,
    /// RDMA Reads to post, in order, limited by ORD.
    pub(crate) reads: VecDeque<(WrId, IoBufMut, Remote)>,
    pub(crate) reads_in_flight: usize,
    /// Work requests in the send queue: posted but not completed.
    pub(crate) send_queue_used: usize,
    pub(crate) send_queue_stalled: bool,
    pub(crate) receive_stalled: bool,
    pub(crate) writing: Transfers,
    pub(crate) reading: Transfers,
    pub(crate) done: Completed,

    /// Free receive buffers.
    pub(crate) free_receive_buffers: Vec<IoBufMut>,
    /// A pending allocation for a receive that the connection needs for any progress.
    pub(crate) memory: Option<BoxFuture<SgMut>>,
    pub(crate) timer: Option<(Time, BoxFuture<()>)>,
    pub(crate) waker: Option<Waker>,

    pub(crate) events: VecDeque<Event>,
    pub(crate) completions: Vec<Completion>,
    /// The scratch buffer for encoding message headers.
    pub(crate) scratch: Vec<u8>,
    /// Why the connection ended, until that is reported.
    pub(crate) ending: Option<SmbDirectError>,
    pub(crate) phase: Phase,
    /// The queue pair counts its work requests in it; readers of the counters share it.
    pub(crate) counters: Arc<Block>,
    registration_stalled: bool,
    addresses: Option<(SocketAddr, SocketAddr)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Closed by this side; the queue pair must finish by this time.
    Closing(Time),
    /// The queue pair has finished; the remaining events and then the reason must still be reported.
    Finished,
}

/// A queued upper-layer message.
pub(crate) struct Message {
    pub(crate) data: Sg,
    /// The peer's steering tag to invalidate with the last fragment.
    pub(crate) invalidate: Option<Stag>,
}

/// An event for the caller that owns the connection.
#[derive(Debug)]
pub enum Event {
    /// A complete message.
    Message {
        /// The message's bytes; mostly slices of receive buffers.
        data: Sg,
        /// Our steering tag that the peer invalidated with the message, and the buffer that was exposed under it.
        /// The owner checks that the tag belongs to this message (S3-16).
        invalidated: Option<(Stag, Exposed)>,
    },
    /// An RDMA transfer is complete.
    RdmaDone {
        /// The id passed to [`SmbDirect::rdma_write`] or [`SmbDirect::rdma_read`].
        id: u64,
        /// After a read: the data, in order, in buffers that may be partly filled. After a write: `None`. An error
        /// means that the connection ended first; [`SmbDirect::poll_event`] then returns the reason as its error.
        result: Result<Option<SgMut>, WcError>,
    },
    /// [`SmbDirect::invalidate`] completed: the peer can no longer access the buffer.
    Invalidated {
        /// The steering tag.
        stag: Stag,
        /// The buffer that was exposed under it.
        result: Result<Exposed, WcError>,
    },
}

impl SmbDirect {
    /// Establishes the passive side, which listened: waits for the peer's negotiate request and answers it (MS-SMBD
    /// 3.1.5.6).
    ///
    /// # Errors
    /// The reason why the connection ended before it was established.
    pub async fn accept(
        qp: Box<dyn QueuePair>,
        arena: Arena,
        env: Env,
        options: SmbDirectOptions,
    ) -> Result<SmbDirect, SmbDirectError> {
        SmbDirect::new(qp, arena, env, options, Protocol::passive).established().await
    }

    /// Establishes the active side, which connected: sends the negotiate request and waits for the response
    /// (MS-SMBD 3.1.4.1, 3.1.5.7).
    ///
    /// # Errors
    /// The reason why the connection ended before it was established.
    pub async fn connect(
        qp: Box<dyn QueuePair>,
        arena: Arena,
        env: Env,
        options: SmbDirectOptions,
    ) -> Result<SmbDirect, SmbDirectError> {
        SmbDirect::new(qp, arena, env, options, Protocol::active).established().await
    }

    fn new(
        qp: Box<dyn QueuePair>,
        arena: Arena,
        env: Env,
        mut options: SmbDirectOptions,
        protocol: impl FnOnce(Time, SmbDirectOptions) -> Protocol,
    ) -> SmbDirect {
        // Two receives beyond the target may be posted, for the last credit's grant.
        let receives = u16::try_from(qp.caps().max_wr.saturating_sub(2)).unwrap_or(u16::MAX);
        options.receive_credit_max = options.receive_credit_max.min(receives).max(1);
        let protocol = protocol(Time::ZERO, options.clone());
        SmbDirect {
            caps: qp.caps(),
            counters: qp.counters().unwrap_or_default(),
            registration_stalled: false,
            addresses: qp.addresses(),
            qp: Some(qp),
            arena,
            started: env.now(),
            env,
            protocol,
            assembly: Assembly::default(),
            credit_target: options.receive_credit_max,
            messages: VecDeque::new(),
            work: VecDeque::new(),
            reads: VecDeque::new(),
            reads_in_flight: 0,
            send_queue_used: 0,
            send_queue_stalled: false,
            receive_stalled: false,
            writing: Transfers::new(options.max_queued_transfers),
            reading: Transfers::new(options.max_queued_transfers),
            done: Completed::default(),
            free_receive_buffers: Vec::new(),
            memory: None,
            timer: None,
            waker: None,
            events: VecDeque::new(),
            completions: Vec::new(),
            scratch: Vec::new(),
            ending: None,
            phase: Phase::Open,
            options,
        }
    }

    async fn established(mut self) -> Result<SmbDirect, SmbDirectError> {
        poll_fn(|cx| match self.drive(cx) {
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            _ if self.protocol.is_established() => Poll::Ready(Ok(())),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        })
        .await?;
        Ok(self)
    }

    /// Makes progress and returns the next event. After the connection has ended, it returns the events of all
    /// unfinished transfers, then the reason as an error, and then [`SmbDirectError::Ended`] on every further call.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, SmbDirectError>> {
        if self.events.is_empty() {
            match self.drive(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Ready(Ok(())) => {}
            }
        }
        match self.events.pop_front() {
            Some(event) => Poll::Ready(Ok(event)),
            None => Poll::Pending,
        }
    }

    /// Waits for the next event: the `async` form of [`SmbDirect::poll_event`]. The future may be dropped without
    /// losing an event.
    ///
    /// # Errors
    /// The errors of [`SmbDirect::poll_event`].
    pub async fn event(&mut self) -> Result<Event, SmbDirectError> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Queues a message of up to [`Limits::max_fragmented_send_size`] bytes, to be sent in fragments as the peer's
    /// credits allow. `invalidate` is a steering tag of the peer that the message's arrival invalidates. The last
    /// fragment carries it, so that the tag is valid until the whole message has arrived. (MS-SMBD 3.1.5.1 ties the
    /// token to the message but does not say which fragment carries it.)
    ///
    /// # Errors
    /// [`SmbDirectError::MessageLength`], [`SmbDirectError::QueueFull`], [`SmbDirectError::Ended`]; the message is
    /// dropped.
    pub fn send(&mut self, message: Sg, invalidate: Option<Stag>) -> Result<(), SmbDirectError> {
        self.check_open()?;
        let length = sg_len(&message);
        self.protocol.queue_message(length)?;
        self.done.message_bytes += length;
        self.messages.push_back(Message { data: message, invalidate });
        self.wake();
        Ok(())
    }

    /// Writes `src` to the peer's memory that the descriptors name, in order. One [`Event::RdmaDone`] with `id`
    /// reports the completion. A message sent later arrives after the data.
    ///
    /// # Errors
    /// [`SmbDirectError::TransferLength`] if `src` is longer than the descriptors or than
    /// [`Limits::max_read_write_size`], [`SmbDirectError::TooManyDescriptors`], [`SmbDirectError::QueueFull`],
    /// [`SmbDirectError::Ended`].
    pub fn rdma_write(&mut self, id: u64, src: Sg, to: &[BufferDescriptorV1]) -> Result<(), SmbDirectError> {
        self.check_open()?;
        let (limit, length) = (total(to, u32::MAX)?, sg_len(&src) as u64);
        let limit = limit.min(u64::from(self.protocol.limits().max_read_write_size));
        if length > limit {
            return Err(SmbDirectError::TransferLength { length, limit });
        }
        if self.writing.is_full() {
            return Err(SmbDirectError::QueueFull("max_queued_transfers"));
        }
        if length == 0 {
            self.events.push_back(Event::RdmaDone { id, result: Ok(None) });
            self.wake();
            return Ok(());
        }
        let pieces = cut_write(&src, to, self.caps.max_sge);
        let slot = self.writing.start(id, pieces.len());
        for (src, to) in pieces {
            self.queue_work(wr_id(Kind::Write, slot, 0), Wr::Write { src, to });
        }
        Ok(())
    }

    /// Reads the peer's memory that the descriptors name, in order, into `sinks`, whose capacity is at least the
    /// total. One [`Event::RdmaDone`] with `id` and the data reports the completion. At most [`QueuePairCaps::ord`]
    /// RDMA Reads are in flight. Further reads wait in a separate queue and do not delay messages.
    ///
    /// A sink receives data of one descriptor only. If descriptors end inside sinks, additional buffers are
    /// allocated from the arena. [`crate::sinks`] returns sinks that need no additional buffers.
    ///
    /// # Errors
    /// [`SmbDirectError::TransferLength`], [`SmbDirectError::TooManyDescriptors`], [`SmbDirectError::NoMemory`],
    /// [`SmbDirectError::QueueFull`], [`SmbDirectError::Rdma`] if the connection allows no reads,
    /// [`SmbDirectError::Ended`]; the sinks are dropped.
    pub fn rdma_read(
        &mut self,
        id: u64,
        from: &[BufferDescriptorV1],
        sinks: SgMut,
    ) -> Result<(), SmbDirectError> {
        self.check_open()?;
        let length = total(from, self.protocol.limits().max_read_write_size)?;
        let limit: u64 = sinks.iter().map(|s| s.capacity() as u64).sum();
        if length > limit {
            return Err(SmbDirectError::TransferLength { length, limit });
        }
        if self.reading.is_full() {
            return Err(SmbDirectError::QueueFull("max_queued_transfers"));
        }
        if length == 0 {
            self.events.push_back(Event::RdmaDone { id, result: Ok(Some(SgMut::new())) });
            self.wake();
            return Ok(());
        }
        if self.caps.ord == 0 {
            return Err(RdmaError::NoReads.into());
        }
        let pieces = cut_read(from, sinks, &self.arena)?;
        let slot = self.reading.start(id, pieces.len());
        if self.reads_in_flight + self.reads.len() + pieces.len() > self.caps.ord as usize {
            self.counters.add(t::STALLS_RDMA_READ, 1);
        }
        for (i, (sink, remote)) in pieces.into_iter().enumerate() {
            self.reads.push_back((wr_id(Kind::Read, slot, i), sink, remote));
        }
        self.wake();
        Ok(())
    }

    /// Gives the peer access to `what` until a message of the peer or [`SmbDirect::invalidate`] invalidates it.
    ///
    /// # Errors
    /// [`SmbDirectError::Rdma`], [`SmbDirectError::Ended`]; `what` is dropped.
    pub fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, SmbDirectError> {
        self.check_open()?;
        let qp = self.qp.as_mut().ok_or(SmbDirectError::Ended)?;
        match qp.expose(what, rights) {
            Ok(exposure) => {
                self.counters.add(t::REGISTRATIONS, 1);
                self.counters.set(t::MEMORY_REGIONS, qp.exposed() as u64);
                self.registration_stalled = false;
                Ok(exposure)
            }
            Err(e) => {
                if e == RdmaError::TooManyRegions {
                    self.note_registration_stall();
                }
                Err(e.into())
            }
        }
    }

    /// Ends an exposure of this side. [`Event::Invalidated`] returns the buffer. It returns the error
    /// [`WcError::UnknownStag`] if an undelivered message of the peer has already invalidated the tag.
    ///
    /// A peer that may invalidate the tag can do so at any time before it answers. An invalidation of a tag that is
    /// no longer valid ends the connection. So call this only after the answer, or not at all.
    ///
    /// # Errors
    /// [`SmbDirectError::Ended`].
    pub fn invalidate(&mut self, stag: Stag) -> Result<(), SmbDirectError> {
        self.check_open()?;
        self.queue_work(wr_id(Kind::Invalidate, stag.0, 0), Wr::Invalidate(stag));
        Ok(())
    }

    /// The negotiated limits.
    pub fn limits(&self) -> Limits {
        self.protocol.limits()
    }

    /// The capabilities of the queue pair.
    pub fn caps(&self) -> QueuePairCaps {
        self.caps
    }

    /// The counters of the connection so far.
    pub fn counters(&self) -> Counters {
        Counters::of(&self.counters)
    }

    /// The counter block of the connection and its queue pair: the cells of [`counters::transfers`].
    pub fn tally(&self) -> &Arc<Block> {
        &self.counters
    }

    /// The local and the remote address; `None` if the fabric has no addresses.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.addresses
    }

    /// Counts a stall: the owner waits because the limit of exposed buffers, its own or the queue pair's, is
    /// reached. Counted only once until a buffer is exposed again.
    pub fn note_registration_stall(&mut self) {
        if !std::mem::replace(&mut self.registration_stalled, true) {
            self.counters.add(t::STALLS_REGISTRATION, 1);
        }
    }

    /// Number of queued messages that are not completely posted to the fabric.
    pub fn queued(&self) -> usize {
        self.messages.len()
    }

    /// Sets the maximum number of posted receives, between 1 and [`SmbDirectOptions::receive_credit_max`]. The peer
    /// keeps credits already granted until it uses them. Independently of this, the number shrinks while the arena
    /// is more than a quarter full.
    pub fn set_credit_target(&mut self, target: u16) {
        self.credit_target = target.clamp(1, self.options.receive_credit_max);
        self.protocol.set_credit_target(self.credit_target);
    }

    /// Closes the connection: sends the messages that the peer's credits allow and drops the others. The caller
    /// must then call [`SmbDirect::poll_event`] until it returns the reason, [`rdma::Down::Closed`].
    pub fn close(&mut self) {
        if self.phase == Phase::Open {
            self.pump();
            self.shut();
            self.wake();
        }
    }

    /// Time since the connection was created.
    pub(crate) fn now(&self) -> Time {
        self.env.now() - self.started
    }

    /// The instant of a [`Time`].
    pub(crate) fn instant(&self, at: Time) -> Instant {
        self.started + at
    }

    fn check_open(&self) -> Result<(), SmbDirectError> {
        if self.phase == Phase::Open { Ok(()) } else { Err(SmbDirectError::Ended) }
    }

    fn queue_work(&mut self, id: WrId, wr: Wr) {
        self.work.push_back((id, wr));
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The purpose of a work request: the top byte of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Recv,
    Send,
    Write,
    Read,
    Invalidate,
}

/// Bits for the piece: a transfer has at most 2^24 pieces.
const PIECE_BITS: u32 = 24;

/// Builds an id from kind, slot (or steering tag) and piece.
pub(crate) fn wr_id(kind: Kind, slot: u32, piece: usize) -> WrId {
    assert!(piece < 1 << PIECE_BITS);
    WrId((kind as u64) << 56 | u64::from(slot) << PIECE_BITS | piece as u64)
}

/// Splits an id into kind, slot (or steering tag) and piece.
pub(crate) fn wr_parts(id: WrId) -> (Kind, u32, usize) {
    let kind = match id.0 >> 56 {
        0 => Kind::Recv,
        1 => Kind::Send,
        2 => Kind::Write,
        3 => Kind::Read,
        _ => Kind::Invalidate,
    };
    (kind, (id.0 >> PIECE_BITS) as u32, (id.0 & ((1 << PIECE_BITS) - 1)) as usize)
}
