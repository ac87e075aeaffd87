//! Where the copies of columns are, as it was looked up last: a column's disks and slabs are asked for with
//! each I/O, and hardly ever change.
//!
//! Invariants:
//! 1. A route is given only if nothing has changed since it was looked up that could change it:
//!    [`DataPath::version`] is the same.
//! 2. Routes hold disks, so they are dropped when a disk is to be closed; a lookup that began before is not
//!    cached then.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::SpaceInner;
use super::copies::Copies;
use crate::RowNumber;
use crate::path::DataPath;

/// Columns that are remembered at a time: some hundred bytes each.
const BOUND: usize = 4096;

/// The copies of a column.
#[derive(Clone)]
pub(super) struct Route {
    copies: Arc<Copies>,
    version: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Routes(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    version: u64,
    found: FxHashMap<(RowNumber, u8), Arc<Copies>>,
}

impl Route {
    /// Whether it is the same still.
    pub(super) fn is_current(&self, path: &DataPath) -> bool {
        self.version == path.version()
    }
}

impl Deref for Route {
    type Target = Copies;

    fn deref(&self) -> &Copies {
        &self.copies
    }
}

impl Routes {
    /// As of this version or a newer one.
    fn roll(&self, version: u64) -> parking_lot::MutexGuard<'_, Inner> {
        let mut inner = self.0.lock();
        if inner.version < version {
            inner.version = version;
            inner.found.clear();
        }
        inner
    }

    fn get(&self, version: u64, column: (RowNumber, u8)) -> Option<Arc<Copies>> {
        let inner = self.roll(version);
        (inner.version == version).then(|| inner.found.get(&column).cloned()).flatten()
    }

    fn keep(&self, version: u64, column: (RowNumber, u8), copies: &Arc<Copies>) {
        let mut inner = self.roll(version);
        if inner.version == version {
            if inner.found.len() >= BOUND {
                inner.found.clear();
            }
            inner.found.insert(column, Arc::clone(copies));
        }
    }

    /// Forgets all that was looked up before `version`, which is the path's now.
    pub(super) fn forget(&self, version: u64) {
        drop(self.roll(version));
    }
}

impl SpaceInner {
    /// The copies of a column; `None` when the row has no slabs.
    pub(super) fn route(&self, path: &DataPath, row: RowNumber, column: u8) -> Option<Route> {
        // Before the lookup: changes during it make it stale.
        let version = path.version();
        if let Some(copies) = self.routes.get(version, (row, column)) {
            return Some(Route { copies, version });
        }
        let copies = Arc::new(self.copies(path, row, column)?);
        self.routes.keep(version, (row, column), &copies);
        Some(Route { copies, version })
    }

    /// Closes removed disks.
    pub(crate) fn forget_routes(&self, path: &DataPath) {
        self.routes.forget(path.version());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (RowNumber, u8) = (RowNumber(3), 1);

    #[test]
    fn what_is_old_is_neither_given_nor_kept() {
        let (routes, copies) = (Routes::default(), Arc::<Copies>::default());
        assert!(routes.get(5, HERE).is_none());
        routes.keep(5, HERE, &copies);
        assert!(routes.get(5, HERE).is_some_and(|c| Arc::ptr_eq(&c, &copies)));
        assert!(routes.get(4, HERE).is_none(), "who began before looks for himself");
        assert!(routes.get(5, HERE).is_some(), "and evicts no other");
        routes.forget(6);
        assert_eq!(Arc::strong_count(&copies), 1, "let go of");
        routes.keep(5, HERE, &copies);
        assert_eq!(Arc::strong_count(&copies), 1, "not kept either");
        assert!(routes.get(6, HERE).is_none());
    }

    #[test]
    fn they_are_bounded() {
        let (routes, copies) = (Routes::default(), Arc::<Copies>::default());
        for row in 0..3 * BOUND as u32 {
            routes.keep(1, (RowNumber(row), 0), &copies);
        }
        assert!(Arc::strong_count(&copies) <= BOUND + 1);
        assert!(routes.get(1, (RowNumber(3 * BOUND as u32 - 1), 0)).is_some());
    }
}
