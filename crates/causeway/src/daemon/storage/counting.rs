//! The counters of disks, virtual disks and pools, and their instances.
//!
//! Counting of a disk starts when it is opened, and of a virtual disk with its first client. [`Pools::name_counters`]
//! updates the names of the instances; it runs after each command, and every few seconds.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use counters::{IoInstance, IoSource, IoTally, PHYSICAL_DISKS, STORAGE_POOLS, VIRTUAL_DISKS};
use disk::{Counted, Disk};
use parking_lot::Mutex;
use pool::SpaceId;
use pool_local::Retries;

use super::error::StorageError;
use super::open_pool::OpenPool;
use super::pools::Pools;

/// The I/O of the clients of a pool's virtual disks, while it is open.
#[derive(Default)]
pub(super) struct SpaceTallies(Mutex<BTreeMap<SpaceId, Arc<IoTally>>>);

impl OpenPool {
    /// A virtual disk for its clients, which counts their I/O.
    ///
    /// # Errors
    /// The pool is not open now, or no such virtual disk.
    pub(super) fn space_for_clients(&self, space: SpaceId) -> Result<Arc<dyn Disk>, StorageError> {
        let disk: Arc<dyn Disk> = Arc::new(self.owners_now()?.disk(space)?);
        Ok(Counted::new(disk, self.tally(space)))
    }

    fn tally(&self, space: SpaceId) -> Arc<IoTally> {
        Arc::clone(self.tallies.0.lock().entry(space).or_insert_with(|| IoTally::new(self.env())))
    }
}

impl Pools {
    /// Updates the names of the instances: see the module.
    pub(super) fn name_counters(&self) {
        let (mut pools, mut spaces, mut disks) = (Vec::new(), Vec::new(), Vec::new());
        for open in self.open_pools() {
            let name = open.name();
            for member in open.pool.members().iter() {
                let (number, path) =
                    (member.number.0.to_string(), member.disk.info().path.display().to_string());
                let disk = member.number;
                let elsewhere = move |open: &OpenPool| IoSource {
                    hedged: open.pool.hedged_reads_of(disk),
                    retries: retries(open, |retries| retries.of_disk(disk)),
                    ..IoSource::default()
                };
                disks.push(IoInstance {
                    name: format!("{name}/{number}"),
                    labels: vec![name.clone(), number, path],
                    tallies: member.disk.tally().into_iter().cloned().collect(),
                    source: source(&open, elsewhere),
                });
            }
            let shown =
                open.pool.read(|s| s.spaces.iter().map(|(id, r)| (*id, r.name.clone())).collect::<Vec<_>>());
            for (id, space) in &shown {
                let id = *id;
                spaces.push(IoInstance {
                    name: format!("{name}/{space}"),
                    labels: vec![name.clone(), space.clone()],
                    tallies: vec![open.tally(id)],
                    source: source(&open, move |open| {
                        let hedged = open.owners().map_or(0, |owners| owners.hedged_reads(id));
                        let retries = retries(open, |retries| retries.of_space(id));
                        IoSource { hedged, retries, ..tables(open, [id]) }
                    }),
                });
            }
            let ids: Vec<SpaceId> = shown.iter().map(|(id, _)| *id).collect();
            pools.push(IoInstance {
                labels: vec![name.clone()],
                name,
                tallies: ids.iter().map(|id| open.tally(*id)).collect(),
                source: source(&open, move |open| IoSource {
                    hedged: open.pool.hedged_reads().1,
                    retries: retries(open, Retries::total),
                    ..tables(open, ids.iter().copied())
                }),
            });
        }
        STORAGE_POOLS.replace_io(pools);
        VIRTUAL_DISKS.replace_io(spaces);
        PHYSICAL_DISKS.replace_io(disks);
    }
}

/// The callback that reads counters of a pool with `of`; it returns zeros after the pool was closed.
fn source(
    open: &Arc<OpenPool>,
    of: impl Fn(&OpenPool) -> IoSource + Send + Sync + 'static,
) -> Box<dyn Fn() -> IoSource + Send + Sync> {
    let open: Weak<OpenPool> = Arc::downgrade(open);
    Box::new(move || open.upgrade().map_or_else(IoSource::default, |open| of(&open)))
}

/// The number of retried disk calls that `of` selects.
fn retries(open: &OpenPool, of: impl Fn(&Retries) -> u64) -> u64 {
    open.owners().map_or(0, |owners| of(owners.retries()))
}

/// Cache hits and misses of the checksum tables of these virtual disks.
fn tables(open: &OpenPool, spaces: impl IntoIterator<Item = SpaceId>) -> IoSource {
    let owners = open.owners();
    let each = spaces.into_iter().filter_map(|id| Some(owners.as_ref()?.table_cache(id)));
    let (cache_hits, cache_misses) = each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    IoSource { cache_hits, cache_misses, ..IoSource::default() }
}
