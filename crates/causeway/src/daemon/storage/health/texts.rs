//! Texts of faults, with commands that can be run unchanged.

#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pool::health::{Fault, FaultKind, FaultObject, Level, Severity};
use pool::jobs::JobState;
use pool::{Absence, DiskNumber, MediaClass, PoolId, Slowness, SpaceId, State};

use super::super::describe;
use super::super::pools::Closed;
use crate::control::health::FaultStatus;
use crate::control::storage::DiskStatus;
use crate::output::{human_bytes, quoted, some};

/// The names and paths of a pool for the texts.
pub(super) struct FaultTexts<'a> {
    pub(super) id: PoolId,
    pub(super) state: &'a State,
    /// Paths of the present disks.
    pub(super) paths: BTreeMap<DiskNumber, PathBuf>,
    pub(super) jobs: &'a [JobState],
    /// Disks that can be added, as of the last search.
    pub(super) free: &'a [DiskStatus],
}

impl FaultTexts<'_> {
    /// One fault, with its consequences.
    pub(super) fn fault(&self, fault: &Fault) -> FaultStatus {
        let (kind, reason, actions) = self.describe_fault(fault);
        let location = match &fault.object {
            FaultObject::Pool => format!("pool {}", self.state.name),
            FaultObject::Domain(level, name) => format!("pool {}, {} {name}", self.state.name, level.word()),
            FaultObject::Disk(disk) => self.location(*disk),
            FaultObject::Space(space) => {
                format!("pool {}, virtual disk {}", self.state.name, self.space(*space))
            }
        };
        FaultStatus {
            fault_id: identity(&format!("{}/{kind}/{:?}", self.id, fault.object)),
            fault_type: kind.to_owned(),
            perceived_severity: fault.severity as u8,
            reason,
            faulting_object_description: self.describe(&fault.object),
            faulting_object_location: location,
            recommended_actions: actions,
            consequences: fault.consequences.iter().map(|f| self.fault(f)).collect(),
            since_unix_s: None,
        }
    }

    /// FaultType, Reason and RecommendedActions.
    fn describe_fault(&self, fault: &Fault) -> (&'static str, String, Vec<String>) {
        let pool = quoted(&self.state.name);
        let import = format!("causeway pool import {pool}");
        match (&fault.kind, &fault.object) {
            (FaultKind::DomainAway { disks }, object) => {
                let (kind, word) = match object {
                    FaultObject::Domain(Level::Rack, _) => ("Rack.LostCommunication", "rack"),
                    FaultObject::Domain(Level::Node, _) => ("Server.Down", "node"),
                    _ => ("StorageEnclosure.LostCommunication", "enclosure"),
                };
                let list: Vec<_> = disks.iter().map(|d| d.0.to_string()).collect();
                let text = format!(
                    "All disks of the {word} are absent: disks {}. Check its power and cables. Its disks then return to the pool by themselves, or with the commands",
                    list.join(", ")
                );
                (kind, text, disks.iter().map(|d| self.return_command(*d)).collect())
            }
            (FaultKind::Absent(why), object) => {
                let (kind, text) = absent(*why);
                let (mut text, mut actions) = (text.to_owned(), Vec::new());
                if let FaultObject::Disk(disk) = object {
                    actions.push(self.return_command(*disk));
                }
                if let FaultObject::Disk(disk) = object
                    && self.state.slabs_used(*disk).next().is_none()
                {
                    text.push_str(
                        ". It holds no data of the pool any more. If it does not return, the other command removes it from the pool",
                    );
                    actions.push(format!("causeway pool remove-disk {pool} {}", disk.0));
                }
                (kind, text, actions)
            }
            (FaultKind::Failing { error }, FaultObject::Disk(disk)) => (
                "PhysicalDisk.FailedMedia",
                format!(
                    "An I/O failed ({error}). The disk stays in service because it has the only current copy of some data. Return the absent \
                     disks; when they are up to date, this disk can be taken offline"
                ),
                self.return_commands().into_iter().chain([format!("causeway pool offline-disk {pool} {}", disk.0)]).collect(),
            ),
            (FaultKind::Failing { error }, _) => ("PhysicalDisk.FailedMedia", error.clone(), self.return_commands()),
            (FaultKind::Slow(slow), object) => {
                let (text, actions) = outlier(slow, object, &pool);
                ("PhysicalDisk.HighLatency.Outlier.AverageIO", text, actions)
            }
            (FaultKind::Healed { units }, FaultObject::Disk(disk)) => {
                let mut actions = self.repair_commands(*disk);
                if let Some(path) = self.paths.get(disk).filter(|_| self.state.is_present(*disk)) {
                    actions.push(format!("causeway disk qualify {}", quoted(&path.display().to_string())));
                }
                actions.push(format!("causeway pool clear {pool} {}", disk.0));
                let text = format!(
                    "{} of 4 KiB {} damaged on this disk and repaired from other copies. Read all data once: if no \
                     more damage is found, this fault ends; otherwise replace the disk",
                    some(*units as usize, "block"),
                    one_or(*units, "was", "were")
                );
                ("PhysicalDisk.HighErrorCount", text, actions)
            }
            (FaultKind::Healed { units }, _) => ("PhysicalDisk.HighErrorCount", units.to_string(), Vec::new()),
            (FaultKind::Lost { units, at_least, first }, object) => {
                let (text, actions) = self.lost(*units, *at_least, *first, object);
                ("VirtualDisks.DataLoss", text, actions)
            }
            (FaultKind::Retired { left, waits }, object) if *left > 0 => {
                self.retired_or_removed(*left, waits.as_ref(), object)
            }
            (FaultKind::Retired { .. }, object) => self.empty(object),
            (FaultKind::Behind { bytes, waits }, object) => self.stale_disk(*bytes, waits.as_ref(), object),
            (FaultKind::Redundancy { left: 0, promised }, _) => (
                "VirtualDisks.LastCopy",
                format!("Part of it would not survive the loss of one more disk; it should survive the loss of {promised}"),
                self.jobs_or_return(),
            ),
            (FaultKind::Redundancy { left, promised }, _) => (
                "VirtualDisks.NeedsRepair",
                format!("The number of disks that it can lose is {left}, and should be {promised}"),
                self.jobs_or_return(),
            ),
            (FaultKind::Unavailable, _) => (
                "VirtualDisks.Detached",
                "The newest data of parts of it is on absent disks, so reading these parts fails. Connect the absent disks".to_owned(),
                self.return_commands(),
            ),
            (FaultKind::NotOpen { why }, _) => (
                "VirtualDisks.Detached",
                format!("It cannot be opened, so all reads and writes fail: {why}. The server tries again every 10 s"),
                self.return_commands(),
            ),
            (FaultKind::InDoubt { groups }, _) => (
                "VirtualDisks.InDoubt",
                format!(
                    "{} of 2 MiB {} being written when the server crashed, and the copies have not been compared since, because \
                     the job waits. A region is also compared when it is read",
                    some(*groups, "region"),
                    one_or(*groups as u64, "was", "were")
                ),
                vec!["causeway job list".to_owned()],
            ),
            (FaultKind::Metadata { voters }, _) => (
                "StoragePool.MetadataRedundancy",
                match voters {
                    1 => "Only 1 disk has its metadata; if it fails, the pool stops".to_owned(),
                    n => format!("Only {n} disks have its metadata; if one of them fails, the pool stops"),
                },
                vec![self.add(MediaClass::ANY)],
            ),
            (FaultKind::Capacity { percent, threshold, media }, _) if percent < threshold => (
                "StoragePool.PoolCapacityThresholdExceeded",
                format!(
                    "{percent} % of {} is in use, but a thin virtual disk cannot grow: too few of the present disks have room. \
                     Return the absent disks, or add {}",
                    if media.is_any() { "its capacity".to_owned() } else { format!("its {}", media.disks()) },
                    media.disks()
                ),
                self.return_commands().into_iter().chain([self.add(*media)]).collect(),
            ),
            (FaultKind::Capacity { percent, threshold, media }, _) => (
                "StoragePool.PoolCapacityThresholdExceeded",
                format!(
                    "{percent} % of {} is in use (threshold {threshold} %), and its thin virtual disks may grow: when it is full, writes \
                     that need new space fail. Add {}, or discard data",
                    if media.is_any() { "its capacity".to_owned() } else { format!("its {}", media.disks()) },
                    media.disks()
                ),
                vec![self.add(*media)],
            ),
            (FaultKind::Full, object) => (
                "VirtualDisks.NoRoom",
                format!(
                    "There is no room{} for new data: writes that need new space fail; reads and overwrites continue",
                    self.class(object).map_or_else(String::new, |media| format!(" on {}", media.disks()))
                ),
                vec![self.add(self.class(object).unwrap_or_default())],
            ),
            (FaultKind::NoReserve { needed, free, media }, _) => (
                "StoragePool.InsufficientReserveCapacityFault",
                format!(
                    "A failed disk could not be rebuilt on {}: {} would be needed, and {} are free. Add {}",
                    if media.is_any() { "the others".to_owned() } else { format!("other {}", media.disks()) },
                    human_bytes(*needed),
                    human_bytes(*free),
                    if media.is_any() { "a disk".to_owned() } else { media.disks() }
                ),
                vec![self.add(*media)],
            ),
            (FaultKind::OtherMedia { bytes }, object) => self.other_media(*bytes, object),
            (FaultKind::Suspended { why }, _) => (
                "StoragePool.Suspended",
                format!("It accepts no changes: {why}"),
                vec![format!("causeway pool export {pool}"), import],
            ),
        }
    }

    /// The command that adds capacity on these media: it adds the largest free disk if one is known, else it
    /// lists disks.
    fn add(&self, media: MediaClass) -> String {
        let fits = |d: &&DiskStatus| media.is_any() || media.media().any(|m| m.to_string() == d.media_type);
        match self.free.iter().filter(fits).max_by_key(|d| d.size) {
            Some(disk) => add_disk(&self.state.name, disk),
            None => "causeway disk list".to_owned(),
        }
    }

    /// The media class of a virtual disk, if it has one.
    fn class(&self, object: &FaultObject) -> Option<MediaClass> {
        let FaultObject::Space(space) = object else { return None };
        self.state.spaces.get(space).map(|r| r.media).filter(|m| !m.is_any())
    }

    fn other_media(&self, bytes: u64, object: &FaultObject) -> (&'static str, String, Vec<String>) {
        let disks = self.class(object).unwrap_or_default().disks();
        let what = format!("{} of it are on disks other than {disks}", human_bytes(bytes));
        let text = format!("{what}. They are moved there if there is room");
        let action = format!("causeway pool optimize {}", quoted(&self.state.name));
        ("VirtualDisks.OtherMedia", text, vec![action, "causeway job list".to_owned()])
    }

    fn lost(
        &self,
        units: u64,
        at_least: bool,
        first: Option<u64>,
        object: &FaultObject,
    ) -> (String, Vec<String>) {
        let (name, repair) = match object {
            FaultObject::Space(space) => {
                let name = self.space(*space);
                let repair = format!("space repair {}", quoted(&format!("{}/{name}", self.state.name)));
                (format!("the virtual disk {name}"), repair)
            }
            _ => ("it".to_owned(), format!("pool show {}", quoted(&self.state.name))),
        };
        let at_least = if at_least { "At least " } else { "" };
        let them = one_or(units, "it", "them");
        let first = first.map_or_else(String::new, |at| format!(", the first at byte {at}"));
        let away = match object {
            FaultObject::Space(space) => self.absent_disks_of(*space),
            _ => Vec::new(),
        };
        let fails = format!(
            "{at_least}{} of 4 KiB of {name} {} no valid copy on any disk{}{first}: reading {them} fails until {} written again. ",
            some(units as usize, "block"),
            one_or(units, "has", "have"),
            if away.is_empty() { "" } else { " that is present" },
            one_or(units, "it is", "they are"),
        );
        if away.is_empty() {
            let text = format!(
                "{fails}Restore {them} from a backup; the command then reads everything and clears the fault"
            );
            return (text, vec![format!("causeway {repair}")]);
        }
        let text = format!(
            "{fails}{}, which {} absent, may have a valid copy: connect {} again first. The commands then return {} to the \
             pool, read everything, and clear the fault. After that, restore only what is still lost from a backup. In a parity \
             space, writes of these blocks may fail until then; if {} will not return, remove {} from the pool (pool remove-disk)",
            away.join(" and "),
            one_or(away.len() as u64, "is", "are"),
            one_or(away.len() as u64, "it", "them"),
            one_or(away.len() as u64, "it", "they"),
            one_or(away.len() as u64, "it", "them"),
            one_or(away.len() as u64, "it", "them"),
        );
        let returns = self.return_commands().into_iter();
        (text, returns.chain([format!("causeway {repair}")]).collect())
    }

    /// The absent disks that store parts of a virtual disk.
    fn absent_disks_of(&self, space: SpaceId) -> Vec<String> {
        let disks: BTreeSet<DiskNumber> = self
            .state
            .rows_of(space)
            .flat_map(|(_, r)| r.slabs.iter())
            .map(|c| c.place.disk)
            .filter(|d| !self.state.is_present(*d))
            .collect();
        disks.into_iter().map(|disk| self.describe(&FaultObject::Disk(disk))).collect()
    }

    /// The list of jobs while some run; else the commands that return disks.
    fn jobs_or_return(&self) -> Vec<String> {
        if self.jobs.is_empty() { self.return_commands() } else { vec!["causeway job list".to_owned()] }
    }

    /// The command that returns a disk.
    fn return_command(&self, disk: DiskNumber) -> String {
        format!("causeway disk return {}", quoted(&format!("{}/{}", self.state.name, disk.0)))
    }

    /// The commands that return the absent disks; the list of jobs if none is absent.
    fn return_commands(&self) -> Vec<String> {
        let absent = self.state.disks.keys().filter(|d| !self.state.is_present(**d));
        let returns: Vec<_> = absent.map(|d| self.return_command(*d)).collect();
        if returns.is_empty() { vec!["causeway job list".to_owned()] } else { returns }
    }

    /// The commands that read all copies of the virtual disks on a disk.
    fn repair_commands(&self, disk: DiskNumber) -> Vec<String> {
        let on = |space: &SpaceId| {
            self.state.rows_of(*space).flat_map(|(_, r)| r.slabs.iter()).any(|c| c.place.disk == disk)
        };
        let spaces = self.state.spaces.iter().filter(|(id, _)| on(id));
        let name = |name: &str| quoted(&format!("{}/{name}", self.state.name));
        spaces.map(|(_, r)| format!("causeway space repair {}", name(&r.name))).collect()
    }

    fn describe(&self, object: &FaultObject) -> String {
        match object {
            FaultObject::Pool => format!("pool {}", self.state.name),
            FaultObject::Domain(level, name) => format!("{} {name}", level.word()),
            FaultObject::Disk(disk) => describe::disk_text(self.state, *disk, &self.paths),
            FaultObject::Space(space) => format!("virtual disk {}", self.space(*space)),
        }
    }

    fn location(&self, disk: DiskNumber) -> String {
        let mut parts = vec![format!("pool {}", self.state.name)];
        if let Some(record) = self.state.disks.get(&disk) {
            for level in Level::ALL {
                let name = level.name_of(&record.domains);
                parts.extend((!name.is_empty()).then(|| format!("{} {name}", level.word())));
            }
        }
        parts.push(format!("disk {}", disk.0));
        parts.extend(
            self.paths.get(&disk).filter(|_| self.state.is_present(disk)).map(|p| p.display().to_string()),
        );
        parts.join(", ")
    }

    fn space(&self, space: SpaceId) -> String {
        self.state.spaces.get(&space).map_or_else(|| space.0.to_string(), |r| r.name.clone())
    }
}

/// The texts for a disk that is much slower than its peers.
fn outlier(slow: &Slowness, object: &FaultObject, pool: &str) -> (String, Vec<String>) {
    let mut text = if slow.peers.is_zero() {
        format!("One I/O took {}", human_time(slow.longest))
    } else {
        format!(
            "Half of its I/Os take {} or more, its peers' {}; the longest took {}",
            human_time(slow.median),
            human_time(slow.peers),
            human_time(slow.longest)
        )
    };
    text.push_str(if slow.crowded {
        " with a long queue; too few I/Os started in a short queue to decide. The disk may only have more load than its peers, so reads do not avoid it and it stays in service. If it is as slow with little load, retire it, which moves its data to other disks, and replace it"
    } else {
        ". Reads avoid it if other disks have the data. If it stays slow, it is removed from service as soon as that puts no data at risk. Retire it, which moves its data to other disks, and replace it"
    });
    let disk = number_of(object);
    (text, vec![format!("causeway disk retire {pool}/{disk}"), "causeway job list".to_owned()])
}

/// The singular or the plural form.
fn one_or(count: u64, one: &'static str, several: &'static str) -> &'static str {
    if count == 1 { one } else { several }
}

/// The number of a disk as an argument of commands.
fn number_of(object: &FaultObject) -> String {
    match object {
        FaultObject::Disk(disk) => disk.0.to_string(),
        _ => String::new(),
    }
}

/// A duration with about two digits.
fn human_time(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.001 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

/// The texts for a disk that is not in service.
fn absent(why: Absence) -> (&'static str, &'static str) {
    match why {
        Absence::NotFound => (
            "PhysicalDisk.LostCommunication",
            "It was not found when the pool was opened. Connect it again: it returns to the pool by itself, or with the command if its path is not in storage.devices. Missed writes are then copied to it",
        ),
        Absence::Gone => (
            "PhysicalDisk.LostCommunication",
            "It was disconnected while in use, or its file was removed, truncated or overwritten. Restore it unchanged: it returns to the pool by itself, or with the command if its path is not in storage.devices. Missed writes are then copied to it",
        ),
        Absence::WriteFailed => (
            "PhysicalDisk.FailedMedia",
            "A write to it failed, and it was removed from service. Replace it. If the cause was its cable, or a full file system under its file, repair that; the command then returns it to the pool",
        ),
        Absence::FlushFailed => (
            "PhysicalDisk.FailedMedia",
            "A flush failed, so it may have lost acknowledged writes. Replace it. If the cause was its cable, repair that; the command then returns it to the pool",
        ),
        Absence::Slow => (
            "PhysicalDisk.Unresponsive",
            "Its I/O took too long, and it was removed from service. Replace it. If the cause was not the disk, repair that; the command then returns it to the pool",
        ),
        Absence::ByCommand => (
            "PhysicalDisk.MaintenanceMode",
            "It was taken offline on request; the command returns it to the pool",
        ),
        Absence::Stale => (
            "PhysicalDisk.UnrecognizedMetadata",
            "Its contents are older than the pool's record of it: it lost writes, or is an old copy. The command returns it to the pool, and all its data is copied again",
        ),
    }
}

/// A pool that is not open.
pub(super) fn closed(id: PoolId, closed: &Closed) -> FaultStatus {
    let cure = closed.cure.as_deref().unwrap_or_default();
    let exported = closed.reason == super::super::create::EXPORTED;
    let text = if cure.is_empty() { closed.reason.clone() } else { format!("{}: {cure}", closed.reason) };
    let place = closed.disks.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(", ");
    FaultStatus {
        fault_id: identity(&format!("{id}/StoragePool.NotOpen")),
        fault_type: "StoragePool.NotOpen".to_owned(),
        perceived_severity: if exported { Severity::Information } else { Severity::Error } as u8,
        reason: text,
        faulting_object_description: format!("pool {}", closed.name),
        faulting_object_location: place,
        recommended_actions: closed.helps.clone(),
        consequences: Vec::new(),
        since_unix_s: None,
    }
}

/// A pool that was not found, and the shares and attachments that need it.
pub(super) fn missing(pool: &str, users: &[String]) -> FaultStatus {
    FaultStatus {
        fault_id: identity(&format!("{pool}/StoragePool.NotFound")),
        fault_type: "StoragePool.NotFound".to_owned(),
        perceived_severity: Severity::Error as u8,
        reason: format!(
            "No disk of this pool was found, so these do not work: {}. Connect its disks and import it; if their paths are not in              storage.devices, add them there, and pass them now with --disk. If the pool was destroyed or renamed, remove the shares              (causeway share remove) and the attachments (causeway space detach)",
            users.join(", ")
        ),
        faulting_object_description: format!("pool {pool}"),
        faulting_object_location: format!("pool {pool}"),
        recommended_actions: vec![format!("causeway pool import {}", quoted(pool))],
        consequences: Vec::new(),
        since_unix_s: None,
    }
}

/// The command that adds a disk to a pool.
pub(super) fn add_disk(pool: &str, disk: &DiskStatus) -> String {
    format!("causeway pool add-disk {} --disk{}", quoted(pool), places(std::slice::from_ref(disk)))
}

/// The command that creates a pool of disks, with an unused name.
pub(super) fn create(taken: &[String], disks: &[DiskStatus]) -> String {
    let name = (1..).map(|n| format!("pool{n}")).find(|name| !taken.contains(name)).unwrap_or_default();
    format!("causeway pool create {name} --disk{}", places(disks))
}

/// The paths of disks as arguments of commands.
fn places(disks: &[DiskStatus]) -> String {
    let paths = disks.iter().filter_map(|d| d.path.as_ref());
    paths.map(|p| format!(" {}", quoted(&p.display().to_string()))).collect()
}

/// The information that a disk can be pooled, and the command for it.
pub(super) fn free_disk(disk: &DiskStatus, action: String) -> Option<FaultStatus> {
    let path = disk.path.as_ref()?.display().to_string();
    Some(FaultStatus {
        fault_id: identity(&format!("{}/PhysicalDisk.CanPool", disk.unique_id)),
        fault_type: "PhysicalDisk.CanPool".to_owned(),
        perceived_severity: Severity::Information as u8,
        reason: format!("A disk of {} that no pool uses", human_bytes(disk.size)),
        faulting_object_description: format!("{} ({path})", disk.friendly_name),
        faulting_object_location: path,
        recommended_actions: vec![action],
        consequences: Vec::new(),
        since_unix_s: None,
    })
}

/// The hash of a text (FNV-1a), in 16 digits.
fn identity(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}
