//! Completion of an I/O by callback, without a future or polling.

use std::sync::Arc;

use arena::SgMut;
use counters::PendingIo;
use env::Io;

use crate::{DiskError, IoRange};

/// The result of a write.
pub type Written = Result<(), DiskError>;

/// The result of a read, with its buffers.
pub type Read = (Result<(), DiskError>, SgMut);

/// The result of an I/O.
pub trait Outcome: Send + 'static {
    /// The outcome of an I/O whose result is unknown.
    fn unknown(at: IoRange) -> Self;

    /// Whether it failed.
    fn is_failure(&self) -> bool;

    /// Counts this result as the end of an I/O of `bytes` bytes, and returns it.
    fn counted(self, io: PendingIo, bytes: u64) -> Self
    where
        Self: Sized,
    {
        if self.is_failure() {
            io.failed()
        } else {
            io.done(bytes)
        }
        self
    }
}

impl Outcome for Written {
    fn unknown(at: IoRange) -> Written {
        Err(DiskError::Timeout { at })
    }

    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

impl Outcome for Read {
    fn unknown(at: IoRange) -> Read {
        (Err(DiskError::Timeout { at }), SgMut::new())
    }

    fn is_failure(&self) -> bool {
        self.0.is_err()
    }
}

/// Receives the results of I/Os.
pub trait Completion<T: Outcome>: Send + Sync {
    /// The I/O with the receiver's number `which` has completed. Called once for each I/O, perhaps before the
    /// call that started it returns. The disk holds no lock during the callback, and does nothing for the I/O
    /// afterwards.
    fn completed(self: Arc<Self>, which: usize, outcome: T);

    /// The I/O is late compared with the disk's usual latency: a receiver that can get the data elsewhere may
    /// do so. Only a disk with supervised latency calls this ([`Disk::slow_reads`](crate::Disk::slow_reads)),
    /// for reads, about once for each, perhaps when the I/O has just completed.
    fn late(self: Arc<Self>, _which: usize) {}
}

/// A callback for one I/O. If it is dropped unused, the receiver gets an unknown result
/// ([`DiskError::Timeout`]).
pub struct Callback<T: Outcome> {
    receiver: Option<Arc<dyn Completion<T>>>,
    which: usize,
    at: IoRange,
    /// The counter of the I/O, and its bytes.
    counts: Option<(PendingIo, u64)>,
}

impl<T: Outcome> Callback<T> {
    /// A callback to `receiver` for the I/O with the receiver's number `which`.
    pub fn new(receiver: Arc<dyn Completion<T>>, which: usize, at: IoRange) -> Callback<T> {
        Callback { receiver: Some(receiver), which, at, counts: None }
    }

    /// Counts the completion as the end of an I/O of `bytes` bytes.
    pub(crate) fn counted(mut self, io: PendingIo, bytes: u64) -> Callback<T> {
        self.counts = Some((io, bytes));
        self
    }

    /// The receiver and its number for the I/O, for [`Completion::late`].
    pub fn receiver(&self) -> Option<(Arc<dyn Completion<T>>, usize)> {
        self.receiver.clone().map(|receiver| (receiver, self.which))
    }

    /// Reports the result.
    pub fn complete(mut self, outcome: T) {
        let outcome = match self.counts.take() {
            Some((io, bytes)) => outcome.counted(io, bytes),
            None => outcome,
        };
        if let Some(receiver) = self.receiver.take() {
            receiver.completed(self.which, outcome);
        }
    }

    /// Reports the result of `io`, for a disk without native callbacks. If it is pending, a task on this
    /// worker awaits it.
    ///
    /// # Panics
    /// If it is pending and there is no Tokio runtime.
    pub fn complete_with(self, io: Io<T>) {
        match io {
            Io::Done(outcome) => self.complete(outcome),
            Io::Pending(io) => drop(tokio::spawn(async move { self.complete(io.await) })),
        }
    }
}

impl<T: Outcome> Drop for Callback<T> {
    fn drop(&mut self) {
        if let Some((io, _)) = self.counts.take() {
            io.failed();
        }
        if let Some(receiver) = self.receiver.take() {
            receiver.completed(self.which, T::unknown(self.at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use crate::conformance::CompletionRecorder;

    #[test]
    fn an_unused_callback_reports_an_unknown_result() {
        let (recorder, at) = (Arc::<CompletionRecorder<Written>>::default(), IoRange::new(Op::Write, 8, 8));
        let then = |which| {
            let receiver: Arc<CompletionRecorder<Written>> = Arc::clone(&recorder);
            Callback::new(receiver, which, at)
        };
        drop(then(3));
        then(4).complete(Ok(()));
        then(5).complete_with(Io::Done(Err(DiskError::Medium { at })));
        let expected = [(3, Err(DiskError::Timeout { at })), (4, Ok(())), (5, Err(DiskError::Medium { at }))];
        assert_eq!(*recorder.completions.lock(), expected);
        let (recorder, at) = (Arc::<CompletionRecorder<Read>>::default(), IoRange::new(Op::Read, 8, 8));
        let receiver: Arc<CompletionRecorder<Read>> = Arc::clone(&recorder);
        drop(Callback::new(receiver, 6, at));
        let completions = std::mem::take(&mut *recorder.completions.lock());
        let [(6, (Err(DiskError::Timeout { at: told }), none))] = &completions[..] else {
            panic!("{}", completions.len())
        };
        assert!(*told == at && none.is_empty());
    }
}
