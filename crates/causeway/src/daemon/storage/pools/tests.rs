use super::*;
use crate::config::{Scratch, parse};
use crate::control::storage::{ImportRequest, NewDisks, NewPool};

/// A pool of one disk.
pub(in super::super) fn one_disk(scratch: &Scratch) -> NewPool {
    let path = scratch.0.join("a.disk");
    std::fs::File::create(&path).expect("a file").set_len(256 << 20).expect("a size");
    let disks = NewDisks {
        paths: vec![path],
        force: false,
        assume_atomic: true,
        accept_loss: false,
        usage: None,
        media: None,
        place: Default::default(),
    };
    NewPool { name: "tank".to_owned(), disks, slab_size: None }
}

/// The configured time-outs are the deadlines of a pool that is created, and of one that is opened.
#[tokio::test]
async fn pools_have_the_configured_timeouts() {
    let text = "[storage]\ndevices = []\nread_timeout_ms = 300\nwrite_timeout_ms = 400\nflush_timeout_ms = 500\nmetadata_timeout_ms = 20000\n";
    let section = parse(text, "c.toml").0.storage;
    let (env, arena) = (Env::real(), Arena::new(64 << 20).expect("memory"));
    let events = Arc::new(Events::open(None, &env).expect("no file"));
    let stored = StoredAttachments::open(None).expect("no file");
    let pools = Pools::new(&section, arena, env, events, stored, [1; 16], Vec::new());
    let scratch = Scratch::new("timeouts");
    let new = one_disk(&scratch);
    let path = new.disks.paths[0].clone();
    pools.create_pool(new).await.expect("a pool");
    let deadlines = || pools.open_pool("tank").expect("it is open").pool.deadlines();
    let ms = Duration::from_millis;
    let expected = Deadlines { reads: ms(300), writes: ms(400), flushes: ms(500), metadata: ms(20_000) };
    assert_eq!(deadlines(), expected);
    pools.export("tank").await.expect("it is exported");
    let again = ImportRequest { paths: vec![path], ..ImportRequest::default() };
    let imported = pools.import(again).await.expect("it is imported");
    assert!(imported.notes.iter().any(|n| n.contains("a.disk is not in storage.devices")), "{imported:?}");
    assert_eq!(deadlines(), expected);
    pools.close_all().await;
}
