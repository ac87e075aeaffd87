//! Jobs of an owner, ordered by the coordinator and done piece by piece. A piece is a region of a row; the coordinator
//! limits how many run at a time ([`pool_seam::Coordinator::turn`]). Completed pieces are recorded in the metadata, so
//! a job that ends early is simply ordered again.

mod convert;
mod fill;
mod filled;
mod moves;
mod reshape;
mod scrub;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use pool_seam::{GROUP, JobId, JobOrder, JobReport, NotMoved, Progress, RowNumber, SeamError, Turn};

use crate::SpaceError;
use crate::checkpoint::OpenPiece;
use crate::owner::{Inner, RETRY, Space};
pub(crate) use filled::ToFlush;

/// The running jobs.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<BTreeMap<JobId, Running>>);

struct Running {
    is_stopped: Arc<AtomicBool>,
    end: Shared<BoxFuture<Result<JobReport, SpaceError>>>,
}

/// Units that are locked at a time.
pub(crate) const CHUNK: usize = 64;

/// A running job.
pub(crate) struct Job {
    inner: Arc<Inner>,
    id: JobId,
    is_stopped: Arc<AtomicBool>,
    done: Progress,
    /// The copies that the job could not process, and why.
    not_moved: BTreeMap<(RowNumber, u8), NotMoved>,
}

impl Jobs {
    /// Ends a job after its outstanding pieces.
    pub(crate) fn stop(&self, id: JobId) {
        if let Some(running) = self.0.lock().get(&id) {
            running.is_stopped.store(true, Ordering::Relaxed);
        }
    }
}

impl Space {
    /// Runs a job in a task, or waits for the running one with this id.
    pub(crate) fn job(
        &self,
        id: JobId,
        order: JobOrder,
    ) -> impl Future<Output = Result<JobReport, SpaceError>> + use<> {
        let mut jobs = self.0.jobs.0.lock();
        if let Some(running) = jobs.get(&id) {
            return running.end.clone();
        }
        let (inner, is_stopped) = (Arc::clone(&self.0), Arc::<AtomicBool>::default());
        let stop = Arc::clone(&is_stopped);
        let end: BoxFuture<Result<JobReport, SpaceError>> = Box::pin(self.0.env.run(async move {
            let of = Arc::clone(&inner);
            let job =
                Job { inner, id, is_stopped: stop, done: Progress::default(), not_moved: BTreeMap::new() };
            let report = job.run(order).await;
            of.jobs.0.lock().remove(&id);
            report
        }));
        let end = end.shared();
        jobs.insert(id, Running { is_stopped, end: end.clone() });
        end
    }
}

impl Job {
    async fn run(mut self, order: JobOrder) -> Result<JobReport, SpaceError> {
        match order {
            JobOrder::Resync(disk) => self.resync(disk).await?,
            JobOrder::Fill(moves) => self.fill(moves).await?,
            JobOrder::Reshape => self.reshape().await?,
            JobOrder::Scrub(from) => self.scrub(from).await?,
            JobOrder::Resolve => self.resolve().await?,
        }
        let not_moved = self.not_moved.into_iter().map(|((row, index), why)| (row, index, why)).collect();
        Ok(JobReport { progress: self.done, not_moved })
    }

    async fn resolve(&mut self) -> Result<(), SpaceError> {
        let pieces = self.inner.to_resolve();
        let bytes = |piece: &OpenPiece| piece.groups.len() as u64 * GROUP;
        self.done.total = pieces.iter().map(bytes).sum();
        let mut left = &pieces[..];
        while !left.is_empty() {
            let turn = self.turn().await?;
            if turn == 0 {
                let rows = left.iter().flat_map(|piece| &piece.groups).map(|key| (key.row, 0));
                self.note_unfinished(rows);
                return Ok(());
            }
            let (now, rest) = left.split_at(turn.min(left.len()));
            for piece in now {
                self.inner.resolve_piece(piece).await?;
                self.done.bytes += bytes(piece);
            }
            left = rest;
        }
        Ok(())
    }

    /// Returns how many pieces may run now; 0: the job must end.
    async fn turn(&self) -> Result<usize, SpaceError> {
        loop {
            if self.is_stopped.load(Ordering::Relaxed) || self.inner.writes.is_closed() {
                return Ok(0);
            }
            match self.inner.turn(self.id, self.done).await {
                Ok(Turn::Go { pieces }) if pieces > 0 => return Ok(pieces.into()),
                Ok(Turn::Stop) => return Ok(0),
                Ok(Turn::Go { .. } | Turn::Wait)
                | Err(SeamError::Unknown | SeamError::Moved | SeamError::Suspended(_)) => {
                    self.inner.env.sleep(RETRY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn note_unfinished(&mut self, slabs: impl IntoIterator<Item = (RowNumber, u8)>) {
        self.not_moved.extend(slabs.into_iter().map(|slab| (slab, NotMoved::Unfinished)));
    }
}
