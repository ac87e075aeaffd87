//! The pool of the local server: files as disks, and their counters.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bench::demo::{POOL_COLUMNS, POOL_DISKS, PoolCost};
use counters::{Set, Snapshot};

use crate::control::client::ControlClient;
use crate::control::storage::{NewDisks, NewPool, Place};
use crate::control::types::Changed;
use crate::failure::Failure;

/// Its name.
pub(super) const NAME: &str = "bench";
/// Copies of a mirror.
const COPIES: u64 = 2;
const SLAB_MIN: u64 = 16 << 20;
const SLAB_MAX: u64 = 256 << 20;
/// Slabs of a disk that hold no data: reserves of the pool, labels and metadata.
const SLABS_SPARE: u64 = 16;

/// The sizes of its disks and slabs, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolPlan {
    slab: u64,
    disk: u64,
    written: u64,
}

impl PoolPlan {
    /// The plan for virtual disks of these sizes, one of each size for each thread. `sparse`: they are not written.
    pub(super) fn new(sizes: &[u64], threads: u32, sparse: bool) -> PoolPlan {
        let (columns, threads) = (u64::from(POOL_COLUMNS), u64::from(threads));
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let slab = largest.div_ceil(columns).next_power_of_two().clamp(SLAB_MIN, SLAB_MAX);
        // A row has a slab on each disk.
        let rows: u64 = sizes.iter().map(|size| size.div_ceil(columns * slab).max(1)).sum();
        let slabs = rows * threads;
        let written = if sparse { 0 } else { sizes.iter().sum::<u64>() * threads * COPIES };
        PoolPlan { slab, disk: (slabs + slabs / 16 + SLABS_SPARE) * slab, written }
    }

    /// Bytes that are written to its disks before the first demonstration.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that its files take: data, labels and metadata.
    pub(super) fn bytes(&self) -> u64 {
        self.written + POOL_DISKS as u64 * (self.disk / 1000 + SLAB_MIN)
    }

    /// Creates the disks in this directory, and the pool on the server.
    ///
    /// # Errors
    /// The file system's or the server's.
    pub(super) async fn create(&self, place: &Path, client: &ControlClient) -> Result<(), Failure> {
        let paths: Vec<PathBuf> = (0..POOL_DISKS).map(|n| place.join(format!("pool-{n:02}.disk"))).collect();
        let made: io::Result<()> = paths.iter().try_for_each(|p| File::create_new(p)?.set_len(self.disk));
        made.map_err(|source| Failure::Local { path: place.to_owned(), source })?;
        let disks = NewDisks {
            paths,
            force: false,
            assume_atomic: true,
            accept_loss: false,
            usage: None,
            media: None,
            place: Place::default(),
        };
        let pool = NewPool { name: NAME.to_owned(), disks, slab_size: Some(self.slab) };
        let _: Changed = client.post("/v1/pools", &pool).await?;
        Ok(())
    }
}

/// Reads of the pool's virtual disks and of its disks: number and total nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolReads {
    pool: (u64, u64),
    disks: (u64, u64),
}

impl PoolReads {
    /// The totals since counting began.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn read(client: &ControlClient) -> Result<PoolReads, Failure> {
        let snapshot: Snapshot = client.get("/v1/counters").await?;
        let sum = |set: &Set| {
            let each = snapshot.of(set).iter().map(|i| {
                let value = |name| i.values.get(name).copied().unwrap_or(0);
                (value("reads"), value("read_time_ns"))
            });
            each.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        Ok(PoolReads { pool: sum(counters::STORAGE_POOLS.set()), disks: sum(counters::PHYSICAL_DISKS.set()) })
    }

    /// The cost of a read since `before`.
    pub(super) fn since(&self, before: &PoolReads) -> Option<PoolCost> {
        let less = |a: (u64, u64), b: (u64, u64)| (a.0.saturating_sub(b.0), a.1.saturating_sub(b.1));
        PoolCost::new(less(self.pool, before.pool), less(self.disks, before.disks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_disks_fit_in_the_pool() {
        for (sizes, threads) in
            [(&[8 << 20, 32 << 20][..], 2), (&[8 << 20, 128 << 30], 16), (&[1 << 20], 256)]
        {
            let plan = PoolPlan::new(sizes, threads, false);
            let rows = |size: u64| size.div_ceil(u64::from(POOL_COLUMNS) * plan.slab);
            let slabs = sizes.iter().map(|s| rows(*s)).sum::<u64>() * u64::from(threads);
            // One 32nd of each disk is kept for repairs.
            assert!(plan.disk / plan.slab * 31 / 32 >= slabs + 4, "{plan:?}");
        }
    }
}
