//! One connection over direct TCP (MS-SMB2 2.1).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arena::{Pipes, Sg};
use env::{Env, Moment};
use rustix::net::sockopt;
use smb_tcp::{End, ReadOutcome, Receiver, Sender};
use tokio::net::TcpStream;

use super::{Admitted, Deadlines, ShutdownState, TURNS, guarded, report};
use crate::connection::{ConnectionError, Engine, LOST, MessageLimits};
use crate::{Server, TransportKind};

impl Server {
    /// Admits a connection and serves it: see [`Server::admit`] and [`Admitted::serve_tcp`].
    pub async fn serve_tcp(self: Arc<Self>, stream: TcpStream) {
        let Ok(peer) = stream.peer_addr() else { return };
        if let Some(admitted) = self.admit(peer) {
            serve(admitted, stream).await;
        }
    }
}

pub(super) async fn serve(admitted: Admitted, stream: TcpStream) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let server = Arc::clone(&admitted.server);
    let engine = Engine::new(admitted, TransportKind::Tcp, peer, local, MessageLimits::NONE);
    // We batch replies ourselves; waiting for more in the kernel only adds delay.
    let _ = stream.set_nodelay(true);
    let id = engine.id();
    tracing::debug!(%peer, connection = id, "connected over TCP");
    keep_alive(&stream);
    let mut connection = TcpConnection::new(&server, stream, engine);
    let result = std::future::poll_fn(|cx| guarded(|| connection.poll(cx))).await;
    report(&result, peer, id);
    let TcpConnection { engine, stream, .. } = connection;
    drop(stream);
    engine.end().await;
}

/// Idle time before the kernel's first keep-alive probe, and time between probes.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// Replaces [`LOST`] once a break was sent that could be resent over another connection of the client: well below the
/// 35 s that a client has to acknowledge a break.
const LOST_SOON: Duration = Duration::from_secs(6);

/// A client that has lost power must not keep its opens and locks for ever. An idle client answers the keep-alive
/// probes, and stays connected.
fn keep_alive(stream: &TcpStream) {
    let done = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, KEEP_ALIVE.0))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE.1))
        // For how long sent data, or a probe, may stay unacknowledged. A client that has vanished loses its connection
        // within a minute, and with it all opens that are not durable.
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, LOST.as_millis() as u32));
    if let Err(e) = done {
        tracing::warn!("TCP keep-alive cannot be enabled, so a lost client is not detected: {e}");
    }
}

struct TcpConnection {
    env: Env,
    stream: TcpStream,
    engine: Engine,
    receiver: Receiver,
    sender: Sender,
    pipes: Pipes,
    /// Received messages that were not yet passed to the engine.
    arrived: VecDeque<Sg>,
    shutdown: ShutdownState,
    deadlines: Deadlines,
    /// Bytes received at the last check.
    received: u64,
    /// Its peer must acknowledge sent data within [`LOST_SOON`].
    urgent: bool,
    ended: bool,
}

/// Bytes waiting in the sender above which nothing more is read.
const SEND_HIGH: usize = 4 << 20;

impl TcpConnection {
    fn new(server: &Arc<Server>, stream: TcpStream, engine: Engine) -> TcpConnection {
        TcpConnection {
            env: server.env.clone(),
            stream,
            engine,
            receiver: Receiver::new(server.arena.clone(), End::Server),
            sender: Sender::default(),
            pipes: server.pipes.clone(),
            arrived: VecDeque::new(),
            shutdown: ShutdownState::new(server),
            deadlines: Deadlines::new(server),
            received: 0,
            urgent: false,
            ended: false,
        }
    }

    /// Runs turns until there is no progress: process received messages, poll parked requests, send finished replies.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if let Err(e) = self.shutdown.poll(cx) {
            return self.fail(cx, e);
        }
        let mut answered = None;
        for _ in 0..TURNS {
            let now = answered.unwrap_or_else(|| self.env.moment());
            let received;
            (received, answered) = match self.receive(cx, now) {
                Ok(done) => done,
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
            if self.ended && self.sender.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let moved = received || ran || sent;
            let idle = self.engine.is_idle() && self.arrived.is_empty() && self.sender.is_empty();
            self.deadlines.draining(now, self.shutdown.is_draining && idle, moved);
            if !moved {
                return self.deadlines.wait(cx, now, &self.engine);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns whether anything was received or processed, and the engine's last result.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
    ) -> Result<(bool, Option<Moment>), ConnectionError> {
        let (mut any, mut read, mut answered) = (false, false, None);
        while !self.is_full() {
            if let Some(message) = self.arrived.pop_front() {
                answered = self.engine.message_piped(now, message, self.receiver.take_piped())?.or(answered);
                any = true;
                continue;
            }
            // One read per turn: the received messages are answered before more is read.
            if read || self.ended {
                break;
            }
            self.receiver.use_pipes(self.engine.prefers_pipes().then_some(&self.pipes));
            let limit = self.engine.message_limit();
            match self.receiver.poll(cx, &mut self.stream, limit, &mut self.arrived) {
                Poll::Ready(Ok(ReadOutcome::Bytes)) => (any, read) = (true, true),
                Poll::Ready(Ok(ReadOutcome::Closed)) => self.ended = true,
                Poll::Ready(Err(e)) => return Err(e.into()),
                Poll::Pending => break,
            }
        }
        // A peer that waits for us (because too much is queued for it, or memory is short) is not slow.
        let waits = !(self.receiver.is_idle() || self.receiver.waits_for_memory() || self.is_full());
        let received = self.receiver.received();
        self.deadlines.receiving(now, waits, received != self.received);
        self.received = received;
        Ok((any, answered))
    }

    /// Whether reading pauses because too much is queued.
    fn is_full(&self) -> bool {
        self.engine.is_full() || self.sender.bytes() >= SEND_HIGH
    }

    /// Whether anything was sent.
    fn send(&mut self, cx: &mut Context<'_>, now: Moment) -> Result<bool, ConnectionError> {
        while let Some(message) = self.engine.pop() {
            self.sender.push(message.head, message.payload);
        }
        if self.engine.is_urgent() != self.urgent {
            self.urgent = !self.urgent;
            let lost = if self.urgent { LOST_SOON } else { LOST };
            let _ = sockopt::set_tcp_user_timeout(&self.stream, lost.as_millis() as u32);
        }
        if self.sender.is_empty() {
            self.deadlines.sending(now, false, false);
            return Ok(false);
        }
        let before = self.sender.bytes();
        let done = match self.sender.poll(cx, &self.stream) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(e)) => return Err(e.into()),
            Poll::Pending => false,
        };
        let moved = self.sender.bytes() < before;
        self.deadlines.sending(now, !done, moved);
        Ok(moved)
    }

    /// Sends as much as possible without waiting, then ends with `error`.
    fn fail(&mut self, cx: &mut Context<'_>, error: ConnectionError) -> Poll<Result<(), ConnectionError>> {
        let now = self.env.moment();
        let _ = self.send(cx, now);
        Poll::Ready(Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Linux drops a silent peer at the first unanswered probe after `TCP_USER_TIMEOUT` has passed.
    #[tokio::test]
    async fn a_vanished_client_is_lost_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (stream, _served) = tokio::join!(TcpStream::connect(address), listener.accept());
        let stream = stream.expect("connected");
        keep_alive(&stream);
        assert!(sockopt::socket_keepalive(&stream).expect("an option"));
        let idle = sockopt::tcp_keepidle(&stream).expect("an option");
        let every = sockopt::tcp_keepintvl(&stream).expect("an option");
        let lost = Duration::from_millis(sockopt::tcp_user_timeout(&stream).expect("an option").into());
        let questions = (lost - idle).as_secs().div_ceil(every.as_secs()) as u32;
        assert!(questions > 1, "one lost packet loses no client");
        assert!(lost.max(idle + every * questions) < Duration::from_secs(60));
    }
}
