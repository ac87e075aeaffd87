//! The metadata under power cuts, failing disks, and disks that are removed and return. The model is the list of
//! acknowledged states.

mod cuts;
mod histories;

use std::sync::Arc;

use arena::Arena;
use disk::sim::{Machine, SlotId};
use disk::{Disk, MemoryOptions};
use env::Env;

use super::*;
use crate::placement;

/// The state that the operations of a workload change. All other state (presence, voters, labels, epochs) depends on
/// the failures of the disks.
#[derive(Clone, Debug, PartialEq)]
struct Visible {
    name: String,
    spaces: Vec<(SpaceId, SpaceRecord)>,
    generation: u32,
}

fn visible(s: &State) -> Visible {
    Visible {
        name: s.name.clone(),
        // Excludes ownership and unaccounted disks, which depend on openings and on disks that are removed.
        spaces: s
            .spaces
            .iter()
            .map(|(space, record)| {
                let mut record = SpaceRecord::clone(record);
                (record.ownership, record.unaccounted) = Default::default();
                (*space, record)
            })
            .collect(),
        generation: s.next_generation,
    }
}

fn below(env: &Env, n: u64) -> u64 {
    env.random_u64() % n
}

/// A random change that the state allows.
fn change(env: &Env, s: &State, step: u64) -> Vec<Op> {
    let rename = vec![Op::RenamePool { name: format!("tank{step}") }];
    let pick = |n: usize| below(env, n.max(1) as u64) as usize;
    let rows: Vec<_> =
        s.spaces.keys().flat_map(|space| s.rows_of(*space).map(move |(n, row)| (*space, n, row))).collect();
    let one = |space: SpaceId, op| Op::Space { space, op };
    let ops = match (below(env, 8), rows.get(pick(rows.len()))) {
        (0 | 1, _) => {
            let record = SpaceRecord { columns: 1 + pick(2) as u8, ..mirror(&format!("space{step}")) };
            vec![testing::create(s, record), rename[0].clone()]
        }
        (2 | 3, _) => {
            let Some((&space, record)) = s.spaces.iter().nth(pick(s.spaces.len())) else { return rename };
            let row = RowNumber(pick(record.row_count(s.slab_bytes) as usize) as u32);
            let Ok(slabs) = placement::row(s, space, row, |_| true) else { return rename };
            vec![one(space, SpaceOp::Allocate { row, first: s.next_generation, slabs })]
        }
        (4, Some((space, row, of))) => vec![one(*space, SpaceOp::Free { row: *row, birth: of.birth })],
        (5, Some((space, row, of))) => {
            vec![testing::mark_stale(s, *space, *row, pick(of.slabs.len()) as u8, 1 << pick(64))]
        }
        (6, Some((space, row, of))) => {
            vec![testing::mark_current(s, *space, *row, pick(of.slabs.len()) as u8, u64::MAX)]
        }
        _ => rename.clone(),
    };
    // Sometimes a long record: the ring wraps sooner, and a record that is too long becomes a checkpoint.
    let padded = |n: usize| (0..n).flat_map(|_| rename.clone()).chain(ops.clone()).collect::<Vec<_>>();
    let ops = match below(env, 16) {
        0 => padded(1200),
        1 | 2 => padded(300),
        3 => padded(6000),
        _ => ops,
    };
    if s.clone().apply_all(&ops).is_ok() { ops } else { rename }
}

fn open_all(machine: &Machine, which: impl IntoIterator<Item = usize>) -> Vec<Arc<dyn Disk>> {
    which.into_iter().filter_map(|n| machine.open(SlotId(n)).ok()).map(|d| d as Arc<dyn Disk>).collect()
}

/// A machine with a pool on all its disks.
async fn pool_on(env: &Env, arena: &Arena, machine: &Machine, disks: usize) -> Pool {
    for n in 0..disks {
        machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB));
    }
    let new: Vec<_> = open_all(machine, 0..disks).into_iter().map(NewDisk::new).collect();
    Pool::create(env, arena, &new, options()).await.unwrap()
}

async fn open(env: &Env, arena: &Arena, disks: &[Arc<dyn Disk>]) -> Result<Opened, OpenError> {
    Pool::open(env, arena, disks, &OpenOptions::new(host("a"))).await
}

/// Runs `test` for each seed; a failure names the seed.
fn seeds<F: Future<Output = ()>>(seeds: std::ops::Range<u64>, test: impl Fn(u64, Env, Arena) -> F) {
    for seed in seeds {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let run = std::panic::AssertUnwindSafe(|| {
            runtime.block_on(async {
                let arena = Arena::new(4 << 20).unwrap();
                test(seed, Env::simulated(seed), arena).await;
            });
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("the failing seed is {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
