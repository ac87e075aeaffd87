//! What an open pool's metadata takes of the memory, counted by this program's allocator: so it is a program
//! with one test.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arena::Arena;
use disk::{Disk, MemoryDisk, MemoryOptions};
use env::Env;
use pool::book::Book;
use pool::format::Claimant;
use pool::{
    CreateOptions, DataPath, DiskNumber, MediaClass, NewDisk, Op, OpenOptions, PathOptions, Pool,
    Provisioning, Resiliency, RowNumber, SlabPlace, SpaceId, SpaceRecord,
};

/// Counts what is allocated.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static EVER: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        EVER.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TIB: u64 = 1 << 40;
const DISKS: u16 = 16;
const DISK_TIB: u64 = 2;
/// What pools of this size have, and the worst that one of 1 PiB may: it was made when it was small.
const SLAB: u64 = 256 << 20;
const MIRROR: SpaceId = SpaceId(0);

fn by() -> Claimant {
    Claimant { host: "here".into(), machine: [1; 16], boot: [1; 16], process: 1 }
}

fn row(row: u32) -> Op {
    let pairs = u32::from(DISKS / 2);
    let on = |n: u16| SlabPlace { disk: DiskNumber((row % pairs) as u16 * 2 + n), slab: row / pairs };
    Op::AllocateRow { space: MIRROR, row: RowNumber(row), slabs: vec![on(0), on(1)] }
}

/// A pool whose mirror has all rows but the last 16.
async fn fill(env: &Env, arena: &Arena, disks: &[Arc<dyn Disk>]) {
    let new: Vec<NewDisk> = disks.iter().cloned().map(NewDisk::new).collect();
    let options = CreateOptions { name: "tank".into(), slab_bytes: Some(SLAB), by: by() };
    let pool = Pool::create(env, arena, &new, options).await.expect("a pool");
    let slabs = pool.read(|s| s.disks.values().map(|d| d.slabs).min()).expect("disks");
    let rows = slabs * u32::from(DISKS / 2);
    let record = SpaceRecord {
        name: "space".into(),
        size: u64::from(rows) * SLAB,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 256 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    };
    pool.create_space(record).await.expect("a space");
    let ops: Vec<Op> = (0..rows - 16).map(row).collect();
    for some in ops.chunks(4096) {
        Book::commit(&pool, some.to_vec()).await.expect("rows");
    }
    pool.export().await.expect("exported");
}

async fn open(env: &Env, arena: &Arena, disks: &[Arc<dyn Disk>]) -> (Pool, Arc<DataPath>) {
    let opened = Pool::open(env, arena, disks, &OpenOptions::new(by())).await.expect("it opens");
    let path = DataPath::of_pool(&opened.pool, env.clone(), arena.clone(), PathOptions::default()).await;
    (opened.pool, path.expect("a data path"))
}

/// Bytes allocated, ever, by a commit.
async fn cost(pool: &Pool, ops: Vec<Op>, fits: bool) -> usize {
    let before = EVER.load(Ordering::Relaxed);
    assert_eq!(Book::commit(pool, ops).await.is_ok(), fits);
    EVER.load(Ordering::Relaxed) - before
}

#[tokio::test(start_paused = true)]
async fn metadata_takes_half_a_mebibyte_for_each_tebibyte() {
    let (env, arena) = (Env::real(), Arena::new(16 << 20).expect("an arena"));
    let memory = |n| MemoryDisk::new(&MemoryOptions::new(format!("disk{n}"), DISK_TIB * TIB));
    let disks: Vec<Arc<dyn Disk>> = (0..DISKS).map(|n| memory(n) as Arc<dyn Disk>).collect();
    fill(&env, &arena, &disks).await;
    // Both checkpoints of each voter have been written: what the disks keep does not grow any more.
    for _ in 0..2 {
        let (pool, path) = open(&env, &arena, &disks).await;
        pool.export().await.expect("exported");
        drop((pool, path));
        // Its tasks end, and let go of it.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let (pool, _path) = open(&env, &arena, &disks).await;
    let slabs = pool.read(|s| s.slabs_allocated());
    let each_tib = |bytes: usize| (bytes - before.min(bytes)) as u64 / (u64::from(DISKS) * DISK_TIB);
    let (held, peak) = (each_tib(HELD.load(Ordering::Relaxed)), each_tib(PEAK.load(Ordering::Relaxed)));
    println!("{slabs} slabs: for each TiB {} KiB held, {} KiB at most", held >> 10, peak >> 10);
    assert!(held >= 64 << 10, "{held} bytes for each TiB: they are not counted");
    assert!(held <= 512 << 10, "{held} bytes for each TiB");
    assert!(peak <= 1024 << 10, "{peak} bytes for each TiB while it opens");

    // What a change takes has nothing to do with how much there is; nor does one that is refused after it was begun.
    let last = slabs as u32 / 2;
    let taken = cost(&pool, vec![row(last)], true).await;
    let refused = cost(&pool, vec![row(last + 1), row(last)], false).await;
    println!("a commit allocates {taken} bytes, one that is refused {refused}");
    assert!(taken.max(refused) < 256 << 10, "{taken} {refused}");
}
