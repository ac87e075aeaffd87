//! Opens.

mod gate;
mod lock_sequence;
mod ownership;
mod sequence;
mod write_time;

pub(crate) use gate::GateGuard;
pub(crate) use lock_sequence::LockSequences;
pub(crate) use ownership::FIRST_DISCONNECTION;
pub(crate) use sequence::{Sequence, Sequenced};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use env::{Env, Io};
use parking_lot::Mutex;
use smb_wire::msg::{CompletionFilter, CreateAction, CreateOptions, LeaseKey};
use smb_wire::security::Sid;
use smb_wire::{FileId, Guid, NtStatus};
use vfs::{BasicChange, DirEntry, Node, Stat, VfsResult};

use crate::commands::query_directory::pattern::Pattern;
use crate::durable::Durable;
use crate::files::caching::HolderId;
use crate::files::{FileState, JoinedMember, StreamState};
use crate::namespace::Origin;
use crate::opens::Identified;
use crate::pipes::Pipe;
use crate::server::OpenSlot;
use crate::session::Session;
use crate::share::{OpenCounter, Share, Tree};

/// An open of a file, directory or pipe (MS-SMB2 3.3.1.10).
///
/// It belongs to the server, and has an owner: the session and tree connect that may use it. A durable open that has lost
/// its connection has none until a client reconnects to it ([`crate::durable`]); then it gets a new volatile id.
pub(crate) struct Open {
    /// The persistent half of its FileId: unique across restarts, and the open's key in all tables.
    pub(crate) persistent: u64,
    pub(crate) ownership: ownership::Ownership<Owner>,
    /// Access that was granted (an ACCESS_MASK without generic bits).
    pub(crate) access: u32,
    pub(crate) target: OpenTarget,
    pub(crate) sequence: Sequence,
    /// The parameters of the CREATE that created it.
    pub(crate) created: Created,
    pub(crate) durable: Mutex<Durable>,
    /// Whether a replayed CREATE is answered with this open (MS-SMB2 3.3.5.9).
    pub(crate) replayable: AtomicBool,
    /// Its record has been removed from the journal. The lock is held while a record is put there.
    pub(crate) record_removed: Mutex<bool>,
    /// Held from recording a LOCK request's number until it is stored, or undone.
    pub(crate) locking: tokio::sync::Mutex<()>,
    /// Numbers of completed LOCK requests, to detect resent ones (MS-SMB2 3.3.5.14).
    pub(crate) lock_sequences: Mutex<LockSequences>,
    pub(crate) counter: OpenCounter,
    pub(crate) _slot: Arc<OpenSlot>,
}

/// The session and tree connect that own an open.
#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) session: Arc<Session>,
    pub(crate) tree: Arc<Tree>,
}

/// Parameters of the CREATE that created an open, for comparison with later requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Created {
    pub(crate) client: Guid,
    pub(crate) create_guid: Option<Guid>,
    pub(crate) app_instance: Option<AppInstance>,
    pub(crate) desired_access: u32,
    pub(crate) share_access: u32,
    pub(crate) options: u32,
    pub(crate) action: CreateAction,
    /// The user who may reconnect to it.
    pub(crate) user: Option<Sid>,
}

/// An application instance: after its move to another machine it may close its former opens (MS-SMB2 3.3.5.9.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppInstance {
    pub(crate) id: Guid,
    /// High and low half.
    pub(crate) version: Option<(u64, u64)>,
}

pub(crate) enum OpenTarget {
    File(FileOpen),
    Pipe(Pipe),
    /// The index of quotas of a share, which has none.
    QuotaIndex,
}

/// An open of a file or directory.
pub(crate) struct FileOpen {
    pub(crate) node: Arc<dyn Node>,
    pub(crate) file: Arc<FileState>,
    pub(crate) stream: Arc<StreamState>,
    /// The share of its tree connect, or the snapshot of that share which it was opened in.
    pub(crate) share: Arc<Share>,
    /// Its oplock or lease. The holder's token is compared with the stream's before each change of data.
    pub(crate) holder: Option<HolderId>,
    /// Opened with POSIX extensions: names are case-sensitive, and setting a mode replaces the access control list.
    pub(crate) posix: bool,
    pub(crate) token: u64,
    /// The lease on its directory that changes through this open do not break.
    pub(crate) parent_lease: Option<LeaseKey>,
    /// FILE_NO_INTERMEDIATE_BUFFERING: I/O bypasses the cache.
    pub(crate) unbuffered: bool,
    /// FilePositionInformation.
    pub(crate) position: AtomicU64,
    /// FileModeInformation, as changed after the CREATE.
    pub(crate) mode: AtomicU32,
    /// The state of the directory enumeration; locked by the running query, later ones wait.
    pub(crate) enumeration: tokio::sync::Mutex<Enumeration>,
    /// Whether data was written through this open, and the last write time that it shows.
    pub(crate) write_time: write_time::WriteTime,
    /// Times that operations through this open do not update: they were set, or frozen with -1 (MS-FSCC 2.4.7).
    pub(crate) fixed_times: Mutex<BasicChange>,
    gate: gate::Gate,
}

/// A directory enumeration in progress.
#[derive(Default)]
pub(crate) struct Enumeration {
    /// The search pattern; `None` before the first query.
    pub(crate) pattern: Option<Pattern>,
    /// Entries read from the backend that were not reported yet.
    pub(crate) waiting: std::collections::VecDeque<DirEntry>,
    /// `.` and `..` were processed.
    pub(crate) dots_done: bool,
    /// The backend's enumeration has begun: the next call continues it.
    pub(crate) begun: bool,
    /// The backend has no more entries.
    pub(crate) finished: bool,
    /// Something was reported since the start: decides NO_SUCH_FILE or NO_MORE_FILES.
    pub(crate) reported: bool,
}

impl FileOpen {
    /// An open of `node` with the options of a CREATE.
    pub(crate) fn new(
        node: Arc<dyn Node>,
        share: Arc<Share>,
        joined: JoinedMember,
        options: CreateOptions,
    ) -> FileOpen {
        let JoinedMember { file, stream, caching, parent_lease, posix } = joined;
        FileOpen {
            node,
            file,
            stream,
            share,
            holder: caching.map(|(id, _)| id),
            parent_lease,
            posix,
            token: caching.map_or(0, |(_, held)| held.token),
            unbuffered: options.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING),
            position: AtomicU64::new(0),
            mode: AtomicU32::new(options.bits() & MODE_OPTIONS),
            enumeration: tokio::sync::Mutex::default(),
            write_time: write_time::WriteTime::default(),
            fixed_times: Mutex::default(),
            gate: gate::Gate::default(),
        }
    }

    /// Whether writes are durable before they are answered: FILE_WRITE_THROUGH, at CREATE or set later.
    pub(crate) fn write_through(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & CreateOptions::WRITE_THROUGH.bits() != 0
    }

    /// Call it after a change other than a WRITE: through an open with FILE_WRITE_THROUGH the change is durable before
    /// the reply.
    ///
    /// # Errors
    /// The errors of [`Node::flush`].
    pub(crate) async fn flush_if_write_through(&self, ctx: &env::Ctx) -> VfsResult<()> {
        if self.write_through() { self.node.flush(ctx).wait().await } else { Ok(()) }
    }

    /// Whether a change through this open is running.
    pub(crate) fn is_changing(&self) -> bool {
        self.gate.is_entered()
    }

    /// The origin of changes through it.
    pub(crate) fn origin(&self) -> Origin {
        Origin::Open { parent_lease: self.parent_lease }
    }

    /// Waits for the running changes of the file through this open, and refuses new ones.
    pub(crate) async fn shut(&self) {
        self.gate.shut().await;
    }

    /// Records that a write through this open begins (MS-FSA 2.1.4.17).
    pub(crate) fn note_write(&self, env: &Env) {
        self.file.add_pending_change(CompletionFilter::SIZE | CompletionFilter::LAST_WRITE);
        let written = || match self.node.stat(&env::Ctx::default()) {
            Io::Done(Ok(stat)) => Some(stat.written),
            _ => None,
        };
        self.write_time.write(|| env.moment(), written);
    }

    /// The file's metadata as shown through this open: with its fixed times, and with the last write time before writes
    /// that are not visible yet.
    pub(crate) async fn stat(&self, ctx: &env::Ctx, env: &Env) -> VfsResult<Stat> {
        let mut stat = self.node.stat(ctx).wait().await?;
        let fixed = *self.fixed_times.lock();
        let written = fixed.written.or_else(|| self.write_time.shown(env.moment()));
        stat.accessed = fixed.accessed.unwrap_or(stat.accessed);
        stat.written = written.unwrap_or(stat.written);
        stat.changed = fixed.changed.unwrap_or(stat.changed);
        Ok(stat)
    }
}

/// The CreateOptions in FileModeInformation (MS-FSCC 2.4.31).
const MODE_OPTIONS: u32 = 0x0000_103E;

impl Identified for Open {
    fn id(&self) -> FileId {
        Open::id(self)
    }

    fn create_guid(&self) -> Option<Guid> {
        self.created.create_guid
    }

    fn instance(&self) -> Option<Guid> {
        self.created.app_instance.map(|a| a.id)
    }
}

impl Open {
    pub(crate) fn new(
        id: FileId,
        owner: Owner,
        access: u32,
        target: OpenTarget,
        sequence: Sequence,
        created: Created,
        slot: Arc<OpenSlot>,
    ) -> Open {
        Open {
            persistent: id.persistent,
            counter: OpenCounter::new(&owner.tree.share),
            _slot: slot,
            ownership: ownership::Ownership::new(owner.clone(), owner.tree.id, id.volatile),
            access,
            target,
            sequence,
            created,
            durable: Mutex::default(),
            replayable: AtomicBool::new(false),
            record_removed: Mutex::new(false),
            locking: tokio::sync::Mutex::default(),
            lock_sequences: Mutex::default(),
        }
    }

    /// A disconnected open from before the server's restart.
    pub(crate) fn disconnected(
        persistent: u64,
        share: &Share,
        access: u32,
        target: OpenTarget,
        sequence: Sequence,
        created: Created,
        slot: Arc<OpenSlot>,
    ) -> Open {
        Open {
            persistent,
            counter: OpenCounter::new(share),
            _slot: slot,
            ownership: ownership::Ownership::disconnected(),
            access,
            target,
            sequence,
            created,
            durable: Mutex::default(),
            replayable: AtomicBool::new(false),
            record_removed: Mutex::new(false),
            locking: tokio::sync::Mutex::default(),
            lock_sequences: Mutex::default(),
        }
    }

    /// Its current FileId; the volatile half of an open without an owner is 0.
    pub(crate) fn id(&self) -> FileId {
        FileId { persistent: self.persistent, volatile: self.ownership.volatile() }
    }

    /// Whether requests of this tree connect may use it.
    pub(crate) fn is_of_tree(&self, tree: u32) -> bool {
        self.ownership.tree() == tree
    }

    /// Records that a request of this tree connect uses it: from then on its CREATE is not replayable (MS-SMB2 3.3.5).
    ///
    /// # Errors
    /// STATUS_FILE_CLOSED when it belongs to another tree connect.
    pub(crate) fn use_through(&self, tree: &Tree) -> Result<(), NtStatus> {
        // Read first: it is clear nearly always.
        if self.replayable.load(Ordering::Relaxed) {
            self.replayable.store(false, Ordering::Relaxed);
        }
        if self.is_of_tree(tree.id) { Ok(()) } else { Err(NtStatus::FILE_CLOSED) }
    }

    /// Whether a session owns it.
    pub(crate) fn is_of_session(&self, session: &Arc<Session>) -> bool {
        self.owner().is_some_and(|o| Arc::ptr_eq(&o.session, session))
    }

    /// Whether a session owns it under this volatile id.
    pub(crate) fn is_named_by(&self, session: &Arc<Session>, volatile: u64) -> bool {
        self.ownership.is_named(volatile, |o| Arc::ptr_eq(&o.session, session))
    }

    /// The session and tree connect that own it; `None` while it is disconnected.
    pub(crate) fn owner(&self) -> Option<Owner> {
        self.ownership.owner()
    }

    /// The file it is an open of; `None` for a pipe.
    pub(crate) fn file(&self) -> Option<&FileOpen> {
        match &self.target {
            OpenTarget::File(f) => Some(f),
            OpenTarget::Pipe(_) | OpenTarget::QuotaIndex => None,
        }
    }

    /// The pipe it is an open of; `None` for a file.
    pub(crate) fn pipe(&self) -> Option<&Pipe> {
        match &self.target {
            OpenTarget::Pipe(p) => Some(p),
            OpenTarget::File(_) | OpenTarget::QuotaIndex => None,
        }
    }
}
