//! Creating, opening and changing pools: connects labels, claims and the metadata.

mod admin;
mod checking;
mod create;
mod error;
pub(crate) mod labels;
mod open;
mod plan;
mod scrub;
#[cfg(test)]
mod tests;

pub use create::{CreateOptions, NewDisk};
pub use error::{AdminError, CreateError, OpenError, Unsuitable};
pub use labels::{FoundLabel, scan};
pub use open::{OpenOptions, Opened, READ_ONLY_MEMORY};

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::book::Life;
use crate::coordinator::Orders;
use crate::events::Events;
use crate::jobs::Board;
use crate::metadata::{DiskIo, Members, Metadata, Suspension};
use crate::{Absence, CommitError, DiskNumber, Op, PoolId, RowNumber, SpaceId, SpaceRecord, State};

/// An open pool. Clones are handles on the same one; when the last is dropped without [`Pool::export`], its
/// claim stays on the disks.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    id: PoolId,
    io: DiskIo,
    metadata: Metadata,
    epoch: u64,
    incarnation: u64,
    /// The machine that writes labels.
    node: [u8; 16],
    read_only: bool,
    /// Disks join and leave by request one at a time.
    admin: tokio::sync::Mutex<()>,
    still_writing: parking_lot::RwLock<Option<StillWriting>>,
    unlabelled: parking_lot::Mutex<BTreeMap<DiskNumber, String>>,
    jobs: Arc<Board>,
    orders: Arc<Orders>,
    events: Events,
    shown: parking_lot::Mutex<Option<(u64, Arc<State>)>>,
}

/// See [`Pool::set_still_writing`].
type StillWriting = Box<dyn Fn(DiskNumber) -> bool + Send + Sync>;

/// A pool that does not stay open for this.
pub(crate) struct WeakPool(Weak<Inner>);

impl WeakPool {
    /// The pool, if it is open.
    pub(crate) fn upgrade(&self) -> Option<Pool> {
        Some(Pool { inner: self.0.upgrade()? })
    }
}

impl Inner {
    /// The metadata, for a change by a caller.
    fn changing(&self) -> Result<&Metadata, CommitError> {
        match self.read_only {
            true => Err(CommitError::ReadOnly),
            false => Ok(&self.metadata),
        }
    }
}

impl Pool {
    /// Its identity.
    pub fn id(&self) -> PoolId {
        self.inner.id
    }

    /// The epoch that it was opened with: no other opening of this pool has it.
    pub fn epoch(&self) -> u64 {
        self.inner.epoch
    }

    /// Whether its disks are only read: see [`OpenOptions::read_only`].
    pub fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    /// Reads the committed state, with the spaces that owners drive among the others. `f` is short: changes wait for it.
    pub fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        match self.shown() {
            Some(shown) => f(&shown),
            None => self.inner.metadata.read(f),
        }
    }

    /// The state as it is shown, if there are spaces that owners drive; made anew when it has changed.
    fn shown(&self) -> Option<Arc<State>> {
        let metadata = &self.inner.metadata;
        // Before the state: what is kept is never older than its version.
        let version = metadata.version();
        let mut kept = self.inner.shown.lock();
        if let Some((_, shown)) = kept.as_ref().filter(|(of, _)| *of == version) {
            return Some(Arc::clone(shown));
        }
        let state = metadata.read(|s| (!s.owned.is_empty()).then(|| s.clone()))?;
        let shown = Arc::new(state.shown());
        *kept = Some((version, Arc::clone(&shown)));
        Some(shown)
    }

    /// The disks in service now.
    pub fn members(&self) -> Arc<Members> {
        self.inner.metadata.members()
    }

    /// Disks that did not take their newest label and stay because they have something that no other has,
    /// with the last error.
    pub fn unlabelled(&self) -> BTreeMap<DiskNumber, String> {
        let members = self.members();
        let mut disks = self.inner.unlabelled.lock().clone();
        disks.retain(|d, _| members.get(*d).is_some());
        disks
    }

    /// The jobs of its spaces that owners drive.
    pub fn jobs(&self) -> &Arc<Board> {
        &self.inner.jobs
    }

    /// What owners were ordered to do.
    pub(crate) fn orders(&self) -> &Arc<Orders> {
        &self.inner.orders
    }

    /// Damage that owners of its spaces have found.
    pub fn events(&self) -> &Events {
        &self.inner.events
    }

    /// Why nothing can be changed any more, if so.
    pub fn suspended(&self) -> Option<Suspension> {
        self.inner.metadata.suspended()
    }

    /// Changes whenever a disk leaves or joins, or the pool is suspended.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.metadata.changes()
    }

    /// Makes a space; it has no slabs until it is written.
    ///
    /// # Errors
    /// [`CommitError`]: a shape that cannot be, a name that is taken, or no change at all is possible.
    pub async fn create_space(&self, record: SpaceRecord) -> Result<SpaceId, CommitError> {
        let _admin = self.inner.admin.lock().await;
        let (space, ops): (SpaceId, Vec<Op>) = self.read(|s| (SpaceId(s.next_space), s.create_ops(record)));
        self.inner.changing()?.commit(ops).await?;
        Ok(space)
    }

    /// Registers the source of a copy's (space, row, index) regions with writes since its disk's last flush:
    /// those become missed when the disk fails. It is called when the disk has been removed from
    /// [`Pool::members`] already, on the task that records the failure, and must not wait.
    pub fn set_active_regions(
        &self,
        active: impl Fn(SpaceId, RowNumber, usize) -> u64 + Send + Sync + 'static,
    ) {
        self.metadata().set_active(Box::new(active));
    }

    /// Registers a query for outstanding modifying I/O on a disk's old, abandoned handle: until that has
    /// ended the disk is not taken back.
    pub fn set_still_writing(&self, writes: impl Fn(DiskNumber) -> bool + Send + Sync + 'static) {
        *self.inner.still_writing.write() = Some(Box::new(writes));
    }

    /// Reports a disk that failed: it is absent when this returns, with its regions in flight missed.
    ///
    /// # Errors
    /// [`CommitError::Suspended`]: too few disks with metadata remain. [`CommitError::Needed`]: it
    /// is only slow, and needed, or it failed a write or a flush and has the only copy of some data; nothing
    /// has changed.
    pub async fn disk_failed(&self, disk: DiskNumber, reason: Absence) -> Result<(), CommitError> {
        self.metadata().leave(disk, Life::Any, reason).await
    }

    /// Its disks are supervised from now on.
    pub(super) fn supervised(self) -> Pool {
        self.metadata().supervision().set_pool(WeakPool(Arc::downgrade(&self.inner)));
        self
    }

    /// The metadata, for what changes it.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.inner.metadata
    }

    /// Removes a disk from service on request.
    ///
    /// # Errors
    /// [`CommitError::Needed`]: too few would be left.
    pub async fn take_offline(&self, disk: DiskNumber) -> Result<(), CommitError> {
        self.inner.changing()?;
        self.disk_failed(disk, Absence::Asked).await
    }
}
