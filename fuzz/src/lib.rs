//! Fuzz targets for bytes from peers and disks.
//!
//! `make fuzz` runs each for a minute, `scripts/fuzz NAME` one, starting from the seeds that `examples/seed_corpus.rs`
//! writes. What a run finds is kept in `finds/NAME/`: every later run starts with it, and fails while it does. With the
//! fix it is committed there, and its bytes become an ordinary test of the crate as well: for `smb-wire` a file in
//! hexadecimal under `tests/regressions/`.

pub mod auth;
pub mod fabric;
pub mod paths;
pub mod pool;
pub mod smb_wire;
pub mod space;
