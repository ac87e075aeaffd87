//! Owners that fight for a pool: each on a machine of its own with the same disks. The disks refuse no owner's writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use disk::sim::{Fault, Machine, Rule, SlotId, When};
use disk::{Disk, DiskError, MemoryOptions, Op};
use env::{Ctx, Env};
use parking_lot::Mutex;

use super::world::{SPACE, Site};
use super::{Random, arena, in_virtual_time};
use crate::authority::Lease;
use crate::format::Claimant;
use crate::{
    CreateOptions, DataPath, DiskNumber, MediaClass, NewDisk, OpenError, OpenOptions, PathOptions, Pool,
    Provisioning, Resiliency, RowNumber, SpaceRecord, Suspension, UNIT,
};

const OPTIONS: PathOptions = PathOptions { tables: 8, log_entries: 4, read_only: false };

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

/// An owner, or one that was.
struct Owner {
    pool: Pool,
    site: Site,
}

fn by(name: &str) -> Claimant {
    Claimant { host: name.into(), machine: [name.as_bytes()[0]; 16], boot: [1; 16], process: 7 }
}

fn machine(env: &Env, seed: u64, disks: usize) -> Machine {
    let machine = Machine::new(env, seed);
    for n in 0..disks {
        machine.add(&MemoryOptions::new(format!("disk{n}"), 32 << 20));
    }
    machine
}

fn disks(machine: &Machine) -> Vec<Arc<dyn Disk>> {
    (0..machine.slots()).map(|n| machine.open(SlotId(n)).expect("it is there") as Arc<dyn Disk>).collect()
}

async fn owner(env: &Env, machine: &Machine, pool: Pool) -> Option<Owner> {
    let path = DataPath::of_pool(&pool, env.clone(), arena(), OPTIONS).await.ok()?;
    let space = path.space(SPACE).ok()?;
    Some(Owner { pool, site: Site { env: env.clone(), machine: machine.clone(), space } })
}

async fn create(env: &Env, machine: &Machine, resiliency: Resiliency) -> Owner {
    let new: Vec<NewDisk> = disks(machine).into_iter().map(NewDisk::new).collect();
    let options = CreateOptions { name: "tank".into(), slab_bytes: Some(2 << 20), by: by("a") };
    let pool = Pool::create(env, &arena(), &new, options).await.expect("a pool");
    let record = SpaceRecord {
        name: "space".into(),
        size: 8 << 20,
        resiliency,
        interleave: 64 << 10,
        columns: if resiliency == PARITY { 2 } else { 1 },
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    };
    assert_eq!(pool.create_space(record).await, Ok(SPACE));
    owner(env, machine, pool).await.expect("a data path")
}

/// The same with flushed writes, made twice so that the row is there and its regions are marked.
async fn create_and_write(env: &Env, machine: &Machine, resiliency: Resiliency) -> Owner {
    let owner = create(env, machine, resiliency).await;
    for value in [1, 2] {
        owner.site.write(0..4, &[value; 4]).await.expect("a write");
        owner.flush().await.expect("a flush");
    }
    owner
}

async fn take(env: &Env, machine: &Machine, name: &str) -> Result<Pool, OpenError> {
    let options = OpenOptions { force: true, ..OpenOptions::new(by(name)) };
    Pool::open(env, &arena(), &disks(machine), &options).await.map(|o| o.pool)
}

impl Owner {
    async fn flush(&self) -> Result<(), DiskError> {
        self.site.space.flush(&Ctx::default()).wait().await
    }

    async fn discard(&self, unit: u64) -> Result<(), DiskError> {
        self.site.space.discard(&Ctx::default(), unit * UNIT, UNIT).wait().await
    }
}

/// The data path once never looked whether its pool was still its own, and regions that were marked need no metadata.
#[test]
fn an_owner_without_a_lease_acknowledges_nothing() {
    // A flush of parity has nothing left to flush on the disks.
    for (resiliency, slow) in [(MIRROR, Op::Write), (MIRROR, Op::Flush), (PARITY, Op::Write)] {
        in_virtual_time(async {
            let env = Env::simulated(1);
            let machine = machine(&env, 1, 3);
            let first = create_and_write(&env, &machine, resiliency).await;
            first.site.write(1..2, &[3]).await.expect("a write");
            let second = take(&env, &machine, "b");
            // A call that is outstanding when the lease ends.
            let late = async {
                env.sleep(Duration::from_millis(100)).await;
                let areas = first.pool.members().get(DiskNumber(0)).expect("a disk").areas;
                for n in 0..3 {
                    let rule = Rule::new(slow, When::Nth(0), Fault::Slow(Duration::from_secs(6)));
                    let data = areas.slabs.offset..areas.slabs.end();
                    machine.rule(SlotId(n), if slow == Op::Write { rule.within(data) } else { rule });
                }
                match slow {
                    Op::Write => first.site.write(1..2, &[3]).await,
                    _ => first.flush().await,
                }
            };
            let (second, late) = futures_util::future::join(second, late).await;
            let second = second.expect("it opens");
            late.expect_err("its owner has no lease when it ends");
            let second = owner(&env, &machine, second).await.expect("a data path");
            second.site.write(2..3, &[4]).await.expect("the owner's");
            second.flush().await.expect("a flush");
            let images = || (0..3).map(|n| machine.image(SlotId(n))).collect::<Vec<_>>();
            let before = images();
            first.site.write(0..1, &[5]).await.expect_err("a write");
            first.site.write(0..4, &[6; 4]).await.expect_err("a long write");
            first.flush().await.expect_err("a flush");
            first.discard(0).await.expect_err("a discard");
            let path = &first.site.space.path;
            path.discard_slabs(path.slabs(SPACE, RowNumber(0))).await;
            let through =
                Ctx { flags: env::IoFlags { write_through: true, ..Default::default() }, ..Ctx::default() };
            let bytes = [arena::IoBuf::from(super::world::bytes(7))].into_iter().collect();
            first.site.space.write(&through, 0, bytes).wait().await.expect_err("a write and flush");
            assert!(before == images(), "it wrote something all the same");
            assert_eq!(first.pool.suspended(), Some(Suspension::Claimed { by: by("b") }));
            let read = second.site.read(0..4).await.expect("a read");
            assert_eq!((read[0], read[2], read[3]), (2, 4, 2));
            assert!([2, 3].contains(&read[1]), "old or new: {read:?}");
        });
    }
}

/// An owner whose disks do not answer for longer than its lease resumes by itself, if no other has claimed the pool.
#[test]
fn an_owner_that_is_confirmed_again_resumes() {
    for resiliency in [MIRROR, PARITY] {
        in_virtual_time(async {
            let env = Env::simulated(1);
            let machine = machine(&env, 1, 3);
            let first = create_and_write(&env, &machine, resiliency).await;
            let claim = first.pool.members().get(DiskNumber(0)).expect("a disk").areas.claim;
            for n in 0..3 {
                let fails = Rule::new(Op::Read, When::From(0), Fault::Error);
                machine.rule(SlotId(n), fails.within(claim.offset..claim.end()));
            }
            env.sleep(Lease::LENGTH).await;
            let began = env.now();
            let write = first.site.write(0..1, &[3]);
            let well = async {
                env.sleep(Duration::from_secs(10)).await;
                assert!(
                    matches!(first.pool.suspended(), Some(Suspension::NoLease { failed }) if failed.len() == 3)
                );
                (0..3).for_each(|n| machine.no_rules(SlotId(n)));
            };
            let (written, ()) = futures_util::future::join(write, well).await;
            written.expect("it was held back, and then made");
            assert!(env.now() - began < Duration::from_secs(12));
            assert_eq!(first.pool.suspended(), None);
            assert_eq!(first.site.read(0..1).await, Ok(vec![3]));
        });
    }
}

/// What all owners do to the units, as one that sees everything knows it.
#[derive(Default)]
struct Fight {
    next: u64,
    /// The newest owner that has opened the pool.
    newest: u64,
    units: BTreeMap<u64, Unit>,
    acknowledged: u64,
    refused: u64,
}

/// The values that a unit was to have, by its owner at that time, in order.
#[derive(Clone)]
struct Unit {
    values: Vec<u64>,
    /// Those before this one cannot be read any more.
    acknowledged: usize,
    /// Nor by later owners.
    flushed: usize,
}

impl Fight {
    /// An owner has opened the pool.
    fn opens(&mut self, epoch: u64) {
        if epoch > self.newest {
            self.newest = epoch;
            // As after a crash: what was not flushed is old or new.
            self.units.values_mut().for_each(|u| u.acknowledged = u.flushed);
        }
    }

    /// An owner begins to write a fresh value. What is written by one that has been followed must never be read.
    fn begins(&mut self, unit: u64, epoch: u64) -> u64 {
        self.next += 1;
        if self.newest == epoch {
            let new = Unit { values: vec![0], acknowledged: 0, flushed: 0 };
            self.units.entry(unit).or_insert(new).values.push(self.next);
        }
        self.next
    }

    fn acknowledges(&mut self, epoch: u64, what: &str) {
        assert_eq!(self.newest, epoch, "{what} was acknowledged after the next owner had opened the pool");
        self.acknowledged += 1;
    }
}

const UNITS: u64 = 12;

/// Writes, flushes and reads for a while, also when another has the pool. Each unit has one user.
async fn works(owner: &Owner, fight: &Mutex<Fight>, seed: u64) {
    let (mut random, epoch, env) = (Random(seed), owner.pool.epoch(), owner.site.env.clone());
    fight.lock().opens(epoch);
    for _ in 0..60 {
        env.sleep(Duration::from_millis(random.below(600))).await;
        let unit = random.below(UNITS);
        match random.below(4) {
            0 => {
                let before: Vec<_> =
                    fight.lock().units.iter().map(|(unit, u)| (*unit, u.acknowledged)).collect();
                if owner.flush().await.is_ok() {
                    let mut fight = fight.lock();
                    fight.acknowledges(epoch, "a flush");
                    for (unit, acknowledged) in before {
                        let u = fight.units.get_mut(&unit).expect("it is there");
                        u.flushed = u.flushed.max(acknowledged);
                    }
                }
            }
            1 => {
                let read = owner.site.read(unit..unit + 1).await;
                let fight = fight.lock();
                if fight.newest == epoch && owner.pool.suspended().is_none() {
                    let value = read.unwrap_or_else(|e| panic!("seed {seed}: {e}"))[0];
                    let may = fight.units.get(&unit).map_or(&[0][..], |u| &u.values[u.acknowledged..]);
                    assert!(may.contains(&value), "seed {seed}: unit {unit} is {value}, not one of {may:?}");
                }
            }
            _ => {
                let value = fight.lock().begins(unit, epoch);
                let result = owner.site.write(unit..unit + 1, &[value]).await;
                let mut fight = fight.lock();
                match result {
                    Ok(()) => {
                        fight.acknowledges(epoch, "a write");
                        let u = fight.units.get_mut(&unit).expect("it is there");
                        u.acknowledged = u.values.iter().position(|v| *v == value).expect("it is there");
                    }
                    Err(_) => fight.refused += 1,
                }
            }
        }
    }
}

/// Forced imports at any moment, also two at a time.
fn fights(seed: u64) -> (u64, u64, u64) {
    in_virtual_time(async {
        let env = Env::simulated(seed);
        let count = 2 + seed as usize % 2;
        let machine = machine(&env, seed, count.max(2 + usize::from(seed.is_multiple_of(3))));
        let resiliency = if machine.slots() == 3 && seed.is_multiple_of(3) { PARITY } else { MIRROR };
        let first = create(&env, &machine, resiliency).await;
        for n in 0..machine.slots() {
            machine.shuffle(SlotId(n), Duration::from_millis(30));
        }
        let fight = Mutex::new(Fight::default());
        let taker = async |name: &str, mut random: Random| {
            env.sleep(Duration::from_millis(random.below(25_000))).await;
            let Ok(pool) = take(&env, &machine, name).await else { return 0 };
            let Some(owner) = owner(&env, &machine, pool).await else { return 0 };
            works(&owner, &fight, random.next()).await;
            1
        };
        let random = |n: u64| Random(seed ^ n << 40);
        let (_, b, c) =
            tokio::join!(works(&first, &fight, seed), taker("b", random(1)), taker("c", random(2)),);
        let fight = fight.lock();
        (b + c, fight.acknowledged, fight.refused)
    })
}

#[test]
fn of_owners_that_fight_the_newest_alone_acknowledges() {
    let all = (0..60).map(fights).fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    let (taken, acknowledged, refused) = all;
    assert!(taken > 60 && acknowledged > 2000 && refused > 500, "{all:?}");
}
