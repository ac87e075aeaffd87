//! The context that accompanies each I/O, and the return type of data path calls.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

/// A future that owns its data.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// The result of a call that usually completes immediately; it then needs no allocation and no task.
///
/// Dropping a pending `Io` discards the result but does not cancel the I/O: the driver keeps the buffers
/// until it completes.
pub enum Io<T> {
    /// Completed.
    Done(T),
    /// Not completed yet: await the future.
    Pending(BoxFuture<T>),
}

impl<T: Send + 'static> Io<T> {
    /// Waits for the result.
    pub async fn wait(self) -> T {
        match self {
            Io::Done(t) => t,
            Io::Pending(f) => f.await,
        }
    }

    /// Wraps a future.
    pub fn pending(f: impl Future<Output = T> + Send + 'static) -> Io<T> {
        Io::Pending(Box::pin(f))
    }

    /// Maps the result; a completed one stays completed.
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(T) -> U + Send + 'static) -> Io<U> {
        match self {
            Io::Done(t) => Io::Done(f(t)),
            Io::Pending(p) => Io::Pending(Box::pin(async move { f(p.await) })),
        }
    }
}

/// The owner's epoch under which an I/O was issued (DESIGN decision 10); 0 on a single machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Options of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFlags {
    /// The data is durable before the I/O completes.
    pub write_through: bool,
    /// Bypass the cache.
    pub unbuffered: bool,
}

/// Passed with an I/O through every layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ctx {
    /// Fail the I/O if it has not completed by then; `None`: no deadline.
    pub deadline: Option<Instant>,
    /// See [`Epoch`].
    pub epoch: Epoch,
    /// See [`IoFlags`].
    pub flags: IoFlags,
}
