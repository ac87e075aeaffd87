//! A value that is rarely replaced, and read by every I/O.
//!
//! Invariants:
//! 1. The number grows with each replacement, under the lock; so a number and a value read together under the lock
//!    belong together.
//! 2. When [`Current::replace`] has returned, no value from before it is current.

use crate::sync::{Arc, AtomicU64, Ordering, RwLock};

/// See the module.
pub struct Current<T> {
    number: AtomicU64,
    value: RwLock<Arc<T>>,
}

/// A snapshot of the value, with its number.
pub struct Snapshot<T> {
    number: u64,
    /// The value.
    pub value: Arc<T>,
}

impl<T> Current<T> {
    /// Creates the cell with its first value.
    pub fn new(value: Arc<T>) -> Current<T> {
        Current { number: AtomicU64::new(0), value: RwLock::new(value) }
    }

    /// The current value.
    pub fn get(&self) -> Snapshot<T> {
        let value = self.value.read();
        Snapshot { number: self.number.load(Ordering::Acquire), value: Arc::clone(&value) }
    }

    /// Whether the value has not been replaced since: one load, no lock.
    pub fn is_current(&self, snapshot: &Snapshot<T>) -> bool {
        self.number.load(Ordering::Acquire) == snapshot.number
    }

    /// Replaces the value if `is_newer(current, new)` is true; returns whether it did.
    pub fn replace(&self, value: Arc<T>, is_newer: impl FnOnce(&T, &T) -> bool) -> bool {
        let mut present = self.value.write();
        if !is_newer(&**present, &value) {
            return false;
        }
        *present = value;
        self.number.fetch_add(1, Ordering::Release);
        true
    }
}
