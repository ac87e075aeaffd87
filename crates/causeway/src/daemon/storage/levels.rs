//! The capacity of open pools and the progress of their jobs, for the performance counters.

use counters::levels::{DISK_CAPACITY, JOBS, POOL_CAPACITY, SPACE_CAPACITY};
use counters::{Level, SetSnapshot};

use super::Storage;
use super::describe;

impl Storage {
    /// The present values; does not wait for the storage thread.
    pub(in crate::daemon) fn levels(&self) -> Vec<SetSnapshot> {
        let (mut pools, mut spaces, mut disks) = (Vec::new(), Vec::new(), Vec::new());
        for status in self.pools.pools().into_iter().filter(|p| p.is_open()) {
            let values =
                vec![status.size, status.allocated, status.disks as u64, status.disks_missing as u64];
            pools.push(Level { instance: status.name.clone(), labels: vec![status.name], values });
        }
        for open in self.pools.open_pools() {
            let pool = open.name();
            disks.extend(describe::disks(&open).into_iter().filter_map(|d| {
                let number = d.number?.to_string();
                let (instance, labels) = (format!("{pool}/{number}"), vec![pool.clone(), number]);
                Some(Level { instance, labels, values: vec![d.size, d.allocated] })
            }));
            spaces.extend(describe::spaces(&open).into_iter().map(|s| Level {
                instance: format!("{pool}/{}", s.name),
                labels: vec![pool.clone(), s.name],
                values: vec![s.size, s.footprint],
            }));
        }
        let jobs = self.pools.jobs().into_iter().map(|j| Level {
            instance: format!("{}/{} {}", j.pool, j.id, j.name),
            labels: vec![j.pool, j.name, j.object],
            values: vec![j.bytes_total, j.bytes_processed, j.bytes_per_s],
        });
        vec![
            SetSnapshot::of_levels(&POOL_CAPACITY, pools),
            SetSnapshot::of_levels(&SPACE_CAPACITY, spaces),
            SetSnapshot::of_levels(&DISK_CAPACITY, disks),
            SetSnapshot::of_levels(&JOBS, jobs.collect()),
        ]
    }
}
