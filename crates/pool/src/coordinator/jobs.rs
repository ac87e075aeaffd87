//! The jobs of spaces. A job of the pool's board ([`Pool::jobs`]) becomes orders: one for an owner and a part of the
//! work. The owners work on them piece by piece, and request a turn before every few pieces.
//!
//! Invariants:
//! 1. An order has an id of its own, so one owner may have several orders of a job at a time.
//! 2. The pieces of a turn are outstanding until the order's next turn or its end.
//! 3. An order whose caller was dropped is stopped.
//! 4. A row's move has at most one order at a time.

mod moves;
mod optimize;
mod orders;
mod reshape;
mod resync;
mod scrub;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use pool_seam::{GROUP, JobOrder, JobReport, Regions, SeamError};

pub(crate) use orders::Orders;

use crate::jobs::Job;
use crate::{DiskNumber, Pool, SpaceId};

/// Spaces whose owners work for a job at a time.
const SPACES_AT_ONCE: usize = 8;

impl Pool {
    /// Decides the undecided units after a crash, in all spaces; units on absent disks stay undecided. Errors: the
    /// first one; the other spaces are processed nevertheless.
    pub async fn resolve_all(&self, job: &Job) -> Result<(), SeamError> {
        // Owners request no turns for this job.
        let Some(_turn) = job.wait_for_piece(0).await else { return Ok(()) };
        let spaces = self.metadata().owners().all();
        let each = spaces.into_iter().map(|(space, _)| self.order(job, space, JobOrder::Resolve, 0, 1));
        first_error(at_once(SPACES_AT_ONCE, each).await)
    }

    /// The open spaces with undecided units after a crash. A copy of such a space may be older than the metadata
    /// states, so no other copy may be taken out of service (0004, rule 9).
    pub fn unverified(&self) -> BTreeSet<SpaceId> {
        self.verification()
            .into_iter()
            .filter(|(_, is_verified)| !is_verified)
            .map(|(space, _)| space)
            .collect()
    }

    /// A space with slabs on a disk that is unverified, or not open.
    pub fn unverified_on(&self, disk: DiskNumber) -> Option<SpaceId> {
        let open = self.verification();
        self.read(|s| s.spaces_on(disk).find(|space| open.get(space) != Some(&true)))
    }

    /// The open spaces, and for each whether it has no undecided units.
    fn verification(&self) -> BTreeMap<SpaceId, bool> {
        let owners = self.metadata().owners().all().into_iter();
        owners.map(|(space, owner)| (space, owner.status().unverified == 0)).collect()
    }

    /// The largest piece of a copy that an owner fills at a time, in bytes, and the number of pieces in a slab.
    fn regions(&self) -> (u64, usize) {
        let regions = self.metadata().read(|s| Regions::new(s.slab_bytes));
        (regions.groups(0).len() as u64 * GROUP, regions.count() as usize)
    }

    fn not_in_use(&self, space: SpaceId) -> SeamError {
        let name = self.metadata().read(|s| s.spaces.get(&space).map(|record| record.name.clone()));
        let name = name.unwrap_or_else(|| format!("virtual disk {}", space.0));
        SeamError::Failed(format!("{name} is not open, so its copies cannot be read or written"))
    }
}

/// Runs all futures, `count` at a time.
async fn at_once<T>(count: usize, all: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    // Collected first: a stream that creates them lazily would not be `Send`.
    let all: Vec<_> = all.into_iter().collect();
    stream::iter(all).buffer_unordered(count).collect().await
}

fn first_error(reports: Vec<Result<JobReport, SeamError>>) -> Result<(), SeamError> {
    reports.into_iter().try_for_each(|report| report.map(drop))
}
