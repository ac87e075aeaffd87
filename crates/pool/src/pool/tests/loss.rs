//! Disks that are missing, stale, or were used elsewhere.

use std::time::Duration;

use disk::sim::{Fault, Machine, Rule, When};

use super::*;
use crate::metadata::MembershipToEnd;
use crate::{Absence, Presence};

async fn mirrored(w: &World) -> (Pool, SpaceId) {
    let pool = w.create().await;
    let space = make(&pool, mirror("m")).await;
    allocate(&pool, space, [0, 1], 1).await;
    (pool, space)
}

#[tokio::test(start_paused = true)]
async fn half_of_a_mirror_may_be_the_older_half() {
    let mut w = World::new(2);
    let (pool, space) = mirrored(&w).await;
    drop(pool);
    w.power_cut();
    let refused = w.open(&[0]).await.map(|_| ()).unwrap_err();
    let OpenError::TooFewVoters { seen: 1, voters: 2, needed: 2, missing, stale } = &refused else {
        panic!("{refused}")
    };
    assert_eq!((missing[0].0, stale.as_slice()), (DiskNumber(1), &["m".to_owned()][..]));
    let opened = w.open_with(&[0], |o| o.accept_loss = true).await.unwrap();
    assert_eq!((opened.missing, opened.may_be_stale), (vec![DiskNumber(1)], vec!["m".to_owned()]));
    assert_eq!(stale_regions(&opened.pool, space), [0, u64::MAX], "what the other has is given up");
    opened.pool.return_disk(w.disk(1), false).await.unwrap();
    assert_eq!(stale_regions(&opened.pool, space), [0, u64::MAX]);
    assert_eq!(opened.pool.read(|s| s.voters.len()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_disk_dropped_while_the_pool_ran_lets_it_open_without() {
    let mut w = World::new(2);
    let (pool, _) = mirrored(&w).await;
    w.disks[1].power_cut(PowerCut::LoseAll);
    pool.rename("lake").await.unwrap();
    drop(pool);
    w.power_cut();
    let opened = w.open(&[0]).await.unwrap();
    assert!(opened.missing.is_empty(), "it was known to be away");
    // The dropped disk does not open the pool alone, and its metadata is ignored if the other disk is present.
    drop(opened);
    assert!(matches!(w.open(&[1]).await, Err(OpenError::TooFewVoters { .. })));
    let opened = w.open(&[0, 1]).await.unwrap();
    opened.pool.read(|s| {
        assert_eq!(s.name, "lake");
        assert_eq!(s.disks[&DiskNumber(1)].presence, Presence::Present, "it had only been away");
        assert_eq!(s.voters.len(), 2);
    });
}

#[tokio::test(start_paused = true)]
async fn halves_that_were_used_without_each_other_are_not_joined_silently() {
    let mut w = World::new(2);
    let (pool, space) = mirrored(&w).await;
    drop(pool);
    w.power_cut();
    for (disk, name) in [(0, "left"), (1, "right")] {
        let pool = w.open_with(&[disk], |o| o.accept_loss = true).await.unwrap().pool;
        assert_eq!(pool.epoch(), 2, "neither knows of the other");
        pool.rename(name).await.unwrap();
    }
    // Two openings have the same epoch number; the random numbers distinguish them.
    let refused = w.open(&[0, 1]).await.map(|_| ()).unwrap_err();
    let OpenError::Diverged(disks) = refused else { panic!("{refused}") };
    assert_eq!(disks.len(), 1);
    let opened = w.open_with(&[0, 1], |o| o.accept_loss = true).await.unwrap();
    assert_eq!(opened.stale, disks);
    let other = usize::from(disks[0].0);
    assert_eq!(stale_regions(&opened.pool, space)[other], u64::MAX);
    assert_eq!(stale_regions(&opened.pool, space)[1 - other], 0);
    assert_eq!(opened.pool.read(|s| s.name.clone()), ["right", "left"][other]);
    drop(opened);
    w.power_cut();
    w.open(&[0, 1]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_comes_back_from_the_other_half_is_old() {
    let mut w = World::new(2);
    let (pool, space) = mirrored(&w).await;
    drop(pool);
    w.power_cut();
    // Disk 1 is opened three times alone, so its epochs are higher.
    for _ in 0..3 {
        w.open_with(&[1], |o| o.accept_loss = true).await.unwrap();
    }
    let pool = w.open_with(&[0], |o| o.accept_loss = true).await.unwrap().pool;
    pool.rename("kept").await.unwrap();
    let refused = pool.return_disk(w.disk(1), false).await;
    assert_eq!(refused, Err(AdminError::Diverged(DiskNumber(1))), "what was written there is nowhere else");
    pool.return_disk(w.disk(1), true).await.unwrap();
    assert_eq!(stale_regions(&pool, space), [0, u64::MAX]);
    drop(pool);
    w.power_cut();
    let opened = w.open(&[0, 1]).await.unwrap();
    assert_eq!(opened.pool.read(|s| s.name.clone()), "kept", "its higher epochs have no say any more");
}

/// Disk 1 continues alone in the opening that both disks have, so without a new epoch: its records prove that.
#[tokio::test(start_paused = true)]
async fn what_a_disk_alone_went_on_with_is_not_written_over_unasked() {
    for open in [false, true] {
        let mut w = World::new(2);
        let (pool, space) = mirrored(&w).await;
        pool.take_offline(DiskNumber(0)).await.unwrap();
        pool.rename("went on").await.unwrap();
        drop(pool);
        w.power_cut();
        let pool = w.open_with(&[0], |o| o.accept_loss = true).await.unwrap().pool;
        if open {
            let refused = pool.return_disk(w.disk(1), false).await;
            assert_eq!(refused, Err(AdminError::Diverged(DiskNumber(1))));
            pool.return_disk(w.disk(1), true).await.unwrap();
        } else {
            drop(pool);
            w.power_cut();
            let refused = w.open(&[0, 1]).await.map(|_| ()).unwrap_err();
            let OpenError::Diverged(disks) = refused else { panic!("{refused}") };
            assert_eq!(disks, [DiskNumber(1)]);
            // The disk's data is not lost: opened alone, it has its former state.
            let image = w.disks[1].image();
            let alone = w.open(&[1]).await.unwrap().pool;
            assert_eq!(alone.read(|s| s.name.clone()), "went on");
            drop(alone);
            w.disks[1] = MemoryDisk::with_image(w.disks[1].info().clone(), image);
            let opened = w.open_with(&[0, 1], |o| o.accept_loss = true).await.unwrap();
            assert_eq!(opened.stale, disks);
            assert_eq!(stale_regions(&opened.pool, space), [0, u64::MAX]);
            drop(opened);
            w.power_cut();
            w.open(&[0, 1]).await.unwrap();
        }
    }
    // A disk that did not continue alone returns without confirmation.
    for open in [false, true] {
        let mut w = World::new(2);
        let (pool, _) = mirrored(&w).await;
        drop(pool);
        w.power_cut();
        let pool = w.open_with(&[0], |o| o.accept_loss = true).await.unwrap().pool;
        pool.rename("went on").await.unwrap();
        if open {
            pool.return_disk(w.disk(1), false).await.unwrap();
        } else {
            drop(pool);
            w.power_cut();
            assert_eq!(w.open(&[0, 1]).await.unwrap().stale, []);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_image_of_a_disk_has_missed_everything() {
    let mut w = World::new(3);
    let (pool, space) = mirrored(&w).await;
    let old = w.disks[1].image();
    drop(pool);
    let pool = w.open(&[0, 1, 2]).await.unwrap().pool;
    pool.rename("newer").await.unwrap();
    drop(pool);
    w.disks[1] = MemoryDisk::with_image(w.disks[1].info().clone(), old.clone());
    // The disk's vote does not count, so only one of the three voters is seen.
    assert!(matches!(w.open(&[1, 2]).await, Err(OpenError::TooFewVoters { seen: 1, .. })));
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert_eq!(opened.stale, [DiskNumber(1)]);
    assert_eq!(stale_regions(&opened.pool, space), [0, u64::MAX]);
    assert_eq!(opened.pool.read(|s| s.name.clone()), "newer");
    drop(opened);
    w.open(&[0, 1, 2]).await.unwrap();

    // The original disk returns in place of the image, which was written to meanwhile.
    let mut w = World::new(3);
    let (pool, space) = mirrored(&w).await;
    let image = w.disks[1].image();
    drop(pool);
    for _ in 0..3 {
        drop(w.open(&[0, 1, 2]).await.unwrap());
    }
    let original = w.disks[1].image();
    w.disks[1] = MemoryDisk::with_image(w.disks[1].info().clone(), image);
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert_eq!(opened.stale, [DiskNumber(1)]);
    catches_up(&opened.pool, space, u64::MAX).await;
    drop(opened);
    w.disks[1] = MemoryDisk::with_image(w.disks[1].info().clone(), original);
    assert_eq!(w.open(&[0, 1, 2]).await.unwrap().stale, [DiskNumber(1)]);

    // If it has the only copy of some data, it stays absent until the loss is accepted.
    let mut w = World::new(3);
    let pool = w.create().await;
    let simple = SpaceRecord { resiliency: Resiliency::Simple, ..mirror("s") };
    let space = make(&pool, simple).await;
    allocate(&pool, space, [1], 0).await;
    let old = w.disks[1].image();
    drop(pool);
    drop(w.open(&[0, 1, 2]).await.unwrap());
    w.disks[1] = MemoryDisk::with_image(w.disks[1].info().clone(), old);
    let pool = w.open(&[0, 1, 2]).await.unwrap().pool;
    let presence = |p: &Pool| p.read(|s| s.disks[&DiskNumber(1)].presence);
    assert_eq!(presence(&pool), Presence::Absent(Absence::Stale));
    assert_eq!(pool.return_disk(w.disk(1), false).await, Err(AdminError::Stale(DiskNumber(1))));
    pool.return_disk(w.disk(1), true).await.unwrap();
    assert_eq!(presence(&pool), Presence::Present);
}

#[tokio::test(start_paused = true)]
async fn a_voter_that_lost_records_has_no_say_and_old_data() {
    let mut w = World::new(3);
    let (pool, space) = mirrored(&w).await;
    let journal = pool.members().get(DiskNumber(1)).unwrap().areas.journal;
    let old = w.disks[1].image();
    for n in 0..5 {
        pool.rename(&format!("n{n}")).await.unwrap();
    }
    drop(pool);
    // The disk's journal has its former contents; its labels are current.
    let mut image = w.disks[1].image();
    image.copy_from(&old, journal.offset, journal.length);
    w.disks[1] = MemoryDisk::with_image(w.disks[1].info().clone(), image);
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert_eq!(opened.stale, [DiskNumber(1)]);
    assert_eq!(stale_regions(&opened.pool, space), [0, u64::MAX]);
}

/// The voter's older checkpoint is of the previous opening: it is valid, but stale.
#[tokio::test(start_paused = true)]
async fn a_voter_whose_newest_checkpoint_rots_has_no_say() {
    let mut w = World::new(2);
    let (pool, _) = mirrored(&w).await;
    drop(pool);
    let pool = w.open(&[0, 1]).await.unwrap().pool;
    let areas = pool.members().get(DiskNumber(0)).unwrap().areas;
    w.disks[1].power_cut(PowerCut::LoseAll);
    make(&pool, mirror("acknowledged")).await;
    drop(pool);
    w.power_cut();
    let whole = w.disks[0].image();
    let mut opens = Vec::new();
    for checkpoint in areas.checkpoints() {
        let mut image = whole.clone();
        image.flip(checkpoint.offset + 100, 0);
        w.disks[0] = MemoryDisk::with_image(w.disks[0].info().clone(), image);
        let opened = w.open_with(&[0, 1], |o| o.read_only = true).await;
        opens.push(opened.map(|o| o.pool.read(|s| s.spaces.len())));
    }
    opens.sort_by_key(Result::is_ok);
    assert!(matches!(&opens[..], [Err(OpenError::TooFewVoters { seen: 1, .. }), Ok(2)]), "{opens:?}");
}

/// An opening without two of five voters is interrupted. The voters with its record, and those without it, must not
/// both be able to open the pool.
#[tokio::test(start_paused = true)]
async fn an_opening_that_drops_two_voters_and_fails_divides_nobody() {
    let env = Env::simulated(1);
    let machine = Machine::new(&env, 1);
    let arena = Arena::new(4 << 20).unwrap();
    let slots = [0, 1, 2, 3, 4].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
    let open = |which: &[usize]| {
        let disks: Vec<_> = which.iter().map(|n| machine.open(slots[*n]).unwrap() as Arc<dyn Disk>).collect();
        let (env, arena) = (env.clone(), arena.clone());
        async move { Pool::open(&env, &arena, &disks, &OpenOptions::new(host("a"))).await }
    };
    let new = slots.map(|s| NewDisk::new(machine.open(s).unwrap() as Arc<dyn Disk>));
    let pool = Pool::create(&env, &arena, &new, options()).await.unwrap();
    let areas = pool.members().get(DiskNumber(2)).unwrap().areas;
    drop(pool);
    for checkpoint in areas.checkpoints() {
        let rule = Rule::new(disk::Op::Write, When::From(0), Fault::Refused(5));
        machine.rule(slots[2], rule.within(checkpoint.offset..checkpoint.end()));
    }
    let cut_off = open(&[0, 1, 2]).await.map(|_| ()).unwrap_err();
    assert!(matches!(cut_off, OpenError::Commit(_)), "{cut_off}");
    machine.no_rules(slots[2]);
    let pool = open(&[2, 3, 4]).await.unwrap().pool;
    pool.rename("lake").await.unwrap();
    drop(pool);
    let refused = open(&[0, 1]).await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::TooFewVoters { seen: 2, .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_lone_disk_that_lost_its_label_opens_when_that_is_accepted() {
    let mut w = World::new(1);
    let pool = w.create().await;
    let areas = pool.members().get(DiskNumber(0)).unwrap().areas;
    drop(pool);
    let old = w.disks[0].image();
    drop(w.open(&[0]).await.unwrap());
    let mut image = w.disks[0].image();
    for at in [areas.label_a, areas.label_b] {
        image.copy_from(&old, at.offset, at.length);
    }
    w.disks[0] = MemoryDisk::with_image(w.disks[0].info().clone(), image);
    assert!(matches!(w.open(&[0]).await, Err(OpenError::TooFewVoters { seen: 0, .. })));
    let opened = w.open_with(&[0], |o| o.accept_loss = true).await.unwrap();
    assert_eq!(opened.stale, [DiskNumber(0)]);
    drop(opened);
    assert!(w.open(&[0]).await.unwrap().stale.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_journal_with_a_gap_has_no_say_though_its_disk_is_well() {
    let mut w = World::new(3);
    let (pool, space) = mirrored(&w).await;
    let areas = pool.members().get(DiskNumber(1)).unwrap().areas;
    for n in 0..9 {
        pool.rename(&format!("n{n}")).await.unwrap();
    }
    drop(pool);
    let mut image = w.disks[1].image();
    image.flip(areas.journal.offset + 5 * 4096 + 70, 0);
    w.disks[1] = MemoryDisk::with_image(w.disks[1].info().clone(), image);
    assert!(matches!(w.open(&[1, 2]).await, Err(OpenError::TooFewVoters { seen: 1, .. })));
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert!(opened.stale.is_empty() && opened.missing.is_empty());
    assert_eq!(stale_regions(&opened.pool, space), [0, 0]);
    assert_eq!(opened.pool.read(|s| s.voters.len()), 3, "it votes again, with a new checkpoint");
    drop(opened);
    assert_eq!(w.open(&[1, 2]).await.unwrap().pool.read(|s| s.name.clone()), "n8");
}

/// The metadata of a disk with the only current copy of some data cannot be written: the disk is not removed, but is
/// no voter any more.
#[tokio::test(start_paused = true)]
async fn a_voter_with_an_only_copy_stays_without_a_vote() {
    let env = Env::simulated(1);
    let machine = Machine::new(&env, 1);
    let arena = Arena::new(4 << 20).unwrap();
    let slots = [0, 1, 2].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
    let disks = || slots.map(|s| machine.open(s).unwrap() as Arc<dyn Disk>);
    let new = disks().map(NewDisk::new);
    let pool = Pool::create(&env, &arena, &new, options()).await.unwrap();
    let space = make(&pool, mirror("m")).await;
    allocate(&pool, space, [0, 1], 1).await;
    mark_stale(&pool, space, 0b1).await;
    let areas = pool.members().get(DiskNumber(0)).unwrap().areas;
    let fails = |slot: usize| {
        let rule = Rule::new(disk::Op::Write, When::From(0), Fault::Error);
        machine.rule(slots[slot], rule.within(areas.journal.offset..areas.journal.end()));
    };
    fails(0);
    pool.rename("lake").await.unwrap();
    pool.read(|s| {
        assert_eq!(s.disks[&DiskNumber(0)].presence, Presence::Present);
        assert_eq!(s.voters, [1, 2].map(DiskNumber).into());
    });
    assert!(pool.members().get(DiskNumber(0)).is_some(), "it is used for its data");
    // A disk whose data the other disks have is removed.
    fails(2);
    pool.rename("pond").await.unwrap();
    assert!(!pool.read(|s| s.is_present(DiskNumber(2))));
    // The disk becomes a voter again when it returns.
    machine.no_rules(slots[0]);
    catches_up(&pool, space, 0b1).await;
    pool.disk_failed(DiskNumber(0), Absence::ByCommand).await.unwrap();
    pool.return_disk(machine.open(slots[0]).unwrap(), false).await.unwrap();
    assert_eq!(pool.read(|s| s.voters.clone()), [0, 1].map(DiskNumber).into());
}

/// A disk is removed while a voter fails: neither change undoes the other.
#[tokio::test(start_paused = true)]
async fn a_dropped_voter_stays_dropped() {
    let env = Env::simulated(1);
    let machine = Machine::new(&env, 1);
    let arena = Arena::new(4 << 20).unwrap();
    let slots = [0, 1, 2, 3].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
    let new = slots.map(|s| NewDisk::new(machine.open(s).unwrap()));
    let pool = Pool::create(&env, &arena, &new, options()).await.unwrap();
    let space = make(&pool, mirror("m")).await;
    // Disk 0 has the only copy of some data: when it fails it stays, without a vote.
    allocate(&pool, space, [0, 1], 1).await;
    mark_stale(&pool, space, 0b1).await;
    let journal = pool.members().get(DiskNumber(0)).unwrap().areas.journal;
    let rule = |what| Rule::new(disk::Op::Write, When::From(0), what).within(journal.offset..journal.end());
    machine.rule(slots[0], rule(Fault::Error));
    machine.rule(slots[1], rule(Fault::Slow(Duration::from_millis(200))));
    let remove = async {
        env.sleep(Duration::from_millis(100)).await;
        assert_eq!(pool.read(|s| s.voters.len()), 4, "the record that finds out is on its way");
        pool.remove_disk(DiskNumber(3)).await
    };
    // Does not call `rename`, because administrative changes are serialised.
    let rename = pool.metadata().commit(vec![Op::RenamePool { name: "lake".into() }]);
    let (renamed, removed) = tokio::join!(rename, remove);
    assert_eq!((renamed, removed), (Ok(()), Ok(())));
    assert_eq!(pool.read(|s| s.voters.clone()), [1, 2].map(DiskNumber).into());
    assert!(pool.members().get(DiskNumber(0)).is_some());
}

/// The label of a disk with an only copy cannot be written: the disk stays in service with its old label.
#[tokio::test(start_paused = true)]
async fn a_disk_with_an_only_copy_stays_with_its_old_label() {
    for (renames, both) in [(true, true), (true, false), (false, true), (false, false)] {
        let env = Env::simulated(1);
        let machine = Machine::new(&env, 1);
        let arena = Arena::new(4 << 20).unwrap();
        let slots = [0, 1, 2].map(|n| machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
        let disks = || slots.map(|s| machine.open(s).unwrap() as Arc<dyn Disk>);
        let open = async || Pool::open(&env, &arena, &disks(), &OpenOptions::new(host("a"))).await.unwrap();
        let pool = Pool::create(&env, &arena, &disks().map(NewDisk::new), options()).await.unwrap();
        let space = make(&pool, SpaceRecord { resiliency: Resiliency::Simple, ..mirror("s") }).await;
        allocate(&pool, space, [0], 1).await;
        let areas = pool.members().get(DiskNumber(0)).unwrap().areas;
        let fails = |slot: usize| {
            let label = if both { areas.label_a } else { areas.label_b };
            let rule = Rule::new(disk::Op::Write, When::From(0), Fault::Error);
            machine.rule(slots[slot], rule.within(label.offset..label.end()));
        };
        let well = |pool: &Pool| {
            assert!(
                pool.read(|s| s.is_present(DiskNumber(0))) && pool.members().get(DiskNumber(0)).is_some()
            );
            assert_eq!(stale_regions(pool, space), [0], "its data counts");
        };
        fails(0);
        let pool = if renames { pool } else { open().await.pool };
        pool.rename("lake").await.unwrap();
        well(&pool);
        // A disk whose data the other disks have is removed.
        fails(2);
        pool.rename("pond").await.unwrap();
        assert!(!pool.read(|s| s.is_present(DiskNumber(2))));
        assert_eq!(pool.unlabelled().into_keys().collect::<Vec<_>>(), [DiskNumber(0)], "it is reported");
        drop(pool);
        // The disk's label is the one recorded in the metadata, so the disk is not stale, whether it can be written
        // or not.
        for _ in 0..2 {
            let opened = open().await;
            assert!(opened.stale.is_empty() && opened.missing.is_empty());
            well(&opened.pool);
            assert_eq!(opened.pool.unlabelled().len(), 1);
        }
        machine.no_rules(slots[0]);
        let opened = open().await;
        assert!(opened.stale.is_empty() && opened.pool.unlabelled().is_empty());
        well(&opened.pool);
        opened.pool.rename("sea").await.unwrap();
        assert_eq!(opened.pool.scrub_metadata().await.unwrap().len(), 0, "a new label");
    }
}

/// A failure may be detected, or a removal requested, with a state from before another disk's removal.
#[tokio::test(start_paused = true)]
async fn the_last_copy_stays_whatever_failed() {
    let w = World::new(3);
    let (pool, _) = mirrored(&w).await;
    pool.take_offline(DiskNumber(1)).await.unwrap();
    for why in [Absence::WriteFailed, Absence::FlushFailed, Absence::Gone, Absence::ByCommand] {
        let member = pool.members().get(DiskNumber(0)).cloned().unwrap();
        let failed =
            pool.metadata().remove_from_service(DiskNumber(0), MembershipToEnd::OfMember(member), why).await;
        assert_eq!(failed, Err(CommitError::Needed(DiskNumber(0))));
        assert!(pool.read(|s| s.is_present(DiskNumber(0))));
    }
    assert_eq!(pool.take_offline(DiskNumber(0)).await, Err(CommitError::Needed(DiskNumber(0))));
    pool.disk_failed(DiskNumber(2), Absence::WriteFailed).await.unwrap();
    assert!(!pool.read(|s| s.is_present(DiskNumber(2))));
}
