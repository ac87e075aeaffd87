//! The metadata of a pool with one space, and its operations: pure.
//!
//! Freed slabs are not discarded, and the lowest free one of a disk is reused first: this detects an owner that relies
//! on the content of a new slab.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use pool_seam::{
    Areas, CopyRegions, DiskNumber, DiskView, LogState, LossRecord, MediaClass, Membership, Moving, NoPlace,
    NodeId, OwnerId, OwnerOp, Ownership, PoolId, REGIONS, Regions, Row, RowNumber, RowShape, ScrubRecord,
    Shape, SlabCopy, SlabPlace, SpaceEpoch, SpaceId, SpaceRecord, SpaceView, Tree, ViewVersion,
};

use super::Setup;

pub(crate) const POOL: PoolId = PoolId([5; 16]);
pub(crate) const SPACE: SpaceId = SpaceId(3);
/// The stale bits of a wholly stale copy, in slabs of any size.
const ALL: u64 = u64::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub(crate) record: SpaceRecord,
    pub(crate) version: ViewVersion,
    disks: BTreeMap<DiskNumber, DiskView>,
    /// The newest membership of each disk, including absent ones.
    memberships: BTreeMap<DiskNumber, Membership>,
    slab_bytes: u64,
    /// The next allocation.
    generation: u32,
    /// The disk at which the next search begins.
    turn: u16,
}

/// Why an operation is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Invalid,
    NoRoom(NoPlace),
}

impl Metadata {
    pub(super) fn new(setup: &Setup) -> Metadata {
        let disk = |(number, size): (usize, &u64)| {
            let areas = Areas::plan(*size, setup.slab_bytes).expect("room for slabs");
            let membership = Some(Membership(1));
            (DiskNumber(number as u16), DiskView { membership, is_leaving: false, areas })
        };
        let disks: BTreeMap<_, _> = setup.disks.iter().enumerate().map(disk).collect();
        let record = SpaceRecord {
            name: "space".to_owned(),
            size: setup.size,
            resiliency: setup.resiliency,
            interleave: setup.interleave,
            columns: setup.columns,
            former: RowShape {
                resiliency: setup.resiliency,
                interleave: setup.interleave,
                columns: setup.columns,
            },
            half: 0,
            converted: None,
            provisioning: setup.provisioning,
            media: MediaClass::ANY,
            ownership: Ownership { node: NodeId(1), epoch: SpaceEpoch::first(1), request: 0 },
            slot: 2,
            log: LogState::default(),
            unaccounted: BTreeMap::new(),
            scrub: ScrubRecord::default(),
            loss: LossRecord::default(),
            attachments: BTreeMap::new(),
            rows: Tree::default(),
        };
        let memberships = disks.keys().map(|disk| (*disk, Membership(1))).collect();
        let version = ViewVersion { pool_epoch: 1, number: 1 };
        let slab_bytes = setup.slab_bytes;
        let mut new = Metadata { record, version, disks, memberships, slab_bytes, generation: 1, turn: 0 };
        let log = new.slabs(setup.log_replicas, &BTreeSet::new()).expect("disks for the log");
        new.record.rows.insert(RowNumber::LOG, Row::new(log[0].generation, log));
        new
    }

    /// The state at the next opening of the pool.
    pub(super) fn opened(&self) -> Metadata {
        let mut opened = self.clone();
        opened.version = ViewVersion { pool_epoch: self.version.pool_epoch + 1, number: 1 };
        opened.record.ownership =
            Ownership { node: NodeId(1), epoch: SpaceEpoch::first(opened.version.pool_epoch), request: 0 };
        opened
    }

    pub(super) fn hand_over(&mut self) {
        let Ownership { node, epoch, .. } = self.record.ownership;
        let epoch = epoch.next().expect("few handovers");
        self.record.ownership = Ownership { node, epoch, request: 0 };
    }

    pub(super) fn owner(&self) -> OwnerId {
        let Ownership { node, epoch, .. } = self.record.ownership;
        OwnerId { space: SPACE, node, epoch }
    }

    /// The owner's view: the disks that have slabs of the space.
    pub(super) fn view(&self) -> Arc<SpaceView> {
        let copies = self.record.rows.values().flat_map(|row| row.copies());
        let used: BTreeSet<DiskNumber> = copies.map(|(_, copy)| copy.place.disk).collect();
        let disks = self.disks.iter().filter(|(disk, _)| used.contains(disk));
        Arc::new(SpaceView {
            version: self.version,
            pool: POOL,
            space: SPACE,
            slab_bytes: self.slab_bytes,
            record: Arc::new(self.record.clone()),
            disks: Arc::new(disks.map(|(disk, view)| (*disk, view.clone())).collect()),
        })
    }

    /// The current membership.
    pub(super) fn membership(&self, disk: DiskNumber) -> Option<Membership> {
        self.disks.get(&disk).and_then(|view| view.membership)
    }

    /// The membership that a disk gets when it joins again.
    pub(super) fn next_membership(&self, disk: DiskNumber) -> Membership {
        Membership(self.memberships[&disk].0 + 1)
    }

    /// Operation 5.
    pub(super) fn join(&mut self, disk: DiskNumber, of: Membership) {
        self.memberships.insert(disk, of);
        self.disks.get_mut(&disk).expect("a disk").membership = Some(of);
    }

    /// Operations 4 and 18: the disk is absent, and these regions of its copies are stale.
    pub(super) fn remove_from_service(&mut self, disk: DiskNumber, stale: &[CopyRegions]) {
        self.disks.get_mut(&disk).expect("a disk").membership = None;
        for CopyRegions { row, generation, regions } in stale {
            let row_now = self.record.rows.get_mut(row);
            let index = row_now
                .as_ref()
                .and_then(|row| Some(row.copies().find(|(_, copy)| copy.generation == *generation)?.0));
            // A new row is empty, so no copy of it can be stale.
            let row_now = row_now.filter(|of| !of.is_new || *row == RowNumber::LOG);
            let copy = row_now.zip(index).and_then(|(row, index)| row.copy_mut(index));
            if let Some(copy) = copy.filter(|copy| copy.place.disk == disk) {
                let stale = if *row == RowNumber::LOG && *regions != 0 { ALL } else { *regions };
                copy.stale_regions = Regions::new(self.slab_bytes).union(copy.stale_regions, stale);
            }
        }
    }

    /// Operations 4 and 22: the disk is absent, and its stale regions are not stated yet.
    pub(super) fn leave_unaccounted(&mut self, disk: DiskNumber) {
        if let Some(of) = self.disks.get_mut(&disk).expect("a disk").membership.take() {
            self.record.unaccounted.insert(disk, of);
        }
    }

    /// Whether the disk has data that the other present disks do not have.
    pub(super) fn needs(&self, disk: DiskNumber) -> bool {
        let here = |other: DiskNumber| other != disk && self.membership(other).is_some();
        self.record.rows.iter().any(|(number, row)| self.alone(*number, row, disk, here) != 0)
    }

    /// Regions of a row that the disks in `here` can recover with this disk, but not without it.
    fn alone(
        &self,
        number: RowNumber,
        row: &Row,
        disk: DiskNumber,
        here: impl Fn(DiskNumber) -> bool,
    ) -> u64 {
        if row.is_new && number != RowNumber::LOG {
            return 0;
        }
        let enough = |set: &Range<usize>, needed: usize, bit: u32, here: &dyn Fn(DiskNumber) -> bool| {
            let has = |copy: &SlabCopy| {
                let other = copy.place.disk;
                let is_accounted = other == disk || !self.record.unaccounted.contains_key(&other);
                is_accounted && here(copy.place.disk) && copy.stale_regions & (1 << bit) == 0
            };
            let slabs: BTreeSet<usize> = row
                .copies()
                .filter(|(_, copy)| has(copy))
                .map(|(index, _)| row.slab_of(index))
                .filter(|slab| set.contains(slab))
                .collect();
            slabs.len() >= needed
        };
        let with = |other| other == disk || here(other);
        let mut alone = 0;
        for (set, needed) in self.sets(number, row) {
            let bits = (0..REGIONS)
                .filter(|bit| enough(&set, needed, *bit, &with) && !enough(&set, needed, *bit, &here));
            alone |= bits.fold(0, |bits, bit| bits | 1 << bit);
        }
        alone
    }

    /// The sets of slabs, and how many slabs of each suffice to recover the set.
    fn sets(&self, number: RowNumber, row: &Row) -> Vec<(Range<usize>, usize)> {
        let resiliency = self.record.resiliency_of(row);
        let slabs = row.slabs.len();
        let size = match () {
            () if number == RowNumber::LOG => return vec![(0..slabs, 1)],
            () if resiliency.is_parity() => slabs,
            () => resiliency.copies(),
        };
        (0..slabs / size).map(|set| (set * size..(set + 1) * size, size - resiliency.failures())).collect()
    }

    /// Operation 20: marks all regions of a rolled-back disk stale that other disks have, including absent ones.
    pub(super) fn stale(&mut self, disk: DiskNumber) {
        let rows: Vec<(RowNumber, Row)> = self.record.rows.iter().map(|(n, row)| (*n, row.clone())).collect();
        for (number, row) in rows.into_iter().filter(|(n, row)| !row.is_new || *n == RowNumber::LOG) {
            let alone = self.alone(number, &row, disk, |other| other != disk);
            let of_disk = row.copies().filter(|(_, copy)| copy.place.disk == disk);
            for (index, _) in of_disk {
                let copy = self.record.rows.get_mut(&number).and_then(|row| row.copy_mut(index));
                let copy = copy.expect("it is there");
                copy.stale_regions = Regions::new(self.slab_bytes).union(copy.stale_regions, !alone);
            }
        }
    }

    /// Applies one operation. A refused one may have changed the value: the caller must drop it.
    pub(super) fn apply(&mut self, op: &OwnerOp) -> Result<(), Refusal> {
        let of_slab = Regions::new(self.slab_bytes);
        let regions = of_slab.all();
        match *op {
            OwnerOp::Allocate { row } => self.allocate(row)?,
            OwnerOp::Ready { row, birth, ref written } => self.ready(row, birth, written)?,
            OwnerOp::Free { row, birth } => {
                self.row(row, birth)?;
                self.record.rows.remove(&row).filter(|_| row != RowNumber::LOG).ok_or(Refusal::Invalid)?;
                self.end_change();
            }
            OwnerOp::MarkStale { row, index, generation, regions, membership: seen } => {
                check(row != RowNumber::LOG || regions == ALL)?;
                let disk = self.copy(row, index, generation)?.place.disk;
                check(self.membership(disk) == seen)?;
                let present = &self.record.rows[&row];
                if present.is_new && row != RowNumber::LOG {
                    return Ok(());
                }
                // Regions that no other disk has are not marked.
                let kept = match self.record.unaccounted.contains_key(&disk) {
                    true => self.alone(row, present, disk, |other| other != disk),
                    false => 0,
                };
                let regions = if row == RowNumber::LOG && kept != 0 { 0 } else { regions & !kept };
                let copy = self.copy(row, index, generation)?;
                copy.stale_regions = of_slab.union(copy.stale_regions, regions);
            }
            OwnerOp::MarkCurrent { row, index, generation, regions: these, membership } => {
                let disk = self.copy(row, index, generation)?.place.disk;
                check(self.membership(disk) == Some(membership))?;
                let copy = self.copy(row, index, generation)?;
                copy.stale_regions &= !these & regions;
                check(row != RowNumber::LOG || copy.stale_regions == 0)?;
            }
            OwnerOp::MarkDiskStale { disk, membership: of } => {
                check(self.membership(disk) == Some(of))?;
                self.stale(disk);
            }
            OwnerOp::Accounted { disk, membership: of } => {
                check(self.record.unaccounted.get(&disk) == Some(&of))?;
                self.record.unaccounted.remove(&disk);
            }
            OwnerOp::BeginMove { row, birth, index, .. } => {
                let present = self.row(row, birth)?;
                check(present.moving().is_none() && usize::from(index) < present.slabs.len())?;
                let taken = present.slabs.iter().map(|copy| copy.place.disk).collect();
                let copy = SlabCopy { stale_regions: ALL, ..self.slabs(1, &taken)?[0] };
                self.row(row, birth)?.set_moving(Some(Moving { index, copy }));
            }
            OwnerOp::EndMove { row, birth } => {
                let row = self.row(row, birth)?;
                let Moving { index, copy } = row.moving().ok_or(Refusal::Invalid)?;
                row.set_moving(None);
                let slab = row.copy_mut(usize::from(index)).expect("it was there when the move began");
                check(copy.stale_regions & !slab.stale_regions & regions == 0)?;
                *slab = copy;
            }
            OwnerOp::CancelMove { row, birth } => {
                let row = self.row(row, birth)?;
                check(row.moving().is_some())?;
                row.set_moving(None);
            }
            OwnerOp::Reshape { row, birth } => {
                let present = self.row(row, birth)?.clone();
                let is_log = row == RowNumber::LOG;
                check(present.shape == Shape::Former && present.moving().is_none())?;
                check(is_log || !present.is_new)?;
                let (old, new) = match is_log {
                    true => (present.slabs.len(), self.record.log_replicas()),
                    false => {
                        check(!self.record.is_converting())?;
                        (self.record.former.resiliency.copies(), self.record.resiliency.copies())
                    }
                };
                let mut taken: BTreeSet<DiskNumber> =
                    present.slabs.iter().map(|copy| copy.place.disk).collect();
                let mut slabs = Vec::new();
                for set in present.slabs.chunks(old) {
                    // The best copies stay, so that no region has fewer current copies than before, or than the new
                    // number.
                    let rank = |copy: &&SlabCopy| {
                        (
                            self.membership(copy.place.disk).is_none(),
                            self.record.stale_regions(copy).count_ones(),
                        )
                    };
                    let mut kept: Vec<&SlabCopy> = set.iter().collect();
                    kept.sort_by_key(rank);
                    kept.truncate(new);
                    for bit in (0..of_slab.count()).map(|region| 1 << region) {
                        let is_current = |copy: &SlabCopy| {
                            self.membership(copy.place.disk).is_some()
                                && self.record.stale_regions(copy) & bit == 0
                        };
                        let before = set.iter().filter(|copy| is_current(copy)).count();
                        let after = kept.iter().filter(|copy| is_current(copy)).count();
                        check(after >= before.min(new))?;
                        let has = kept.iter().any(|copy| self.record.stale_regions(copy) & bit == 0);
                        check(has || set.iter().all(|copy| copy.stale_regions & bit != 0))?;
                    }
                    slabs.extend(set.iter().filter(|copy| kept.contains(copy)));
                    if new > kept.len() {
                        let added = self.slabs(new - kept.len(), &taken)?;
                        taken.extend(added.iter().map(|copy| copy.place.disk));
                        slabs.extend(added.into_iter().map(|copy| SlabCopy { stale_regions: ALL, ..copy }));
                    }
                }
                self.record.rows.insert(row, present.reshaped(slabs));
                self.end_change();
            }
            OwnerOp::FreeReplica { generation } => {
                let needed = self.record.log_replicas();
                let log = self.record.rows.get_mut(&RowNumber::LOG).expect("a log");
                let kept: Vec<SlabCopy> =
                    log.slabs.iter().filter(|copy| copy.generation != generation).copied().collect();
                check(kept.len() < log.slabs.len() && kept.len() == needed && log.moving().is_none())?;
                check(kept.iter().all(|copy| copy.stale_regions == 0))?;
                *log = log.reshaped(kept);
            }
            OwnerOp::ReplaceLog { index, generation } => {
                self.copy(RowNumber::LOG, index, generation)?;
                let log = self.record.rows.get(&RowNumber::LOG).expect("a log");
                let taken = log.copies().map(|(_, copy)| copy.place.disk).collect();
                let copy = SlabCopy { stale_regions: ALL, ..self.slabs(1, &taken)?[0] };
                *self.copy(RowNumber::LOG, index, generation)? = copy;
            }
            OwnerOp::SetSize { from, to } => {
                check(from == self.record.size && to.is_multiple_of(pool_seam::UNIT))?;
                check(!self.record.is_converting())?;
                self.record.size = to;
                let has_place = |row| self.record.has_place_for(row, self.slab_bytes);
                check(self.record.data_rows().all(|(row, _)| has_place(row)))?;
            }
            OwnerOp::Converted { from, to } => {
                check(self.record.converted == Some(from) && to > from)?;
                self.record.converted = Some(to);
                self.end_change();
            }
            OwnerOp::Scrub(scrub) => self.record.scrub = scrub,
            OwnerOp::Lost(ref loss) => {
                check(loss.is_sound())?;
                self.record.loss = loss.clone();
            }
            OwnerOp::Log(log) => {
                check(log.sequence >= self.record.log.sequence && log.epoch >= self.record.log.epoch)?;
                self.record.log = log;
            }
        }
        Ok(())
    }

    /// Declares that a disk leaves the pool for good.
    pub(super) fn give_up(&mut self, disk: DiskNumber) {
        self.disks.get_mut(&disk).expect("a disk").is_leaving = true;
    }

    /// Changes the shape: rows that have it already are complete.
    pub(super) fn set_shape(&mut self, to: RowShape) {
        let record = self.record.clone();
        assert!(!record.is_converting(), "one conversion at a time");
        self.record.set_shape(to);
        if !record.shape().differs_in_copies_only(&to) {
            (self.record.half, self.record.converted) = (record.half ^ 1, Some(0));
        }
        let had = |row: &Row| record.shape_of(row);
        let others = record.data_rows().map(|(_, row)| had(row)).find(|had| *had != to);
        let needs_more = to.log_replicas() > others.unwrap_or(record.shape()).log_replicas();
        let is_log_short = (needs_more || !self.record.is_converting())
            && self.record.rows[&RowNumber::LOG].slabs.len() < self.record.log_replicas();
        let is_former_needed = is_log_short || self.record.is_converting();
        self.record.former = others.unwrap_or(if is_former_needed { record.shape() } else { to });
        for number in record.rows.keys() {
            let row = self.record.rows.get_mut(number).expect("a row");
            let is_former = if *number == RowNumber::LOG { is_log_short } else { had(row) != to };
            row.shape = if is_former { Shape::Former } else { Shape::Current };
        }
    }

    fn end_change(&mut self) {
        let is_converted = self.record.converted_end() >= self.record.size;
        if is_converted && self.record.rows.values().all(|row| row.shape == Shape::Current) {
            (self.record.former, self.record.converted) = (self.record.shape(), None);
        }
    }

    fn allocate(&mut self, row: RowNumber) -> Result<(), Refusal> {
        check(!self.record.rows.contains_key(&row))?;
        if !self.record.has_place_for(row, self.slab_bytes) {
            return Err(Refusal::NoRoom(NoPlace::NoSuchRow(SPACE)));
        }
        let slabs = self.slabs(self.record.shape_at(row).slabs(), &BTreeSet::new())?;
        let mut new = Row::new(slabs[0].generation, slabs);
        if row.half() != self.record.half {
            new.shape = Shape::Former;
        }
        self.record.rows.insert(row, new);
        Ok(())
    }

    fn ready(
        &mut self,
        number: RowNumber,
        birth: u32,
        written: &[(DiskNumber, Membership)],
    ) -> Result<(), Refusal> {
        let mut row = self.row(number, birth)?.clone();
        check(row.is_new)?;
        if number != RowNumber::LOG {
            for index in 0..row.copies().count() {
                let copy = row.copy_mut(index).expect("it is one of its copies");
                let of = self.membership(copy.place.disk);
                check(of.is_none_or(|of| written.contains(&(copy.place.disk, of))))?;
                copy.stale_regions =
                    if of.is_some() { 0 } else { Regions::new(self.slab_bytes).union(0, ALL) };
            }
        }
        let whole = |slab: &usize| row.slabs[*slab].stale_regions == 0;
        let is_enough = |(set, needed): (Range<usize>, usize)| set.filter(whole).count() >= needed;
        check(self.sets(number, &row).into_iter().all(is_enough))?;
        row.is_new = false;
        self.record.rows.insert(number, row);
        Ok(())
    }

    fn row(&mut self, row: RowNumber, birth: u32) -> Result<&mut Row, Refusal> {
        self.record.rows.get_mut(&row).filter(|row| row.birth == birth).ok_or(Refusal::Invalid)
    }

    fn copy(&mut self, row: RowNumber, index: u8, generation: u32) -> Result<&mut SlabCopy, Refusal> {
        let copy = self.record.rows.get_mut(&row).and_then(|row| row.copy_mut(usize::from(index)));
        copy.filter(|copy| copy.generation == generation).ok_or(Refusal::Invalid)
    }

    /// Allocates free slabs on `needed` present disks that are not `taken`, taking turns among the disks.
    fn slabs(&mut self, needed: usize, taken: &BTreeSet<DiskNumber>) -> Result<Vec<SlabCopy>, Refusal> {
        let used: BTreeSet<SlabPlace> =
            self.record.rows.values().flat_map(Row::copies).map(|(_, copy)| copy.place).collect();
        let free = |disk: DiskNumber, view: &DiskView| {
            let mut places = (0..view.areas.slab_count()).map(|slab| SlabPlace { disk, slab });
            places.find(|place| !used.contains(place))
        };
        let from = DiskNumber(self.turn);
        let in_turn = self.disks.range(from..).chain(self.disks.range(..from));
        let usable = in_turn.filter(|(disk, view)| view.membership.is_some() && !taken.contains(disk));
        let places: Vec<SlabPlace> = usable.filter_map(|(disk, view)| free(*disk, view)).collect();
        if places.len() < needed {
            let (disks, media) = (places.len(), MediaClass::ANY);
            return Err(Refusal::NoRoom(NoPlace::NoRoom { needed, disks, media }));
        }
        let first = self.generation;
        self.generation += needed as u32;
        self.turn = (places[needed - 1].disk.0 + 1) % self.disks.len() as u16;
        let generations = places.into_iter().take(needed).zip(first..);
        Ok(generations.map(|(place, generation)| SlabCopy { place, generation, stale_regions: 0 }).collect())
    }
}

fn check(fits: bool) -> Result<(), Refusal> {
    if fits { Ok(()) } else { Err(Refusal::Invalid) }
}
