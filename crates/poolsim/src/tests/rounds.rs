use std::sync::{Arc, Weak};
use std::time::Duration;

use disk::sim::SlotId;
use disk::{DiskError, IoRange, Op, PowerCut};
use env::{Env, Io};
use parking_lot::Mutex;
use pool::Pool;
use pool_seam::{
    Coordinator, CopyRegions, DiskNumber, DiskReport, JobId, JobOrder, JobReport, LogState, Membership,
    Owner, OwnerId, OwnerOp, OwnerStatus, RejoinState, Request, RowNumber, SeamError, SpaceView,
};

use crate::world::{World, mirror, node_with_two_voters, put_into_nodes, virtual_time};

/// An owner that answers after a delay, and records its calls.
struct ScriptedOwner {
    env: Env,
    takes: Duration,
    says: Vec<CopyRegions>,
    told: Mutex<Vec<String>>,
}

impl Owner for ScriptedOwner {
    fn update(&self, view: Arc<SpaceView>) {
        self.told.lock().push(format!("update {}", view.members().len()));
    }
    fn disk_leaving(&self, disk: DiskNumber, of: Membership) -> Io<Result<Vec<CopyRegions>, SeamError>> {
        self.told.lock().push(format!("leaving {} {}", disk.0, of.0));
        let (env, takes, says) = (self.env.clone(), self.takes, self.says.clone());
        Io::pending(async move {
            env.sleep(takes).await;
            Ok(says)
        })
    }
    fn disk_stays(&self, disk: DiskNumber, of: Membership) {
        self.told.lock().push(format!("stays {} {}", disk.0, of.0));
    }
    fn disk_joining(&self, disk: DiskNumber, of: Membership) -> Io<Result<RejoinState, SeamError>> {
        self.told.lock().push(format!("joining {} {}", disk.0, of.0));
        Io::Done(Ok(RejoinState::OnlyCopy(vec![RowNumber(0)])))
    }
    fn run(&self, _: JobId, _: JobOrder) -> Io<Result<JobReport, SeamError>> {
        Io::Done(Err(SeamError::Moved))
    }
    fn stop(&self, _: JobId) {}
    fn resize(&self, _: u64, _: u64, _: bool) -> Io<Result<(), SeamError>> {
        Io::Done(Err(SeamError::Moved))
    }
    fn close(&self) -> Io<Result<LogState, SeamError>> {
        Io::Done(Err(SeamError::Moved))
    }
    fn status(&self) -> OwnerStatus {
        OwnerStatus::default()
    }
}

/// A pool with a row of a mirror whose owner is a puppet.
async fn staged(
    world: &World,
    takes: Duration,
    says: Vec<CopyRegions>,
) -> (Pool, OwnerId, Arc<ScriptedOwner>) {
    let pool = world.create().await;
    let space = pool.create_space(mirror("vm")).await.expect("a space");
    let owner = pool.owner(space).expect("an owner");
    let puppet = Arc::new(ScriptedOwner { env: world.env.clone(), takes, says, told: Mutex::default() });
    let link: Arc<dyn Owner> = Arc::<ScriptedOwner>::clone(&puppet);
    assert!(pool.link(owner, Arc::downgrade(&link) as Weak<dyn Owner>));
    allocate(&pool, owner, 1, 0).await;
    let (birth, written) = pool.read(|s| {
        let row = &s.spaces[&space].rows[&RowNumber(0)];
        let disks = row.slabs.iter().map(|copy| copy.place.disk);
        (row.birth, disks.filter_map(|disk| Some((disk, s.membership(disk)?))).collect())
    });
    ask(&pool, owner, 2, OwnerOp::Ready { row: RowNumber(0), birth, written }).await;
    (pool, owner, puppet)
}

async fn ask(pool: &Pool, owner: OwnerId, number: u64, op: OwnerOp) -> Arc<SpaceView> {
    let request = Request { space: owner.space, epoch: owner.epoch, number, ops: vec![op] };
    pool.commit(request).wait().await.expect("carried out")
}

/// Allocates a row; returns its disks.
async fn allocate(pool: &Pool, owner: OwnerId, number: u64, row: u32) -> Vec<DiskNumber> {
    let view = ask(pool, owner, number, OwnerOp::Allocate { row: RowNumber(row) }).await;
    view.record.rows[&RowNumber(row)].copies().map(|(_, copy)| copy.place.disk).collect()
}

fn first_disk(pool: &Pool, owner: OwnerId) -> DiskNumber {
    pool.read(|s| s.spaces[&owner.space].rows[&RowNumber(0)].slabs[0].place.disk)
}

/// The record that removes a disk contains the owner's answer. No new slab is placed on the disk while the owner is
/// asked.
#[test]
fn a_disk_leaves_in_one_record_with_what_its_owner_says() {
    virtual_time(async {
        let world = World::new(21, 4);
        // The first allocation after the two of the log.
        let says = vec![CopyRegions { row: RowNumber(0), generation: 3, regions: 1 }];
        let (pool, owner, puppet) = staged(&world, Duration::from_secs(5), says).await;
        let disk = first_disk(&pool, owner);
        puppet.told.lock().clear();
        let leaves = pool.take_offline(disk);
        let meanwhile = async {
            world.env.sleep(Duration::from_secs(1)).await;
            assert!(pool.read(|s| s.membership(disk).is_some()), "the owner has not answered");
            for row in 1..8 {
                let disks = allocate(&pool, owner, 2 + u64::from(row), row).await;
                assert!(!disks.contains(&disk), "row {row}");
            }
        };
        let (left, ()) = tokio::join!(leaves, meanwhile);
        left.expect("it leaves");
        let told = puppet.told.lock().clone();
        assert_eq!(told[0], format!("leaving {} 1", disk.0));
        assert_eq!(told.iter().filter(|told| told.starts_with("update")).count(), 8, "{told:?}");
        let record = pool.read(|s| s.spaces[&owner.space].clone());
        assert_eq!(record.rows[&RowNumber(0)].slabs[0].stale_regions, 1);
        assert!(record.unaccounted.is_empty() && pool.read(|s| s.membership(disk).is_none()));
    });
}

/// The disks of a node are removed in one record, even if some are voters. The owner is asked about each, and gets
/// one view.
#[test]
fn disks_that_leave_together_leave_in_one_record() {
    virtual_time(async {
        let world = World::new(24, 9);
        let pool = world.create().await;
        put_into_nodes(&pool).await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let owner = pool.owner(space).expect("an owner");
        let takes = Duration::from_secs(1);
        let puppet = Arc::new(ScriptedOwner {
            env: world.env.clone(),
            takes,
            says: Vec::new(),
            told: Mutex::default(),
        });
        let link: Arc<dyn Owner> = Arc::<ScriptedOwner>::clone(&puppet);
        assert!(pool.link(owner, Arc::downgrade(&link) as Weak<dyn Owner>));
        for row in 0..8 {
            allocate(&pool, owner, 1 + u64::from(row), row).await;
        }
        let members = pool.read(|s| s.disks.len());
        let node = node_with_two_voters(&pool);
        for disk in &node {
            world.machine.pull(SlotId(disk.0.into()), PowerCut::LoseAll);
        }
        puppet.told.lock().clear();
        pool.check_disks().await.expect("they leave");
        let mut told = puppet.told.lock().clone();
        assert_eq!(told.pop(), Some(format!("update {}", members - node.len())));
        assert_eq!(told, node.iter().map(|disk| format!("leaving {} 1", disk.0)).collect::<Vec<_>>());
        pool.read(|s| {
            assert!(node.iter().all(|disk| !s.is_present(*disk)));
            assert_eq!((s.voters.len(), s.voters.iter().filter(|v| node.contains(v)).count()), (5, 0));
        });
        assert_eq!(pool.suspended(), None);
    });
}

/// An owner that does not answer does not prevent the removal of a disk: the disk becomes unaccounted.
#[test]
fn a_disk_does_not_wait_for_an_owner_for_ever() {
    virtual_time(async {
        let world = World::new(22, 3);
        let (pool, owner, _puppet) = staged(&world, Duration::from_secs(3600), Vec::new()).await;
        let disk = first_disk(&pool, owner);
        let began = world.env.now();
        pool.take_offline(disk).await.expect("it leaves");
        assert!(world.env.now() - began < Duration::from_secs(30));
        assert_eq!(pool.read(|s| s.spaces[&owner.space].unaccounted.clone()), [(disk, Membership(1))].into());
    });
}

/// The owner is notified that a disk with the only copy of some data stays. A rolled-back disk with the only copy of
/// some data does not join.
#[test]
fn an_owner_is_told_that_a_disk_stays() {
    virtual_time(async {
        let world = World::new(23, 2);
        let (pool, owner, puppet) = staged(&world, Duration::ZERO, Vec::new()).await;
        let disk = first_disk(&pool, owner);
        let other = DiskNumber(1 - disk.0);
        pool.take_offline(other).await.expect("it leaves");
        puppet.told.lock().clear();
        let failed = pool.disk_failed(disk, pool::Absence::WriteFailed).await;
        assert_eq!(failed, Err(pool::CommitError::Needed(disk)));
        assert_eq!(*puppet.told.lock(), [format!("leaving {} 1", disk.0), format!("stays {} 1", disk.0)]);
        puppet.told.lock().clear();
        let back = pool.return_disk(world.disk(other.0.into()), false).await;
        assert_eq!(back, Err(pool::AdminError::Stale(other)));
        assert_eq!(*puppet.told.lock(), [format!("joining {} 2", other.0)]);
        // The loss is accepted: all regions that the other disk has become stale.
        assert_eq!(pool.return_disk(world.disk(other.0.into()), true).await, Ok(other));
        let row = pool.read(|s| s.spaces[&owner.space].rows[&RowNumber(0)].clone());
        let stale =
            row.copies().find(|(_, copy)| copy.place.disk == other).map(|(_, copy)| copy.stale_regions);
        assert_eq!((stale, pool.read(|s| s.membership(other))), (Some(u64::MAX), Some(Membership(2))));
    });
}

/// A call that did not begin because its disk is being removed does not make the disk slow. The owner gets the result
/// of the removal, and no second round begins.
#[test]
fn a_leaving_disk_is_not_slow() {
    for is_needed in [false, true] {
        virtual_time(async {
            let world = World::new(25, 2);
            let (pool, owner, puppet) = staged(&world, Duration::from_secs(5), Vec::new()).await;
            let disk = first_disk(&pool, owner);
            if is_needed {
                pool.take_offline(DiskNumber(1 - disk.0)).await.expect("it leaves");
            }
            puppet.told.lock().clear();
            let error = DiskError::Timeout { at: IoRange::whole(Op::Write) };
            let (of, reason) = (Membership(1), pool::Absence::WriteFailed);
            let reports = async {
                world.env.sleep(Duration::from_secs(1)).await;
                Coordinator::disk_failed(&pool, owner, DiskReport { disk, membership: of, reason, error })
                    .wait()
                    .await
            };
            let (left, reported) = tokio::join!(pool.disk_failed(disk, reason), reports);
            let told = puppet.told.lock().clone();
            assert_eq!(told.iter().filter(|told| told.starts_with("leaving")).count(), 1, "{told:?}");
            if is_needed {
                assert_eq!(left, Err(pool::CommitError::Needed(disk)));
                assert_eq!(reported.map(drop), Err(SeamError::Needed(disk)));
            } else {
                left.expect("it leaves");
                assert_eq!(reported.expect("a view").membership(disk), None);
                assert_eq!(pool.read(|s| s.disks[&disk].presence), pool::Presence::Absent(reason));
            }
        });
    }
}

/// A round completes even if the caller that began it was dropped.
#[test]
fn a_round_ends_without_its_caller() {
    virtual_time(async {
        let world = World::new(24, 2);
        let (pool, owner, puppet) = staged(&world, Duration::from_secs(5), Vec::new()).await;
        let disk = first_disk(&pool, owner);
        pool.take_offline(DiskNumber(1 - disk.0)).await.expect("it leaves");
        tokio::select! {
            biased;
            failed = pool.disk_failed(disk, pool::Absence::WriteFailed) => panic!("too early: {failed:?}"),
            () = world.env.sleep(Duration::from_secs(1)) => {}
        }
        world.env.sleep(Duration::from_secs(10)).await;
        assert_eq!(puppet.told.lock().last(), Some(&format!("stays {} 1", disk.0)));
    });
}

/// A needed disk fails twice. Its owner is notified that the disk stays only after both rounds, because the owner's
/// second answer must stay valid until the end of the second round.
#[test]
fn a_disk_stays_when_the_last_round_has_ended() {
    virtual_time(async {
        let world = World::new(26, 2);
        let (pool, owner, puppet) = staged(&world, Duration::from_secs(5), Vec::new()).await;
        let disk = first_disk(&pool, owner);
        pool.take_offline(DiskNumber(1 - disk.0)).await.expect("it leaves");
        puppet.told.lock().clear();
        let fails = async |after| {
            world.env.sleep(Duration::from_secs(after)).await;
            pool.disk_failed(disk, pool::Absence::WriteFailed).await
        };
        let (first, second) = tokio::join!(fails(0), fails(1));
        assert_eq!(
            (first, second),
            (Err(pool::CommitError::Needed(disk)), Err(pool::CommitError::Needed(disk)))
        );
        let (leaving, stays) = (format!("leaving {} 1", disk.0), format!("stays {} 1", disk.0));
        assert_eq!(*puppet.told.lock(), [leaving.clone(), leaving, stays]);
    });
}
