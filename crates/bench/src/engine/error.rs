//! Why a run could not start or continue.

use std::io;

use thiserror::Error;

use super::backend::Fault;
use crate::fabric::FabricError;

/// Why a thread's targets could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A file of this machine.
    #[error("{path}: {source}{}", create_cure(source))]
    Local {
        /// It.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Neither a file nor a block device.
    #[error("{path} is neither a file nor a block device")]
    NotAFile {
        /// It.
        path: String,
    },
    /// `-Sr` on a file of this machine.
    #[error("{path}: -Sr uses the server's cache, and a local file has no server: use -Sb or -Su")]
    NotRemote {
        /// It.
        path: String,
    },
    /// A file system without direct I/O.
    #[error(
        "{path}: this file system does not support unbuffered I/O: use -Sb, or a file on another file system"
    )]
    NoDirect {
        /// It.
        path: String,
    },
    /// A device, without permission to overwrite it.
    #[error(
        "{path} is a block device, and a write test destroys its contents: to allow that, pass --overwrite-devices; a read test (-w0) does not need it"
    )]
    Device {
        /// It.
        path: String,
    },
    /// A device that is mounted or otherwise in use.
    #[error(
        "{path} or a part of it is in use (mounted, swap, an array?), and a write test destroys its contents: end that use first"
    )]
    InUse {
        /// It.
        path: String,
    },
    /// The target is empty, or smaller than the run needs.
    #[error(
        "{path} has {size} bytes: too few for base {base}, a block of {block} and thread {thread} at stride {stride}; create it larger (-c), or use less of it"
    )]
    TooSmall {
        /// It.
        path: String,
        /// In bytes.
        size: u64,
        /// `-B`.
        base: u64,
        /// `-b`.
        block: u32,
        /// Which thread of the target.
        thread: u32,
        /// `-T`.
        stride: u64,
    },
    /// Unbuffered I/O that is not made of sectors.
    #[error(
        "{path}: unbuffered I/O (-Su, -Sh) needs whole sectors: block, alignment and base must be multiples of {sector}"
    )]
    NotSectors {
        /// It.
        path: String,
        /// In bytes.
        sector: u64,
    },
    /// Stamps need whole sectors.
    #[error("{path}: --verify needs whole sectors: block, alignment, base and -T must be multiples of 512")]
    NotVerifiable {
        /// It.
        path: String,
    },
    /// More than the ledger holds.
    #[error("{path} has {size} bytes, and --verify supports 32 GiB: limit the range with -f")]
    VerifyTooLarge {
        /// It.
        path: String,
        /// In bytes.
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
    /// Large pages or memory are not there.
    #[error("cannot allocate {bytes} bytes of memory: {source}{}", cure(*large))]
    Memory {
        /// How much.
        bytes: u64,
        /// In large pages.
        large: bool,
        /// The system's reason.
        source: io::Error,
    },
    /// io_uring is not there.
    #[error(
        "io_uring cannot be used: {0}; it may be turned off (sysctl kernel.io_uring_disabled) or blocked by a container"
    )]
    Ring(#[source] io::Error),
    /// A processor that is not there or not allowed.
    #[error("cannot use processor {processor} of group {group}: {source}; see nproc, or use -n")]
    Affinity {
        /// Its group.
        group: u16,
        /// It.
        processor: u8,
        /// The system's reason.
        source: io::Error,
    },
    /// A server could not be reached, or does not let us in.
    #[error("{place}: {source}")]
    Connect {
        /// Which.
        place: String,
        /// Why.
        source: Box<smb_client::ConnectError>,
    },
    /// There is no connection to a listener.
    #[error("{place}: {source}")]
    Fabric {
        /// Which.
        place: String,
        /// Why.
        source: Box<FabricError>,
    },
    /// An option for what keeps bytes.
    #[error("{place}: causeway bench listen stores no data and sets the size itself: leave {option} out")]
    KeepsNothing {
        /// Which.
        place: String,
        /// Which option.
        option: &'static str,
    },
    /// A server did not open or create a file.
    #[error("{place}: {source}{}", remote_cure(source))]
    Remote {
        /// Which.
        place: String,
        /// Why.
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
    /// Targets.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file could not be created.
    #[error("cannot create {path}: {source}")]
    Create {
        /// It.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The write buffer (`-Z`) could not be made or filled.
    #[error("cannot prepare the write buffer (-Z): {source}{}", cure(*large))]
    Source {
        /// There was no memory for it in large pages.
        large: bool,
        /// The system's reason.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A process (`--pid`) that is not there.
    #[error("cannot measure the process {pid}: {source}")]
    Process {
        /// It.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// All I/O to a target fails.
    #[error("{path}: {count} I/Os in a row failed, the last one with: {fault}")]
    Failing {
        /// Which.
        path: String,
        /// How many.
        count: u32,
        /// Why.
        fault: Fault,
    },
    /// Completions do not come any more.
    #[error("cannot wait for the completion of I/O: {0}")]
    Wait(#[source] io::Error),
    /// A thread panicked, which is our fault.
    #[error("a thread of the run panicked: please report it")]
    Panicked,
}

/// The action that helps if large pages are missing.
fn cure(large: bool) -> &'static str {
    if large { "; large pages (-l) must be reserved: sysctl vm.nr_hugepages=N (2 MiB each)" } else { "" }
}
