//! Two queue pairs in one process. Latency and faults are drawn from [`Env`], so that a seed reproduces a run.
//!
//! **What it is.** [`pair`] connects two [`SimQueuePair`]s by two ordered wires. Posting does not send: a queue
//! pair's own [`QueuePair::poll`] puts its requests on the wire and processes the arrived packets, as in `iwarp`.
//! So a test that passes here does not rely on a card that makes progress without polls. It makes the same checks
//! as `iwarp` (tags, rights, bounds, posted receives, IRD); they end the connection with the same codes.
//!
//! **Faults.** [`Options::latency`] and [`Options::jitter`] delay packets on the wire without reordering them.
//! [`Options::reorder`] delays completions and reorders those of independent kinds (the send queue, Reads,
//! receives). [`Options::cut_at`] breaks the connection in the middle of the n-th operation.
//!
//! It counts work requests and connections like `iwarp`, but no bytes and frames, because packets are not encoded.

mod fabric;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use counters::Block;
use env::{BoxFuture, Env};
use parking_lot::Mutex;

use crate::activity::{Activity, Role};
use crate::{Completion, Down, Exposed, Exposure, QueuePair, QueuePairCaps, RdmaError, Rights, Wr, WrId};
use fabric::{Fabric, Side};

/// Options of a pair; the same for both sides.
#[derive(Clone)]
pub struct Options {
    /// Source of time and random numbers.
    pub env: Env,
    /// Time that a packet is on the wire; needs a Tokio runtime unless it is zero.
    pub latency: Duration,
    /// Maximum random addition to the latency of each packet.
    pub jitter: Duration,
    /// Whether completions of independent requests are reordered and delayed.
    pub reorder: bool,
    /// The connection breaks while the operation with this number (from 1, both directions counted) arrives.
    pub cut_at: Option<u64>,
    /// Maximum number of RDMA Reads that each side answers concurrently.
    pub ird: u32,
    /// Maximum number of RDMA Reads that each side starts concurrently; the other side's `ird` lowers it.
    pub ord: u32,
    /// Maximum number of outstanding work requests, for sends and receives each.
    pub max_wr: usize,
    /// Maximum number of buffers in one scattered payload.
    pub max_sge: usize,
    /// Maximum number of exposed buffers.
    pub max_regions: usize,
}

impl Options {
    /// No faults, no latency, large limits.
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
    let side = |side, role| {
        let (fabric, activity) = (Arc::clone(&fabric), Activity::new("sim", role));
        SimQueuePair { fabric, side, caps, env: env.clone(), timer: None, activity }
    };
    (side(Side::A, Role::Initiated), side(Side::B, Role::Accepted))
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
