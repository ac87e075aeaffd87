//! The wait for one read with a callback.
//!
//! The read continues whether or not a caller waits; an unwanted result is dropped, buffers and all.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use disk::Read;
use parking_lot::Mutex;

/// Where a read arrives.
#[derive(Default)]
pub(super) struct Landing(Mutex<State>);

#[derive(Default)]
struct State {
    came: Answer,
    /// It has taken longer than the waiter's limit, and the waiter was not notified.
    late: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
enum Answer {
    #[default]
    Open,
    /// Its result; none if its disk was removed, or the result was taken.
    Ended(Option<Read>),
}

/// The result of a wait for a read.
pub(crate) enum Came {
    /// Its result, or none: its disk was removed.
    Ended(Option<Read>),
    /// It has taken longer than the waiter's limit.
    Late,
}

/// The wait for a read, which continues whether or not a caller waits.
pub(crate) struct Waits(Arc<Landing>);

impl Landing {
    /// It has completed, or it is abandoned because its disk was removed.
    pub(super) fn ends(&self, answer: Option<Read>) {
        let mut state = self.0.lock();
        state.came = Answer::Ended(answer);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// It takes long.
    pub(super) fn is_late(&self) {
        let mut state = self.0.lock();
        state.late = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn stays<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Waits {
    pub(super) fn new(landing: &Arc<Landing>) -> Waits {
        Waits(Arc::clone(landing))
    }

    /// The first event of the read; its result is returned once.
    pub(crate) fn poll_first(&self, context: &Context<'_>) -> Poll<Came> {
        let mut state = self.0.0.lock();
        if let Answer::Ended(answer) = &mut state.came {
            return Poll::Ready(Came::Ended(answer.take()));
        }
        if std::mem::take(&mut state.late) { Poll::Ready(Came::Late) } else { state.stays(context) }
    }

    /// Its result, or none: its disk was removed. Once.
    pub(crate) async fn end(&self) -> Option<Read> {
        loop {
            if let Came::Ended(answer) = poll_fn(|context| self.poll_first(context)).await {
                return answer;
            }
        }
    }

    /// Whether it ends before it is late; the result stays for [`Waits::end`].
    pub(crate) async fn ends_in_time(&self) -> bool {
        poll_fn(|context| {
            let mut state = self.0.0.lock();
            if matches!(state.came, Answer::Ended(_)) {
                return Poll::Ready(true);
            }
            if std::mem::take(&mut state.late) { Poll::Ready(false) } else { state.stays(context) }
        })
        .await
    }
}
