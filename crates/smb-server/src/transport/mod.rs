//! Moving messages between an engine and a socket or a queue pair; and what both need: deadlines, an end from outside,
//! a guard against our own faults.

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

/// Turns in a row before other connections of this worker get theirs.
const TURNS: usize = 16;

/// When a peer must have moved, and the timer for that.
struct Deadlines {
    env: Env,
    stall: Duration,
    /// When the peer must have taken some data.
    send_by: Option<Moment>,
    /// When the peer must have sent more of a message that it has begun.
    receive_by: Option<Moment>,
    /// When the peer must have answered an RDMA Read.
    read_by: Option<Moment>,
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
            timer: None,
        }
    }

    /// Notes whether something `waits` for the peer to take it, and whether it took some since the last time.
    fn sending(&mut self, now: Moment, waits: bool, moved: bool) {
        renew(&mut self.send_by, now, self.stall, waits, moved);
    }

    /// Notes whether we wait for more of a message that the peer has begun, and whether some came since the last time.
    fn receiving(&mut self, now: Moment, waits: bool, moved: bool) {
        renew(&mut self.receive_by, now, self.stall, waits, moved);
    }

    /// Notes whether the peer has RDMA Reads to answer, and whether it answered some since the last time: what else it
    /// does is no reason to hold their memory longer.
    fn reading(&mut self, now: Moment, waits: bool, moved: bool) {
        renew(&mut self.read_by, now, self.stall, waits, moved);
    }

    /// Nothing moves: wakes up for the next deadline, if there is one. Ready when one has passed.
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
        let stalls = stalled.into_iter().flatten().min().map(|by| self.env.instant(by));
        let Some(by) = [stalls, log_on].into_iter().flatten().min() else {
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

fn renew(by: &mut Option<Moment>, now: Moment, stall: Duration, waits: bool, moved: bool) {
    if !waits {
        *by = None;
    } else if moved || by.is_none() {
        *by = Some(now.after(stall));
    }
}

/// How long a client sends nothing before a draining server closes its connection: a transfer sends its next request sooner.
const QUIET: Duration = Duration::from_secs(1);

/// The end of the server, from one connection's view.
struct Ending {
    env: Env,
    draining: BoxFuture<()>,
    /// While the server drains: the last time something moved on this connection, and the timer of [`QUIET`].
    quiet: Option<(Moment, BoxFuture<()>)>,
    /// No more requests are taken; those that have begun are completed.
    drains: bool,
    cutting: BoxFuture<()>,
}

impl Ending {
    fn new(server: &Arc<Server>) -> Ending {
        let (draining, cutting) = (Arc::clone(server), Arc::clone(server));
        Ending {
            env: server.env.clone(),
            draining: Box::pin(async move { draining.draining().await }),
            quiet: None,
            drains: false,
            cutting: Box::pin(async move { cutting.cutting().await }),
        }
    }

    /// Sets `drains` once the server drains, no request is outstanding (`idle`), and nothing has moved for [`QUIET`].
    ///
    /// # Errors
    /// [`ConnectionError::Cut`] when the time for draining is over.
    fn poll(&mut self, cx: &mut Context<'_>, now: Moment, idle: bool) -> Result<(), ConnectionError> {
        if self.quiet.is_none() && self.draining.as_mut().poll(cx).is_ready() {
            self.quiet = Some((now, self.sleep(QUIET)));
        }
        while let Some((moved, timer)) = &mut self.quiet
            && !self.drains
            && timer.as_mut().poll(cx).is_ready()
        {
            let moved = if idle { *moved } else { now };
            let left = QUIET.saturating_sub(Duration::from_nanos(now.ns_since(moved)));
            self.drains = left.is_zero();
            self.quiet = Some((moved, self.sleep(left)));
        }
        if self.cutting.as_mut().poll(cx).is_ready() { Err(ConnectionError::Cut) } else { Ok(()) }
    }

    /// Notes that something moved.
    fn moved(&mut self, now: Moment) {
        if let Some((moved, _)) = &mut self.quiet {
            *moved = now;
        }
    }

    fn sleep(&self, time: Duration) -> BoxFuture<()> {
        let env = self.env.clone();
        Box::pin(async move { env.sleep(time).await })
    }
}

/// Runs a turn of a connection; should it panic, the connection ends as after any other error, and what it held is
/// closed.
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
