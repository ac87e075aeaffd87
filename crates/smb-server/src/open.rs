//! Opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use parking_lot::Mutex;
use smb_wire::FileId;
use vfs::{DirEntry, Node};

use crate::files::FileState;
use crate::pipes::Pipe;
use crate::share::Tree;

/// An open of a file, directory or pipe (MS-SMB2 3.3.1.10).
///
/// The persistent half of its id is unique across restarts and nodes; what a durable or persistent open will have to
/// write down is all in [`FileOpen`] and its [`FileState`].
pub(crate) struct Open {
    pub(crate) id: FileId,
    pub(crate) session_id: u64,
    pub(crate) tree: Arc<Tree>,
    /// Access that was granted (an ACCESS_MASK without generic bits).
    pub(crate) access: u32,
    pub(crate) target: OpenTarget,
}

pub(crate) enum OpenTarget {
    File(FileOpen),
    Pipe(Pipe),
}

/// An open of a file or directory.
pub(crate) struct FileOpen {
    pub(crate) node: Arc<dyn Node>,
    pub(crate) file: Arc<FileState>,
    /// FILE_SHARE_* bits.
    pub(crate) share_access: u32,
    /// CreateOptions as asked for.
    pub(crate) create_options: u32,
    /// Writes are durable before they are answered: FILE_WRITE_THROUGH, or the share says so.
    pub(crate) write_through: bool,
    /// Past the cache: FILE_NO_INTERMEDIATE_BUFFERING.
    pub(crate) unbuffered: bool,
    /// FilePositionInformation.
    pub(crate) position: AtomicU64,
    /// FileModeInformation, as set later.
    pub(crate) mode: AtomicU32,
    /// Where a directory enumeration stands.
    pub(crate) enumeration: Mutex<Enumeration>,
    /// A write came through this open: the archive attribute and times are due.
    pub(crate) written: AtomicBool,
    /// Lock sequence numbers seen (MS-SMB2 3.3.5.14), for replays on resilient and persistent opens.
    pub(crate) lock_sequences: Mutex<[Option<u8>; 64]>,
}

/// A directory enumeration in progress.
#[derive(Default)]
pub(crate) struct Enumeration {
    /// The pattern of the first query.
    pub(crate) pattern: Option<String>,
    /// Entries read from the backend that did not fit yet.
    pub(crate) waiting: std::collections::VecDeque<DirEntry>,
    /// `.` and `..` still to report.
    pub(crate) dots: u8,
    /// The backend has no more.
    pub(crate) finished: bool,
    /// Something was reported since the start: decides NO_SUCH_FILE or NO_MORE_FILES.
    pub(crate) reported: bool,
    /// A query of this enumeration is running: a second one waits its turn.
    pub(crate) running: bool,
}

impl Open {
    /// The file it is an open of; `None` for a pipe.
    pub(crate) fn file(&self) -> Option<&FileOpen> {
        match &self.target {
            OpenTarget::File(f) => Some(f),
            OpenTarget::Pipe(_) => None,
        }
    }

    /// The pipe it is an open of; `None` for a file.
    pub(crate) fn pipe(&self) -> Option<&Pipe> {
        match &self.target {
            OpenTarget::Pipe(p) => Some(p),
            OpenTarget::File(_) => None,
        }
    }
}
