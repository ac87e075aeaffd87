//! `causeway serve`.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tracing_subscriber::EnvFilter;

use crate::config::DEFAULT_PATH;
use crate::daemon::{self, demo};
use crate::failure::Failure;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
    /// Serve a temporary directory, memory and a null device to a temporary user, on ports above 1023
    #[arg(long, conflicts_with = "config")]
    demo: bool,
    /// Log as JSON, one object per line
    #[arg(long)]
    log_json: bool,
    /// Log level: error, warn, info, debug, trace, or a list such as info,smb_server=debug
    #[arg(long, value_name = "FILTER", default_value = "info", env = "CAUSEWAY_LOG", value_parser = filter)]
    log: String,
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

pub(super) fn run(args: ServeArgs) -> Result<(), Failure> {
    start_log(&args);
    if args.demo {
        return demo::serve().map_err(|e| Box::new(e).into());
    }
    let config = std::path::absolute(&args.config).unwrap_or(args.config);
    daemon::serve(config, |_| {}).map_err(|e| Box::new(e).into())
}

/// Starts the log on standard error. A panic of a connection's task is logged too; it ends only that connection.
fn start_log(args: &ServeArgs) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&args.log))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // It fails only if a log exists already.
    let _ = if args.log_json { builder.json().try_init() } else { builder.try_init() };
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tracing::error!("panic: {info}");
        before(info);
    }));
}
