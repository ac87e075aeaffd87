//! The newest view of each requested space.
//!
//! Invariant: a view is replaced only if the space or one of its disks has changed, and then by one with a higher version.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pool_seam::{SpaceView, ViewVersion};

use crate::{DiskNumber, DiskRecord, SpaceId, State};

/// See the module.
pub(crate) struct Views {
    pool_epoch: u64,
    cached: Mutex<BTreeMap<SpaceId, CachedView>>,
}

struct CachedView {
    view: Arc<SpaceView>,
    /// The records of disks that the view was compared with.
    disks: Arc<BTreeMap<DiskNumber, DiskRecord>>,
}

impl Views {
    pub(crate) fn new(pool_epoch: u64) -> Views {
        Views { pool_epoch, cached: Mutex::default() }
    }

    /// Returns the view of a space; `state` reads the acknowledged state and its version.
    pub(crate) fn get(&self, space: SpaceId, state: impl FnOnce() -> (State, u64)) -> Option<Arc<SpaceView>> {
        let mut cached = self.cached.lock();
        if let Some(cached) = cached.get(&space) {
            return Some(Arc::clone(&cached.view));
        }
        // Read under the lock: a newer state is compared with this one once the lock is free.
        let (state, number) = state();
        let view = Arc::new(state.space_view(space, self.version(number))?);
        cached.insert(space, CachedView { view: Arc::clone(&view), disks: Arc::clone(&state.disks) });
        Some(view)
    }

    /// Compares the views with a newly acknowledged state; returns the views that have changed.
    pub(crate) fn follow(&self, state: &State, number: u64) -> Vec<Arc<SpaceView>> {
        let mut changed = Vec::new();
        self.cached.lock().retain(|space, cached| {
            let Some(record) = state.spaces.get(space) else { return false };
            let is_same = Arc::ptr_eq(record, &cached.view.record);
            if is_same && Arc::ptr_eq(&cached.disks, &state.disks) {
                return true;
            }
            let Some(view) = state.space_view(*space, self.version(number)) else { return false };
            cached.disks = Arc::clone(&state.disks);
            if !is_same || view.disks != cached.view.disks {
                cached.view = Arc::new(view);
                changed.push(Arc::clone(&cached.view));
            }
            true
        });
        changed
    }

    fn version(&self, number: u64) -> ViewVersion {
        ViewVersion { pool_epoch: self.pool_epoch, number }
    }
}
