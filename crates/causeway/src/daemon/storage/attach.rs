//! Who uses the virtual disks: each that is attached has an NBD server on a Unix socket.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arena::Arena;
use disk::Disk;
use env::Env;
use parking_lot::Mutex;
use pool::SpaceId;
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

struct Attachment {
    socket: PathBuf,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

impl Attachments {
    /// Where a virtual disk is served.
    pub(super) fn socket(&self, space: SpaceId) -> Option<PathBuf> {
        self.all.lock().get(&space).map(|a| a.socket.clone())
    }

    /// One that is attached, if any is.
    pub(super) fn any(&self) -> Option<SpaceId> {
        self.all.lock().keys().next().copied()
    }

    fn begin(
        &self,
        space: SpaceId,
        export: nbd::Export,
        socket: &Path,
        arena: &Arena,
        env: &Env,
    ) -> io::Result<()> {
        let listener = bind(socket)?;
        let (stop, stopped) = watch::channel(false);
        let server = nbd::Server::new(vec![export], arena.clone(), env.clone());
        let task = tokio::spawn(server.serve(listener, stopped));
        self.all.lock().insert(space, Attachment { socket: socket.to_owned(), stop, task });
        Ok(())
    }

    /// Ends the clients of a virtual disk when what they have under way is done; false when it is not attached.
    async fn end(&self, space: SpaceId) -> bool {
        let Some(attachment) = self.all.lock().remove(&space) else { return false };
        let Attachment { socket, stop, task } = attachment;
        let _ = stop.send(true);
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(socket = %socket.display(), %error, "NBD: the listener had failed")
            }
            Err(_) => tracing::error!(socket = %socket.display(), "NBD: the server had panicked"),
        }
        let _ = fs::remove_file(&socket);
        true
    }

    /// Ends the clients of all.
    pub(super) async fn end_all(&self) {
        while let Some(space) = self.any() {
            self.end(space).await;
        }
    }
}

impl Pools {
    /// Serves a virtual disk over NBD.
    ///
    /// # Errors
    /// See [`StorageError`]: it is attached already, or the socket cannot be made.
    pub async fn attach(&self, name: &str, attach: Attach) -> Result<Changed, StorageError> {
        let path = attach.nbd;
        if !path.is_absolute() {
            return Err(StorageError::NotAbsolute(path));
        }
        let _one = self.changing.lock().await;
        let (open, space) = self.find_space(name)?;
        if let Some(socket) = open.attachments.socket(space) {
            return Err(StorageError::Attached { name: name.to_owned(), socket });
        }
        let data = open
            .data()
            .ok_or(StorageError::NotYet("using the virtual disks of a pool that is open for reading only"))?;
        let name = open.pool.read(|s| s.spaces.get(&space).map_or_else(String::new, |r| r.name.clone()));
        let disk: Arc<dyn Disk> = Arc::new(data.space(space)?);
        let export =
            nbd::Export { name: name.clone(), disk, read_only: attach.read_only, discard_zeros: true };
        let begun = open.attachments.begin(space, export, &path, &self.arena, &self.env);
        begun.map_err(|source| StorageError::Socket { path: path.clone(), source })?;
        tracing::info!(space = name, socket = %path.display(), "virtual disk attached");
        Ok(done(
            format!("{name} is attached: nbd+unix:///{}?socket={}", segment(&name), path.display()),
            Vec::new(),
        ))
    }

    /// Ends the clients of a virtual disk, and flushes it.
    ///
    /// # Errors
    /// See [`StorageError`]: it is not attached, or what was written cannot be made durable.
    pub async fn detach(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.find_space(name)?;
        if !open.attachments.end(space).await {
            return Err(StorageError::NotAttached(name.to_owned()));
        }
        if let Some(data) = open.data() {
            data.space(space)?.flush_for_user().await?;
        }
        Ok(done(format!("{name} is detached"), Vec::new()))
    }
}

/// A socket that only this user may connect to. One that nobody listens on any more is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => fs::remove_file(path)?,
        // What is there and is no socket stays: binding says so.
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
