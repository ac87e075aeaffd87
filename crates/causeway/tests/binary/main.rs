//! The binary as people meet it.

mod bench;
mod bench_demo;
mod cli;
mod client;
mod program;
mod top;
