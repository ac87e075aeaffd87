//! Shared by `get` and `put`: the mapping of files, the state of an interrupted copy, and the display of
//! progress. The data transfer is in `remote.rs` and the commands.

pub mod checkpoint;
pub mod copy;
pub mod holes;
pub mod progress;
pub mod target;
