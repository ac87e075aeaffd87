//! Pool and space together: the metadata on the same disks, under the same power cuts, its voters among the
//! disks that are lost.

use std::sync::Arc;
use std::time::Duration;

use disk::sim::{Machine, SlotId};
use disk::{Disk, MemoryOptions, PowerCut};
use env::Env;
use parking_lot::Mutex;

use super::crashes::{a_cut, read_all};
use super::model::Model;
use super::world::{Load, SPACE, Site, work};
use super::{Random, arena, in_virtual_time};
use crate::format::Claimant;
use crate::jobs::Progress;
use crate::{
    CreateOptions, DataPath, DiskNumber, MediaClass, NewDisk, OpenError, OpenOptions, Opened, PathOptions,
    Pool, Provisioning, Resiliency, SpaceRecord,
};

const LOAD: Load = Load { users: 2, steps: 20, units: 24, delay_ms: 3, rows: false };
const OPTIONS: PathOptions = PathOptions { tables: 8, log_entries: 4, read_only: false };

fn by() -> Claimant {
    Claimant { host: "a".into(), machine: [1; 16], boot: [1; 16], process: 7 }
}

fn disks(machine: &Machine) -> Vec<Arc<dyn Disk>> {
    let all = (0..machine.slots()).filter_map(|n| machine.open(SlotId(n)).ok());
    all.map(|d| d as Arc<dyn Disk>).collect()
}

async fn create(env: &Env, machine: &Machine) -> (Pool, Arc<DataPath>) {
    let new: Vec<NewDisk> = disks(machine).into_iter().map(NewDisk::new).collect();
    let options = CreateOptions { name: "tank".into(), slab_bytes: Some(2 << 20), by: by() };
    let pool = Pool::create(env, &arena(), &new, options).await.expect("a pool");
    let record = SpaceRecord {
        name: "space".into(),
        size: 8 << 20,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 64 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    };
    assert_eq!(pool.create_space(record).await, Ok(SPACE));
    let path = DataPath::of_pool(&pool, env.clone(), arena(), OPTIONS).await.expect("a data path");
    (pool, path)
}

async fn open(env: &Env, machine: &Machine) -> Result<(Opened, Arc<DataPath>, Site), OpenError> {
    let mut options = OpenOptions::new(by());
    options.is_running = |_| false;
    let opened = Pool::open(env, &arena(), &disks(machine), &options).await?;
    let path = DataPath::of_pool(&opened.pool, env.clone(), arena(), OPTIONS).await.expect("a data path");
    let space = path.space(SPACE).expect("the space");
    let site = Site { env: env.clone(), machine: machine.clone(), space };
    Ok((opened, path, site))
}

/// One seed; whether the pool could be opened after each of its cuts.
fn run(seed: u64) -> Vec<bool> {
    let (moments, model) = in_virtual_time(async {
        let env = Env::simulated(seed);
        let machine = Machine::new(&env, seed);
        for n in 0..2 {
            machine.add(&MemoryOptions::new(format!("disk{n}"), 16 << 20));
        }
        let (_pool, path) = create(&env, &machine).await;
        let site =
            Site { env: env.clone(), machine: machine.clone(), space: path.space(SPACE).expect("a space") };
        machine.record();
        let model = Mutex::new(Model::default());
        let loss = async {
            let mut random = Random(seed);
            env.sleep(Duration::from_millis(20 + random.below(40))).await;
            if seed.is_multiple_of(2) {
                machine.pull(SlotId(seed as usize / 2 % 2), PowerCut::Tear { seed });
            }
        };
        futures_util::future::join(work(&site, LOAD, seed, &model), loss).await;
        (machine.recorded(), model.into_inner())
    });
    let mut random = Random(seed ^ 99);
    let mut opened = Vec::new();
    for _ in 0..5 {
        let moment = &moments[random.below(moments.len() as u64) as usize];
        let cut = a_cut(&mut random);
        let what = format!("seed {seed}, cut before event {} ({cut:?})", moment.event);
        opened.push(in_virtual_time(async {
            let env = Env::simulated(seed);
            let machine = moment.cut(&env, cut);
            let gone = (0..2).find(|n| machine.open(SlotId(*n)).is_err());
            let (first, path) = match open(&env, &machine).await {
                // It is unknown whether the absent disk continued alone.
                Err(OpenError::TooFewVoters { .. }) if gone.is_some() => return false,
                Err(e) => panic!("{what}: {e}"),
                Ok((_, path, site)) => (read_all(&site, LOAD, &what).await, path),
            };
            for (unit, value) in &first {
                let allowed = model.after_cut(*unit, moment.event);
                assert!(allowed.contains(value), "{what}: unit {unit} is {value}, not one of {allowed:?}");
            }
            drop(path);
            // Again, with both disks: the one that was away has missed what it has missed.
            machine.cut(a_cut(&mut Random(seed)));
            machine.restart();
            if let Some(n) = gone {
                machine.plug(SlotId(n));
            }
            let (opened, path, site) = open(&env, &machine).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(first, read_all(&site, LOAD, &what).await, "{what}: opened again");
            let progress = Progress::default();
            path.resolve_all(&progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            for n in 0..2 {
                if !opened.pool.read(|s| s.is_present(DiskNumber(n))) {
                    let disk = machine.open(SlotId(usize::from(n))).expect("it is plugged in");
                    let number = opened.pool.return_disk(disk, false).await;
                    assert_eq!(number.unwrap_or_else(|e| panic!("{what}: {e}")), DiskNumber(n));
                    let member = opened.pool.members().get(DiskNumber(n)).cloned().expect("it is back");
                    path.join(&member).await.unwrap_or_else(|e| panic!("{what}: {e}"));
                }
                path.resync(DiskNumber(n), &progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            let behind = opened.pool.read(|s| s.rows.values().flat_map(|r| &r.slabs).any(|c| c.missed != 0));
            assert!(!behind, "{what}: not resynced");
            let lost = DiskNumber(seed as u16 % 2);
            machine.pull(SlotId(usize::from(lost.0)), PowerCut::LoseAll);
            opened
                .pool
                .disk_failed(lost, crate::Absence::Gone)
                .await
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(first, read_all(&site, LOAD, &what).await, "{what}: alone");
            true
        }));
    }
    opened
}

#[test]
fn pool_and_space_survive_together() {
    let opened: Vec<bool> = (0..200).flat_map(run).collect();
    let well = opened.iter().filter(|o| **o).count();
    assert!(well * 4 > opened.len() * 3, "{well} of {} could be opened", opened.len());
}
