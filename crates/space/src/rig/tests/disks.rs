//! Disks that fail, leave, return or are absent at the opening.

use disk::PowerCut;
use disk::sim::SlotId;
use pool_seam::{
    Absence, Coordinator, CopyRegions, DiskNumber, DiskReport, Membership, OwnerOp, RejoinState, Resiliency,
    RowNumber, SeamError,
};

use super::super::{Rig, Setup, virtual_time};
use super::{MIRROR, ROW, allocated, commit, gone, owner, rig, row};

const FIRST: Membership = Membership(1);

fn report(disk: DiskNumber) -> DiskReport {
    DiskReport { disk, membership: FIRST, reason: Absence::Gone, error: gone() }
}

#[test]
fn a_failed_disk_misses_what_its_owner_says_and_the_last_one_is_needed() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        let copies = allocated(&rig).await.slabs.clone();
        let disk = copies[1].place.disk;
        let log = row(&rig.view_now(), RowNumber::LOG).slabs.iter().position(|copy| copy.place.disk == disk);
        let generation = row(&rig.view_now(), RowNumber::LOG).slabs[log.expect("a replica")].generation;
        let stale = vec![
            CopyRegions { row: ROW, generation: copies[1].generation, regions: 1 },
            CopyRegions { row: RowNumber::LOG, generation, regions: 1 },
        ];
        let owner = owner(&rig, stale, RejoinState::Proven { mark: 0 });
        let view = rig.disk_failed(rig.owner_id(), report(disk)).wait().await.expect("there is another copy");
        assert_eq!((view.disks[&disk].membership, row(&view, ROW).slabs[1].stale_regions), (None, 1));
        assert_eq!(row(&view, RowNumber::LOG).slabs[log.expect("a replica")].stale_regions, u64::MAX);
        assert!(rig.open_disk(disk, FIRST).is_none());
        let again = rig.disk_failed(rig.owner_id(), report(disk)).wait().await.expect("the view");
        assert_eq!(again.version, view.version, "another membership: nothing is done");
        let other = copies[0].place.disk;
        let needed = rig.disk_failed(rig.owner_id(), report(other)).wait().await;
        assert_eq!(needed, Err(SeamError::Needed(other)));
        assert_eq!(rig.remove_disk(other).await, Err(SeamError::Needed(other)));
        assert!(owner.view.lock().is_none(), "nothing changed");
    });
}

#[test]
fn a_disk_is_needed_for_a_log_for_a_simple_row_and_for_parity() {
    virtual_time(async {
        let alone = rig(1, Resiliency::Simple);
        assert_eq!(alone.remove_disk(DiskNumber(0)).await, Err(SeamError::Needed(DiskNumber(0))), "the log");
        let simple = rig(3, Resiliency::Simple);
        let disk = allocated(&simple).await.slabs[0].place.disk;
        assert_eq!(simple.remove_disk(disk).await, Err(SeamError::Needed(disk)));
        let mut setup = super::Setup::new(1, 5, Resiliency::Parity { parity: 1 });
        setup.columns = 2;
        let coded = super::Rig::new(&setup);
        let slabs = allocated(&coded).await.slabs.clone();
        let owner = owner(&coded, Vec::new(), RejoinState::RolledBack);
        coded.remove_disk(slabs[0].place.disk).await.expect("two of three are enough");
        assert!(
            owner.view.lock().as_ref().is_some_and(|v| v.disks[&slabs[0].place.disk].membership.is_none())
        );
        let next = slabs[1].place.disk;
        assert_eq!(coded.remove_disk(next).await, Err(SeamError::Needed(next)));
    });
}

#[test]
fn a_disk_that_returns_has_the_next_membership_and_misses_everything_if_it_is_behind() {
    virtual_time(async {
        for (answer, stale) in [(RejoinState::Proven { mark: 3 }, 0), (RejoinState::RolledBack, u64::MAX)] {
            let rig = rig(2, MIRROR);
            let disk = allocated(&rig).await.slabs[1].place.disk;
            let owner = owner(&rig, Vec::new(), answer.clone());
            rig.machine.pull(SlotId(disk.0.into()), PowerCut::KeepAll);
            assert!(rig.open_disk(disk, FIRST).is_none(), "it is pulled");
            rig.remove_disk(disk).await.expect("there is another copy");
            assert_eq!(rig.return_disk(disk).await, Ok(answer));
            let view = owner.view.lock().clone().expect("an update");
            assert_eq!(view.disks[&disk].membership, Some(Membership(2)));
            assert_eq!(row(&view, ROW).slabs[1].stale_regions, stale);
            assert!(rig.open_disk(disk, Membership(2)).is_some() && rig.open_disk(disk, FIRST).is_none());
        }
        let rig = rig(2, MIRROR);
        let disk = allocated(&rig).await.slabs[1].place.disk;
        let only = RejoinState::OnlyCopy(vec![ROW]);
        let _owner = owner(&rig, Vec::new(), only.clone());
        rig.remove_disk(disk).await.expect("there is another copy");
        assert_eq!(rig.return_disk(disk).await, Ok(only));
        assert_eq!(rig.view_now().disks[&disk].membership, None, "it stays absent");
    });
}

#[test]
fn a_stale_disk_keeps_what_no_other_copy_has() {
    virtual_time(async {
        // Four regions in a slab.
        let rig = Rig::new(&Setup { slab_bytes: 8 << 20, ..Setup::new(1, 2, MIRROR) });
        let copies = allocated(&rig).await.slabs.clone();
        let (disk, generation) = (copies[0].place.disk, copies[1].generation);
        let stale =
            OwnerOp::MarkStale { row: ROW, index: 1, generation, regions: 1, membership: Some(FIRST) };
        assert!(commit(&rig, &[OwnerOp::MarkDiskStale { disk, membership: Membership(2) }]).await.is_err());
        let view = commit(&rig, &[stale, OwnerOp::MarkDiskStale { disk, membership: FIRST }])
            .await
            .expect("it fits");
        assert_eq!(row(&view, ROW).slabs[0].stale_regions, 0b1110);
    });
}

#[test]
fn an_absent_disk_at_the_opening_counts_for_nothing_until_it_is_accounted() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        let disk = allocated(&rig).await.slabs[1].place.disk;
        rig.absent_at_opening(disk);
        let view = rig.view_now();
        assert_eq!((view.disks[&disk].membership, view.record.unaccounted.get(&disk)), (None, Some(&FIRST)));
        assert!(commit(&rig, &[OwnerOp::Accounted { disk, membership: Membership(2) }]).await.is_err());
        let _owner = owner(&rig, Vec::new(), RejoinState::Proven { mark: 0 });
        let other = DiskNumber(1 - disk.0);
        assert_eq!(rig.remove_disk(other).await, Err(SeamError::Needed(other)), "it is not accounted");
        let view = commit(&rig, &[OwnerOp::Accounted { disk, membership: FIRST }]).await.expect("it fits");
        assert!(view.record.unaccounted.is_empty());
        rig.return_disk(disk).await.expect("it is read");
        rig.remove_disk(other).await.expect("the other one counts");
    });
}

#[test]
fn an_owner_that_does_not_answer_leaves_the_disk_unaccounted() {
    virtual_time(async {
        let rig = rig(2, MIRROR);
        let disk = allocated(&rig).await.slabs[1].place.disk;
        let view = rig.remove_disk(disk).await.expect("there is another copy");
        assert_eq!(view.record.unaccounted.get(&disk), Some(&FIRST));
    });
}
