//! How much memory an open pool holds for its metadata: mirrors that fill sparse files, opened as the server does.
//!
//! `cargo run --release -p pool --example memory -- DIRECTORY [TIB...]` makes, for each size, four files of a quarter of it, a pool, a two-way mirror with all of its rows
//! (256 MiB slabs), and opens it again in a process of its own. It prints what that holds more than before, what it had at most, and what follows for 1 PiB, if it
//! grows as it did between the last two sizes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arena::Arena;
use disk::{Disk, FileDisk, FileOptions};
use env::Env;
use pool::book::Book;
use pool::format::Claimant;
use pool::{
    CreateOptions, DataPath, DiskNumber, NewDisk, Op, OpenOptions, PathOptions, Pool, Provisioning,
    Resiliency, RowNumber, SlabPlace, SpaceId, SpaceRecord,
};

const TIB: u64 = 1 << 40;
const SLAB: u64 = 256 << 20;
const DISKS: u16 = 4;
const MIRROR: SpaceId = SpaceId(0);

/// Rows in one record of the metadata.
const ROWS_AT_ONCE: usize = 512;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        None => Err("a directory for sparse files is wanted".into()),
        Some((step, rest)) if step == "--fill" || step == "--open" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let [directory, tib] = rest else { return Err("a directory and a size".into()) };
            let (directory, bytes) = (Path::new(directory), tib.parse::<u64>()? * TIB);
            match step.as_str() {
                "--fill" => runtime.block_on(fill(directory, bytes)),
                _ => runtime.block_on(open(directory)),
            }
        }
        Some((directory, sizes)) => {
            let sizes: Vec<u64> = sizes.iter().map(|s| s.parse()).collect::<Result<_, _>>()?;
            measure(Path::new(directory), if sizes.is_empty() { &[1, 4, 16] } else { &sizes })
        }
    }
}

fn measure(directory: &Path, sizes: &[u64]) -> Result<(), Error> {
    let mut found: Vec<(u64, f64)> = Vec::new();
    for tib in sizes {
        let mine = directory.join(format!("{tib}"));
        std::fs::create_dir(&mine)?;
        let step = |step: &str| {
            Command::new(std::env::current_exe()?)
                .args([step.as_ref(), mine.as_os_str(), tib.to_string().as_ref()])
                .output()
        };
        let (filled, opened) = (step("--fill")?, step("--open")?);
        std::fs::remove_dir_all(&mine)?;
        for output in [&filled, &opened] {
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
        }
        let said = String::from_utf8(opened.stdout)?;
        let mut kib = said.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(held)), Some(Ok(peak)), Some(Ok(slabs))) = (kib.next(), kib.next(), kib.next()) else {
            return Err(said.into());
        };
        println!("{tib} TiB: {slabs} slabs, {:.1} MiB held, {:.1} MiB at most", held / 1024.0, peak / 1024.0);
        found.push((*tib, held));
    }
    if let [.., (a, less), (b, more)] = found[..] {
        let each = (more - less) / (b - a) as f64;
        println!(
            "each TiB more: {each:.0} KiB; 1 PiB: {:.0} MiB",
            (more + each * (1024 - b) as f64) / 1024.0
        );
    }
    Ok(())
}

fn files(directory: &Path) -> Vec<PathBuf> {
    (0..DISKS).map(|n| directory.join(format!("{n}.disk"))).collect()
}

fn disks(env: &Env, directory: &Path, create: Option<u64>) -> Result<Vec<Arc<dyn Disk>>, Error> {
    let options = FileOptions { create, ..FileOptions::default() };
    let open = |path: PathBuf| Ok(FileDisk::open(env, &path, &options)? as Arc<dyn Disk>);
    files(directory).into_iter().map(open).collect()
}

fn by() -> Claimant {
    Claimant { host: "here".into(), machine: [1; 16], boot: [1; 16], process: 1 }
}

/// A pool on new files whose mirror has all of its rows.
async fn fill(directory: &Path, bytes: u64) -> Result<(), Error> {
    let (env, arena) = (Env::real(), Arena::new(64 << 20)?);
    let new: Vec<NewDisk> =
        disks(&env, directory, Some(bytes / u64::from(DISKS)))?.into_iter().map(NewDisk::new).collect();
    let options = CreateOptions { name: "tank".into(), slab_bytes: Some(SLAB), by: by() };
    let pool = Pool::create(&env, &arena, &new, options).await?;
    let slabs = pool.read(|s| s.disks.values().map(|d| d.slabs).min()).unwrap_or(0);
    let rows = slabs * u32::from(DISKS) / 2;
    let record = SpaceRecord {
        name: "space".into(),
        size: u64::from(rows) * SLAB,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 256 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
    };
    pool.create_space(record).await?;
    let place = |disk: u32, slab| SlabPlace { disk: DiskNumber(disk as u16), slab };
    let row = |row: u32| Op::AllocateRow {
        space: MIRROR,
        row: RowNumber(row),
        slabs: vec![place(row % 2 * 2, row / 2), place(row % 2 * 2 + 1, row / 2)],
    };
    let ops: Vec<Op> = (0..rows / 2 * 2).map(row).collect();
    for some in ops.chunks(ROWS_AT_ONCE) {
        Book::commit(&pool, some.to_vec()).await?;
    }
    pool.export().await?;
    Ok(())
}

/// Opens it, with its data path, and says what that took.
async fn open(directory: &Path) -> Result<(), Error> {
    let (env, arena) = (Env::real(), Arena::new(64 << 20)?);
    let disks = disks(&env, directory, None)?;
    let before = status("VmRSS:")?;
    let opened = Pool::open(&env, &arena, &disks, &OpenOptions::new(by())).await?;
    let path = DataPath::of_pool(&opened.pool, env, arena, PathOptions::default()).await?;
    let space = path.space(MIRROR)?;
    let (held, peak) = (status("VmRSS:")? - before, status("VmHWM:")? - before);
    println!("{held} {peak} {}", opened.pool.read(|s| s.slabs_allocated()));
    drop((space, path, opened));
    Ok(())
}

/// A line of the kernel's figures about this process, in KiB.
fn status(name: &str) -> Result<i64, Error> {
    let all = std::fs::read_to_string("/proc/self/status")?;
    let line = all.lines().find_map(|l| l.strip_prefix(name)).ok_or("no such line")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
