//! Tests of the tree in memory alone: its limit, lending, and replay.

use std::sync::Arc;

use arena::{Arena, IoBuf, Sg, sg_to_vec};
use env::{Ctx, Env, Io};

use super::{LEND_MIN, RamFs, RamOptions};
use crate::{
    Attributes, Data, Kind, OpenMode, OpenRequest, Opened, ReadOptions, Rights, Vfs, VfsError, VfsPath,
    VfsResult,
};

fn now<T>(io: Io<T>) -> T {
    match io {
        Io::Done(t) => t,
        Io::Pending(_) => panic!("memory never waits"),
    }
}

fn open(fs: &RamFs, path: &str, mode: OpenMode, kind: Option<Kind>) -> VfsResult<Opened> {
    let path = VfsPath::parse(path).expect("a legal path");
    let rights = Rights { read: true, write: true };
    let r = OpenRequest {
        mode,
        kind,
        rights,
        attributes: Attributes::ARCHIVE,
        ..OpenRequest::for_metadata(path)
    };
    now(fs.open(&Ctx::default(), r))
}

fn bytes(b: u8, n: usize) -> Sg {
    [IoBuf::from(vec![b; n])].into_iter().collect()
}

fn read(o: &Opened, arena: &Arena, offset: u64, length: u32) -> Vec<u8> {
    match now(o.node.read(&Ctx::default(), offset, ReadOptions { length, arena, file_ok: true })) {
        Ok(Data::Bufs(sg)) => sg_to_vec(&sg),
        other => panic!("{other:?}"),
    }
}

fn used(fs: &RamFs) -> u64 {
    let space = now(fs.space(&Ctx::default())).expect("known");
    space.total - space.free
}

#[tokio::test(start_paused = true)]
async fn what_is_lent_does_not_change() {
    let (env, arena, c) = (Env::simulated(1), Arena::new(4 << 20).expect("a mapping"), Ctx::default());
    let fs = RamFs::new(&env, RamOptions::default()).expect("a mapping");
    let f = open(&fs, "f", OpenMode::Create, None).expect("made");
    now(f.node.write(&c, 0, bytes(1, 200_000))).expect("room");
    let want = ReadOptions { length: 200_000, arena: &arena, file_ok: false };
    let Ok(Data::Bufs(lent)) = now(f.node.read(&c, 0, want)) else { panic!("bytes") };
    assert_eq!(arena.usage().used, 0, "lent, not copied");
    now(f.node.write(&c, 70_000, bytes(2, 100))).expect("room");
    now(f.node.zero(&c, 0..50)).expect("room");
    now(f.node.set_len(&c, 10)).expect("room");
    assert!(sg_to_vec(&lent).iter().all(|b| *b == 1));
    now(f.node.set_len(&c, 100)).expect("room");
    assert_eq!(read(&f, &arena, 0, 1000), [0; 100]);
    const { assert!(LEND_MIN > 1000) };
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_and_everything_is_given_back() {
    let (env, c) = (Env::simulated(1), Ctx::default());
    let fs = RamFs::new(&env, RamOptions { capacity: 1 << 20, ..Default::default() }).expect("a mapping");
    let d = open(&fs, "d", OpenMode::Create, Some(Kind::Directory)).expect("made");
    let empty = used(&fs);
    let f = open(&fs, "d\\f", OpenMode::Create, None).expect("made");
    assert_eq!(now(f.node.write(&c, 0, bytes(1, 2 << 20))), Err(VfsError::NoSpace));
    assert_eq!(now(f.node.stat(&c)).expect("there").size, 0, "all or nothing");
    now(f.node.write(&c, 0, bytes(1, 900 << 10))).expect("fits");
    assert_eq!(now(f.node.write(&c, 10 << 20, bytes(1, 200 << 10))), Err(VfsError::NoSpace));
    let mut made = Vec::new();
    let full = loop {
        match open(&fs, &format!("d\\{}", made.len()), OpenMode::Create, None) {
            Ok(o) => made.push(o),
            Err(e) => break e,
        }
    };
    assert_eq!(full, VfsError::NoSpace);
    // A full tree still allows renames to names that are not longer, and truncation.
    now(fs.rename(&c, &f.path, f.node.id(), &VfsPath::parse("d\\F").expect("legal"), false))
        .expect("no more room");
    for o in made.iter().chain([&f]) {
        now(fs.remove(&c, &o.path, o.node.id())).expect("there");
    }
    assert!(now(d.node.is_empty(&c)).expect("a directory"));
    drop((made, f));
    assert_eq!(used(&fs), empty);
}

/// A write for which there is no memory writes nothing, and exposes no former contents of the memory.
#[tokio::test(start_paused = true)]
async fn a_write_without_memory() {
    const BLOCK: u32 = 64 << 10;
    let (env, arena, c) = (Env::simulated(1), Arena::new(4 << 20).expect("a mapping"), Ctx::default());
    let fs = RamFs::new(&env, RamOptions { capacity: 1 << 20, ..Default::default() }).expect("a mapping");
    let f = open(&fs, "f", OpenMode::Create, None).expect("made");
    let block = |b: u8| bytes(b, BLOCK as usize);
    let lend = || match now(f.node.read(&c, 0, ReadOptions { length: BLOCK, arena: &arena, file_ok: false }))
    {
        Ok(Data::Bufs(sg)) => sg,
        other => panic!("{other:?}"),
    };
    // A reader holds every version of the first block, until there is no memory for another.
    let mut held = Vec::new();
    while now(f.node.write(&c, 0, block(7))).is_ok() {
        held.push(lend());
    }
    assert_eq!(now(f.node.write(&c, 0, block(8))), Err(VfsError::NoMemory));
    held.remove(0); // space for one block: enough to allocate the second, but not to copy the first
    let two = block(9).into_iter().chain(block(9)).collect();
    assert_eq!(now(f.node.write(&c, 0, two)), Err(VfsError::NoMemory));
    let stat = now(f.node.stat(&c)).expect("there");
    assert_eq!((stat.size, stat.allocation), (BLOCK.into(), BLOCK.into()));
    now(f.node.set_len(&c, 2 * u64::from(BLOCK))).expect("a hole");
    assert!(read(&f, &arena, 0, BLOCK).iter().all(|b| *b == 7));
    assert!(read(&f, &arena, BLOCK.into(), BLOCK).iter().all(|b| *b == 0), "not what was there before");
}

#[tokio::test(start_paused = true)]
async fn a_seed_replays() {
    let run = || {
        let fs = RamFs::new(&Env::simulated(9), RamOptions::default()).expect("a mapping");
        let f = open(&fs, "f", OpenMode::Create, None).expect("made");
        format!("{:?} {:?}", fs.info(), f.stat)
    };
    assert_eq!(run(), run());
}

#[tokio::test(start_paused = true)]
async fn null_keeps_only_lengths() {
    let (env, arena, c) = (Env::simulated(1), Arena::new(8 << 20).expect("a mapping"), Ctx::default());
    let fs = RamFs::null(&env, "null").expect("nothing to map");
    let f = open(&fs, "f", OpenMode::Create, None).expect("made");
    now(f.node.write(&c, 1 << 40, bytes(1, 100))).expect("dropped");
    assert_eq!(now(f.node.stat(&c)).expect("there").size, (1 << 40) + 100);
    assert_eq!(read(&f, &arena, 1 << 40, 1000), [0; 100]);
    let before = arena.usage().used;
    assert!(read(&f, &arena, 5, 3 << 20).iter().all(|b| *b == 0));
    assert_eq!(arena.usage().used, before, "one buffer for all");
}

#[tokio::test(start_paused = true)]
async fn a_deep_tree_ends() {
    let fs = RamFs::new(&Env::simulated(1), RamOptions::default()).expect("a mapping");
    let mut path = VfsPath::root();
    let mut deepest: Option<Arc<dyn crate::Node>> = None;
    for _ in 0..3_000 {
        path = path.join("d").expect("legal");
        deepest =
            Some(open(&fs, &path.to_string(), OpenMode::Create, Some(Kind::Directory)).expect("made").node);
    }
    drop(fs);
    drop(deepest); // the last owner of the whole tree
}
