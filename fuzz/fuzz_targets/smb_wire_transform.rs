//! Transform and compression headers, SMB1 negotiate.
#![no_main]

use causeway_fuzz::smb_wire::parsers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| parsers::transform(bytes));
