//! Chooses the disks and slabs of a row. Pure and deterministic: the same state results in the same places.
//!
//! Invariants of the result of [`row`]:
//! 1. It can be applied: free slabs, each on another disk except in a simple space.
//! 2. New slabs go to present disks with automatic selection only (slabs of logs to disks for logs, too), and leave
//!    the [`reserve`] of each disk free. If necessary, absent disks are used as well, but never more than the row can
//!    lose. All these disks, and those of [`slab`], have media of the space's class.
//! 3. Domains are considered from the rack to the disk. The first level with enough domains with free slabs decides:
//!    no two copies of a column are in one domain of that level. For a parity row no two slabs are; if that is
//!    impossible, no more than may be lost.
//! 4. Among the disks that keep 3 possible for the rest of the row, the one with the most free slabs is chosen, then
//!    the first in an order that differs for each row. (When a disk is emptied and all disks have ample space, the
//!    disk with the least to read and write is chosen before that order applies.) For a log, disks for logs are
//!    preferred, then the fastest medium.

mod class;
mod eligible;
mod evacuation;
mod fit;
mod rebalance;
mod reshape;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::domains::{self, Domain, Level};
use crate::{DiskNumber, MediaClass, Resiliency, SlabCopy, SlabPlace, State, Usage};
pub use class::outside;
use eligible::Eligible;
pub use evacuation::{Evacuation, evacuation};
use fit::Fit;
pub use pool_seam::NoPlace;
use pool_seam::RowShape;
pub use rebalance::{Step, rebalance, to_rebalance};
pub(crate) use reshape::may_be_freed;
pub use reshape::reshaped;
pub(crate) use rows::{log_row, slab_by, sources};
pub use rows::{row, slab};

/// The number of slabs of a disk that new rows leave free for repairs and moves: one in 32. So a full pool can still
/// repair a slab. Rebuilding a whole disk needs a hot spare, or as much free space.
pub fn reserve(slabs: u32) -> u32 {
    slabs / 32
}

/// The number of levels of domains: those of [`Level::ALL`], and the disk.
const LEVELS: usize = Level::ALL.len() + 1;

/// Whether the row survives the loss of its slabs on disks that are not `usable`.
fn keeps_enough(shape: &RowShape, places: &[SlabPlace], usable: impl Fn(DiskNumber) -> bool) -> bool {
    let (group, failures) = (shape.slabs_in_set().max(1), shape.resiliency.failures());
    let away = |group: &[SlabPlace]| group.iter().filter(|p| !usable(p.disk)).count();
    places.chunks(group).all(|g| away(g) <= failures)
}

/// Places for a row on disks that `may` be used, `better` disks first. Among disks with equal free space, the one
/// with the lowest `tie` is chosen.
fn place(
    state: &State,
    shape: &RowShape,
    eligible: &Eligible<'_>,
    may: impl Fn(DiskNumber) -> bool,
    better: impl Fn(DiskNumber) -> bool,
    tie: impl Fn(DiskNumber) -> u64,
) -> Result<Vec<SlabPlace>, NoPlace> {
    let free: BTreeMap<DiskNumber, u32> = state
        .disks
        .iter()
        .filter(|(d, r)| eligible.takes(r) && may(**d))
        .map(|(d, r)| (*d, state.slabs_free(*d).saturating_sub(reserve(r.slabs))))
        .filter(|(_, free)| *free > 0)
        .collect();
    let needed = shape.slabs();
    let order = |d: DiskNumber| (!better(d), eligible.rank(d), std::cmp::Reverse(free[&d]), tie(d));
    let chosen = match shape.resiliency {
        Resiliency::Simple => simple(needed, &free),
        Resiliency::Mirror { copies } => {
            spread(state, &free, order, usize::from(shape.columns), usize::from(copies), 1)
        }
        parity => spread(state, &free, order, 1, needed, parity.failures()),
    };
    let chosen = chosen.ok_or(NoPlace::NoRoom { needed, disks: free.len(), media: eligible.media() })?;
    Ok(slabs(state, &chosen))
}

/// The disks from which a slab's disk should be separated by fault domains: those of the other copies of its column; in
/// a parity row, of all other slabs.
fn mates(resiliency: Resiliency, slabs: &[SlabCopy], index: usize) -> Vec<DiskNumber> {
    let group = match resiliency {
        Resiliency::Mirror { copies } => usize::from(copies),
        _ => slabs.len(),
    };
    let first = index / group * group;
    let others = (first..first + group).filter(|i| *i != index);
    others.filter_map(|i| slabs.get(i)).map(|c| c.place.disk).collect()
}

/// The number of mates with which a disk shares a rack, a node, an enclosure, and the disk itself.
fn shared(state: &State, mates: &[DiskNumber], disk: DiskNumber) -> [usize; LEVELS] {
    std::array::from_fn(|level| {
        let mine = domain(state, disk, level);
        mates.iter().filter(|m| domain(state, **m, level) == mine).count()
    })
}

/// Chooses `groups` groups of `size` disks, each disk once. At most `cap` disks of a group are in one domain of the
/// widest level that allows it. Disks that come first in `order` are preferred.
fn spread<O: Ord>(
    state: &State,
    free: &BTreeMap<DiskNumber, u32>,
    order: impl Fn(DiskNumber) -> O,
    groups: usize,
    size: usize,
    cap: usize,
) -> Option<Vec<DiskNumber>> {
    let (_, mut fit) = widest(state, free.keys().copied(), groups, size, cap)?;
    let mut by_room: Vec<DiskNumber> = free.keys().copied().collect();
    by_room.sort_by_key(|d| (order(*d), *d));
    let mut chosen = Vec::new();
    for _ in 0..groups * size {
        let disk = *by_room.iter().find(|d| fit.allows(**d))?;
        fit.take(disk);
        chosen.push(disk);
    }
    Some(chosen)
}

/// The widest level on which groups can be chosen, and the smallest number of disks of a group in one domain there.
/// Levels are counted from the rack.
fn widest<'a>(
    state: &'a State,
    disks: impl Iterator<Item = DiskNumber> + Clone,
    groups: usize,
    size: usize,
    cap: usize,
) -> Option<((usize, usize), Fit<'a>)> {
    let levels = (0..LEVELS).flat_map(|level| (1..=cap).map(move |cap| (level, cap)));
    let mut fits = levels.map(|(level, cap)| {
        let domains = disks.clone().map(|d| (d, domain(state, d, level)));
        ((level, cap), Fit::new(domains.collect(), groups, size, cap))
    });
    fits.find(|(_, fit)| fit.is_possible())
}

/// The number of columns for a space of this kind on these media, from one to `most`: the highest number with which
/// the copies are separated as well as with one column. With parity, the number of data columns: the highest with
/// which no domain has more slabs than may be lost, as with two columns.
pub fn columns(state: &State, resiliency: Resiliency, media: MediaClass, most: u8) -> u8 {
    let auto = |(d, r): (&DiskNumber, &crate::DiskRecord)| {
        (r.usage == Usage::AutoSelect && media.takes(r.media()) && state.is_present(*d)).then_some(*d)
    };
    let disks = state.disks.iter().filter_map(auto);
    let copies = match resiliency {
        Resiliency::Mirror { copies } => copies,
        Resiliency::Parity { parity } => {
            let level = |columns: u8| {
                let all = usize::from(columns + parity);
                widest(state, disks.clone(), 1, all, usize::from(parity)).map(|((level, _), _)| level)
            };
            let best = level(2);
            return (2..=most).rev().find(|n| best.is_some() && level(*n) == best).unwrap_or(most.max(1));
        }
        _ => return most.max(1),
    };
    let apart = |columns: u8| {
        widest(state, disks.clone(), usize::from(columns), usize::from(copies), 1).map(|(level, _)| level)
    };
    let best = apart(1);
    (2..=most).rev().find(|n| best.is_some() && apart(*n) == best).unwrap_or(1)
}

/// Places each slab on the disk with the fewest slabs of the row, then the most free space.
fn simple(slabs: usize, free: &BTreeMap<DiskNumber, u32>) -> Option<Vec<DiskNumber>> {
    let mut taken: BTreeMap<DiskNumber, u32> = BTreeMap::new();
    let mut chosen = Vec::new();
    for _ in 0..slabs {
        let of = |d: &DiskNumber| taken.get(d).copied().unwrap_or(0);
        let candidates = free.iter().filter(|(d, free)| of(d) < **free);
        let (disk, _) = candidates.min_by_key(|(d, free)| (of(d), std::cmp::Reverse(**free - of(d)), **d))?;
        chosen.push(*disk);
        *taken.entry(*disk).or_default() += 1;
    }
    Some(chosen)
}

/// The lowest free slab of each disk; the next one for each repetition of a disk.
fn slabs(state: &State, disks: &[DiskNumber]) -> Vec<SlabPlace> {
    let mut free = BTreeMap::new();
    let place = |disk: &DiskNumber| {
        let slabs = free.entry(*disk).or_insert_with(|| state.free_slabs(*disk));
        slabs.next().map(|slab| SlabPlace { disk: *disk, slab })
    };
    disks.iter().filter_map(place).collect()
}

/// A disk's domain of a level, counted from the rack. An unknown domain is replaced by that of the next lower level.
fn domain(state: &State, disk: DiskNumber, level: usize) -> Domain<'_> {
    domains::domain(state, disk, &Level::ALL[level..])
}
