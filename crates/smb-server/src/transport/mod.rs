//! Moving messages between an engine and a socket or a queue pair, and the common parts: deadlines, the end of the
//! server, a guard against panics.

mod admitted;
mod direct;
mod tcp;

pub use admitted::{Admitted, SetupEnded};

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use env::{BoxFuture, Env, Moment};

use crate::Server;
use crate::connection::{ConnectionError, Engine};

/// Consecutive turns before the connection yields to others of this worker.
const TURNS: usize = 16;

/// The deadlines for a peer's progress, and their timer.
struct Deadlines {
    env: Env,
    stall: Duration,
    /// When the peer must have received more data.
    send_by: Option<Moment>,
    /// When the peer must have sent more of a message that it has begun.
    receive_by: Option<Moment>,
    /// When the peer must have answered an RDMA Read.
    read_by: Option<Moment>,
    /// While the server drains: when the connection is closed if there is no progress until then.
    close_by: Option<Moment>,
    timer: Option<(Instant, BoxFuture<()>)>,
}

impl Deadlines {
    fn new(server: &Server) -> Deadlines {
        let stall = Duration::from_secs(server.config.limits.stall_s);
        Deadlines {
            env: server.env.clone(),
            stall,
            send_by: None,
            receive_by: None,
            read_by: None,
            close_by: None,
            timer: None,
        }
    }

    /// Updates the deadline for sending: `waits` if data waits for the peer to receive it, `moved` if it received some
    /// since the last call.
    fn sending(&mut self, now: Moment, waits: bool, moved: bool) {
        renew(&mut self.send_by, now, self.stall, waits, moved);
    }

    /// Updates the deadline for receiving: `waits` if the peer has begun a message, `moved` if more of it arrived since
    /// the last call.
    fn receiving(&mut self, now: Moment, waits: bool, moved: bool) {
        renew(&mut self.receive_by, now, self.stall, waits, moved);
    }

    /// Updates the deadline for RDMA Reads: `waits` if any are unanswered, `moved` if the peer answered some since the
    /// last call. Other progress of the peer does not extend it, as the reads hold memory.
    fn reading(&mut self, now: Moment, waits: bool, moved: bool) {
        renew(&mut self.read_by, now, self.stall, waits, moved);
    }

    /// Updates the deadline for draining: `idle` if the server drains and the connection is idle, `moved` if there was
    /// progress since the last call.
    fn draining(&mut self, now: Moment, idle: bool, moved: bool) {
        renew(&mut self.close_by, now, QUIET, idle, moved);
    }

    /// There is no progress: registers a wake-up for the next deadline, if there is one. Ready when one has passed: an
    /// error, or the end of a connection that is closed because the server drains.
    fn wait(
        &mut self,
        cx: &mut Context<'_>,
        now: Moment,
        engine: &Engine,
    ) -> Poll<Result<(), ConnectionError>> {
        let stalled = [self.send_by, self.receive_by, self.read_by];
        if stalled.into_iter().flatten().any(|by| by <= now) {
            return Poll::Ready(Err(ConnectionError::Stalled));
        }
        let log_on = engine.authenticate_by();
        if log_on.is_some_and(|by| by <= self.env.instant(now)) {
            return Poll::Ready(Err(ConnectionError::NotAuthenticated));
        }
        if self.close_by.is_some_and(|by| by <= now) {
            return Poll::Ready(Ok(()));
        }
        let moments = stalled.into_iter().chain([self.close_by, engine.interims_at()]).flatten();
        let first = moments.min().map(|by| self.env.instant(by));
        let Some(by) = [first, log_on].into_iter().flatten().min() else {
            self.timer = None;
            return Poll::Pending;
        };
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

fn renew(by: &mut Option<Moment>, now: Moment, limit: Duration, waits: bool, moved: bool) {
    if !waits {
        *by = None;
    } else if moved || by.is_none() {
        *by = Some(now.after(limit));
    }
}

/// How long a connection is idle before a draining server closes it: a transfer sends its next request sooner.
const QUIET: Duration = Duration::from_secs(1);

/// The state of the server's shutdown, for one connection.
struct ShutdownState {
    draining: BoxFuture<()>,
    /// The server drains: the connection is closed after [`QUIET`] without progress.
    is_draining: bool,
    force_closing: BoxFuture<()>,
}

impl ShutdownState {
    fn new(server: &Arc<Server>) -> ShutdownState {
        let (draining, force_closing) = (Arc::clone(server), Arc::clone(server));
        ShutdownState {
            draining: Box::pin(async move { draining.draining().await }),
            is_draining: false,
            force_closing: Box::pin(async move { force_closing.force_closing().await }),
        }
    }

    /// # Errors
    /// [`ConnectionError::Cut`] when the time for draining is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        self.is_draining = self.is_draining || self.draining.as_mut().poll(cx).is_ready();
        if self.force_closing.as_mut().poll(cx).is_ready() { Err(ConnectionError::Cut) } else { Ok(()) }
    }
}

/// Runs a turn of a connection. If it panics, the connection ends as after any other error, and its sessions and opens
/// are closed.
fn guarded(turn: impl FnOnce() -> Poll<Result<(), ConnectionError>>) -> Poll<Result<(), ConnectionError>> {
    catch_unwind(AssertUnwindSafe(turn)).unwrap_or(Poll::Ready(Err(ConnectionError::Panicked)))
}

/// Logs why a connection ended.
fn report(result: &Result<(), ConnectionError>, peer: SocketAddr, connection: u64) {
    match result {
        Ok(()) => tracing::debug!(%peer, connection, "closed"),
        Err(e @ ConnectionError::Crowded) => tracing::debug!(%peer, connection, "connection ended: {e}"),
        Err(ConnectionError::Transport(e)) => tracing::info!(%peer, connection, "connection lost: {e}"),
        Err(e) => tracing::warn!(%peer, connection, "connection ended: {e}"),
    }
}
