//! Derives the faults from a snapshot: each root cause once.
//!
//! Causes: an absent disk is a consequence of its fault domain, if the whole domain is absent. A space with less
//! redundancy than promised, or with an unavailable or undecided part, a stale disk, and metadata on too few disks are
//! consequences of the absent disks or, without any, of the stale disks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool_seam::Regions;

use super::lose::spare_in_row;
use super::{Fault, FaultKind, FaultObject, Level, Severity, Snapshot, may_grow};
use crate::events::DamageKind;
use crate::jobs::{DelayReason, JobState, Kind, Subject};
use crate::placement::outside;
use crate::{
    Absence, DiskNumber, DiskRecord, MediaClass, Presence, Provisioning, Row, SpaceId, SpaceRecord, State,
    Usage,
};

/// The faults, the worst first.
pub fn faults(now: &Snapshot<'_>) -> Vec<Fault> {
    let state = now.state;
    let mut roots = away(now);
    let mut others = Vec::new();
    others.extend(
        now.suspended
            .clone()
            .map(|why| Fault::new(FaultObject::Pool, Severity::Error, FaultKind::Suspended { why })),
    );
    others.extend(disks(now));
    others.extend(lost(state));
    let (waiting, behind): (Vec<_>, Vec<_>) = behind(now)
        .into_iter()
        .partition(|f| matches!(&f.kind, FaultKind::Behind { waits: Some(DelayReason::DisksAbsent(_)), .. }));
    // Faults that wait for an absent disk are its consequences.
    let of_away = roots.len();
    roots.extend(behind);
    waiting.into_iter().for_each(|f| attach(&mut roots, of_away, None, f, &mut others));
    for (space, fault) in spaces(now) {
        attach(&mut roots, of_away, Some((state, space)), fault, &mut others);
    }
    metadata(state).into_iter().for_each(|f| attach(&mut roots, of_away, None, f, &mut others));
    reserve(state).into_iter().for_each(|f| attach(&mut roots, of_away, None, f, &mut others));
    others.extend(other_media(now));
    others.extend(capacity(now));
    roots.extend(others);
    roots.sort_by_key(|f| std::cmp::Reverse(f.severity));
    roots
}

/// The disks of a fault.
fn about(fault: &Fault) -> Vec<DiskNumber> {
    match (&fault.kind, &fault.object) {
        (FaultKind::DomainAway { disks }, _) => disks.clone(),
        (_, FaultObject::Disk(disk)) => vec![*disk],
        _ => Vec::new(),
    }
}

/// Attaches a fault to its causes: a fault of a space to each root that affects the space, a fault of the pool to all
/// absent disks. Without a cause, the fault is a root itself.
fn attach(
    roots: &mut [Fault],
    of_away: usize,
    space: Option<(&State, SpaceId)>,
    fault: Fault,
    others: &mut Vec<Fault>,
) {
    let touches = |root: &Fault| match space {
        None => true,
        Some((state, space)) => {
            let on = about(root);
            state.rows_of(space).flat_map(|(_, r)| r.slabs.iter()).any(|c| on.contains(&c.place.disk))
        }
    };
    let (away, behind) = roots.split_at_mut(of_away);
    let mut found = false;
    for root in away.iter_mut().filter(|r| touches(r)) {
        root.explains(fault.clone());
        found = true;
    }
    if !found && space.is_some() {
        for root in behind.iter_mut().filter(|r| touches(r)) {
            root.explains(fault.clone());
            found = true;
        }
    }
    if !found {
        others.push(fault);
    }
}

/// Absent disks, grouped by absent fault domains.
fn away(now: &Snapshot<'_>) -> Vec<Fault> {
    let state = now.state;
    let absence = |d: &DiskNumber| match state.disks.get(d)?.presence {
        Presence::Present => None,
        Presence::Absent(why) => Some(why),
    };
    let one = |disk: DiskNumber, why: Absence| {
        let severity = match why {
            Absence::ByCommand => Severity::Information,
            _ => Severity::Warning,
        };
        let mut fault = Fault::new(FaultObject::Disk(disk), severity, FaultKind::Absent(why));
        if let (Absence::Slow, Some(slow)) = (why, now.slow.get(&disk)) {
            fault.explains(Fault::new(FaultObject::Disk(disk), Severity::Warning, FaultKind::Slow(*slow)));
        }
        fault
    };
    let mut left: BTreeMap<DiskNumber, Absence> =
        state.disks.keys().filter_map(|d| Some((*d, absence(d)?))).collect();
    let mut roots = Vec::new();
    for level in Level::ALL {
        let mut domains: BTreeMap<&str, Vec<DiskNumber>> = BTreeMap::new();
        for (disk, record) in &*state.disks {
            domains.entry(level.name_of(&record.domains)).or_default().push(*disk);
        }
        for (name, disks) in domains {
            // A disk of the domain may have been absent earlier, for another reason.
            let lost = |d: &DiskNumber| matches!(left.get(d), Some(Absence::NotFound | Absence::Gone));
            if name.is_empty()
                || disks.len() < 2
                || disks.len() == state.disks.len()
                || !disks.iter().all(|d| left.contains_key(d))
                || !disks.iter().any(lost)
            {
                continue;
            }
            let object = FaultObject::Domain(level, name.to_owned());
            let mut root =
                Fault::new(object, Severity::Warning, FaultKind::DomainAway { disks: disks.clone() });
            for disk in disks {
                if let Some(why) = left.remove(&disk) {
                    root.explains(one(disk, why));
                }
            }
            roots.push(root);
        }
    }
    roots.extend(left.into_iter().map(|(disk, why)| one(disk, why)));
    roots
}

/// Faults of present disks.
fn disks(now: &Snapshot<'_>) -> Vec<Fault> {
    let state = now.state;
    let mut out = Vec::new();
    for (disk, error) in &now.failing {
        let kind = FaultKind::Failing { error: error.clone() };
        out.push(Fault::new(FaultObject::Disk(*disk), Severity::Error, kind));
    }
    for (disk, slow) in now.slow.iter().filter(|(d, _)| state.is_present(**d)) {
        out.push(Fault::new(FaultObject::Disk(*disk), Severity::Warning, FaultKind::Slow(*slow)));
    }
    let leaving = state.disks.iter().filter(|(_, r)| r.usage.is_leaving());
    for (&disk, _) in leaving.filter(|(d, _)| state.is_present(**d)) {
        let left = state.slabs_used(disk).count() as u64 * state.slab_bytes;
        let drains = |j: &&JobState| j.kind == Kind::Drain && j.subject == Subject::Disk(disk);
        if left > 0 && now.read_only {
            continue;
        }
        let waits = if left == 0 { None } else { waits(state, now.jobs.iter().find(drains)) };
        let severity = if waits.is_some() { Severity::Warning } else { Severity::Information };
        out.push(Fault::new(FaultObject::Disk(disk), severity, FaultKind::Retired { left, waits }));
    }
    let mut counts: BTreeMap<DiskNumber, u64> = BTreeMap::new();
    for ((found, disk), units) in &now.findings {
        match found {
            DamageKind::Healed | DamageKind::Unreadable | DamageKind::BadTable | DamageKind::Metadata => {
                *counts.entry(*disk).or_insert(0) += units;
            }
            // A write was in flight at a crash: that is no fault of a disk. Lost units are a fault of their space.
            DamageKind::Unsettled | DamageKind::Lost => {}
        }
    }
    for (disk, units) in counts {
        out.push(Fault::new(FaultObject::Disk(disk), Severity::Warning, FaultKind::Healed { units }));
    }
    out
}

/// Known lost units of spaces.
fn lost(state: &State) -> Vec<Fault> {
    let fault = |(space, record): (&SpaceId, &Arc<SpaceRecord>)| {
        let (loss, object) = (&record.loss, FaultObject::Space(*space));
        let kind =
            FaultKind::Lost { units: loss.units, at_least: loss.is_open(), first: loss.at.first().copied() };
        (loss.units > 0).then(|| Fault::new(object, Severity::Error, kind))
    };
    state.spaces.iter().filter_map(fault).collect()
}

/// Present disks that lack writes.
fn behind(now: &Snapshot<'_>) -> Vec<Fault> {
    let state = now.state;
    let of_slab = Regions::new(state.slab_bytes);
    let mut regions: BTreeMap<DiskNumber, u64> = BTreeMap::new();
    for record in state.spaces.values() {
        for copy in record.data_rows().flat_map(|(_, row)| row.slabs.iter()) {
            let stale = record.stale_regions(copy) & of_slab.all();
            if stale != 0 && state.is_present(copy.place.disk) {
                *regions.entry(copy.place.disk).or_insert(0) += u64::from(stale.count_ones());
            }
        }
    }
    let fault = |(disk, regions): (DiskNumber, u64)| {
        let works = |j: &&JobState| {
            j.subject == Subject::Disk(disk) && matches!(j.kind, Kind::Resync | Kind::Rebuild)
                || matches!(j.kind, Kind::Rebuild | Kind::Drain | Kind::Rebalance | Kind::Reshape)
        };
        let waits = waits(state, now.jobs.iter().find(works));
        let severity = if waits.is_some() { Severity::Warning } else { Severity::Information };
        let bytes = regions * (state.slab_bytes / u64::from(of_slab.count()));
        Fault::new(FaultObject::Disk(disk), severity, FaultKind::Behind { bytes, waits })
    };
    regions.into_iter().map(fault).collect()
}

/// Why a job does not run, if it does not.
fn waits(state: &State, job: Option<&JobState>) -> Option<DelayReason> {
    match job.map(|j| j.why.clone()) {
        // The job was not started, or was stopped.
        None => Some(DelayReason::Stopping),
        Some(
            None | Some(DelayReason::Paced { .. } | DelayReason::AfterJob(..) | DelayReason::Incomplete(_)),
        ) => None,
        // They have returned, and the job is about to continue.
        Some(Some(DelayReason::DisksAbsent(disks)))
            if !disks.is_empty() && disks.iter().all(|d| state.is_present(*d)) =>
        {
            None
        }
        Some(why) => why,
    }
}

/// Faults of spaces.
fn spaces(now: &Snapshot<'_>) -> Vec<(SpaceId, Fault)> {
    let state = now.state;
    let mut out = Vec::new();
    for (&space, record) in &state.spaces {
        let promised = |row: &Row| record.resiliency_of(row).failures();
        let spares = record.ready_rows().map(|(_, row)| (spare_in_row(state, record, row), promised(row)));
        let fault = |severity, kind| (space, Fault::new(FaultObject::Space(space), severity, kind));
        match spares.filter(|(left, promised)| *left < Some(*promised)).min() {
            Some((None, _)) => out.push(fault(Severity::Error, FaultKind::Unavailable)),
            Some((Some(left), promised)) => {
                out.push(fault(Severity::Warning, FaultKind::Redundancy { left, promised }));
            }
            None => {}
        }
        if let Some(why) = now.not_open.get(&space).filter(|_| now.suspended.is_none()) {
            out.push(fault(Severity::Error, FaultKind::NotOpen { why: why.clone() }));
        }
        // No fault while the job runs: a read or write decides its units first.
        let resolves = |j: &crate::jobs::JobState| {
            j.kind == Kind::Resolve && matches!(j.why, None | Some(DelayReason::Paced { .. }))
        };
        let groups = now.in_doubt.get(&space).copied().unwrap_or(0);
        if groups > 0 && !now.jobs.iter().any(resolves) {
            out.push(fault(Severity::Warning, FaultKind::InDoubt { groups }));
        }
    }
    out
}

/// Whether the loss of one disk with metadata would stop a pool that promises to survive it.
fn metadata(state: &State) -> Option<Fault> {
    let voters = state.voters.len();
    let promises = state.spaces.values().any(|s| s.resiliency.failures() > 0);
    let bare = promises && state.disks.len() > 1 && voters <= state.quorum_to_continue();
    bare.then(|| Fault::new(FaultObject::Pool, Severity::Warning, FaultKind::Metadata { voters }))
}

/// Whether the other disks have room for the data of a lost disk: in total, or for the media class with the largest
/// deficit.
fn reserve(state: &State) -> Option<Fault> {
    let classes: BTreeSet<MediaClass> = state.spaces.values().map(|r| r.media).collect();
    let lacks = classes.into_iter().filter_map(|media| {
        let (needed, free) = reserve_on(state, media)?;
        (free < needed).then(|| (needed - free, media, needed, free))
    });
    let (_, media, needed, free) = lacks.max_by_key(|(lack, ..)| *lack)?;
    let (needed, free) = (needed * state.slab_bytes, free * state.slab_bytes);
    Some(Fault::new(FaultObject::Pool, Severity::Warning, FaultKind::NoReserve { needed, free, media }))
}

/// The number of slabs that a rebuild would need on these media, for spaces restricted to them, and the number of
/// free ones. Returns `None` if no rebuild is possible there by design.
fn reserve_on(state: &State, media: MediaClass) -> Option<(u64, u64)> {
    let within = |r: &SpaceRecord| r.media.is_within(media);
    let redundant = state.spaces.values().filter(|r| within(r) && r.resiliency.failures() > 0);
    let widest = redundant.map(|r| r.shape().slabs_in_set().max(r.former.slabs_in_set())).max()?;
    let takes = |d: &DiskNumber| {
        let usage = |r: &DiskRecord| matches!(r.usage, Usage::AutoSelect | Usage::HotSpare);
        state.disks.get(d).is_some_and(|r| usage(r) && media.takes(r.media()))
    };
    let here: Vec<DiskNumber> =
        state.disks.keys().copied().filter(|d| state.is_present(*d) && takes(d)).collect();
    let mut slabs: BTreeMap<DiskNumber, u64> = BTreeMap::new();
    if media.is_any() {
        slabs.extend(state.disks.keys().map(|d| (*d, state.slabs_used(*d).count() as u64)));
    } else {
        let spaces = state.spaces.values().filter(|record| within(record));
        let rows = spaces.flat_map(|record| record.data_rows());
        rows.flat_map(|(_, r)| r.slabs.iter()).for_each(|c| *slabs.entry(c.place.disk).or_insert(0) += 1);
    }
    let used = |d: DiskNumber| slabs.get(&d).copied().unwrap_or(0);
    let lost: BTreeSet<DiskNumber> = state.disks.keys().copied().filter(|d| !state.is_present(*d)).collect();
    // The slabs that are lost already; otherwise those of the disk with the most. If there are only as many disks as
    // copies, a rebuild has no destination by design.
    let (needed, left) = if lost.iter().any(|d| used(*d) > 0) {
        (lost.iter().map(|d| used(*d)).sum(), here.clone())
    } else {
        let fullest = here.iter().copied().max_by_key(|d| used(*d))?;
        (used(fullest), here.iter().copied().filter(|d| *d != fullest).collect())
    };
    if left.len() < widest || needed == 0 {
        return None;
    }
    Some((needed, left.iter().map(|d| u64::from(state.slabs_free(*d))).sum()))
}

/// Spaces with slabs on media outside their class.
fn other_media(now: &Snapshot<'_>) -> Vec<Fault> {
    let state = now.state;
    // No action is needed while they are being moved.
    let works = |j: &crate::jobs::JobState| {
        j.kind == Kind::Rebalance
            && matches!(j.why, None | Some(DelayReason::Paced { .. } | DelayReason::AfterJob(..)))
    };
    let working = now.jobs.iter().any(works);
    let slabs = state.spaces.keys().map(|space| (*space, outside(state, *space) as u64));
    let fault = |(space, slabs): (SpaceId, u64)| {
        let severity = if working { Severity::Information } else { Severity::Warning };
        let kind = FaultKind::OtherMedia { bytes: slabs * state.slab_bytes };
        Fault::new(FaultObject::Space(space), severity, kind)
    };
    slabs.filter(|(_, n)| *n > 0).map(fault).collect()
}

/// Reports thin spaces that may not be able to grow.
fn capacity(now: &Snapshot<'_>) -> Option<Fault> {
    let state = now.state;
    let full = growing(state).filter(|(space, _)| !may_grow(state, *space));
    let full: Vec<_> = full
        .map(|(space, _)| Fault::new(FaultObject::Space(space), Severity::Error, FaultKind::Full))
        .collect();
    let (media, percent) = fill(state).into_iter().max_by_key(|(_, percent)| *percent)?;
    if percent < now.warn_percent && full.is_empty() {
        return None;
    }
    let kind = FaultKind::Capacity { percent, threshold: now.warn_percent, media };
    let mut fault = Fault::new(FaultObject::Pool, Severity::Warning, kind);
    full.into_iter().for_each(|f| fault.explains(f));
    Some(fault)
}

/// Thin spaces that are not fully allocated yet.
fn growing(state: &State) -> impl Iterator<Item = (SpaceId, &SpaceRecord)> {
    let grows = |record: &SpaceRecord| {
        let rows = record.data_rows().count() as u64;
        let may_grow = record.is_converting() || rows < record.row_count(state.slab_bytes);
        record.provisioning == Provisioning::Thin && may_grow
    };
    let spaces = state.spaces.iter().map(|(space, record)| (*space, &**record));
    spaces.filter(move |(_, record)| grows(record))
}

/// The used percentage of the disks of each class on which a thin space may grow.
pub fn fill(state: &State) -> BTreeMap<MediaClass, u64> {
    growing(state).map(|(_, record)| (record.media, percent_used(state, record.media))).collect()
}

/// The used percentage of the disks for new slabs of spaces of this class.
fn percent_used(state: &State, media: MediaClass) -> u64 {
    let here = state.disks.iter().filter(|(d, r)| state.is_present(**d) && r.usage == Usage::AutoSelect);
    let (mut all, mut used) = (0, 0);
    for (disk, record) in here.filter(|(_, r)| media.takes(r.media())) {
        all += u64::from(record.slabs);
        used += state.slabs_used(*disk).count() as u64;
    }
    (used * 100).checked_div(all).unwrap_or(0)
}

#[cfg(test)]
mod tests;
