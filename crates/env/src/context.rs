//! What travels with an I/O, and what a data path call returns.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

/// A future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// The result of a call that mostly completes at once: no allocation and no task where it does.
///
/// Dropping a pending one loses the result, not the I/O: its driver keeps the buffers until it has completed.
pub enum Io<T> {
    /// Completed.
    Done(T),
    /// Not yet: await this.
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

    /// Maps the result, staying complete if it is.
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(T) -> U + Send + 'static) -> Io<U> {
        match self {
            Io::Done(t) => Io::Done(f(t)),
            Io::Pending(p) => Io::Pending(Box::pin(async move { f(p.await) })),
        }
    }
}

/// The owner's epoch that an I/O was issued under (DESIGN decision 10); 0 where there is one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// How an I/O wants to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFlags {
    /// Durable before it completes.
    pub write_through: bool,
    /// Past the cache.
    pub unbuffered: bool,
}

/// What travels with an I/O through every layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ctx {
    /// Answer by then or give up; `None`: no deadline.
    pub deadline: Option<Instant>,
    /// See [`Epoch`].
    pub epoch: Epoch,
    /// See [`IoFlags`].
    pub flags: IoFlags,
}
