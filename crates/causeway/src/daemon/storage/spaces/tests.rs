use arena::Arena;
use disk::{Disk, MemoryDisk, MemoryOptions};
use env::{Ctx, Env};
use pool::{CreateOptions, NewDisk, Pool};

use super::*;
use crate::config::StorageSection;
use crate::daemon::events::Events;
use crate::daemon::storage::open_pool::SuspendedClients;
use crate::daemon::storage::stored_attachments::StoredAttachments;

const SLAB: u64 = 2 << 20;

/// A pool of two disks in memory with a fixed mirror of four rows.
async fn with_fixed() -> (Arc<OpenPool>, SpaceId) {
    let (env, arena) = (Env::simulated(1), Arena::new(64 << 20).expect("memory"));
    let section = StorageSection::default();
    let pools = Pools::new(
        &section,
        arena.clone(),
        env.clone(),
        Arc::new(Events::open(None, &env).expect("no file")),
        StoredAttachments::open(None).expect("no file"),
        [1; 16],
        Vec::new(),
    );
    let disk = |n| MemoryDisk::new(&MemoryOptions::new(format!("d{n}"), 64 << 20)) as Arc<dyn Disk>;
    let disks: Vec<NewDisk> = (0..2).map(|n| NewDisk::new(disk(n))).collect();
    let options = CreateOptions { slab_bytes: Some(SLAB), ..CreateOptions::new("tank", pools.by.clone()) };
    let pool = Pool::create(&env, &arena, &disks, options).await.expect("a pool");
    let record = SpaceRecord {
        name: "vm".into(),
        size: 4 * SLAB,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 64 << 10,
        columns: 1,
        provisioning: Provisioning::Fixed,
        ..SpaceRecord::default()
    };
    let space = pool.create_space(record).await.expect("a space");
    let open =
        OpenPool::new(&pools, pool, false, Vec::new(), SuspendedClients::default()).await.expect("it opens");
    allocate(&open, space).await.expect("there is room");
    (Arc::new(open), space)
}

#[tokio::test(start_paused = true)]
async fn a_fixed_one_without_room_stays_as_it_is() {
    let (open, space) = with_fixed().await;
    // A failed growth must not allocate a discarded row again either.
    let path = open.writable().expect("it is").disk(space).expect("it is there");
    path.discard(&Ctx::default(), SLAB, SLAB).wait().await.expect("a discard");
    path.flush(&Ctx::default()).wait().await.expect("a flush");
    drop(path);
    let now = |s: &State| {
        (s.spaces[&space].size, s.rows_of(space).map(|(row, _)| row).collect::<Vec<_>>(), s.slabs_allocated())
    };
    let before = open.pool.read(now);
    let room = open.pool.read(|s| size_possible(s, space));
    assert!(open.pool.read(|s| fits(s, space, room)).is_ok());
    let too_much = room + 1;
    for refused in [
        open.pool.read(|s| fits(s, space, too_much)),
        open.grow_fixed(space, 4 * SLAB, too_much.next_multiple_of(UNIT)).await,
    ] {
        let Err(StorageError::CannotGrow { pool, name, room: told, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((pool.as_str(), name.as_str(), told), ("tank", "vm", room));
        assert_eq!(open.pool.read(now), before);
    }
    open.grow_fixed(space, 4 * SLAB, room).await.expect("all that there is");
    assert_eq!(
        open.pool.read(|s| (s.spaces[&space].size, s.rows_of(space).count() as u64)),
        (room, room / SLAB)
    );
}
