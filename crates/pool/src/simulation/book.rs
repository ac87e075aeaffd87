//! Metadata that is durable at once: the state at every event, to go back to.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use disk::sim::Machine;
use env::{BoxFuture, Env};
use parking_lot::Mutex;

use crate::authority::Tenure;
use crate::book::{Book, Life};
use crate::{Absence, CommitError, DataPath, DiskNumber, Members, Op, State, Suspension};

pub(super) struct TestBook {
    machine: Machine,
    inner: Mutex<Inner>,
    path: OnceLock<Weak<DataPath>>,
    /// The delay until a removal is reported to its caller.
    pub(super) leaving_takes: OnceLock<(Env, Duration)>,
}

struct Inner {
    version: u64,
    state: State,
    members: Arc<Members>,
    /// What was committed, with the number of events there had been.
    history: Vec<(u64, State)>,
}

impl TestBook {
    pub(super) fn new(machine: &Machine, state: State, members: Members) -> Arc<TestBook> {
        let history = vec![(0, state.clone())];
        let inner = Inner { version: 0, state, members: Arc::new(members), history };
        Arc::new(TestBook {
            machine: machine.clone(),
            inner: Mutex::new(inner),
            path: OnceLock::new(),
            leaving_takes: OnceLock::new(),
        })
    }

    pub(super) fn set_path(&self, path: &Arc<DataPath>) {
        self.path.set(Arc::downgrade(path)).unwrap_or_else(|_| panic!("one path"));
    }

    pub(super) fn state(&self) -> State {
        self.inner.lock().state.clone()
    }

    /// The state as a power cut before event `event` finds it.
    pub(super) fn state_at(&self, event: u64) -> State {
        let inner = self.inner.lock();
        let found = inner.history.iter().rev().find(|(e, _)| *e <= event);
        found.expect("the first is of event 0").1.clone()
    }

    /// Every state there was.
    pub(super) fn states(&self) -> Vec<State> {
        self.inner.lock().history.iter().map(|(_, s)| s.clone()).collect()
    }

    pub(super) fn change(&self, ops: &[Op]) -> Result<(), CommitError> {
        if !self.machine.is_on() {
            return Err(CommitError::Suspended(Suspension::Ended));
        }
        let mut inner = self.inner.lock();
        inner.state.apply_all(ops)?;
        inner.version += 1;
        let now = (self.machine.events(), inner.state.clone());
        inner.history.push(now);
        Ok(())
    }

    pub(super) fn set_members(&self, members: Members) {
        let mut inner = self.inner.lock();
        inner.members = Arc::new(members);
        inner.version += 1;
    }

    pub(super) fn leave_now(&self, disk: DiskNumber, reason: Absence) -> Result<(), CommitError> {
        self.set_members(self.members().without(disk));
        let state = self.state();
        if !state.is_present(disk) {
            return Ok(());
        }
        let path = self.path.get().and_then(Weak::upgrade);
        let ops = state.leave(disk, reason, &crate::Answers::new(), |space, row, index| {
            path.as_ref().map_or(0, |p| p.active(space, row, index))
        });
        self.change(&ops)
    }
}

impl Book for TestBook {
    fn view(&self, f: &mut dyn FnMut(&State)) {
        f(&self.inner.lock().state);
    }

    fn version(&self) -> u64 {
        self.inner.lock().version
    }

    fn members(&self) -> Arc<Members> {
        Arc::clone(&self.inner.lock().members)
    }

    fn tenure(&self) -> Arc<Tenure> {
        Tenure::endless()
    }

    fn commit(&self, ops: Vec<Op>) -> BoxFuture<Result<(), CommitError>> {
        let result = self.change(&ops);
        Box::pin(async move { result })
    }

    fn leave(&self, disk: DiskNumber, life: Life, reason: Absence) -> BoxFuture<Result<(), CommitError>> {
        let over = life.is_over(self.members().get(disk));
        let result = if over { Ok(()) } else { self.leave_now(disk, reason) };
        let takes = self.leaving_takes.get().cloned();
        Box::pin(async move {
            if let Some((env, takes)) = takes {
                env.sleep(takes).await;
            }
            result
        })
    }
}
