//! The virtual disks with parts on a disk, and the disks with parts of a virtual disk.

use std::collections::BTreeMap;

use pool::{DiskNumber, RowNumber, SpaceId};

use super::describe;
use super::error::StorageError;
use super::open_pool::OpenPool;
use super::pools::Pools;
use crate::control::storage::{Allocation, DiskDetail, DiskStatus, SpaceDetail};

impl Pools {
    /// A disk, by `POOL/NUMBER`, path or identity, with the parts of virtual disks on it.
    ///
    /// # Errors
    /// [`StorageError::NoDiskHere`].
    pub async fn disk(&self, name: &str) -> Result<DiskDetail, StorageError> {
        let path = std::fs::canonicalize(name).ok();
        let is_it = |d: &DiskStatus| {
            let numbered = d.pool.as_ref().zip(d.number).is_some_and(|(p, n)| format!("{p}/{n}") == name);
            d.unique_id == name || (path.is_some() && d.path == path) || numbered
        };
        for open in self.open_pools() {
            if let Some(disk) = describe::disks(&open).into_iter().find(is_it) {
                let on = |a: &Allocation| Some(a.number) == disk.number;
                let allocations = allocations(&open).into_iter().filter(on).collect();
                return Ok(DiskDetail { disk, allocations });
            }
        }
        let found = self.disks().await.into_iter().find(is_it);
        let disk = found.ok_or_else(|| StorageError::NoDiskHere(name.to_owned()))?;
        Ok(DiskDetail { disk, allocations: Vec::new() })
    }

    /// A virtual disk, with the disks that store it.
    ///
    /// # Errors
    /// No virtual disk has that name, or several have it.
    pub fn space(&self, name: &str) -> Result<SpaceDetail, StorageError> {
        let (open, id) = self.find_space(name)?;
        let found = describe::spaces(&open).into_iter().find(|s| open.space_named(&s.name) == Some(id));
        let space = found.ok_or_else(|| StorageError::NoSpace(name.to_owned()))?;
        let copies = open.pool.read(|s| {
            s.spaces.get(&id).map_or(0, |r| r.resiliency.copies().min(r.former.resiliency.copies()))
        });
        let allocations = allocations(&open).into_iter().filter(|a| a.virtual_disk == space.name).collect();
        Ok(SpaceDetail { space, copies, allocations })
    }
}

/// The slabs of a pool, by virtual disk and disk.
fn allocations(open: &OpenPool) -> Vec<Allocation> {
    let members = open.pool.members();
    open.pool.read(|s| {
        let mut bytes: BTreeMap<(SpaceId, bool, DiskNumber), u64> = BTreeMap::new();
        for (space, record) in &s.spaces {
            for (number, row) in &record.rows {
                for (_, copy) in row.copies() {
                    let is_log = *number == RowNumber::LOG;
                    *bytes.entry((*space, is_log, copy.place.disk)).or_default() += s.slab_bytes;
                }
            }
        }
        let shown = |((id, is_log, disk), allocated): ((SpaceId, bool, DiskNumber), u64)| {
            Some(Allocation {
                virtual_disk: s.spaces.get(&id)?.name.clone(),
                part: if is_log { "Journal" } else { "Data" }.to_owned(),
                number: disk.0,
                allocated,
                path: members.get(disk).map(|m| m.disk.info().path.clone()),
            })
        };
        bytes.into_iter().filter_map(shown).collect()
    })
}
