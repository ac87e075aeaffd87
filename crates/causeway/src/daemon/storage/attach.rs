//! Attachments of virtual disks: an NBD server on a Unix socket, or a block device of the kernel by ublk.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use arena::Arena;
use env::Env;
use parking_lot::Mutex;
use pool::{PoolId, SpaceId};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::StorageError;
use super::open_pool::OpenPool;
use super::pools::{Pools, done};
use super::stored_attachments::{Names, StoredAttachment};
use crate::control::client::segment;
use crate::control::storage::Attach;
use crate::control::types::Changed;

/// The attachments of a pool's virtual disks. They end with the server, and are restored at its next start
/// ([`super::stored_attachments`]).
#[derive(Default)]
pub(super) struct Attachments {
    all: Mutex<BTreeMap<SpaceId, Attachment>>,
    /// How many shares have a virtual disk open for clients.
    shared: Mutex<BTreeMap<SpaceId, usize>>,
}

struct Attachment {
    kind: AttachmentKind,
    /// The request.
    request: Attach,
    /// The URL or path for clients.
    address: String,
}

enum AttachmentKind {
    Nbd(NbdServer),
    Device(ublk::Device),
}

struct NbdServer {
    exports: nbd::Exports,
    socket: PathBuf,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

impl Attachments {
    /// The socket or device of a virtual disk.
    pub(super) fn place(&self, space: SpaceId) -> Option<PathBuf> {
        self.all.lock().get(&space).map(Attachment::place)
    }

    /// The URL or path of a virtual disk whose attachment matches the request.
    fn matching(&self, space: SpaceId, request: &Attach) -> Option<String> {
        self.all.lock().get(&space).filter(|a| a.request == *request).map(|a| a.address.clone())
    }

    /// Records that a share opens a virtual disk.
    pub(super) fn share(&self, space: SpaceId) {
        *self.shared.lock().entry(space).or_default() += 1;
    }

    /// Records that a share has closed a virtual disk.
    pub(super) fn unshare(&self, space: SpaceId) {
        let mut shared = self.shared.lock();
        if let Some(opens) = shared.get_mut(&space) {
            *opens -= 1;
        }
        shared.retain(|_, opens| *opens > 0);
    }

    /// The virtual disks that shares have open.
    pub(super) fn shared(&self) -> Vec<SpaceId> {
        self.shared.lock().keys().copied().collect()
    }

    /// Any attached virtual disk, if there is one.
    fn any(&self) -> Option<SpaceId> {
        self.all.lock().keys().next().copied()
    }

    /// The attached virtual disks.
    pub(super) fn all(&self) -> Vec<SpaceId> {
        self.all.lock().keys().copied().collect()
    }

    fn insert(&self, space: SpaceId, attachment: Attachment) {
        self.all.lock().insert(space, attachment);
    }

    /// Fails if the virtual disk is a block device that the system uses.
    async fn check_unused(&self, space: SpaceId) -> Result<(), ublk::Error> {
        let check = match self.all.lock().get(&space) {
            Some(Attachment { kind: AttachmentKind::Device(device), .. }) => device.check_unused(),
            _ => return Ok(()),
        };
        check.await
    }

    /// Fails if the virtual disk is a block device that cannot be resized.
    fn check_growth(&self, space: SpaceId) -> Result<(), ublk::Error> {
        match self.all.lock().get(&space) {
            Some(Attachment { kind: AttachmentKind::Device(device), .. }) => device.check_resizable(),
            _ => Ok(()),
        }
    }

    /// Reports the new size of a virtual disk to its clients. Returns a note if the user must reconnect them.
    async fn report_growth(&self, space: SpaceId, size: u64) -> Result<Option<&'static str>, ublk::Error> {
        let resized = match self.all.lock().get(&space).map(|a| &a.kind) {
            None => return Ok(None),
            Some(AttachmentKind::Nbd(server)) => {
                server.exports.grow(size);
                return Ok(Some("NBD clients see the new size when they connect again"));
            }
            Some(AttachmentKind::Device(device)) => device.resize(size),
        };
        resized.await.map(|()| None)
    }

    /// Ends the clients of a virtual disk after their outstanding requests; false if it is not attached.
    async fn end(&self, space: SpaceId) -> bool {
        let attachment = self.all.lock().remove(&space);
        match attachment.map(|a| a.kind) {
            None => return false,
            Some(AttachmentKind::Nbd(server)) => server.end().await,
            Some(AttachmentKind::Device(device)) => {
                let path = device.path().to_owned();
                if let Err(error) = device.stop().await {
                    tracing::error!(device = %path.display(), %error, "cannot stop the block device cleanly");
                }
            }
        }
        true
    }

    /// Starts to disconnect the NBD clients, so that slow ones are waited for concurrently.
    pub(super) fn begin_disconnect(&self) {
        for attachment in self.all.lock().values() {
            if let AttachmentKind::Nbd(server) = &attachment.kind {
                server.stop.send_replace(true);
            }
        }
    }

    /// Ends the clients of all attachments.
    pub(super) async fn end_all(&self) {
        self.begin_disconnect();
        while let Some(space) = self.any() {
            self.end(space).await;
        }
    }
}

impl Attachment {
    fn place(&self) -> PathBuf {
        match &self.kind {
            AttachmentKind::Nbd(server) => server.socket.clone(),
            AttachmentKind::Device(device) => device.path().to_owned(),
        }
    }
}

impl NbdServer {
    /// Starts to serve a virtual disk on a worker.
    fn begin(
        worker: &Handle,
        export: nbd::Export,
        socket: &Path,
        arena: &Arena,
        env: &Env,
    ) -> io::Result<NbdServer> {
        let listener = {
            // The listener must be created in the worker's runtime.
            let _entered = worker.enter();
            bind(socket)?
        };
        let (stop, stopped) = watch::channel(false);
        let server = nbd::Server::new(vec![export], arena.clone(), env.clone());
        let exports = server.exports();
        let task = worker.spawn(server.serve(listener, stopped));
        Ok(NbdServer { exports, socket: socket.to_owned(), stop, task })
    }

    async fn end(self) {
        let NbdServer { socket, stop, task, .. } = self;
        stop.send_replace(true);
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(socket = %socket.display(), %error, "NBD: the listener has failed")
            }
            Err(_) => tracing::error!(socket = %socket.display(), "NBD: the server has panicked"),
        }
        let _ = fs::remove_file(&socket);
    }
}

impl Pools {
    /// Attaches a virtual disk over NBD or as a block device, now and after each restart of the server. Does nothing if
    /// it is already attached in this way.
    ///
    /// # Errors
    /// See [`StorageError`]: it is attached in another way, or the socket or the device cannot be created.
    pub async fn attach(&self, name: &str, attach: Attach) -> Result<Changed, StorageError> {
        if attach.nbd.is_some() == attach.ublk {
            return Err(StorageError::OneWay);
        }
        if let Some(path) = attach.nbd.as_ref().filter(|p| !p.is_absolute()) {
            return Err(StorageError::NotAbsolute(path.clone()));
        }
        let _one = self.changing.lock().await;
        let (open, space) = self.find_space(name)?;
        let mut notes = Vec::new();
        if open.read_only && !attach.read_only {
            notes.push(format!("it is read-only, because the pool {} is open for reading only", open.name()));
        }
        let place = match open.attachments.matching(space, &attach) {
            Some(place) => place,
            None => {
                open.refuse_attached(space)?;
                if let Some(why) = open.not_open().remove(&space) {
                    return Err(StorageError::SpaceNotOpen { name: open.name_of(space), why });
                }
                let place = self.attach_now(&open, space, &attach).await?;
                let names = Names { pool_name: open.name(), space_name: open.name_of(space) };
                if let Err(error) = self.stored_attachments.set(open.pool.id(), space, names, attach).await {
                    notes.push(format!(
                        "it will not be attached again after a restart of the server: {error}"
                    ));
                }
                place
            }
        };
        Ok(done(format!("{} is attached: {place}", open.name_of(space)), notes))
    }

    /// Restores the attachments that a pool had when it was closed or the server stopped.
    pub(super) async fn restore_attachments(&self, open: &OpenPool) {
        // Attachments that survived the suspension of the pool exist already.
        let is_there = |space| open.attachments.place(space).is_some();
        for (space, attach) in
            self.stored_attachments.of(open.pool.id()).into_iter().filter(|(s, _)| !is_there(*s))
        {
            if let Err(error) = self.attach_now(open, space, &attach).await {
                let (pool, space) = (open.name(), open.name_of(space));
                tracing::error!(pool, space, %error, "cannot attach a virtual disk again");
            }
        }
    }

    async fn attach_now(
        &self,
        open: &OpenPool,
        space: SpaceId,
        attach: &Attach,
    ) -> Result<String, StorageError> {
        let read_only = attach.read_only || open.read_only;
        let name = open.name_of(space);
        let (disk, worker) = (open.space_for_clients(space)?, self.local.worker_of(space));
        let (kind, place) = match &attach.nbd {
            Some(path) => {
                let export = nbd::Export { name: name.clone(), disk, read_only, discard_zeros: true };
                let server = NbdServer::begin(&worker, export, path, &self.arena, &self.env)
                    .map_err(|source| StorageError::Socket { path: path.clone(), source })?;
                (AttachmentKind::Nbd(server), url(&name, path))
            }
            None => {
                let options = ublk::Options { read_only, discard_zeros: true };
                let (arena, env) = (self.arena.clone(), self.env.clone());
                let start = async move { ublk::Device::start(disk, options, &arena, &env).await };
                let device = worker.spawn(start).await.map_err(|_| StorageError::Stopping)??;
                let place = device.path().display().to_string();
                (AttachmentKind::Device(device), place)
            }
        };
        tracing::info!(space = name, place, "virtual disk attached");
        let request = attach.clone();
        open.attachments.insert(space, Attachment { kind, request, address: place.clone() });
        Ok(place)
    }

    /// Ends the clients of a virtual disk, and flushes it. If its pool is missing, only the stored attachment is
    /// removed.
    ///
    /// # Errors
    /// See [`StorageError`]: it is not attached, its block device is mounted, or the flush failed.
    pub async fn detach(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = match self.find_space(name) {
            Err(error @ StorageError::NoSpace(_)) => {
                return self.remove_stored_of_missing(name).await?.ok_or(error);
            }
            found => found?,
        };
        open.attachments.check_unused(space).await?;
        let (pool, mut notes) = (open.pool.id(), Vec::new());
        // A stored attachment that could not be restored is removed too.
        let known = self.stored_attachments.of(pool).iter().any(|(stored, _)| *stored == space);
        if !open.attachments.end(space).await && !known {
            return Err(StorageError::NotAttached(name.to_owned()));
        }
        if let Err(error) = self.stored_attachments.remove(pool, space).await {
            notes.push(format!("it will be attached again after a restart of the server: {error}"));
        }
        if let Ok(owners) = open.writable() {
            owners.flush(space).await?;
        }
        Ok(done(format!("{name} is detached"), notes))
    }

    /// Removes the stored attachment of a virtual disk of a missing pool, by its name when it was attached. `None`: there
    /// is none.
    ///
    /// # Errors
    /// [`StorageError::Ambiguous`].
    async fn remove_stored_of_missing(&self, name: &str) -> Result<Option<Changed>, StorageError> {
        let mut found = self.attached_to_missing();
        found.retain(|e| name == e.space() || name == format!("{}/{}", e.pool(), e.space()));
        if found.len() > 1 {
            return Err(StorageError::Ambiguous { name: name.to_owned(), what: "virtual disks" });
        }
        let Some(entry) = found.pop() else { return Ok(None) };
        let removed = self.stored_attachments.remove_entry(&entry).await;
        let note = |e| format!("it will be attached again after a restart of the server: {e}");
        let text = format!("{name} will not be attached when the pool {} is found", entry.pool());
        Ok(Some(done(text, removed.err().map(note).into_iter().collect())))
    }

    /// Removes stored attachments of virtual disks that are destroyed.
    pub(super) async fn forget(&self, pool: PoolId, is_destroyed: impl Fn(SpaceId) -> bool) {
        for (space, _) in
            self.stored_attachments.of(pool).into_iter().filter(|(space, _)| is_destroyed(*space))
        {
            if let Err(error) = self.stored_attachments.remove(pool, space).await {
                tracing::warn!(%pool, space = space.0, %error, "the stored attachment of a destroyed virtual disk cannot be removed");
            }
        }
    }

    /// Stores the present names with the attachments of a pool.
    pub(super) async fn store_names(&self, open: &OpenPool) {
        for (space, attach) in self.stored_attachments.of(open.pool.id()) {
            let names = Names { pool_name: open.name(), space_name: open.name_of(space) };
            if let Err(error) = self.stored_attachments.set(open.pool.id(), space, names, attach).await {
                tracing::warn!(pool = open.name(), space = space.0, %error, "the new name is not stored with an attachment");
            }
        }
    }

    /// The stored attachments of pools that were not found.
    pub(super) fn attached_to_missing(&self) -> Vec<StoredAttachment> {
        let known: Vec<_> = self.known.lock().keys().map(ToString::to_string).collect();
        self.stored_attachments.of_others(|id| known.iter().any(|k| k == id))
    }
}

impl OpenPool {
    /// Resizes a virtual disk, which may be attached if it grows. Returns a note for the user, if there is one.
    ///
    /// # Errors
    /// See [`StorageError`]: it is attached and would shrink, or the kernel cannot resize its block device.
    pub(super) async fn resize_in_use(
        &self,
        space: SpaceId,
        size: u64,
    ) -> Result<Option<&'static str>, StorageError> {
        match size.cmp(&self.size_of(space)) {
            Ordering::Less => self.refuse_attached(space)?,
            Ordering::Equal => {}
            Ordering::Greater => self.attachments.check_growth(space)?,
        }
        self.resize(space, size).await?;
        Ok(self.attachments.report_growth(space, size).await?)
    }
}

/// The URL for NBD clients.
fn url(name: &str, socket: &Path) -> String {
    let parts = socket.to_string_lossy();
    let parts: Vec<_> = parts.split('/').map(segment).collect();
    format!("nbd+unix:///{}?socket={}", segment(name), parts.join("/"))
}

/// Binds a socket that only this user may connect to. Replaces a stale socket without a listener.
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
