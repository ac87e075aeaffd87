//! Determines which of the present disks have current metadata, and whether they are enough.

use std::collections::{BTreeMap, BTreeSet};

use super::{Candidates, OpenError, OpenOptions, shrunk};
use crate::format::Label;
use crate::metadata::{History, Point};
use crate::pool::plan::{Freshness, LabelContents, continued_alone, freshness};
use crate::{DiskNumber, State};

/// The result of comparing the metadata of all disks.
pub(super) struct Verdict<'a> {
    pub(super) newest: &'a History,
    /// The voters that are present and current.
    pub(super) seen: BTreeSet<DiskNumber>,
    /// The voters, and how many of them must be seen.
    voters: BTreeSet<DiskNumber>,
    needed: usize,
    pub(super) labels: BTreeMap<DiskNumber, LabelContents>,
}

/// Computes the newest state, and the voters that are current. `register` has the voters if the authority is not on
/// the disks; one of them is enough then. `is_written`: the previous owner may have written records while the disks
/// were read, so a disk that was read early may lack records and seem stale. It counts nevertheless if its records
/// are of the newest epoch; `Pool::open` reads the disks again after that owner's lease has ended.
pub(super) fn judge<'a>(
    found: &'a Candidates,
    register: Option<&BTreeSet<DiskNumber>>,
    is_written: bool,
    options: &OpenOptions,
) -> Result<Verdict<'a>, OpenError> {
    let Candidates { disks: candidates, newest, .. } = found;
    let newest = newest.as_ref().ok_or(OpenError::NoMetadata { disks: candidates.len() })?;
    let mut labels = BTreeMap::new();
    let (mut seen, mut old) = (BTreeSet::new(), BTreeSet::new());
    for (&number, c) in candidates {
        let history = c.metadata.history.as_ref().ok();
        let votes = newest.state.voters.contains(&number);
        let label = LabelContents {
            id: c.label.id,
            epoch: c.label.epoch,
            incarnation: c.label.incarnation,
            sequence: c.label.sequence,
            behind: votes && history.is_some_and(|h| is_behind(&h.point, &newest.point)),
            continued_alone: history.is_some_and(|h| continued_alone(&newest.state, &h.point)),
        };
        let fresh = freshness(&newest.state, number, &label);
        let of = |point: &Point| (point.epoch, point.incarnation);
        let may_be_late = is_written
            && fresh == Freshness::Old
            && history.is_some_and(|h| of(&h.point) == of(&newest.point));
        let ours = newest.state.disks.get(&number).is_some_and(|r| r.id == c.label.id);
        if let Some(history) = history.filter(|_| votes && ours) {
            match (fresh == Freshness::Current || may_be_late) && !is_before(&history.point, &c.label) {
                true => seen.insert(number),
                false => old.insert(number),
            };
        }
        labels.insert(number, label);
    }
    // If no other voter is present, stale data is better than none, for callers that accept the loss.
    if seen.is_empty() && options.accept_loss {
        seen = old;
    }
    let (mut voters, mut needed) = (newest.state.voters.clone(), newest.state.needed_to_open());
    if let Some(register) = register {
        let current: BTreeSet<_> = seen.intersection(register).copied().collect();
        (voters, needed) = (register.clone(), 1);
        match current.is_empty() && options.accept_loss {
            true => needed = usize::MAX,
            false => seen = current,
        }
    }
    Ok(Verdict { newest, seen, voters, needed, labels })
}

/// A disk gets its label of an epoch when a checkpoint of that epoch is durable on every voter; a later voter gets a
/// newer label. So a voter whose history ends before its label has lost that checkpoint: its older checkpoint is
/// intact, but stale.
fn is_before(point: &Point, label: &Label) -> bool {
    point.epoch < label.epoch
}

/// A record is written when the previous record is durable on every voter, or a voter without it has been dropped. So
/// a current voter lacks at most the last record.
fn is_behind(point: &Point, newest: &Point) -> bool {
    point.epoch == newest.epoch
        && point.incarnation == newest.incarnation
        && point.sequence + 1 < newest.sequence
}

/// Rule 3. `Ok(true)`: too few voters are seen, and the loss is accepted.
pub(super) fn enough(
    verdict: &Verdict<'_>,
    found: &Candidates,
    options: &OpenOptions,
) -> Result<bool, OpenError> {
    let state = &verdict.newest.state;
    let Verdict { voters, needed, .. } = verdict;
    let (seen, needed) = (verdict.seen.len(), *needed);
    if seen >= needed {
        return Ok(false);
    }
    if options.accept_loss && seen > 0 {
        return Ok(true);
    }
    if let Some(ignored) = found.shortened.first() {
        // The shortened disk is the missing one.
        return Err(shrunk(ignored));
    }
    let name = |d: &DiskNumber| {
        let name = state.disks.get(d).map_or("", |r| r.name.as_str());
        match found.disks.contains_key(d) {
            true => format!("{name}, which is present with an older state of the pool"),
            false => name.to_owned(),
        }
    };
    let missing = voters.difference(&verdict.seen).map(|d| (*d, name(d))).collect();
    let gone: Vec<_> = state.disks.keys().filter(|d| !found.disks.contains_key(d)).copied().collect();
    let stale = exposed(state, &gone);
    Err(OpenError::TooFewVoters { seen, voters: voters.len(), needed, missing, stale })
}

/// The spaces with slabs on these disks.
pub(super) fn exposed(state: &State, disks: &[DiskNumber]) -> Vec<String> {
    let on = |r: &crate::Row| r.slabs.iter().any(|c| disks.contains(&c.place.disk));
    let spaces = state.spaces.values().filter(|record| record.rows.values().any(on));
    spaces.map(|record| record.name.clone()).collect()
}

pub(super) fn refuse_divergence(verdict: &Verdict<'_>, options: &OpenOptions) -> Result<(), OpenError> {
    let state = &verdict.newest.state;
    let known = |d: &DiskNumber, l: &LabelContents| state.disks.get(d).is_some_and(|r| r.id == l.id);
    let diverged: Vec<_> = verdict
        .labels
        .iter()
        .filter(|(d, l)| known(d, l) && freshness(state, **d, l) == Freshness::Diverged)
        .map(|(d, _)| *d)
        .collect();
    match diverged.is_empty() || options.accept_loss {
        true => Ok(()),
        false => Err(OpenError::Diverged(diverged)),
    }
}
