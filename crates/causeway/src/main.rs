//! The `causeway` binary: daemon and command line.
//!
//! **Layout.** `config/` reads the configuration; `daemon/` is `causeway serve`; `control/` is the HTTP
//! interface between the two; `commands/` has one file per command; `remote/` and `transfer/` are the SMB client and
//! the copies of `get` and `put`. The commands share `url.rs`, `output.rs` and `password.rs`.
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
use clap::error::{ContextKind, ErrorKind};

use commands::{Cli, run};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return not_understood(e),
    };
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

/// Prints why the command line is invalid. Also prints help, which clap returns as an error.
fn not_understood(mut error: clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::UnknownArgument {
        // Removes clap's tip to pass an unknown option as a value (`-- --path`): the usage line shows valid options.
        error.remove(ContextKind::Suggested);
    }
    if !error.use_stderr() || !std::env::args_os().any(|word| word == "--json") {
        error.exit();
    }
    let text = error.render().to_string();
    let (what, rest) = text.split_once("Usage: ").unwrap_or((&text, ""));
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let usage = rest.lines().next().filter(|usage| !usage.is_empty()).map(|usage| format!("Usage: {usage}"));
    output::Output { json: true }.failed(what.trim_start_matches("error: "), usage);
    ExitCode::from(failure::USAGE)
}
