//! FILE_NO_INTERMEDIATE_BUFFERING on a directory (MS-SMB2 2.2.13, 2.2.19, 2.2.21): the bytes read through unbuffered
//! and buffered opens, over both transports.

use arena::{IoBuf, Sg, sg_to_vec};
use env::Env;
use smb_client::{Client, ConnectOptions, File, OpenOptions};
use smb_server::{Limits, ShareConfig};

use crate::folder::open_to_all;
use crate::world::{World, credentials};

/// Files' ends in the test, in bytes.
const END: u64 = 400_000;

/// Random READs and WRITEs through `files`, against a model of the contents.
async fn by_chance(files: &[&File], env: &Env, model: &mut Vec<u8>) {
    for step in 0..120 {
        let n = env.random_u64();
        let unit = if n.is_multiple_of(4) { 1 } else { 512 };
        let offset = (n >> 8) % END / unit * unit;
        let length = ((n >> 32) % 150_000).max(unit) / unit * unit;
        let file = files[(n >> 3) as usize % files.len()];
        let (from, to) = (offset as usize, (offset + length) as usize);
        if (n >> 5).is_multiple_of(2) {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 17 + n) as u8).collect();
            let data: Sg = [IoBuf::from(bytes.clone())].into_iter().collect();
            assert_eq!(file.submit_write(offset, data).await.expect("written"), length as u32, "{step}");
            model.resize(model.len().max(to), 0);
            model[from..to].copy_from_slice(&bytes);
        } else {
            let got = sg_to_vec(&file.submit_read(offset, length as u32).await.expect("read"));
            let there = &model[from.min(model.len())..to.min(model.len())];
            assert!(got == there, "step {step}: {length} bytes at {offset} of {}", model.len());
        }
    }
}

async fn run(world: &World, client: Client, name: &str, dir: &tempfile::TempDir) {
    let tree = client.tree("dir").await.expect("a share");
    let past = tree.open(name, OpenOptions::open_or_create().unbuffered()).await.expect("a file");
    let through =
        tree.open(name, OpenOptions::open_or_create().unbuffered().write_through()).await.expect("again");
    let cached = tree.open(name, OpenOptions::open_or_create()).await.expect("again");
    let mut model = Vec::new();
    by_chance(&[&past, &through, &cached], &world.env, &mut model).await;
    for file in [past, through, cached] {
        file.close().await.expect("closed");
    }
    assert!(std::fs::read(dir.path().join(name)).expect("there") == model);
}

#[tokio::test]
async fn what_goes_past_the_cache_comes_back() {
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    // In the build directory: the temporary directory may be in memory, which has no cache to bypass.
    let place = std::env::current_exe().expect("this program");
    let dir = tempfile::tempdir_in(place.parent().expect("a directory")).expect("a directory");
    world.server.add_share(ShareConfig::new("dir", open_to_all(dir.path()))).expect("a new name");

    let client = world.client(ConnectOptions::new(credentials("alice"))).await;
    run(&world, client, "tcp", &dir).await;
    let (queue_pair, _serving) = world.queue_pair();
    let options = ConnectOptions::new(credentials("alice"));
    let (arena, env) = (world.arena.clone(), world.env.clone());
    let client = Client::connect_over(queue_pair, "world", options, arena, env).await.expect("a session");
    run(&world, client, "direct", &dir).await;
}
