//! Headers, records and entries of a space's log, and a replay of arbitrary rings.
#![no_main]

use causeway_fuzz::space;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| space::log(bytes));
