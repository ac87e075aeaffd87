//! A share of a server for the client commands: wraps [`smb_client`] with paths, URLs in errors, and the options of
//! the command line.

mod entry;
mod file;
mod protection;

use arena::Arena;
use clap::{Args, ValueEnum};
use env::Env;
use schemars::JsonSchema;
use serde::Serialize;
use smb_client::{
    Client, ConnectError, ConnectOptions, Credentials, FileTime, NtHash, NtStatus, OpenOptions, RequestError,
    Share, ShareType, TransportChoice, TransportKind, Tree, WhyNotRdma,
};
use vfs::VfsPath;

use crate::failure::Failure;
use crate::password;
use crate::transfer::copy;
use crate::url::{Location, UrlError};
pub use entry::{Entry, Time};
pub use file::RemoteFile;

/// Memory for payload: twice the amount that may be in flight, so that an awaited piece always has memory.
const MEMORY: usize = 2 * copy::FILES * copy::DEPTH * copy::PIECE as usize;

/// The end of the name of an incomplete file, which is renamed when it is complete.
pub const TEMPORARY: &str = ".part";

/// The beginning of the name of an incomplete file that is renamed to `name` when it is complete. A long name is cut,
/// because file systems limit a name to 255 bytes.
pub fn temporary_prefix(name: &str) -> String {
    let end = name.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= 200).last();
    format!(".{}.", &name[..end.unwrap_or(0)])
}

/// How to reach a server.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    /// User to log on as [default: the user in the URL, else $USER]
    #[arg(short = 'U', long)]
    user: Option<String>,
    /// Domain of the user [default: the domain in the URL, else none]
    #[arg(long)]
    domain: Option<String>,
    /// Read the password from standard input [default: use $CAUSEWAY_PASSWORD, else prompt]
    #[arg(long)]
    password_stdin: bool,
    /// Transport; auto uses SMB Direct if the server announces it
    #[arg(long, value_enum, default_value = "auto")]
    transport: Transport,
    /// Port of SMB Direct over iWARP
    #[arg(long, value_name = "PORT", default_value_t = 5445)]
    rdma_port: u16,
    /// Encrypt all requests; uses TCP, because RDMA payload would not be encrypted
    #[arg(long)]
    encrypt: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Auto,
    Tcp,
    Rdma,
}

impl RemoteArgs {
    /// The requested transport.
    pub fn transport(&self) -> TransportChoice {
        match self.transport {
            Transport::Auto => TransportChoice::Auto,
            Transport::Tcp => TransportChoice::Tcp,
            Transport::Rdma => TransportChoice::Rdma,
        }
    }

    /// How to connect to the server of a place; asks for the password.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn options(&self, at: &Location) -> Result<ConnectOptions, Failure> {
        let user = self.user.clone().or_else(|| at.user.clone()).or_else(|| std::env::var("USER").ok());
        let user =
            user.filter(|u| !u.is_empty()).ok_or(Failure::Usage("no user: use smb://USER@host or --user"))?;
        let domain = self.domain.clone().or_else(|| at.domain.clone()).unwrap_or_default();
        let password =
            password::existing(self.password_stdin, &format!("Password for {user} on {}: ", at.host))?;
        let nt_hash = NtHash::from_password(&password);
        let workstation = rustix::system::uname().nodename().to_string_lossy().to_uppercase();
        let mut options = ConnectOptions::new(Credentials { user, domain, nt_hash, workstation });
        options.transport = self.transport();
        options.port = at.port;
        options.rdma_port = self.rdma_port;
        options.encrypt = self.encrypt;
        Ok(options)
    }
}

/// A share of a server, for listings.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RemoteShare {
    /// Its name.
    pub name: String,
    /// Disk, IPC, Printer.
    pub kind: &'static str,
    /// Its comment.
    pub comment: String,
    /// Administrative.
    pub special: bool,
}

/// How an existing file is treated by a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It is truncated.
    Replace,
    /// It is kept.
    Continue,
}

/// A connected share.
pub struct Remote {
    client: Client,
    tree: Tree,
    arena: Arena,
    /// The share, for places in errors.
    share: Location,
}

impl Remote {
    /// Connects to the server, logs on, and opens the share.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn connect(args: &RemoteArgs, at: &Location) -> Result<Remote, Failure> {
        let name = at.share()?;
        let (client, arena) = client(args, at).await?;
        let share = Location { path: VfsPath::root(), directory: false, ..at.clone() };
        let tree = client.tree(name).await.map_err(failed(share.to_string()))?;
        Ok(Remote { client, tree, arena, share })
    }

    /// Ends the session. Errors are ignored, because the connection closes anyway.
    pub async fn close(self) {
        let _ = self.client.logoff().await;
    }

    /// Whether a file's owner and access list can be queried. ksmbd (Linux 6.12) signs the response wrongly, which
    /// ends the connection.
    pub fn tells_protection(&self) -> bool {
        self.client.is_identified()
    }

    /// Memory for payload.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The transport of I/O, and the reason if it is not RDMA and the user did not choose it.
    pub fn transport(&self) -> (&'static str, Option<String>) {
        let report = self.client.transport();
        let kind = match report.kind {
            TransportKind::Tcp => "tcp",
            TransportKind::Rdma => "rdma",
        };
        (kind, report.why_not_rdma.filter(|w| *w != WhyNotRdma::TurnedOff).map(|w| w.to_string()))
    }

    /// The attributes of a file or directory.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn stat(&self, path: &VfsPath) -> Result<Entry, Failure> {
        let metadata = self.tree.stat(&path.to_string()).await.map_err(self.failed(path))?;
        Ok(Entry::new(path.name().unwrap_or_default(), &metadata))
    }

    /// [`Remote::stat`] of a link, not of its target.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn stat_link(&self, path: &VfsPath) -> Result<Entry, Failure> {
        let metadata = self.tree.stat_link(&path.to_string()).await.map_err(self.failed(path))?;
        Ok(Entry::new(path.name().unwrap_or_default(), &metadata))
    }

    /// [`Remote::stat_link`]; `None` if the entry does not exist.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn find_link(&self, path: &VfsPath) -> Result<Option<Entry>, Failure> {
        if_there(self.stat_link(path).await)
    }

    /// [`Remote::stat`]; `None` if the file does not exist.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn find(&self, path: &VfsPath) -> Result<Option<Entry>, Failure> {
        if_there(self.stat(path).await)
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn list(&self, path: &VfsPath) -> Result<Vec<Entry>, Failure> {
        self.list_matching(path, "*").await
    }

    /// The entries of a directory that match a pattern of `*` and `?`, as the server evaluates it; no match
    /// is no error.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn list_matching(&self, path: &VfsPath, pattern: &str) -> Result<Vec<Entry>, Failure> {
        let failed = self.failed(path);
        let mut dir = self.tree.read_dir(&path.to_string(), pattern).await.map_err(&failed)?;
        let entries = dir.all().await.map_err(&failed)?;
        let _ = dir.file().close().await; // it was only read
        Ok(entries.iter().map(|e| Entry::new(&e.name, &e.metadata)).collect())
    }

    /// Opens a file to read.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn open(&self, path: &VfsPath) -> Result<RemoteFile, Failure> {
        self.open_with(path, OpenOptions::read()).await
    }

    /// Opens an existing file to write.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn open_to_write(&self, path: &VfsPath) -> Result<RemoteFile, Failure> {
        self.open_with(path, OpenOptions::write()).await
    }

    /// Opens a file to write.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn create(&self, path: &VfsPath, create: Create) -> Result<RemoteFile, Failure> {
        let options = match create {
            Create::Replace => OpenOptions::create(),
            Create::Continue => OpenOptions::open_or_create(),
        };
        self.open_with(path, options).await
    }

    /// Creates a file in the directory of `target`, which [`RemoteFile::replace`] renames to `target`. Until then the
    /// server deletes it on close. Errors name `target`.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn create_beside(&self, target: &VfsPath) -> Result<RemoteFile, Failure> {
        let random = u32::from_le_bytes(Env::real().random());
        let name = format!("{}{random:08x}{TEMPORARY}", temporary_prefix(target.name().unwrap_or_default()));
        let path = target.parent().unwrap_or_default().join(&name);
        let path = path.map_err(|source| UrlError::Path { path: name, source })?;
        let options = OpenOptions::create_new().deletable();
        let file = match self.tree.open(&path.to_string(), options.protectable()).await {
            // A user without the right to change access lists may still create files.
            Err(e) if e.status() == Some(NtStatus::ACCESS_DENIED) => {
                self.tree.open(&path.to_string(), options).await
            }
            other => other,
        };
        let file = RemoteFile::new(file.map_err(self.failed(target))?, self.place(target));
        if let Err(e) = file.set_temporary(true).await {
            file.close().await;
            let _ = self.remove_file(&path).await;
            return Err(e);
        }
        Ok(file)
    }

    async fn open_with(&self, path: &VfsPath, options: OpenOptions) -> Result<RemoteFile, Failure> {
        let file = self.tree.open(&path.to_string(), options).await.map_err(self.failed(path))?;
        Ok(RemoteFile::new(file, self.place(path)))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn make_directory(&self, path: &VfsPath) -> Result<(), Failure> {
        self.tree.create_dir(&path.to_string()).await.map_err(self.failed(path))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn remove_file(&self, path: &VfsPath) -> Result<(), Failure> {
        self.tree.remove_file(&path.to_string()).await.map_err(self.failed(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn remove_directory(&self, path: &VfsPath) -> Result<(), Failure> {
        self.tree.remove_dir(&path.to_string()).await.map_err(self.failed(path))
    }

    /// Renames a file or directory.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn rename(&self, from: &VfsPath, to: &VfsPath, replace: bool) -> Result<(), Failure> {
        let renamed = self.tree.rename(&from.to_string(), &to.to_string(), replace).await;
        renamed.map_err(|e| {
            let at_fault = if e.status() == Some(NtStatus::OBJECT_NAME_COLLISION) { to } else { from };
            self.failed(at_fault)(e)
        })
    }

    /// Sets when a file or directory last changed.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn set_modified(&self, path: &VfsPath, time: FileTime) -> Result<(), Failure> {
        let file = self.open_with(path, OpenOptions::write_attributes()).await?;
        file.set_modified(time).await?;
        file.close().await;
        Ok(())
    }

    fn place(&self, path: &VfsPath) -> String {
        Location { path: path.clone(), ..self.share.clone() }.to_string()
    }

    fn failed(&self, path: &VfsPath) -> impl Fn(RequestError) -> Failure + use<> {
        failed(self.place(path))
    }
}

/// The shares of a server.
///
/// # Errors
/// See [`Failure`].
pub async fn shares(args: &RemoteArgs, at: &Location) -> Result<Vec<RemoteShare>, Failure> {
    let (client, _) = client(args, at).await?;
    let shares = client.shares().await.map_err(failed(at.to_string()))?;
    let _ = client.logoff().await;
    let share =
        |s: Share| RemoteShare { name: s.name, kind: kind(s.kind), comment: s.comment, special: s.special };
    Ok(shares.into_iter().map(share).collect())
}

fn kind(kind: ShareType) -> &'static str {
    match kind {
        ShareType::DISK => "Disk",
        ShareType::PIPE => "IPC",
        ShareType::PRINT => "Printer",
        _ => "Unknown",
    }
}

async fn client(args: &RemoteArgs, at: &Location) -> Result<(Client, Arena), Failure> {
    let options = args.options(at)?;
    let arena = Arena::new(MEMORY)?;
    let connected = Client::connect(&at.host, options, arena.clone(), Env::real()).await;
    let place = Location { share: None, path: VfsPath::root(), directory: false, ..at.clone() }.to_string();
    let client =
        connected.map_err(|source: ConnectError| Failure::Connect { place, source: Box::new(source) })?;
    Ok((client, arena))
}

fn failed(place: String) -> impl Fn(RequestError) -> Failure {
    move |source| Failure::Remote { place: place.clone(), source }
}

/// Converts the error for a missing file to `None`.
fn if_there(found: Result<Entry, Failure>) -> Result<Option<Entry>, Failure> {
    match found {
        Err(Failure::Remote { source, .. }) if is_missing(&source) => Ok(None),
        other => other.map(Some),
    }
}

/// Whether there is no such file.
pub fn is_missing(e: &RequestError) -> bool {
    matches!(
        e.status(),
        Some(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND | NtStatus::NO_SUCH_FILE)
    )
}
