//! SPNEGO tokens and NTLM messages.
#![no_main]

use causeway_fuzz::auth;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| auth::tokens(bytes));
