//! The first record of an epoch: the present and absent disks. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::metadata::Point;
use crate::state::OwnerAnswers;
use crate::{Absence, DiskId, DiskNumber, InvalidOp, Op, Presence, State};

/// The contents of a disk's label.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelContents {
    pub(super) id: DiskId,
    pub(super) epoch: u64,
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
    /// Whether it is a voter whose journal has lost records: its data may be stale, too.
    pub(super) behind: bool,
    /// See [`continued_alone`].
    pub(super) continued_alone: bool,
}

/// The age of a disk's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The disk is as recorded in the metadata.
    Current,
    /// The disk is an old image, or has lost writes.
    Old,
    /// The disk was used in another history of this pool.
    Diverged,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The record, without voters.
    pub(super) ops: Vec<Op>,
    pub(super) members: BTreeSet<DiskNumber>,
    /// Disks that were present and are absent now.
    pub(super) missing: Vec<DiskNumber>,
    /// Disks whose contents count as stale.
    pub(super) stale: Vec<DiskNumber>,
}

/// Whether a disk whose metadata ends at `point` has records that this history lacks: after the disk had been used
/// alone, the pool was opened without it and the loss was accepted.
pub(super) fn continued_alone(state: &State, point: &Point) -> bool {
    let mut later = state.given_up.range((Bound::Excluded(point.epoch), Bound::Unbounded));
    later.next().is_some_and(|(_, after)| point.sequence > *after)
}

/// The age of the disk's contents.
pub(super) fn freshness(state: &State, disk: DiskNumber, label: &LabelContents) -> Freshness {
    let remembered = state.disks.get(&disk).map_or(0, |d| d.label_sequence);
    let ours = state.epochs.get(&label.epoch) == Some(&label.incarnation);
    let forgotten = state.epochs.first_key_value().is_some_and(|(first, _)| label.epoch < *first);
    if label.continued_alone || (!ours && !forgotten) {
        Freshness::Diverged
    } else if !ours || label.sequence < remembered || label.behind {
        Freshness::Old
    } else {
        Freshness::Current
    }
}

/// Plans the record. `writers`: the present, healthy voters, which stay voters. `doubt`: the absent disks may be
/// newer, and their loss is accepted. `accept_loss`: the loss of the data of stale disks is accepted, too.
pub(super) fn plan(
    state: &State,
    labels: &BTreeMap<DiskNumber, LabelContents>,
    writers: &BTreeSet<DiskNumber>,
    doubt: bool,
    accept_loss: bool,
) -> Result<Plan, InvalidOp> {
    let mut plan = Plan::default();
    let mut draft = Draft { state: state.clone(), ops: Vec::new() };
    // First, so that no removed disk is a voter when it is removed.
    draft.add(Op::Voters { voters: writers.clone() })?;
    for (&disk, record) in &*state.disks {
        let Some(label) = labels.get(&disk).filter(|l| l.id == record.id) else {
            if record.presence == Presence::Present {
                plan.missing.push(disk);
                draft.remove_from_service(disk, Absence::NotFound)?;
            }
            if doubt {
                draft.add(Op::MarkDiskStale { disk })?;
            }
            continue;
        };
        let returns = match record.presence {
            Presence::Present => true,
            Presence::Absent(Absence::NotFound | Absence::Gone | Absence::Stale) => true,
            Presence::Absent(_) => false,
        };
        let stale = freshness(state, disk, label) != Freshness::Current;
        if stale {
            plan.stale.push(disk);
            draft.add(Op::MarkDiskStale { disk })?;
        }
        let keeps_old = stale && !accept_loss && draft.state.has_only_copies(disk);
        match (record.presence, returns && !keeps_old) {
            (Presence::Present, true) => drop(plan.members.insert(disk)),
            (Presence::Present, false) => draft.remove_from_service(disk, Absence::Stale)?,
            (Presence::Absent(_), true) => {
                draft.add(Op::DiskPresent { disk, membership: record.next_membership() })?;
                plan.members.insert(disk);
            }
            (Presence::Absent(_), false) => {}
        }
    }
    plan.ops = draft.ops;
    Ok(plan)
}

/// A record being built, and the state with it applied.
struct Draft {
    state: State,
    ops: Vec<Op>,
}

impl Draft {
    fn add(&mut self, op: Op) -> Result<(), InvalidOp> {
        self.state.apply(&op)?;
        self.ops.push(op);
        Ok(())
    }

    /// Removes a disk as unaccounted: the logs of its spaces have the writes in flight.
    fn remove_from_service(&mut self, disk: DiskNumber, reason: Absence) -> Result<(), InvalidOp> {
        let ops = self.state.removal_ops(disk, reason, &OwnerAnswers::new());
        ops.into_iter().try_for_each(|op| self.add(op))
    }
}
