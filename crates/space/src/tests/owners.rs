//! Rule 15: two owners of a space at the same time. The earlier owner is not notified of the other, and has a valid
//! lease: only the disks and the coordinator refuse it.
//!
//! `SPACE_PLANT=no_fence` plants a bug: the owners' handles of a disk share no gate.

use std::cell::Cell;
use std::collections::BTreeMap;

use arena::{SgMut, sg_len};
use disk::{Disk, DiskError, DiskInfo, Gate, IoRange, Op};
use env::{Ctx, Epoch};
use futures_util::future::join_all;
use parking_lot::Mutex;
use pool_seam::Membership;

use super::*;

/// The gates of the disks, shared by the handles of all owners, as in a pool.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<BTreeMap<DiskNumber, Arc<Gate>>>>);

struct Gated {
    gate: Arc<Gate>,
    below: Arc<dyn Disk>,
}

impl Gates {
    fn open(&self, rig: &Rig) -> impl Fn(DiskNumber, Membership) -> Option<Arc<dyn Disk>> + use<> {
        let (gates, rig) = (self.clone(), rig.clone());
        move |disk, of| {
            let below = rig.open_disk(disk, of)?;
            let gate = match std::env::var("SPACE_PLANT").is_ok_and(|plant| plant == "no_fence") {
                true => Arc::default(),
                false => Arc::clone(gates.0.lock().entry(disk).or_default()),
            };
            Some(Arc::new(Gated { gate, below }))
        }
    }
}

impl Gated {
    /// A call that holds a pass until it has ended.
    fn call<T: Send + 'static>(
        &self,
        c: &Ctx,
        at: IoRange,
        refused: impl FnOnce(DiskError) -> T,
        begin: impl FnOnce(&dyn Disk) -> Io<T>,
    ) -> Io<T> {
        let pass = match self.gate.enter(c, at) {
            Ok(pass) => pass,
            Err(error) => return Io::Done(refused(error)),
        };
        let io = begin(&*self.below);
        Io::pending(async move {
            let result = io.wait().await;
            drop(pass);
            result
        })
    }
}

impl Disk for Gated {
    fn info(&self) -> &DiskInfo {
        self.below.info()
    }
    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let at = IoRange::new(Op::Read, offset, dst.iter().map(|part| part.len() as u64).sum());
        match self.gate.enter(c, at) {
            Err(error) => Io::Done((Err(error), dst)),
            Ok(pass) => {
                let io = self.below.read(c, offset, dst);
                Io::pending(async move {
                    let result = io.wait().await;
                    drop(pass);
                    result
                })
            }
        }
    }
    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        self.call(c, at, Err, |disk| disk.write(c, offset, src))
    }
    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        self.call(c, IoRange::whole(Op::Flush), Err, |disk| disk.flush(c))
    }
    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        self.call(c, IoRange::new(Op::Discard, offset, length), Err, |disk| disk.discard(c, offset, length))
    }
    fn fence(&self, _: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        self.gate.fence(epoch)
    }
}

/// SplitMix64, seeded by the test.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
}

fn somewhere(random: &mut Random) -> std::ops::Range<u64> {
    // The ends of rows of one data column and of three.
    let first = [0, 508, 1532][random.below(3) as usize] + random.below(8);
    first..first + 1 + random.below(4)
}

/// Works without end; no write or flush may be acknowledged after another owner has opened the space. A discard may
/// be: it is not durable before a flush, and needs no disk.
async fn user(world: &World, is_deposed: &Cell<bool>, acknowledged: &Cell<usize>, mut random: Random) {
    loop {
        world.rig.env.sleep(Duration::from_micros(random.below(3000))).await;
        let units = somewhere(&mut random);
        let (what, result) = match random.below(6) {
            0 => ("flush", world.flush().await),
            1 => ("durable write", world.write(units, true).await),
            2 => ("discard", world.discard(units).await),
            _ => ("write", world.write(units, false).await),
        };
        let is_discard = what == "discard";
        assert!(
            !is_deposed.get() || is_discard || result.is_err(),
            "a {what} was acknowledged by an owner that was deposed"
        );
        acknowledged.set(acknowledged.get() + usize::from(result.is_ok() && !is_discard));
    }
}

/// The next owner's work.
async fn work(world: &World, mut random: Random) {
    for _ in 0..60 {
        let units = somewhere(&mut random);
        match random.below(5) {
            0 => world.flush().await.unwrap(),
            1 => world.write(units, true).await.unwrap(),
            2 => world.read(units).await.unwrap(),
            3 => world.space.checkpoint().await.unwrap(),
            _ => world.write(units, false).await.unwrap(),
        }
        world.rig.env.sleep(Duration::from_micros(random.below(3000))).await;
    }
    world.flush().await.unwrap();
}

fn used() -> impl Iterator<Item = u64> {
    [0, 508, 1532].into_iter().flat_map(|first| first..first + 12)
}

#[test]
fn an_owner_that_is_not_told_of_the_next_one_changes_nothing() {
    let kinds = |seed| [Setup::new(seed, 3, MIRROR), coded(seed, 1)];
    for setup in (0..12).flat_map(kinds) {
        virtual_time(async {
            let what = format!("seed {}, {:?}", setup.seed, setup.resiliency);
            let rig = Rig::new(&setup);
            let gates = Gates::default();
            let model = Model::new(&rig.machine);
            let old = World::open_with(rig.clone(), model, Box::new(gates.open(&rig))).await;
            old.shuffle(Duration::from_millis(4));
            let mut random = Random(setup.seed);
            let (is_deposed, acknowledged) = (Cell::new(false), Cell::new(0));
            let users = join_all(
                (0..4).map(|n| user(&old, &is_deposed, &acknowledged, Random(setup.seed * 10 + n + 1))),
            );
            let next = async {
                rig.env.sleep(Duration::from_micros(100_000 + random.below(60_000))).await;
                rig.next_owner();
                let model = Model::new(&rig.machine);
                let new = World::open_with(rig.clone(), model, Box::new(gates.open(&rig))).await;
                is_deposed.set(true);
                let before = acknowledged.get();
                // Writes in flight at the fence may have happened or not.
                *new.model.lock() = old.model.lock().after_crash(u64::MAX, &rig.machine);
                // The new owner's values must differ from those that the earlier owner still writes.
                new.model.lock().skip(1 << 20);
                for unit in used() {
                    new.settle(unit..unit + 1, &what).await;
                }
                work(&new, random).await;
                for unit in used() {
                    new.read(unit..unit + 1).await.unwrap();
                }
                assert_eq!(acknowledged.get(), before, "{what}");
                (new, before)
            };
            let (new, before) = tokio::select! {
                biased;
                done = next => done,
                _ = users => unreachable!("they work for ever"),
            };
            assert!(before > 0, "{what}: the earlier owner did something");
            // Late I/O of the earlier owner must have no effect.
            let new = new.crashed(PowerCut::KeepAll, |_| {}).await;
            for unit in used() {
                new.read(unit..unit + 1).await.unwrap();
            }
        });
    }
}
