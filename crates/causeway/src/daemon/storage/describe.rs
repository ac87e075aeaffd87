//! Converts pools, disks and spaces to the documents of the control interface.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use disk::DiskInfo;
use disk::qualify::Qualification;
use pool::events::DamageKind;
use pool::health::{self, CanLose, Health, Limit, Problems};
use pool::{
    DiskNumber, DiskRecord, MediaClass, Presence, Provisioning, Resiliency, ScrubRecord, SpaceId, State,
    Usage,
};

use super::error::{self, StorageError};
use super::open_pool::OpenPool;
use super::pools::{Closed, KnownPool, Pools};
use crate::control::storage::{
    DiskStatus, Finding, MediaStatus, PoolDetail, PoolStatus, Qualified, Reason, ScrubStatus, SpaceStatus,
};
use crate::output::quoted;

impl Pools {
    /// All pools, by identity.
    pub fn pools(&self) -> Vec<PoolStatus> {
        self.known.lock().iter().map(|(id, known)| status(&id.to_string(), known)).collect()
    }

    /// One pool with its disks and virtual disks.
    ///
    /// # Errors
    /// No pool has that name.
    pub fn pool(&self, name: &str) -> Result<PoolDetail, StorageError> {
        let (id, known) = self.find(name)?;
        let (physical_disks, virtual_disks, findings) = match &known {
            KnownPool::Open(open) => (disks(open), spaces(open), findings(open)),
            KnownPool::Closed(_) => (Vec::new(), Vec::new(), Vec::new()),
        };
        let closed_disks = match &known {
            KnownPool::Open(_) => Vec::new(),
            KnownPool::Closed(closed) => closed.disks.clone(),
        };
        let pool = status(&id.to_string(), &known);
        Ok(PoolDetail { pool, physical_disks, virtual_disks, findings, closed_disks })
    }

    /// All virtual disks of open pools.
    pub fn spaces(&self) -> Vec<SpaceStatus> {
        self.open_pools().iter().flat_map(|open| spaces(open)).collect()
    }
}

fn status(id: &str, known: &KnownPool) -> PoolStatus {
    match known {
        KnownPool::Open(open) => open_status(id, open),
        KnownPool::Closed(closed) => closed_status(id, closed),
    }
}

fn open_status(id: &str, open: &OpenPool) -> PoolStatus {
    let (suspended, unverified, problems) = (open.pool.suspended(), open.unverified(), open.problems());
    open.pool.read(|s| {
        let Health { operational, health } =
            health::of_pool(s, &problems, suspended.is_some(), open.read_only);
        let can_lose = health::can_lose(s, &unverified);
        let because = match &can_lose.limit {
            Limit::Metadata => "too few disks with metadata would remain".to_owned(),
            Limit::Space(name) => format!("{name} would lose data"),
        };
        let present = |r: &&DiskRecord| r.presence == Presence::Present;
        PoolStatus {
            name: s.name.clone(),
            unique_id: id.to_owned(),
            operational_status: operational.to_owned(),
            health_status: health.to_owned(),
            is_read_only: open.read_only || suspended.is_some(),
            size: s.disks.values().map(|d| u64::from(d.slabs) * s.slab_bytes).sum(),
            allocated: s.slabs_allocated() as u64 * s.slab_bytes,
            media: media(s),
            slab_size: s.slab_bytes,
            disks: s.disks.len(),
            disks_missing: s.disks.len() - s.disks.values().filter(present).count(),
            spaces: s.spaces.len(),
            can_lose: Some(can_lose.disks),
            can_lose_text: Some(can_lose_text(&can_lose)),
            can_lose_because: Some(because),
            cure: suspended.as_ref().map(|why| error::suspended(why, &quoted(&s.name))),
            reason: suspended.as_ref().map(ToString::to_string),
            warn_at: s.policy.warn_at,
            repair_after_s: s.policy.repair_after_s,
            notes: open.notes.iter().cloned().chain(fill(s)).collect(),
        }
    })
}

/// A text such as `1 enclosure or 2 disks now`: the domains, if there are several, and the disks.
pub(super) fn can_lose_text(can: &CanLose) -> String {
    let some = |n: usize, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
    let mut parts: Vec<_> = can.domains.iter().map(|(level, n)| some(*n, level.word())).collect();
    parts.push(some(can.disks, "disk"));
    format!("{} now", parts.join(" or "))
}

/// The disks of each medium.
fn media(s: &State) -> Vec<MediaStatus> {
    let mut all: BTreeMap<u8, MediaStatus> = BTreeMap::new();
    for (number, record) in s.disks.iter() {
        let none = || MediaStatus { media_type: record.media().to_string(), disks: 0, size: 0, allocated: 0 };
        let one = all.entry(record.media).or_insert_with(none);
        one.disks += 1;
        one.size += u64::from(record.slabs) * s.slab_bytes;
        one.allocated += u64::from(record.slabs - s.slabs_free(*number)) * s.slab_bytes;
    }
    all.into_values().collect()
}

/// Warnings about the capacity of the pool or of some media, with the thresholds of health.
fn fill(s: &State) -> Vec<String> {
    let warn_at = s.policy.warn_at;
    let full = |(media, used): (MediaClass, u64)| {
        let whose = if media.is_any() {
            "its capacity".to_owned()
        } else {
            format!("the capacity of its {}", media.disks())
        };
        (used >= u64::from(warn_at)).then(|| {
            format!(
                "{used} % of {whose} is in use (threshold {warn_at} %), and its thin virtual disks may grow: add {} (causeway pool add-disk {})",
                media.disks(),
                quoted(&s.name)
            )
        })
    };
    health::fill(s).into_iter().filter_map(full).collect()
}

fn closed_status(id: &str, closed: &Closed) -> PoolStatus {
    PoolStatus {
        name: closed.name.clone(),
        unique_id: id.to_owned(),
        operational_status: "Not open".to_owned(),
        health_status: "Unknown".to_owned(),
        is_read_only: true,
        size: 0,
        allocated: 0,
        media: Vec::new(),
        slab_size: 0,
        disks: closed.disks.len(),
        disks_missing: 0,
        spaces: 0,
        can_lose: None,
        can_lose_text: None,
        can_lose_because: None,
        reason: Some(closed.reason.clone()),
        cure: closed.cure.clone(),
        warn_at: 0,
        repair_after_s: 0,
        notes: Vec::new(),
    }
}

/// The disks of a pool.
pub(super) fn disks(open: &OpenPool) -> Vec<DiskStatus> {
    let (members, problems, paths) = (open.pool.members(), open.problems(), open.reporter.paths());
    open.pool.read(|s| {
        let describe = |(number, record): (&DiskNumber, &DiskRecord)| {
            let info = members.get(*number).map(|m| m.disk.info());
            let last_path = paths.get(number).filter(|_| info.is_none()).cloned();
            DiskStatus { last_path, ..pooled(s, *number, record, info, &problems) }
        };
        s.disks.iter().map(describe).collect()
    })
}

fn pooled(
    s: &State,
    number: DiskNumber,
    record: &DiskRecord,
    info: Option<&DiskInfo>,
    problems: &Problems,
) -> DiskStatus {
    let Health { operational, health } = health::of_disk(number, record, problems);
    let found = format!("it is disk {} of the pool '{}'", number.0, s.name);
    let cure = "remove it from that pool first".to_owned();
    DiskStatus {
        number: Some(number.0),
        friendly_name: info.map_or_else(String::new, |i| i.model.clone()),
        unique_id: record.name.clone(),
        path: info.map(|i| i.path.clone()),
        last_path: None,
        media_type: record.media().to_string(),
        can_pool: false,
        cannot_pool_reasons: vec![Reason { reason: "In a pool".to_owned(), found, cure }],
        operational_status: operational.to_owned(),
        health_status: health.to_owned(),
        usage: match record.usage {
            Usage::AutoSelect => "Auto-Select",
            Usage::ManualSelect => "Manual-Select",
            Usage::HotSpare => "Hot Spare",
            Usage::Journal => "Journal",
            Usage::Retired => "Retired",
            Usage::Leaving => "Removing",
        }
        .to_owned(),
        size: info.map_or_else(|| u64::from(record.slabs) * s.slab_bytes, |i| i.geometry.size),
        allocated: s.slabs_used(number).count() as u64 * s.slab_bytes,
        serial_number: info.map_or_else(String::new, |i| i.serial.clone()),
        firmware_version: info.map_or_else(String::new, |i| i.firmware.clone()),
        enclosure: record.domains.enclosure.clone(),
        slot: info.and_then(|i| i.enclosure.as_ref()).map_or_else(String::new, |e| e.slot.clone()),
        node: record.domains.node.clone(),
        rack: record.domains.rack.clone(),
        pool: Some(s.name.clone()),
    }
}

/// A disk of a pool in a sentence: with its path, its last path, or its identity.
pub(super) fn disk_text(s: &State, disk: DiskNumber, paths: &BTreeMap<DiskNumber, PathBuf>) -> String {
    match (paths.get(&disk), s.disks.get(&disk)) {
        (Some(path), Some(_)) if s.is_present(disk) => format!("disk {} ({})", disk.0, path.display()),
        (Some(path), Some(_)) => format!("disk {} (was {})", disk.0, path.display()),
        (None, Some(record)) => format!("disk {} ({})", disk.0, record.name),
        (_, None) => format!("disk {}", disk.0),
    }
}

/// A disk that belongs to no open pool.
pub(super) fn candidate(found: &Qualification) -> DiskStatus {
    let info = &found.info;
    let reason = |r: &disk::qualify::CannotPoolReason| Reason {
        reason: r.name().to_owned(),
        found: r.to_string(),
        cure: r.cure(),
    };
    DiskStatus {
        number: None,
        friendly_name: info.model.clone(),
        unique_id: info.id.to_string(),
        last_path: None,
        path: Some(PathBuf::clone(&info.path)),
        media_type: info.media.to_string(),
        can_pool: found.can_pool,
        cannot_pool_reasons: found.reasons.iter().map(reason).collect(),
        operational_status: "OK".to_owned(),
        health_status: "Healthy".to_owned(),
        usage: "Auto-Select".to_owned(),
        size: info.geometry.size,
        allocated: 0,
        serial_number: info.serial.clone(),
        firmware_version: info.firmware.clone(),
        enclosure: info.enclosure.as_ref().map_or_else(String::new, |e| e.enclosure.clone()),
        slot: info.enclosure.as_ref().map_or_else(String::new, |e| e.slot.clone()),
        node: String::new(),
        rack: String::new(),
        pool: None,
    }
}

/// The reason for a disk that was removed from an open pool.
pub(super) fn removed(pool: &str, path: &Path) -> Reason {
    Reason {
        reason: "Removed from a pool".to_owned(),
        found: format!("it was removed from the pool {pool}, but still has its label"),
        cure: error::use_again(pool, path),
    }
}

/// The result of an examination.
pub(super) fn qualified(found: &Qualification) -> Qualified {
    Qualified {
        disk: candidate(found),
        warnings: found.warnings.iter().map(ToString::to_string).collect(),
        signatures: found.signatures.iter().map(ToString::to_string).collect(),
        atomic_write: found.info.geometry.atomic_write,
        flush_us: found.flush.as_ref().map(|f| f.median.as_micros() as u64),
    }
}

/// The damage that was found.
fn findings(open: &OpenPool) -> Vec<Finding> {
    let word = |found| match found {
        DamageKind::Healed => "was damaged, and was repaired from another copy",
        DamageKind::Unreadable => "could not be read, and was repaired from another copy",
        DamageKind::BadTable => "had a damaged or stale checksum block, which was replaced",
        DamageKind::Metadata => "was a damaged label or damaged metadata, and was written again",
        DamageKind::Lost => "is lost: no copy is valid",
        DamageKind::Unsettled => "had different values on the copies after a crash, and one was chosen",
    };
    let counts = open.pool.events().counts();
    let finding = |((found, disk), units): ((DamageKind, DiskNumber), u64)| Finding {
        disk: disk.0,
        found: word(found).to_owned(),
        units,
    };
    counts.into_iter().map(finding).collect()
}

/// The virtual disks of a pool.
pub(super) fn spaces(open: &OpenPool) -> Vec<SpaceStatus> {
    let (problems, suspended) = (open.problems(), open.pool.suspended().is_some());
    open.pool.read(|s| {
        let health = |id| health::of_space(s, id, &problems, suspended);
        s.spaces.keys().filter_map(|id| space(open, s, *id, health(*id))).collect()
    })
}

/// The state of the scrub.
fn scrub(record: ScrubRecord) -> Option<ScrubStatus> {
    let ScrubRecord { began, ended, .. } = record;
    let some = |n: u64| (n != 0).then_some(n);
    (began != 0 || ended != 0).then_some(ScrubStatus {
        began_unix_s: some(began),
        ended_unix_s: some(ended),
        healed: if began != 0 { record.healed } else { record.last_healed },
        lost: if began != 0 { record.lost } else { record.last_lost },
    })
}

/// One virtual disk.
fn space(open: &OpenPool, s: &State, id: SpaceId, health: Health) -> Option<SpaceStatus> {
    let record = s.spaces.get(&id)?;
    let Health { operational, health } = health;
    let slabs: usize = record.data_rows().map(|(_, r)| r.slabs.len()).sum();
    Some(SpaceStatus {
        name: record.name.clone(),
        pool: s.name.clone(),
        resiliency: match record.resiliency {
            Resiliency::Simple => "Simple",
            Resiliency::Mirror { .. } => "Mirror",
            Resiliency::Parity { .. } | Resiliency::LocalParity { .. } => "Parity",
        }
        .to_owned(),
        redundancy: record.promised(),
        copies_wanted: (record.is_changing() && !record.is_converting()).then(|| record.resiliency.copies()),
        converted_percent: record.converted.map(|end| end.min(record.size) * 100 / record.size.max(1)),
        operational_status: operational.to_owned(),
        health_status: health.to_owned(),
        size: record.size,
        footprint: slabs as u64 * s.slab_bytes,
        efficiency: u64::from(record.columns) * 100 / record.slabs_in_row().max(1) as u64,
        provisioning: match record.provisioning {
            Provisioning::Thin => "Thin",
            Provisioning::Fixed => "Fixed",
        }
        .to_owned(),
        media_type: record.media.to_string(),
        columns: record.columns + record.resiliency.parity_columns() as u8,
        groups: match record.resiliency {
            Resiliency::LocalParity { groups, .. } => groups,
            _ => 1,
        },
        interleave: record.interleave,
        attached: open.attachments.place(id),
        scrub: scrub(record.scrub),
    })
}
