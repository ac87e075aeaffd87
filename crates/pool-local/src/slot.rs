//! A space of the pool, with its owner in this process if there is one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use pool::SpaceId;
use pool::jobs::{Board, ClientIo};
use pool_seam::{Coordinator, NodeId, Owner, OwnerId, SeamError};
use space::log::LogError;
use space::{Settings, Space, SpaceError};

use crate::{LocalError, LocalPool};

/// See the module.
pub(crate) struct Slot {
    id: SpaceId,
    state: RwLock<State>,
    /// The number of ended owners that may have had writes that were not durable.
    doubts: AtomicU64,
    /// Held while an owner is started or ended.
    changing: tokio::sync::Mutex<()>,
}

enum State {
    /// The space serves; the pool has only a weak link to it. The pool paces its jobs by the duration of
    /// client calls.
    Open(Space, Arc<dyn Owner>, Arc<Board>),
    /// The space does not serve, for this reason.
    Closed(LocalError),
}

impl Slot {
    pub(crate) fn new(id: SpaceId) -> Slot {
        let (state, doubts) = (RwLock::new(not_open("its log is being read")), AtomicU64::new(0));
        Slot { id, state, doubts, changing: tokio::sync::Mutex::default() }
    }

    pub(crate) fn id(&self) -> SpaceId {
        self.id
    }

    /// The space; an error if it has no owner now.
    pub(crate) fn space(&self) -> Result<Space, LocalError> {
        self.open_parts(|space, _, _| space.clone())
    }

    /// A client call begins; `is_timed` if its duration indicates the speed of the disks.
    pub(crate) fn begin(&self, is_timed: bool) -> Result<(Space, Option<ClientIo>), LocalError> {
        self.open_parts(|space, _, jobs| (space.clone(), jobs.client(is_timed)))
    }

    /// See the field. A flush must report a new doubt once to each user.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Relaxed)
    }

    pub(crate) fn owner(&self) -> Result<Arc<dyn Owner>, LocalError> {
        self.open_parts(|_, link, _| Arc::clone(link))
    }

    fn open_parts<T>(
        &self,
        of: impl FnOnce(&Space, &Arc<dyn Owner>, &Arc<Board>) -> T,
    ) -> Result<T, LocalError> {
        match &*self.state.read() {
            State::Open(space, link, jobs) => Ok(of(space, link, jobs)),
            State::Closed(why) => Err(why.clone()),
        }
    }

    /// Why it has no owner, if that is to change.
    pub(crate) fn not_open(&self) -> Option<String> {
        match &*self.state.read() {
            State::Open(space, ..) => space.has_ended().then(|| "its owner has ended".to_owned()),
            State::Closed(LocalError::NotOpen(why)) => Some(why.to_string()),
            State::Closed(_) => None,
        }
    }

    /// Whether it could not be opened, or its owner ended without being closed.
    pub(crate) fn is_to_open(&self) -> bool {
        self.not_open().is_some()
    }

    /// Starts an owner in the epoch assigned when the pool was opened. Errors: why the space is not open;
    /// later calls return the same reason.
    pub(crate) async fn open(&self, local: &LocalPool) -> Result<(), LocalError> {
        let _one = self.changing.lock().await;
        let owner = local.pool.owner(self.id).ok_or(LocalError::NoSpace(self.id))?;
        self.open_as(local, owner).await
    }

    /// Starts the next owner if none serves.
    pub(crate) async fn reopen(&self, local: &LocalPool) -> Result<(), LocalError> {
        let Ok(_one) = self.changing.try_lock() else { return Ok(()) };
        if !self.is_to_open() {
            return Ok(());
        }
        if self.owner().is_ok() {
            // The owner ended without being closed.
            self.doubts.fetch_add(1, Ordering::Relaxed);
            let before = std::mem::replace(&mut *self.state.write(), not_open("it is being reopened"));
            drop(before);
        }
        let owner = local.pool.hand_over(self.id, NodeId::default()).await?;
        self.open_as(local, owner).await
    }

    async fn open_as(&self, local: &LocalPool, mut owner: OwnerId) -> Result<(), LocalError> {
        let error = loop {
            let _opening = local.pool.register_opening(owner);
            let space = match open(local, owner).await {
                Ok(space) => space,
                Err(error) => break error,
            };
            let link: Arc<dyn Owner> = Arc::new(space.clone());
            if local.pool.link(owner, Arc::downgrade(&link) as Weak<dyn Owner>) {
                *self.state.write() = State::Open(space, link, Arc::clone(local.pool.jobs()));
                return Ok(());
            }
            drop(link.close().wait().await);
            owner = local.pool.hand_over(self.id, NodeId::default()).await?;
        };
        tracing::warn!(space = self.id.0, %error, "a virtual disk cannot be opened");
        let why = LocalError::NotOpen(error);
        *self.state.write() = State::Closed(why.clone());
        Err(why)
    }

    /// Abandons the owner together with its pool; the next owner starts when the pool is reopened. The caller
    /// waits for a limited time: while `is_over` is false, starting an owner may still be in progress,
    /// perhaps for ever.
    pub(crate) async fn abandon(&self, is_over: &AtomicBool) {
        let _one = self.changing.lock().await;
        let closed = not_open("its pool was closed while it was suspended");
        let before = std::mem::replace(&mut *self.state.write(), closed);
        is_over.store(true, Ordering::Relaxed);
        if let State::Open(_, link, _) = before {
            // The pool accepts no records any more, so closing fails: writes may not be durable.
            self.doubts.fetch_add(1, Ordering::Relaxed);
            drop(link.close().wait().await);
        }
    }

    /// Ends the owner; later calls fail with `why`. Errors: some writes could not be made durable.
    pub(crate) async fn close(&self, why: LocalError) -> Result<(), LocalError> {
        let _one = self.changing.lock().await;
        let before = std::mem::replace(&mut *self.state.write(), State::Closed(why));
        match before {
            State::Open(_, link, _) => Ok(link.close().wait().await.map(drop)?),
            State::Closed(_) => Ok(()),
        }
    }

    /// It was closed for destruction, which failed: it is to be reopened.
    pub(crate) fn still_exists(&self, why: SeamError, is_durable: bool) {
        if !is_durable {
            self.doubts.fetch_add(1, Ordering::Relaxed);
        }
        *self.state.write() = State::Closed(LocalError::NotOpen(why.into()));
    }
}

/// The state of a space that does not serve now but is retried.
fn not_open(why: &str) -> State {
    State::Closed(LocalError::NotOpen(SeamError::Failed(why.to_owned()).into()))
}

async fn open(local: &LocalPool, owner: OwnerId) -> Result<Space, SpaceError> {
    let pool = &local.pool;
    let view = Coordinator::view(pool, owner, None).wait().await?;
    let view = view.ok_or_else(|| SeamError::Failed("the pool has no record of it".to_owned()))?;
    let handles = pool.clone();
    let settings = Settings {
        env: local.env.clone(),
        arena: local.arena.clone(),
        node: owner.node,
        budget: Arc::clone(&local.options.tables),
        hang: local.pool.deadlines().log(),
        retries: Arc::clone(&local.retries),
        coordinator: Arc::new(pool.clone()),
        lease: Arc::new(pool.lease()),
        open: Box::new(move |disk, of| handles.disk_of(owner, disk, of)),
    };
    // The log's tasks run on the worker on which it is opened.
    let opened = local.options.worker_of(owner.space).spawn(Space::open(settings, view));
    // Starting the server failed, and its workers are ending.
    opened.await.unwrap_or(Err(SpaceError::Log(LogError::Closed)))
}
