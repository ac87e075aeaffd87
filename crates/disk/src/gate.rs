//! What every provider does in the same way: fencing, and the latch of a failed flush.
//!
//! Invariants of [`Gate`]:
//! 1. an I/O holds a [`Pass`] from before it touches the medium until it can touch it no more;
//! 2. no pass is given for an epoch lower than the fence;
//! 3. `fence` returns only when no pass of a lower epoch is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::{Ctx, Epoch, Io};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{DiskError, Op, Place};

/// Lets I/O of the current epoch through and knows what is still under way.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    drained: Notify,
}

#[derive(Default)]
struct State {
    fence: Epoch,
    /// I/Os under way by epoch; no zeros.
    flying: BTreeMap<Epoch, u64>,
}

/// The right of one I/O to touch the medium; it ends on drop.
pub struct Pass {
    gate: Arc<Gate>,
    epoch: Epoch,
}

/// Remembers the first failed flush.
#[derive(Default)]
pub struct FlushLatch(Mutex<Option<DiskError>>);

impl Gate {
    /// Lets an I/O in.
    ///
    /// # Errors
    /// [`DiskError::Fenced`].
    pub fn enter(self: &Arc<Gate>, c: &Ctx, at: Place) -> Result<Pass, DiskError> {
        let mut state = self.state.lock();
        if c.epoch < state.fence {
            return Err(DiskError::Fenced { at, had: c.epoch, epoch: state.fence });
        }
        *state.flying.entry(c.epoch).or_insert(0) += 1;
        Ok(Pass { gate: Arc::clone(self), epoch: c.epoch })
    }

    /// See [`crate::Disk::fence`].
    pub fn fence(self: &Arc<Gate>, epoch: Epoch) -> Io<Result<(), DiskError>> {
        {
            let mut state = self.state.lock();
            if epoch < state.fence {
                let at = Place::whole(Op::Fence);
                return Io::Done(Err(DiskError::Fenced { at, had: epoch, epoch: state.fence }));
            }
            state.fence = epoch;
            if state.drained(epoch) {
                return Io::Done(Ok(()));
            }
        }
        let gate = Arc::clone(self);
        Io::pending(async move {
            loop {
                let drained = gate.drained.notified();
                if gate.state.lock().drained(epoch) {
                    return Ok(());
                }
                drained.await;
            }
        })
    }

    /// How many I/Os are under way.
    pub fn flying(&self) -> u64 {
        self.state.lock().flying.values().sum()
    }
}

impl State {
    fn drained(&self, epoch: Epoch) -> bool {
        self.flying.first_key_value().is_none_or(|(lowest, _)| *lowest >= epoch)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        let Some(count) = state.flying.get_mut(&self.epoch) else { return };
        *count -= 1;
        if *count == 0 {
            state.flying.remove(&self.epoch);
            if self.epoch < state.fence {
                self.gate.drained.notify_waiters();
            }
        }
    }
}

impl FlushLatch {
    /// The first error, if there was one.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<(), DiskError> {
        self.0.lock().map_or(Ok(()), Err)
    }

    /// Passes a flush's result on, keeping an error; after one, everything is that error. Misuse, a fence and a disk
    /// that is gone are not the flush's and do not latch.
    ///
    /// # Errors
    /// The first error.
    pub fn pass(&self, result: Result<(), DiskError>) -> Result<(), DiskError> {
        let mut first = self.0.lock();
        match (*first, result) {
            (Some(e), _) => Err(e),
            (None, Err(e)) => {
                if !e.is_misuse() && !matches!(e, DiskError::Fenced { .. }) {
                    *first = Some(e);
                }
                Err(e)
            }
            (None, Ok(())) => Ok(()),
        }
    }
}
