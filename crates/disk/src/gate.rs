//! Shared by all providers: fencing, and the latch of a failed flush.
//!
//! Invariants of [`Gate`]:
//! 1. an I/O holds a [`GateGuard`], or is between `enter_unguarded` and `leave`, for as long as it can access
//!    the medium;
//! 2. I/O with an epoch below the fence is not admitted;
//! 3. `fence` returns only when no I/O of a lower epoch is outstanding.

use std::sync::Arc;

use env::{Ctx, Epoch, Io};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{DiskError, IoRange, Op};

/// Admits I/O of the current epoch and counts outstanding I/O. Aligned so that gates share no cache line.
#[derive(Default)]
#[repr(align(128))]
pub struct Gate {
    state: Mutex<State>,
    drained: Notify,
}

#[derive(Default)]
struct State {
    fence: Epoch,
    /// Outstanding I/Os by epoch, unordered, without zero counts. There are rarely more than one or two
    /// epochs.
    in_flight: Vec<(Epoch, u64)>,
}

/// Permission of one I/O to access the medium; released on drop.
pub struct GateGuard {
    gate: Arc<Gate>,
    epoch: Epoch,
}

/// Remembers the first failed flush.
#[derive(Default)]
pub struct FlushLatch(Mutex<Option<DiskError>>);

impl Gate {
    /// Admits an I/O.
    ///
    /// # Errors
    /// [`DiskError::Fenced`] if its epoch is below the fence.
    pub fn enter(self: &Arc<Gate>, c: &Ctx, at: IoRange) -> Result<GateGuard, DiskError> {
        self.enter_unguarded(c, at)?;
        Ok(GateGuard { gate: Arc::clone(self), epoch: c.epoch })
    }

    /// Like `enter`, for a caller that keeps the gate alive itself: it must call [`Gate::leave`] later.
    pub(crate) fn enter_unguarded(&self, c: &Ctx, at: IoRange) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if c.epoch < state.fence {
            return Err(DiskError::Fenced { at, call_epoch: c.epoch, epoch: state.fence });
        }
        match state.in_flight.iter_mut().find(|(epoch, _)| *epoch == c.epoch) {
            Some((_, count)) => *count += 1,
            None => state.in_flight.push((c.epoch, 1)),
        }
        Ok(())
    }

    /// The counterpart of `enter_unguarded`: the I/O no longer accesses the medium.
    pub(crate) fn leave(&self, of: Epoch) {
        let mut state = self.state.lock();
        let at = state.in_flight.iter().position(|(epoch, _)| *epoch == of);
        let at = at.expect("it is counted until it leaves");
        state.in_flight[at].1 -= 1;
        if state.in_flight[at].1 == 0 {
            state.in_flight.swap_remove(at);
            if of < state.fence {
                self.drained.notify_waiters();
            }
        }
    }

    /// See [`crate::Disk::fence`].
    pub fn fence(self: &Arc<Gate>, epoch: Epoch) -> Io<Result<(), DiskError>> {
        {
            let mut state = self.state.lock();
            if epoch < state.fence {
                let at = IoRange::whole(Op::Fence);
                return Io::Done(Err(DiskError::Fenced { at, call_epoch: epoch, epoch: state.fence }));
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

    /// The number of outstanding I/Os.
    pub fn in_flight(&self) -> u64 {
        self.state.lock().in_flight.iter().map(|(_, count)| count).sum()
    }
}

impl State {
    fn drained(&self, epoch: Epoch) -> bool {
        self.in_flight.iter().all(|(of, _)| *of >= epoch)
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.gate.leave(self.epoch);
    }
}

impl FlushLatch {
    /// Fails if a flush has failed.
    ///
    /// # Errors
    /// The first flush error.
    pub fn check(&self) -> Result<(), DiskError> {
        self.0.lock().map_or(Ok(()), Err)
    }

    /// Records a flush's error and passes the result on; after an error every result is that error. Misuse
    /// and fencing do not latch, because they are no failures of the flush. A vanished disk does: if it
    /// returns under the same handle, its cached writes are lost.
    ///
    /// # Errors
    /// The first error.
    pub fn record(&self, result: Result<(), DiskError>) -> Result<(), DiskError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(epoch: u64) -> Ctx {
        Ctx { epoch: Epoch(epoch), ..Ctx::default() }
    }

    #[tokio::test]
    async fn a_fence_waits_only_for_older_epochs() {
        let gate = Arc::<Gate>::default();
        let at = IoRange::new(Op::Write, 0, 4096);
        let enter = |epoch| gate.enter(&of(epoch), at);
        let (first, second, third) = (enter(1), enter(1), enter(3));
        let (Ok(first), Ok(second), Ok(third)) = (first, second, third) else { panic!("nothing is fenced") };
        let Io::Pending(mut fence) = gate.fence(Epoch(3)) else { panic!("two are older") };
        assert_eq!(
            enter(2).err(),
            Some(DiskError::Fenced { at, call_epoch: Epoch(2), epoch: Epoch(3) }),
            "at once"
        );
        let mut poll = || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            fence.as_mut().poll(&mut context).is_ready()
        };
        assert!(!poll());
        drop(first);
        assert!(!poll());
        drop(second);
        assert!(poll(), "the third is of the epoch itself");
        assert_eq!(gate.in_flight(), 1);
        drop(third);
        assert!(matches!(gate.fence(Epoch(4)), Io::Done(Ok(()))) && gate.in_flight() == 0);
    }

    #[test]
    fn errors_that_latch() {
        let at = IoRange::whole(Op::Flush);
        let latch = FlushLatch::default();
        let fenced = DiskError::Fenced { at, call_epoch: Epoch(1), epoch: Epoch(2) };
        for own in [fenced, DiskError::ReadOnly { at }] {
            assert_eq!((latch.record(Err(own)), latch.check()), (Err(own), Ok(())));
        }
        let gone = DiskError::Gone { at };
        assert_eq!((latch.record(Err(gone)), latch.check()), (Err(gone), Err(gone)));
        assert_eq!(latch.record(Ok(())), Err(gone), "also after it is back: what its cache had is lost");
    }

    /// The waiter is woken even if the pass ends on another thread.
    #[tokio::test]
    async fn a_fence_is_woken() {
        for _ in 0..200 {
            let gate = Arc::<Gate>::default();
            let pass = gate.enter(&of(0), IoRange::whole(Op::Flush)).ok();
            let ends = std::thread::spawn(move || drop(pass));
            gate.fence(Epoch(1)).wait().await.expect("fenced");
            ends.join().expect("it ended");
        }
    }
}
