//! What `hostdir` costs per call: `cargo run --release -p vfs --example hostdir_costs [DIRECTORY]`.
//!
//! Prints CPU time of the whole process (all threads) and wall-clock time per operation, in microseconds. For
//! comparison it also measures the bare system calls in a loop: the lower bound for the data paths.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arena::{Arena, IoBuf, Sg};
use env::{Ctx, Env};
use vfs::{
    Attributes, HostDir, HostDirOptions, Kind, Node, OpenMode, OpenRequest, ReadOptions, Rights, Vfs, VfsPath,
};

const SIZE: u64 = 64 << 20;
const PART: usize = 8192;
const DEPTH: usize = 32;
const COUNT: u64 = 60_000;

fn main() {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(directory.path()));
}

fn request(path: &str, mode: OpenMode, kind: Kind) -> OpenRequest {
    OpenRequest {
        mode,
        kind: Some(kind),
        rights: Rights { read: true, write: true },
        attributes: Attributes::ARCHIVE,
        ..OpenRequest::for_metadata(VfsPath::parse(path).expect("a legal path"))
    }
}

async fn measure(directory: &std::path::Path) {
    let (env, c) = (Env::real(), Ctx::default());
    let arena = Arena::new(64 << 20).expect("a mapping");
    let vfs = HostDir::open(directory, HostDirOptions::default()).expect("a tree");
    let made = vfs.open(&c, request("file", OpenMode::Create, Kind::File)).wait().await.expect("made");
    let node = made.node;
    let block: Sg = [IoBuf::from(vec![1; 1 << 20])].into_iter().collect();
    for at in (0..SIZE).step_by(1 << 20) {
        node.write(&c, at, block.clone()).wait().await.expect("room");
    }
    node.flush(&c).wait().await.expect("flushed");
    let offset = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (SIZE / PART as u64) * PART as u64;

    let file = std::fs::File::options().read(true).write(true).open(directory.join("file")).expect("there");
    let mut buffer = vec![0; PART];
    let clock = Clock::start(&env);
    for i in 0..COUNT {
        rustix::io::pread(file.as_fd(), &mut buffer[..], offset(i)).expect("a read");
    }
    clock.stop("pread(2), 8 KiB", COUNT);

    let clock = Clock::start(&env);
    for i in 0..COUNT {
        let want = ReadOptions { length: PART as u32, arena: &arena, file_ok: false };
        let data = node.read(&c, offset(i), want).wait().await.expect("a read");
        assert_eq!(data.len(), PART);
    }
    clock.stop("read, 8 KiB, cached", COUNT);

    for file_ok in [false, true] {
        let clock = Clock::start(&env);
        for i in 0..COUNT / 10 {
            let want = ReadOptions { length: 512 << 10, arena: &arena, file_ok };
            node.read(&c, offset(i) % (SIZE - (512 << 10)), want).wait().await.expect("a read");
        }
        clock.stop(
            if file_ok { "read, 512 KiB, as a descriptor" } else { "read, 512 KiB, cached" },
            COUNT / 10,
        );
    }

    let clock = Clock::start(&env);
    for i in 0..COUNT {
        rustix::io::pwrite(file.as_fd(), &buffer, offset(i)).expect("a write");
    }
    clock.stop("pwrite(2), 8 KiB", COUNT);

    let part: Sg = [IoBuf::from(vec![1; PART])].into_iter().collect();
    for depth in [1, DEPTH] {
        let clock = Clock::start(&env);
        for round in 0..COUNT / DEPTH as u64 {
            let writes = (0..DEPTH as u64).map(|i| node.write(&c, offset(round * 32 + i), part.clone()));
            if depth == 1 {
                for write in writes {
                    write.wait().await.expect("written");
                }
            } else {
                let waiting: Vec<_> = writes.map(|write| tokio::spawn(write.wait())).collect();
                for write in waiting {
                    write.await.expect("no panic").expect("written");
                }
            }
        }
        clock.stop(&format!("write, 8 KiB, {depth} at a time"), COUNT / DEPTH as u64 * DEPTH as u64);
    }

    // A constant queue depth: each of 32 tasks on one thread issues its next call when the previous one completes.
    let clock = Clock::start(&env);
    let tasks: Vec<_> = (0..DEPTH as u64)
        .map(|task| {
            let (node, part): (Arc<dyn Node>, Sg) = (Arc::clone(&node), part.clone());
            tokio::spawn(async move {
                for i in 0..COUNT / DEPTH as u64 {
                    let at = (i * 32 + task).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (SIZE / PART as u64);
                    node.write(&Ctx::default(), at * PART as u64, part.clone())
                        .wait()
                        .await
                        .expect("written");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    clock.stop("write, 8 KiB, 32 streams", COUNT / DEPTH as u64 * DEPTH as u64);

    let clock = Clock::start(&env);
    for _ in 0..COUNT {
        node.stat(&c).wait().await.expect("there");
    }
    clock.stop("stat of an open file", COUNT);

    let clock = Clock::start(&env);
    for _ in 0..COUNT / 10 {
        let open = vfs.open(&c, request("file", OpenMode::Open, Kind::File));
        drop(open.wait().await.expect("there"));
    }
    clock.stop("open and close, existing", COUNT / 10);

    let clock = Clock::start(&env);
    for _ in 0..COUNT / 10 {
        let open = vfs.open(&c, request("FILE", OpenMode::Open, Kind::File));
        drop(open.wait().await.expect("there"));
    }
    clock.stop("open and close, other case", COUNT / 10);

    vfs.open(&c, request("many", OpenMode::Create, Kind::Directory)).wait().await.expect("made");
    let clock = Clock::start(&env);
    for i in 0..COUNT / 6 {
        let open = vfs.open(&c, request(&format!("many\\File{i}"), OpenMode::Create, Kind::File));
        drop(open.wait().await.expect("made"));
    }
    clock.stop("create and close", COUNT / 6);

    let many =
        vfs.open(&c, request("many", OpenMode::Open, Kind::Directory)).wait().await.expect("there").node;
    let clock = Clock::start(&env);
    let (mut seen, mut restart) = (0, true);
    loop {
        let some = many.list(&c, restart, 200).wait().await.expect("a listing");
        if some.is_empty() {
            break;
        }
        (seen, restart) = (seen + some.len() as u64, false);
    }
    clock.stop("list, per entry", seen);
}

/// Wall clock and CPU time of the process.
struct Clock<'a> {
    env: &'a Env,
    wall: Instant,
    cpu: u64,
}

impl<'a> Clock<'a> {
    fn start(env: &'a Env) -> Clock<'a> {
        Clock { env, wall: env.now(), cpu: cpu_ns() }
    }

    fn stop(self, what: &str, count: u64) {
        let each = |ns: u128| ns as f64 / 1000.0 / count as f64;
        let wall = each((self.env.now() - self.wall).as_nanos());
        let cpu = each((cpu_ns() - self.cpu).into());
        println!("{what:32} {cpu:8.2} µs CPU {wall:8.2} µs wall");
    }
}

fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
