//! A pool with one space on disks in memory, and what everybody is about.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arena::Arena;
use disk::sim::{Machine, SlotId};
use disk::{Disk, MemoryOptions, PowerCut};
use env::Env;
use pool::format::Claimant;
use pool::{
    Absence, CreateOptions, DataPath, DiskNumber, MediaClass, NewDisk, OpenOptions, PathOptions, Pool,
    Provisioning, Resiliency, Space, SpaceId, SpaceRecord, UNIT,
};

pub const USERS: usize = 8;
/// Units of each user in each row.
pub const EACH: u64 = 6;
pub const ROWS: u64 = 2;
/// Users with a row of their own each, after the others; then one row that all others share.
pub const OWNERS: usize = 3;

const DISK_BYTES: u64 = 32 << 20;
const SLAB_BYTES: u64 = 2 << 20;

#[derive(Clone, Copy)]
pub struct Shape {
    pub disks: usize,
    pub resiliency: Resiliency,
    pub columns: u8,
}

pub struct Site {
    pub shape: Shape,
    pub env: Env,
    pub arena: Arena,
    machine: Arc<Machine>,
    pub pool: Pool,
    pub path: Arc<DataPath>,
    pub space: Space,
    /// What each is about, and how much was done in all.
    about: Mutex<BTreeMap<&'static str, String>>,
    steps: AtomicU64,
}

fn by() -> Claimant {
    Claimant { host: "a".into(), machine: [1; 16], boot: [1; 16], process: 7 }
}

impl Site {
    pub async fn new(shape: Shape) -> Site {
        let (env, arena) = (Env::real(), Arena::new(64 << 20).expect("a mapping"));
        let machine = Arc::new(Machine::new(&env, 1));
        for n in 0..shape.disks {
            machine.add(&MemoryOptions::new(format!("disk{n}"), DISK_BYTES));
            // Some answer at once, on the thread that asks.
            if n % 2 == 0 {
                machine.shuffle(SlotId(n), Duration::from_millis(1));
            }
        }
        let new: Vec<NewDisk> = disks(&machine).into_iter().map(NewDisk::new).collect();
        let options = CreateOptions { name: "tank".into(), slab_bytes: Some(SLAB_BYTES), by: by() };
        let pool = Pool::create(&env, &arena, &new, options).await.expect("a pool");
        let record = SpaceRecord {
            name: "space".into(),
            size: (ROWS + OWNERS as u64 + 1) * u64::from(shape.columns) * SLAB_BYTES,
            resiliency: shape.resiliency,
            interleave: UNIT as u32,
            columns: shape.columns,
            provisioning: Provisioning::Thin,
            media: MediaClass::ANY,
        };
        pool.create_space(record).await.expect("a space");
        Site::on(shape, env, arena, machine, pool).await
    }

    async fn on(shape: Shape, env: Env, arena: Arena, machine: Arc<Machine>, pool: Pool) -> Site {
        // Small, so that tables and marks have to go while they are in use.
        let options = PathOptions { tables: 4, log_entries: 2, read_only: false };
        let path = DataPath::of_pool(&pool, env.clone(), arena.clone(), options).await.expect("a data path");
        let space = path.space(SpaceId(0)).expect("the space");
        let (about, steps) = (Mutex::default(), AtomicU64::new(0));
        Site { shape, env, arena, machine, pool, path, space, about, steps }
    }

    /// The same disks, in another life of the pool.
    pub async fn opened_again(&self) -> Site {
        self.path.quiesce().await.expect("nothing is lost");
        self.pool.export().await.expect("it is given up");
        let opened = Pool::open(&self.env, &self.arena, &disks(&self.machine), &OpenOptions::new(by())).await;
        let pool = opened.expect("it opens").pool;
        Site::on(self.shape, self.env.clone(), self.arena.clone(), Arc::clone(&self.machine), pool).await
    }

    /// The first unit of a row.
    pub fn row(&self, row: u64) -> u64 {
        row * u64::from(self.shape.columns) * SLAB_BYTES / UNIT
    }

    pub fn did(&self, who: &'static str, what: String) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.about.lock().expect("no thread panics").insert(who, what);
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub fn under_way(&self) -> String {
        format!("{:?}", self.about.lock().expect("no thread panics"))
    }

    pub async fn sleep(&self, ms: usize) {
        self.env.sleep(Duration::from_millis(ms as u64)).await;
    }

    pub fn pull(&self, who: &'static str, n: usize, seed: u64) {
        let cut = match seed % 3 {
            0 => PowerCut::LoseAll,
            1 => PowerCut::KeepAll,
            _ => PowerCut::Tear { seed },
        };
        self.did(who, format!("disk {n} is pulled, {cut:?}"));
        self.machine.pull(SlotId(n), cut);
    }

    pub async fn leaves(&self, who: &'static str, n: usize, why: Absence) {
        self.did(who, format!("disk {n} leaves: {why:?}"));
        self.pool.disk_failed(DiskNumber(n as u16), why).await.expect("it may");
    }

    pub async fn bring_back(&self, who: &'static str, n: usize) {
        // Its absence may have gone unnoticed.
        self.leaves(who, n, Absence::Gone).await;
        self.machine.plug(SlotId(n));
        loop {
            self.did(who, format!("disk {n} comes back"));
            let disk = self.machine.open(SlotId(n)).expect("it is plugged in");
            match self.path.return_disk(&self.pool, disk, false).await {
                Ok(_) => return,
                Err(pool::AdminError::StillWriting { .. }) => self.sleep(1).await,
                Err(e) => panic!("disk {n} does not come back: {e}"),
            }
        }
    }

    /// Where everything is, which disks are away, and what everybody does.
    pub fn rows(&self) -> String {
        let here = self.pool.read(|s| {
            format!(
                "{:x?}, disks {:?}",
                s.rows,
                s.disks.iter().map(|(d, r)| (d.0, r.presence)).collect::<Vec<_>>()
            )
        });
        format!("{here}; {}", self.under_way())
    }

    /// What a disk is behind with, and whether it is here. Of slabs that are on their way there a job of
    /// their own knows.
    pub fn lacks(&self, n: usize) -> Option<String> {
        let number = DiskNumber(n as u16);
        self.pool.read(|s| {
            let behind = |c: &pool::SlabCopy| c.place.disk == number && c.missed != 0;
            let (_, row) = s.rows.iter().find(|(_, r)| r.slabs.iter().any(behind))?;
            Some(format!("{row:x?}, present: {}", s.is_present(number)))
        })
    }
}

fn disks(machine: &Machine) -> Vec<Arc<dyn Disk>> {
    let all = (0..machine.slots()).filter_map(|n| machine.open(SlotId(n)).ok());
    all.map(|d| d as Arc<dyn Disk>).collect()
}
