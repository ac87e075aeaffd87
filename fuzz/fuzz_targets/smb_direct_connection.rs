//! An SMB Direct connection.
#![no_main]

use causeway_fuzz::fabric;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric::smb_direct_connection(bytes));
