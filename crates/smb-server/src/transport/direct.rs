//! One connection over SMB Direct (MS-SMBD).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use arena::{Arena, CHUNK_MIN, Class, IoBuf, IoBufMut, Sg};
use env::{BoxFuture, Env};
use rdma::Down;
use smb_direct::{BufferDescriptorV1, Event, SmbDirect, SmbDirectError};
use smb_wire::NtStatus;
use vfs::Data;

use super::tcp::{guarded, report};
use crate::connection::{ConnectionError, Engine, OVERHEAD, OutMessage, Pull};
use crate::{Server, TransportKind};

impl Server {
    /// Serves one connection until it ends, and closes what it held. `peer` and `local` are the addresses of the
    /// fabric connection.
    pub async fn serve_direct(self: Arc<Self>, direct: SmbDirect, peer: SocketAddr, local: SocketAddr) {
        // A message that is longer than the client reassembles cannot be sent.
        let inline_max = direct.limits().max_fragmented_send_size.saturating_sub(OVERHEAD as u32);
        let Some(engine) = Engine::new(&self, TransportKind::Rdma, peer, local, inline_max) else {
            tracing::warn!(%peer, "connection refused: {}", ConnectionError::Refused);
            return;
        };
        let id = engine.id();
        tracing::debug!(%peer, connection = id, "connected over SMB Direct");
        let mut connection = DirectConnection::new(&self, direct, engine);
        let result = std::future::poll_fn(|cx| guarded(|| connection.poll(cx))).await;
        let result = match result {
            Err(ConnectionError::Direct(e)) if is_orderly(&e) => Ok(()),
            other => other,
        };
        report(&result, peer, id);
        let DirectConnection { engine, mut direct, .. } = connection;
        direct.close();
        // What was said last leaves before the queue pair goes.
        while direct.event().await.is_ok() {}
        engine.end().await;
    }
}

struct DirectConnection {
    env: Env,
    arena: Arena,
    direct: SmbDirect,
    engine: Engine,
    /// Messages received and not yet given to the engine.
    arrived: VecDeque<Sg>,
    /// An RDMA Read that waits for memory.
    waiting: Option<(Pull, BoxFuture<arena::SgMut>)>,
    draining: BoxFuture<()>,
    drains: bool,
    timer: Option<(Instant, BoxFuture<()>)>,
}

/// Turns in a row before other connections of this worker get theirs.
const TURNS: usize = 16;
/// Events taken in one turn.
const EVENTS: usize = 64;
/// Messages handed to the fabric and not sent, above which no more are handed to it.
const QUEUED_HIGH: usize = 64;
/// Messages that may wait while the engine is full; each needs a credit, so an honest client stays far below.
const ARRIVED_MAX: usize = 16_384;

impl DirectConnection {
    fn new(server: &Arc<Server>, direct: SmbDirect, engine: Engine) -> DirectConnection {
        let s = Arc::clone(server);
        DirectConnection {
            env: server.env.clone(),
            arena: server.arena.clone(),
            direct,
            engine,
            arrived: VecDeque::new(),
            waiting: None,
            draining: Box::pin(async move { s.draining().await }),
            drains: false,
            timer: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.drains = self.drains || self.draining.as_mut().poll(cx).is_ready();
        for _ in 0..TURNS {
            let now = self.env.now();
            match self.turn(cx, now) {
                Err(e) => return Poll::Ready(Err(e)),
                Ok(_) if self.drains && self.engine.is_idle() => return Poll::Ready(Ok(())),
                Ok(true) => {}
                Ok(false) => return self.wait(cx, now),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether anything moved.
    fn turn(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, ConnectionError> {
        let mut any = false;
        for _ in 0..EVENTS {
            match self.direct.poll_event(cx) {
                Poll::Ready(Ok(event)) => self.event(event, now)?,
                Poll::Ready(Err(e)) => return Err(e.into()),
                Poll::Pending => break,
            }
            any = true;
        }
        while !self.engine.is_full() && !self.drains {
            let Some(message) = self.arrived.pop_front() else { break };
            let result = self.engine.message(now, message);
            any = true;
            if let Err(e) = result {
                self.send()?;
                return Err(e);
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
        Ok(any)
    }

    fn event(&mut self, event: Event, now: Instant) -> Result<(), ConnectionError> {
        match event {
            Event::Message { data, .. } => {
                if self.arrived.len() >= ARRIVED_MAX {
                    return Err(ConnectionError::TooManyPending);
                }
                self.arrived.push_back(data);
                Ok(())
            }
            Event::RdmaDone { id, result: Ok(Some(bufs)) } => {
                let data = bufs.into_iter().map(IoBufMut::freeze).collect();
                self.engine.pulled(now, id, Ok(data))
            }
            Event::RdmaDone { id, result: Err(_) } => {
                // The connection has ended; the reason follows.
                self.engine.pulled(now, id, Err(NtStatus::CONNECTION_RESET))
            }
            // A push is done: its reply was queued behind it long ago.
            Event::RdmaDone { result: Ok(None), .. } => Ok(()),
            // We expose nothing.
            Event::Invalidated { .. } => Ok(()),
        }
    }

    /// Starts the RDMA Reads that WRITEs wait for, as far as there is memory for them.
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<bool, ConnectionError> {
        let mut any = false;
        loop {
            if let Some((pull, mut memory)) = self.waiting.take() {
                match memory.as_mut().poll(cx) {
                    Poll::Ready(sinks) => self.read(&pull, sinks)?,
                    Poll::Pending => {
                        self.waiting = Some((pull, memory));
                        return Ok(any);
                    }
                }
            }
            let Some(pull) = self.engine.pop_pull() else { return Ok(any) };
            any = true;
            let arena = self.arena.clone();
            let bytes = (pull.length as usize).max(CHUNK_MIN);
            match arena.try_alloc_sg(bytes, Class::Payload) {
                Some(sinks) => self.read(&pull, sinks)?,
                None => {
                    let memory = Box::pin(async move { arena.alloc_sg(bytes, Class::Payload).await });
                    self.waiting = Some((pull, memory));
                }
            }
        }
    }

    fn read(&mut self, pull: &Pull, sinks: arena::SgMut) -> Result<(), ConnectionError> {
        let from = first_bytes(&pull.from, pull.length);
        Ok(self.direct.rdma_read(pull.slot, &from, sinks)?)
    }

    /// Hands finished messages to the fabric. Payload that goes by RDMA Write is queued before the message that tells
    /// of it, and so arrives before it.
    fn send(&mut self) -> Result<bool, ConnectionError> {
        let mut any = false;
        // What the peer does not take stays with the engine, which then takes no more from the peer.
        while self.direct.queued() < QUEUED_HIGH {
            let Some(message) = self.engine.pop() else { break };
            any = true;
            let OutMessage { head, payload, pushes, invalidate } = message;
            for push in pushes {
                self.direct.rdma_write(0, push.data, &push.to)?;
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

    /// Nothing moves: wakes up when the client must have logged on.
    fn wait(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Result<(), ConnectionError>> {
        let Some(by) = self.engine.authenticate_by() else {
            self.timer = None;
            return Poll::Pending;
        };
        if by <= now {
            return Poll::Ready(Err(ConnectionError::NotAuthenticated));
        }
        if self.timer.as_ref().is_none_or(|(at, _)| *at != by) {
            let env = self.env.clone();
            self.timer = Some((by, Box::pin(async move { env.sleep_until(by).await })));
        }
        if let Some((_, timer)) = &mut self.timer
            && timer.as_mut().poll(cx).is_ready()
        {
            self.timer = None;
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Whether a connection ended as connections do.
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
