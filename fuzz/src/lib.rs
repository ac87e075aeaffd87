//! Fuzz targets for bytes from peers.
//!
//! `cargo +nightly fuzz run smb_wire_requests -- -max_total_time=60` runs one; `cargo run --example seed_corpus` first
//! fills `corpus/` from recorded messages. What a run finds is kept under the crate's `tests/regressions/`, where an
//! ordinary test feeds it to the same functions.

pub mod smb_wire;
