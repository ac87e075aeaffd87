//! Attachments of virtual disks: an NBD server on a Unix socket, or a block device of the kernel by ublk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use arena::Arena;
use env::Env;
use parking_lot::Mutex;
use pool::{SpaceId, SpaceRecord};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::StorageError;
use super::pools::{Pools, done};
use crate::control::client::segment;
use crate::control::storage::Attach;
use crate::control::types::Changed;

/// The attachments of a pool's virtual disks. They end with the server: the next one begins without any.
#[derive(Default)]
pub(super) struct Attachments {
    all: Mutex<BTreeMap<SpaceId, Attachment>>,
}

enum Attachment {
    Nbd(NbdServer),
    Device(ublk::Device),
}

struct NbdServer {
    socket: PathBuf,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

impl Attachments {
    /// Where a virtual disk is served.
    pub(super) fn place(&self, space: SpaceId) -> Option<PathBuf> {
        self.all.lock().get(&space).map(Attachment::place)
    }

    /// One that is attached, if any is.
    pub(super) fn any(&self) -> Option<SpaceId> {
        self.all.lock().keys().next().copied()
    }

    /// Those that are attached.
    pub(super) fn all(&self) -> Vec<SpaceId> {
        self.all.lock().keys().copied().collect()
    }

    fn insert(&self, space: SpaceId, attachment: Attachment) {
        self.all.lock().insert(space, attachment);
    }

    /// Whether the system uses a virtual disk that is a block device.
    async fn check_unused(&self, space: SpaceId) -> Result<(), ublk::Error> {
        let check = match self.all.lock().get(&space) {
            Some(Attachment::Device(device)) => device.check_unused(),
            _ => return Ok(()),
        };
        check.await
    }

    /// Ends the clients of a virtual disk after their outstanding requests; false if it is not attached.
    async fn end(&self, space: SpaceId) -> bool {
        let attachment = self.all.lock().remove(&space);
        match attachment {
            None => return false,
            Some(Attachment::Nbd(server)) => server.end().await,
            Some(Attachment::Device(device)) => {
                let path = device.path().to_owned();
                if let Err(error) = device.stop().await {
                    tracing::error!(device = %path.display(), %error, "the block device is not stopped cleanly");
                }
            }
        }
        true
    }

    /// Lets clients over NBD begin to end: those that are slow at it are waited for together.
    pub(super) fn begin_to_end(&self) {
        for attachment in self.all.lock().values() {
            if let Attachment::Nbd(server) = attachment {
                server.stop.send_replace(true);
            }
        }
    }

    /// Ends the clients of all.
    pub(super) async fn end_all(&self) {
        self.begin_to_end();
        while let Some(space) = self.any() {
            self.end(space).await;
        }
    }
}

impl Attachment {
    fn place(&self) -> PathBuf {
        match self {
            Attachment::Nbd(server) => server.socket.clone(),
            Attachment::Device(device) => device.path().to_owned(),
        }
    }
}

impl NbdServer {
    fn begin(export: nbd::Export, socket: &Path, arena: &Arena, env: &Env) -> io::Result<NbdServer> {
        let listener = bind(socket)?;
        let (stop, stopped) = watch::channel(false);
        let server = nbd::Server::new(vec![export], arena.clone(), env.clone());
        let task = tokio::spawn(server.serve(listener, stopped));
        Ok(NbdServer { socket: socket.to_owned(), stop, task })
    }

    async fn end(self) {
        let NbdServer { socket, stop, task } = self;
        stop.send_replace(true);
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(socket = %socket.display(), %error, "NBD: the listener had failed")
            }
            Err(_) => tracing::error!(socket = %socket.display(), "NBD: the server had panicked"),
        }
        let _ = fs::remove_file(&socket);
    }
}

impl Pools {
    /// Serves a virtual disk over NBD, or makes it a block device.
    ///
    /// # Errors
    /// See [`StorageError`]: it is attached already, or the socket or the device cannot be made.
    pub async fn attach(&self, name: &str, attach: Attach) -> Result<Changed, StorageError> {
        let Attach { nbd: socket, ublk, mut read_only } = attach;
        if socket.is_some() == ublk {
            return Err(StorageError::OneWay);
        }
        if let Some(path) = socket.as_ref().filter(|p| !p.is_absolute()) {
            return Err(StorageError::NotAbsolute(path.clone()));
        }
        let _one = self.changing.lock().await;
        let (open, space) = self.find_space(name)?;
        if let Some(place) = open.attachments.place(space) {
            return Err(StorageError::Attached { name: name.to_owned(), place });
        }
        let mut notes = Vec::new();
        if open.read_only && !read_only {
            read_only = true;
            notes
                .push(format!("for reading only, because the pool {} is open for reading only", open.name()));
        }
        let of = |r: &SpaceRecord| (r.name.clone(), u64::from(r.columns) * u64::from(r.interleave));
        let (name, stripe) = open.pool.read(|s| s.spaces.get(&space).map(of)).unwrap_or_default();
        let disk = open.space_for_clients(space)?;
        let (attachment, place) = match socket {
            Some(path) => {
                let export = nbd::Export { name: name.clone(), disk, read_only, discard_zeros: true };
                let server = NbdServer::begin(export, &path, &self.arena, &self.env)
                    .map_err(|source| StorageError::Socket { path: path.clone(), source })?;
                let url = url(&name, &path);
                (Attachment::Nbd(server), url)
            }
            None => {
                let options = ublk::Options { read_only, discard_zeros: true, stripe };
                let device = ublk::Device::start(disk, options, &self.arena, &self.env).await?;
                let path = device.path().display().to_string();
                (Attachment::Device(device), path)
            }
        };
        open.attachments.insert(space, attachment);
        tracing::info!(space = name, place, "virtual disk attached");
        Ok(done(format!("{name} is attached: {place}"), notes))
    }

    /// Ends the clients of a virtual disk, and flushes it.
    ///
    /// # Errors
    /// See [`StorageError`]: it is not attached, it is a block device that is mounted, or what was written cannot be made durable.
    pub async fn detach(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.find_space(name)?;
        open.attachments.check_unused(space).await?;
        if !open.attachments.end(space).await {
            return Err(StorageError::NotAttached(name.to_owned()));
        }
        if let Ok(data) = open.writable() {
            data.space(space)?.flush_for_user().await?;
        }
        Ok(done(format!("{name} is detached"), Vec::new()))
    }
}

/// Where an NBD client finds it.
fn url(name: &str, socket: &Path) -> String {
    let parts = socket.to_string_lossy();
    let parts: Vec<_> = parts.split('/').map(segment).collect();
    format!("nbd+unix:///{}?socket={}", segment(name), parts.join("/"))
}

/// A socket that only this user may connect to. A stale one without a listener is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => fs::remove_file(path)?,
        // An existing file that is no socket stays: binding reports it.
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_encoded() {
        let url = |name, socket| url(name, Path::new(socket));
        assert_eq!(url("vm", "/run/vm.nbd"), "nbd+unix:///vm?socket=/run/vm.nbd");
        let odd = "nbd+unix:///my%20vm?socket=/run/a%20b%26c%23%3F%25/vm%2B1";
        assert_eq!(url("my vm", "/run/a b&c#?%/vm+1"), odd);
    }
}
