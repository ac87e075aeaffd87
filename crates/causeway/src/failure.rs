//! Why a command failed: by stage, with the cure and the exit code.

use std::io;
use std::path::PathBuf;

use smb_auth::users::UserFileError;
use smb_wire::NtStatus;
use thiserror::Error;

use crate::config::ConfigError;
use crate::control::client::ControlError;
use crate::control::storage::ResiliencySetting;
use crate::daemon::ServeError;
use crate::password::PasswordError;
use crate::url::UrlError;

/// Exit code of a failed command.
pub const FAILED: u8 = 1;
/// Exit code for a command line that cannot be understood.
pub const USAGE: u8 = 2;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The running server, or that there is none.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// No server, for a command that has a way without one.
    #[error("no server answers on {}", socket.display())]
    NoServerForUsers {
        /// Where it should.
        socket: PathBuf,
    },
    /// Nothing to set for a share.
    #[error("nothing to set: no --grant, no --deny and no --to-path")]
    NoAcl,
    /// The daemon.
    #[error(transparent)]
    Serve(#[from] Box<ServeError>),
    /// A password.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The file of users.
    #[error(transparent)]
    Users(#[from] UserFileError),
    /// An address that cannot be understood.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No disk of that path or identity is listed.
    #[error("there is no disk {0}")]
    NoDisk(String),
    /// There is a configuration with shares.
    #[error("{} exists, and may have been edited", config.display())]
    IsSetUp {
        /// It.
        config: PathBuf,
    },
    /// No such interface, or it has no address.
    #[error("there is no interface {name} with an address; there are {known}")]
    NoInterface {
        /// Its name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A listing has no such column.
    #[error("there is no column {name:?}; the columns are {columns}")]
    NoColumn {
        /// The name.
        name: String,
        /// Those that there are.
        columns: String,
    },
    /// No jobs with these numbers; the others were changed.
    #[error("there is no job {}", numbers(.0))]
    NoJobs(Vec<u64>),
    /// Faults, which are shown.
    #[error("{0}")]
    Faults(String),
    /// The caller's: another redundancy than a kind of virtual disk has.
    #[error("a {} virtual disk has no redundancy of {redundancy} to choose", word(kind))]
    Redundancy {
        /// It.
        kind: ResiliencySetting,
        /// The requested value.
        redundancy: u8,
    },
    /// A destructive command without confirmation; nothing was done.
    #[error("{0}")]
    NotConfirmed(String),
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(&'static str),
    /// A server could not be reached, or refuses the log-on.
    #[error("{place}: {source}")]
    Connect {
        /// Which.
        place: String,
        /// Why.
        source: Box<smb_client::ConnectError>,
    },
    /// A server refused a request.
    #[error("{place}: {source}")]
    Remote {
        /// With what.
        place: String,
        /// Why.
        source: smb_client::RequestError,
    },
    /// A file became shorter while it was read.
    #[error("{place}: the file became shorter while it was read")]
    Shorter {
        /// Which.
        place: String,
    },
    /// A directory where a file was expected.
    #[error("{place} is a directory")]
    IsDirectory {
        /// Which.
        place: String,
    },
    /// No directory where one was expected.
    #[error("{place} is not a directory")]
    NoSuchDirectory {
        /// Which.
        place: String,
    },
    /// A new file could not take the place of an existing one.
    #[error("{0}, when a new file beside it was to take its place")]
    NotReplaced(Box<Failure>),
    /// A copy was ended by a signal.
    #[error("interrupted: {left}")]
    Interrupted {
        /// The exit code: 128 and the signal.
        code: u8,
        /// What the copy has left behind.
        left: &'static str,
    },
    /// Neither a file nor a directory.
    #[error("{}: not copied: neither a file nor a directory", path.display())]
    NotRegular {
        /// Which.
        path: PathBuf,
    },
    /// The command line of `bench`.
    #[error(transparent)]
    BenchOptions(Box<bench::options::OptionError>),
    /// A run of `bench`.
    #[error(transparent)]
    Bench(Box<bench::engine::RunError>),
    /// A place on a fabric that cannot be understood.
    #[error(transparent)]
    FabricPlace(bench::fabric::PlaceError),
    /// A place on a fabric that cannot be listened on.
    #[error("{place}: {source}")]
    Fabric {
        /// It.
        place: String,
        /// Why.
        source: Box<bench::fabric::FabricError>,
    },
    /// A run of `bench` that is reported, and in which something went wrong.
    #[error("{errors} I/Os failed and {mismatches} sectors were wrong, as reported")]
    BenchWrong {
        /// I/Os.
        errors: u64,
        /// Sectors.
        mismatches: u64,
    },
    /// Files of `bench demo` that have no room.
    #[error(
        "{place}: the demonstrations' files take {}, and {} are free there",
        crate::output::human_bytes(*bytes),
        crate::output::human_bytes(*free)
    )]
    NoRoom {
        /// Where.
        place: String,
        /// That they take.
        bytes: u64,
        /// That are free.
        free: u64,
    },
    /// Parts of a tree failed; each failure was printed.
    #[error("{} failed, as said above", if *.0 == 1 { "1 file".to_owned() } else { format!("{} files", .0) })]
    Some(u64),
    /// A file of this machine.
    #[error("{}: {}", path.display(), system(source))]
    Local {
        /// It.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Standard output was closed by its reader.
    #[error("standard output is closed")]
    Closed,
    /// Standard output or the runtime failed.
    #[error("{0}")]
    System(io::Error),
}

/// A setting as it is written on the command line.
fn word(setting: &ResiliencySetting) -> String {
    use clap::ValueEnum;
    setting.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}

impl Failure {
    /// The command or action that helps, if the message does not contain it.
    pub fn cure(&self) -> Option<String> {
        match self {
            Failure::Config(e) => e.cure(),
            Failure::Control(e) => e.cure(),
            Failure::NoServerForUsers { .. } => Some(
                "is it running? systemctl status causeway, or pass --control, or work on the file with --users FILE"
                    .to_owned(),
            ),
            Failure::NoAcl => Some("grant something, for instance --grant Everyone=read".to_owned()),
            Failure::Users(UserFileError::NoSuchGroup { .. } | UserFileError::NoSuchMember { .. }) => {
                Some("see causeway group list".to_owned())
            }
            Failure::IsSetUp { .. } => Some(
                "nothing was changed; add to it with causeway share add and causeway user add, or pass another --config"
                    .to_owned(),
            ),
            Failure::NoJobs(_) => Some("it has ended or never existed: see causeway job list".to_owned()),
            Failure::NoDisk(_) => Some("see causeway disk list".to_owned()),
            Failure::Redundancy { .. } => Some("leave --redundancy out, or choose --resiliency mirror".to_owned()),
            Failure::NotConfirmed(_) => Some("nothing was done; pass --yes to do it".to_owned()),
            Failure::Serve(e) => e.cure(),
            Failure::Password(PasswordError::NoTerminal) => {
                Some(format!("pass --password-stdin, or set {}", crate::password::VARIABLE))
            }
            Failure::Password(PasswordError::NoTerminalForNew) => Some("pass --password-stdin".to_owned()),
            Failure::Users(UserFileError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run this as the owner of the file (sudo)".to_owned())
            }
            Failure::Users(UserFileError::NoSuchUser { .. }) => Some("see causeway user list".to_owned()),
            Failure::Users(UserFileError::Exists { .. }) => {
                Some("choose another name, or change its password with: causeway user passwd NAME".to_owned())
            }
            Failure::Connect { source, .. } => crate::cures::connect(source),
            Failure::Remote { source, .. } => crate::cures::request(source),
            Failure::Url(UrlError::Path { source: vfs::PathError::TooLong, .. }) => {
                Some("a name has 255 characters at most".to_owned())
            }
            Failure::Local { source, .. } => crate::cures::local(source),
            Failure::NoRoom { .. } => Some(
                "choose a place with room (--directory, or another TARGET), files that need none (--sparse, which reads no \
                 disk), smaller or fewer ones (--size, --threads), or only those without (--only S1-16,S3-18,\u{2026})"
                    .to_owned(),
            ),
            Failure::NotReplaced(_) => Some(
                "another program may have it open, or the directory allows no changes; --in-place overwrites the file itself, which is \
                 incomplete if that is interrupted"
                    .to_owned(),
            ),
            Failure::NotRegular { .. } => Some("copy its target, or leave it out".to_owned()),
            Failure::IsDirectory { .. } => Some("pass -r to include its contents".to_owned()),
            Failure::NoSuchDirectory { .. } => Some("make it first: causeway mkdir".to_owned()),
            _ => None,
        }
    }

    /// The error and the action that helps.
    pub fn advice(&self) -> String {
        match self.cure() {
            Some(cure) => format!("{self}: {cure}"),
            None => self.to_string(),
        }
    }

    /// Whether a server refuses a name, not what is to be done with it.
    pub fn is_about_the_name(&self) -> bool {
        matches!(self, Failure::Remote { source, .. }
            if matches!(source.status(), Some(NtStatus::OBJECT_NAME_INVALID | NtStatus::NOT_SUPPORTED)))
    }

    /// Whether the next file would fail too.
    pub fn ends_everything(&self) -> bool {
        match self {
            Failure::Connect { .. } | Failure::Closed | Failure::System(_) => true,
            Failure::Remote { source, .. } => matches!(source, smb_client::RequestError::Lost(_)),
            Failure::Local { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Failure::NotReplaced(source) => source.ends_everything(),
            _ => false,
        }
    }

    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Usage(_)
            | Failure::NoColumn { .. }
            | Failure::Url(_)
            | Failure::BenchOptions(_)
            | Failure::FabricPlace(_) => USAGE,
            Failure::Closed => 0,
            Failure::Interrupted { code, .. } => *code,
            _ => FAILED,
        }
    }
}

/// The system's reason without its number.
fn system(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn numbers(all: &[u64]) -> String {
    all.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        if e.kind() == io::ErrorKind::BrokenPipe { Failure::Closed } else { Failure::System(e) }
    }
}
