//! One connection over direct TCP (MS-SMB2 2.1).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arena::Sg;
use env::{BoxFuture, Env};
use rustix::net::sockopt;
use smb_tcp::{End, Filled, Receiver, Sender};
use tokio::net::TcpStream;

use crate::connection::{ConnectionError, Engine};
use crate::{Server, TransportKind};

impl Server {
    /// Serves one connection until it ends, and closes what it held. What ended it, other than its peer closing in
    /// order, is logged.
    pub async fn serve_tcp(self: Arc<Self>, stream: TcpStream) {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
        let Some(engine) = Engine::new(&self, TransportKind::Tcp, peer, local, u32::MAX) else {
            tracing::warn!(%peer, "connection refused: {}", ConnectionError::Refused);
            return;
        };
        // Replies are gathered by us; waiting for more in the kernel only adds delay.
        let _ = stream.set_nodelay(true);
        let id = engine.id();
        tracing::debug!(%peer, connection = id, "connected over TCP");
        keep_alive(&stream);
        let mut connection = TcpConnection::new(&self, stream, engine);
        let result = std::future::poll_fn(|cx| guarded(|| connection.poll(cx))).await;
        report(&result, peer, id);
        let TcpConnection { engine, stream, .. } = connection;
        drop(stream);
        engine.end().await;
    }
}

/// Seconds of silence after which the kernel asks whether a client is still there, and between its questions.
const KEEP_ALIVE_S: u64 = 60;
/// Seconds for which sent data, or such a question, may stay unacknowledged.
const LOST_S: u32 = 180;

/// A client that has lost its power must not keep its opens and locks for ever.
fn keep_alive(stream: &TcpStream) {
    let every = Duration::from_secs(KEEP_ALIVE_S);
    let done = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, every))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, every))
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, LOST_S * 1000));
    if let Err(e) = done {
        tracing::warn!("a client that vanishes will not be noticed: {e}");
    }
}

/// Runs a turn of a connection; should it panic, the connection ends as after any other error, and what it held is
/// closed.
pub(super) fn guarded(
    turn: impl FnOnce() -> Poll<Result<(), ConnectionError>>,
) -> Poll<Result<(), ConnectionError>> {
    catch_unwind(AssertUnwindSafe(turn)).unwrap_or(Poll::Ready(Err(ConnectionError::Panicked)))
}

/// Logs why a connection ended.
pub(super) fn report(result: &Result<(), ConnectionError>, peer: SocketAddr, connection: u64) {
    match result {
        Ok(()) => tracing::debug!(%peer, connection, "closed"),
        Err(ConnectionError::Transport(e)) => tracing::info!(%peer, connection, "connection lost: {e}"),
        Err(e) => tracing::warn!(%peer, connection, "connection ended: {e}"),
    }
}

struct TcpConnection {
    env: Env,
    stream: TcpStream,
    engine: Engine,
    receiver: Receiver,
    sender: Sender,
    /// Messages received and not yet given to the engine.
    arrived: VecDeque<Sg>,
    draining: BoxFuture<()>,
    drains: bool,
    timer: Option<(Instant, BoxFuture<()>)>,
    /// When the peer must have taken some data.
    send_by: Option<Instant>,
    /// When the peer must have sent more of a message that it has begun.
    receive_by: Option<Instant>,
    /// Bytes received when that was set.
    received: u64,
    stall: Duration,
    ended: bool,
}

/// Turns in a row before other connections of this worker get theirs.
const TURNS: usize = 16;
/// Bytes waiting in the sender above which nothing more is read.
const SEND_HIGH: usize = 4 << 20;

impl TcpConnection {
    fn new(server: &Arc<Server>, stream: TcpStream, engine: Engine) -> TcpConnection {
        let s = Arc::clone(server);
        TcpConnection {
            env: server.env.clone(),
            stream,
            engine,
            receiver: Receiver::new(server.arena.clone(), End::Server),
            sender: Sender::default(),
            arrived: VecDeque::new(),
            draining: Box::pin(async move { s.draining().await }),
            drains: false,
            timer: None,
            send_by: None,
            receive_by: None,
            received: 0,
            stall: Duration::from_secs(server.config.limits.stall_s),
            ended: false,
        }
    }

    /// Turns: take what has arrived, run what is ready, send what is finished; until nothing moves.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.drains = self.drains || self.draining.as_mut().poll(cx).is_ready();
        for _ in 0..TURNS {
            let now = self.env.now();
            let received = match self.receive(cx, now) {
                Ok(any) => any,
                Err(e) => return self.fail(cx, e),
            };
            let ran = match self.engine.poll(cx, now) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(e)) => return self.fail(cx, e),
                Poll::Pending => false,
            };
            let sent = match self.send(cx, now) {
                Ok(any) => any,
                Err(e) => return Poll::Ready(Err(e)),
            };
            let over = self.ended || (self.drains && self.engine.is_idle() && self.arrived.is_empty());
            if over && self.sender.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !(received || ran || sent) {
                return self.wait(cx, now);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether anything was read or taken.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, ConnectionError> {
        let (mut any, mut read) = (false, false);
        while !self.engine.is_full() && self.sender.bytes() < SEND_HIGH {
            if let Some(message) = self.arrived.pop_front() {
                self.engine.message(now, message)?;
                any = true;
                continue;
            }
            // Once per turn: what a turn brought is answered before more is read.
            if read || self.drains || self.ended {
                break;
            }
            let limit = self.engine.message_limit();
            match self.receiver.poll(cx, &mut self.stream, limit, &mut self.arrived) {
                Poll::Ready(Ok(Filled::Some)) => (any, read) = (true, true),
                Poll::Ready(Ok(Filled::End)) => self.ended = true,
                Poll::Ready(Err(e)) => return Err(e.into()),
                Poll::Pending => break,
            }
        }
        // A peer that waits for us (because too much is queued for it, or memory is short) is not slow.
        let received = self.receiver.received();
        if received != self.received || self.receiver.is_idle() || self.receiver.waits_for_memory() {
            (self.received, self.receive_by) = (received, None);
        }
        if self.receive_by.is_none() && !self.receiver.is_idle() && !self.receiver.waits_for_memory() {
            self.receive_by = Some(now + self.stall);
        }
        Ok(any)
    }

    /// Whether anything was sent.
    fn send(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, ConnectionError> {
        while let Some(message) = self.engine.pop() {
            self.sender.push(message.head, message.payload);
        }
        if self.sender.is_empty() {
            return Ok(false);
        }
        let before = self.sender.bytes();
        let done = match self.sender.poll(cx, &self.stream) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(e)) => return Err(e.into()),
            Poll::Pending => false,
        };
        let moved = self.sender.bytes() < before;
        if done {
            self.send_by = None;
        } else if moved || self.send_by.is_none() {
            self.send_by = Some(now + self.stall);
        }
        Ok(moved)
    }

    /// Sends what can be sent at once, then ends with `error`.
    fn fail(&mut self, cx: &mut Context<'_>, error: ConnectionError) -> Poll<Result<(), ConnectionError>> {
        let now = self.env.now();
        let _ = self.send(cx, now);
        Poll::Ready(Err(error))
    }

    /// Nothing moves: wakes up for the next deadline, if there is one.
    fn wait(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Result<(), ConnectionError>> {
        if [self.send_by, self.receive_by].into_iter().flatten().any(|by| by <= now) {
            return Poll::Ready(Err(ConnectionError::Stalled));
        }
        if self.engine.authenticate_by().is_some_and(|by| by <= now) {
            return Poll::Ready(Err(ConnectionError::NotAuthenticated));
        }
        let next = [self.send_by, self.receive_by, self.engine.authenticate_by()].into_iter().flatten().min();
        match next {
            None => self.timer = None,
            Some(by) => {
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
            }
        }
        Poll::Pending
    }
}
