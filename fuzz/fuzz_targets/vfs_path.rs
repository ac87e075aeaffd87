//! Paths and names.
#![no_main]

use causeway_fuzz::paths;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paths::path(bytes));
