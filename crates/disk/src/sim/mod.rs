//! A simulated machine: disks with seeded faults and a common power switch, for crash tests of storage code.
//!
//! **What it is.** [`Machine`] has slots with disks ([`MemoryOptions`]). [`Machine::open`] returns a
//! [`FaultyDisk`] for a slot; [`Machine::rule`] adds a fault there; [`Machine::cut_at`] cuts the power of all
//! disks at the k-th event. A seed replays byte for byte if everything else in the run is deterministic too.
//!
//! **Events.** Each write, flush and discard is one event, counted over all disks from 0 at the time it takes
//! effect. At a cut at event k, k events are complete and number k is outstanding: it may take effect, also
//! in part, and fails with [`DiskError::Gone`] like everything after it.
//!
//! **A crash test** either runs the workload once for each k:
//!
//! 1. run without a cut; [`Machine::events`] is how many there are;
//! 2. for each k: a new machine of the same seed, [`Machine::cut_at`] k, the workload until it fails,
//!    [`Machine::restart`], open, recover, compare with what was acknowledged;
//!
//! Or, much faster, in one run: [`Machine::record`] keeps each [`CrashPoint`] (images share unchanged parts),
//! and [`CrashPoint::cut`] creates a machine that lost its power then; it can be called for every kind of
//! cut. The workload notes [`Machine::events`] at each acknowledgement: a cut at k must keep everything
//! acknowledged at k or before.
//!
//! **How a value lives.** A handle belongs to one opening of its disk: after a power cut or [`Machine::pull`]
//! it always returns [`DiskError::Gone`], so a handle from before a crash cannot write after it.
//!
//! **Faults.** [`Rule`]s fire on reads, writes, flushes and discards, by count or at random. Each has its own
//! random numbers, so an additional rule does not affect the others. [`Machine::log`] lists the faults that
//! fired.

mod crash_point;
mod disk;
mod rules;
mod slot;
#[cfg(test)]
mod tests;

pub use crash_point::CrashPoint;
pub use disk::FaultyDisk;
pub use rules::{Counts, Fault, Injected, Rule, When};

use std::sync::Arc;
use std::time::Duration;

use env::Env;
use parking_lot::Mutex;

use crate::store::Change;
use crate::{DiskError, Image, IoRange, MemoryOptions, Op, PowerCut};
use slot::Slot;

/// See the module. Clones refer to the same machine.
#[derive(Clone)]
pub struct Machine {
    env: Env,
    state: Arc<Mutex<State>>,
}

/// The slot of a disk, from 0 in the order of [`Machine::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub usize);

struct State {
    seed: u64,
    on: bool,
    events: u64,
    cut_at: Option<(u64, PowerCut)>,
    slots: Vec<Slot>,
    log: Vec<Injected>,
    crash_points: Option<Vec<CrashPoint>>,
}

impl Machine {
    /// A machine without disks and with its power on. Delays use the time of `env`.
    pub fn new(env: &Env, seed: u64) -> Machine {
        let state = State {
            seed,
            on: true,
            events: 0,
            cut_at: None,
            slots: Vec::new(),
            log: Vec::new(),
            crash_points: None,
        };
        Machine { env: env.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// Puts a new zeroed disk into the next slot.
    pub fn add(&self, options: &MemoryOptions) -> SlotId {
        let mut state = self.state.lock();
        let id = state.slots.len();
        let slot = Slot::new(options.info(), Image::new(), state.seed, id);
        state.slots.push(slot);
        SlotId(id)
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.state.lock().slots.len()
    }

    /// Opens the disk in a slot.
    ///
    /// # Errors
    /// [`DiskError::Gone`] if the power is off or the disk was pulled.
    pub fn open(&self, slot: SlotId) -> Result<Arc<FaultyDisk>, DiskError> {
        let state = self.state.lock();
        let s = &state.slots[slot.0];
        if !state.on || !s.present {
            return Err(DiskError::Gone { at: IoRange::new(Op::Read, 0, 0) });
        }
        Ok(Arc::new(FaultyDisk::new(self.clone(), slot, s.info.clone(), s.power_cycle)))
    }

    /// Adds a rule for a slot; `Nth` counts from now. Rules are evaluated in order, and the first that fires
    /// determines the fault.
    pub fn rule(&self, slot: SlotId, rule: Rule) {
        let mut state = self.state.lock();
        let seed = state.seed;
        state.slots[slot.0].add_rule(rule, seed);
    }

    /// Removes the rules of a slot.
    pub fn no_rules(&self, slot: SlotId) {
        self.state.lock().slots[slot.0].clear_rules();
    }

    /// Gives each I/O of a slot a random delay up to `longest` (whole milliseconds), so that they complete
    /// out of order.
    pub fn shuffle(&self, slot: SlotId, longest: Duration) {
        self.state.lock().slots[slot.0].shuffle = Some(longest);
    }

    /// The number of events so far; see the module.
    pub fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// The number of calls to a disk since it was inserted, over all its openings.
    pub fn counts(&self, slot: SlotId) -> Counts {
        self.state.lock().slots[slot.0].counts
    }

    /// Cuts the power just before event `event` takes effect.
    pub fn cut_at(&self, event: u64, cut: PowerCut) {
        self.state.lock().cut_at = Some((event, cut));
    }

    /// Cuts the power now.
    pub fn cut(&self, cut: PowerCut) {
        self.state.lock().power_off(cut);
    }

    /// Whether the power is on.
    pub fn is_on(&self) -> bool {
        self.state.lock().on
    }

    /// Restores the power; if it is on, cuts it first without losing data. Disks have the surviving data and
    /// can be opened again. Rules, marks and the event count are kept; a planned cut is cancelled.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.power_off(PowerCut::KeepAll);
        state.on = true;
        state.cut_at = None;
    }

    /// Pulls a disk out: its I/O fails, and `cut` determines what happens to unflushed writes.
    pub fn pull(&self, slot: SlotId, cut: PowerCut) {
        self.state.lock().pull(slot.0, cut);
    }

    /// Reinserts a pulled disk unchanged; it must be opened again.
    pub fn plug(&self, slot: SlotId) {
        self.state.lock().slots[slot.0].present = true;
    }

    /// Replaces the disk in a slot by another one with the content `image`.
    pub fn replace(&self, slot: SlotId, options: &MemoryOptions, image: Image) {
        let mut state = self.state.lock();
        state.pull(slot.0, PowerCut::LoseAll);
        let (seed, power_cycle) = (state.seed, state.slots[slot.0].power_cycle);
        let new = Slot::new(options.info(), image, seed, slot.0);
        state.slots[slot.0] = Slot { power_cycle, ..new };
    }

    /// The contents of the disk in a slot as reads see them, including unflushed writes. Cheap.
    pub fn image(&self, slot: SlotId) -> Image {
        self.state.lock().slots[slot.0].store.current.clone()
    }

    /// Saves the disk's contents for reads with [`Fault::Stale`].
    pub fn mark(&self, slot: SlotId) {
        let mut state = self.state.lock();
        let s = &mut state.slots[slot.0];
        s.mark = s.store.current.clone();
    }

    /// Changes bytes of the medium durably, without a call to the disk.
    pub fn scribble(&self, slot: SlotId, offset: u64, bytes: &[u8]) {
        self.state.lock().slots[slot.0]
            .overwrite(Change { offset, content: crate::store::Content::Bytes(bytes.to_vec()) });
    }

    /// Flips one bit of the medium.
    pub fn flip(&self, slot: SlotId, offset: u64, bit: u8) {
        let mut byte = self.image(slot).to_vec(offset, 1);
        byte[0] ^= 1 << (bit & 7);
        self.scribble(slot, offset, &byte);
    }

    /// Restores a range to its contents in `image`, as if later writes were lost.
    pub fn roll_back(&self, slot: SlotId, image: &Image, offset: u64, length: u64) {
        self.scribble(slot, offset, &image.to_vec(offset, length as usize));
    }

    /// Makes a range, extended to whole physical blocks, unreadable until it is rewritten.
    pub fn make_bad(&self, slot: SlotId, offset: u64, length: u64) {
        self.state.lock().slots[slot.0].make_bad(offset, length);
    }

    /// The faults that fired so far, in order.
    pub fn log(&self) -> Vec<Injected> {
        self.state.lock().log.clone()
    }

    /// Starts recording a [`CrashPoint`] before each event.
    pub fn record(&self) {
        self.state.lock().crash_points = Some(Vec::new());
    }

    /// Ends the recording; returns a crash point for each event since, and one for now.
    pub fn end_recording(&self) -> Vec<CrashPoint> {
        let mut state = self.state.lock();
        let Some(mut crash_points) = state.crash_points.take() else { return Vec::new() };
        crash_points.push(state.crash_point());
        crash_points
    }
}

impl State {
    /// Called just before an event takes effect; returns false if the power is cut before it does.
    fn event(&mut self) -> bool {
        if let Some((event, cut)) = self.cut_at
            && event <= self.events
        {
            self.power_off(cut);
            return false;
        }
        if let Some(mut crash_points) = self.crash_points.take() {
            crash_points.push(self.crash_point());
            self.crash_points = Some(crash_points);
        }
        self.events += 1;
        true
    }

    fn power_off(&mut self, cut: PowerCut) {
        if self.on {
            self.on = false;
            for (i, slot) in self.slots.iter_mut().enumerate() {
                slot.power_off(of_disk(cut, i));
            }
        }
    }

    fn pull(&mut self, slot: usize, cut: PowerCut) {
        let s = &mut self.slots[slot];
        if s.present {
            s.present = false;
            s.power_off(of_disk(cut, slot));
        }
    }

    fn crash_point(&self) -> CrashPoint {
        CrashPoint {
            event: self.events,
            seed: self.seed,
            slots: self.slots.iter().map(Slot::snapshot).collect(),
        }
    }
}

/// Gives each disk its own seed, so that its losses are independent of the others'.
fn of_disk(cut: PowerCut, slot: usize) -> PowerCut {
    let own = |seed| crate::random::Random::stream(seed, slot as u64 + 1).next();
    match cut {
        PowerCut::Reorder { seed } => PowerCut::Reorder { seed: own(seed) },
        PowerCut::Tear { seed } => PowerCut::Tear { seed: own(seed) },
        whole => whole,
    }
}
