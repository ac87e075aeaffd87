mod clients;
mod moves;
mod rate;
mod resync;
mod scrub;
mod turns;

use pool::Pool;
use pool::jobs::{Job, Kind, Subject};
use pool_seam::{DiskNumber, SlabCopy, SpaceId};

/// A job on the pool's board.
fn begin(pool: &Pool, kind: Kind, subject: Subject) -> Job {
    pool.jobs().begin(kind, subject).expect("the only one of its kind")
}

/// The copies of a space's rows, without its log.
fn copies(pool: &Pool, space: SpaceId) -> Vec<SlabCopy> {
    pool.read(|s| {
        let rows = s.spaces[&space].data_rows();
        rows.flat_map(|(_, row)| row.copies().map(|(_, copy)| *copy).collect::<Vec<_>>()).collect()
    })
}

/// The number of these copies on a disk.
fn on(pool: &Pool, space: SpaceId, disk: DiskNumber) -> usize {
    copies(pool, space).iter().filter(|copy| copy.place.disk == disk).count()
}

/// Whether a copy has stale regions, or a slab is moving.
fn is_unfinished(pool: &Pool, space: SpaceId) -> bool {
    let is_moving = |s: &pool::State| s.spaces[&space].rows.values().any(|row| row.moving().is_some());
    copies(pool, space).iter().any(|copy| copy.stale_regions != 0) || pool.read(is_moving)
}
