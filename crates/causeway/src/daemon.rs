//! The daemon: `causeway serve`.
//!
//! **Threads.** The main thread runs the listeners, the control interface and signals on a current-thread
//! runtime. Each worker thread has its own runtime for its connections. A new connection is assigned to the worker
//! with the fewest connections, and is not moved later. One more thread runs the pools, the I/O of their disks and
//! the clients of their spaces ([`storage`]). A watchdog thread detects blocked workers.
//!
//! **Lifecycle.** [`serve`]: configuration → payload memory, users, shares → listeners bound → workers →
//! control socket → `ready` → signals. SIGTERM or SIGINT: the listeners are closed, running transfers
//! continue for the configuration's `drain_seconds` at most, exit 0; a second signal ends the process at once.
//! SIGHUP: the server reads users and shares again.
//!
//! **Errors.** [`ServeError`] for errors that prevent the start, each with its cure; later errors are logged.

mod admin;
mod backends;
pub mod demo;
pub(crate) mod descriptors;
mod direct;
mod events;
mod identity;
mod interfaces;
mod listen;
mod notify;
mod process;
mod signals;
mod storage;
mod users;
mod watchdog;
mod worker;

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arena::Arena;
use env::Env;
use parking_lot::Mutex;
use smb_auth::users::UserFileError;
use smb_server::{Limits, Server, ServerConfig};
use thiserror::Error;

pub use admin::AdminError;
use backends::Running;
pub use events::Events;
use identity::Identity;
pub(crate) use interfaces::{ip, is_link_local};
use storage::Storage;
pub use storage::StorageError;
use users::Users;
pub(crate) use users::open_or_create as open_or_create_users;
use watchdog::Watchdog;
use worker::Workers;

use crate::config::{self, Config, ConfigError, Protection};
use crate::control;
use crate::control::types::Listener;

/// A running server and its environment.
pub struct Daemon {
    server: Arc<Server>,
    arena: Arena,
    env: Env,
    started: Instant,
    config_path: PathBuf,
    config: Config,
    /// The shares that clients see, by lower-case name.
    shares: Mutex<HashMap<String, Running>>,
    /// Held during a change of shares or users, including the write to the file.
    changing: tokio::sync::Mutex<()>,
    users: Arc<Users>,
    listeners: Vec<Listener>,
    workers: Workers,
    storage: Arc<Storage>,
    events: Arc<Events>,
    /// The address for Prometheus.
    metrics: Option<SocketAddr>,
}

/// Set to `off`, it turns the counters off. Only for measuring the cost of counting.
const COUNTERS_VARIABLE: &str = "CAUSEWAY_COUNTERS";

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration cannot be read, or is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The users file cannot be read.
    #[error(transparent)]
    Users(#[from] UserFileError),
    /// The backend of a share cannot start.
    #[error("the backend of share {name} cannot start: {source}")]
    Share {
        /// The name.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The server refuses a share.
    #[error("share: {0}")]
    ShareRefused(#[from] smb_server::ShareError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({transport}): {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `tcp`, `iwarp` or `metrics`.
        transport: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The control socket cannot be created.
    #[error("cannot listen on the control socket {}: {source}", path.display())]
    Control {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The directory for persistent state cannot be used.
    #[error("cannot use the directory {} (server.state): {source}", path.display())]
    State {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Payload memory cannot be mapped.
    #[error("cannot allocate {} of payload memory: {source}", config::format_size(*bytes))]
    Memory {
        /// The size in bytes.
        bytes: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// A thread or a runtime cannot be created.
    #[error("cannot create a {what}: {source}")]
    System {
        /// The requested resource.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl ServeError {
    /// The action that helps.
    pub fn cure(&self) -> Option<String> {
        match self {
            ServeError::Config(e) => e.cure(),
            ServeError::Listen { address, transport, source } => {
                let key = if *transport == "tcp" { "listen" } else { transport };
                Some(match source.kind() {
                    io::ErrorKind::AddrInUse => format!(
                        "another program uses the port (see: ss -ltnp 'sport = :{port}'): stop it or change server.{key}",
                        port = address.port()
                    ),
                    io::ErrorKind::PermissionDenied => format!(
                        "ports below 1024 need root or CAP_NET_BIND_SERVICE: start it with systemd, or use a port \
                         such as {} in server.{key}",
                        u32::from(address.port()) + 4005
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        format!("no interface has this address (see: ip address): change server.{key}")
                    }
                    _ => format!("change server.{key}"),
                })
            }
            ServeError::Control { source, .. } => Some(match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "another server uses this socket (see: causeway status): stop it, or change server.control"
                        .to_owned()
                }
                _ => "set server.control to a path that this user may write".to_owned(),
            }),
            ServeError::Share { .. } => {
                Some("give the server permission to read the directory, or change its path".to_owned())
            }
            ServeError::State { .. } => Some(
                "give the server permission to read and write it, or set server.state to another directory; if server.json, \
                 opens.journal or attachments.json in it is damaged, move that file away: persistent handles of clients, or the \
                 attachments of virtual disks, are then lost"
                    .to_owned(),
            ),
            ServeError::Memory { .. } => Some("lower server.memory".to_owned()),
            ServeError::Users(_) | ServeError::ShareRefused(_) | ServeError::System { .. } => None,
        }
    }
}

/// Serves until a signal stops it. Calls `started` when all listeners are ready, before `ready` is printed.
///
/// # Errors
/// See [`ServeError`]; none once it is ready.
pub fn serve(config_path: PathBuf, started: impl FnOnce(&Daemon)) -> Result<(), ServeError> {
    let (config, warnings) = config::load(&config_path)?;
    for warning in warnings.0 {
        tracing::warn!("{warning}");
    }
    let limits = descriptors::limits(descriptors::raise_limit(), config.server.opens_per_user);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| ServeError::System { what: "runtime", source })?;
    runtime.block_on(run(config_path, config, limits, started))
}

async fn run(
    config_path: PathBuf,
    config: Config,
    limits: Limits,
    started: impl FnOnce(&Daemon),
) -> Result<(), ServeError> {
    let env = Env::real();
    let signals =
        signals::Signals::new().map_err(|source| ServeError::System { what: "signal handler", source })?;
    let bytes = config.server.memory;
    let arena = Arena::new(bytes as usize).map_err(|source| ServeError::Memory { bytes, source })?;
    // Before any other thread creates files: see `bind`.
    let control_path = config.server.control.clone();
    let control = control::server::bind(&control_path, &env)
        .await
        .map_err(|source| ServeError::Control { path: control_path.clone(), source })?;
    let _remove = RemoveSocket(control_path);
    let bound = listen::bind_all(&config.server)?;
    let metrics = match config.server.metrics {
        None => None,
        Some(address) => {
            Some(control::metrics::bind(address).await.map_err(|source| ServeError::Listen {
                address,
                transport: "metrics",
                source,
            })?)
        }
    };
    // Lists the provider among the counters before its first connection.
    counters::provider(rdma::iwarp::PROVIDER);
    let identity = Identity::open(config.server.state.as_deref(), &env).map_err(|source| {
        ServeError::State { path: config.server.state.clone().unwrap_or_default(), source }
    })?;
    let machine = identity.guid.0;
    let users = Arc::new(Users::open(&config.server.users, &env)?);
    let server = Server::new(
        server_config(&config, &bound, identity, limits),
        Arc::clone(&users) as _,
        arena.clone(),
        env.clone(),
    );
    if std::env::var_os(COUNTERS_VARIABLE).is_some_and(|v| v == "off") {
        tracing::warn!("performance counters are off, because {COUNTERS_VARIABLE} is off");
        server.stop_counting();
    }
    let events = Events::open(config.server.state.as_deref(), &env)
        .map_err(|source| ServeError::System { what: "thread", source })?;
    let events = Arc::new(events);
    let workers = Workers::start(&config.server, &arena, &env)
        .map_err(|source| ServeError::System { what: "thread", source })?;
    let state = config.server.state.as_deref();
    let storage =
        Storage::start(&config.storage, &arena, &env, &events, state, machine, workers.runtimes()).map_err(
            |source| ServeError::State { path: config.server.state.clone().unwrap_or_default(), source },
        )?;
    let storage = Arc::new(storage);
    if config.shares.iter().any(|s| s.pool.is_some()) {
        // Reconnecting clients then find their files.
        storage.wait_for_search().await;
    }
    let mut shares = HashMap::new();
    for section in &config.shares {
        let running = Running::start(section, &env, &storage)
            .map_err(|source| ServeError::Share { name: section.name.clone(), source })?;
        server.add_protected_share(running.config(), running.protection())?;
        shares.insert(section.name.to_lowercase(), running);
    }
    let (restored, lost) = server.restore_opens().await;
    if restored + lost > 0 {
        tracing::info!(restored, lost, "persistent opens of the previous run were restored");
    }
    let watchdog =
        Watchdog::start(workers.pulses()).map_err(|source| ServeError::System { what: "thread", source })?;
    let daemon = Arc::new(Daemon {
        server,
        arena,
        started: env.now(),
        env,
        config_path,
        shares: Mutex::new(shares),
        changing: tokio::sync::Mutex::default(),
        users,
        listeners: bound.iter().map(listen::Bound::describe).collect(),
        workers,
        storage,
        events,
        metrics: metrics.as_ref().and_then(|m| m.local_addr().ok()),
        config,
    });
    let accepting: Vec<_> = bound.into_iter().map(|b| tokio::spawn(b.accept(Arc::clone(&daemon)))).collect();
    let answering = tokio::spawn(control::server::serve(control, Arc::clone(&daemon)));
    let measured = metrics.map(|m| tokio::spawn(control::metrics::serve(m, Arc::clone(&daemon))));

    started(&daemon);
    print_ready(&daemon);
    notify::notify("READY=1");
    signals.until_stop(&daemon).await;

    notify::notify("STOPPING=1");
    for task in accepting {
        task.abort();
    }
    tokio::join!(signals.drain(&daemon), daemon.storage.begin_disconnect());
    answering.abort();
    daemon.storage.stop().await;
    daemon.events.stop();
    if let Some(task) = measured {
        task.abort();
    }
    drop(watchdog);
    daemon.workers.stop();
    tracing::info!("stopped");
    Ok(())
}

impl Daemon {
    /// The configuration that it was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its pools.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The events of the pools.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The performance counters now.
    pub fn counters(&self) -> counters::Snapshot {
        let mut snapshot = self.server.registry().snapshot();
        snapshot.sets.extend(self.storage.levels());
        snapshot.sets.extend(process::levels(self.arena.usage()));
        snapshot
    }

    /// Its clock.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Its listeners.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }
}

fn server_config(
    config: &Config,
    bound: &[listen::Bound],
    identity: Identity,
    limits: Limits,
) -> ServerConfig {
    let protection = |p| match p {
        Protection::Off => smb_server::Protection::Off,
        Protection::Enabled => smb_server::Protection::Enabled,
        Protection::Required => smb_server::Protection::Required,
    };
    let s = &config.server;
    let rdma = if s.announce_rdma { listen::addresses(bound, listen::Transport::Iwarp) } else { Vec::new() };
    ServerConfig {
        name: s.name.clone(),
        guid: identity.guid,
        boot: identity.boot,
        journal: identity.journal,
        signing: protection(s.signing),
        encryption: protection(s.encryption),
        dialect_min: s.min_dialect.0,
        dialect_max: s.max_dialect.0,
        interfaces: Arc::new(interfaces::SystemInterfaces::new(rdma)),
        limits,
    }
}

/// Prints one line with the addresses of the listeners. A closed standard output is ignored.
fn print_ready(daemon: &Daemon) {
    let places = daemon.listeners.iter().map(|l| format!("{} {}", l.transport, l.address));
    let metrics = daemon.metrics.map(|a| format!("metrics {a}"));
    let places: Vec<_> = places
        .chain([format!("control {}", daemon.config.server.control.display())])
        .chain(metrics)
        .collect();
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "ready: {}", places.join(", "));
    let _ = out.flush();
}

/// Removes the control socket at the end.
struct RemoveSocket(PathBuf);

impl Drop for RemoveSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
