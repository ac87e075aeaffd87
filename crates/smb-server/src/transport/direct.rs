//! One connection over SMB Direct (MS-SMBD).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use arena::{Arena, CHUNK_MIN, Class, IoBuf, IoBufMut, Sg};
use counters::{InstanceGuard, transfers};
use env::{BoxFuture, Env, Moment};
use rdma::Down;
use smb_direct::{BufferDescriptorV1, Event, SmbDirect, SmbDirectError};
use smb_wire::NtStatus;
use vfs::Data;

use super::{Admitted, Deadlines, ShutdownState, TURNS, guarded, report};
use crate::connection::{ConnectionError, Engine, MessageLimits, OVERHEAD, OutMessage, Pull};
use crate::{Server, TransportKind};

impl Server {
    /// Serves one connection until it ends, and closes its sessions and opens. `peer` and `local` are the addresses of
    /// the fabric connection.
    pub async fn serve_direct(self: Arc<Self>, direct: SmbDirect, peer: SocketAddr, local: SocketAddr) {
        if let Some(admitted) = self.admit(peer) {
            serve(admitted, direct, peer, local).await;
        }
    }
}

pub(super) async fn serve(admitted: Admitted, direct: SmbDirect, peer: SocketAddr, local: SocketAddr) {
    let server = Arc::clone(&admitted.server);
    let engine = Engine::new(admitted, TransportKind::Rdma, peer, local, message_limits(&direct));
    let id = engine.id();
    tracing::debug!(%peer, connection = id, "connected over SMB Direct");
    let _counted = counted(&server, &direct, local, peer);
    let mut connection = DirectConnection::new(&server, direct, engine);
    let result = std::future::poll_fn(|cx| guarded(|| connection.poll(cx))).await;
    let result = match result {
        Err(ConnectionError::Direct(e)) if is_orderly(&e) => Ok(()),
        other => other,
    };
    report(&result, peer, id);
    let DirectConnection { engine, mut direct, .. } = connection;
    direct.close();
    // The last messages are sent before the queue pair is destroyed.
    while direct.event().await.is_ok() {}
    engine.end().await;
}

/// A client that encrypts its session sends a WRITE of MaxWriteSize inside one message, even if it uses RDMA otherwise:
/// so the largest I/O is what fits the longest message that we accept (MS-SMB2 3.3.5.4, MS-SMBD 3.1.5.2).
fn message_limits(direct: &SmbDirect) -> MessageLimits {
    let limits = direct.limits();
    MessageLimits {
        max_io: limits.max_fragmented_receive_size.saturating_sub(OVERHEAD as u32),
        send_max: limits.max_fragmented_send_size,
    }
}

/// Registers the connection in the performance counters, by both its addresses, until this is dropped.
fn counted(server: &Server, direct: &SmbDirect, local: SocketAddr, peer: SocketAddr) -> InstanceGuard {
    let (local, remote) = (local.to_string(), peer.to_string());
    let opened = server.registry().direct.open(&format!("{local}/{remote}"), &[&local, &remote]);
    opened.instance().join(direct.tally());
    opened
}

struct DirectConnection {
    env: Env,
    arena: Arena,
    direct: SmbDirect,
    engine: Engine,
    /// Received messages that were not yet passed to the engine.
    arrived: VecDeque<Sg>,
    /// The memory that they hold: see [`cost`].
    arrived_bytes: usize,
    /// An RDMA Read that waits for memory.
    waiting: Option<(Pull, BoxFuture<arena::SgMut>)>,
    shutdown: ShutdownState,
    deadlines: Deadlines,
    /// The peer's progress at the last check.
    last_progress: PeerProgress,
    assembling: Option<usize>,
    /// Bytes of started and incomplete RDMA Reads.
    pulling: usize,
    /// Bytes of started and incomplete RDMA Writes.
    pushing: usize,
    /// Bytes, per direction, above which no more are started: a bound of the memory that one slow peer can hold.
    started_high: usize,
}

/// Counters that only the peer's progress changes.
#[derive(Clone, Copy, Default)]
struct PeerProgress {
    sent: u64,
    left_bytes: u64,
    read: u64,
}

/// Events taken in one turn.
const EVENTS: usize = 64;
/// Unsent messages in the fabric's queue above which no more are queued.
const QUEUED_HIGH: usize = 64;
/// The maximum of [`DirectConnection::started_high`], in bytes.
const STARTED_HIGH: usize = 16 << 20;
/// [`DirectConnection::started_high`] is at most the arena's size divided by this.
const STARTED_SHARE: usize = 8;
/// The bit of a transfer's id that says it is an RDMA Write; the others are its length.
const PUSH: u64 = 1 << 63;
/// The most messages that wait while the engine is full; each needs a credit, so a well-behaved client stays far below.
const ARRIVED_MAX: usize = 16_384;
/// Bytes of memory that they may hold.
const ARRIVED_BYTES_MAX: usize = 16 << 20;
/// Messages up to this length, in bytes, were copied out of their receive buffer.
const SHORT: usize = 512;
/// From this number of bytes of waiting messages on, the peer gets one credit at a time. One or two messages do not
/// throttle the peer: Linux would spend its last credits on requests, and could then grant none.
const ARRIVED_BYTES_HIGH: usize = 4 << 20;

impl DirectConnection {
    fn new(server: &Arc<Server>, direct: SmbDirect, engine: Engine) -> DirectConnection {
        DirectConnection {
            env: server.env.clone(),
            arena: server.arena.clone(),
            direct,
            engine,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            waiting: None,
            shutdown: ShutdownState::new(server),
            deadlines: Deadlines::new(server),
            last_progress: PeerProgress::default(),
            assembling: None,
            pulling: 0,
            pushing: 0,
            started_high: (server.arena.usage().budget / STARTED_SHARE).min(STARTED_HIGH),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if let Err(e) = self.shutdown.poll(cx) {
            return Poll::Ready(Err(e));
        }
        let mut answered = None;
        for _ in 0..TURNS {
            let now = answered.unwrap_or_else(|| self.env.moment());
            let any;
            (any, answered) = match self.turn(cx, now) {
                Ok(done) => done,
                Err(e) => return Poll::Ready(Err(e)),
            };
            let idle = self.engine.is_idle() && self.arrived.is_empty();
            self.deadlines.draining(now, self.shutdown.is_draining && idle, any);
            if !any {
                return self.deadlines.wait(cx, now, &self.engine);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns whether anything made progress, and the engine's last result.
    fn turn(&mut self, cx: &mut Context<'_>, now: Moment) -> Result<(bool, Option<Moment>), ConnectionError> {
        let (mut any, mut answered) = (false, None);
        for _ in 0..EVENTS {
            match self.direct.poll_event(cx) {
                Poll::Ready(Ok(event)) => self.event(event, now)?,
                Poll::Ready(Err(e)) => return Err(e.into()),
                Poll::Pending => break,
            }
            any = true;
        }
        while !self.engine.is_full() {
            let Some(message) = self.arrived.pop_front() else { break };
            self.count_arrived(self.arrived_bytes - cost(&message));
            any = true;
            match self.engine.message(now, message) {
                Ok(at) => answered = at.or(answered),
                Err(e) => {
                    self.send()?;
                    return Err(e);
                }
            }
        }
        any |= match self.engine.poll(cx, now) {
            Poll::Ready(result) => {
                result?;
                true
            }
            Poll::Pending => false,
        };
        any |= self.pull(cx)?;
        any |= self.send()?;
        self.check_progress(now)?;
        Ok((any, answered))
    }

    /// Checks the peer's progress: whether it receives, answers RDMA Reads, and completes messages that it has begun.
    fn check_progress(&mut self, now: Moment) -> Result<(), ConnectionError> {
        let (p, was) = (self.direct.progress(), self.last_progress);
        let left_bytes = self.direct.tally().get(transfers::OUT_BYTES);
        self.last_progress = PeerProgress { sent: p.sent, left_bytes, read: p.read };
        let took = p.sent != was.sent || left_bytes != was.left_bytes;
        self.deadlines.sending(now, p.sending > 0, took);
        self.deadlines.reading(now, p.reading > 0, p.read != was.read);
        let assembling = self.direct.assembling();
        let limit = self.engine.message_limit();
        if let Some(length) = assembling.filter(|n| *n > limit) {
            return Err(ConnectionError::TooLong { length, limit });
        }
        self.deadlines.receiving(now, assembling.is_some(), assembling != self.assembling);
        self.assembling = assembling;
        Ok(())
    }

    /// Sets the memory that waiting messages hold, and throttles the peer while it is too much.
    fn count_arrived(&mut self, bytes: usize) {
        let (was, is) = (self.arrived_bytes >= ARRIVED_BYTES_HIGH, bytes >= ARRIVED_BYTES_HIGH);
        if was != is {
            self.direct.set_credit_target(if is { 1 } else { u16::MAX });
        }
        self.arrived_bytes = bytes;
    }

    fn event(&mut self, event: Event, now: Moment) -> Result<(), ConnectionError> {
        match event {
            Event::Message { data, .. } => {
                let bytes = self.arrived_bytes + cost(&data);
                if self.arrived.len() >= ARRIVED_MAX || bytes > ARRIVED_BYTES_MAX {
                    return Err(ConnectionError::TooManyPending);
                }
                self.count_arrived(bytes);
                self.arrived.push_back(data);
                Ok(())
            }
            Event::RdmaDone { id, result: Ok(Some(bufs)) } => {
                let data: Sg = bufs.into_iter().map(IoBufMut::freeze).collect();
                self.pulling -= arena::sg_len(&data);
                self.engine.pulled(now, id, Ok(data))
            }
            Event::RdmaDone { id, result: Err(_) } if id & PUSH == 0 => {
                // The connection has ended; the reason follows.
                self.engine.pulled(now, id, Err(NtStatus::CONNECTION_RESET))
            }
            // An RDMA Write is complete: its reply is already queued behind it.
            Event::RdmaDone { id, .. } => {
                self.pushing -= (id & !PUSH) as usize;
                Ok(())
            }
            // We expose no memory.
            Event::Invalidated { .. } => Ok(()),
        }
    }

    /// Whether memory may be allocated for the next RDMA Read: it can be issued soon (ORD), and the peer does not
    /// already hold too much memory.
    fn may_read(&self) -> bool {
        let waiting = self.direct.progress().reads_waiting;
        waiting < self.direct.caps().ord.max(1) as usize && self.pulling < self.started_high
    }

    /// Starts the RDMA Reads that WRITEs wait for, as far as they can be issued soon and there is memory for them.
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<bool, ConnectionError> {
        let mut any = false;
        loop {
            if let Some((pull, mut memory)) = self.waiting.take() {
                match memory.as_mut().poll(cx) {
                    Poll::Ready(sinks) => self.read(pull, sinks)?,
                    Poll::Pending => {
                        self.waiting = Some((pull, memory));
                        return Ok(any);
                    }
                }
            }
            if !self.may_read() {
                return Ok(any);
            }
            let Some(pull) = self.engine.pop_pull() else { return Ok(any) };
            any = true;
            let arena = self.arena.clone();
            let from = first_bytes(&pull.from, pull.length);
            match smb_direct::try_sinks(&arena, &from, Class::Payload) {
                Some(sinks) => self.read(pull, sinks)?,
                None => {
                    // Empty if so much memory is never available: `read` refuses that.
                    let sinks = async move { smb_direct::sinks(arena, from, Class::Payload).await };
                    self.waiting = Some((pull, Box::pin(async move { sinks.await.unwrap_or_default() })));
                }
            }
        }
    }

    /// Starts an RDMA Read. If it cannot be started for lack of resources, only its WRITE fails.
    fn read(&mut self, pull: Pull, sinks: arena::SgMut) -> Result<(), ConnectionError> {
        let from = first_bytes(&pull.from, pull.length);
        match self.direct.rdma_read(pull.slot, &from, sinks) {
            Err(
                why @ (SmbDirectError::QueueFull(_)
                | SmbDirectError::NoMemory
                | SmbDirectError::TransferLength { .. }
                | SmbDirectError::Rdma(rdma::RdmaError::NoReads)),
            ) => {
                tracing::debug!("a WRITE was refused: {why}");
                self.engine.pulled(self.env.moment(), pull.slot, Err(NtStatus::INSUFFICIENT_RESOURCES))
            }
            done => {
                done?;
                self.pulling += pull.length as usize;
                Ok(())
            }
        }
    }

    /// Queues finished messages in the fabric. The RDMA Writes of a reply are queued before the reply, and so arrive
    /// before it.
    fn send(&mut self) -> Result<bool, ConnectionError> {
        let mut any = false;
        // Messages that the peer does not receive stay in the engine, which then accepts no more requests.
        while self.direct.queued() < QUEUED_HIGH
            && self.pushing + self.direct.progress().message_bytes < self.started_high
        {
            let Some(message) = self.engine.pop() else { break };
            any = true;
            let OutMessage { head, payload, pushes, invalidate, .. } = message;
            for push in pushes {
                let length = arena::sg_len(&push.data);
                self.direct.rdma_write(PUSH | length as u64, push.data, &push.to)?;
                self.pushing += length;
            }
            let mut sg: Sg = [IoBuf::from(head)].into_iter().collect();
            match payload {
                Data::Bufs(bufs) => sg.extend(bufs),
                Data::File { .. } => unreachable!("file payload is asked for on TCP only"),
            }
            self.direct.send(sg, invalidate)?;
        }
        Ok(any)
    }
}

/// The approximate memory that a message holds, in bytes: each segment holds a receive buffer, unless it is short and
/// was copied.
fn cost(message: &Sg) -> usize {
    message.iter().map(|b| if b.len() <= SHORT { SHORT } else { b.len().max(CHUNK_MIN) }).sum()
}

/// Whether a connection ended in an orderly way.
fn is_orderly(e: &SmbDirectError) -> bool {
    matches!(e, SmbDirectError::Down(Down::PeerClosed | Down::Closed) | SmbDirectError::Ended)
}

/// The descriptors of the first `length` bytes.
fn first_bytes(from: &[BufferDescriptorV1], length: u32) -> Vec<BufferDescriptorV1> {
    let mut left = length;
    let mut out = Vec::with_capacity(from.len());
    for d in from {
        let n = d.length.min(left);
        if n > 0 {
            out.push(BufferDescriptorV1 { length: n, ..*d });
        }
        left -= n;
    }
    out
}

#[cfg(test)]
mod tests {
    use smb_direct::SmbDirectOptions;

    use super::*;
    use crate::commands::tests::World;

    /// The memory of messages that wait while the engine is full is bounded; the peer is throttled before that.
    #[tokio::test]
    async fn what_has_arrived_is_bounded() {
        let world = World::new();
        let (server, env) = (&world.server, world.server.env.clone());
        let (ours, theirs) = rdma::sim::pair(rdma::sim::Options::new(env.clone()));
        let ends = [Box::new(ours) as Box<dyn rdma::QueuePair>, Box::new(theirs)];
        let [a, b] = ends.map(|qp| (qp, server.arena.clone(), env.clone(), SmbDirectOptions::default()));
        let (accepted, _client) =
            tokio::join!(SmbDirect::accept(a.0, a.1, a.2, a.3), SmbDirect::connect(b.0, b.1, b.2, b.3));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 5445));
        let accepted = accepted.expect("negotiated");
        let admitted = server.admit(nowhere).expect("taken");
        let engine = Engine::new(admitted, TransportKind::Rdma, nowhere, nowhere, message_limits(&accepted));
        let mut connection = DirectConnection::new(server, accepted, engine);
        let now = env.moment();
        let mut arrive = |length: usize| {
            let data = [IoBuf::from(vec![0; length])].into_iter().collect();
            connection.event(Event::Message { data, invalidated: None }, now)
        };
        for _ in 0..15 {
            arrive(1 << 20).expect("there is room");
        }
        // Each of these is shorter than a receive buffer, but holds a whole one.
        for _ in 0..256 {
            arrive(513).expect("there is room");
        }
        assert!(matches!(arrive(1), Err(ConnectionError::TooManyPending)));
        assert_eq!(connection.arrived_bytes, ARRIVED_BYTES_MAX);
    }
}
