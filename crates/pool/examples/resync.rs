//! How fast a disk is brought up to date, and a space read whole, when nobody else wants the disks:
//! `cargo run -p pool --example resync [FOLDER [MIB]]`, on files in a folder or, without one, on disks in memory.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arena::{Arena, IoBuf};
use disk::{Disk, FileDisk, FileOptions, MemoryDisk, MemoryOptions};
use env::{Ctx, Env};
use pool::format::Claimant;
use pool::jobs::Progress;
use pool::{
    CreateOptions, DataPath, DiskNumber, NewDisk, PathOptions, Pool, Provisioning, Resiliency, SpaceRecord,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().map(PathBuf::from);
    let bytes = words.next().map_or(Ok(256), |w| w.parse::<u64>())? << 20;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(folder, bytes))
}

async fn run(folder: Option<PathBuf>, bytes: u64) -> Result<(), Box<dyn Error>> {
    let (env, arena) = (Env::real(), Arena::new(256 << 20)?);
    let paths: Option<Vec<PathBuf>> = folder.map(|f| (0..2).map(|n| f.join(format!("{n}.disk"))).collect());
    let size = bytes * 9 / 8 + (256 << 20);
    let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
    for n in 0..2 {
        disks.push(match &paths {
            None => MemoryDisk::new(&MemoryOptions::new(format!("{n}"), size)),
            Some(paths) => FileDisk::open(&env, &paths[n], &options(Some(size)))?,
        });
    }
    let first: Vec<NewDisk> = disks.iter().map(|d| NewDisk::new(Arc::clone(d))).collect();
    let by = Claimant { host: "here".into(), machine: [1; 16], boot: [1; 16], process: std::process::id() };
    let how = CreateOptions { name: "tank".into(), slab_bytes: Some(64 << 20), by };
    let pool = Pool::create(&env, &arena, &first, how).await?;
    drop(first);
    let record = SpaceRecord {
        name: "vm".into(),
        size: bytes,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 256 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
    };
    let space = pool.create_space(record).await?;
    let data = DataPath::of_pool(&pool, env.clone(), arena.clone(), PathOptions::default()).await?;
    let space = data.space(space)?;
    pool.take_offline(DiskNumber(1)).await?;
    let block: IoBuf = IoBuf::from(vec![7; 1 << 20]);
    for at in (0..bytes).step_by(1 << 20) {
        space.write(&Ctx::default(), at, [block.clone()].into_iter().collect()).wait().await?;
    }
    space.flush_all().await?;
    // A disk that returns is opened anew.
    data.release_absent();
    let again: Arc<dyn Disk> = match &paths {
        None => Arc::clone(&disks[1]),
        Some(paths) => {
            disks.truncate(1);
            FileDisk::open(&env, &paths[1], &options(None))?
        }
    };
    let number = pool.return_disk(again, false).await?;
    let member = pool.members().get(number).cloned().ok_or("it is not back")?;
    data.join(&member).await?;
    let begun = env.now();
    data.resync(number, &Progress::default()).await?;
    tell("resync", bytes, begun, &env);
    let begun = env.now();
    space.scrub(&Progress::default()).await?;
    tell("scrub", bytes, begun, &env);
    pool.export().await?;
    Ok(())
}

fn options(create: Option<u64>) -> FileOptions {
    FileOptions { create, atomic_write: Some(4096), ..FileOptions::default() }
}

fn tell(what: &str, bytes: u64, begun: Instant, env: &Env) {
    let seconds = (env.now() - begun).as_secs_f64();
    println!("{what}: {:.0} MiB/s", (bytes >> 20) as f64 / seconds);
}
