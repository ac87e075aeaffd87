//! State shared by all runs of the server: the machine, the models of the spaces, and which disks are bad.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use disk::Image;
use disk::sim::{Machine, SlotId};
use env::Env;
use pool::Pool;
use pool_seam::{DiskNumber, JobId, NoPlace, SeamError, SpaceId};
use space::SpaceError;

use super::shape::Shape;
use crate::model::Model;
use crate::process::{Fences, ProcessState};
use crate::world::{OwnedSpace, World, slot_of};

/// Bytes of a disk.
pub(super) const DISK_BYTES: u64 = 64 << 20;

/// See the module.
pub(super) struct TestBed {
    pub(super) seed: u64,
    pub(super) shape: Shape,
    pub(super) env: Env,
    pub(super) machine: Machine,
    pub(super) models: Vec<RefCell<Model>>,
    /// Slots of bad disks; see [`crate::history`].
    pub(super) bad: RefCell<BTreeSet<usize>>,
    /// Bad disks that are not plugged in.
    pub(super) pulled: RefCell<BTreeSet<usize>>,
    /// Bad disks that were damaged or rolled back.
    pub(super) corrupted: RefCell<BTreeSet<usize>>,
    /// Rolled-back disks without further damage.
    pub(super) rolled_back: RefCell<BTreeSet<usize>>,
    /// The pool's numbers of the disks, by slot.
    pub(super) numbers: RefCell<BTreeMap<usize, DiskNumber>>,
    /// Images of the pool's disks at some moments, by slot, and whether the disk was damaged at that moment.
    pub(super) images: RefCell<Vec<BTreeMap<usize, (Image, bool)>>>,
    /// A change is running that keeps slabs allocated: a new row may find no room.
    pub(super) is_busy: Cell<bool>,
    /// A bad disk is being removed from the pool, which counts it until the removal is complete.
    pub(super) removes_bad: Cell<bool>,
    began: std::time::Instant,
    jobs: Cell<u64>,
    notes: RefCell<Vec<String>>,
}

/// A process that has opened the pool and owns all of its spaces.
pub(super) struct Server {
    pub(super) world: World,
    pub(super) pool: Pool,
    pub(super) spaces: Vec<OwnedSpace>,
}

impl TestBed {
    pub(super) async fn create(seed: u64, shape: Shape) -> (TestBed, Server) {
        let env = Env::simulated(seed);
        let machine = Machine::new(&env, seed);
        for n in 0..shape.disks {
            machine.add(&options(n.into()));
            if let Some(delay) = shape.delay {
                machine.shuffle(SlotId(n.into()), delay);
            }
        }
        let world = World::on(env.clone(), machine.clone(), Fences::new(shape.is_fenced));
        let pool = world.create().await;
        for record in &shape.spaces {
            pool.create_space(record.clone()).await.expect("a space");
        }
        let (models, bad, pulled, corrupted, numbers, images, is_busy, jobs, notes) = Default::default();
        let (removes_bad, rolled_back) = Default::default();
        let began = env.now();
        let bed = TestBed {
            seed,
            shape,
            env,
            machine,
            models,
            bad,
            pulled,
            corrupted,
            rolled_back,
            numbers,
            images,
            is_busy,
            removes_bad,
            began,
            jobs,
            notes,
        };
        bed.note(|| format!("{:?}", bed.shape));
        let numbers = pool.members().iter().map(|of| (slot_of(&*of.disk).0, of.number)).collect();
        *bed.numbers.borrow_mut() = numbers;
        let models = bed.shape.spaces.iter().map(|_| RefCell::default()).collect();
        let bed = TestBed { models, ..bed };
        let server = bed.own_all(world, pool).await.unwrap_or_else(|e| bed.fail(&format!("owning: {e}")));
        (bed, server)
    }

    /// Becomes the owner of all spaces of a pool.
    pub(super) async fn own_all(&self, world: World, pool: Pool) -> Result<Server, SpaceError> {
        if !self.corrupted.borrow().is_empty() {
            self.mirrored(Model::disk_was_corrupted);
        }
        let mut spaces = Vec::new();
        for number in 0..self.shape.spaces.len() {
            spaces.push(world.own(&pool, SpaceId(number as u32)).await?);
        }
        Ok(Server { world, pool, spaces })
    }

    /// Updates the models of all mirrored spaces.
    pub(super) fn mirrored(&self, what: impl Fn(&mut Model)) {
        let mirrored = self.models.iter().enumerate().filter(|(space, _)| self.shape.is_mirrored(*space));
        mirrored.for_each(|(_, model)| what(&mut model.borrow_mut()));
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let ms = self.env.now().saturating_duration_since(self.began).as_millis();
        let line = format!("event {}, {ms} ms: {}", self.machine.events(), what());
        if std::env::var_os("POOLSIM_NOTES").is_some() {
            eprintln!("{line}");
        }
        self.notes.borrow_mut().push(line);
    }

    /// [`TestBed::note`] for the many calls of users: only with `POOLSIM_NOTES`.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if std::env::var_os("POOLSIM_NOTES").is_some() {
            self.note(what);
        }
    }

    pub(super) fn fail(&self, what: &str) -> ! {
        let notes = self.notes.borrow();
        let newest = notes.len().saturating_sub(60);
        eprintln!("{}", notes[newest..].join("\n"));
        panic!("seed {}: {what}; bad {:?}", self.seed, self.bad.borrow());
    }

    pub(super) fn number(&self, slot: usize) -> Option<DiskNumber> {
        self.numbers.borrow().get(&slot).copied()
    }

    pub(super) fn job(&self) -> JobId {
        self.jobs.set(self.jobs.get() + 1);
        JobId(self.jobs.get())
    }

    /// Whether this disk may become bad, or bad again.
    pub(super) fn may_become_bad(&self, slot: usize) -> bool {
        let (bad, budget) = (self.bad.borrow(), self.shape.budget());
        let has_room = bad.len() < budget || bad.len() == budget && bad.contains(&slot);
        self.shape.has_mishaps && !self.removes_bad.get() && has_room
    }

    pub(super) fn mark_bad(&self, slot: usize) {
        self.bad.borrow_mut().insert(slot);
    }

    /// Whether a call may fail with this error: the machine is off, the process has ended, or a new row finds no
    /// room.
    pub(super) fn is_excused(&self, server: &Server, error: &SpaceError) -> bool {
        let is_over = !self.machine.is_on() || server.world.process.state() != ProcessState::Running;
        let has_no_place = matches!(error, SpaceError::Seam(SeamError::NoRoom(NoPlace::NoRoom { .. })));
        is_over || has_no_place && (!self.bad.borrow().is_empty() || self.is_busy.get())
    }

    /// Fails the test unless the error is excused.
    pub(super) fn fail_unless_excused(&self, server: &Server, what: &str, error: &SpaceError) {
        if !self.is_excused(server, error) {
            self.fail(&format!("{what}: {error}"));
        }
    }
}

pub(super) fn options(slot: usize) -> disk::MemoryOptions {
    disk::MemoryOptions::new(format!("disk{slot}"), DISK_BYTES)
}
