//! The synchronization primitives of the concurrent structures that tests/interleavings model-checks:
//! [`mailbox`](crate::mailbox), [`opens`](crate::opens), `open/ownership.rs`. In those tests this module has loom's
//! primitives.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) use futures_util::task::AtomicWaker;
pub(crate) use parking_lot::Mutex;
