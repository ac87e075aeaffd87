use disk::Media;

use super::*;
use crate::metadata::Member;
use crate::{Absence, DiskRecord, InvalidOp, Presence, Usage};

#[tokio::test(start_paused = true)]
async fn what_was_committed_is_there_after_a_power_cut() {
    let mut w = World::new(3);
    let pool = w.create().await;
    let space = make(&pool, mirror("m")).await;
    allocate(&pool, space, [0, 2], 1).await;
    let before = pool.read(State::clone);
    assert_eq!(before.voters.len(), 3);
    drop(pool);
    w.power_cut();
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert!(opened.missing.is_empty() && opened.stale.is_empty());
    opened.pool.read(|s| {
        assert_eq!((s.spaces[&space].rows.clone(), s.epoch()), (before.spaces[&space].rows.clone(), 2));
        assert_eq!(s.voters, before.voters);
    });
}

#[tokio::test(start_paused = true)]
async fn many_commits_go_round_the_ring() {
    let mut w = World::new(2);
    let pool = w.create().await;
    let space = make(&pool, mirror("m")).await;
    for n in 0..300 {
        pool.rename_space(space, &format!("m{n}")).await.unwrap();
    }
    drop(pool);
    w.power_cut();
    let pool = w.open(&[0, 1]).await.unwrap().pool;
    assert_eq!(pool.read(|s| s.spaces[&space].name.clone()), "m299");
    // Refused operations change nothing, alone or with others.
    let renamed = Op::Space { space, op: SpaceOp::Rename { name: "x".into() } };
    let taken = vec![renamed, Op::Space { space: SpaceId(9), op: SpaceOp::Destroy }];
    let refused = pool.metadata().commit(taken).await;
    assert_eq!(refused, Err(CommitError::Invalid(InvalidOp::NoSpace(SpaceId(9)))));
    assert_eq!(pool.read(|s| s.spaces[&space].name.clone()), "m299");
    pool.rename_space(space, "y").await.unwrap();
    assert_eq!(pool.read(|s| s.spaces[&space].name.clone()), "y");
}

#[tokio::test(start_paused = true)]
async fn voters_go_apart_when_somebody_says_where_disks_stand() {
    let mut w = World::new(9);
    let pool = w.create().await;
    pool.read(|s| assert_eq!(s.voters, (0..5).map(DiskNumber).collect()));
    for n in 0..9 {
        let enclosure = ["left", "middle", "right"][n / 3].to_owned();
        let domains = crate::FaultDomains { enclosure, ..Default::default() };
        pool.set_domains(DiskNumber(n as u16), domains).await.unwrap();
    }
    let most = |s: &State| (0..3).map(|e| s.voters.iter().filter(|v| v.0 / 3 == e).count()).max();
    pool.read(|s| assert_eq!((s.voters.len(), most(s)), (5, Some(2)), "{:?}", s.voters));
    let space = make(&pool, mirror("m")).await;
    drop(pool);
    w.power_cut();
    // If any enclosure is lost, the others have the newest metadata. The enclosure with the first voters cannot open
    // the pool alone.
    assert!(w.open(&[0, 1, 2]).await.is_err());
    let opened = w.open(&[3, 4, 5, 6, 7, 8]).await.unwrap();
    assert!(opened.pool.read(|s| s.spaces.contains_key(&space)));
}

#[tokio::test(start_paused = true)]
async fn a_voter_that_fails_is_dropped_and_may_return() {
    let mut w = World::new(3);
    let pool = w.create().await;
    let space = make(&pool, mirror("m")).await;
    allocate(&pool, space, [0, 2], 1).await;
    w.disks[2].power_cut(PowerCut::LoseAll);
    pool.rename("lake").await.unwrap();
    pool.read(|s| {
        assert_eq!(s.voters, [DiskNumber(0), DiskNumber(1)].into());
        assert_eq!(s.disks[&DiskNumber(2)].presence, Presence::Absent(Absence::Gone));
    });
    assert_eq!(stale_regions(&pool, space), [0, u64::MAX], "until its owner answers, all counts as missing");
    assert!(pool.members().get(DiskNumber(2)).is_none());
    // Two voters remain: both are needed, and the dropped one has no vote.
    w.disks[2] = w.disks[2].restart();
    drop(pool);
    w.power_cut();
    assert!(matches!(
        w.open(&[0, 2]).await,
        Err(OpenError::TooFewVoters { seen: 1, voters: 2, needed: 2, .. })
    ));
    let pool = w.open(&[0, 1]).await.unwrap().pool;
    let back = pool.return_disk(w.disk(2), false).await.unwrap();
    assert_eq!(back, DiskNumber(2));
    pool.read(|s| {
        assert_eq!(s.voters.len(), 3);
        assert_eq!(s.name, "lake");
    });
    assert_eq!(stale_regions(&pool, space), [0, u64::MAX], "still without an answer");
    assert_eq!(pool.return_disk(w.disk(2), false).await, Err(AdminError::Present(back)));
}

/// A job that waits for an absent disk reads the state when it is woken.
#[tokio::test(start_paused = true)]
async fn tasks_are_woken_when_a_returned_disk_is_present() {
    let mut w = World::new(3);
    let pool = w.create().await;
    w.disks[2].power_cut(PowerCut::LoseAll);
    pool.rename("lake").await.unwrap();
    w.disks[2] = w.disks[2].restart();
    let changes = || pool.changes().get();
    let before = changes();
    pool.return_disk(w.disk(2), false).await.unwrap();
    assert_eq!(changes(), before + 2, "once for the new member, and once when the state has it as present");
}

#[tokio::test(start_paused = true)]
async fn when_too_few_are_left_the_pool_says_so_and_acknowledges_nothing() {
    let w = World::new(3);
    let pool = w.create().await;
    w.disks[1].power_cut(PowerCut::LoseAll);
    w.disks[2].power_cut(PowerCut::LoseAll);
    let result = pool.set_usage(DiskNumber(0), Usage::HotSpare).await;
    assert!(
        matches!(&result, Err(CommitError::Suspended(Suspension::TooFewVoters { left: 1, needed: 2, failed })) if failed.len() == 2),
        "{result:?}"
    );
    assert_eq!(pool.read(|s| s.disks[&DiskNumber(0)].usage), Usage::AutoSelect);
    assert!(pool.set_usage(DiskNumber(0), Usage::HotSpare).await.is_err());
    assert!(pool.suspended().is_some());
}

#[tokio::test(start_paused = true)]
async fn disks_are_added_and_removed() {
    let mut w = World::new(3);
    let disks: Vec<_> = w.some(&[0, 1]).into_iter().map(NewDisk::new).collect();
    let pool = Pool::create(&w.env, &w.arena, &disks, options()).await.unwrap();
    assert!(matches!(
        pool.add_disk(&NewDisk::new(w.disk(1))).await,
        Err(AdminError::Unsuitable(Unsuitable::InPool { .. }))
    ));
    let number = pool.add_disk(&NewDisk::new(w.disk(2))).await.unwrap();
    assert_eq!((number, pool.read(|s| s.voters.len())), (DiskNumber(2), 3));
    let space = make(&pool, mirror("m")).await;
    allocate(&pool, space, [0, 1], 1).await;
    let in_use = AdminError::Commit(CommitError::Invalid(InvalidOp::DiskInUse(DiskNumber(0))));
    assert_eq!(pool.remove_disk(DiskNumber(0)).await, Err(in_use));
    pool.remove_disk(number).await.unwrap();
    assert!(pool.members().get(number).is_none());
    drop(pool);
    w.power_cut();
    let found = scan(&w.env, &w.arena, &w.all()).await;
    assert_eq!(found.iter().filter(|f| f.label.is_ok()).count(), 2, "the removed disk has no label");
    let pool = w.open(&[0, 1, 2]).await.unwrap().pool;
    let number = pool.add_disk(&NewDisk::new(w.disk(2))).await.unwrap();
    assert_eq!(number, DiskNumber(3), "numbers are not used again");
}

/// An addition ended before its record: the disk's label has a number that the next added disk gets.
#[tokio::test(start_paused = true)]
async fn an_addition_that_was_cut_off_is_in_nobodys_way() {
    let mut w = World::new(4);
    let disks: Vec<_> = w.some(&[0, 1]).into_iter().map(NewDisk::new).collect();
    let pool = Pool::create(&w.env, &w.arena, &disks, options()).await.unwrap();
    // Does everything that an addition does before its record.
    let (new, io) = (NewDisk::new(w.disk(2)), &pool.inner.io);
    let areas = create::suitable(io, &new, pool.read(|s| s.slab_bytes)).await.unwrap();
    let record = create::describe(&w.env, &new, &areas);
    let member = Member { number: DiskNumber(2), id: record.id, disk: w.disk(2), areas };
    labels::wipe(io, &member.disk, &areas).await.unwrap();
    let label = pool.label_of(&member, &record, "tank".into(), record.label_sequence);
    labels::write(io, &member.disk, &label).await.unwrap();
    assert_eq!(pool.add_disk(&NewDisk::new(w.disk(3))).await, Ok(DiskNumber(2)));
    drop(pool);
    w.power_cut();
    for which in [[0, 1, 2, 3], [0, 1, 3, 2]] {
        let opened = w.open(&which).await.unwrap();
        assert!(opened.missing.is_empty());
        let used = opened.pool.members().get(DiskNumber(2)).unwrap().disk.info().id.clone();
        assert_eq!(used, w.disk(3).info().id);
    }
    // Without the other disk of this number, the disk does not belong to the pool either.
    let opened = w.open(&[0, 1, 2]).await.unwrap();
    assert_eq!(opened.missing, [DiskNumber(2)]);
    // The disk may be added again.
    let pool = opened.pool;
    assert_eq!(pool.add_disk(&NewDisk::new(w.disk(2))).await, Ok(DiskNumber(3)));
    // A former disk of the pool may not: it may have data whose loss was never accepted.
    assert!(matches!(
        pool.add_disk(&NewDisk::new(w.disk(3))).await,
        Err(AdminError::Unsuitable(Unsuitable::InPool { .. }))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_the_metadata_has_no_room_for_keeps_no_label() {
    let w = World::new(3);
    let disks: Vec<_> = w.some(&[0, 1]).into_iter().map(NewDisk::new).collect();
    let pool = Pool::create(&w.env, &w.arena, &disks, options()).await.unwrap();
    fill(&pool).await;
    let refused = pool.add_disk(&NewDisk::new(w.disk(2))).await;
    assert!(matches!(refused, Err(AdminError::Commit(CommitError::Full { .. }))), "{refused:?}");
    let found = scan(&w.env, &w.arena, &[w.disk(2)]).await;
    assert!(found[0].label.is_err(), "it is none of the pool");
    assert!(pool.members().get(DiskNumber(2)).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_last_disk_with_metadata_cannot_be_asked_to_leave() {
    let w = World::new(2);
    let pool = w.create().await;
    pool.take_offline(DiskNumber(1)).await.unwrap();
    assert_eq!(pool.take_offline(DiskNumber(0)).await, Err(CommitError::Needed(DiskNumber(0))));
    pool.rename("still here").await.unwrap();
    // A disk that is only slow is not dropped.
    let slow = pool.disk_failed(DiskNumber(0), Absence::Slow).await;
    assert_eq!(slow, Err(CommitError::Needed(DiskNumber(0))));
    pool.rename("still here too").await.unwrap();
    // A failure cannot be refused like an administrator's request.
    let failed = pool.disk_failed(DiskNumber(0), Absence::WriteFailed).await;
    assert!(matches!(failed, Err(CommitError::Suspended(Suspension::TooFewVoters { left: 0, .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_slow_disk_that_alone_has_data_does_not_leave() {
    let w = World::new(3);
    let pool = w.create().await;
    let space = make(&pool, mirror("m")).await;
    allocate(&pool, space, [0, 1], 1).await;
    pool.take_offline(DiskNumber(1)).await.unwrap();
    let slow = pool.disk_failed(DiskNumber(0), Absence::Slow).await;
    assert_eq!(slow, Err(CommitError::Needed(DiskNumber(0))));
    assert!(pool.read(|s| s.is_present(DiskNumber(0))) && pool.members().get(DiskNumber(0)).is_some());
    // A disk without data may leave.
    pool.disk_failed(DiskNumber(2), Absence::Slow).await.unwrap();
    assert!(!pool.read(|s| s.is_present(DiskNumber(2))));
}

/// Creates spaces until there is no room for another; returns their number, and the error.
async fn fill(pool: &Pool) -> (u32, CommitError) {
    let mut made = 0;
    loop {
        match try_make(pool, mirror(&format!("{made:0250}"))).await {
            Ok(_) => made += 1,
            Err(e) => return (made, e),
        }
        assert!(made < 10_000);
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_that_would_not_fit_is_refused_before_it_is_written() {
    let mut w = World::new(2);
    let pool = w.create().await;
    let (made, refused) = fill(&pool).await;
    let CommitError::Full { room, needed, .. } = refused else { panic!("{refused}") };
    assert!(needed > room && room > 250 << 10 && made > 300);
    // A change that needs no more room is accepted.
    pool.metadata().commit(vec![Op::Space { space: SpaceId(3), op: SpaceOp::Destroy }]).await.unwrap();
    make(&pool, mirror("again")).await;
    pool.metadata().export().await.unwrap();
    drop(pool);
    w.power_cut();
    // The full pool can be opened any number of times.
    for read_only in (0..40).map(|n| n % 5 == 4) {
        let opened = w.open_with(&[0, 1], |o| o.read_only = read_only).await.unwrap();
        assert_eq!(opened.pool.read(|s| s.spaces.len()), made as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn media_and_classes_are_there_after_a_power_cut() {
    let mut w = World::new(4);
    let mut disks: Vec<_> = w.all().into_iter().map(NewDisk::new).collect();
    disks[1].media = Some(Media::Hdd);
    let pool = Pool::create(&w.env, &w.arena, &disks, options()).await.unwrap();
    let media = |pool: &Pool| pool.read(|s| s.disks.values().map(DiskRecord::media).collect::<Vec<_>>());
    assert_eq!(
        media(&pool),
        [Media::Ssd, Media::Hdd, Media::Ssd, Media::Ssd],
        "as the disks report, or a command"
    );
    let class = MediaClass::of([Media::Hdd, Media::Nvme]);
    let resiliency = Resiliency::Parity { parity: 1 };
    let record = SpaceRecord { media: class, columns: 2, resiliency, ..mirror("p") };
    let parity = make(&pool, record).await;
    let space = make(&pool, mirror("m")).await;
    pool.set_media(DiskNumber(2), Media::Nvme).await.unwrap();
    pool.set_space_media(space, class).await.unwrap();
    let ssd = MediaClass::of([Media::Ssd]);
    pool.set_space_media(parity, ssd).await.unwrap();
    drop(pool);
    w.power_cut();
    let pool = w.open(&[0, 1, 2, 3]).await.unwrap().pool;
    assert_eq!(media(&pool), [Media::Ssd, Media::Hdd, Media::Nvme, Media::Ssd]);
    pool.read(|s| {
        let of = |space: SpaceId| s.spaces[&space].media;
        assert_eq!((of(space), of(parity)), (class, ssd));
    });
}
