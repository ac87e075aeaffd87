//! Whether groups of disks can be chosen so that no group has too many disks in one domain. Pure.
//!
//! The greedy choice from the domains with the most disks left succeeds whenever any choice does.

use std::collections::{BTreeMap, BTreeSet};

use crate::DiskNumber;
use crate::domains::Domain;

/// A choice in progress: one group after the other.
#[derive(Clone)]
pub(super) struct Fit<'a> {
    of: BTreeMap<DiskNumber, Domain<'a>>,
    taken: BTreeSet<DiskNumber>,
    /// Remaining disks of each domain.
    left: BTreeMap<Domain<'a>, usize>,
    /// The number of disks that the current group has in each domain.
    here: BTreeMap<Domain<'a>, usize>,
    in_group: usize,
    groups: usize,
    size: usize,
    cap: usize,
}

impl<'a> Fit<'a> {
    /// A choice of `groups` groups of `size` disks, with at most `cap` disks of a group in one domain.
    pub(super) fn new(
        of: BTreeMap<DiskNumber, Domain<'a>>,
        groups: usize,
        size: usize,
        cap: usize,
    ) -> Fit<'a> {
        let mut left = BTreeMap::new();
        of.values().for_each(|d| *left.entry(*d).or_default() += 1);
        let (taken, here) = (BTreeSet::new(), BTreeMap::new());
        Fit { of, taken, left, here, in_group: 0, groups, size, cap }
    }

    /// Whether the remaining disks can be chosen.
    pub(super) fn is_possible(&self) -> bool {
        let mut left = self.left.clone();
        let mut here = self.here.clone();
        let mut in_group = self.in_group;
        for _ in 0..self.groups {
            while in_group < self.size {
                let room = |d: &Domain<'_>| here.get(d).copied().unwrap_or(0) < self.cap;
                let fullest = left.iter().filter(|(d, n)| **n > 0 && room(d)).max_by_key(|(_, n)| **n);
                let Some(domain) = fullest.map(|(d, _)| *d) else { return false };
                left.entry(domain).and_modify(|n| *n -= 1);
                *here.entry(domain).or_default() += 1;
                in_group += 1;
            }
            here.clear();
            in_group = 0;
        }
        true
    }

    /// Whether this disk may be chosen next, so that the remaining ones can still be chosen.
    pub(super) fn allows(&self, disk: DiskNumber) -> bool {
        let Some(domain) = self.of.get(&disk) else { return false };
        if self.taken.contains(&disk) || self.here.get(domain).copied().unwrap_or(0) >= self.cap {
            return false;
        }
        let mut then = self.clone();
        then.take(disk);
        then.is_possible()
    }

    /// Chooses a disk.
    pub(super) fn take(&mut self, disk: DiskNumber) {
        let Some(domain) = self.of.get(&disk).copied() else { return };
        self.taken.insert(disk);
        self.left.entry(domain).and_modify(|n| *n -= 1);
        *self.here.entry(domain).or_default() += 1;
        self.in_group += 1;
        if self.in_group == self.size {
            self.in_group = 0;
            self.groups -= 1;
            self.here.clear();
        }
    }
}
