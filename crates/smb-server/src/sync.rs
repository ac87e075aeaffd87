//! The primitives of the structures that several threads use at once and that tests/interleavings runs through all orders of
//! their steps: [`mailbox`](crate::mailbox), [`opens`](crate::opens), `open/tenure.rs`. There this module is loom's.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) use futures_util::task::AtomicWaker;
pub(crate) use parking_lot::Mutex;
