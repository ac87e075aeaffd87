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

use crate::coordinator::Orders;
use crate::events::Events;
use crate::jobs::Board;
use crate::jobs::pacer::Pacing;
use crate::metadata::{DiskIo, Members, MembershipToEnd, Metadata, Opening, Point, Suspension};
use crate::{Absence, CommitError, Deadlines, DiskNumber, Op, PoolId, SpaceId, SpaceOp, State};

/// An open pool. Clones are handles on the same pool. If the last one is dropped without [`Pool::export`], the claim
/// stays on the disks.
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
    node: [u8; 16],
    read_only: bool,
    /// Serialises requests that add, return and remove disks.
    admin: tokio::sync::Mutex<()>,
    unlabelled: parking_lot::Mutex<BTreeMap<DiskNumber, String>>,
    jobs: Arc<Board>,
    orders: Arc<Orders>,
    events: Events,
}

/// A weak reference, which does not keep the pool open.
pub(crate) struct WeakPool(Weak<Inner>);

impl WeakPool {
    /// The pool, if it is open.
    pub(crate) fn upgrade(&self) -> Option<Pool> {
        Some(Pool { inner: self.0.upgrade()? })
    }
}

impl Inner {
    /// The metadata, for a change by a caller; fails if the pool is read-only.
    fn changing(&self) -> Result<&Metadata, CommitError> {
        match self.read_only {
            true => Err(CommitError::ReadOnly),
            false => Ok(&self.metadata),
        }
    }
}

impl Pool {
    /// Makes the first record of an epoch durable, and supervises the disks from then on. `node`: the machine that writes labels.
    async fn start(
        io: DiskIo,
        opening: Opening,
        node: [u8; 16],
        read_only: bool,
    ) -> Result<Pool, CommitError> {
        let (id, Point { epoch, incarnation, .. }) = (opening.state.pool, opening.point);
        let inner = Arc::new(Inner {
            id,
            metadata: Metadata::open(io.clone(), opening).await?,
            epoch,
            incarnation,
            node,
            read_only,
            admin: Default::default(),
            unlabelled: Default::default(),
            jobs: Board::new(io.env.clone(), Pacing::default()),
            orders: Arc::default(),
            events: Events::default(),
            io,
        });
        inner.metadata.supervision().set_pool(WeakPool(Arc::downgrade(&inner)));
        Ok(Pool { inner })
    }

    /// Its identity.
    pub fn id(&self) -> PoolId {
        self.inner.id
    }

    /// The epoch of this opening, unique among the openings of this pool.
    pub fn epoch(&self) -> u64 {
        self.inner.epoch
    }

    /// Whether its disks are only read: see [`OpenOptions::read_only`].
    pub fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    /// The deadlines of its disks.
    pub fn deadlines(&self) -> Deadlines {
        self.inner.io.deadlines
    }

    /// Reads the committed state. `f` is short: changes wait for it.
    pub fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        self.inner.metadata.read(f)
    }

    /// The disks in service now.
    pub fn members(&self) -> Arc<Members> {
        self.inner.metadata.members()
    }

    /// Disks without their newest label that stay in service because they have the only copy of some data. Each has
    /// its last error.
    pub fn unlabelled(&self) -> BTreeMap<DiskNumber, String> {
        let members = self.members();
        let mut disks = self.inner.unlabelled.lock().clone();
        disks.retain(|d, _| members.get(*d).is_some());
        disks
    }

    /// The jobs of its spaces.
    pub fn jobs(&self) -> &Arc<Board> {
        &self.inner.jobs
    }

    /// The orders to owners.
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

    /// Changes whenever a disk is removed or joins, or the pool is suspended.
    pub fn changes(&self) -> env::watch::Receiver<u64> {
        self.inner.metadata.changes()
    }

    /// Abandons a suspended pool, so that it can be opened again: waiting calls of its owners fail. Its claim stays on
    /// the disks.
    pub fn abandon(&self) {
        self.metadata().tenure().abandon();
    }

    /// Renames a space. Errors: [`CommitError::Invalid`]: there is no such space, or the name is taken.
    pub async fn rename_space(&self, space: SpaceId, name: &str) -> Result<(), CommitError> {
        let op = SpaceOp::Rename { name: name.to_owned() };
        self.inner.changing()?.commit(vec![Op::Space { space, op }]).await
    }

    /// Reports a failed disk. When this returns, the disk is absent, and the regions that the owners of spaces state
    /// are marked stale. Errors: [`CommitError::Suspended`]: too few disks with metadata remain.
    /// [`CommitError::Needed`]: the disk is only slow, and needed; or it failed a write or a flush, and has the only
    /// copy of some data. Then nothing has changed.
    pub async fn disk_failed(&self, disk: DiskNumber, reason: Absence) -> Result<(), CommitError> {
        self.metadata().remove_from_service(disk, MembershipToEnd::Current, reason).await
    }

    /// The metadata, for changes.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.inner.metadata
    }

    /// Removes a disk from service on request. Errors: [`CommitError::Needed`]: too few disks with metadata would
    /// remain, or the disk has the only current copy of some data.
    pub async fn take_offline(&self, disk: DiskNumber) -> Result<(), CommitError> {
        self.inner.changing()?;
        self.disk_failed(disk, Absence::ByCommand).await
    }
}
