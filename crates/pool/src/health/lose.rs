//! The number of simultaneous failures that the pool survives without loss, by disk and by fault domain.

use std::collections::{BTreeMap, BTreeSet};

use pool_seam::code::Code;

use crate::domains::{Domain, Level, domain};
use crate::{DiskNumber, Row, SlabCopy, SpaceId, SpaceRecord, State};

/// How many disks, or fault domains, may fail simultaneously, in any combination, without data loss or an interruption
/// of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanLose {
    /// The number of disks.
    pub disks: usize,
    /// The first object that one more failure would affect.
    pub limit: Limit,
    /// For each level on which the pool has several domains: the number of domains, each with all of its disks.
    pub domains: Vec<(Level, usize)>,
}

/// The object that the next failure would affect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Too few disks with metadata would be left.
    Metadata,
    /// This space would lose data.
    Space(String),
}

/// See [`CanLose`]. Computes for each column, and for the metadata, the failures that it survives if the disks or
/// domains with most of its slabs fail first. The minimum is exact for disks. For domains with several slabs of a row
/// with local reconstruction it is a lower bound, as slabs of different groups may be lost. An unverified space
/// ([`crate::Pool::unverified`]) survives no failure.
pub fn can_lose(state: &State, unverified: &BTreeSet<SpaceId>) -> CanLose {
    let (disks, limit) = worst(state, unverified, &|d| Domain::Disk(d));
    let domains = Level::ALL.into_iter().filter_map(|level| {
        let names: BTreeSet<&str> = state.disks.values().map(|d| level.name_of(&d.domains)).collect();
        let several = names.iter().filter(|n| !n.is_empty()).count() > 1;
        several.then(|| (level, worst(state, unverified, &|d| domain(state, d, &[level])).0))
    });
    CanLose { disks, limit, domains: domains.collect() }
}

fn worst<'a>(
    state: &'a State,
    unverified: &BTreeSet<SpaceId>,
    domain: &dyn Fn(DiskNumber) -> Domain<'a>,
) -> (usize, Limit) {
    let spare = state.voters.len().saturating_sub(state.quorum_to_continue());
    let mut worst = (survives(state.voters.iter().copied(), spare, domain), Limit::Metadata);
    let spaces = state.spaces.iter();
    let rows =
        spaces.flat_map(|(space, record)| record.ready_rows().map(move |(_, row)| (space, record, row)));
    for (space, record, row) in rows {
        let may = match unverified.contains(space) {
            true => 0,
            false => row_survives(state, record, row, domain).unwrap_or(0),
        };
        let is_space = matches!(worst.1, Limit::Space(_));
        if may < worst.0 || (may == worst.0 && !is_space) {
            worst = (may, Limit::Space(record.name.clone()));
        }
    }
    worst
}

/// How many domains of these disks may fail if any `spare` of the disks may: the domains with most of these disks
/// fail first.
fn survives<'a>(
    disks: impl Iterator<Item = DiskNumber>,
    spare: usize,
    domain: &dyn Fn(DiskNumber) -> Domain<'a>,
) -> usize {
    let mut of: BTreeMap<Domain<'a>, usize> = BTreeMap::new();
    disks.for_each(|d| *of.entry(domain(d)).or_insert(0) += 1);
    let mut counts: Vec<usize> = of.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut gone = 0;
    let goes = |count: &&usize| {
        gone += **count;
        gone <= spare
    };
    counts.iter().take_while(goes).count()
}

/// How many lost domains a row survives in its worst region; `None` if too many disks are lost already.
fn row_survives<'a>(
    state: &'a State,
    record: &SpaceRecord,
    row: &Row,
    domain: &dyn Fn(DiskNumber) -> Domain<'a>,
) -> Option<usize> {
    let mut least = usize::MAX;
    let code = record.code_of(row);
    for column in row.slabs.chunks(record.shape_of(row).slabs_in_set().max(1)) {
        // Regions with the same current copies are equivalent.
        let mut seen = BTreeSet::new();
        for region in 0..regions(record, column) {
            let has = |c: &&SlabCopy| state.is_current(record, c, 1 << region);
            let current: Vec<DiskNumber> = column.iter().filter(has).map(|c| c.place.disk).collect();
            if seen.insert(current.clone()) {
                let spare = spare(state, record, code, column, region)?;
                least = least.min(survives(current.into_iter(), spare, domain));
            }
        }
    }
    (least < usize::MAX).then_some(least)
}

/// How many lost disks a row survives in its worst region; `None` if too many are lost already.
pub(super) fn spare_in_row(state: &State, record: &SpaceRecord, row: &Row) -> Option<usize> {
    let (set, code) = (record.shape_of(row).slabs_in_set().max(1), record.code_of(row));
    let of = |column: &[SlabCopy]| {
        (0..regions(record, column)).map(|r| spare(state, record, code, column, r)).min()
    };
    row.slabs.chunks(set).filter_map(of).min().flatten()
}

/// How many more slabs of a set may be lost in a region, in any combination; `None` if too many are lost already.
fn spare(
    state: &State,
    record: &SpaceRecord,
    code: Option<Code>,
    column: &[SlabCopy],
    region: u32,
) -> Option<usize> {
    let current = column.iter().map(|copy| state.is_current(record, copy, 1_u64 << region));
    match code {
        Some(code) => code.spare((0..).zip(current).filter(|(_, c)| *c).fold(0, |all, (n, _)| all | 1 << n)),
        None => current.filter(|c| *c).count().checked_sub(1),
    }
}

/// How many regions have to be examined: without stale regions, all are equivalent.
fn regions(record: &SpaceRecord, column: &[SlabCopy]) -> u32 {
    if column.iter().all(|c| record.stale_regions(c) == 0) { 1 } else { u64::BITS }
}
