//! The local server of the demonstrations: a process on loopback with its own directory. It has a share of a
//! directory, a share on the backend `null`, and, if needed, a share of a pool's virtual disks. Dropping it, or
//! [`leave`], stops the process and removes the directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bench::demo::POOL_COLUMNS;
use env::Env;
use rustix::process::{Pid, Signal, WaitOptions};
use smb_auth::users::UserFile;
use smb_client::{ConnectOptions, Credentials, NtHash};

use super::pool::PoolPlan;
pub(super) use super::pool::PoolReads;
use crate::control::client::ControlClient;
use crate::failure::Failure;

const USER: &str = "bench";
const CONTROL: &str = "control.sock";
/// How long the server may take to stop before it is killed.
const END: Duration = Duration::from_secs(10);
/// The space that must stay free on the disk, in bytes.
const SPARE: u64 = 256 << 20;

/// See the module.
pub(super) struct Server {
    child: Child,
    place: Scratch,
    tcp: u16,
    iwarp: u16,
    password: NtHash,
}

/// A directory that is removed on drop.
struct Scratch(PathBuf);

/// The directory and the process that would remain if this process exited now.
struct Leftovers {
    place: PathBuf,
    /// The server, until it is known to have exited: then its process id may be reused.
    server: Option<Pid>,
}

/// Locked while the directory or the process is created or removed, so that the record is always complete.
static LEFTOVERS: Mutex<Option<Leftovers>> = Mutex::new(None);

fn leftovers() -> MutexGuard<'static, Option<Leftovers>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exits this process after stopping the server and removing its directory; may be called from any thread.
pub(in super::super) fn leave(code: i32) -> ! {
    let leftovers = leftovers(); // locked until the exit: no other thread can start a server
    if let Some(Leftovers { place, server }) = &*leftovers {
        if let Some(server) = server {
            let _ = rustix::process::kill_process_group(*server, Signal::KILL);
            let _ = rustix::process::waitpid(Some(*server), WaitOptions::empty());
        }
        let _ = fs::remove_dir_all(place);
    }
    std::process::exit(code);
}

impl Scratch {
    fn create(place: PathBuf) -> Result<Scratch, Failure> {
        let mut leftovers = leftovers();
        let made = DirBuilder::new().mode(0o700).create(&place);
        made.map_err(|source| Failure::Local { path: place.clone(), source })?;
        *leftovers = Some(Leftovers { place: place.clone(), server: None });
        Ok(Scratch(place))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut leftovers = leftovers();
        let _ = fs::remove_dir_all(&self.0);
        *leftovers = None;
    }
}

impl Server {
    /// Starts a server whose files are in a new directory under `parent`, which needs `bytes` of free space.
    ///
    /// # Errors
    /// Too little free space, or the server does not start; its reason is on standard error.
    pub(super) fn start(
        parent: Option<&Path>,
        bytes: u64,
        pool: Option<PoolPlan>,
    ) -> Result<Server, Failure> {
        let env = Env::real();
        let parent = std::path::absolute(parent.map_or_else(std::env::temp_dir, Path::to_owned))?;
        let name = format!("causeway-bench-{:08x}", env.random_u64() as u32);
        let place = Scratch::create(parent.join(name))?;
        let local = |source| Failure::Local { path: place.0.clone(), source };
        let space = rustix::fs::statvfs(&place.0).map_err(|e| local(e.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < bytes.saturating_add(SPARE) {
            return Err(Failure::NoRoom { place: parent.display().to_string(), bytes, free });
        }
        let password = NtHash::from_password(&format!("{:016x}{:016x}", env.random_u64(), env.random_u64()));
        let config = write(&place.0, password.clone(), &env).map_err(local)?;
        let program = std::env::current_exe()?;
        let mut leftovers = leftovers();
        let mut child = Command::new(program)
            .args(["serve", "--log", "error", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process only: the server stops with it, after the last I/O.
            .process_group(0)
            .spawn()?;
        if let Some(leftovers) = &mut *leftovers {
            leftovers.server = Some(Pid::from_child(&child));
        }
        drop(leftovers);
        let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
        let mut server = Server { child, place, tcp: 0, iwarp: 0, password };
        let ready = lines.map_while(Result::ok).find(|l| l.starts_with("ready: ")).unwrap_or_default();
        let port = |transport: &str| {
            let (_, rest) = ready.split_once(&format!("{transport} 127.0.0.1:"))?;
            rest.split(',').next()?.parse().ok()
        };
        match (port("tcp"), port("iwarp")) {
            (Some(tcp), Some(iwarp)) => (server.tcp, server.iwarp) = (tcp, iwarp),
            _ => {
                return Err(
                    io::Error::other("the local server did not start: see its error message above").into()
                );
            }
        }
        if let Some(pool) = pool {
            crate::commands::block_on(pool.create(&server.place.0, &server.control()))?;
        }
        Ok(server)
    }

    fn control(&self) -> ControlClient {
        ControlClient::new(&self.place.0.join(CONTROL))
    }

    /// The counters of its pool.
    ///
    /// # Errors
    /// The server does not answer.
    pub(super) fn pool_reads(&self) -> Result<PoolReads, Failure> {
        crate::commands::block_on(PoolReads::read(&self.control()))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn tcp_port(&self) -> u16 {
        self.tcp
    }

    /// The options to log on to the server.
    pub(super) fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new(Credentials {
            user: USER.to_owned(),
            domain: String::new(),
            nt_hash: self.password.clone(),
            workstation: "BENCH".to_owned(),
        });
        (options.port, options.rdma_port) = (self.tcp, self.iwarp);
        options
    }
}

/// Writes the configuration and the user.
fn write(place: &Path, password: NtHash, env: &Env) -> io::Result<PathBuf> {
    let (files, users, config) = (place.join("files"), place.join("users.toml"), place.join("causeway.toml"));
    fs::create_dir(&files)?;
    // The user does not exist on this machine, so it has the rights of others. The files are in a private
    // directory.
    fs::set_permissions(&files, Permissions::from_mode(0o777))?;
    let random = std::array::from_fn(|_| u32::from_le_bytes(env.random()));
    let table = UserFile::create(&users, random).map_err(io::Error::other)?;
    table.add(USER, password, "Demonstrations").map_err(io::Error::other)?;
    let text = format!(
        "[server]\nname = \"CAUSEWAY\"\nlisten = [\"127.0.0.1:0\"]\niwarp = [\"127.0.0.1:0\"]\n\
         announce_rdma = true\ncontrol = {control:?}\nusers = {users:?}\nmemory = \"512MiB\"\n\n\
         [[share]]\nname = \"files\"\npath = {files:?}\n\n[[share]]\nname = \"null\"\nbackend = \"null\"\n\n\
         [[share]]\nname = \"pool\"\nbackend = \"spaces\"\npool = {pool:?}\ncolumns = {POOL_COLUMNS}\n",
        control = place.join(CONTROL),
        pool = super::pool::NAME,
    );
    fs::write(&config, text)?;
    Ok(config)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let ended = |leftovers: &mut Option<Leftovers>| leftovers.iter_mut().for_each(|l| l.server = None);
        let step = Duration::from_millis(20);
        for _ in 0..END.as_millis() / step.as_millis() {
            let mut leftovers = leftovers();
            match self.child.try_wait() {
                Ok(None) => {}
                _ => return ended(&mut leftovers),
            }
            drop(leftovers);
            std::thread::sleep(step);
        }
        let mut leftovers = leftovers();
        let _ = self.child.kill();
        let _ = self.child.wait();
        ended(&mut leftovers);
        tracing::debug!(place = ?self.place.0, "the server was killed");
    }
}
