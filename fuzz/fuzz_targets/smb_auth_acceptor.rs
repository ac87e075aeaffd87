//! The log-on, as the server takes it.
#![no_main]

use causeway_fuzz::auth;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| auth::acceptor(bytes));
