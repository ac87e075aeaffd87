//! Applying an operation: every check before the first change.

use std::sync::Arc;

use super::{EPOCHS_MAX, GIVEN_UP_MAX, Op, Policy, Presence, SlabPlace, State};
use crate::{DiskNumber, RowNumber, SpaceId};

/// Why an operation cannot be applied: the record is damaged, or the caller did not check the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum InvalidOp {
    /// There is no such disk.
    #[error("the pool has no disk {}", .0.0)]
    NoDisk(DiskNumber),
    /// There is no such space.
    #[error("the pool has no virtual disk {}", .0.0)]
    NoSpace(SpaceId),
    /// The number is not the next one.
    #[error("number {given} is not the next one, {next}")]
    NotNext { given: u64, next: u64 },
    /// The slab is in use, or the disk has no slab of that number.
    #[error("slab {} of disk {} is not free", .0.slab, .0.disk.0)]
    NotFree(SlabPlace),
    /// The row would have two copies on one disk.
    #[error("disk {} would have two slabs of one row", .0.0)]
    SameDisk(DiskNumber),
    /// The row has slabs already, or another number of them.
    #[error("row {} of virtual disk {} cannot take {slabs} slabs", .row.0, .space.0)]
    BadRow { space: SpaceId, row: RowNumber, slabs: usize },
    /// The disk is still in use.
    #[error("disk {} still has slabs or metadata", .0.0)]
    DiskInUse(DiskNumber),
    /// The space still has rows, or rows beyond the new size.
    #[error("virtual disk {} still has rows that the change would remove", .0.0)]
    SpaceInUse(SpaceId),
    /// The name is in use.
    #[error("the name '{0}' is taken")]
    NameTaken(String),
    /// The name is empty or too long.
    #[error("a name must have 1 to 255 bytes")]
    BadName,
    /// The epoch is not higher than the one before.
    #[error("epoch {given} does not follow {newest}")]
    BadEpoch { given: u64, newest: u64 },
    /// A space cannot have this shape.
    #[error("{0}")]
    BadShape(&'static str),
    /// A voter must be a present disk, and there must be one.
    #[error("the pool needs at least one disk with metadata, and all of these disks must be present")]
    BadVoters,
    /// A region would have no copy with its newest data.
    #[error("row {} of virtual disk {} would have no current copy of regions {regions:#x}", .row.0, .space.0)]
    LastCopy { space: SpaceId, row: RowNumber, regions: u64 },
    /// The row, slab, disk or owner does not exist any more.
    #[error("a change of virtual disk {} refers to an earlier state of it", .0.0)]
    Outdated(SpaceId),
    /// An invalid percentage.
    #[error("a percentage must be 1 to 100, not {0}")]
    Percent(u8),
}

/// The most voters that this version can count in one record; it chooses far fewer.
const VOTERS_MAX: usize = 64;

impl State {
    /// Applies one operation. Errors: nothing has changed then.
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
                    return Err(InvalidOp::BadShape("the record of a disk is invalid"));
                }
                next(u64::from(disk.0), u64::from(self.next_disk))?;
                let after = self
                    .next_disk
                    .checked_add(1)
                    .ok_or(InvalidOp::BadShape("all 65,535 disk numbers are used"))?;
                if self.disks.values().any(|d| d.id == record.id) {
                    return Err(InvalidOp::BadShape("the pool already has a disk with this identity"));
                }
                self.next_disk = after;
                Arc::make_mut(&mut self.disks).insert(*disk, record.clone());
            }
            Op::RemoveDisk { disk } => {
                self.disk(*disk)?;
                if self.slabs_used(*disk).next().is_some() || self.voters.contains(disk) {
                    return Err(InvalidOp::DiskInUse(*disk));
                }
                Arc::make_mut(&mut self.disks).remove(disk);
                self.forget_unaccounted(*disk);
            }
            Op::DiskAbsent { disk, reason } => {
                self.disk(*disk)?;
                if self.voters.contains(disk) {
                    return Err(InvalidOp::BadVoters);
                }
                self.disk_mut(*disk)?.presence = Presence::Absent(*reason);
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
            Op::Opened { epoch, incarnation } => {
                let newest = self.epoch();
                if *epoch <= newest {
                    return Err(InvalidOp::BadEpoch { given: *epoch, newest });
                }
                Arc::make_mut(&mut self.epochs).insert(*epoch, *incarnation);
                self.begin_ownerships(*epoch);
                while self.epochs.len() > EPOCHS_MAX {
                    Arc::make_mut(&mut self.epochs).pop_first();
                }
            }
            Op::GivenUp { after } => {
                let epoch = self.epoch();
                Arc::make_mut(&mut self.given_up).insert(epoch, *after);
                while self.given_up.len() > GIVEN_UP_MAX {
                    Arc::make_mut(&mut self.given_up).pop_first();
                }
            }
            Op::MarkDiskStale { disk } => {
                self.disk(*disk)?;
                let spaces: Vec<SpaceId> = self.spaces_on(*disk).collect();
                spaces.into_iter().try_for_each(|space| self.stale(space, *disk))?;
            }
            Op::Space { space, op } => self.apply_to_space(*space, op)?,
            Op::SetPolicy { policy } => {
                check_policy(policy)?;
                self.policy = *policy;
            }
            Op::SetDiskMedia { disk, media } => self.disk_mut(*disk)?.media = *media,
        }
        Ok(())
    }

    /// Applies the operations of one record, all or none. Errors: the first that cannot be applied.
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
        Arc::make_mut(&mut self.disks).get_mut(&disk).ok_or(InvalidOp::NoDisk(disk))
    }

    pub(super) fn check_space_name(&self, name: &str) -> Result<(), InvalidOp> {
        check_name(name)?;
        match self.spaces.values().any(|s| s.name == name) {
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
