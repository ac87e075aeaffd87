//! The synchronization primitives of the concurrent structures that tests/interleavings model-checks:
//! [`view::current`](crate::view). In those tests this module has loom's primitives.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use parking_lot::RwLock;
