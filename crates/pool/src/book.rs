//! The data path's interface to the metadata: reading, changes, removal of disks. A pool implements it; so
//! does a test, with a state that it can reset.

use std::sync::Arc;

use env::BoxFuture;

use crate::authority::Tenure;
use crate::{Absence, CommitError, DiskNumber, Member, Members, Op, Pool, State};

/// The membership of a disk that is to end: a disk that has joined again since is not removed for earlier
/// failures.
#[derive(Clone)]
pub enum Life {
    /// Whichever it has.
    Any,
    /// The one in which it was this member, if it has begun no other.
    Of(Arc<Member>),
    /// One that is ending already: it is no member any more.
    Ending,
}

impl Life {
    /// Whether this is another one than that which is to end.
    pub(crate) fn is_over(&self, now: Option<&Arc<Member>>) -> bool {
        match (self, now) {
            (Life::Of(was), Some(is)) => !Arc::ptr_eq(was, is),
            (Life::Ending, is) => is.is_some(),
            (Life::Any, _) | (Life::Of(_), None) => false,
        }
    }
}

/// The metadata, as the data path sees it.
pub trait Book: Send + Sync {
    /// Reads the state, once. `f` is short and reads nothing else of the book: changes wait for it.
    fn view(&self, f: &mut dyn FnMut(&State));

    /// Increases with each change of the state or of the members, before the change is reported.
    fn version(&self) -> u64;

    /// The disks in service at this moment.
    fn members(&self) -> Arc<Members>;

    /// The owner's right to change the pool's data.
    fn tenure(&self) -> Arc<Tenure>;

    /// Makes a change, all of it or nothing; durable when it is done.
    fn commit(&self, ops: Vec<Op>) -> BoxFuture<Result<(), CommitError>>;

    /// Removes a disk from service and marks its active regions stale. Durable on return; concurrent calls
    /// share one commit. Does nothing if the disk has joined again since `life`.
    fn leave(&self, disk: DiskNumber, life: Life, reason: Absence) -> BoxFuture<Result<(), CommitError>>;
}

impl Book for Pool {
    fn view(&self, f: &mut dyn FnMut(&State)) {
        self.read(f);
    }

    fn version(&self) -> u64 {
        self.metadata().version()
    }

    fn members(&self) -> Arc<Members> {
        Pool::members(self)
    }

    fn tenure(&self) -> Arc<Tenure> {
        Arc::clone(self.metadata().tenure())
    }

    fn commit(&self, ops: Vec<Op>) -> BoxFuture<Result<(), CommitError>> {
        let pool = self.clone();
        Box::pin(async move { pool.metadata().commit(ops).await })
    }

    fn leave(&self, disk: DiskNumber, life: Life, reason: Absence) -> BoxFuture<Result<(), CommitError>> {
        let pool = self.clone();
        Box::pin(async move { pool.metadata().leave(disk, life, reason).await })
    }
}
