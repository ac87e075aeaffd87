//! The binary as people meet it.

mod cli;
mod client;
mod program;
