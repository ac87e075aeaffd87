//! The owner of an open: one client, or none while it is disconnected. Once it is being closed it has none for good.
//!
//! Invariants:
//! 1. Each disconnection ends once: by a reconnect, or because the open is closed.
//! 2. An open begins to be closed once.
//! 3. The volatile id is the owner's; 0 while there is none. The id of an earlier owner is never valid again.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// The number of a disconnection that began before the server's restart.
pub(crate) const FIRST_DISCONNECTION: u64 = 1;

/// See the module. `O` is an owner.
pub(crate) struct Ownership<O> {
    /// The volatile half of the open's FileId.
    volatile: AtomicU64,
    /// TreeId of the owner.
    tree: AtomicU32,
    state: Mutex<State<O>>,
}

struct State<O> {
    owner_state: OwnerState<O>,
    /// Disconnections so far.
    disconnections: u64,
}

enum OwnerState<O> {
    Connected(O),
    /// Disconnected; the number distinguishes disconnections.
    Disconnected(u64),
    /// Its timeout has passed, and the removal of its record is being stored: the client cannot reconnect any more, and
    /// its locks and share mode are still in effect.
    Expiring,
    Closing,
}

impl<O: Clone> Ownership<O> {
    /// The state of a new open.
    pub(crate) fn new(owner: O, tree: u32, volatile: u64) -> Ownership<O> {
        let state = State { owner_state: OwnerState::Connected(owner), disconnections: 0 };
        Ownership { volatile: AtomicU64::new(volatile), tree: AtomicU32::new(tree), state: Mutex::new(state) }
    }

    /// The state of an open that is disconnected since before the server's restart.
    pub(crate) fn disconnected() -> Ownership<O> {
        let state = State {
            owner_state: OwnerState::Disconnected(FIRST_DISCONNECTION),
            disconnections: FIRST_DISCONNECTION,
        };
        Ownership { volatile: AtomicU64::new(0), tree: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// The volatile half of its current FileId; 0 without an owner.
    pub(crate) fn volatile(&self) -> u64 {
        self.volatile.load(Ordering::Acquire)
    }

    /// TreeId of the current or last owner.
    pub(crate) fn tree(&self) -> u32 {
        self.tree.load(Ordering::Relaxed)
    }

    /// The owner; `None` while disconnected, and once it is being closed.
    pub(crate) fn owner(&self) -> Option<O> {
        match &self.state.lock().owner_state {
            OwnerState::Connected(owner) => Some(owner.clone()),
            OwnerState::Disconnected(_) | OwnerState::Expiring | OwnerState::Closing => None,
        }
    }

    /// Whether this is its volatile id and `is_user` is true of its owner. Both are checked under one lock: otherwise
    /// the id might be that of an earlier owner.
    pub(crate) fn is_named(&self, volatile: u64, is_user: impl FnOnce(&O) -> bool) -> bool {
        match &self.state.lock().owner_state {
            OwnerState::Connected(owner) => self.volatile() == volatile && is_user(owner),
            OwnerState::Disconnected(_) | OwnerState::Expiring | OwnerState::Closing => false,
        }
    }

    /// Whether it is disconnected.
    pub(crate) fn is_disconnected(&self) -> bool {
        matches!(self.state.lock().owner_state, OwnerState::Disconnected(_) | OwnerState::Expiring)
    }

    /// The current disconnection.
    pub(crate) fn disconnection(&self) -> Option<u64> {
        match self.state.lock().owner_state {
            OwnerState::Disconnected(disconnection) => Some(disconnection),
            OwnerState::Connected(_) | OwnerState::Expiring | OwnerState::Closing => None,
        }
    }

    /// Removes its owner, whose client may reconnect: from now on no FileId is valid. Returns the number of the
    /// disconnection; `None` when it had no owner.
    pub(crate) fn disconnect(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if !matches!(state.owner_state, OwnerState::Connected(_)) {
            return None;
        }
        state.disconnections += 1;
        let disconnection = state.disconnections;
        let owner = std::mem::replace(&mut state.owner_state, OwnerState::Disconnected(disconnection));
        self.volatile.store(0, Ordering::Release);
        drop(state);
        drop(owner);
        Some(disconnection)
    }

    /// Sets the owner of a client that reconnects; false when it is not disconnected any more.
    pub(crate) fn reconnect(&self, owner: O, tree: u32, volatile: u64) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.owner_state, OwnerState::Disconnected(_)) {
            return false;
        }
        state.owner_state = OwnerState::Connected(owner);
        self.tree.store(tree, Ordering::Relaxed);
        self.volatile.store(volatile, Ordering::Release);
        true
    }

    /// Begins to close it at the end of this disconnection; returns false if the disconnection has ended already. On
    /// true the caller must call [`Ownership::finish_expiry`] or [`Ownership::cancel_expiry`].
    pub(crate) fn begin_expiry(&self, disconnection: u64) -> bool {
        let mut state = self.state.lock();
        let may = matches!(state.owner_state, OwnerState::Disconnected(now) if now == disconnection);
        if may {
            state.owner_state = OwnerState::Expiring;
        }
        may
    }

    /// The removal of its record is stored: the caller closes it.
    pub(crate) fn finish_expiry(&self) {
        self.state.lock().owner_state = OwnerState::Closing;
    }

    /// The removal of its record could not be stored: it stays disconnected. Returns the number of the new
    /// disconnection.
    pub(crate) fn cancel_expiry(&self) -> u64 {
        let mut state = self.state.lock();
        state.disconnections += 1;
        state.owner_state = OwnerState::Disconnected(state.disconnections);
        state.disconnections
    }

    /// Marks it as being closed, and returns the owner it had. `None` when the caller must not close it: it is being
    /// closed already, or `disconnection` is given and is not the current one.
    pub(crate) fn begin_close(&self, disconnection: Option<u64>) -> Option<Option<O>> {
        let mut state = self.state.lock();
        let may = match (&state.owner_state, disconnection) {
            (OwnerState::Expiring | OwnerState::Closing, _) | (OwnerState::Connected(_), Some(_)) => false,
            (OwnerState::Disconnected(now), Some(disconnection)) => *now == disconnection,
            (_, None) => true,
        };
        if !may {
            return None;
        }
        self.volatile.store(0, Ordering::Release);
        match std::mem::replace(&mut state.owner_state, OwnerState::Closing) {
            OwnerState::Connected(owner) => Some(Some(owner)),
            OwnerState::Disconnected(_) | OwnerState::Expiring | OwnerState::Closing => Some(None),
        }
    }
}
