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
pub struct Moment {
    /// The number of events before it.
    pub event: u64,
    pub(super) seed: u64,
    pub(super) slots: Vec<Frozen>,
}

/// The state of a disk at that moment.
#[derive(Clone)]
pub(super) struct Frozen {
    pub(super) info: DiskInfo,
    pub(super) store: Store,
    pub(super) flying: Vec<Arc<Change>>,
    pub(super) bad: BTreeSet<u64>,
    pub(super) present: bool,
}

impl Moment {
    /// The machine after a power cut at this moment and a restart: no disk is open, there are no rules, and
    /// events count from 0.
    pub fn cut(&self, env: &Env, cut: PowerCut) -> Machine {
        let slots = self.slots.iter().enumerate().map(|(i, f)| {
            let image = f.store.cut(&f.info.geometry, &f.flying, of_disk(cut, i));
            let new = Slot::new(f.info.clone(), image, self.seed, i);
            Slot { bad: f.bad.clone(), present: f.present, ..new }
        });
        let slots = slots.collect();
        let (log, moments, cut_at) = (Vec::new(), None, None);
        let state = State { seed: self.seed, on: true, events: 0, cut_at, slots, log, moments };
        Machine { env: env.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// The number of writes and discards that a cut at this moment may lose, over all disks.
    pub fn unsure(&self) -> usize {
        self.slots.iter().map(|s| s.store.pending.len() + s.flying.len()).sum()
    }
}

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Moment(before event {}, {} writes unsure)", self.event, self.unsure())
    }
}
