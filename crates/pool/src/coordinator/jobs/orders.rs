//! Orders to owners, and their turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use env::{Env, Io};
use parking_lot::Mutex;
use pool_seam::{JobId, JobOrder, JobReport, Owner, Progress, SeamError, Turn};

use crate::jobs::{Job, PieceAnswer, Progress as JobProgress};
use crate::{Pool, RowNumber, SpaceId};

/// The pieces in a turn of an order from another coordinator, whose job is unknown.
const PIECES: u8 = 4;

/// The longest time that a turn waits for the board to change.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay before an order without a known answer is repeated.
const RETRY: Duration = Duration::from_millis(100);

/// The number of bits in an order's number below the job's number.
const JOB_SHIFT: u32 = 32;

/// See the module.
#[derive(Default)]
pub(crate) struct Orders {
    running: Mutex<BTreeMap<JobId, Running>>,
    /// Rows whose move has an order.
    moving: Mutex<BTreeSet<(SpaceId, RowNumber)>>,
    next: AtomicU64,
}

struct Running {
    job: Arc<JobProgress>,
    /// The largest piece in bytes, and how many pieces the owner processes concurrently.
    piece_bytes: u64,
    most: u8,
    /// The number of pieces in the current turn.
    outstanding: u8,
    /// The reported progress.
    done: Progress,
}

/// A running order; it is stopped if it is dropped before its end.
pub(super) struct Order {
    orders: Arc<Orders>,
    owner: Arc<dyn Owner>,
    id: JobId,
    is_running: bool,
}

/// The right to order a row's move.
pub(super) struct Moving<'a> {
    orders: &'a Orders,
    of: (SpaceId, RowNumber),
}

impl Orders {
    /// Takes the right to order a row's move. Returns `None` if another order has it.
    pub(super) fn moving(&self, space: SpaceId, row: RowNumber) -> Option<Moving<'_>> {
        let is_free = self.moving.lock().insert((space, row));
        is_free.then_some(Moving { orders: self, of: (space, row) })
    }

    fn begin(self: &Arc<Orders>, owner: Arc<dyn Owner>, job: &Job, piece_bytes: u64, most: u8) -> Order {
        let id =
            JobId(job.id().0 << JOB_SHIFT | self.next.fetch_add(1, Ordering::Relaxed) & u64::from(u32::MAX));
        let running = Running {
            job: Arc::clone(job.progress()),
            piece_bytes,
            most,
            outstanding: 0,
            done: Progress::default(),
        };
        self.running.lock().insert(id, running);
        Order { orders: Arc::clone(self), owner, id, is_running: true }
    }

    /// Processes an owner's report: the outstanding pieces are complete. Returns `None` if there is no such order.
    fn report(&self, id: JobId, done: Progress) -> Option<()> {
        let mut running = self.running.lock();
        let order = running.get_mut(&id)?;
        let before = std::mem::replace(&mut order.done, done);
        let bytes = done.bytes.saturating_sub(before.bytes);
        order.job.add_done(bytes);
        order.job.add_damaged_units(
            done.healed.saturating_sub(before.healed),
            done.lost.saturating_sub(before.lost),
        );
        order.pieces_end(bytes);
        Some(())
    }

    async fn turn(&self, env: &Env, id: JobId) -> Turn {
        let deadline = env.now() + TURN_TIMEOUT;
        loop {
            let later = {
                let mut running = self.running.lock();
                let workers = running.len();
                // The order's caller was dropped.
                let Some(order) = running.get_mut(&id) else { return Turn::Stop };
                match order.job.request_pieces(order.piece_bytes, order.most, workers) {
                    PieceAnswer::Stop => return Turn::Stop,
                    PieceAnswer::Go(pieces) => {
                        order.outstanding += pieces;
                        return Turn::Go { pieces };
                    }
                    PieceAnswer::Wait(next) => next,
                }
            };
            if env.now() >= deadline {
                return Turn::Wait;
            }
            later.wait(deadline).await;
        }
    }
}

impl Running {
    fn pieces_end(&mut self, bytes: u64) {
        let pieces = std::mem::take(&mut self.outstanding);
        self.job.pieces_end(pieces, (u64::from(pieces) * self.piece_bytes).saturating_sub(bytes));
    }
}

impl Order {
    /// Sends the order and waits for its end.
    pub(super) async fn run(&mut self, env: &Env, order: JobOrder) -> Result<JobReport, SeamError> {
        let result = loop {
            match self.owner.run(self.id, order.clone()).wait().await {
                Err(SeamError::Unknown) => env.sleep(RETRY).await,
                result => break result,
            }
        };
        self.is_running = false;
        if let Ok(report) = &result {
            let _ = self.orders.report(self.id, report.progress);
        }
        result
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        let running = self.orders.running.lock().remove(&self.id);
        if let Some(mut running) = running {
            running.pieces_end(0);
        }
        if self.is_running {
            self.owner.stop(self.id);
        }
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.orders.moving.lock().remove(&self.of);
    }
}

impl Pool {
    /// The answer to [`pool_seam::Coordinator::turn`].
    pub(in crate::coordinator) fn next_turn(&self, id: JobId, done: Progress) -> Io<Turn> {
        if self.orders().report(id, done).is_none() {
            return Io::Done(Turn::Go { pieces: PIECES });
        }
        let (orders, env) = (Arc::clone(self.orders()), self.metadata().env.clone());
        Io::pending(async move { orders.turn(&env, id).await })
    }

    /// Begins an order to the owner of a space, with pieces of `piece_bytes`, up to `most` of them concurrently.
    /// Errors: [`SeamError::Failed`]: no owner is linked.
    pub(super) fn begin_order(
        &self,
        job: &Job,
        space: SpaceId,
        piece_bytes: u64,
        most: usize,
    ) -> Result<Order, SeamError> {
        let owner = self.metadata().owners().of(space).ok_or_else(|| self.not_in_use(space))?;
        let most = u8::try_from(most).unwrap_or(u8::MAX).max(1);
        Ok(self.orders().begin(owner, job, piece_bytes, most))
    }

    /// Runs an order to its end.
    pub(super) async fn order(
        &self,
        job: &Job,
        space: SpaceId,
        order: JobOrder,
        piece_bytes: u64,
        most: usize,
    ) -> Result<JobReport, SeamError> {
        let mut given = self.begin_order(job, space, piece_bytes, most)?;
        given.run(&self.metadata().env, order).await
    }
}
