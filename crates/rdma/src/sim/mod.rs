//! Two queue pairs in one process, with latency and faults drawn from [`Env`], so that a seed replays a run.
//!
//! **What it is.** [`pair`] connects two [`SimQueuePair`]s by two ordered wires. Posting starts nothing: a queue pair's
//! own [`QueuePair::poll`] puts its requests on the wire and processes the packets that have arrived, as `iwarp` does,
//! so a test that passes here does not depend on a card that works without being polled. Checks (tags, rights, bounds,
//! posted receives, IRD) are those of `iwarp` and end the connection with the same codes.
//!
//! **Faults.** [`Options::latency`] and [`Options::jitter`] delay packets on the wire without reordering them;
//! [`Options::reorder`] delivers completions of independent kinds (the send queue, Reads, receives) in any relative
//! order and late; [`Options::cut_at`] breaks the connection in the middle of the n-th operation.
//!
//! It counts work requests and connections as `iwarp` does, but no bytes and frames: it has no wire.

mod fabric;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use counters::Block;
use env::{BoxFuture, Env};
use parking_lot::Mutex;

use crate::activity::{Activity, Made};
use crate::{Completion, Down, Exposed, Exposure, QueuePair, QueuePairCaps, RdmaError, Rights, Wr, WrId};
use fabric::{Fabric, Side};

/// The options of a pair; the same on both sides.
#[derive(Clone)]
pub struct Options {
    /// Time and random numbers.
    pub env: Env,
    /// How long a message is on the wire; needs a Tokio runtime unless it is zero.
    pub latency: Duration,
    /// A random part of this is added to the latency of each message.
    pub jitter: Duration,
    /// Completions of independent requests are delivered in any order, and late.
    pub reorder: bool,
    /// The connection breaks while the operation of this number (from 1, both directions counted) arrives.
    pub cut_at: Option<u64>,
    /// RDMA Reads that each side answers at a time.
    pub ird: u32,
    /// RDMA Reads that each side starts at a time, if the other's `ird` allows.
    pub ord: u32,
    /// Outstanding work requests, sends and receives each.
    pub max_wr: usize,
    /// Buffers in one scattered payload.
    pub max_sge: usize,
    /// Exposed buffers.
    pub max_regions: usize,
}

impl Options {
    /// No faults, no latency, ample limits.
    pub fn new(env: Env) -> Options {
        Options {
            env,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: false,
            cut_at: None,
            ird: 16,
            ord: 16,
            max_wr: 1024,
            max_sge: 256,
            max_regions: 1024,
        }
    }
}

/// One side of a simulated connection.
pub struct SimQueuePair {
    fabric: Arc<Mutex<Fabric>>,
    side: Side,
    caps: QueuePairCaps,
    env: Env,
    timer: Option<BoxFuture<()>>,
    activity: Activity,
}

/// Two connected queue pairs.
pub fn pair(options: Options) -> (SimQueuePair, SimQueuePair) {
    let caps = QueuePairCaps {
        ord: options.ord.min(options.ird),
        ird: options.ird,
        max_sge: options.max_sge,
        max_wr: options.max_wr,
        read_sink_exposed: false,
    };
    let env = options.env.clone();
    let fabric = Arc::new(Mutex::new(Fabric::new(options)));
    let side = |side, made| {
        let (fabric, activity) = (Arc::clone(&fabric), Activity::new("sim", made));
        SimQueuePair { fabric, side, caps, env: env.clone(), timer: None, activity }
    };
    (side(Side::A, Made::Initiated), side(Side::B, Made::Accepted))
}

impl QueuePair for SimQueuePair {
    fn caps(&self) -> QueuePairCaps {
        self.caps
    }

    fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        self.activity.exposed(self.fabric.lock().end(self.side).expose(what, rights))
    }

    fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)> {
        self.activity.posting(wr, |wr| self.fabric.lock().end(self.side).post(id, wr, &self.caps))
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        loop {
            let (ready, due, wake) = {
                let mut fabric = self.fabric.lock();
                fabric.end(self.side).watch(cx.waker());
                let ready = fabric.poll(self.side, out);
                (ready, fabric.next_arrival(self.side), fabric.take_wakers())
            };
            wake.into_iter().for_each(Waker::wake);
            if let Some(result) = ready {
                if let Err(why) = &result {
                    self.activity.ended(why);
                }
                return Poll::Ready(result);
            }
            let Some(due) = due else {
                self.timer = None;
                return Poll::Pending;
            };
            let env = self.env.clone();
            let timer = self.timer.insert(Box::pin(async move { env.sleep_until(due).await }));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn close(&mut self) {
        self.fabric.lock().end(self.side).close();
    }

    fn exposed(&self) -> usize {
        self.fabric.lock().end(self.side).exposed()
    }

    fn counters(&self) -> Option<Arc<Block>> {
        Some(Arc::clone(self.activity.block()))
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        let wake = {
            let mut fabric = self.fabric.lock();
            fabric.abandon(self.side);
            fabric.take_wakers()
        };
        wake.into_iter().for_each(Waker::wake);
    }
}
