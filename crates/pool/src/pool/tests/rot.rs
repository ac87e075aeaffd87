//! Damage of labels and metadata while the pool is open and does not read them.

use std::collections::BTreeMap;

use super::*;
use crate::Deadlines;
use crate::format::{BLOCK, Extent};

/// The first block of every place with contents, and the place's name. A new pool has written one claim and one
/// checkpoint on each disk; its journal has a row and a space.
fn places(pool: &Pool, disk: u16) -> Vec<(&'static str, Extent)> {
    let members = pool.members();
    let areas = members.get(DiskNumber(disk)).unwrap().areas;
    let block = |at: Extent| Extent { length: BLOCK as u64, ..at };
    vec![
        ("label A", areas.label_a),
        ("label B", areas.label_b),
        ("claim", areas.claim_place(1)),
        ("checkpoint", block(areas.checkpoint_0)),
        ("journal", block(areas.journal)),
    ]
}

/// Flips a bit on a disk without the pool's knowledge.
async fn rots(w: &World, disk: u16, at: Extent, byte: usize) {
    let io = DiskIo::new(&w.env, &w.arena, DiskIo::UNOWNED_EPOCH, Deadlines::default());
    let disk = w.disk(usize::from(disk));
    let mut bytes = io.read(&disk, at).await.unwrap();
    assert!(bytes[..64].iter().any(|b| *b != 0), "something is there");
    bytes[byte] ^= 4;
    io.write_durably(&disk, at.offset, bytes).await.unwrap();
}

async fn with_a_space(w: &World) -> Pool {
    let pool = w.create().await;
    let space = make(&pool, mirror("m")).await;
    allocate(&pool, space, [0, 1], 1).await;
    pool
}

fn one(disk: u16, places: u64) -> BTreeMap<DiskNumber, u64> {
    [(DiskNumber(disk), places)].into()
}

#[tokio::test(start_paused = true)]
async fn each_place_is_looked_at_and_written_anew() {
    // Bytes in the magic, the pool, the length, the checksum and the body.
    for byte in [0, 20, 54, 61, 64] {
        for place in 0..5 {
            let mut w = World::new(3);
            let pool = with_a_space(&w).await;
            assert_eq!(pool.scrub_metadata().await, Ok(BTreeMap::new()), "all is well");
            let before = pool.read(State::clone);
            let (name, at) = places(&pool, 1)[place];
            rots(&w, 1, at, byte).await;
            assert_eq!(pool.scrub_metadata().await, Ok(one(1, 1)), "{name}, byte {byte}");
            assert_eq!(
                pool.scrub_metadata().await,
                Ok(BTreeMap::new()),
                "{name}, byte {byte}: it is well again"
            );
            assert_eq!(pool.read(|s| (s.spaces.clone(), s.voters.clone())), (before.spaces, before.voters));
            drop(pool);
            w.power_cut();
            let opened = w.open(&[0, 1, 2]).await.unwrap();
            assert!(opened.missing.is_empty() && opened.stale.is_empty() && opened.may_be_stale.is_empty());
        }
    }
}

/// Both of two disks are needed to open a pool. First all metadata on one is damaged, then all on the other.
#[tokio::test(start_paused = true)]
async fn one_disk_after_the_other_is_not_too_many() {
    let mut w = World::new(2);
    let pool = with_a_space(&w).await;
    let before = pool.read(State::clone);
    for disk in [0, 1] {
        let places = places(&pool, disk);
        for (_, at) in &places {
            rots(&w, disk, *at, 20).await;
        }
        let found = pool.scrub_metadata().await.unwrap();
        // Checkpoint and journal belong together: without a valid checkpoint the start of its journal is unknown.
        assert_eq!(found, one(disk, 4));
    }
    pool.rename("lake").await.unwrap();
    drop(pool);
    w.power_cut();
    let opened = w.open(&[0, 1]).await.unwrap();
    assert!(opened.missing.is_empty() && opened.stale.is_empty());
    let rows = |s: &State| s.spaces[&SpaceId(0)].rows.clone();
    opened.pool.read(|s| assert_eq!((rows(s), s.name.as_str()), (rows(&before), "lake")));
}

/// A disk that cannot be written is removed, and the pool continues with the others.
#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_take_it_leaves() {
    let w = World::new(3);
    let pool = with_a_space(&w).await;
    rots(&w, 2, places(&pool, 2)[3].1, 20).await;
    w.disks[2].power_cut(PowerCut::LoseAll);
    assert_eq!(pool.scrub_metadata().await, Ok(BTreeMap::new()), "it does not answer");
    pool.rename("lake").await.unwrap();
    pool.read(|s| assert!(!s.is_present(DiskNumber(2)) && s.voters.len() == 2));
    assert_eq!(pool.scrub_metadata().await, Ok(BTreeMap::new()));
}
