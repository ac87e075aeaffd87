//! `causeway config check`, `causeway config example`.

mod machine;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;

use super::absolute;
use crate::config::{
    self, Config, ConfigError, DEFAULT_PATH, Problem, ServerSection, Severity, ShareSection, example,
    format_size,
};
use crate::control::client::ControlClient;
use crate::control::types::{ServerStatus, ShareStatus};
use crate::failure::Failure;
use crate::output::{Output, table};

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the problems and the effective values of a configuration file, and warnings about this machine
    Check {
        /// Configuration file to check
        #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
        config: PathBuf,
    },
    /// Print an example configuration that explains every key
    Example,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Example {
    toml: &'static str,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Checked<'a> {
    problems: Vec<Found>,
    /// Warnings about this machine.
    machine: &'a [String],
    /// The effective values of `[server]`; none for a file with errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<BTreeMap<&'static str, String>>,
    shares: &'a [ShareSection],
}

#[derive(JsonSchema, Serialize)]
struct Found {
    file: String,
    line: usize,
    key: String,
    severity: &'static str,
    message: String,
}

pub(super) async fn run(command: ConfigCommand, out: Output) -> Result<(), Failure> {
    match command {
        ConfigCommand::Example if out.json => Ok(out.document(&Example { toml: example::EXAMPLE })?),
        ConfigCommand::Example => Ok(std::io::stdout().lock().write_all(example::EXAMPLE.as_bytes())?),
        ConfigCommand::Check { config } => check(&config, out).await,
    }
}

/// The running server with this configuration, if there is one.
async fn running(config: &Config, file: &Path) -> Option<u32> {
    let status: ServerStatus = ControlClient::new(&config.server.control).get("/v1/server").await.ok()?;
    (Path::new(&status.config) == file).then_some(status.pid)
}

async fn check(file: &Path, out: Output) -> Result<(), Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|source| ConfigError::Unreadable { path: file.to_owned(), source })?;
    let (config, problems) = config::parse(&text, &name);
    let is_valid = !problems.has_errors();
    let machine = match is_valid {
        true => machine::warnings(&config, running(&config, &absolute(file.to_owned())?).await),
        false => Vec::new(),
    };
    if out.json {
        let found = |p: &Problem| Found {
            file: p.file.clone(),
            line: p.line,
            key: p.key.clone(),
            severity: if p.kind.severity() == Severity::Error { "error" } else { "warning" },
            message: p.kind.to_string(),
        };
        let problems = problems.0.iter().map(found).collect();
        let effective = is_valid.then(|| effective(&config.server).into_iter().collect());
        out.document(&Checked { problems, machine: &machine, server: effective, shares: &config.shares })?;
    }
    if !is_valid {
        return Err(ConfigError::Invalid(problems).into());
    }
    if !out.json {
        out.facts(&(), &effective(&config.server))?;
        if !config.shares.is_empty() {
            out.blank()?;
            let rows: Vec<_> =
                config.shares.iter().map(|s| ShareStatus { share: s.clone(), users: 0 }).collect();
            writeln!(std::io::stdout().lock(), "{}", table(&rows))?;
        }
        out.blank()?;
        for warning in &problems.0 {
            eprintln!("{warning}");
        }
        machine.iter().for_each(|warning| eprintln!("this machine: warning: {warning}"));
        writeln!(std::io::stdout().lock(), "{name}: a server can start with this configuration")?;
    }
    Ok(())
}

/// The effective values of `[server]`, including defaults, by key.
fn effective(s: &ServerSection) -> Vec<(&'static str, String)> {
    let list = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let or = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
    vec![
        ("name", s.name.clone()),
        ("listen", or(list(&s.listen), "none")),
        ("iwarp", or(list(&s.iwarp), "off")),
        ("announce_rdma", s.announce_rdma.to_string()),
        ("signing", s.signing.as_str().to_owned()),
        ("encryption", s.encryption.as_str().to_owned()),
        ("dialects", format!("{} to {}", s.min_dialect, s.max_dialect)),
        ("users", s.users.display().to_string()),
        ("control", s.control.display().to_string()),
        (
            "state",
            s.state.as_ref().map_or(
                "set by systemd (the packaged service: /var/lib/causeway), else in memory only".to_owned(),
                |p| p.display().to_string(),
            ),
        ),
        ("memory", format_size(s.memory)),
        ("workers", if s.workers == 0 { "one for each core".to_owned() } else { s.workers.to_string() }),
        ("drain_seconds", s.drain.as_secs().to_string()),
        ("metrics", s.metrics.map_or("off".to_owned(), |a| a.to_string())),
    ]
}
