//! Tests of a space, on simulated disks and with a coordinator of its own.

mod cold;
mod conversions;
mod copies;
mod crashes;
mod discards;
mod failures;
mod faults;
mod findings;
mod implied_parity;
mod jobs;
mod lost_parity;
mod many_disks;
mod owners;
mod path;
mod requests;
mod stale_copies;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use arena::{Arena, Class, IoBuf, Sg};
use disk::sim::SlotId;
use disk::{PowerCut, sized};
use env::Io;
use pool_seam::{
    DiskNumber, JobId, JobOrder, Lease, NodeId, Owner, RejoinState, Resiliency, SeamError, UNIT,
};

use crate::cache::Budget;
use crate::owner::OpenDisk;
use crate::rig::{End, Model, Rig, Setup, fill, tell, virtual_time};
use crate::{Settings, Space, SpaceError};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Three data columns and one or two parities, on one disk more than they need.
fn coded(seed: u64, parity: u8) -> Setup {
    let disks = 4 + usize::from(parity);
    Setup { columns: 3, interleave: 16 << 10, ..Setup::new(seed, disks, Resiliency::Parity { parity }) }
}

/// A lease on the right to acknowledge, which a test grants and revokes.
pub(crate) struct TestLease(pub(crate) env::watch::Sender<bool>);

impl TestLease {
    pub(crate) fn new() -> TestLease {
        TestLease(env::watch::Sender::new(true))
    }
}

impl Lease for TestLease {
    fn holds(&self) -> bool {
        self.0.get()
    }
    fn hold(&self) -> Io<Result<(), SeamError>> {
        let mut lease = self.0.subscribe();
        if self.holds() {
            return Io::Done(Ok(()));
        }
        Io::pending(
            async move { lease.wait_for(|holds| *holds).await.map(drop).map_err(|_| SeamError::Moved) },
        )
    }
}

/// A space with its owner, and the model of its units' contents.
struct World {
    rig: Rig,
    space: Space,
    lease: Arc<TestLease>,
    arena: Arena,
    model: parking_lot::Mutex<Model>,
    _owner: Arc<dyn Owner>,
}

impl World {
    async fn new(setup: &Setup) -> World {
        let rig = Rig::new(setup);
        let model = Model::new(&rig.machine);
        World::open(rig, model).await
    }

    async fn open(rig: Rig, model: Model) -> World {
        let disks = rig.clone();
        World::open_with(rig, model, Box::new(move |disk, of| disks.open_disk(disk, of))).await
    }

    /// [`World::new`] for an existing rig, with this function to open the disks.
    async fn open_with(rig: Rig, model: Model, open: OpenDisk) -> World {
        let lease = Arc::new(TestLease::new());
        let arena = Arena::new(64 << 20).expect("memory");
        let settings = Settings {
            env: rig.env.clone(),
            arena: arena.clone(),
            node: NodeId(0),
            budget: Budget::new(1 << 20),
            hang: Duration::from_secs(10),
            retries: Arc::default(),
            coordinator: Arc::new(rig.clone()),
            lease: Arc::<TestLease>::clone(&lease),
            open,
        };
        let space = Space::open(settings, rig.view_now()).await.expect("a space that opens");
        let owner: Arc<dyn Owner> = Arc::new(space.clone());
        rig.set_owner(Arc::downgrade(&owner));
        let model = parking_lot::Mutex::new(model);
        World { rig, space, lease, arena, model, _owner: owner }
    }

    /// From now on each call to a disk takes up to this long, so that calls do not complete in the order in which
    /// they began.
    fn shuffle(&self, most: Duration) {
        (0..self.rig.machine.slots()).for_each(|slot| self.rig.machine.shuffle(SlotId(slot), most));
    }

    /// The same machine after a power cut, changed by `change` before it is opened.
    async fn crashed(self, cut: PowerCut, change: impl FnOnce(&Rig)) -> World {
        self.rig.machine.cut(cut);
        let rig = self.rig.restarted();
        change(&rig);
        let model = self.model.lock().after_crash(u64::MAX, &rig.machine);
        drop(self);
        World::open(rig, model).await
    }

    /// Closes the space and opens it again, so that nothing of it is in memory.
    async fn reopened(self) -> World {
        self.space.close().wait().await.unwrap();
        let rig = self.rig.restarted();
        let model = self.model.lock().after_crash(u64::MAX, &rig.machine);
        drop(self);
        World::open(rig, model).await
    }

    /// Takes a disk out of service, unless it is needed; its unflushed writes are lost, and it returns after a pause.
    async fn pull_and_return(&self, disk: u16, pause: Duration) -> bool {
        if self.rig.remove_disk(DiskNumber(disk)).await.is_err() {
            return false;
        }
        self.rig.machine.pull(SlotId(disk.into()), PowerCut::LoseAll);
        self.rig.env.sleep(pause).await;
        self.rig.return_disk(DiskNumber(disk)).await.unwrap();
        true
    }

    /// Reads the units after a crash: from then on the model allows only the values that were read.
    async fn settle(&self, units: std::ops::Range<u64>, what: &str) {
        for unit in units {
            let bytes = self.bytes(unit..unit + 1).await;
            let bytes = bytes.unwrap_or_else(|error| panic!("{what}, unit {unit}: {error}"));
            let checked = self.model.lock().check(unit, &bytes[0]);
            checked.unwrap_or_else(|error| panic!("{what}: {error}"));
            let (_, version) = tell(&bytes[0]).expect("it was checked");
            self.model.lock().settled(unit, version);
        }
    }

    /// Writes units, and updates the model.
    async fn write(&self, units: std::ops::Range<u64>, through: bool) -> Result<(), SpaceError> {
        let version = self.model.lock().write_begun(units.clone());
        let src: Sg = units.clone().map(|unit| fill(unit, version)).collect();
        let result = self.space.write(units.start * UNIT, src, through).wait().await;
        let end = match (&result, through) {
            (Ok(()), false) => End::Done,
            (Ok(()), true) => End::Durable,
            (Err(_), _) => End::Failed,
        };
        self.model.lock().ended(version, end);
        result
    }

    /// Discards units, and updates the model.
    async fn discard(&self, units: std::ops::Range<u64>) -> Result<(), SpaceError> {
        let version = self.model.lock().discard_begun(units.clone());
        let result = self.space.discard(units.start * UNIT, (units.end - units.start) * UNIT).wait().await;
        self.model.lock().ended(version, if result.is_ok() { End::Done } else { End::Failed });
        result
    }

    async fn flush(&self) -> Result<(), SpaceError> {
        let flush = self.model.lock().flush_begun();
        self.space.flush().wait().await?;
        self.model.lock().flushed(flush);
        Ok(())
    }

    /// Reads units, and compares them with the model, which may allow more values over time.
    async fn read(&self, units: std::ops::Range<u64>) -> Result<(), SpaceError> {
        let (before, begun) = {
            let model = self.model.lock();
            (units.clone().map(|unit| model.possible(unit)).collect::<Vec<_>>(), model.time())
        };
        let bytes = self.bytes(units.clone()).await?;
        let after = self.model.lock();
        for ((unit, bytes), before) in units.zip(bytes).zip(before) {
            let found = tell(&bytes).filter(|(of, version)| *of == unit || *version == 0);
            // A write that began and was replaced during the read is allowed too.
            let is_right = found.is_some_and(|(_, version)| version > begun || before.contains(&version));
            let result = after.check(unit, &bytes);
            assert!(is_right || result.is_ok(), "{result:?}, seen {:?}", tell(&bytes));
        }
        Ok(())
    }

    async fn bytes(&self, units: std::ops::Range<u64>) -> Result<Vec<IoBuf>, SpaceError> {
        let length = ((units.end - units.start) * UNIT) as usize;
        let dst = sized(self.arena.alloc_sg(length, Class::Control).await, length);
        let (result, read) = self.space.read(units.start * UNIT, dst).wait().await;
        result?;
        let bytes = read.iter().flat_map(|buffer| buffer.iter().copied()).collect::<Vec<u8>>();
        Ok(bytes.chunks(UNIT as usize).map(|unit| IoBuf::from(unit.to_vec())).collect())
    }
}
