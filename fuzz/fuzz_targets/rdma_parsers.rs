//! Headers of MPA, DDP and RDMAP.
#![no_main]

use causeway_fuzz::fabric;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric::parsers(bytes));
