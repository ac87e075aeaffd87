//! Frame, header and chain of SMB2 messages.
#![no_main]

use causeway_fuzz::smb_wire::parsers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| parsers::header_and_compound(bytes));
