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
    /// The configuration cannot be read, is invalid, or cannot be changed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server does not run, does not answer, or refused the request.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// No server is running, for a command that can also work without one.
    #[error("no server answers on {}", socket.display())]
    NoServerForUsers {
        /// The socket.
        socket: PathBuf,
    },
    /// Nothing to set for a share.
    #[error("nothing to set: no --grant, no --deny and no --to-path")]
    NoAcl,
    /// The daemon did not start.
    #[error(transparent)]
    Serve(#[from] Box<ServeError>),
    /// There is no usable password.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The users file cannot be read or changed.
    #[error(transparent)]
    Users(#[from] UserFileError),
    /// An address that cannot be understood.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No disk of that path or identity is listed.
    #[error("there is no disk {0}")]
    NoDisk(String),
    /// A configuration with more than `[server]` exists.
    #[error("the configuration {} exists already, with shares or other sections", config.display())]
    IsSetUp {
        /// The path of the configuration.
        config: PathBuf,
    },
    /// No such interface, or it has no address.
    #[error("no interface {name} has an address; the interfaces with an address are {known}")]
    NoInterface {
        /// Its name.
        name: String,
        /// The existing ones.
        known: String,
    },
    /// A listing has no such column.
    #[error("there is no column {name:?}; the columns are {columns}")]
    NoColumn {
        /// The name.
        name: String,
        /// The existing ones.
        columns: String,
    },
    /// No jobs have these numbers; the other jobs were changed.
    #[error("there is no job {}", numbers(.0))]
    NoJobs(Vec<u64>),
    /// Pools have faults, which are shown.
    #[error("{0}")]
    Faults(String),
    /// The caller's: a redundancy that this kind of virtual disk cannot have.
    #[error("a virtual disk of the resiliency {} cannot have --redundancy {redundancy}", word(kind))]
    Redundancy {
        /// The resiliency.
        kind: ResiliencySetting,
        /// The requested value.
        redundancy: u8,
    },
    /// A destructive command without confirmation; nothing was done.
    #[error("{0}")]
    NotConfirmed(String),
    /// Arguments that cannot be combined.
    #[error("{0}")]
    Usage(&'static str),
    /// A server could not be reached, or refuses the log-on.
    #[error("{place}: {source}")]
    Connect {
        /// The URL.
        place: String,
        /// The reason.
        source: Box<smb_client::ConnectError>,
    },
    /// A server refused a request.
    #[error("{place}: {source}")]
    Remote {
        /// The URL.
        place: String,
        /// The reason.
        source: smb_client::RequestError,
    },
    /// A file became shorter while it was read.
    #[error("{place}: the file became shorter while it was read")]
    Shorter {
        /// The URL.
        place: String,
    },
    /// A directory where a file was expected.
    #[error("{place} is a directory")]
    IsDirectory {
        /// The URL.
        place: String,
    },
    /// No directory where one was expected.
    #[error("{place} is not a directory")]
    NoSuchDirectory {
        /// The URL.
        place: String,
    },
    /// An existing file could not be replaced with a new one.
    #[error("{0}: the file cannot be replaced with a new one")]
    NotReplaced(Box<Failure>),
    /// A server refuses the name of the file that `put --resume` writes first.
    #[error("{0}: --resume copies to NAME.part first, and the server refuses that name")]
    NoPart(Box<Failure>),
    /// A copy was ended by a signal.
    #[error("interrupted: {left}")]
    Interrupted {
        /// The exit code: 128 and the signal.
        code: u8,
        /// The state of the files.
        left: &'static str,
    },
    /// Neither a file nor a directory.
    #[error("{}: not copied: neither a file nor a directory", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// The command line of `bench` is invalid.
    #[error(transparent)]
    BenchOptions(Box<bench::options::OptionError>),
    /// A run of `bench` failed.
    #[error(transparent)]
    Bench(Box<bench::engine::RunError>),
    /// A place on a fabric that cannot be understood.
    #[error(transparent)]
    FabricAddress(bench::fabric::FabricAddressError),
    /// A place on a fabric that cannot be listened on.
    #[error("{place}: {source}")]
    Fabric {
        /// The place on the fabric.
        place: String,
        /// The reason.
        source: Box<bench::fabric::FabricError>,
    },
    /// A run of `bench` with I/O errors or wrong data; its report was printed.
    #[error("{errors} I/Os failed, and {mismatches} sectors had wrong data: see the report")]
    BenchWrong {
        /// I/Os.
        errors: u64,
        /// Sectors.
        mismatches: u64,
    },
    /// Too little free space for the files of `bench demo`.
    #[error(
        "{place}: the files of the demonstrations need {}, and {} are free",
        crate::output::human_bytes(*bytes),
        crate::output::human_bytes(*free)
    )]
    NoRoom {
        /// The place.
        place: String,
        /// Required bytes.
        bytes: u64,
        /// Free bytes.
        free: u64,
    },
    /// Parts of a tree failed; each failure was printed.
    #[error("{} failed: see the messages above", if *.0 == 1 { "1 file".to_owned() } else { format!("{} files", .0) })]
    Some(u64),
    /// A file of this machine cannot be used.
    #[error("{}: {}", path.display(), system(source))]
    Local {
        /// The path.
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
                "is it running? systemctl status causeway, or pass --control, or use the users file directly with --users FILE"
                    .to_owned(),
            ),
            Failure::NoAcl => Some("pass --grant, such as --grant Everyone=read".to_owned()),
            Failure::Users(UserFileError::NoSuchGroup { .. } | UserFileError::NoSuchMember { .. }) => {
                Some("see causeway group list".to_owned())
            }
            Failure::IsSetUp { .. } => Some(
                "nothing was changed; use causeway share add and causeway user add to add to it, or pass another --config"
                    .to_owned(),
            ),
            Failure::NoJobs(_) => Some("it has ended or never existed: see causeway job list".to_owned()),
            Failure::NoDisk(_) => Some("see causeway disk list".to_owned()),
            Failure::Redundancy { .. } => Some("omit --redundancy, or choose --resiliency mirror".to_owned()),
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
                "choose another directory (--directory or TARGET), sparse files (--sparse; reads then need no disk), smaller or \
                 fewer files (--size, --threads), or demonstrations without files (--only S1-16,S3-18,\u{2026})"
                    .to_owned(),
            ),
            Failure::NotReplaced(_) => Some(
                "another program may have it open, or you may not create files in its directory; --in-place overwrites the file, but an \
                 interrupted copy leaves it incomplete"
                    .to_owned(),
            ),
            Failure::NoPart(_) => {
                Some("copy without --resume; a share of virtual disks has only NAME.img and NAME.vhd".to_owned())
            }
            Failure::NotRegular { .. } => Some("copy its target, or omit it".to_owned()),
            Failure::IsDirectory { .. } => Some("pass -r to include its contents".to_owned()),
            Failure::NoSuchDirectory { .. } => Some("create it first: causeway mkdir".to_owned()),
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

    /// Whether a server refused the name itself, not the operation.
    pub fn is_about_the_name(&self) -> bool {
        matches!(self, Failure::Remote { source, .. }
            if matches!(source.status(), Some(NtStatus::OBJECT_NAME_INVALID | NtStatus::NOT_SUPPORTED)))
    }

    /// Whether the next file of a tree would fail too.
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
            | Failure::FabricAddress(_) => USAGE,
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
