//! Where the demonstrations' files are: on the local server or on the target's server.

use arena::Arena;
use bench::demo::{Demonstration, Transport, Volume};
use bench::engine::SmbFile;
use env::Env;
use smb_client::{Client, ConnectError, ConnectOptions, RequestError, TransportChoice};
use vfs::VfsPath;

use super::DemoArgs;
use super::server::{PoolReads, Server};
use crate::failure::Failure;
use crate::url::Location;

/// Memory of the connection that removes files, in bytes.
const MEMORY: usize = 16 << 20;

/// See the module.
pub(super) struct Places {
    /// The local server, if there is no target; dropping this stops it.
    server: Option<Server>,
    pid: Option<u32>,
    storage: Directory,
    null: Directory,
    pool: Option<Directory>,
    /// The files to remove from the servers at the end.
    files: Vec<(Volume, String)>,
}

/// A directory of a share, and how to connect to it.
struct Directory {
    host: String,
    port: u16,
    share: String,
    path: VfsPath,
    options: ConnectOptions,
}

impl Places {
    /// Starts the local server, or asks for the password of the target's server.
    pub(super) fn new(args: &DemoArgs, shown: &[&'static Demonstration]) -> Result<Places, Failure> {
        let files = shown.iter().flat_map(|d| (1..=args.threads()).map(|n| (d.volume, d.file(n))));
        let mut files: Vec<_> = files.collect();
        files.sort_by(|a, b| (&a.1, a.0 as u8).cmp(&(&b.1, b.0 as u8)));
        files.dedup();
        let Some(target) = &args.target else {
            let plan = args.pool_plan(shown);
            let bytes = args.storage_bytes(shown) + plan.map_or(0, |p| p.bytes());
            let server = Server::start(args.directory.as_deref(), bytes, plan)?;
            let at = |share: &str| Directory {
                host: "127.0.0.1".to_owned(),
                port: server.tcp_port(),
                share: share.to_owned(),
                path: VfsPath::root(),
                options: server.options(),
            };
            let (storage, null, pool) = (at("files"), at("null"), Some(at("pool")));
            return Ok(Places { pid: Some(server.pid()), server: Some(server), storage, null, pool, files });
        };
        let storage = Directory::named(target, args, None)?;
        storage.has_free_space(args.storage_bytes(shown))?;
        let null = Directory::named(args.null.as_ref().unwrap_or(target), args, Some(&storage))?;
        Ok(Places { server: None, pid: args.pid, storage, null, pool: None, files })
    }

    /// The server's process id, if known.
    pub(super) fn server_pid(&self) -> Option<u32> {
        self.pid
    }

    /// The counters of the local server's pool, if the demonstration's data is on it.
    ///
    /// # Errors
    /// The server does not answer.
    pub(super) fn pool_reads(&self, d: &Demonstration) -> Result<Option<PoolReads>, Failure> {
        match &self.server {
            Some(server) if d.volume == Volume::Pool => server.pool_reads().map(Some),
            _ => Ok(None),
        }
    }

    /// The files of a demonstration's threads: the names and the places.
    pub(super) fn of(
        &self,
        d: &Demonstration,
        transport: Transport,
        threads: u32,
    ) -> (Vec<String>, Vec<SmbFile>) {
        let directory = self.directory(d.volume);
        (1..=threads).map(|n| directory.file(&d.file(n), transport)).unzip()
    }

    /// Removes the files from the target's server, or stops the local server.
    ///
    /// # Errors
    /// A file could not be removed.
    pub(super) fn remove(self) -> Result<(), Failure> {
        match &self.server {
            Some(_) => Ok(()),
            None => crate::commands::block_on(async {
                for volume in [Volume::Storage, Volume::Null] {
                    let files: Vec<&str> =
                        self.files.iter().filter(|f| f.0 == volume).map(|f| f.1.as_str()).collect();
                    self.directory(volume).remove(&files).await?;
                }
                Ok(())
            }),
        }
    }

    fn directory(&self, volume: Volume) -> &Directory {
        match volume {
            Volume::Storage => &self.storage,
            Volume::Null => &self.null,
            // Only the local server has a pool.
            Volume::Pool => self.pool.as_ref().unwrap_or(&self.storage),
        }
    }
}

impl Directory {
    /// The directory of a URL. The password is requested once for each server.
    fn named(text: &str, args: &DemoArgs, known: Option<&Directory>) -> Result<Directory, Failure> {
        let at = Location::parse(text)?;
        let share = at.share()?.to_owned();
        let options = match known.filter(|k| k.host == at.host && k.port == at.port) {
            Some(known) => known.options.clone(),
            None => args.remote.options(&at)?,
        };
        Ok(Directory { host: at.host, port: at.port, share, path: at.path, options })
    }

    fn path(&self, name: &str) -> String {
        if self.path.is_root() { name.to_owned() } else { format!("{}\\{name}", self.path) }
    }

    fn file(&self, name: &str, transport: Transport) -> (String, SmbFile) {
        let mut options = self.options.clone();
        options.transport = if transport.is_direct() { TransportChoice::Rdma } else { TransportChoice::Tcp };
        options.remote_invalidation = transport != Transport::DirectWithout;
        let path = self.path(name);
        let called = format!(r"\\{}@{}\{}\{path}", self.host, self.port, self.share);
        (called, SmbFile { host: self.host.clone(), share: self.share.clone(), path, options })
    }

    fn place(&self) -> String {
        format!(r"\\{}\{}", self.host, self.share)
    }

    async fn connect(&self) -> Result<Client, Failure> {
        let options = ConnectOptions { transport: TransportChoice::Tcp, ..self.options.clone() };
        let connected = Client::connect(&self.host, options, Arena::new(MEMORY)?, Env::real()).await;
        connected.map_err(|source: ConnectError| Failure::Connect {
            place: self.place(),
            source: Box::new(source),
        })
    }

    /// Asks the server whether it has space for `bytes`, before any data is written.
    ///
    /// # Errors
    /// [`Failure::NoRoom`], or the error of the server.
    fn has_free_space(&self, bytes: u64) -> Result<(), Failure> {
        if bytes == 0 {
            return Ok(());
        }
        let failed = |source: RequestError| Failure::Remote { place: self.place(), source };
        let free = crate::commands::block_on(async {
            let client = self.connect().await?;
            let space = client.tree(&self.share).await.map_err(failed)?.space().await.map_err(failed)?;
            let _ = client.logoff().await; // the session ends anyway
            Ok::<u64, Failure>(space.available)
        })?;
        if free < bytes { Err(Failure::NoRoom { place: self.place(), bytes, free }) } else { Ok(()) }
    }

    async fn remove(&self, names: &[&str]) -> Result<(), Failure> {
        if names.is_empty() {
            return Ok(());
        }
        let client = self.connect().await?;
        let failed = |source: RequestError| Failure::Remote { place: self.place(), source };
        let tree = client.tree(&self.share).await.map_err(failed)?;
        for name in names {
            match tree.remove_file(&self.path(name)).await {
                // The run was stopped before it created this file.
                Err(e) if crate::remote::is_missing(&e) => {}
                other => other.map_err(failed)?,
            }
        }
        let _ = client.logoff().await; // the session ends anyway
        Ok(())
    }
}
