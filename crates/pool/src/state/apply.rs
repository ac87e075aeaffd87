//! Applying an operation: every check before the first change.

use std::collections::BTreeSet;

use super::{
    EPOCHS_MAX, GIVEN_UP_MAX, Op, Policy, Presence, Resiliency, Row, SlabCopy, SlabPlace, SpaceRecord, State,
};
use crate::{DiskNumber, RowNumber, SpaceId};

/// Why an operation cannot be applied: the record is damaged, or the caller has not looked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum InvalidOp {
    /// No such disk.
    #[error("the pool has no disk {}", .0.0)]
    NoDisk(DiskNumber),
    /// No such space.
    #[error("the pool has no space {}", .0.0)]
    NoSpace(SpaceId),
    /// The row has no slabs, or not this one.
    #[error("space {} has no slab {index} in row {}", .space.0, .row.0)]
    NoSlab { space: SpaceId, row: RowNumber, index: usize },
    /// The number is not the next one.
    #[error("number {given} is not the next one, {next}")]
    NotNext { given: u64, next: u64 },
    /// The slab is another's, or the disk has none of that number.
    #[error("slab {} of disk {} is not free", .0.slab, .0.disk.0)]
    NotFree(SlabPlace),
    /// Two copies on one disk.
    #[error("disk {} would have two slabs of one row", .0.0)]
    SameDisk(DiskNumber),
    /// The row has slabs already, or another number of them.
    #[error("row {} of space {} cannot take {slabs} slabs", .row.0, .space.0)]
    BadRow { space: SpaceId, row: RowNumber, slabs: usize },
    /// Something still uses it.
    #[error("disk {} still has slabs or is a voter", .0.0)]
    DiskInUse(DiskNumber),
    /// Rows are left, or would be cut off.
    #[error("space {} still has rows there", .0.0)]
    SpaceInUse(SpaceId),
    /// The name is another's.
    #[error("the name '{0}' is taken")]
    NameTaken(String),
    /// The name is empty or too long.
    #[error("a name has 1 to 255 bytes")]
    BadName,
    /// The epoch is not higher than the one before.
    #[error("epoch {given} does not follow {newest}")]
    BadEpoch { given: u64, newest: u64 },
    /// A space of this shape cannot be.
    #[error("{0}")]
    BadShape(&'static str),
    /// A voter must be a present disk, and there must be one.
    #[error("the voters must be present disks, and at least one")]
    BadVoters,
    /// No copy would have the newest data of a region.
    #[error("row {} of space {} would have no copy of regions {regions:#x}", .row.0, .space.0)]
    LastCopy { space: SpaceId, row: RowNumber, regions: u64 },
    /// One slab of a row moves at a time; or none does.
    #[error("row {} of space {} has a moving slab already, or none", .row.0, .space.0)]
    Moving { space: SpaceId, row: RowNumber },
    /// The new slab does not have what the old one has.
    #[error("row {} of space {}: the destination slab has missed regions {regions:#x}", .row.0, .space.0)]
    NotMoved { space: SpaceId, row: RowNumber, regions: u64 },
    /// It is about a row, slab, disk or owner that is not any more.
    #[error("a change of space {} is about an earlier state of it", .0.0)]
    Outdated(SpaceId),
    /// A percentage.
    #[error("a percentage is 1 to 100, not {0}")]
    Percent(u8),
}

/// The most voters that this version can count in one record; it chooses far fewer.
const VOTERS_MAX: usize = 64;

impl State {
    /// Applies one operation.
    ///
    /// # Errors
    /// [`InvalidOp`]; nothing has changed then.
    pub fn apply(&mut self, op: &Op) -> Result<(), InvalidOp> {
        match op {
            Op::RenamePool { name } => {
                check_name(name)?;
                self.name.clone_from(name);
            }
            Op::AddDisk { disk, record } => {
                check_name(&record.name)?;
                check_domains(&record.domains)?;
                if !record.areas.is_sound() {
                    return Err(InvalidOp::BadShape("no disk is like that"));
                }
                next(u64::from(disk.0), u64::from(self.next_disk))?;
                let after = self
                    .next_disk
                    .checked_add(1)
                    .ok_or(InvalidOp::BadShape("a pool has had 65,535 disks"))?;
                if self.disks.values().any(|d| d.id == record.id) {
                    return Err(InvalidOp::DiskInUse(*disk));
                }
                self.next_disk = after;
                self.disks.insert(*disk, record.clone());
            }
            Op::RemoveDisk { disk } => {
                self.disk(*disk)?;
                if self.slabs_used(*disk).next().is_some() || self.voters.contains(disk) {
                    return Err(InvalidOp::DiskInUse(*disk));
                }
                self.disks.remove(disk);
                self.forget_unaccounted(*disk);
            }
            Op::DiskAbsent { disk, reason } => {
                self.disk(*disk)?;
                if self.voters.contains(disk) {
                    return Err(InvalidOp::BadVoters);
                }
                self.disk_mut(*disk)?.presence = Presence::Absent(*reason);
                self.shadow_on(*disk);
            }
            Op::DiskPresent { disk, membership } => {
                let record = self.disk_mut(*disk)?;
                if *membership <= record.membership {
                    return Err(InvalidOp::NotNext {
                        given: membership.0,
                        next: record.membership.0.saturating_add(1),
                    });
                }
                (record.presence, record.membership) = (Presence::Present, *membership);
            }
            Op::SetUsage { disk, usage } => self.disk_mut(*disk)?.usage = *usage,
            Op::SetDomains { disk, domains } => {
                check_domains(domains)?;
                self.disk_mut(*disk)?.domains.clone_from(domains);
            }
            Op::Labelled { disk, sequence } => self.disk_mut(*disk)?.label_sequence = *sequence,
            Op::Voters { voters } => {
                if voters.is_empty()
                    || voters.len() > VOTERS_MAX
                    || voters.iter().any(|v| !self.is_present(*v))
                {
                    return Err(InvalidOp::BadVoters);
                }
                self.voters.clone_from(voters);
            }
            Op::CreateSpace { space, record } => {
                if !self.owned.is_empty() {
                    return Err(InvalidOp::BadShape("a pool has spaces of one data path"));
                }
                next(u64::from(space.0), u64::from(self.next_space))?;
                let after = self
                    .next_space
                    .checked_add(1)
                    .ok_or(InvalidOp::BadShape("a pool has had 4 billion spaces"))?;
                self.check_shape(record)?;
                self.check_space_name(&record.name)?;
                self.next_space = after;
                self.spaces.insert(*space, record.clone());
            }
            Op::DestroySpace { space } => {
                self.space(*space)?;
                if self.rows_of(*space).next().is_some() {
                    return Err(InvalidOp::SpaceInUse(*space));
                }
                self.spaces.remove(space);
                self.scrubs.remove(space);
                self.losses.remove(space);
            }
            Op::ResizeSpace { space, size } => {
                let resized = SpaceRecord { size: *size, ..self.space(*space)?.clone() };
                self.check_shape(&resized)?;
                let rows = resized.rows(self.slab_bytes);
                if self.rows_of(*space).any(|(row, _)| u64::from(row.0) >= rows) {
                    return Err(InvalidOp::SpaceInUse(*space));
                }
                self.spaces.insert(*space, resized);
            }
            Op::RenameSpace { space, name } => {
                self.check_space_name(name)?;
                // A state that is shown has those of owners among both.
                let owned = self.owned_mut(*space).map(|record| &mut record.name).ok();
                let has_owner = owned.map(|of| of.clone_from(name)).is_some();
                let pooled = self.spaces.get_mut(space).map(|record| record.name.clone_from(name));
                (has_owner || pooled.is_some()).then_some(()).ok_or(InvalidOp::NoSpace(*space))?;
            }
            Op::AllocateRow { space, row, slabs } => self.allocate(*space, *row, slabs)?,
            Op::FreeRow { space, row } => {
                let freed = self.rows.remove(&(*space, *row)).ok_or(InvalidOp::NoSlab {
                    space: *space,
                    row: *row,
                    index: 0,
                })?;
                for (_, copy) in freed.copies() {
                    self.used.remove(copy.place);
                }
            }
            Op::Missed { space, row, index, regions } => {
                self.keeps_a_copy(*space, *row, usize::from(*index), *regions)?;
                self.slab_mut(*space, *row, usize::from(*index))?.missed |= regions;
                self.shadow(*space, *row);
            }
            Op::NotMissed { space, row, index, regions } => {
                let disk = self.slab_mut(*space, *row, usize::from(*index))?.place.disk;
                // Data copied to a disk that was removed since may be lost: its removal did not mark it,
                // because the regions were missed anyway.
                if self.is_present(disk) {
                    self.slab_mut(*space, *row, usize::from(*index))?.missed &= !regions;
                    self.shadow(*space, *row);
                }
            }
            Op::MoveSlab { space, row, index, to } => {
                self.move_slab(*space, *row, usize::from(*index), *to)?
            }
            Op::AcceptLoss { space, row, index, regions } => {
                let parity = self.space(*space)?.resiliency.is_parity();
                let past = self.rows.get(&(*space, *row)).map_or(0, |r| r.slabs.len());
                if parity && usize::from(*index) >= past {
                    // Where a column moves to is no copy that anything would be read from.
                    return Err(InvalidOp::NoSlab { space: *space, row: *row, index: past });
                }
                let slab = self.slab_mut(*space, *row, usize::from(*index))?;
                let given_up = slab.missed & regions;
                slab.missed &= !regions;
                self.regions_given_up =
                    self.regions_given_up.saturating_add(u64::from(given_up.count_ones()));
                self.shadow(*space, *row);
            }
            Op::Scrub { space, record } => {
                self.space(*space)?;
                self.scrubs.insert(*space, *record);
            }
            Op::Opened { epoch, incarnation } => {
                let newest = self.epoch();
                if *epoch <= newest {
                    return Err(InvalidOp::BadEpoch { given: *epoch, newest });
                }
                self.epochs.insert(*epoch, *incarnation);
                self.begin_ownerships(*epoch);
                while self.epochs.len() > EPOCHS_MAX {
                    self.epochs.pop_first();
                }
            }
            Op::GivenUp { after } => {
                let epoch = self.epoch();
                self.given_up.insert(epoch, *after);
                while self.given_up.len() > GIVEN_UP_MAX {
                    self.given_up.pop_first();
                }
            }
            Op::Lost { space, record } => self.set_lost(*space, record)?,
            Op::Space { space, op } => self.apply_to_space(*space, op)?,
            Op::MissedAll { disk } => self.miss_all(*disk)?,
            Op::BeginMove { space, row, index, to } => self.begin_move(*space, *row, *index, *to)?,
            Op::EndMove { space, row } => self.end_move(*space, *row)?,
            Op::CancelMove { space, row } => self.cancel_move(*space, *row)?,
            Op::SetPolicy { policy } => {
                check_policy(policy)?;
                self.policy = *policy;
            }
            Op::SetDiskMedia { disk, media } => self.disk_mut(*disk)?.media = *media,
            Op::SetSpaceMedia { space, media } => {
                let has_owner = self.owned_mut(*space).map(|record| record.media = *media).is_ok();
                let pooled = self.spaces.get_mut(space).map(|record| record.media = *media);
                (has_owner || pooled.is_some()).then_some(()).ok_or(InvalidOp::NoSpace(*space))?;
            }
        }
        Ok(())
    }

    /// Applies the operations of one record, all or none.
    ///
    /// # Errors
    /// The first that cannot be applied.
    pub fn apply_all(&mut self, ops: &[Op]) -> Result<(), InvalidOp> {
        let mut tried = self.clone();
        for op in ops {
            tried.apply(op)?;
        }
        *self = tried;
        Ok(())
    }

    fn disk(&self, disk: DiskNumber) -> Result<&super::DiskRecord, InvalidOp> {
        self.disks.get(&disk).ok_or(InvalidOp::NoDisk(disk))
    }

    fn disk_mut(&mut self, disk: DiskNumber) -> Result<&mut super::DiskRecord, InvalidOp> {
        self.disks.get_mut(&disk).ok_or(InvalidOp::NoDisk(disk))
    }

    pub(super) fn space(&self, space: SpaceId) -> Result<&SpaceRecord, InvalidOp> {
        self.spaces.get(&space).ok_or(InvalidOp::NoSpace(space))
    }

    pub(super) fn slab_mut(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        index: usize,
    ) -> Result<&mut SlabCopy, InvalidOp> {
        self.rows.get_mut(&(space, row)).and_then(|r| r.copy_mut(index)).ok_or(InvalidOp::NoSlab {
            space,
            row,
            index,
        })
    }

    pub(super) fn check_space_name(&self, name: &str) -> Result<(), InvalidOp> {
        check_name(name)?;
        let is_taken =
            self.spaces.values().any(|s| s.name == name) || self.owned.values().any(|s| s.name == name);
        match is_taken {
            true => Err(InvalidOp::NameTaken(name.to_owned())),
            false => Ok(()),
        }
    }

    pub(super) fn check_free(&self, place: SlabPlace) -> Result<(), InvalidOp> {
        let disk = self.disk(place.disk)?;
        match place.slab < disk.slabs && !self.used.contains(place) {
            true => Ok(()),
            false => Err(InvalidOp::NotFree(place)),
        }
    }

    fn allocate(&mut self, space: SpaceId, row: RowNumber, slabs: &[SlabPlace]) -> Result<(), InvalidOp> {
        let record = self.space(space)?;
        let bad = InvalidOp::BadRow { space, row, slabs: slabs.len() };
        if slabs.len() != record.slabs_in_row()
            || u64::from(row.0) >= record.rows(self.slab_bytes)
            || self.rows.contains_key(&(space, row))
        {
            return Err(bad);
        }
        // A simple space may come round to the same disk; anything that promises to survive one may not.
        let mut seen = BTreeSet::new();
        for place in slabs {
            self.check_free(*place)?;
            if !seen.insert(place.disk) && record.resiliency != Resiliency::Simple {
                return Err(InvalidOp::SameDisk(place.disk));
            }
        }
        let distinct: BTreeSet<_> = slabs.iter().collect();
        let count = slabs.len() as u32;
        let after = self.next_generation.checked_add(count).ok_or(bad.clone())?;
        if distinct.len() != slabs.len() {
            return Err(bad);
        }
        let first = self.next_generation;
        self.next_generation = after;
        let copies = slabs.iter().enumerate().map(|(i, &place)| SlabCopy {
            place,
            generation: first + i as u32,
            missed: 0,
        });
        self.rows.insert((space, row), Row::new(copies));
        for place in slabs {
            self.used.insert(*place);
        }
        Ok(())
    }

    fn miss_all(&mut self, disk: DiskNumber) -> Result<(), InvalidOp> {
        self.disk(disk)?;
        let mut missed = Vec::new();
        for (&(space, row), r) in &self.rows {
            for (index, _) in r.copies().filter(|(_, c)| c.place.disk == disk) {
                missed.push((space, row, index, !self.only_here(space, row, index)));
            }
        }
        for (space, row, index, regions) in missed {
            self.slab_mut(space, row, index)?.missed |= regions;
            self.shadow(space, row);
        }
        self.stale_for_owners(disk)
    }
}

fn check_name(name: &str) -> Result<(), InvalidOp> {
    if (1..=255).contains(&name.len()) { Ok(()) } else { Err(InvalidOp::BadName) }
}

pub(super) fn check_policy(policy: &Policy) -> Result<(), InvalidOp> {
    if (1..=100).contains(&policy.warn_at) { Ok(()) } else { Err(InvalidOp::Percent(policy.warn_at)) }
}

fn check_domains(d: &super::FaultDomains) -> Result<(), InvalidOp> {
    let fits = [&d.enclosure, &d.node, &d.rack].iter().all(|n| n.len() <= 255);
    if fits { Ok(()) } else { Err(InvalidOp::BadName) }
}

pub(super) fn next(given: u64, next: u64) -> Result<(), InvalidOp> {
    if given == next { Ok(()) } else { Err(InvalidOp::NotNext { given, next }) }
}
