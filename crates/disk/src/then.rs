//! The end of a write for who does not wait: no future, and no look before there is something to see.

use std::sync::Arc;

use env::Io;

use crate::{DiskError, Place};

/// Who is told what came of writes.
pub trait Told: Send + Sync {
    /// The write that he calls `which` has ended: once for each, perhaps before the call that started it returns. Whoever tells holds no lock of the
    /// disk, and does nothing for it after this.
    fn told(self: Arc<Self>, which: usize, result: Result<(), DiskError>);
}

/// Whom to tell; dropped, it tells that nobody knows what came of it ([`DiskError::Timeout`]).
pub struct Then {
    who: Option<Arc<dyn Told>>,
    which: usize,
    at: Place,
}

impl Then {
    /// Tells `who` of the write that he calls `which`.
    pub fn new(who: Arc<dyn Told>, which: usize, at: Place) -> Then {
        Then { who: Some(who), which, at }
    }

    /// It has ended.
    pub fn tell(mut self, result: Result<(), DiskError>) {
        if let Some(who) = self.who.take() {
            who.told(self.which, result);
        }
    }

    /// Tells when a write has ended whose disk has only the other way; if it is not over yet, by a task of this worker.
    pub(crate) fn when(self, write: Io<Result<(), DiskError>>) {
        match write {
            Io::Done(result) => self.tell(result),
            Io::Pending(write) => drop(tokio::spawn(async move { self.tell(write.await) })),
        }
    }
}

impl Drop for Then {
    fn drop(&mut self) {
        if let Some(who) = self.who.take() {
            who.told(self.which, Err(DiskError::Timeout { at: self.at }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use crate::conformance::Ear;

    #[test]
    fn who_hears_nothing_hears_that() {
        let (ear, at) = (Arc::<Ear>::default(), Place::new(Op::Write, 8, 8));
        let then = |which| {
            let who: Arc<Ear> = Arc::clone(&ear);
            Then::new(who, which, at)
        };
        drop(then(3));
        then(4).tell(Ok(()));
        then(5).when(Io::Done(Err(DiskError::Medium { at })));
        let expected = [(3, Err(DiskError::Timeout { at })), (4, Ok(())), (5, Err(DiskError::Medium { at }))];
        assert_eq!(*ear.heard.lock(), expected);
    }
}
