//! The metadata of a pool as values, and the operations that change it.
//!
//! A [`State`] is a persistent value: a clone costs a few pointers whatever the pool's size, is not affected by later
//! changes, and shares all unchanged memory (`tree`).
//!
//! The journal holds [`Op`]s, the checkpoint a whole [`State`]; there is no other way to change one. [`State::apply`]
//! checks every operation against the invariants before it changes anything, so a damaged record with a matching
//! checksum is refused and does not panic.
//!
//! Invariants:
//! 1. A slab of a disk belongs to one row at most; `used` says so for every slab of every disk, and is derived.
//! 2. The copies of a column lie on different disks.
//! 3. A row that is not new has, for each region, enough current slabs to recover it, on present or absent disks; a
//!    log has a complete replica. Marking regions stale never loses data.
//! 4. Numbers of disks, numbers of spaces and slab generations only increase.
//! 5. A voter is a present disk.
//! 6. A row has at most one moving slab. Its target is a copy like the others, of the same column as the slab that it
//!    replaces. The old slab is freed only when the target has all of its current regions.
//! 7. A request of an owner counts once: its number is higher than that of the last one of the same epoch.

mod apply;
mod parts;
mod records;
mod shape;
mod spaces;
#[cfg(test)]
mod tests;
mod used;

pub use apply::InvalidOp;
pub use pool_seam::{
    Absence, FaultDomains, LOST_MAX, LossRecord, MediaClass, Moving, Provisioning, Resiliency, Row,
    ScrubRecord, Shape, SlabCopy, SlabPlace, Slabs, SpaceRecord, Tree,
};
pub use records::{DiskRecord, Op, Policy, Presence, Usage};
pub use spaces::{NewSlab, OwnerAnswers, SpaceOp};
pub(crate) use spaces::{Refusal, RequestOutcome, carry_out};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{DiskNumber, PoolId, SpaceId, voters};
use used::Used;

/// The number of epochs that a pool records.
pub const EPOCHS_MAX: usize = 4096;

/// The number of openings with an accepted loss that a pool records.
pub const GIVEN_UP_MAX: usize = 64;

/// The whole metadata of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The pool's identity.
    pub pool: PoolId,
    /// Its name.
    pub name: String,
    /// Bytes of data in a slab: a power of two.
    pub slab_bytes: u64,
    /// The disks, including absent ones.
    pub disks: Arc<BTreeMap<DiskNumber, DiskRecord>>,
    /// The voters, which keep this metadata.
    pub voters: BTreeSet<DiskNumber>,
    /// The spaces, with their rows.
    pub spaces: Tree<SpaceId, Arc<SpaceRecord>>,
    /// The number of the next disk.
    pub next_disk: u16,
    /// The number of the next space.
    pub next_space: u32,
    /// The generation of the next allocated slab.
    pub next_generation: u32,
    /// The newest [`EPOCHS_MAX`] openings of the pool: the epoch, and the random number drawn with it. If a disk's
    /// label has another random number for its epoch, or an epoch that is missing here, the disk was used in another
    /// history.
    pub epochs: Arc<BTreeMap<u64, u64>>,
    /// The newest [`GIVEN_UP_MAX`] openings, by epoch, that gave up the data of absent disks, each with the sequence
    /// of the last record before it. A disk of an earlier epoch with records after that sequence has continued
    /// without this history.
    pub given_up: Arc<BTreeMap<u64, u64>>,
    /// The administrator's settings.
    pub policy: Policy,
    used: Used,
    index: spaces::Index,
}

impl State {
    /// A new pool without disks.
    pub fn new(pool: PoolId, name: String, slab_bytes: u64) -> State {
        State {
            pool,
            name,
            slab_bytes,
            disks: Arc::default(),
            voters: BTreeSet::new(),
            spaces: Tree::default(),
            next_disk: 0,
            next_space: 0,
            next_generation: 1,
            epochs: Arc::default(),
            given_up: Arc::default(),
            policy: Policy::default(),
            used: Used::default(),
            index: spaces::Index::default(),
        }
    }

    /// The epoch that the pool was last opened with; 0 for one that never was.
    pub fn epoch(&self) -> u64 {
        self.epochs.last_key_value().map_or(0, |(e, _)| *e)
    }

    /// The largest number of simultaneous disk failures that a space promises to survive; at least one.
    pub fn failures_promised(&self) -> usize {
        self.spaces.values().map(|s| s.resiliency.failures()).max().unwrap_or(1).max(1)
    }

    /// How many voters must remain so that the pool may drop the others and continue.
    pub fn quorum_to_continue(&self) -> usize {
        voters::quorum_to_continue(self.voters.len(), self.failures_promised())
    }

    /// How many of the voters must be seen to open the pool.
    pub fn needed_to_open(&self) -> usize {
        voters::needed_to_open(self.voters.len(), self.failures_promised())
    }

    /// Whether the disk is present and in use.
    pub fn is_present(&self, disk: DiskNumber) -> bool {
        self.disks.get(&disk).is_some_and(|d| d.presence == Presence::Present)
    }

    /// The slabs of a disk that rows use.
    pub fn slabs_used(&self, disk: DiskNumber) -> impl Iterator<Item = u32> + '_ {
        self.used.of(disk)
    }

    /// The number of slabs, on all disks, that rows use.
    pub fn slabs_allocated(&self) -> usize {
        self.used.total()
    }

    /// How many slabs of a disk are free.
    pub fn slabs_free(&self, disk: DiskNumber) -> u32 {
        let total = self.disks.get(&disk).map_or(0, |d| d.slabs);
        total - self.used.count(disk)
    }

    /// The lowest free slabs of a disk, in order.
    pub fn free_slabs(&self, disk: DiskNumber) -> impl Iterator<Item = u32> + '_ {
        let total = self.disks.get(&disk).map_or(0, |d| d.slabs);
        self.used.free(disk, total)
    }

    /// Marks a slab as used, so that no row gets it now.
    pub(crate) fn take_slab(&mut self, place: SlabPlace) {
        self.used.insert(place);
    }

    /// The operations that remove a disk from service. `answers`: the stale regions that the owners of its spaces
    /// state; for a space without an answer the disk is unaccounted. A voter is also dropped.
    pub fn removal_ops(&self, disk: DiskNumber, reason: Absence, answers: &OwnerAnswers) -> Vec<Op> {
        let mut ops = self.account_for_removal(disk, answers);
        if self.voters.contains(&disk) {
            let left = self.voters.iter().copied().filter(|v| *v != disk).collect();
            ops.push(Op::Voters { voters: left });
        }
        ops.push(Op::DiskAbsent { disk, reason });
        ops
    }
}
