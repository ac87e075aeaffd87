//! Places for rows and for single slabs.

use std::collections::BTreeSet;

use pool_seam::RowShape;

use super::{Eligible, NoPlace, keeps_enough, mates, place, shared};
use crate::{DiskNumber, Resiliency, Row, RowNumber, SlabPlace, SpaceId, SpaceRecord, State, Usage};

/// Places for a row with this number, in the row's order, on `usable` disks. If there are too few, some places are on
/// disks that are absent or not usable, but at most as many as the row can lose.
pub fn row(
    state: &State,
    space: SpaceId,
    number: RowNumber,
    usable: impl Fn(DiskNumber) -> bool,
) -> Result<Vec<SlabPlace>, NoPlace> {
    let record = state.spaces.get(&space).ok_or(NoPlace::NoSuchRow(space))?;
    let (shape, eligible) = (record.shape_at(number), Eligible::for_data(state, record.media));
    let here = |disk: DiskNumber| is_reachable(state, disk, record.slot) && usable(disk);
    place(state, &shape, &eligible, here, |_| true, tie(state)).or_else(|full| {
        let may = |disk: DiskNumber| has_slot(state, disk, record.slot);
        let places = place(state, &shape, &eligible, may, here, tie(state));
        places.ok().filter(|places| keeps_enough(&shape, places, here)).ok_or(full)
    })
}

/// Places for the log of a space: one more than the failures that the space survives, and at least two if the pool
/// has enough disks. They are on disks for logs or on the fastest disks, with media of the space's class or faster.
pub(crate) fn log_row(
    state: &State,
    record: &SpaceRecord,
    usable: impl Fn(DiskNumber) -> bool,
) -> Result<Vec<SlabPlace>, NoPlace> {
    let eligible = Eligible::for_log(state, record.media);
    let may = |disk: DiskNumber| is_reachable(state, disk, record.slot) && usable(disk);
    let log = |replicas: usize| {
        let resiliency = Resiliency::Mirror { copies: replicas as u8 };
        let log = RowShape { resiliency, columns: 1, ..record.shape() };
        place(state, &log, &eligible, may, |_| true, tie(state))
    };
    let least = record.resiliency.failures() + 1;
    log(record.log_replicas()).or_else(|full| if least == 1 { log(1) } else { Err(full) })
}

/// A place for one slab of a row on a disk without a slab of the row, separated from the slab's mates as well as
/// possible. Hot spares are used if the slab's disk is absent or being emptied. The reserve may be used.
pub fn slab(
    state: &State,
    space: SpaceId,
    number: RowNumber,
    index: u8,
    usable: impl Fn(DiskNumber) -> bool,
) -> Result<SlabPlace, NoPlace> {
    slab_by(state, space, number, index, usable, |_| 0)
}

/// [`slab`] with a preference: of equally separated disks, the one with the least `work` is chosen.
pub fn slab_by(
    state: &State,
    space: SpaceId,
    number: RowNumber,
    index: u8,
    usable: impl Fn(DiskNumber) -> bool,
    work: impl Fn(DiskNumber) -> usize,
) -> Result<SlabPlace, NoPlace> {
    let none = NoPlace::NoSuchRow(space);
    let record = state.spaces.get(&space).ok_or(none.clone())?;
    let row = record.rows.get(&number).filter(|row| usize::from(index) < row.slabs.len()).ok_or(none)?;
    let is_log = number == RowNumber::LOG;
    let (resiliency, eligible) = match is_log {
        true => {
            (Resiliency::Mirror { copies: row.slabs.len() as u8 }, Eligible::for_log(state, record.media))
        }
        false => (record.resiliency_of(row), Eligible::for_data(state, record.media)),
    };
    let apart = mates(resiliency, &row.slabs, usize::from(index));
    // A simple space may reuse the disks of its other columns.
    let taken: BTreeSet<DiskNumber> = match resiliency {
        Resiliency::Simple => [row.slabs[usize::from(index)].place.disk].into(),
        _ => row.slabs.iter().map(|copy| copy.place.disk).collect(),
    };
    let from = row.slabs[usize::from(index)].place.disk;
    let is_leaving = state.disks.get(&from).is_some_and(|of| of.usage.is_leaving());
    let needs_spare = is_leaving || !state.is_present(from);
    let may =
        |disk: DiskNumber| is_reachable(state, disk, record.slot) && usable(disk) && !taken.contains(&disk);
    let full = NoPlace::NoRoom { needed: 1, disks: 0, media: eligible.media() };
    farthest(state, &eligible, &apart, needs_spare, may, work).ok_or(full)
}

/// A free slab on a disk that `may` be used, separated from these mates as well as possible. The reserve may be used;
/// hot spares only with `spares`.
pub(super) fn farthest(
    state: &State,
    eligible: &Eligible<'_>,
    apart: &[DiskNumber],
    spares: bool,
    may: impl Fn(DiskNumber) -> bool,
    work: impl Fn(DiskNumber) -> usize,
) -> Option<SlabPlace> {
    let candidates = state.disks.iter().filter(|(disk, of)| {
        let suits = eligible.takes(of) || spares && of.usage == Usage::HotSpare && eligible.suits(of);
        suits && may(**disk) && state.slabs_free(**disk) > 0
    });
    let best = candidates.min_by_key(|(disk, of)| {
        let room = std::cmp::Reverse(state.slabs_free(**disk));
        let is_spare = of.usage == Usage::HotSpare;
        (shared(state, apart, **disk), is_spare, eligible.rank(**disk), work(**disk), room, **disk)
    });
    let (disk, _) = best?;
    state.free_slabs(*disk).next().map(|slab| SlabPlace { disk: *disk, slab })
}

/// The disks from which a slab is read when it is moved: its own, or those from which it is recovered.
pub(crate) fn sources(state: &State, record: &SpaceRecord, row: &Row, index: usize) -> Vec<DiskNumber> {
    let own = row.slabs[index].place.disk;
    if state.is_present(own) {
        return vec![own];
    }
    let resiliency = record.resiliency_of(row);
    let mut mates = mates(resiliency, &row.slabs, index);
    mates.retain(|disk| state.is_present(*disk));
    if !resiliency.is_parity() {
        mates.truncate(1);
    }
    mates
}

/// The order of disks with equal free space. It differs for each row, so that a disk shares rows with all others, and
/// a rebuild reads from all of them. Otherwise rows would alternate between the same few disks.
fn tie(state: &State) -> impl Fn(DiskNumber) -> u64 + use<> {
    let row = u64::from(state.next_generation) << 16;
    move |disk| {
        // SplitMix64: adjacent numbers get unrelated values.
        let mixed = (row | u64::from(disk.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 31
    }
}

/// Whether a present disk has the slot of the space's marks.
pub(super) fn is_reachable(state: &State, disk: DiskNumber, slot: u16) -> bool {
    state.is_present(disk) && has_slot(state, disk, slot)
}

fn has_slot(state: &State, disk: DiskNumber, slot: u16) -> bool {
    state.disks.get(&disk).is_some_and(|of| of.areas.slots() > slot)
}
