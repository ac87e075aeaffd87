//! Shared by `get` and `put`: sources and destinations, the copies of data and holes, the state of an interrupted copy,
//! and the display of progress.

pub mod checkpoint;
pub mod copy;
pub mod holes;
pub mod progress;
pub mod target;
