//! Enclosures, and the identification lights of disks.

use std::collections::BTreeMap;
use std::path::Path;

use disk::{DiskInfo, EnclosureSlot, enclosure};
use pool::Presence;

use super::error::StorageError;
use super::pools::{Pools, done};
use crate::control::storage::{EnclosureStatus, Identify};
use crate::control::types::Changed;

impl Pools {
    /// The enclosures that the system reports, and those set for disks of open pools.
    pub fn enclosures(&self) -> Vec<EnclosureStatus> {
        let mut all: BTreeMap<String, EnclosureStatus> = BTreeMap::new();
        let named = |name: &str| EnclosureStatus {
            name: name.to_owned(),
            model: String::new(),
            slots: None,
            disks: Vec::new(),
            missing: 0,
            operational_status: String::new(),
            health_status: String::new(),
        };
        for found in enclosure::list() {
            let of = all.entry(found.id.clone()).or_insert_with(|| named(&found.id));
            (of.model, of.slots) = (found.model, Some(found.slots.len()));
        }
        for open in self.open_pools() {
            open.pool.read(|s| {
                for (number, record) in s.disks.iter().filter(|(_, r)| !r.domains.enclosure.is_empty()) {
                    let name = &record.domains.enclosure;
                    let of = all.entry(name.clone()).or_insert_with(|| named(name));
                    of.disks.push(format!("{}/{}", s.name, number.0));
                    of.missing += usize::from(record.presence != Presence::Present);
                }
            });
        }
        let judged = |mut of: EnclosureStatus| {
            let (operational, health) = match (of.missing, of.disks.len()) {
                (0, _) => ("OK", "Healthy"),
                (missing, disks) if missing == disks => ("Lost communication", "Unhealthy"),
                _ => ("Degraded", "Warning"),
            };
            (of.operational_status, of.health_status) = (operational.to_owned(), health.to_owned());
            of
        };
        all.into_values().map(judged).collect()
    }

    /// Switches the light of a disk's slot on or off.
    ///
    /// # Errors
    /// [`StorageError::NoLight`] with a description of the disk; or there is no such disk.
    pub async fn identify(&self, request: Identify) -> Result<Changed, StorageError> {
        let info = self.info_of(&request.disk).await?;
        let words = describe(&info);
        let Some(slot) = info.enclosure else { return Err(StorageError::NoLight { disk: words, why: None }) };
        let EnclosureSlot { enclosure: name, slot: number } = slot.clone();
        let switched = tokio::task::spawn_blocking(move || enclosure::locate(&slot, request.on)).await;
        match switched.map_err(|_| StorageError::Stopping)? {
            Ok(()) => {
                let state = if request.on { "on" } else { "off" };
                Ok(done(
                    format!("the light of slot {number} of enclosure {name} is {state}: {words}"),
                    Vec::new(),
                ))
            }
            Err(why) => Err(StorageError::NoLight { disk: words, why: Some(why) }),
        }
    }

    /// The description of a disk of an open pool, or of another disk that may be examined.
    async fn info_of(&self, disk: &str) -> Result<DiskInfo, StorageError> {
        for open in self.open_pools() {
            let name =
                disk.strip_prefix(&open.name()).and_then(|rest| rest.strip_prefix('/')).unwrap_or(disk);
            // A number is ambiguous without a pool.
            if name == disk && disk.parse::<u16>().is_ok() {
                continue;
            }
            let Ok(number) = open.disk(name) else { continue };
            return match open.pool.members().get(number) {
                Some(member) => Ok(member.disk.info().clone()),
                None => {
                    let id = open.pool.read(|s| s.disks.get(&number).map(|r| r.name.clone()));
                    let disk =
                        format!("disk {} of the pool {} ({})", number.0, open.name(), id.unwrap_or_default());
                    Err(StorageError::NotHere { disk })
                }
            };
        }
        let path = Path::new(disk);
        if !path.is_absolute() {
            return Err(StorageError::NoDiskHere(disk.to_owned()));
        }
        let path = std::fs::canonicalize(path).map_err(|_| StorageError::NoDiskHere(disk.to_owned()))?;
        Ok(self.examine(&path, false, false).await?.info)
    }
}

/// A description that helps to find the disk in the machine.
fn describe(info: &DiskInfo) -> String {
    let model = if info.model.is_empty() { "a disk" } else { &info.model };
    let serial = match info.serial.is_empty() {
        true => format!("identity {}", info.id),
        false => format!("serial number {}", info.serial),
    };
    format!("{model}, {serial}, at {}", info.path.display())
}

#[cfg(test)]
mod tests {
    use disk::MemoryOptions;

    #[test]
    fn a_disk_in_words() {
        let mut info = MemoryOptions::new("S1234", 1 << 30).info();
        assert_eq!(super::describe(&info), "memory, serial number S1234, at memory:S1234");
        (info.model, info.serial) = (String::new(), String::new());
        assert_eq!(super::describe(&info), "a disk, identity serial:S1234, at memory:S1234");
    }
}
