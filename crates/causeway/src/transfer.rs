//! What `get` and `put` have in common: which files go where, how far a broken-off copy had got, and what is shown
//! meanwhile. How bytes move is in `remote.rs` and the commands.

pub mod checkpoint;
pub mod copy;
pub mod holes;
pub mod progress;
pub mod target;
