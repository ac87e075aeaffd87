//! Shares and tree connects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use counters::requests::{
    DURABLE_OPEN, DURABLE_REOPEN_FAILED, DURABLE_REOPENED, FILES_OPEN, FILES_OPENED, PERSISTENT_OPEN,
    PERSISTENT_REOPEN_FAILED, PERSISTENT_REOPENED, RESILIENT_OPEN, RESILIENT_REOPEN_FAILED,
    RESILIENT_REOPENED, TREES,
};
use counters::{Cell, Instance};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use vfs::{SnapshotTime, Vfs, VfsResult};

use crate::durable::Durability;
use crate::namespace::{ExternalChanges, LeasedDirectories, Watches};
use crate::{ShareConfig, ShareProtection};

/// A share of the server. Immutable except for its protection and its removal; to change anything else, it is removed
/// and added again.
pub(crate) struct Share {
    pub(crate) name: String,
    pub(crate) comment: String,
    pub(crate) read_only: bool,
    pub(crate) encrypt: bool,
    pub(crate) hidden: bool,
    /// Its permissions. Checked at each tree connect; existing tree connects keep the access that they were granted.
    pub(crate) protection: RwLock<ShareProtection>,
    /// Handles may be persistent (MS-SMB2 3.3.1.6 IsCA).
    pub(crate) continuous: bool,
    pub(crate) target: ShareTarget,
    /// It is a snapshot of another share, which exists while it has opens, and never changes.
    pub(crate) is_snapshot: bool,
    /// Its snapshots that have opens.
    snapshots: Mutex<HashMap<SnapshotTime, Weak<Share>>>,
    /// Set once, when it is removed: requests on it get STATUS_NETWORK_NAME_DELETED.
    pub(crate) removed: AtomicBool,
    /// Number of tree connects.
    pub(crate) users: AtomicUsize,
    /// Held for writing while a directory is renamed, for reading while any other name changes: see `namespace`.
    pub(crate) names: Arc<tokio::sync::RwLock<()>>,
    /// The watches of its clients.
    pub(crate) watches: Watches,
    pub(crate) leases: LeasedDirectories,
    /// Changes in it by other programs; set at the first watch.
    pub(crate) external_changes: OnceLock<ExternalChanges>,
    /// Outlives the share: its counts continue when a share of the same name is added again.
    pub(crate) counted: Arc<Instance>,
}

/// The target of a share.
pub(crate) enum ShareTarget {
    /// Files.
    Disk(Arc<dyn Vfs>),
    /// Named pipes: IPC$.
    Pipes,
}

impl Share {
    pub(crate) fn disk(c: ShareConfig, counted: Arc<Instance>) -> Share {
        Share {
            comment: c.comment,
            read_only: c.read_only,
            encrypt: c.encrypt,
            hidden: c.hidden,
            continuous: c.continuous,
            ..Share::of(c.name, ShareTarget::Disk(c.vfs), counted)
        }
    }

    pub(crate) fn pipes(counted: Arc<Instance>) -> Share {
        let target = ShareTarget::Pipes;
        Share {
            comment: "Remote IPC".to_owned(),
            hidden: true,
            ..Share::of("IPC$".to_owned(), target, counted)
        }
    }

    fn of(name: String, target: ShareTarget, counted: Arc<Instance>) -> Share {
        Share {
            name,
            comment: String::new(),
            read_only: false,
            encrypt: false,
            hidden: false,
            protection: RwLock::default(),
            continuous: false,
            target,
            is_snapshot: false,
            snapshots: Mutex::default(),
            removed: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            names: Arc::default(),
            watches: Watches::default(),
            leases: LeasedDirectories::default(),
            external_changes: OnceLock::new(),
            counted,
        }
    }

    /// The share as it was at that time. It is a separate share, so that its files, names, leases and watches are
    /// independent of the live share's. It is dropped with its last open.
    ///
    /// # Errors
    /// The errors of [`Vfs::snapshot`].
    pub(crate) async fn snapshot(&self, c: &env::Ctx, at: SnapshotTime) -> VfsResult<Arc<Share>> {
        let known = |all: &HashMap<_, Weak<Share>>| all.get(&at).and_then(Weak::upgrade);
        if let Some(share) = known(&self.snapshots.lock()) {
            return Ok(share);
        }
        let vfs = match self.vfs() {
            Some(vfs) => vfs.snapshot(c, at).wait().await?,
            None => return Err(vfs::VfsError::NotFound),
        };
        let mut all = self.snapshots.lock();
        if let Some(share) = known(&all) {
            return Ok(share); // another open was faster
        }
        let counted = Arc::clone(&self.counted);
        let new = Share {
            read_only: true,
            is_snapshot: true,
            ..Share::of(self.name.clone(), ShareTarget::Disk(vfs), counted)
        };
        let new = Arc::new(new);
        all.retain(|_, share| share.strong_count() > 0);
        all.insert(at, Arc::downgrade(&new));
        Ok(new)
    }

    pub(crate) fn vfs(&self) -> Option<&Arc<dyn Vfs>> {
        match &self.target {
            ShareTarget::Disk(v) => Some(v),
            ShareTarget::Pipes => None,
        }
    }

    /// Whether opens of a file remain usable after its last name was removed.
    pub(crate) fn removal_keeps_opens(&self) -> bool {
        self.vfs().is_none_or(|vfs| vfs.info().removal_keeps_opens)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

/// A tree connect (MS-SMB2 3.3.1.9). Counted on the share until the last reference is dropped.
pub(crate) struct Tree {
    /// Set once, when it is disconnected or its session ends: no open is added to it from then on.
    gone: AtomicBool,
    /// Wakes the requests that wait when it is set.
    left: Notify,
    pub(crate) id: u32,
    pub(crate) share: Arc<Share>,
    /// The maximal access of the session's user to this share (an ACCESS_MASK).
    pub(crate) maximal_access: u32,
    /// A Mac has requested its attributes in listings, and interprets the fields accordingly.
    pub(crate) mac_listings: AtomicBool,
}

impl Tree {
    pub(crate) fn new(id: u32, share: Arc<Share>, maximal_access: u32) -> Tree {
        share.users.fetch_add(1, Ordering::Relaxed);
        share.counted.add(TREES, 1);
        let (gone, mac_listings) = (AtomicBool::new(false), AtomicBool::new(false));
        Tree { gone, left: Notify::new(), id, share, maximal_access, mac_listings }
    }

    /// Disconnects it; the caller removes its opens from the session after this.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
        self.left.notify_waiters();
    }

    /// Completes when it is disconnected, or its session has ended.
    pub(crate) async fn disconnected(&self) {
        let mut left = std::pin::pin!(self.left.notified());
        left.as_mut().enable();
        if !self.gone.load(Ordering::Acquire) {
            left.await;
        }
    }

    /// Whether it is connected.
    pub(crate) fn is_live(&self) -> bool {
        !self.gone.load(Ordering::Acquire) && !self.share.is_removed()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.share.users.fetch_sub(1, Ordering::Relaxed);
        self.share.counted.sub(TREES, 1);
    }
}

/// Counts an open on its share until this is dropped.
pub(crate) struct OpenCounter {
    on: Arc<Instance>,
    /// The kind that it is counted as.
    durability: Mutex<Durability>,
}

impl OpenCounter {
    pub(crate) fn new(share: &Share) -> OpenCounter {
        share.counted.add(FILES_OPENED, 1);
        share.counted.add(FILES_OPEN, 1);
        OpenCounter { on: Arc::clone(&share.counted), durability: Mutex::default() }
    }

    /// The open is of this kind from now on.
    pub(crate) fn set_durability(&self, durability: Durability) {
        let mut now = self.durability.lock();
        cells(*now, HANDLES_OPEN).for_each(|cell| self.on.sub(cell, 1));
        cells(durability, HANDLES_OPEN).for_each(|cell| self.on.add(cell, 1));
        *now = durability;
    }
}

impl Drop for OpenCounter {
    fn drop(&mut self) {
        cells(*self.durability.get_mut(), HANDLES_OPEN).for_each(|cell| self.on.sub(cell, 1));
        self.on.sub(FILES_OPEN, 1);
    }
}

impl Share {
    /// Counts a client's attempt to reconnect to an open of this kind.
    pub(crate) fn count_reopen(&self, durability: Durability, succeeded: bool) {
        let of = if succeeded { HANDLES_REOPENED } else { HANDLES_REOPEN_FAILED };
        cells(durability, of).for_each(|cell| self.counted.add(cell, 1));
    }
}

/// The cells of durable, resilient and persistent opens.
type HandleCells = [Cell; 3];

const HANDLES_OPEN: HandleCells = [DURABLE_OPEN, RESILIENT_OPEN, PERSISTENT_OPEN];
const HANDLES_REOPENED: HandleCells = [DURABLE_REOPENED, RESILIENT_REOPENED, PERSISTENT_REOPENED];
const HANDLES_REOPEN_FAILED: HandleCells =
    [DURABLE_REOPEN_FAILED, RESILIENT_REOPEN_FAILED, PERSISTENT_REOPEN_FAILED];

/// The cells that count an open of this kind. A persistent open is durable too (MS-SMB2 3.3.5.9.10), a resilient one
/// is not (3.3.5.15.9).
fn cells(
    durability: Durability,
    [durable, resilient, persistent]: HandleCells,
) -> impl Iterator<Item = Cell> {
    let (first, second) = match durability {
        Durability::No => (None, None),
        Durability::Durable => (Some(durable), None),
        Durability::Resilient => (Some(resilient), None),
        Durability::Persistent => (Some(durable), Some(persistent)),
    };
    first.into_iter().chain(second)
}
