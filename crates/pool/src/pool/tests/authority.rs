//! Ownership of a pool, by its labels and by an external register (`docs/0004-spaces.md`, section C).

use std::collections::BTreeSet;
use std::time::Duration;

use disk::sim::{Fault, Machine, Rule, SlotId, When};

use super::*;
use crate::authority::memory::{Fault as Lost, MemoryAuthority, Register};
use crate::authority::{AuthorityValue, CasError, Lease, PoolAuthority, Revision, newest_claim};
use crate::format::Claim;
use crate::{Absence, Deadlines};

/// Disks that several machines share, each with handles of its own, and the register of the pool's owner.
struct Shared {
    env: Env,
    arena: Arena,
    machine: Machine,
    register: Option<Register>,
}

impl Shared {
    fn new(disks: usize, register: Option<Register>) -> Shared {
        let env = Env::simulated(1);
        let machine = Machine::new(&env, 1);
        for n in 0..disks {
            machine.add(&MemoryOptions::new(format!("disk{n}"), 16 * MIB));
        }
        Shared { env, arena: Arena::new(4 << 20).unwrap(), machine, register }
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let all = (0..self.machine.slots()).filter_map(|n| self.machine.open(SlotId(n)).ok());
        all.map(|d| d as Arc<dyn Disk>).collect()
    }

    fn authority(&self) -> Option<Arc<MemoryAuthority>> {
        self.register.as_ref().map(|register| MemoryAuthority::new(&self.env, register))
    }

    async fn create(&self) -> Pool {
        let new: Vec<_> = self.disks().into_iter().map(NewDisk::new).collect();
        let authority = self.authority().map(|a| a as Arc<dyn PoolAuthority>);
        Pool::create_under(authority, &self.env, &self.arena, &new, options()).await.unwrap()
    }

    async fn open(&self, change: impl FnOnce(&mut OpenOptions)) -> Result<Pool, OpenError> {
        let mut options = OpenOptions::new(host("a"));
        change(&mut options);
        let authority = self.authority().map(|a| a as Arc<dyn PoolAuthority>);
        let opened = Pool::open_under(authority, &self.env, &self.arena, &self.disks(), &options).await;
        opened.map(|o| o.pool)
    }

    /// The newest claim of each disk.
    async fn claims(&self, pool: &Pool) -> Vec<Option<Claim>> {
        let mut claims = Vec::new();
        for (n, disk) in self.disks().iter().enumerate() {
            let areas = pool.members().get(DiskNumber(n as u16)).unwrap().areas;
            let io = DiskIo::new(&self.env, &self.arena, DiskIo::UNOWNED_EPOCH, Deadlines::default());
            claims.push(newest_claim(&io, disk, &areas, pool.id(), DiskNumber(n as u16)).await.0);
        }
        claims
    }
}

fn by_b(o: &mut OpenOptions) {
    (o.by, o.force) = (host("b"), true);
}

#[derive(Clone, Copy)]
enum Damaged {
    Claim,
    Checkpoint,
}

/// A scrub with a damaged place to repair once overwrote the claim and the checkpoints of the process that had taken
/// the pool.
#[tokio::test(start_paused = true)]
async fn a_scrub_after_a_forced_import_suspends() {
    for damaged in [None, Some(Damaged::Claim), Some(Damaged::Checkpoint)] {
        let s = Shared::new(2, None);
        let first = s.create().await;
        let second = s.open(by_b).await.unwrap();
        let areas = first.members().get(DiskNumber(1)).unwrap().areas;
        // Damages a place that the second owner did not write.
        let place = match damaged {
            Some(Damaged::Claim) => Some(areas.claim_place(1)),
            Some(Damaged::Checkpoint) => Some(areas.checkpoint_0),
            None => None,
        };
        if let Some(place) = place {
            s.machine.scribble(SlotId(1), place.offset + 70, b"rot");
        }
        let before = (0..2).map(|n| s.machine.image(SlotId(n))).collect::<Vec<_>>();
        let claimed = Suspension::Claimed { by: host("b") };
        assert_eq!(first.scrub_metadata().await, Err(CommitError::Suspended(claimed.clone())));
        assert_eq!(first.suspended(), Some(claimed));
        assert!(
            before == (0..2).map(|n| s.machine.image(SlotId(n))).collect::<Vec<_>>(),
            "it wrote something"
        );
        second.rename("lake").await.unwrap();
        for claim in s.claims(&second).await {
            assert_eq!(claim.map(|c| (c.epoch, c.by)), Some((second.epoch(), host("b"))));
        }
        // The new owner repairs the damage itself.
        let found = second.scrub_metadata().await.unwrap();
        assert_eq!(found.is_empty(), damaged.is_none(), "{found:?}");
    }
}

/// The table of section C: a pool of two disks, one of which fails.
#[tokio::test(start_paused = true)]
async fn of_two_disks_one_dies() {
    for register in [None, Some(Register::default())] {
        let external = register.is_some();
        let s = Shared::new(2, register.clone());
        let pool = s.create().await;
        // While the pool runs: the failed voter is dropped, and the pool continues.
        s.machine.pull(SlotId(1), PowerCut::KeepAll);
        pool.rename("lake").await.unwrap();
        pool.read(|s| {
            assert_eq!(s.voters, [DiskNumber(0)].into());
            assert!(!s.is_present(DiskNumber(1)));
        });
        if let Some(register) = &register {
            let (_, value) = MemoryAuthority::new(&s.env, register).read().await.unwrap();
            assert_eq!((value.voters, value.absent), ([DiskNumber(0)].into(), [DiskNumber(1)].into()));
        }
        drop(pool);
        // After a restart the pool opens with the surviving disk.
        let pool = s.open(|_| {}).await.unwrap();
        assert_eq!(pool.read(|s| s.name.clone()), "lake");
        drop(pool);
        // With the failed disk only: its labels alone do not show that it is older, but the register names the
        // survivor.
        s.machine.pull(SlotId(0), PowerCut::KeepAll);
        s.machine.plug(SlotId(1));
        let refused = s.open(|_| {}).await.map(drop).unwrap_err();
        let OpenError::TooFewVoters { seen, voters, needed, missing, .. } = &refused else {
            panic!("{refused}");
        };
        let expected = if external { (0, 1, 1) } else { (1, 2, 2) };
        assert_eq!((*seen, *voters, *needed), expected);
        assert_eq!(missing.iter().map(|(d, _)| *d).collect::<Vec<_>>(), [DiskNumber(0)]);
        // The loss may be accepted.
        let stale = s.open(|o| o.accept_loss = true).await.unwrap();
        assert_eq!(stale.read(|s| s.name.clone()), "tank");
    }
}

/// The last row of the table: the halves are separated, each on a machine that sees one disk.
#[tokio::test(start_paused = true)]
async fn of_two_halves_the_first_that_the_register_takes_opens() {
    for register in [None, Some(Register::default())] {
        let s = Shared::new(2, register.clone());
        s.create().await.export().await.unwrap();
        let half = async |disk: usize, name: &str| {
            let disks = [s.disks().swap_remove(disk)];
            let authority = s.authority().map(|a| a as Arc<dyn PoolAuthority>);
            let options = OpenOptions::new(host(name));
            Pool::open_under(authority, &s.env, &s.arena, &disks, &options).await.map(|o| o.pool)
        };
        let (a, b) = tokio::join!(half(0, "a"), half(1, "b"));
        match register {
            None => {
                let refused = |r: Result<Pool, OpenError>| matches!(r, Err(OpenError::TooFewVoters { .. }));
                assert!(refused(a) && refused(b));
            }
            Some(_) => {
                let (a, b) = (a.unwrap(), b.map(drop).unwrap_err());
                assert!(matches!(b, OpenError::Raced { .. } | OpenError::Held { .. }), "{b}");
                assert_eq!(a.read(|s| s.voters.clone()), [DiskNumber(0)].into());
                a.rename("lake").await.unwrap();
                // A later opening by force fails too, as long as the other half is the newer one.
                let late = OpenOptions { force: true, ..OpenOptions::new(host("b")) };
                let disks = [s.disks().swap_remove(1)];
                let authority = s.authority().map(|a| a as Arc<dyn PoolAuthority>);
                let late = Pool::open_under(authority, &s.env, &s.arena, &disks, &late).await.map(drop);
                assert!(matches!(late, Err(OpenError::TooFewVoters { seen: 0, .. })), "{late:?}");
            }
        }
    }
}

/// Even if a reply is lost, the register drops a voter before a record does, and only once.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_read_again() {
    for faults in [
        vec![Lost::LostReply],
        vec![Lost::TimeOut],
        vec![Lost::LostReply, Lost::TimeOut],
        vec![Lost::LostReply, Lost::LostReply, Lost::TimeOut, Lost::LostReply],
    ] {
        let register = Register::default();
        let s = Shared::new(2, Some(register.clone()));
        let new: Vec<_> = s.disks().into_iter().map(NewDisk::new).collect();
        let authority = s.authority().unwrap();
        authority.inject([Lost::LostReply]);
        let mine: Arc<dyn PoolAuthority> = Arc::clone(&authority) as _;
        let pool = Pool::create_under(Some(mine), &s.env, &s.arena, &new, options()).await.unwrap();
        pool.rename("pond").await.unwrap();
        s.machine.pull(SlotId(1), PowerCut::KeepAll);
        authority.inject(faults);
        pool.rename("lake").await.unwrap();
        let (revision, value) = authority.read().await.unwrap();
        assert_eq!(
            (revision, value.voters),
            (Revision(2), [DiskNumber(0)].into()),
            "each change was made once"
        );
        assert_eq!(pool.suspended(), None);
    }
}

/// An owner does not replace the value of a later owner, and its error names that owner.
#[tokio::test(start_paused = true)]
async fn a_register_refuses_the_owner_before() {
    let s = Shared::new(2, Some(Register::default()));
    let first = s.create().await;
    let second = s.open(by_b).await.unwrap();
    assert_eq!(second.epoch(), 2);
    s.machine.pull(SlotId(1), PowerCut::KeepAll);
    let claimed = Suspension::Claimed { by: host("b") };
    assert_eq!(first.rename("mine").await, Err(CommitError::Suspended(claimed)));
    second.rename("lake").await.unwrap();
    // The compare-and-set alone refuses, without a check of the lease.
    let authority = s.authority().unwrap();
    let (revision, now) = authority.read().await.unwrap();
    let stale = authority.compare_and_set(Revision(1), AuthorityValue::default()).await;
    assert_eq!(stale, Err(CasError::Conflict(revision, Box::new(now))));
}

/// Openings do not wait without need: the pool was exported, its owner's process has ended, or its owner is this
/// process.
#[tokio::test(start_paused = true)]
async fn only_an_import_from_an_owner_that_may_run_waits() {
    for register in [None, Some(Register::default())] {
        let s = Shared::new(3, register);
        let timed = async |change: &dyn Fn(&mut OpenOptions)| {
            let began = s.env.now();
            let pool = s.open(change).await.unwrap();
            (pool, s.env.now() - began)
        };
        let began = s.env.now();
        let pool = s.create().await;
        assert!(s.env.now() - began < Duration::from_millis(100));
        pool.export().await.unwrap();
        let soon = Duration::from_secs(1);
        let (pool, exported) = timed(&|o| o.by = host("b")).await;
        drop(pool);
        let (pool, restarted) = timed(&|o| {
            (o.by, o.is_running) = (Claimant { process: 8, ..host("b") }, |_| false);
        })
        .await;
        drop(pool);
        let (pool, rebooted) = timed(&|o| o.by = Claimant { process: 8, boot: [2; 16], ..host("b") }).await;
        assert!(exported.max(restarted).max(rebooted) < soon, "{exported:?} {restarted:?} {rebooted:?}");
        // Forced, although the owner has ended.
        drop(pool);
        let (pool, forced) = timed(&|o| {
            (o.by, o.force) = (Claimant { process: 9, boot: [2; 16], ..host("b") }, true);
            o.is_running = |_| false;
        })
        .await;
        assert!(forced < soon, "{forced:?}");
        let (_other, taken) = timed(&|o| o.force = true).await;
        assert!(taken >= Lease::WAIT && taken < Lease::WAIT + soon, "{taken:?}");
        drop(pool);
    }
}

/// A process imported the pool by force, and ended before it had opened the pool. Its claim does not prove that the
/// earlier owner has stopped.
#[tokio::test(start_paused = true)]
async fn an_import_after_one_that_was_cut_off_waits_too() {
    let s = Shared::new(2, None);
    let first = s.create().await;
    let cut_off = tokio::time::timeout(Duration::from_secs(3), s.open(by_b)).await;
    assert!(cut_off.is_err(), "it waits");
    let began = s.env.now();
    let again = s.open(|o| (o.by, o.is_running) = (Claimant { process: 9, ..host("b") }, |_| false)).await;
    assert!(s.env.now() - began >= Lease::WAIT);
    again.unwrap().rename("lake").await.unwrap();
    assert!(matches!(first.rename("mine").await, Err(CommitError::Suspended(Suspension::Claimed { .. }))));
}

/// The opened pool has the changes that the former owner acknowledged before its lease ended.
#[tokio::test(start_paused = true)]
async fn a_change_that_was_acknowledged_during_the_wait_counts() {
    for register in [None, Some(Register::default())] {
        let s = Shared::new(2, register);
        let first = s.create().await;
        let renames = async {
            let mut last = 0;
            for n in 1..100 {
                s.env.sleep(Duration::from_millis(100)).await;
                if first.rename(&n.to_string()).await.is_ok() {
                    last = n;
                }
            }
            last
        };
        let (second, last) = tokio::join!(s.open(by_b), renames);
        let name: i32 = second.unwrap().read(|s| s.name.parse()).unwrap();
        // The next change may have been made without being acknowledged.
        assert!(last > 1 && (last..=last + 1).contains(&name), "{last} {name}");
    }
}

/// One hanging disk of two does not suspend the pool: claims are read only from the disks to which a record would be
/// written.
#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_keeps_no_lease_from_being_renewed() {
    let s = Shared::new(2, None);
    let pool = s.create().await;
    let claim = pool.members().get(DiskNumber(1)).unwrap().areas.claim;
    let hangs = Rule::new(disk::Op::Read, When::From(0), Fault::Slow(Duration::from_secs(3600)));
    s.machine.rule(SlotId(1), hangs.within(claim.offset..claim.end()));
    s.env.sleep(Duration::from_secs(60)).await;
    let began = s.env.now();
    pool.rename("lake").await.unwrap();
    assert!(s.env.now() - began < Duration::from_secs(1));
    assert!(pool.read(|s| s.voters == BTreeSet::from([0, 1].map(DiskNumber))));
    pool.disk_failed(DiskNumber(1), Absence::ByCommand).await.unwrap();
}

/// The lease ends while a record is being written. The record is acknowledged after the lease is renewed, and later
/// records follow: no caller gets an error for a change that is made.
#[tokio::test(start_paused = true)]
async fn a_record_that_outlasts_the_lease_is_finished_when_it_is_renewed() {
    let s = Shared::new(2, Some(Register::default()));
    let new: Vec<_> = s.disks().into_iter().map(NewDisk::new).collect();
    let authority = s.authority().unwrap();
    let mine: Arc<dyn PoolAuthority> = Arc::clone(&authority) as _;
    let pool = Pool::create_under(Some(mine), &s.env, &s.arena, &new, options()).await.unwrap();
    let journal = pool.members().get(DiskNumber(0)).unwrap().areas.journal;
    let slow = Rule::new(disk::Op::Write, When::Nth(0), Fault::Slow(Duration::from_secs(8)));
    s.machine.rule(SlotId(0), slow.within(journal.offset..journal.end()));
    let (began, rename) = (s.env.now(), pool.rename("pond"));
    let times_out = async {
        s.env.sleep(Duration::from_millis(1)).await;
        authority.inject([Lost::TimeOut; 20]);
        let asks = async {
            loop {
                pool.metadata().tenure().holds();
                s.env.sleep(Duration::from_millis(100)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(9), asks).await;
        assert!(matches!(pool.suspended(), Some(Suspension::NoLease { .. })), "{:?}", pool.suspended());
        assert_ne!(pool.read(|s| s.name.clone()), "pond", "it was acknowledged without a lease");
    };
    let (renamed, ()) = tokio::join!(rename, times_out);
    assert_eq!((renamed, pool.suspended()), (Ok(()), None));
    assert!(s.env.now() - began > Duration::from_secs(9));
    pool.rename("lake").await.unwrap();
    drop(pool);
    let pool = s.open(|_| {}).await.unwrap();
    assert_eq!(pool.read(|s| s.name.clone()), "lake");
}

/// An export of a pool that another owner imported by force reports that owner, and keeps the new owner's claims.
#[tokio::test(start_paused = true)]
async fn an_export_after_a_forced_import_changes_nothing() {
    let s = Shared::new(2, None);
    let first = s.create().await;
    let second = s.open(by_b).await.unwrap();
    let claimed = Suspension::Claimed { by: host("b") };
    assert_eq!(first.export().await, Err(CommitError::Suspended(claimed)));
    for claim in s.claims(&second).await {
        assert_eq!(claim.map(|c| (c.by, c.exported)), Some((host("b"), false)));
    }
    second.rename("lake").await.unwrap();
}
