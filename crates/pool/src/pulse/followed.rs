//! The wait for one I/O.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use disk::{DiskError, Place, Told, Written};
use env::{BoxFuture, Io, Moment};

use super::Pulse;
use super::landing::Landing;

/// An I/O that its driver is not done with, as the pulse knows it.
pub(super) struct UnderWay {
    pub(super) began: Moment,
    pub(super) at: Place,
    /// Whether it is counted in [`Pulse::in_flight`].
    pub(super) counted: bool,
    /// Whether it began in a short queue, of at most [`SHORT`](crate::supervision::standing::SHORT).
    pub(super) short: bool,
    /// The waiter. Without one, a completion is noticed only for I/Os with a callback.
    pub(super) waiter: Option<Waiter>,
    /// When the waiter of a read wants to be notified that it is slow.
    pub(super) due: Option<Moment>,
}

/// The waiter of an I/O.
pub(super) enum Waiter {
    /// It polls.
    Looks(Waker),
    /// It is called back, with this number.
    Told(Arc<dyn Told<Written>>, usize),
    /// A read with a callback.
    Reads(Arc<Landing>),
}

impl Waiter {
    /// The waker of a polling waiter.
    pub(super) fn waker(&self) -> Option<&Waker> {
        match self {
            Waiter::Looks(waker) => Some(waker),
            Waiter::Told(..) | Waiter::Reads(_) => None,
        }
    }
}

/// An outstanding I/O.
pub(super) struct Ticket {
    pulse: Arc<Pulse>,
    slot: u32,
    /// Whether it is counted as ended.
    ended: bool,
}

/// The wait for an I/O: its result, or `None` when its disk was removed and the wait was abandoned.
pub(crate) struct Followed<T: Send + 'static> {
    io: Option<Io<T>>,
    ticket: Option<Ticket>,
    /// It was looked at before, and had not ended.
    waited: bool,
}

impl Ticket {
    pub(super) fn new(pulse: &Arc<Pulse>, slot: u32) -> Ticket {
        Ticket { pulse: Arc::clone(pulse), slot, ended: false }
    }

    /// The I/O is done.
    fn done(mut self) {
        self.ended = true;
        self.pulse.done(self.slot);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended {
            self.pulse.remove(&mut self.pulse.state.lock(), self.slot);
        }
    }
}

impl<T: Send + 'static> Followed<T> {
    pub(super) fn new(io: Io<T>, ticket: Ticket) -> Followed<T> {
        Followed { io: Some(io), ticket: Some(ticket), waited: false }
    }

    /// One that was not started.
    pub(super) fn of_none() -> Followed<T> {
        Followed { io: None, ticket: None, waited: false }
    }

    /// Its result, or the error of a removed disk.
    pub(crate) async fn wait(self, at: Place) -> Result<T, DiskError> {
        self.await.ok_or(DiskError::Timeout { at })
    }

    /// Waits until it has ended; the result is there for [`Followed::result`].
    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_result(context).map(|result| self.io = result.map(Io::Done))
    }

    /// The result of a completed one, as its future returns it.
    pub(crate) fn result(&self) -> Option<&T> {
        match &self.io {
            Some(Io::Done(result)) => Some(result),
            _ => None,
        }
    }

    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let (result, known) = match self.io.take() {
            None => return Poll::Ready(None),
            Some(Io::Done(result)) => (result, true),
            Some(Io::Pending(mut io)) => match io.as_mut().poll(context) {
                // A completion before the first poll says nothing about the disk's latency.
                Poll::Ready(result) => (result, self.waited),
                Poll::Pending => {
                    self.io = Some(Io::Pending(io));
                    return self.stays(context);
                }
            },
        };
        if let Some(ticket) = self.ticket.take().filter(|_| known) {
            ticket.done();
        }
        Poll::Ready(Some(result))
    }

    /// It has not completed: registers the waiter.
    fn stays(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.waited = true;
        let Some(ticket) = &self.ticket else { return Poll::Ready(None) };
        let pulse = &ticket.pulse;
        let wakes = |w: &Waiter| w.waker().is_some_and(|w| w.will_wake(context.waker()));
        if let Some(mine) = &mut pulse.state.lock().under_way[ticket.slot as usize]
            && !mine.waiter.as_ref().is_some_and(wakes)
        {
            mine.waiter = Some(Waiter::Looks(context.waker().clone()));
        }
        // After the waker is registered: an abandonment after this check wakes it.
        if pulse.abandoned.load(Ordering::Acquire) {
            self.leave_alone();
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    /// Its driver continues; so it stays outstanding.
    fn leave_alone(&mut self) {
        if let (Some(Io::Pending(io)), Some(ticket)) = (self.io.take(), self.ticket.take()) {
            keep(io, ticket);
        }
    }
}

/// Holds the ticket, and its place in the queue, until the I/O is done.
fn keep<T: Send + 'static>(io: BoxFuture<T>, ticket: Ticket) {
    let env = ticket.pulse.env.clone();
    if let Some(mine) = &mut ticket.pulse.state.lock().under_way[ticket.slot as usize] {
        // The task is woken when it has ended, and by nothing else.
        mine.waiter = Some(Waiter::Looks(Waker::noop().clone()));
    }
    env.spawn_if_running(async move {
        drop(io.await);
        ticket.done();
    });
}

impl<T: Send + 'static> Future for Followed<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_result(context)
    }
}

/// Nothing of it is pinned in place: the future is in a box of its own.
impl<T: Send + 'static> Unpin for Followed<T> {}

impl<T: Send + 'static> Drop for Followed<T> {
    fn drop(&mut self) {
        self.leave_alone();
    }
}
