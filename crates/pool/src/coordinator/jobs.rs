//! The jobs of spaces. A job of the pool's board ([`Pool::jobs`]) becomes orders: one for an owner and a
//! part of the work. The owners do them piece by piece, and ask for a turn before each few pieces.
//!
//! Invariants:
//! 1. An order has a number of its own, so one owner may have several orders of a job at a time.
//! 2. The pieces of a turn are outstanding until the order's next turn or its end.
//! 3. An order whose caller has gone is stopped.
//! 4. One order at a time is about a row's move.

mod moves;
mod optimize;
mod orders;
mod reshape;
mod resync;
mod scrub;

use futures_util::{StreamExt, stream};
use pool_seam::{GROUP, JobOrder, JobReport, Regions, SeamError};

pub(crate) use orders::Orders;

use crate::jobs::Job;
use crate::{Pool, SpaceId};

/// Spaces whose owners work for a job at a time.
const SPACES_AT_ONCE: usize = 8;

impl Pool {
    /// Decides what a crash has left open, in all spaces; what absent disks have stays open. Errors: the first; the
    /// other spaces are done all the same.
    pub async fn resolve_all(&self, job: &Job) -> Result<(), SeamError> {
        // Owners ask for no turns here.
        let Some(_turn) = job.piece(0).await else { return Ok(()) };
        let spaces = self.metadata().owners().all();
        let each = spaces.into_iter().map(|(space, _)| self.order(job, space, JobOrder::Resolve, 0, 1));
        first_error(at_once(SPACES_AT_ONCE, each).await)
    }

    /// Whether a crash has left something open in a space whose owner is linked.
    pub fn in_doubt(&self) -> bool {
        self.metadata().owners().all().iter().any(|(_, owner)| owner.status().unverified > 0)
    }

    /// The largest piece of a copy that an owner fills at a time, and how many a slab has.
    fn regions(&self) -> (u64, usize) {
        let regions = self.metadata().read(|s| Regions::new(s.slab_bytes));
        (regions.groups(0).len() as u64 * GROUP, regions.count() as usize)
    }

    fn not_in_use(&self, space: SpaceId) -> SeamError {
        let name = self.metadata().read(|s| s.spaces.get(&space).map(|record| record.name.clone()));
        let name = name.unwrap_or_else(|| format!("space {}", space.0));
        SeamError::Failed(format!("{name} is not open, so its copies cannot be read or written"))
    }
}

/// Runs all of them, so many at a time.
async fn at_once<T>(count: usize, all: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    // Collected first: a stream that makes them on the way could not be sent to another thread.
    let all: Vec<_> = all.into_iter().collect();
    stream::iter(all).buffer_unordered(count).collect().await
}

fn first_error(reports: Vec<Result<JobReport, SeamError>>) -> Result<(), SeamError> {
    reports.into_iter().try_for_each(|report| report.map(drop))
}
