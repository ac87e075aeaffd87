//! An iWARP connection.
#![no_main]

use causeway_fuzz::fabric;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric::rdma_connection(bytes));
