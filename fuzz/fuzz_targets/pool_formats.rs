//! Labels, claims, checkpoints and journal records.
#![no_main]

use causeway_fuzz::pool;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pool::formats(bytes));
