//! A space of the pool and its owner in this process, if it has one now.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use pool::SpaceId;
use pool_seam::{Coordinator, NodeId, Owner, OwnerId, SeamError};
use space::{Settings, Space, SpaceError};

use crate::{LocalError, LocalPool};

/// See the module.
pub(crate) struct Slot {
    id: SpaceId,
    state: RwLock<State>,
    /// Held while the owner begins or ends.
    changing: tokio::sync::Mutex<()>,
}

enum State {
    /// It serves; the pool knows it by a weak link.
    Open(Space, Arc<dyn Owner>),
    /// It does not, for this reason.
    Closed(LocalError),
}

impl Slot {
    pub(crate) fn new(id: SpaceId) -> Slot {
        let why = LocalError::NotOpen(SeamError::Failed("its log is being read".to_owned()).into());
        Slot { id, state: RwLock::new(State::Closed(why)), changing: tokio::sync::Mutex::default() }
    }

    pub(crate) fn id(&self) -> SpaceId {
        self.id
    }

    /// # Errors
    /// Why it has no owner now.
    pub(crate) fn space(&self) -> Result<Space, LocalError> {
        match &*self.state.read() {
            State::Open(space, _) => Ok(space.clone()),
            State::Closed(why) => Err(why.clone()),
        }
    }

    /// # Errors
    /// As [`Slot::space`].
    pub(crate) fn owner(&self) -> Result<Arc<dyn Owner>, LocalError> {
        match &*self.state.read() {
            State::Open(_, link) => Ok(Arc::clone(link)),
            State::Closed(why) => Err(why.clone()),
        }
    }

    /// Whether it could not be opened, or its owner has ended by itself.
    pub(crate) fn is_to_open(&self) -> bool {
        match &*self.state.read() {
            State::Open(space, _) => space.has_ended(),
            State::Closed(why) => matches!(why, LocalError::NotOpen(_)),
        }
    }

    /// Makes an owner in the epoch that the pool's opening has given it.
    ///
    /// # Errors
    /// Why it is not open, which its callers get from now on.
    pub(crate) async fn open(&self, local: &LocalPool) -> Result<(), LocalError> {
        let _one = self.changing.lock().await;
        let owner = local.pool.owner(self.id).ok_or(LocalError::NoSpace(self.id))?;
        self.open_as(local, owner).await
    }

    /// Makes the next owner, where there is none that serves.
    ///
    /// # Errors
    /// As [`Slot::open`].
    pub(crate) async fn reopen(&self, local: &LocalPool) -> Result<(), LocalError> {
        let Ok(_one) = self.changing.try_lock() else { return Ok(()) };
        if !self.is_to_open() {
            return Ok(());
        }
        let owner = local.pool.hand_over(self.id, NodeId::default()).await?;
        self.open_as(local, owner).await
    }

    async fn open_as(&self, local: &LocalPool, owner: OwnerId) -> Result<(), LocalError> {
        match open(local, owner).await {
            Ok(space) => {
                let link: Arc<dyn Owner> = Arc::new(space.clone());
                local.pool.link(owner, Arc::downgrade(&link) as Weak<dyn Owner>);
                *self.state.write() = State::Open(space, link);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(space = self.id.0, %error, "a virtual disk cannot be opened");
                let why = LocalError::NotOpen(error);
                *self.state.write() = State::Closed(why.clone());
                Err(why)
            }
        }
    }

    /// Ends the owner; calls from now on get `why`.
    ///
    /// # Errors
    /// It could not make everything durable.
    pub(crate) async fn close(&self, why: LocalError) -> Result<(), LocalError> {
        let _one = self.changing.lock().await;
        let before = std::mem::replace(&mut *self.state.write(), State::Closed(why));
        match before {
            State::Open(_, link) => Ok(link.close().wait().await.map(drop)?),
            State::Closed(_) => Ok(()),
        }
    }
}

async fn open(local: &LocalPool, owner: OwnerId) -> Result<Space, SpaceError> {
    let pool = &local.pool;
    pool.opens(owner);
    let view = Coordinator::view(pool, owner, None).wait().await?;
    let view = view.ok_or_else(|| SeamError::Failed("the pool does not show it".to_owned()))?;
    let handles = pool.clone();
    let settings = Settings {
        env: local.env.clone(),
        arena: local.arena.clone(),
        node: owner.node,
        budget: Arc::clone(&local.budget),
        hang: local.options.hang,
        coordinator: Arc::new(pool.clone()),
        lease: Arc::new(pool.lease()),
        open: Box::new(move |disk, of| handles.disk_of(owner, disk, of)),
    };
    Space::open(settings, view).await
}
