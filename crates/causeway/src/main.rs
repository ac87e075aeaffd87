//! The `causeway` binary: daemon and command line.
fn main() {}
