//! Opens.

mod gate;
mod sequence;

pub(crate) use gate::Pass;
pub(crate) use sequence::{Sequence, Sequenced};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use smb_wire::FileId;
use smb_wire::msg::CreateOptions;
use vfs::{BasicChange, DirEntry, Node, Stat, VfsResult};

use crate::commands::query_directory::pattern::Pattern;
use crate::files::FileState;
use crate::pipes::Pipe;
use crate::share::{OpenCounted, Tree};

/// An open of a file, directory or pipe (MS-SMB2 3.3.1.10).
///
/// The persistent half of its id is unique across restarts and nodes; what a durable or persistent open will have to
/// write down is all in [`FileOpen`] and its [`FileState`]. Its lock sequences (MS-SMB2 3.3.5.14) will be kept here.
pub(crate) struct Open {
    pub(crate) id: FileId,
    pub(crate) tree: Arc<Tree>,
    /// Access that was granted (an ACCESS_MASK without generic bits).
    pub(crate) access: u32,
    pub(crate) target: OpenTarget,
    pub(crate) sequence: Sequence,
    pub(crate) _counted: OpenCounted,
}

pub(crate) enum OpenTarget {
    File(FileOpen),
    Pipe(Pipe),
}

/// An open of a file or directory.
pub(crate) struct FileOpen {
    pub(crate) node: Arc<dyn Node>,
    pub(crate) file: Arc<FileState>,
    /// Past the cache: FILE_NO_INTERMEDIATE_BUFFERING.
    pub(crate) unbuffered: bool,
    /// FilePositionInformation.
    pub(crate) position: AtomicU64,
    /// FileModeInformation, as set later.
    pub(crate) mode: AtomicU32,
    /// Where a directory enumeration stands; held by the query that is running, others wait their turn.
    pub(crate) enumeration: tokio::sync::Mutex<Enumeration>,
    /// A write came through this open: the archive attribute and times are due.
    pub(crate) written: AtomicBool,
    /// Times that what happens through this open leaves alone: they were set, or frozen with -1 (MS-FSCC 2.4.7).
    pub(crate) kept_times: Mutex<BasicChange>,
    gate: gate::Gate,
}

/// A directory enumeration in progress.
#[derive(Default)]
pub(crate) struct Enumeration {
    /// What is looked for; `None` before the first query.
    pub(crate) pattern: Option<Pattern>,
    /// Entries read from the backend that were not reported yet.
    pub(crate) waiting: std::collections::VecDeque<DirEntry>,
    /// `.` and `..` have been looked at.
    pub(crate) dots_done: bool,
    /// The backend has been asked: it goes on from where it was.
    pub(crate) begun: bool,
    /// The backend has no more.
    pub(crate) finished: bool,
    /// Something was reported since the start: decides NO_SUCH_FILE or NO_MORE_FILES.
    pub(crate) reported: bool,
}

impl FileOpen {
    /// An open of `node` as a CREATE asked for it.
    pub(crate) fn new(node: Arc<dyn Node>, file: Arc<FileState>, options: CreateOptions) -> FileOpen {
        FileOpen {
            node,
            file,
            unbuffered: options.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING),
            position: AtomicU64::new(0),
            mode: AtomicU32::new(options.bits() & MODE_OPTIONS),
            enumeration: tokio::sync::Mutex::default(),
            written: AtomicBool::new(false),
            kept_times: Mutex::default(),
            gate: gate::Gate::default(),
        }
    }

    /// Whether writes are durable before they are answered: FILE_WRITE_THROUGH, at CREATE or set later.
    pub(crate) fn write_through(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & CreateOptions::WRITE_THROUGH.bits() != 0
    }

    /// What a change owes that is not a WRITE, once it is made: through an open with FILE_WRITE_THROUGH it is durable
    /// before it is answered.
    ///
    /// # Errors
    /// As [`Node::flush`].
    pub(crate) async fn write_out(&self, ctx: &env::Ctx) -> VfsResult<()> {
        if self.write_through() { self.node.flush(ctx).wait().await } else { Ok(()) }
    }

    /// Waits until nothing changes the file through this open any more, and lets nothing more begin.
    pub(crate) async fn shut(&self) {
        self.gate.shut().await;
    }

    /// The file's metadata as this open sees it: with the times that it keeps.
    pub(crate) async fn stat(&self, ctx: &env::Ctx) -> VfsResult<Stat> {
        let mut stat = self.node.stat(ctx).wait().await?;
        let kept = *self.kept_times.lock();
        stat.accessed = kept.accessed.unwrap_or(stat.accessed);
        stat.written = kept.written.unwrap_or(stat.written);
        stat.changed = kept.changed.unwrap_or(stat.changed);
        Ok(stat)
    }
}

/// The options of CREATE that FileModeInformation shows (MS-FSCC 2.4.31).
const MODE_OPTIONS: u32 = 0x0000_103E;

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
