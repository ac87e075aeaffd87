//! The test environment of an owner of a space: a machine of simulated disks, a coordinator, and a model of the bytes
//! that its reads may return.
//!
//! **A run.** [`Rig::new`] lays out disks and a space without rows; its log has slabs, and its row is *new*, because
//! no owner has written a log yet. The owner gets `Arc::new(rig.clone())` as its [`pool_seam::Coordinator`] and
//! [`Rig::open_disk`] for its ports; then [`Rig::set_owner`]. Everything runs in [`virtual_time`].
//!
//! **The coordinator** carries out all of `docs/0004-spaces.md`, section B, for one space, in [`metadata`]. A record is
//! durable when its delay has passed, without I/O: it neither reads nor writes the disks. Each state is kept with the
//! number of events of the machine at that time.
//!
//! **A crash.** A test calls [`Rig::record`], runs the workload, and calls [`Rig::moments`]. For each moment and each
//! kind of power cut, [`Rig::after`] returns the rig as the next owner finds it, with the metadata of that moment.
//! [`Model::after_crash`] does the same for the expected bytes. After `machine.cut_at`, [`Rig::restarted`] returns
//! the next owner's rig.

mod coordinator;
mod disks;
mod metadata;
mod model;
mod tests;

use std::sync::{Arc, Weak};
use std::time::Duration;

use disk::sim::{CrashPoint, Machine, SlotId};
use disk::{DiskError, PowerCut};
use env::Env;
use parking_lot::Mutex;
use pool_seam::{
    DiskNumber, Finding, Membership, Owner, OwnerId, Provisioning, Resiliency, RowShape, SpaceView,
    Suspension,
};

pub(crate) use metadata::{Metadata, POOL, SPACE};
pub(crate) use model::{End, Model, fill, tell};

/// A pool with one space. Sizes are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    /// The size of each disk.
    pub(crate) disks: Vec<u64>,
    pub(crate) resiliency: Resiliency,
    /// Data columns of a row.
    pub(crate) columns: u8,
    pub(crate) interleave: u32,
    pub(crate) slab_bytes: u64,
    /// The size of the space.
    pub(crate) size: u64,
    pub(crate) provisioning: Provisioning,
    /// Replicas of the space's log, each on another disk, from disk 0 on.
    pub(crate) log_replicas: usize,
}

/// A machine and the coordinator of its pool; see the module. Clones share both.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) env: Env,
    pub(crate) machine: Machine,
    state: Arc<Mutex<State>>,
}

/// Injected faults of the coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// How long a record takes to become durable.
    pub(crate) delay: Duration,
    /// How many of a million messages are lost: half of these before they are carried out, the other half are
    /// replies.
    pub(crate) lost: u32,
    /// Why changes are refused, if they are.
    pub(crate) suspended: Option<Suspension>,
}

struct State {
    metadata: Metadata,
    /// Each state, with the number of events when it became durable.
    history: Vec<(u64, Metadata)>,
    owner: Option<Weak<dyn Owner>>,
    /// A disk whose mark the owner reads, with the membership that it is about to have.
    joining: Option<(DiskNumber, Membership)>,
    faults: Faults,
    /// Damage reported by owners.
    found: Vec<Finding>,
    /// Errors of disks that owners reported.
    failed: Vec<(DiskNumber, DiskError)>,
}

impl Setup {
    /// A setup with this many disks of 64 MiB, slabs of 2 MiB, a space of 16 MiB with one data column, and two
    /// replicas of its log (one if there is only one disk).
    ///
    /// `SPACE_SEED` is added to the seed, so that the same tests run other histories (`scripts/soak`).
    pub(crate) fn new(seed: u64, disks: usize, resiliency: Resiliency) -> Setup {
        let other =
            std::env::var("SPACE_SEED").map_or(0, |seed| seed.parse().expect("SPACE_SEED is a number"));
        Setup {
            seed: seed + other,
            disks: vec![64 << 20; disks],
            resiliency,
            columns: 1,
            interleave: 64 << 10,
            slab_bytes: 2 << 20,
            size: 16 << 20,
            provisioning: Provisioning::Thin,
            log_replicas: disks.min(2),
        }
    }
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { delay: Duration::from_millis(2), lost: 0, suspended: None }
    }
}

impl Rig {
    /// A new machine, and a space that has no data. In [`virtual_time`] only.
    pub(crate) fn new(setup: &Setup) -> Rig {
        let env = Env::simulated(setup.seed);
        let machine = Machine::new(&env, setup.seed);
        for (number, size) in setup.disks.iter().enumerate() {
            machine.add(&disk::MemoryOptions::new(format!("disk{number}"), *size));
        }
        Rig::on(env, machine, Metadata::new(setup))
    }

    fn on(env: Env, machine: Machine, metadata: Metadata) -> Rig {
        let state = State {
            history: vec![(0, metadata.clone())],
            metadata,
            owner: None,
            joining: None,
            faults: Faults::default(),
            found: Vec::new(),
            failed: Vec::new(),
        };
        Rig { env, machine, state: Arc::new(Mutex::new(state)) }
    }

    /// The current owner's id.
    pub(crate) fn owner_id(&self) -> OwnerId {
        self.state.lock().metadata.owner()
    }

    /// The current view.
    pub(crate) fn view_now(&self) -> Arc<SpaceView> {
        self.state.lock().metadata.view()
    }

    /// The owner that the coordinator calls when a disk is removed or joins.
    pub(crate) fn set_owner(&self, owner: Weak<dyn Owner>) {
        self.state.lock().owner = Some(owner);
    }

    /// Gives the space to another owner: calls of the present one are `Deposed` from now on.
    pub(crate) fn next_owner(&self) -> OwnerId {
        let mut state = self.state.lock();
        state.owner = None;
        state.record(&self.machine, |metadata| metadata.hand_over());
        state.metadata.owner()
    }

    /// Sets the number of copies of new rows; existing rows keep theirs until they are reshaped.
    pub(crate) fn set_resiliency(&self, to: Resiliency) {
        self.change(|metadata| metadata.set_shape(RowShape { resiliency: to, ..metadata.record.shape() }));
    }

    /// Sets the shape of new rows; a job converts the others.
    pub(crate) fn set_shape(&self, to: RowShape) {
        self.change(|metadata| metadata.set_shape(to));
    }

    /// Declares that a disk leaves the pool for good.
    pub(crate) fn give_up(&self, disk: DiskNumber) {
        self.change(|metadata| metadata.give_up(disk));
    }

    /// Changes the metadata, and shows it to the owner.
    fn change(&self, change: impl FnOnce(&mut Metadata)) {
        let mut state = self.state.lock();
        state.record(&self.machine, change);
        let (owner, view) = (state.owner(), state.metadata.view());
        drop(state);
        if let Some(owner) = owner {
            owner.update(view);
        }
    }

    /// The damage that the owner has reported so far.
    pub(crate) fn found(&self) -> Vec<Finding> {
        self.state.lock().found.clone()
    }

    /// Errors of disks that the owner has reported so far.
    pub(crate) fn failed(&self) -> Vec<(DiskNumber, DiskError)> {
        self.state.lock().failed.clone()
    }

    /// Sets the coordinator's faults.
    pub(crate) fn faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Records the moments before all further events.
    pub(crate) fn record(&self) {
        self.machine.record();
    }

    /// Ends the recording: a moment for each event since it began, and the present one.
    pub(crate) fn moments(&self) -> Vec<CrashPoint> {
        self.machine.end_recording()
    }

    /// The machine after a power cut at that moment, as the next owner finds it: the metadata is that of the moment,
    /// opened again, and pulled disks are back in their slots. The rig has no faults and no owner.
    pub(crate) fn after(&self, moment: &CrashPoint, cut: PowerCut) -> Rig {
        let env = Env::simulated(moment.event);
        let machine = moment.cut(&env, cut);
        let metadata = {
            let state = self.state.lock();
            state.history.iter().rfind(|(at, _)| *at <= moment.event).expect("the first state").1.opened()
        };
        (0..machine.slots()).for_each(|slot| machine.plug(SlotId(slot)));
        Rig::on(env, machine, metadata)
    }

    /// The same machine with its power restored, as the next owner finds it.
    pub(crate) fn restarted(&self) -> Rig {
        self.machine.restart();
        let metadata = self.state.lock().metadata.opened();
        Rig::on(self.env.clone(), self.machine.clone(), metadata)
    }
}

impl State {
    /// Changes the metadata in one durable record.
    fn record(&mut self, machine: &Machine, change: impl FnOnce(&mut Metadata)) {
        self.metadata.version.number += 1;
        change(&mut self.metadata);
        self.history.push((machine.events(), self.metadata.clone()));
    }
}

/// Runs a test on a runtime of its own, whose time advances when all tasks wait.
pub(crate) fn virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
