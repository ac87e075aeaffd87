//! The parsers of `smb-wire`, by family: shared with that crate's property tests.

#[path = "../../crates/smb-wire/tests/support/parsers.rs"]
pub mod parsers;
#[path = "../../crates/smb-wire/tests/support/recode.rs"]
pub mod recode;
#[path = "../../crates/smb-wire/tests/support/recordings.rs"]
pub mod recordings;
