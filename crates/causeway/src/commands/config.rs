//! `causeway config check`, `causeway config example`.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;

use crate::config::{self, ConfigError, DEFAULT_PATH, Problems, Severity, example};
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Report all problems of a configuration file
    Check {
        /// The file
        #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
        config: PathBuf,
    },
    /// Print an example with every key explained
    Example,
}

#[derive(Serialize)]
struct Example {
    toml: &'static str,
}

#[derive(Serialize)]
struct Found<'a> {
    file: &'a str,
    line: usize,
    key: &'a str,
    severity: &'static str,
    message: String,
}

pub(super) fn run(command: ConfigCommand, out: Output) -> Result<(), Failure> {
    match command {
        ConfigCommand::Example if out.json => Ok(out.document(&Example { toml: example::EXAMPLE })?),
        ConfigCommand::Example => Ok(std::io::stdout().lock().write_all(example::EXAMPLE.as_bytes())?),
        ConfigCommand::Check { config } => {
            let name = config.display().to_string();
            let text = std::fs::read_to_string(&config)
                .map_err(|source| ConfigError::Unreadable { path: config.clone(), source })?;
            let (_, problems) = config::parse(&text, &name);
            report(&name, problems, out)
        }
    }
}

fn report(name: &str, problems: Problems, out: Output) -> Result<(), Failure> {
    if out.json {
        let found: Vec<_> = problems
            .0
            .iter()
            .map(|p| Found {
                file: &p.file,
                line: p.line,
                key: &p.key,
                severity: if p.kind.severity() == Severity::Error { "error" } else { "warning" },
                message: p.kind.to_string(),
            })
            .collect();
        out.document(&found)?;
    }
    if problems.has_errors() {
        return Err(ConfigError::Invalid(problems).into());
    }
    if !out.json {
        for warning in &problems.0 {
            eprintln!("{warning}");
        }
        writeln!(std::io::stdout().lock(), "{name}: a server can start with this")?;
    }
    Ok(())
}
