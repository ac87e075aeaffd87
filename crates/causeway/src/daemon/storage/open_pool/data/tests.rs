use arena::{Arena, IoBuf};
use disk::sim::{Fault, Machine, Rule, SlotId, When};
use disk::{Disk, MemoryOptions, Op as DiskOp};
use env::{Ctx, Env};
use pool::book::Book;
use pool::{CreateOptions, MediaClass, NewDisk, Op, Pool, Provisioning, Resiliency, SpaceId, SpaceRecord};

use super::*;
use crate::config::{JobsSection, StorageSection};
use crate::daemon::events::Events;
use crate::daemon::storage::pools::Pools;

const MIB: u64 = 1 << 20;

/// A pool of one disk with injected faults, with a virtual disk of which a piece is written and not flushed.
async fn with_unflushed() -> (Machine, SlotId, Arc<OpenPool>, SpaceId) {
    let (env, arena) = (Env::simulated(1), Arena::new(64 << 20).expect("memory"));
    let machine = Machine::new(&env, 1);
    let slot = machine.add(&MemoryOptions::new("d0", 64 * MIB));
    let section = StorageSection { devices: Vec::new(), jobs: JobsSection::default() };
    let events = Arc::new(Events::open(None, &env).expect("no file"));
    let pools = Pools::new(&section, arena.clone(), env.clone(), events, [1; 16]);
    let disk: Arc<dyn Disk> = machine.open(slot).expect("its power is on");
    let options = CreateOptions { name: "tank".into(), slab_bytes: Some(2 * MIB), by: pools.by.clone() };
    let pool = Pool::create(&env, &arena, &[NewDisk::new(disk)], options).await.expect("a pool");
    let record = SpaceRecord {
        name: "vm".into(),
        size: 8 * MIB,
        resiliency: Resiliency::Simple,
        interleave: 64 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    };
    let space = pool.create_space(record).await.expect("a space");
    let open = Arc::new(OpenPool::new(&pools, pool, false, Vec::new()).await.expect("it opens"));
    write(&open, space, 7).await;
    (machine, slot, open, space)
}

async fn write(open: &OpenPool, space: SpaceId, with: u8) {
    let vm = open.writable().expect("it is").space(space).expect("it is there");
    let src = [IoBuf::from(vec![with; 64 << 10])].into_iter().collect();
    vm.write(&Ctx::default(), 0, src).wait().await.expect("written");
}

async fn reads(open: &OpenPool, space: SpaceId, expected: u8) {
    let vm = open.data_now().expect("there is one").space(space).expect("it is there");
    let arena = Arena::new(1 << 20).expect("memory");
    let dst = arena.try_alloc_sg(64 << 10, arena::Class::Control).expect("it is empty");
    let (result, dst) = vm.read(&Ctx::default(), 0, disk::sized(dst, 64 << 10)).wait().await;
    result.expect("read");
    assert!(dst.iter().all(|b| b.iter().all(|b| *b == expected)));
}

async fn resize(open: &Arc<OpenPool>, space: SpaceId, size: u64) -> Result<(), StorageError> {
    let work = async { Ok(Book::commit(&open.pool, vec![Op::ResizeSpace { space, size }]).await?) };
    open.without_data(work).await
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_flushed_keeps_its_data_path() {
    let (machine, slot, open, space) = with_unflushed().await;
    let size = || open.pool.read(|s| s.spaces[&space].size);
    machine.rule(slot, Rule::new(DiskOp::Write, When::From(0), Fault::Full).within(MIB..60 * MIB));
    let refused = resize(&open, space, 16 * MIB).await;
    assert!(matches!(refused, Err(StorageError::Unflushed { .. })), "{refused:?}");
    assert!(refused.is_err_and(|e| e.cure().is_some()));
    assert_eq!(size(), 8 * MIB, "nothing was done");
    reads(&open, space, 7).await;
    assert!(open.mender().is_some() && open.mover().is_some() && open.no_data().is_none());
    let board = Arc::clone(&open.data_now().expect("there is one").jobs);
    assert!(board.begin(Kind::Scrub, Subject::Space(space)).is_some(), "jobs begin again");
    // There is room again.
    machine.no_rules(slot);
    resize(&open, space, 16 * MIB).await.expect("it can be flushed now");
    assert_eq!(size(), 16 * MIB);
    reads(&open, space, 7).await;
    write(&open, space, 8).await;
    open.close().await.expect("all is flushed");
    assert!(open.data().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_data_path_that_could_not_be_opened_is_tried_again() {
    let (_machine, _slot, open, space) = with_unflushed().await;
    open.stop_data().await.map_err(|(_, e)| e).expect("flushed");
    *open.live.missing.lock() = Some("no time".to_owned());
    let told = open.writable().err().expect("there is none");
    assert!(told.to_string().contains("no time") && told.cure().is_some(), "{told}");
    let bringing = tokio::spawn(bring_data_back(Arc::downgrade(&open)));
    bringing.await.expect("no panic");
    assert!(open.no_data().is_none());
    reads(&open, space, 7).await;
    // Of a pool that was closed meanwhile none comes back.
    open.end_data().await.expect("flushed");
    bring_data_back(Arc::downgrade(&open)).await;
    assert!(open.data().is_none());
}
