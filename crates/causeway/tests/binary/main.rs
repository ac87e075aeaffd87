//! The binary as people meet it.

mod bench;
mod cli;
mod client;
mod program;
