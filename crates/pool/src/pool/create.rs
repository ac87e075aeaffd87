//! Creating a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arena::Arena;
use disk::{Disk, DiskInfo, IdKind, Media};
use env::{Env, Epoch};
use pool_seam::media_number;

use super::error::{CreateError, Unsuitable};
use super::{Pool, labels};
use crate::authority::{self, AuthorityValue, CasError, Labels, PoolAuthority, Revision};
use crate::format::{Areas, Claimant, FrameError, Label, LabelError};
use crate::metadata::{DiskIo, Member, Members, MembershipToEnd, Opening, Point, Voter, absence};
use crate::{
    CommitError, Deadlines, DiskId, DiskNumber, DiskRecord, FaultDomains, Op, PoolId, Presence, State, UNIT,
    Usage, voters,
};

/// A disk for a pool.
#[derive(Clone)]
pub struct NewDisk {
    /// The device.
    pub disk: Arc<dyn Disk>,
    /// Its fault domains; the enclosure may be left out if the system reports it.
    pub domains: FaultDomains,
    /// Its usage.
    pub usage: Usage,
    /// The medium of the disk, if the caller overrides the system's report.
    pub media: Option<Media>,
    /// Whether the disk may belong to another pool, which then loses it.
    pub overwrite: bool,
}

/// The properties of a new pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Its name.
    pub name: String,
    /// Bytes of a slab; `None`: derived from the sizes of the disks ([`Areas::slab_bytes_for`]).
    pub slab_bytes: Option<u64>,
    /// The creator, which becomes the owner.
    pub by: Claimant,
    /// The deadlines of its disks.
    pub deadlines: Deadlines,
}

impl CreateOptions {
    /// Options with a slab size derived from the sizes of the disks.
    pub fn new(name: impl Into<String>, by: Claimant) -> CreateOptions {
        CreateOptions { name: name.into(), slab_bytes: None, by, deadlines: Deadlines::default() }
    }
}

impl NewDisk {
    /// A disk without a known location.
    pub fn new(disk: Arc<dyn Disk>) -> NewDisk {
        let domains = FaultDomains::default();
        NewDisk { disk, domains, usage: Usage::AutoSelect, media: None, overwrite: false }
    }
}

impl Pool {
    /// Creates a pool of `disks`, and becomes its owner. Errors: the unsuitable disk, and why; then nothing has been
    /// written. After an error of the metadata the disks may have labels of a pool that cannot be opened.
    pub async fn create(
        env: &Env,
        arena: &Arena,
        disks: &[NewDisk],
        options: CreateOptions,
    ) -> Result<Pool, CreateError> {
        Pool::create_under(None, env, arena, disks, options).await
    }

    /// [`Pool::create`] with this authority, whose value must be the default one.
    pub async fn create_under(
        authority: Option<Arc<dyn PoolAuthority>>,
        env: &Env,
        arena: &Arena,
        disks: &[NewDisk],
        options: CreateOptions,
    ) -> Result<Pool, CreateError> {
        let io = DiskIo::new(env, arena, Epoch(1), options.deadlines);
        let sizes = disks.iter().map(|d| d.disk.info().geometry.size);
        let (smallest, all) =
            (sizes.clone().min().ok_or(CreateError::NoDisks)?, sizes.fold(0, u64::saturating_add));
        let slab_bytes = options.slab_bytes.unwrap_or_else(|| Areas::slab_bytes_for(smallest, all));
        if !slab_bytes.is_power_of_two() || !(Areas::SLAB_MIN..=Areas::SLAB_MAX).contains(&slab_bytes) {
            return Err(CreateError::SlabBytes(slab_bytes));
        }
        let mut seen = BTreeSet::new();
        let mut planned = Vec::new();
        for new in disks {
            let info = new.disk.info();
            let fail = |why| CreateError::Disk { path: info.path.clone(), why };
            if !seen.insert(info.id.clone()) {
                return Err(fail(Unsuitable::Twice));
            }
            planned.push(suitable(&io, new, slab_bytes).await.map_err(fail)?);
        }

        let pool = PoolId(env.random());
        let (epoch, incarnation) = (1, env.random_u64());
        let mut state = State::new(pool, options.name, slab_bytes);
        let mut ops = vec![Op::Opened { epoch, incarnation }];
        let mut members = Vec::new();
        for (n, (new, areas)) in disks.iter().zip(&planned).enumerate() {
            let number = u16::try_from(n).map(DiskNumber).unwrap_or(DiskNumber(u16::MAX));
            let record = describe(env, new, areas);
            members.push(Arc::new(Member {
                number,
                id: record.id,
                disk: Arc::clone(&new.disk),
                areas: *areas,
            }));
            ops.push(Op::AddDisk { disk: number, record });
        }
        // Applied to a copy, to choose the voters and to refuse a bad name before anything is written.
        let mut tried = state.clone();
        tried.apply(&Op::RenamePool { name: state.name.clone() }).map_err(crate::CommitError::Invalid)?;
        tried.apply_all(&ops).map_err(crate::CommitError::Invalid)?;
        let chosen = voters::choose(&tried, |_| true);
        ops.push(Op::Voters { voters: chosen.clone() });
        state.next_disk = 0;

        let fail = |member: &Member, e: disk::DiskError| CreateError::Disk {
            path: member.disk.info().path.clone(),
            why: Unsuitable::Disk(e),
        };
        for member in &members {
            labels::wipe(&io, &member.disk, &member.areas).await.map_err(|e| fail(member, e))?;
        }
        let agreed = AuthorityValue {
            epoch,
            incarnation,
            coordinator: Some(options.by.clone()),
            since_unix_s: env.unix_time().as_secs(),
            voters: chosen.clone(),
            absent: BTreeSet::new(),
        };
        let authority = authority.unwrap_or_else(|| {
            Labels::new(&io, pool, members.iter().cloned().collect::<Members>(), BTreeMap::new())
        });
        let revision = authority::set(&*authority, Revision::default(), &agreed).await;
        let revision = revision.map_err(|e| match e {
            CasError::Disk { disk, error } => fail(&members[usize::from(disk.0)], error),
            error => error.into(),
        })?;
        let voters = members.iter().filter(|m| chosen.contains(&m.number));
        let opening = Opening {
            point: Point { epoch, incarnation, sequence: 0, chain: 0 },
            ops,
            voters: voters.map(|m| Voter::new(Arc::clone(m), 0)).collect(),
            needed: 0,
            members: members.iter().cloned().collect::<Members>(),
            authority,
            revision,
            agreed,
            state,
        };
        let made = Pool::start(io, opening, options.by.machine, false).await?;
        // Written last: a disk without a label does not belong to the pool.
        made.relabel(|_| 0).await?;
        Ok(made)
    }

    /// Writes a label of this epoch to each member, and records it. `shown` returns the sequence number of a disk's
    /// current label if it may be above the recorded one, otherwise 0.
    pub(super) async fn relabel(&self, shown: impl Fn(DiskNumber) -> u64) -> Result<(), crate::CommitError> {
        let mut ops = Vec::new();
        for member in self.members().iter() {
            ops.extend(self.relabel_one(member, shown(member.number)).await?);
        }
        self.inner.metadata.commit(ops).await
    }

    /// Writes the label of one member; returns the operation to record. A disk that does not accept its label is
    /// removed from service. If it has the only copy of some data, it stays in service with its current label, which
    /// is also the one in the metadata; the next opening or scrub retries.
    pub(super) async fn relabel_one(
        &self,
        member: &Arc<Member>,
        shown: u64,
    ) -> Result<Option<Op>, crate::CommitError> {
        let disk = member.number;
        let next = self.read(|s| s.disks.get(&disk).map(|r| r.next_label(shown)));
        let label = next.and_then(|sequence| self.label(member, sequence));
        let Some(label) = label else { return Ok(None) };
        self.inner.metadata.tenure().hold().await?;
        let Err(error) = labels::write(&self.inner.io, &member.disk, &label).await else {
            self.inner.unlabelled.lock().remove(&disk);
            return Ok(Some(Op::Labelled { disk, sequence: label.sequence }));
        };
        let membership = MembershipToEnd::OfMember(Arc::clone(member));
        match self.inner.metadata.remove_from_service(disk, membership, absence(&error)).await {
            Err(CommitError::Needed(_)) => {
                self.inner.unlabelled.lock().insert(disk, error.to_string());
                tracing::warn!(disk = disk.0, %error, "a disk did not accept its label, but stays in service: it has the only current copy of some data");
                Ok(None)
            }
            left => left.map(|()| None),
        }
    }

    /// The label that a disk should have.
    pub(super) fn label(&self, member: &Member, sequence: u64) -> Option<Label> {
        self.read(|s| {
            let record = s.disks.get(&member.number)?;
            Some(self.label_of(member, record, s.name.clone(), sequence))
        })
    }

    pub(super) fn label_of(
        &self,
        member: &Member,
        record: &DiskRecord,
        pool_name: String,
        sequence: u64,
    ) -> Label {
        Label {
            pool: self.inner.id,
            number: member.number,
            epoch: self.inner.epoch,
            incarnation: self.inner.incarnation,
            sequence,
            features: Vec::new(),
            id: member.id,
            pool_name,
            node: self.inner.node,
            domains: record.domains.clone(),
            atomic_write: member.disk.info().geometry.atomic_write,
            areas: member.areas,
        }
    }
}

/// Checks whether the disk is suitable for a pool with such slabs; returns its layout.
pub(super) async fn suitable(io: &DiskIo, new: &NewDisk, slab_bytes: u64) -> Result<Areas, Unsuitable> {
    let info = new.disk.info();
    let geometry = &info.geometry;
    if u64::from(geometry.logical_block) > UNIT {
        return Err(Unsuitable::Blocks(geometry.logical_block));
    }
    if u64::from(geometry.atomic_write) < UNIT {
        return Err(Unsuitable::Tears(geometry.atomic_write));
    }
    if info.id.kind == IdKind::Path {
        return Err(Unsuitable::NoIdentity);
    }
    let least = Areas::DISK_MIN.max(2 * slab_bytes);
    let areas =
        Areas::plan(geometry.size, slab_bytes).ok_or(Unsuitable::Small { size: geometry.size, least })?;
    if new.overwrite {
        return Ok(areas);
    }
    match labels::read(io, &new.disk).await {
        Ok(label) => {
            let (name, pool, number) = (label.pool_name, label.pool, label.number);
            Err(Unsuitable::InPool { name, pool, number })
        }
        Err(LabelError::Frame(FrameError::Blank | FrameError::Foreign)) => Ok(areas),
        // The disk may still belong to a pool of a newer program version.
        Err(why) => Err(Unsuitable::Label(why)),
    }
}

/// The record of a new disk, with a new identity and its first label.
pub(super) fn describe(env: &Env, new: &NewDisk, areas: &Areas) -> DiskRecord {
    let info = new.disk.info();
    DiskRecord {
        id: DiskId(env.random()),
        name: name_of(info),
        slabs: areas.slab_count(),
        usage: new.usage,
        presence: Presence::Present,
        domains: stands(new),
        media: media_number(new.media.unwrap_or(info.media)),
        label_sequence: 1,
        membership: crate::Membership(1),
        areas: *areas,
    }
}

/// The location of a disk: as set by the caller; if the caller sets no enclosure, the one that the system reports.
fn stands(new: &NewDisk) -> FaultDomains {
    let mut domains = new.domains.clone();
    if domains.enclosure.is_empty()
        && let Some(slot) = &new.disk.info().enclosure
    {
        domains.enclosure.clone_from(&slot.enclosure);
    }
    domains
}

fn name_of(info: &DiskInfo) -> String {
    let mut name = info.id.to_string();
    while name.len() > 255 {
        name.pop();
    }
    name
}
