//! The configuration file: one TOML file, of which every problem is reported with its line, its key and its cure.
//!
//! [`load`] reads and checks a file; [`parse`] does so with a text, which tests use. [`edit`] changes shares in a file
//! and leaves its comments alone. The keys are explained in [`example::EXAMPLE`], which `causeway config example`
//! prints and which a test parses, so that the two cannot drift.

mod acl;
pub mod edit;
pub mod example;
mod problem;
mod reader;
mod section;
mod size;
mod storage;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::control::storage::ResiliencySetting;
pub use acl::{AclEntry, AclLevel};
pub use problem::{ConfigError, Problem, ProblemKind, Problems, Severity};
pub use section::check_share;
pub use size::{format_size, parse_size};
pub use storage::{JobsSection, StorageSection, TimeoutsSection};
#[cfg(test)]
pub(crate) use tests::Scratch;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[server]`.
    pub server: ServerSection,
    /// `[storage]`.
    pub storage: StorageSection,
    /// `[[share]]`, in the file's order.
    pub shares: Vec<ShareSection>,
}

/// `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSection {
    /// The name that clients see, at most 15 characters.
    pub name: String,
    /// TCP listeners.
    pub listen: Vec<SocketAddr>,
    /// SMB Direct listeners (iWARP in user space); none: off.
    pub iwarp: Vec<SocketAddr>,
    /// Announce to clients that the interfaces of the iWARP listeners have RDMA.
    pub announce_rdma: bool,
    /// The control socket.
    pub control: PathBuf,
    /// The users file.
    pub users: PathBuf,
    /// The directory for persistent state, such as events; without one, state is kept in memory only.
    pub state: Option<PathBuf>,
    /// Whether clients must sign.
    pub signing: Protection,
    /// Whether clients may or must encrypt.
    pub encryption: Protection,
    /// The oldest dialect.
    pub min_dialect: Dialect,
    /// The newest dialect.
    pub max_dialect: Dialect,
    /// Payload memory for all clients together, in bytes. Checksum tables of pools use up to a quarter of this in
    /// addition.
    pub memory: u64,
    /// Worker threads; 0: one for each core.
    pub workers: usize,
    /// Open files and directories of one user; 0: three quarters of those that the limit of descriptors allows.
    pub opens_per_user: usize,
    /// How long a stop waits for running transfers.
    pub drain: Duration,
    /// The TCP address for Prometheus.
    pub metrics: Option<SocketAddr>,
}

/// `[[share]]`.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ShareSection {
    /// Its name; compared without regard to case.
    pub name: String,
    /// Its backend.
    pub backend: Backend,
    /// The directory of a `hostdir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The folder with the snapshots of a `hostdir`; absolute, or relative to its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<PathBuf>,
    /// The comment that clients see.
    #[serde(default)]
    pub comment: String,
    /// Clients cannot change anything through it.
    #[serde(default)]
    pub read_only: bool,
    /// Only encrypted sessions may use it.
    #[serde(default)]
    pub encrypt: bool,
    /// Clients may have handles that survive a restart of the server.
    #[serde(default)]
    pub continuous_availability: bool,
    /// The pool of `spaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The resiliency of new virtual disks of `spaces`; `None`: mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resiliency: Option<ResiliencySetting>,
    /// Columns of new virtual disks of `spaces`; `None`: by the number of disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u8>,
    /// Clients may delete files of `spaces`, which destroys virtual disks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_delete: bool,
    /// The capacity of a `ram`, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Hidden from listings. The default is true for names that end in `$`.
    #[serde(default)]
    pub hidden: bool,
    /// The permission of each user and group; `None`: full for every user who may log on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<Vec<AclEntry>>,
    /// Listings omit the entries that a user may not read.
    #[serde(default)]
    pub access_based: bool,
}

/// The backend of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// A directory of any mounted file system.
    Hostdir,
    /// The virtual disks of a pool.
    Spaces,
    /// Memory; lost when the server stops.
    Ram,
    /// Null device: reads return zeros and writes are discarded, for measurements.
    Null,
}

/// Whether a kind of protection is offered or required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Not offered.
    Off,
    /// Offered; the client decides.
    Enabled,
    /// Required.
    Required,
}

/// A dialect, by its number on the wire (MS-SMB2 2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dialect(pub u16);

impl Dialect {
    /// All dialects, oldest first.
    pub const ALL: [(Dialect, &str); 5] = [
        (Dialect(0x0202), "2.0.2"),
        (Dialect(0x0210), "2.1"),
        (Dialect(0x0300), "3.0"),
        (Dialect(0x0302), "3.0.2"),
        (Dialect(0x0311), "3.1.1"),
    ];
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Dialect::ALL.iter().find(|(d, _)| d == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{:#06x}", self.0),
        }
    }
}

impl Protection {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Protection::Off => "off",
            Protection::Enabled => "enabled",
            Protection::Required => "required",
        }
    }
}

impl Backend {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Backend::Hostdir => "hostdir",
            Backend::Spaces => "spaces",
            Backend::Ram => "ram",
            Backend::Null => "null",
        }
    }
}

/// The configuration file of a packaged installation.
pub const DEFAULT_PATH: &str = "/etc/causeway/causeway.toml";

/// Reads and checks a file.
///
/// # Errors
/// When it cannot be read, or has problems that a server cannot start with; warnings alone are no error.
pub fn load(path: &Path) -> Result<(Config, Problems), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let (config, problems) = parse(&text, &path.display().to_string());
    if problems.has_errors() { Err(ConfigError::Invalid(problems)) } else { Ok((config, problems)) }
}

/// Parses and checks a text; `file` is its name in messages. A setting with a problem has its default value,
/// so the configuration must be used only if [`Problems::has_errors`] returns false.
pub fn parse(text: &str, file: &str) -> (Config, Problems) {
    section::read(text, file)
}

/// The default path of the control socket: under `/run` for root, the user's runtime directory for others.
pub fn default_control() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/causeway/control.sock");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(d) if !d.is_empty() => PathBuf::from(d).join("causeway/control.sock"),
        _ => std::env::temp_dir().join(format!("causeway-{}/control.sock", uid.as_raw())),
    }
}

/// The default directory for persistent state: that of systemd (`StateDirectory=`), else none.
fn default_state() -> Option<PathBuf> {
    // The first of several.
    let places = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&places).next().filter(|p| p.is_absolute())
}
