use std::time::Duration;

use disk::sim::{Fault, Machine, Rule, When};

use super::*;
use crate::format::tests::values::of_version;
use crate::format::{Feature, FeatureClass, Label};

#[tokio::test(start_paused = true)]
async fn a_second_importer_is_refused_and_told_who_holds_it() {
    let w = World::new(2);
    let pool = w.create().await;
    let other = |o: &mut OpenOptions| o.by = host("b");
    let held = w.open_with(&[0, 1], other).await.map(|_| ());
    assert!(matches!(&held, Err(OpenError::Held { by, .. }) if *by == host("a")), "{held:?}");
    pool.export().await.unwrap();
    assert_eq!(pool.rename("x").await, Err(CommitError::Suspended(Suspension::Exported)));
    let second = w.open_with(&[0, 1], other).await.unwrap().pool;
    assert_eq!(second.epoch(), 2);
    // The pool is taken by force, and by a process of the same machine after the holder has ended.
    let forced = w.open_with(&[0, 1], |o| o.force = true).await.unwrap().pool;
    assert_eq!(forced.epoch(), 3);
    let next = |process, is_running: fn(u32) -> bool| {
        move |o: &mut OpenOptions| {
            o.by.process = process;
            o.is_running = is_running;
        }
    };
    assert!(matches!(w.open_with(&[0, 1], next(8, |_| true)).await, Err(OpenError::Held { .. })));
    assert_eq!(w.open_with(&[0, 1], next(8, |_| false)).await.unwrap().pool.epoch(), 4);
}

/// Two machines with equal names are different machines.
#[tokio::test(start_paused = true)]
async fn two_machines_without_an_id_are_two() {
    let w = World::new(2);
    let nameless = |boot| {
        move |o: &mut OpenOptions| {
            (o.by.machine, o.by.boot, o.by.process) = ([0; 16], boot, 8);
            o.is_running = |_| false;
        }
    };
    let pool = w.create().await;
    drop(w.open_with(&[0, 1], |o| (o.by.machine, o.force) = ([0; 16], true)).await.unwrap());
    for boot in [[2; 16], [0; 16]] {
        let held = w.open_with(&[0, 1], nameless(boot)).await.map(|_| ());
        assert!(matches!(held, Err(OpenError::Held { .. })), "{held:?}");
    }
    w.open_with(&[0, 1], nameless([1; 16])).await.map(|_| ()).expect("the holder of the same boot has ended");
    drop(pool);
}

#[tokio::test(start_paused = true)]
async fn who_lost_the_pool_by_force_stops_writing() {
    // Each machine has its own handles: I/O that one machine's handle refuses is accepted by the other's.
    let env = Env::simulated(1);
    let machine = Machine::new(&env, 1);
    let arena = Arena::new(4 << 20).unwrap();
    let slots = [0, 1].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
    let disks = || slots.map(|s| machine.open(s).unwrap() as Arc<dyn Disk>);
    let first = Pool::create(&env, &arena, &disks().map(NewDisk::new), options()).await.unwrap();
    let force = OpenOptions { force: true, ..OpenOptions::new(host("b")) };
    let second = Pool::open(&env, &arena, &disks(), &force).await.unwrap().pool;
    let mut last = Ok(());
    for n in 0..200 {
        last = first.metadata().commit(vec![Op::RenamePool { name: format!("mine{n}") }]).await;
    }
    let lost = Err(CommitError::Suspended(Suspension::Claimed { by: host("b") }));
    assert_eq!(last, lost, "at the latest when it wants to write a checkpoint");
    drop((first, second));
}

/// Disks with fencing exclude the former owner as soon as the pool is taken by force. Later I/O of that owner has no
/// effect; its earlier commits are kept.
#[tokio::test(start_paused = true)]
async fn who_lost_the_pool_by_force_is_kept_out() {
    let w = World::new(2);
    let first = w.create().await;
    first.rename("lake").await.unwrap();
    let second = w.open_with(&[0, 1], |o| (o.by, o.force) = (host("b"), true)).await.unwrap().pool;
    assert_eq!(second.read(|s| s.name.clone()), "lake");
    let lost = first.rename("mine").await;
    assert_eq!(lost, Err(CommitError::Suspended(Suspension::Fenced { epoch: second.epoch() })));
    second.rename("pond").await.unwrap();
    assert!(second.suspended().is_none());
}

/// The former owner writes until it notices the claim, so a disk that was read early may lack records that other
/// disks have.
#[tokio::test(start_paused = true)]
async fn a_pool_is_taken_while_it_is_written() {
    let env = Env::simulated(1);
    let machine = Machine::new(&env, 1);
    let arena = Arena::new(4 << 20).unwrap();
    let slots = [0, 1, 2].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
    let disks = || slots.map(|s| machine.open(s).unwrap() as Arc<dyn Disk>);
    let first = Pool::create(&env, &arena, &disks().map(NewDisk::new), options()).await.unwrap();
    let journal = first.members().get(DiskNumber(0)).unwrap().areas.journal;
    let mut renamed = 0;
    let is_over = std::cell::Cell::new(false);
    let writes = async {
        while !is_over.get() && first.rename(&format!("mine{renamed}")).await.is_ok() {
            renamed += 1;
            env.sleep(Duration::from_millis(1)).await;
        }
    };
    let late = Rule::new(disk::Op::Read, When::From(0), Fault::Slow(Duration::from_millis(20)));
    let takes = async {
        env.sleep(Duration::from_millis(50)).await;
        machine.rule(slots[0], late.within(journal.offset..journal.end()));
        let force = OpenOptions { force: true, ..OpenOptions::new(host("b")) };
        let taken = Pool::open(&env, &arena, &disks(), &force).await;
        is_over.set(true);
        taken
    };
    let (second, ()) = tokio::join!(takes, writes);
    let second = second.map(|o| o.pool).unwrap_or_else(|e| panic!("{e}"));
    assert!(renamed > 50);
    assert_eq!(second.read(|s| s.name.clone()), format!("mine{}", renamed - 1));
    assert!(second.read(|s| s.disks.keys().all(|d| s.is_present(*d)) && s.voters.len() == 3));
}

#[tokio::test(start_paused = true)]
async fn of_two_that_open_at_once_one_at_most_does() {
    for seed in 0..20 {
        let env = Env::simulated(seed);
        let machine = Machine::new(&env, seed);
        let arena = Arena::new(4 << 20).unwrap();
        let slots = [0, 1, 2].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
        let disks = || slots.map(|s| machine.open(s).unwrap() as Arc<dyn Disk>);
        let new = disks().map(NewDisk::new);
        Pool::create(&env, &arena, &new, options()).await.unwrap().export().await.unwrap();
        slots.iter().for_each(|s| machine.shuffle(*s, Duration::from_millis(10)));
        let open = async |name: &str| {
            let options = OpenOptions::new(host(name));
            Pool::open(&env, &arena, &disks(), &options).await
        };
        let (a, b) = tokio::join!(open("a"), open("b"));
        assert!(!(a.is_ok() && b.is_ok()), "seed {seed}");
        let told = |r: &Result<Opened, OpenError>| {
            matches!(r, Ok(_) | Err(OpenError::Raced { .. } | OpenError::Held { .. }))
        };
        assert!(told(&a) && told(&b), "seed {seed}: {:?} {:?}", a.err(), b.err());
    }
}

/// A process that takes long to read the disks' metadata must not overwrite a claim that another process makes
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_made_while_the_metadata_was_read_is_seen() {
    let env = Env::simulated(1);
    let machine = Machine::new(&env, 1);
    let arena = Arena::new(4 << 20).unwrap();
    let slots = [0, 1].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
    let disks = || slots.map(|s| machine.open(s).unwrap() as Arc<dyn Disk>);
    let new = disks().map(NewDisk::new);
    let pool = Pool::create(&env, &arena, &new, options()).await.unwrap();
    let journal = pool.members().get(DiskNumber(0)).unwrap().areas.journal;
    pool.export().await.unwrap();
    let first = Rule::new(disk::Op::Read, When::Nth(0), Fault::Slow(Duration::from_secs(3)));
    machine.rule(slots[0], first.within(journal.offset..journal.end()));
    let open = async |name: &str, after| {
        env.sleep(Duration::from_millis(after)).await;
        Pool::open(&env, &arena, &disks(), &OpenOptions::new(host(name))).await
    };
    let (a, b) = tokio::join!(open("a", 0), open("b", 100));
    let b = b.unwrap().pool;
    let a = a.map(|_| ());
    assert!(matches!(&a, Err(OpenError::Raced { by }) if *by == host("b")), "{a:?}");
    b.rename("lake").await.unwrap();
    assert!(matches!(open("a", 0).await.map(|_| ()), Err(OpenError::Held { .. })));
}

#[tokio::test(start_paused = true)]
async fn pools_that_are_mixed_up_show() {
    let mut w = World::new(4);
    let two: Vec<_> = w.some(&[0, 1]).into_iter().map(NewDisk::new).collect();
    let a = Pool::create(&w.env, &w.arena, &two, options()).await.unwrap();
    let two: Vec<_> = w.some(&[2, 3]).into_iter().map(NewDisk::new).collect();
    let b = Pool::create(&w.env, &w.arena, &two, options()).await.unwrap();
    let refused = w.open(&[0, 1, 2, 3]).await.map(|_| ());
    assert_eq!(refused, Err(OpenError::SeveralPools(vec![(a.id(), "tank".into()), (b.id(), "tank".into())])));
    let opened = w.open_with(&[0, 1, 2, 3], |o| o.pool = Some(b.id())).await.unwrap().pool;
    assert_eq!((opened.id(), opened.members().iter().count()), (b.id(), 2));
    assert!(matches!(opened.return_disk(w.disk(0), false).await, Err(AdminError::Stranger { .. })));
    // The metadata of another pool's disk, copied onto a disk of this pool, is not accepted.
    let journal = a.members().get(DiskNumber(0)).unwrap().areas;
    let mut image = w.disks[0].image();
    image.copy_from(
        &w.disks[2].image(),
        journal.checkpoint_0.offset,
        journal.slabs.offset - journal.checkpoint_0.offset,
    );
    w.disks[0] = MemoryDisk::with_image(w.disks[0].info().clone(), image);
    assert!(matches!(w.open_with(&[0, 1], |_| {}).await, Err(OpenError::TooFewVoters { seen: 1, .. })));
    // A copy of a disk is present together with the disk.
    let copy = MemoryDisk::with_image(MemoryOptions::new("copy", 16 * MIB).info(), w.disks[3].image());
    w.disks[0] = copy;
    assert!(matches!(w.open(&[2, 3, 0]).await, Err(OpenError::Copied { disk: DiskNumber(1), .. })));
    let empty = World::new(1);
    assert!(matches!(empty.open(&[0]).await, Err(OpenError::NoPool { pool: None, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_torn_label_is_healed_and_without_one_the_disk_is_missing() {
    let mut w = World::new(3);
    let pool = w.create().await;
    let areas = pool.members().get(DiskNumber(0)).unwrap().areas;
    drop(pool);
    let tear = |d: &MemoryDisk, at: &[u64]| {
        let mut image = d.image();
        at.iter().for_each(|at| image.flip(at + 100, 3));
        MemoryDisk::with_image(d.info().clone(), image)
    };
    w.disks[0] = tear(&w.disks[0], &[areas.label_a.offset]);
    w.disks[1] = tear(&w.disks[1], &[areas.label_b.offset]);
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert!(opened.missing.is_empty());
    w.disks[0] = tear(&w.disks[0], &[areas.label_b.offset]);
    w.disks[1] = tear(&w.disks[1], &[areas.label_a.offset, areas.label_b.offset]);
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert_eq!(opened.missing, [DiskNumber(1)], "both were healed by the opening before");
}

#[tokio::test(start_paused = true)]
async fn a_read_only_import_writes_nothing() {
    let mut w = World::new(2);
    let pool = w.create().await;
    let space = make(&pool, mirror("m")).await;
    assert!(matches!(
        w.open_with(&[0, 1], |o| (o.by, o.read_only) = (host("b"), true)).await,
        Err(OpenError::Held { .. })
    ));
    drop(pool);
    w.power_cut();
    let before: Vec<_> = w.disks.iter().map(|d| d.image()).collect();
    let pool = w.open_with(&[0, 1], |o| o.read_only = true).await.unwrap().pool;
    assert!(pool.read(|s| s.spaces.contains_key(&space)));
    assert_eq!(pool.rename("x").await, Err(CommitError::ReadOnly));
    assert!(matches!(
        pool.add_disk(&NewDisk::new(World::new(3).disk(2))).await,
        Err(AdminError::Commit(CommitError::ReadOnly))
    ));
    assert_eq!(before, w.disks.iter().map(|d| d.image()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn features_of_a_newer_version_are_refused_by_name() {
    let w = World::new(1);
    let pool = w.create().await;
    let member = pool.members().get(DiskNumber(0)).cloned().unwrap();
    let label = |class, name: &str| {
        let mut label = pool.label(&member, 9).unwrap();
        label.features = vec![Feature { class, bit: 1, name: name.into() }];
        label
    };
    let write = async |label: &Label| labels::write(&pool.inner.io, &member.disk, label).await.unwrap();
    write(&label(FeatureClass::Incompatible, "parity journal")).await;
    let refused = w.open(&[0]).await.map(|_| ()).unwrap_err();
    assert!(
        refused.to_string().contains("uses parity journal, which this version does not support"),
        "{refused}"
    );
    write(&label(FeatureClass::ReadOnly, "quotas")).await;
    assert!(matches!(w.open(&[0]).await, Err(OpenError::ReadOnlyFeatures { .. })));
    assert!(w.open_with(&[0], |o| o.read_only = true).await.is_ok());
    write(&label(FeatureClass::Compatible, "colours")).await;
    assert!(w.open(&[0]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn disks_that_will_not_do() {
    let w = World::new(1);
    let refuse = async |change: fn(&mut MemoryOptions)| {
        let mut o = MemoryOptions::new("odd", 16 * MIB);
        change(&mut o);
        let disks = [NewDisk::new(w.disk(0)), NewDisk::new(MemoryDisk::new(&o))];
        match Pool::create(&w.env, &w.arena, &disks, options()).await {
            Err(CreateError::Disk { why, .. }) => why,
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    let torn = refuse(|o| (o.logical_block, o.atomic_write) = (512, 512)).await;
    assert_eq!(
        torn.to_string(),
        "a power cut could tear a 4 KiB write: the disk writes only 512 bytes atomically"
    );
    assert!(matches!(refuse(|o| o.size = 8 * MIB).await, Unsuitable::Small { .. }));
    assert_eq!(refuse(|o| o.serial = "disk0".into()).await, Unsuitable::Twice);
    assert_eq!(refuse(|o| o.logical_block = 8192).await, Unsuitable::Blocks(8192));
    assert_eq!(w.disks[0].image(), disk::Image::new(), "nothing was written");
    let one = [NewDisk::new(w.disk(0))];
    let bad = Pool::create(&w.env, &w.arena, &one, CreateOptions { slab_bytes: Some(3 * MIB), ..options() });
    assert_eq!(bad.await.map(|_| ()), Err(CreateError::SlabBytes(3 * MIB)));
    assert_eq!(Pool::create(&w.env, &w.arena, &[], options()).await.map(|_| ()), Err(CreateError::NoDisks));
}

/// A disk that may belong to a pool is not erased, even if this version cannot read its label.
#[tokio::test(start_paused = true)]
async fn a_label_that_cannot_be_read_is_not_written_over() {
    let mut w = World::new(2);
    let pool = w.create().await;
    let member = pool.members().get(DiskNumber(0)).cloned().unwrap();
    let label = pool.label(&member, 9).unwrap();
    let newer = of_version(&label, 2);
    for at in [label.areas.label_a, label.areas.label_b] {
        pool.inner.io.write_durably(&member.disk, at.offset, newer.clone()).await.unwrap();
    }
    let other = pool.members().get(DiskNumber(1)).cloned().unwrap();
    drop(pool);
    let tear = |d: &MemoryDisk, at: &[u64]| {
        let mut image = d.image();
        at.iter().for_each(|at| image.flip(at + 100, 3));
        MemoryDisk::with_image(d.info().clone(), image)
    };
    let areas = other.areas;
    w.disks[1] = tear(&w.disks[1], &[areas.label_a.offset, areas.label_b.offset]);
    let mut halved = w.disks[1].image();
    halved.copy_from(&disk::Image::new(), areas.label_b.offset, areas.label_b.length);
    let halved = MemoryDisk::with_image(w.disks[1].info().clone(), halved);
    let images: Vec<_> = w.disks.iter().map(|d| d.image()).collect();
    let make = async |disk: Arc<dyn Disk>, overwrite| {
        let new = [NewDisk { overwrite, ..NewDisk::new(disk) }];
        Pool::create(&w.env, &w.arena, &new, options()).await.map(|_| ())
    };
    for (disk, says) in [
        (w.disk(0), "format version 2; this program knows version 1 only"),
        (w.disk(1), "checksum does not match"),
        (halved.clone(), "checksum does not match"),
    ] {
        let refused = make(disk, false).await.unwrap_err();
        assert!(matches!(refused, CreateError::Disk { why: Unsuitable::Label(_), .. }), "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert_eq!(images, w.disks.iter().map(|d| d.image()).collect::<Vec<_>>());
    make(w.disk(0), true).await.unwrap();
    make(w.disk(1), true).await.unwrap();
}
