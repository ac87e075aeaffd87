//! Tests of the binary as users run it.

mod bench;
mod bench_demo;
mod cli;
mod client;
mod program;
mod top;
