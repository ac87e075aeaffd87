//! What the metadata of a large pool takes: memory, time to open it, time for a change. Mirrors that fill
//! sparse files, opened as the server does.
//!
//! `cargo run --release -p pool --example memory -- DIRECTORY [TIB[:SLAB_MIB]...]` makes, for each size,
//! files of 8 TiB at most, a pool with slabs of that size (else as a new pool of that size has them), a
//! two-way mirror with all of its rows, and opens it again in a process of its own. It prints what that holds
//! more than before, what it had at most, how long opening took, and a look at every slab, how many changes
//! of a row are made durable in a second one after the other, and how long exporting took, which writes a
//! checkpoint to all voters.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arena::Arena;
use disk::{Disk, FileDisk, FileOptions};
use env::Env;
use pool::book::Book;
use pool::format::Claimant;
use pool::{
    CreateOptions, DataPath, DiskNumber, MediaClass, NewDisk, Op, OpenOptions, PathOptions, Pool,
    Provisioning, Resiliency, RowNumber, SlabPlace, SpaceId, SpaceRecord,
};

const TIB: u64 = 1 << 40;
/// No file is larger: file systems have bounds.
const FILE_TIB: u64 = 8;
const MIRROR: SpaceId = SpaceId(0);

/// Rows in one record of the metadata.
const ROWS_AT_ONCE: usize = 4096;

/// Changes that are timed.
const CHANGES: u32 = 500;

/// How large a pool, and its slabs if they are not as a new one has them.
#[derive(Clone, Copy)]
struct Size {
    tib: u64,
    slab: Option<u64>,
}

impl Size {
    fn parse(s: &str) -> Result<Size, Error> {
        let (tib, slab) = s.split_once(':').map_or((s, None), |(tib, mib)| (tib, Some(mib)));
        let slab = slab.map(|mib| mib.parse::<u64>().map(|mib| mib << 20)).transpose()?;
        Ok(Size { tib: tib.parse()?, slab })
    }

    /// An even number of files.
    fn disks(self) -> u16 {
        (self.tib.div_ceil(FILE_TIB).next_multiple_of(2) as u16).max(4)
    }
}

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        None => Err("a directory for sparse files is wanted".into()),
        Some((step, rest)) if step == "--fill" || step == "--open" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let [directory, size] = rest else { return Err("a directory and a size".into()) };
            let (directory, size) = (Path::new(directory), Size::parse(size)?);
            match step.as_str() {
                "--fill" => runtime.block_on(fill(directory, size)),
                _ => runtime.block_on(open(directory, size)),
            }
        }
        Some((directory, [])) => measure(Path::new(directory), &["1", "16", "64:256"].map(String::from)),
        Some((directory, sizes)) => measure(Path::new(directory), sizes),
    }
}

fn measure(directory: &Path, sizes: &[String]) -> Result<(), Error> {
    for size in sizes {
        let mine = directory.join(size);
        std::fs::create_dir(&mine)?;
        let step = |step: &str| {
            Command::new(std::env::current_exe()?)
                .args([step.as_ref(), mine.as_os_str(), size.as_ref()])
                .output()
        };
        let outputs = step("--fill").and_then(|filled| Ok([filled, step("--open")?]));
        std::fs::remove_dir_all(&mine)?;
        for output in outputs? {
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
            print!("{}", String::from_utf8(output.stdout)?);
        }
    }
    Ok(())
}

fn disks(env: &Env, directory: &Path, size: Size, create: bool) -> Result<Vec<Arc<dyn Disk>>, Error> {
    let bytes = size.tib * TIB / u64::from(size.disks());
    let options = FileOptions { create: create.then_some(bytes), ..FileOptions::default() };
    let path = |n| directory.join(format!("{n}.disk"));
    let open = |n| Ok(FileDisk::open(env, &path(n), &options)? as Arc<dyn Disk>);
    (0..size.disks()).map(open).collect()
}

fn by() -> Claimant {
    Claimant { host: "here".into(), machine: [1; 16], boot: [1; 16], process: 1 }
}

/// A pool on new files whose mirror has all of its rows.
async fn fill(directory: &Path, size: Size) -> Result<(), Error> {
    let (env, arena) = (Env::real(), Arena::new(64 << 20)?);
    let new: Vec<NewDisk> = disks(&env, directory, size, true)?.into_iter().map(NewDisk::new).collect();
    let options = CreateOptions { name: "tank".into(), slab_bytes: size.slab, by: by() };
    let pool = Pool::create(&env, &arena, &new, options).await?;
    let slabs = pool.read(|s| s.disks.values().map(|d| d.slabs).min()).unwrap_or(0);
    let pairs = u32::from(size.disks() / 2);
    let record = SpaceRecord {
        name: "space".into(),
        size: u64::from(slabs * pairs) * pool.read(|s| s.slab_bytes),
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 256 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    };
    pool.create_space(record).await?;
    let on = |disk: u32, slab| SlabPlace { disk: DiskNumber(disk as u16), slab };
    let row = |row: u32| {
        let (pair, slab) = (row % pairs * 2, row / pairs);
        Op::AllocateRow {
            space: MIRROR,
            row: RowNumber(row),
            slabs: vec![on(pair, slab), on(pair + 1, slab)],
        }
    };
    let ops: Vec<Op> = (0..slabs * pairs).map(row).collect();
    for some in ops.chunks(ROWS_AT_ONCE) {
        Book::commit(&pool, some.to_vec()).await?;
    }
    pool.export().await?;
    Ok(())
}

/// Opens it, with its data path, and says what that took.
async fn open(directory: &Path, size: Size) -> Result<(), Error> {
    let (env, arena) = (Env::real(), Arena::new(64 << 20)?);
    let disks = disks(&env, directory, size, false)?;
    let (before, began) = (status("VmRSS:")?, env.now());
    let opened = Pool::open(&env, &arena, &disks, &OpenOptions::new(by())).await?;
    let pool = opened.pool;
    let path = DataPath::of_pool(&pool, env.clone(), arena, PathOptions::default()).await?;
    let space = path.space(MIRROR)?;
    let opening = (env.now() - began).as_secs_f64();
    let (held, peak) = (status("VmRSS:")? - before, status("VmHWM:")? - before);
    let (slabs, slab_mib) = pool.read(|s| (s.slabs_allocated(), s.slab_bytes >> 20));

    let began = env.now();
    let whole = pool.read(|s| s.rows.values().flat_map(|r| &r.slabs).all(|c| s.is_current(c, u64::MAX)));
    let looking = (env.now() - began).as_secs_f64() * 1e3;
    assert!(whole, "nothing has missed anything");
    let (rows, began) = (slabs as u32 / 2, env.now());
    for n in 0..CHANGES {
        let row = RowNumber((u64::from(n) * 7919 % u64::from(rows)) as u32);
        Book::commit(&pool, vec![Op::Missed { space: MIRROR, row, index: 0, regions: 1 }]).await?;
    }
    let changes = f64::from(CHANGES) / (env.now() - began).as_secs_f64();
    let began = env.now();
    pool.export().await?;
    println!(
        "{} TiB, {slabs} slabs of {slab_mib} MiB: {:.1} MiB held, {:.1} MiB at most; opened in {opening:.2} s; {looking:.0} ms to look at each; {changes:.0} changes a second; exported in {:.2} s",
        size.tib,
        held as f64 / 1024.0,
        peak as f64 / 1024.0,
        (env.now() - began).as_secs_f64(),
    );
    drop((space, path, pool));
    Ok(())
}

/// A line of the kernel's figures about this process, in KiB.
fn status(name: &str) -> Result<i64, Error> {
    let all = std::fs::read_to_string("/proc/self/status")?;
    let line = all.lines().find_map(|l| l.strip_prefix(name)).ok_or("no such line")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
