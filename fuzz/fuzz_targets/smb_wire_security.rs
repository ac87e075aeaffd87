//! Security descriptors.
#![no_main]

use causeway_fuzz::smb_wire::parsers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| parsers::security(bytes));
