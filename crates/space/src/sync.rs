//! The primitives of the structures that several threads use at once and that tests/interleavings runs through all
//! orders of their steps: [`view::current`](crate::view). There this module is loom's.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use parking_lot::RwLock;
