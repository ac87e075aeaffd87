//! Exports and the listener.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arena::Arena;
use disk::Disk;
use env::Env;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};

use crate::PAYLOAD_MAX;
use crate::connection::Connection;
use crate::handshake::{Description, Negotiated};
use crate::target::Target;

/// Maximum connected clients; further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// The pause when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Outstanding requests of one connection hold at most this fraction of the memory; the rest is for other
/// I/O.
const SHARE: usize = 8;

/// An exported disk.
#[derive(Clone)]
pub struct Export {
    /// The name that clients request.
    pub name: String,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Writes are refused.
    pub read_only: bool,
    /// Discarded blocks read as zeros (true for a space; not for every physical disk).
    pub discard_zeros: bool,
}

/// The exports of a server with their sizes in bytes, which can change while it serves.
#[derive(Clone)]
pub struct Exports(Arc<Mutex<Vec<(Export, u64)>>>);

impl Exports {
    /// Sets the size of all exports, which may differ from their [`disk::DiskInfo`]. Clients see it when they
    /// reconnect: NBD has no message for a new size.
    pub fn grow(&self, size: u64) {
        self.0.lock().iter_mut().for_each(|(_, of)| *of = size);
    }
}

/// Time limits of a client, which is disconnected when it exceeds one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For sending the payload of a WRITE, once memory for it is allocated.
    pub payload: Duration,
    /// For receiving a whole reply.
    pub reply: Duration,
    /// For receiving all outstanding replies when the connection ends.
    pub end: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let (payload, reply, end) =
            (Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(5));
        Limits { payload, reply, end }
    }
}

/// Serves exports over Unix sockets.
pub struct Server {
    exports: Exports,
    limits: Limits,
    arena: Arena,
    env: Env,
}

impl Server {
    /// A server of these exports; payload goes through `arena`.
    pub fn new(exports: Vec<Export>, arena: Arena, env: Env) -> Server {
        let sized = |export: Export| {
            let size = export.disk.info().geometry.size;
            (export, size)
        };
        let exports = Exports(Arc::new(Mutex::new(exports.into_iter().map(sized).collect())));
        Server { exports, limits: Limits::default(), arena, env }
    }

    /// Its exports.
    pub fn exports(&self) -> Exports {
        self.exports.clone()
    }

    /// Replaces the limits.
    pub fn with_limits(self, limits: Limits) -> Server {
        Server { limits, ..self }
    }

    /// Accepts clients until `stop` becomes true or its sender is dropped. Then outstanding requests are
    /// completed and no more are read; a client that does not receive its replies is disconnected after
    /// [`Limits::end`].
    ///
    /// Runs on a Tokio runtime; each client is a task of it.
    ///
    /// # Errors
    /// The error of the listener itself.
    pub async fn serve(self, listener: UnixListener, stop: watch::Receiver<bool>) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let server = Arc::new(self);
        let mut stopping = stop.clone();
        let stopped = async move { drop(stopping.wait_for(|s| *s).await) };
        tokio::pin!(stopped);
        loop {
            let place = tokio::select! {
                () = &mut stopped => break,
                place = Arc::clone(&places).acquire_owned() => place.map_err(io::Error::other)?,
            };
            let accepted = tokio::select! {
                () = &mut stopped => break,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(e) if is_transient(&e) => {
                    tracing::warn!("NBD: a connection could not be accepted: {e}");
                    server.env.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let (server, stop) = (Arc::clone(&server), stop.clone());
            let env = server.env.clone();
            env.spawn(async move {
                let _place = place;
                match Connection::negotiate(&server, stream, stop).await {
                    Ok(connection) => connection.run().await,
                    Err(why) => tracing::info!("NBD: a client was refused: {why}"),
                }
            });
        }
        // A client's task releases its permit when it ends.
        let _all = places.acquire_many(CONNECTIONS_MAX as u32).await;
        Ok(())
    }

    pub(crate) fn describe(&self) -> Vec<Description> {
        let share = u32::try_from(self.share()).unwrap_or(u32::MAX);
        let describe = |(e, size): &(Export, u64)| {
            let geometry = e.disk.info().geometry;
            let block = geometry.logical_block.max(1);
            Description {
                name: e.name.clone(),
                size: *size,
                block,
                payload_max: (PAYLOAD_MAX.min(share) / block * block).max(block),
                read_only: e.read_only,
                rotational: e.disk.info().rotational,
            }
        };
        self.exports.0.lock().iter().map(describe).collect()
    }

    pub(crate) fn connect(&self, agreed: Negotiated, payload_max: u32) -> Target {
        let (export, size) = self.exports.0.lock()[agreed.export].clone();
        Target {
            export,
            size,
            payload_max,
            agreed,
            share: self.share(),
            limits: self.limits,
            arena: self.arena.clone(),
            env: self.env.clone(),
        }
    }

    fn share(&self) -> usize {
        self.arena.usage().budget / SHARE
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }
}

/// Errors of `accept` that concern only one client or are temporary.
fn is_transient(e: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
        || matches!(e.raw_os_error(), Some(ENFILE | EMFILE))
}
