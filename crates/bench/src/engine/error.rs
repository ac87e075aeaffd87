//! Why a run could not start or continue.

use std::io;

use thiserror::Error;

use super::backend::Fault;
use crate::fabric::FabricError;

/// Why a thread's targets could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A local file.
    #[error("{path}: {source}{}", create_cure(source))]
    Local {
        /// The path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The path is neither a file nor a block device.
    #[error("{path} is neither a file nor a block device")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// `-Sr` on a local file.
    #[error("{path}: -Sr uses the server's cache, and a local file has no server: use -Sb or -Su")]
    NotRemote {
        /// The path.
        path: String,
    },
    /// A file system without direct I/O.
    #[error(
        "{path}: this file system does not support unbuffered I/O: use -Sb, or a file on another file system"
    )]
    NoDirect {
        /// The path.
        path: String,
    },
    /// A write test on a block device without permission to overwrite it.
    #[error(
        "{path} is a block device, and a write test destroys its contents: to allow that, pass --overwrite-devices; a read test (-w0) does not need it"
    )]
    Device {
        /// The path.
        path: String,
    },
    /// A device that is mounted or otherwise in use.
    #[error(
        "{path} or a part of it is in use (mounted, swap, an array?), and a write test destroys its contents: end that use first"
    )]
    InUse {
        /// The path.
        path: String,
    },
    /// The target is empty, or smaller than the run needs.
    #[error(
        "{path} has {size} bytes: too few for base {base}, a block of {block} and thread {thread} at stride {stride}; create it larger (-c), or use less of it"
    )]
    TooSmall {
        /// The path.
        path: String,
        /// Its size in bytes.
        size: u64,
        /// `-B`.
        base: u64,
        /// `-b`.
        block: u32,
        /// The number of the thread on the target.
        thread: u32,
        /// `-T`.
        stride: u64,
    },
    /// Unbuffered I/O that is not in whole sectors.
    #[error(
        "{path}: unbuffered I/O (-Su, -Sh) needs whole sectors: block, alignment and base must be multiples of {sector}"
    )]
    NotSectors {
        /// The path.
        path: String,
        /// The sector size in bytes.
        sector: u64,
    },
    /// Stamps need whole sectors.
    #[error("{path}: --verify needs whole sectors: block, alignment, base and -T must be multiples of 512")]
    NotVerifiable {
        /// The path.
        path: String,
    },
    /// The target is too large for the ledger.
    #[error("{path} has {size} bytes, and --verify supports 32 GiB: limit the range with -f")]
    VerifyTooLarge {
        /// The path.
        path: String,
        /// Its size in bytes.
        size: u64,
    },
    /// `-F` with mappings and files on one thread.
    #[error(
        "one thread cannot use mappings (-Sm) and files at the same time: leave -F out, or use one kind of target"
    )]
    MixedMapping,
    /// `-F` with local files, files of servers or fabrics on one thread.
    #[error(
        "one thread cannot use local files, files of servers and fabrics at the same time: leave -F out, or use one kind of target"
    )]
    MixedPlaces,
    /// Memory or large pages cannot be allocated.
    #[error("cannot allocate {bytes} bytes of memory: {source}{}", cure(*large))]
    Memory {
        /// The requested bytes.
        bytes: u64,
        /// Whether large pages were requested.
        large: bool,
        /// The system's error.
        source: io::Error,
    },
    /// io_uring is not available.
    #[error(
        "io_uring cannot be used: {0}; it may be turned off (sysctl kernel.io_uring_disabled) or blocked by a container"
    )]
    Ring(#[source] io::Error),
    /// The processor does not exist or is not allowed.
    #[error("cannot use processor {processor} of group {group}: {source}; see nproc, or use -n")]
    Affinity {
        /// Its group.
        group: u16,
        /// The processor.
        processor: u8,
        /// The system's error.
        source: io::Error,
    },
    /// A server could not be reached or refused the log-on.
    #[error("{place}: {source}")]
    Connect {
        /// The server.
        place: String,
        /// The cause.
        source: Box<smb_client::ConnectError>,
    },
    /// The connection to a listener failed.
    #[error("{place}: {source}")]
    Fabric {
        /// The listener.
        place: String,
        /// The cause.
        source: Box<FabricError>,
    },
    /// An option that is not valid for a listener, which stores no data.
    #[error("{place}: causeway bench listen stores no data and sets the size itself: leave {option} out")]
    KeepsNothing {
        /// The listener.
        place: String,
        /// The option.
        option: &'static str,
    },
    /// A server failed to open or create a file.
    #[error("{place}: {source}{}", remote_cure(source))]
    Remote {
        /// The file.
        place: String,
        /// The cause.
        source: smb_client::RequestError,
    },
}

fn remote_cure(e: &smb_client::RequestError) -> &'static str {
    let is_missing = e.status() == Some(smb_client::NtStatus::OBJECT_NAME_NOT_FOUND);
    if is_missing { "; create it with -c<size>" } else { "" }
}

fn create_cure(e: &io::Error) -> &'static str {
    if e.kind() == io::ErrorKind::NotFound { "; create it with -c<size>" } else { "" }
}

/// Why a run could not start or continue.
#[derive(Debug, Error)]
pub enum RunError {
    /// Opening the targets failed.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file could not be created.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The write buffer (`-Z`) could not be allocated or filled.
    #[error("cannot prepare the write buffer (-Z): {source}{}", cure(*large))]
    Source {
        /// Whether large pages were requested.
        large: bool,
        /// The system's error.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A process (`--pid`) does not exist.
    #[error("cannot measure the process {pid}: {source}")]
    Process {
        /// Its process ID.
        pid: u32,
        /// The cause.
        source: io::Error,
    },
    /// All I/O to a target fails.
    #[error("{path}: {count} I/Os in a row failed, the last one with: {fault}")]
    Failing {
        /// The target.
        path: String,
        /// The number of consecutive failures.
        count: u32,
        /// The last error.
        fault: Fault,
    },
    /// Waiting for completions failed.
    #[error("cannot wait for the completion of I/O: {0}")]
    Wait(#[source] io::Error),
    /// A thread panicked, which is a bug.
    #[error("a thread of the run panicked: please report it")]
    Panicked,
}

/// The action that helps if large pages are missing.
fn cure(large: bool) -> &'static str {
    if large { "; large pages (-l) must be reserved: sysctl vm.nr_hugepages=N (2 MiB each)" } else { "" }
}
