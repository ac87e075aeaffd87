//! The owner of an open: one client, or none while it is disconnected. Once it is being closed it has none for good.
//!
//! Invariants:
//! 1. Each absence ends once: by a reconnect, or because the open is closed.
//! 2. An open begins to be closed once.
//! 3. The volatile id is the owner's; 0 while there is none. The id of an earlier owner is never valid again.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// The number of an absence that began before the server's restart.
pub(crate) const FIRST_ABSENCE: u64 = 1;

/// See the module. `O` is an owner.
pub(crate) struct Tenure<O> {
    /// The volatile half of the open's FileId.
    volatile: AtomicU64,
    /// TreeId of the owner.
    tree: AtomicU32,
    state: Mutex<State<O>>,
}

struct State<O> {
    presence: Presence<O>,
    /// Absences so far.
    absences: u64,
}

enum Presence<O> {
    Here(O),
    /// Disconnected; the number distinguishes absences.
    Away(u64),
    /// Its timeout has passed, and the removal of its record is being stored: the client cannot reconnect any more, and
    /// its locks and share mode are still in effect.
    Ending,
    Closing,
}

impl<O: Clone> Tenure<O> {
    /// The state of a new open.
    pub(crate) fn new(owner: O, tree: u32, volatile: u64) -> Tenure<O> {
        let state = State { presence: Presence::Here(owner), absences: 0 };
        Tenure { volatile: AtomicU64::new(volatile), tree: AtomicU32::new(tree), state: Mutex::new(state) }
    }

    /// The state of an open that is disconnected since before the server's restart.
    pub(crate) fn away() -> Tenure<O> {
        let state = State { presence: Presence::Away(FIRST_ABSENCE), absences: FIRST_ABSENCE };
        Tenure { volatile: AtomicU64::new(0), tree: AtomicU32::new(0), state: Mutex::new(state) }
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
        match &self.state.lock().presence {
            Presence::Here(owner) => Some(owner.clone()),
            Presence::Away(_) | Presence::Ending | Presence::Closing => None,
        }
    }

    /// Whether this is its volatile id and `is_user` is true of its owner. Both are checked under one lock: otherwise
    /// the id might be that of an earlier owner.
    pub(crate) fn is_named(&self, volatile: u64, is_user: impl FnOnce(&O) -> bool) -> bool {
        match &self.state.lock().presence {
            Presence::Here(owner) => self.volatile() == volatile && is_user(owner),
            Presence::Away(_) | Presence::Ending | Presence::Closing => false,
        }
    }

    /// Whether it is disconnected.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.state.lock().presence, Presence::Away(_) | Presence::Ending)
    }

    /// The current absence.
    pub(crate) fn absence(&self) -> Option<u64> {
        match self.state.lock().presence {
            Presence::Away(absence) => Some(absence),
            Presence::Here(_) | Presence::Ending | Presence::Closing => None,
        }
    }

    /// Removes its owner, whose client may reconnect: from now on no FileId is valid. Returns the number of the
    /// absence; `None` when it had no owner.
    pub(crate) fn disconnect(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if !matches!(state.presence, Presence::Here(_)) {
            return None;
        }
        state.absences += 1;
        let absence = state.absences;
        let owner = std::mem::replace(&mut state.presence, Presence::Away(absence));
        self.volatile.store(0, Ordering::Release);
        drop(state);
        drop(owner);
        Some(absence)
    }

    /// Sets the owner of a client that reconnects; false when it is not disconnected any more.
    pub(crate) fn reconnect(&self, owner: O, tree: u32, volatile: u64) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.presence, Presence::Away(_)) {
            return false;
        }
        state.presence = Presence::Here(owner);
        self.tree.store(tree, Ordering::Relaxed);
        self.volatile.store(volatile, Ordering::Release);
        true
    }

    /// Begins to close it at the end of this absence; returns false if the absence has ended already. On true the
    /// caller must call [`Tenure::end`] or [`Tenure::disconnected_id`].
    pub(crate) fn begin_end(&self, absence: u64) -> bool {
        let mut state = self.state.lock();
        let may = matches!(state.presence, Presence::Away(now) if now == absence);
        if may {
            state.presence = Presence::Ending;
        }
        may
    }

    /// The removal of its record is stored: the caller closes it.
    pub(crate) fn end(&self) {
        self.state.lock().presence = Presence::Closing;
    }

    /// The removal of its record could not be stored: it stays disconnected. Returns the number of the new absence.
    pub(crate) fn disconnected_id(&self) -> u64 {
        let mut state = self.state.lock();
        state.absences += 1;
        state.presence = Presence::Away(state.absences);
        state.absences
    }

    /// Marks it as being closed, and returns the owner it had. `None` when the caller must not close it: it is being
    /// closed already, or `absence` is given and is not the current one.
    pub(crate) fn begin_close(&self, absence: Option<u64>) -> Option<Option<O>> {
        let mut state = self.state.lock();
        let may = match (&state.presence, absence) {
            (Presence::Ending | Presence::Closing, _) | (Presence::Here(_), Some(_)) => false,
            (Presence::Away(now), Some(absence)) => *now == absence,
            (_, None) => true,
        };
        if !may {
            return None;
        }
        self.volatile.store(0, Ordering::Release);
        match std::mem::replace(&mut state.presence, Presence::Closing) {
            Presence::Here(owner) => Some(Some(owner)),
            Presence::Away(_) | Presence::Ending | Presence::Closing => Some(None),
        }
    }
}
