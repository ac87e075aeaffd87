//! Large WRITEs of a session that neither signs nor encrypts: from the socket to a file by way of pipes.

use std::path::Path;

use arena::{IoBuf, Sg};
use env::Env;
use smb_client::{ConnectOptions, OpenOptions};
use smb_server::{Limits, ShareConfig};

use crate::folder::open_to_all;
use crate::world::{World, credentials};

const IO: usize = 300_000;
const COUNT: usize = 24;

fn payload(number: usize) -> Vec<u8> {
    (0..IO).map(|i| (i % 249) as u8 ^ number as u8).collect()
}

/// Pipes that this process has open: no other test here has one.
fn pipe_ends() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let targets = entries.flatten().filter_map(|e| std::fs::read_link(e.path()).ok());
    targets.filter(|to| to.to_string_lossy().starts_with("pipe:")).count()
}

/// A world with the share `disk` on `folder`.
fn world(folder: &Path) -> World {
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    world.server.add_share(ShareConfig::new("disk", open_to_all(folder))).expect("a new name");
    world
}

#[tokio::test]
async fn what_came_by_pipes_is_what_was_sent() {
    // Not /tmp: that may be in memory, where pipes are not used.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("piped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let world = world(&folder);
    let mut options = ConnectOptions::new(credentials("alice"));
    options.require_signing = false;
    let client = world.client(options).await;
    let before = pipe_ends();
    let disk = client.tree("disk").await.expect("the share");
    let ram = client.tree("ram").await.expect("the share");
    let on_disk = disk.open("f", OpenOptions::create()).await.expect("created");
    let in_memory = ram.open("f", OpenOptions::create()).await.expect("created");
    // Backwards, so that each offset counts; several at a time; some for a share that needs its payload in memory,
    // although the share before it uses pipes.
    for numbers in (0..COUNT).rev().collect::<Vec<_>>().chunks(4) {
        let writes = numbers.iter().map(|&n| {
            let file = if n % 6 == 5 { &in_memory } else { &on_disk };
            let data: Sg = [IoBuf::from(payload(n))].into_iter().collect();
            file.submit_write((n * IO + 13) as u64, data)
        });
        for written in futures_util::future::join_all(writes).await {
            assert_eq!(written.expect("written") as usize, IO);
        }
    }
    for n in 0..COUNT {
        let file = if n % 6 == 5 { &in_memory } else { &on_disk };
        let got = file.read_at((n * IO + 13) as u64, IO as u32).await.expect("read");
        assert!(arena::sg_to_vec(&got) == payload(n), "the WRITE with number {n}");
    }
    let used = pipe_ends() - before;
    let kind = rustix::fs::statfs(&folder).expect("a file system").f_type;
    assert!(used > 0 || kind != 0xef53, "ext4 takes its payload from pipes");

    // The payload of a refused WRITE is discarded, and the connection continues.
    let reader = disk.open("f", OpenOptions::read()).await.expect("opened");
    let data: Sg = [IoBuf::from(payload(1))].into_iter().collect();
    assert!(reader.submit_write(0, data).await.is_err(), "it was opened to be read");
    let data: Sg = [IoBuf::from(payload(7))].into_iter().collect();
    assert_eq!(on_disk.submit_write(13, data).await.expect("written") as usize, IO);
    assert!(std::fs::read(folder.join("f")).expect("it is there")[13..13 + IO] == payload(7));
    for file in [on_disk, in_memory, reader] {
        file.close().await.expect("closed");
    }
    assert_eq!(world.arena.usage().waiting, 0);
    std::fs::remove_dir_all(&folder).expect("removed");
}
