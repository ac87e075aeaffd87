//! Background jobs of the spaces, and changes by an administrator.

use std::time::Duration;

use pool_seam::{JobOrder, Owner, RowNumber, SlabPlace, UNIT};

use super::bed::{Server, TestBed};
use super::chaos::{checkpoint, is_over, run};
use super::disks;
use super::random::Random;
use crate::model::End;

/// Runs this many steps, one after the other.
pub(super) async fn jobs(bed: &TestBed, server: &Server, steps: u64, mut random: Random) {
    for _ in 0..steps {
        bed.env.sleep(Duration::from_millis(random.below(40))).await;
        if is_over(bed, server) {
            return;
        }
        let space = random.below(server.spaces.len() as u64) as usize;
        match random.below(12) {
            0..4 => checkpoint(bed, server, space).await,
            4 => drop(run(bed, server, space, JobOrder::Resolve).await),
            5 => drop(run(bed, server, space, JobOrder::Scrub(RowNumber(0))).await),
            6..8 => move_slab(bed, server, space, &mut random).await,
            8 => resize(bed, server, space).await,
            9 | 10 => disks::change(bed, server, &mut random).await,
            _ => {
                if let (Err(error), false) = (server.pool.scrub_metadata().await, is_over(bed, server)) {
                    bed.fail(&format!("scrub of the metadata: {error}"));
                }
            }
        }
    }
}

/// Moves one slab to another disk, if there is one.
async fn move_slab(bed: &TestBed, server: &Server, space: usize, random: &mut Random) {
    let id = server.spaces[space].id;
    let slabs: Vec<(RowNumber, u8, SlabPlace)> = server.pool.read(|s| {
        let rows = s.spaces[&id].ready_rows();
        rows.flat_map(|(row, of)| {
            let slabs = of.slabs.iter().enumerate();
            slabs.map(|(index, copy)| (row, index as u8, copy.place)).collect::<Vec<_>>()
        })
        .collect()
    });
    let Some(slab) = random.pick(&slabs) else { return };
    bed.note(|| format!("{slab:?} of space {space} moves"));
    run(bed, server, space, JobOrder::Fill(vec![(slab.0, slab.1, None)])).await;
}

/// Shrinks a space by its last row, which discards the row's data, and grows it again.
async fn resize(bed: &TestBed, server: &Server, space: usize) {
    let record = &bed.shape.spaces[space];
    let (size, to) = (record.size, record.size - u64::from(record.columns) * (2 << 20));
    // The size cannot change during a conversion.
    if bed.shape.has_conversions {
        return;
    }
    bed.note(|| format!("space {space} shrinks to {to}, and grows"));
    let units = to / UNIT..size / UNIT;
    let version = bed.models[space].borrow_mut().discard_begun(units.clone());
    let shrunk = server.spaces[space].space.resize(size, to, true).wait().await;
    let end = if shrunk.is_ok() { End::Done } else { End::Failed };
    bed.models[space].borrow_mut().ended(units, version, end);
    let result = match shrunk {
        Ok(()) => server.spaces[space].space.resize(to, size, false).wait().await,
        failed => failed,
    };
    if let (Err(error), false) = (result, is_over(bed, server)) {
        bed.fail(&format!("resize of space {space}: {error}"));
    }
}

/// Completes resizes that a crash has interrupted.
pub(super) async fn restore_sizes(bed: &TestBed, server: &Server) {
    for (owned, record) in server.spaces.iter().zip(&bed.shape.spaces) {
        let size = server.pool.read(|s| s.spaces[&owned.id].size);
        if size != record.size
            && let (Err(error), false) =
                (owned.space.resize(size, record.size, false).wait().await, is_over(bed, server))
        {
            bed.fail(&format!("growing space {} to its size: {error}", owned.id.0));
        }
    }
}
