//! Requests of an owner: each operation, exactly once, and the history that a crash finds.

use std::collections::BTreeSet;
use std::time::Duration;

use arena::IoBuf;
use disk::PowerCut;
use env::Ctx;
use pool_seam::{
    Coordinator, DiskNumber, JobId, LogState, LossRecord, Membership, NoPlace, OwnerOp, Progress, Request,
    RowNumber, ScrubRecord, SeamError, SpaceEpoch, Suspension, Turn,
};

use super::super::{Faults, POOL, SPACE, virtual_time};
use super::{MIRROR, ROW, allocated, commit, ready, request, rig, row};

#[test]
fn a_row_lies_on_distinct_disks_and_is_new_until_it_is_ready() {
    virtual_time(async {
        let rig = rig(3, MIRROR);
        let view = commit(&rig, &[OwnerOp::Allocate { row: ROW }]).await.expect("room");
        let new = row(&view, ROW).clone();
        assert_eq!((view.pool, view.space, view.slab_bytes), (POOL, SPACE, 2 << 20));
        let disks: BTreeSet<_> = new.slabs.iter().map(|copy| copy.place.disk).collect();
        assert!(new.is_new && new.slabs.len() == 2 && disks.len() == 2);
        assert!(disks.iter().all(|disk| view.disks.contains_key(disk)));
        let log: BTreeSet<_> = row(&view, RowNumber::LOG).slabs.iter().map(|copy| copy.place.disk).collect();
        assert_eq!(log, [DiskNumber(0), DiskNumber(1)].into());
        let OwnerOp::Ready { written, .. } = ready(&view) else { panic!("it is one") };
        let wrong = OwnerOp::Ready { row: ROW, birth: new.birth + 9, written };
        let wrong = commit(&rig, &[wrong]).await;
        assert!(matches!(wrong, Err(SeamError::Invalid(_))));
        let view = commit(&rig, &[ready(&view)]).await.expect("it fits");
        assert!(!row(&view, ROW).is_new);
        let twice = commit(&rig, &[OwnerOp::Allocate { row: ROW }]).await;
        assert!(matches!(twice, Err(SeamError::Invalid(_))));
        let beyond = commit(&rig, &[OwnerOp::Allocate { row: RowNumber(8) }]).await;
        assert_eq!(beyond, Err(SeamError::NoRoom(NoPlace::NoSuchRow(SPACE))));
        commit(&rig, &[OwnerOp::Free { row: ROW, birth: new.birth }]).await.expect("it is there");
        let again = allocated(&rig).await;
        assert!(again.birth > new.slabs[1].generation, "generations are fresh");
    });
}

#[test]
fn a_request_is_carried_out_once_and_entirely() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        let grow = OwnerOp::SetSize { from: 16 << 20, to: 32 << 20 };
        let view = request(&rig, 1, std::slice::from_ref(&grow)).await.expect("the size fits");
        assert_eq!(view.record.size, 32 << 20);
        let again =
            request(&rig, 1, &[OwnerOp::SetSize { from: 32 << 20, to: 4096 }]).await.expect("the view");
        assert_eq!(again.record.size, 32 << 20, "the number was used");
        let half = request(&rig, 2, &[OwnerOp::Allocate { row: ROW }, grow]).await;
        let Err(SeamError::Invalid(view)) = half else { panic!("the former size does not fit") };
        assert!(!view.record.rows.contains_key(&ROW), "nothing of it was done");
        assert_eq!(view.record.ownership.request, 2, "its number is used up");
        rig.faults(Faults { lost: 1_000_000, ..Faults::default() });
        let mut sent = 0;
        while rig.view_now().record.ownership.request < 3 {
            sent += 1;
            let lost = request(&rig, 3, &[OwnerOp::Allocate { row: ROW }]).await;
            assert_eq!(lost, Err(SeamError::Unknown));
        }
        assert!(sent < 20 && rig.view_now().record.rows.contains_key(&ROW), "a lost reply was carried out");
        rig.faults(Faults::default());
        request(&rig, 3, &[OwnerOp::Allocate { row: ROW }])
            .await
            .expect("the same number asks for the answer");
    });
}

#[test]
fn a_deposed_owner_and_a_suspended_pool_change_nothing() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        let old = rig.owner_id();
        let why = Suspension::LeaseEnded;
        rig.faults(Faults { suspended: Some(why), delay: Duration::ZERO, ..Faults::default() });
        let ops = vec![OwnerOp::Allocate { row: ROW }];
        assert_eq!(request(&rig, 1, &ops).await, Err(SeamError::Suspended(why)));
        rig.faults(Faults::default());
        let new = rig.next_owner();
        assert_eq!(Some(new.epoch), old.epoch.next());
        let late = rig.commit(Request { space: SPACE, epoch: old.epoch, number: 1, ops }).wait().await;
        assert_eq!(late, Err(SeamError::Deposed(new.epoch)));
        assert_eq!(rig.view(old, None).wait().await, Err(SeamError::Deposed(new.epoch)));
        let view = rig.view(new, None).wait().await.expect("the owner").expect("a view");
        assert_eq!(rig.view(new, Some(view.version)).wait().await, Ok(None));
        let turn = rig.turn(new, JobId(1), Progress::default()).wait().await;
        assert!(matches!(turn, Ok(Turn::Go { pieces: 1.. })));
    });
}

#[test]
fn missed_regions_name_a_copy_and_a_membership() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        let copy = allocated(&rig).await.slabs[1];
        let generation = copy.generation;
        let stale = OwnerOp::MarkStale {
            row: ROW,
            index: 1,
            generation,
            regions: u64::MAX,
            membership: Some(Membership(1)),
        };
        let of_another =
            |seen| OwnerOp::MarkStale { row: ROW, index: 1, generation, regions: 1, membership: seen };
        assert!(commit(&rig, &[of_another(None)]).await.is_err(), "it has returned");
        assert!(commit(&rig, &[of_another(Some(Membership(2)))]).await.is_err());
        let view = commit(&rig, &[stale]).await.expect("it fits");
        assert_eq!(row(&view, ROW).slabs[1].stale_regions, u64::MAX);
        let has = |of, generation| OwnerOp::MarkCurrent {
            row: ROW,
            index: 1,
            generation,
            regions: 1,
            membership: Membership(of),
        };
        assert!(commit(&rig, &[has(2, generation)]).await.is_err());
        assert!(commit(&rig, &[has(1, generation + 1)]).await.is_err());
        let view = commit(&rig, &[has(1, generation)]).await.expect("it fits");
        assert_eq!(row(&view, ROW).slabs[1].stale_regions, 0, "the slab has one region");
        let log = row(&view, RowNumber::LOG).slabs[0].generation;
        let part = OwnerOp::MarkStale {
            row: RowNumber::LOG,
            index: 0,
            generation: log,
            regions: 1,
            membership: Some(Membership(1)),
        };
        assert!(commit(&rig, &[part]).await.is_err(), "of a replica everything or nothing");
    });
}

#[test]
fn a_slab_moves_when_the_new_one_has_everything() {
    virtual_time(async {
        let rig = rig(3, MIRROR);
        let old = allocated(&rig).await;
        let birth = old.birth;
        let begin = OwnerOp::BeginMove { row: ROW, birth, index: 1, to: None };
        commit(&rig, std::slice::from_ref(&begin)).await.expect("a third disk");
        commit(&rig, &[OwnerOp::CancelMove { row: ROW, birth }]).await.expect("it moves");
        let view = commit(&rig, &[begin]).await.expect("a third disk");
        let new = row(&view, ROW).moving().expect("it moves").copy;
        assert!(
            old.slabs.iter().all(|copy| copy.place.disk != new.place.disk) && new.stale_regions == u64::MAX
        );
        let end = OwnerOp::EndMove { row: ROW, birth };
        assert!(commit(&rig, std::slice::from_ref(&end)).await.is_err());
        let (generation, membership) = (new.generation, Membership(1));
        let has = OwnerOp::MarkCurrent { row: ROW, index: 2, generation, regions: 1, membership };
        let view = commit(&rig, &[has, end]).await.expect("it has everything");
        assert_eq!((row(&view, ROW).slabs[1].place, row(&view, ROW).birth), (new.place, birth));
        let generation = row(&view, RowNumber::LOG).slabs[1].generation;
        let view = commit(&rig, &[OwnerOp::ReplaceLog { index: 1, generation }]).await.expect("a third disk");
        let replica = row(&view, RowNumber::LOG).slabs[1];
        assert_eq!((replica.place.disk, replica.stale_regions), (DiskNumber(2), u64::MAX));
    });
}

#[test]
fn values_are_recorded() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        let scrub = ScrubRecord { began: 7, ..ScrubRecord::default() };
        let loss = LossRecord::default().with(&[4096].into());
        let log = LogState { epoch: rig.owner_id().epoch, sequence: 9, is_closed: false };
        let ops = [OwnerOp::Scrub(scrub), OwnerOp::Lost(loss.clone()), OwnerOp::Log(log)];
        let view = commit(&rig, &ops).await.expect("they fit");
        assert_eq!((view.record.scrub, &view.record.loss, view.record.log), (scrub, &loss, log));
        let back = OwnerOp::Log(LogState { sequence: 8, ..log });
        assert!(commit(&rig, &[back]).await.is_err(), "a log is never shorter");
    });
}

#[test]
fn a_crash_finds_the_metadata_and_the_bytes_of_its_moment() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        rig.record();
        let disk = rig.open_disk(DiskNumber(0), Membership(1)).expect("it is there");
        let write =
            |byte| disk.write(&Ctx::default(), 0, [IoBuf::from(vec![byte; 4096])].into_iter().collect());
        write(1).wait().await.expect("no faults");
        allocated(&rig).await;
        write(2).wait().await.expect("no faults");
        let moments = rig.moments();
        let has_row = |moment: usize| {
            let after = rig.after(&moments[moment], PowerCut::KeepAll);
            assert_eq!(after.owner_id().epoch, SpaceEpoch::first(2));
            assert!(after.view_now().version > rig.view_now().version);
            let first = after.machine.image(disk::sim::SlotId(0)).to_vec(0, 1)[0];
            (after.view_now().record.rows.contains_key(&ROW), first)
        };
        // A write in flight at the cut is kept, too.
        assert_eq!([has_row(0), has_row(1), has_row(2)], [(false, 1), (true, 2), (true, 2)]);
        rig.machine.cut(PowerCut::LoseAll);
        let off = Suspension::TooFewVoters { left: 0, needed: 1 };
        assert_eq!(commit(&rig, &[]).await, Err(SeamError::Suspended(off)));
        let next = rig.restarted();
        assert_eq!(next.machine.image(disk::sim::SlotId(0)).to_vec(0, 1), [0]);
        commit(&next, &[]).await.expect("the power is back");
    });
}
