//! The `causeway` binary: daemon and command line.
//!
//! **Layout.** `config/` reads the configuration; `daemon/` is `causeway serve`; `control/` is the HTTP
//! interface between the two halves of this program; `commands/` has one file per command; they share
//! `url.rs`, `output.rs` and `password.rs`.
//!
//! **Exit codes.** 0: done. 1: failed, with the reason and the cure on standard error. 2: the command line cannot be
//! understood.

mod commands;
mod config;
mod control;
mod cures;
mod daemon;
mod failure;
mod output;
mod password;
mod remote;
mod transfer;
mod url;

use std::process::ExitCode;

use clap::Parser;

use commands::{Cli, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let out = cli.output();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure::Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            out.failed(&failure.to_string(), failure.cure());
            ExitCode::from(failure.code())
        }
    }
}
