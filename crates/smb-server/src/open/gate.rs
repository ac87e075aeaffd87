//! Closing an open waits for its running changes of the file.
//!
//! A WRITE that the backend has not completed must not take effect after its open has released its locks and share
//! mode: it would overwrite later data of another open. So every change of data enters the gate of its open; closing
//! shuts the gate and waits until the last change has left it.
//!
//! Invariant: after [`Gate::shut`] has returned no change is inside the gate, and none enters it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::Open;

/// Set in [`Gate::state`] when it is shut.
const SHUT: usize = 1 << (usize::BITS - 1);

/// See the module.
#[derive(Default)]
pub(crate) struct Gate {
    /// The number of changes inside, and [`SHUT`].
    state: AtomicUsize,
    empty: Notify,
}

/// A change of data inside the gate of an open.
pub(crate) struct GateGuard(Arc<Open>);

impl GateGuard {
    /// Begins to change data through an open; `None` when it is being closed, or is a pipe.
    pub(crate) fn new(open: &Arc<Open>) -> Option<GateGuard> {
        open.file()?.gate.enter().then(|| GateGuard(Arc::clone(open)))
    }

    pub(crate) fn open(&self) -> &Arc<Open> {
        &self.0
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        if let Some(f) = self.0.file() {
            f.gate.leave();
        }
    }
}

impl Gate {
    fn enter(&self) -> bool {
        let open = self.state.fetch_add(1, Ordering::Acquire) & SHUT == 0;
        if !open {
            self.leave();
        }
        open
    }

    fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::Release) == SHUT | 1 {
            self.empty.notify_waiters();
        }
    }

    /// Whether a change is inside.
    pub(super) fn is_entered(&self) -> bool {
        self.state.load(Ordering::Acquire) & !SHUT != 0
    }

    /// Refuses new changes, and waits until all running ones have left.
    pub(crate) async fn shut(&self) {
        self.state.fetch_or(SHUT, Ordering::AcqRel);
        loop {
            let mut empty = std::pin::pin!(self.empty.notified());
            empty.as_mut().enable();
            if self.state.load(Ordering::Acquire) == SHUT {
                return;
            }
            empty.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn shutting_waits_for_running_changes_and_refuses_new_ones() {
        let gate = Gate::default();
        assert!(gate.enter() && gate.enter());
        let mut shut = Box::pin(gate.shut());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(shut.as_mut().poll(&mut cx).is_pending());
        assert!(!gate.enter());
        gate.leave();
        assert!(shut.as_mut().poll(&mut cx).is_pending());
        gate.leave();
        assert_eq!(shut.as_mut().poll(&mut cx), Poll::Ready(()));
        assert!(!gate.enter());
    }
}
