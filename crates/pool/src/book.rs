//! What the data path needs of the metadata: a look, a change, a disk that leaves. A pool gives it; so does a test, with a state that it can go
//! back to.

use std::sync::Arc;

use env::BoxFuture;

use crate::{Absence, CommitError, DiskNumber, Members, Op, Pool, State};

/// The metadata, as the data path sees it.
pub trait Book: Send + Sync {
    /// Looks at the state, once. `f` is short and looks at nothing else of the book: changes wait for it.
    fn view(&self, f: &mut dyn FnMut(&State));

    /// The disks that take part, at this moment.
    fn members(&self) -> Arc<Members>;

    /// Makes a change, all of it or nothing; durable when it is done.
    fn commit(&self, ops: Vec<Op>) -> BoxFuture<Result<(), CommitError>>;

    /// Makes a disk absent, and what is active on it missed; durable when it is done, also when somebody else had begun it.
    fn leave(&self, disk: DiskNumber, reason: Absence) -> BoxFuture<Result<(), CommitError>>;
}

impl Book for Pool {
    fn view(&self, f: &mut dyn FnMut(&State)) {
        self.read(f);
    }

    fn members(&self) -> Arc<Members> {
        Pool::members(self)
    }

    fn commit(&self, ops: Vec<Op>) -> BoxFuture<Result<(), CommitError>> {
        let pool = self.clone();
        Box::pin(async move { pool.metadata().commit(ops).await })
    }

    fn leave(&self, disk: DiskNumber, reason: Absence) -> BoxFuture<Result<(), CommitError>> {
        let pool = self.clone();
        Box::pin(async move { pool.disk_failed(disk, reason).await })
    }
}
