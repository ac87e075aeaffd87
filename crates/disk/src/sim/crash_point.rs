//! The machine's state before one event, for a power cut at that time.

use std::collections::BTreeSet;
use std::sync::Arc;

use env::Env;
use parking_lot::Mutex;

use super::slot::Slot;
use super::{Machine, State, of_disk};
use crate::store::{Change, Store};
use crate::{DiskInfo, PowerCut};

/// See [`Machine::record`]. Clones and cuts share unchanged data.
#[derive(Clone)]
pub struct CrashPoint {
    /// The number of events before it.
    pub event: u64,
    pub(super) seed: u64,
    pub(super) slots: Vec<DiskState>,
}

/// The state of a disk at that moment.
#[derive(Clone)]
pub(super) struct DiskState {
    pub(super) info: DiskInfo,
    pub(super) store: Store,
    pub(super) in_flight: Vec<Arc<Change>>,
    pub(super) bad: BTreeSet<u64>,
    pub(super) present: bool,
}

impl CrashPoint {
    /// The machine after a power cut at this moment and a restart: no disk is open, there are no rules, and
    /// events count from 0.
    pub fn cut(&self, env: &Env, cut: PowerCut) -> Machine {
        let slots = self.slots.iter().enumerate().map(|(i, f)| {
            let image = f.store.cut(&f.info.geometry, &f.in_flight, of_disk(cut, i));
            let new = Slot::new(f.info.clone(), image, self.seed, i);
            Slot { bad: f.bad.clone(), present: f.present, ..new }
        });
        let slots = slots.collect();
        let (log, crash_points, cut_at) = (Vec::new(), None, None);
        let state = State { seed: self.seed, on: true, events: 0, cut_at, slots, log, crash_points };
        Machine { env: env.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// The number of writes and discards that a cut at this moment may lose, over all disks.
    pub fn losable_writes(&self) -> usize {
        self.slots.iter().map(|s| s.store.pending.len() + s.in_flight.len()).sum()
    }
}

impl std::fmt::Debug for CrashPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CrashPoint(before event {}, {} losable writes)", self.event, self.losable_writes())
    }
}
