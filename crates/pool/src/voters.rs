//! How many voters are needed to continue, and to open: the arithmetic of `docs/0001-pool.md`, "Current metadata:
//! voters".
//!
//! Invariants, for `n` voters and every `f`:
//! 1. Two sets that may open have a voter in common ([`needed_to_open`] is more than half).
//! 2. If the voters of one set may open the pool without those of another set, the other set cannot have committed
//!    without the first.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::domains::Level;
use crate::{DiskNumber, DiskRecord, Presence, State};

/// How many voters must remain so that the pool may drop the others and continue: `W(n, f)`.
///
/// `failures` is the largest number of lost disks that a space of the pool promises to survive.
pub fn quorum_to_continue(voters: usize, failures: usize) -> usize {
    let majority = voters / 2 + 1;
    majority.min(voters.saturating_sub(failures.max(1))).max(1)
}

/// How many of the newest voters an opening must see.
pub fn needed_to_open(voters: usize, failures: usize) -> usize {
    let go_on = quorum_to_continue(voters, failures);
    go_on.max(voters + 1 - go_on)
}

/// The number of voters of a pool with enough disks: two may be missing at any time.
pub const VOTERS: usize = 5;

/// The voters that the pool should have: the present ones, and present disks that `fits` accepts until there are
/// [`VOTERS`], first from fault domains without a voter.
///
/// Retired disks are chosen last, but may be voters: surviving data is useless if the metadata does not survive.
pub fn choose(state: &State, fits: impl Fn(DiskNumber) -> bool) -> BTreeSet<DiskNumber> {
    let mut chosen = state.voters.clone();
    let mut candidates: Vec<(bool, DiskNumber)> = state
        .disks
        .iter()
        .filter(|(d, r)| !chosen.contains(d) && r.presence == Presence::Present && fits(**d))
        .map(|(d, r)| (r.usage.is_leaving(), *d))
        .collect();
    while chosen.len() < VOTERS && !candidates.is_empty() {
        let crowd = |d: DiskNumber| chosen.iter().map(|c| closeness(state, *c, d)).max().unwrap_or(0);
        let rank = |i: &usize| (candidates[*i].0, crowd(candidates[*i].1), *i);
        let at = (0..candidates.len()).min_by_key(rank).unwrap_or(0);
        chosen.insert(candidates.remove(at).1);
    }
    chosen
}

/// A voter in the same fault domain as others, and a better disk to replace it. Returns `None` if the voters are
/// separated as well as possible.
///
/// Pools grow by enclosures: without this function the voters would stay in the first enclosure for ever. Each such
/// change improves the separation, so the changes terminate. A retired voter stays a voter, and no retired disk
/// becomes one by this function.
pub fn apart(state: &State, fits: impl Fn(DiskNumber) -> bool) -> Option<(DiskNumber, DiskNumber)> {
    let crowd = |d: DiskNumber, without: DiskNumber| {
        let others = state.voters.iter().filter(|v| **v != without && **v != d);
        others.map(|v| u32::from(closeness(state, *v, d)).pow(2)).sum::<u32>()
    };
    let may = |d: &DiskNumber, r: &DiskRecord| {
        !state.voters.contains(d) && r.presence == Presence::Present && !r.usage.is_leaving() && fits(*d)
    };
    let candidates: Vec<_> = state.disks.iter().filter(|(d, r)| may(d, r)).map(|(d, _)| *d).collect();
    let pairs = state.voters.iter().flat_map(|out| candidates.iter().map(move |new| (*out, *new)));
    let gain = |(out, new): (DiskNumber, DiskNumber)| {
        crowd(out, out).checked_sub(crowd(new, out)).filter(|g| *g > 0).map(|g| (g, Reverse((new, out))))
    };
    pairs.filter_map(gain).max().map(|(_, Reverse((new, out)))| (out, new))
}

/// The nearest fault domain that two disks share: 0 none known, 1 the rack, 2 the node, 3 the enclosure.
fn closeness(state: &State, a: DiskNumber, b: DiskNumber) -> u8 {
    let (Some(a), Some(b)) = (state.disks.get(&a), state.disks.get(&b)) else { return 0 };
    let is_same = |level: &Level| {
        let (a, b) = (level.name_of(&a.domains), level.name_of(&b.domains));
        !a.is_empty() && a == b
    };
    Level::ALL.iter().rposition(is_same).map_or(0, |level| level as u8 + 1)
}

#[cfg(test)]
mod tests;
