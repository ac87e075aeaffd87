//! Connects callers with the connection's task: a bounded queue for calls, oneshot channels for responses.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use counters::Block;
use parking_lot::Mutex;
use smb_direct::Counters;
use tokio::sync::{Notify, oneshot};

use super::core::close_orphan;
use super::{Channel, NegotiatedParameters, Request, Response};
use crate::{Lost, RequestError};

/// Maximum number of calls in the queue; callers wait while it is full.
pub(super) const QUEUE_MAX: usize = 4096;

pub(super) type Reply = oneshot::Sender<Result<Response, RequestError>>;

/// A request and the caller that waits for its response.
pub(super) struct SubmittedRequest {
    pub(super) request: Request,
    /// `None` if no caller waits.
    pub(super) reply: Option<Reply>,
    /// Identifies the call when it is cancelled.
    pub(super) ticket: u64,
}

/// A setting for later calls.
pub(super) enum Setting {
    Parameters(NegotiatedParameters),
    Channel(Arc<Channel>),
}

pub(super) enum Input {
    Call(SubmittedRequest),
    Setting(Setting),
}

#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    credits_peak: AtomicU32,
    /// Copy of `Inner::ended.is_some()` that is read without the lock.
    has_ended: AtomicBool,
    closed: Notify,
}

#[derive(Default)]
struct Inner {
    inputs: VecDeque<Input>,
    /// Calls that were dropped, possibly after the task took them from `inputs`.
    cancelled: Vec<u64>,
    /// Waker of the task while it sleeps.
    driver: Option<Waker>,
    /// Wakers of callers that found the queue full.
    blocked: Vec<Waker>,
    next_ticket: u64,
    closing: bool,
    ended: Option<Lost>,
    /// Whether it has ended and all buffers are released.
    is_closed: bool,
    tally: Option<Arc<Block>>,
}

impl Inner {
    fn wake_driver(&mut self) -> Option<Waker> {
        self.driver.take()
    }
}

impl Queue {
    pub(super) fn send_detached(&self, request: Request) {
        let mut q = self.inner.lock();
        if q.ended.is_none() {
            q.inputs.push_back(Input::Call(SubmittedRequest { request, reply: None, ticket: 0 }));
            wake(q.wake_driver());
        }
    }

    pub(super) fn configure(&self, setting: Setting) {
        let mut q = self.inner.lock();
        q.inputs.push_back(Input::Setting(setting));
        wake(q.wake_driver());
    }

    pub(super) fn close(&self) {
        let mut q = self.inner.lock();
        q.closing = true;
        wake(q.wake_driver());
    }

    pub(super) fn ended(&self) -> Option<Lost> {
        if self.has_ended.load(Ordering::Acquire) { self.inner.lock().ended } else { None }
    }

    pub(super) async fn closed(&self) {
        loop {
            let mut closed = std::pin::pin!(self.closed.notified());
            closed.as_mut().enable();
            if self.inner.lock().is_closed {
                return;
            }
            closed.await;
        }
    }

    pub(super) fn credits_peak(&self) -> u32 {
        self.credits_peak.load(Ordering::Relaxed)
    }

    pub(super) fn direct_counters(&self) -> Option<Counters> {
        self.inner.lock().tally.as_deref().map(Counters::of)
    }

    // Used by the connection's task:

    pub(super) fn record_credits(&self, credits: u32) {
        self.credits_peak.fetch_max(credits, Ordering::Relaxed);
    }

    pub(super) fn set_tally(&self, tally: Arc<Block>) {
        self.inner.lock().tally = Some(tally);
    }

    /// Moves the queued inputs to `into` if that is empty, and the cancellations to `cancelled`. The task is woken
    /// when more arrive. Returns whether all handles are dropped.
    pub(super) fn take(
        &self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<Input>,
        cancelled: &mut Vec<u64>,
    ) -> bool {
        let mut q = self.inner.lock();
        cancelled.append(&mut q.cancelled);
        if into.is_empty() && !q.inputs.is_empty() {
            std::mem::swap(into, &mut q.inputs);
        }
        if !q.driver.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            q.driver = Some(cx.waker().clone());
        }
        let (closing, blocked) = (q.closing, std::mem::take(&mut q.blocked));
        drop(q);
        blocked.into_iter().for_each(Waker::wake);
        closing
    }

    /// Ends the queue; returns the queued calls, which the caller must fail.
    pub(super) fn end(&self, why: Lost) -> VecDeque<Input> {
        let mut q = self.inner.lock();
        q.ended.get_or_insert(why);
        self.has_ended.store(true, Ordering::Release);
        let (inputs, blocked) = (std::mem::take(&mut q.inputs), std::mem::take(&mut q.blocked));
        q.driver = None;
        drop(q);
        blocked.into_iter().for_each(Waker::wake);
        inputs
    }

    /// Completes [`Queue::closed`].
    pub(super) fn set_closed(&self) {
        self.inner.lock().is_closed = true;
        self.closed.notify_waiters();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(w) = waker {
        w.wake();
    }
}

/// A call in progress: a future that returns its response. Dropping it cancels the call.
pub(crate) struct Call {
    queue: Arc<Queue>,
    state: CallState,
}

enum CallState {
    /// The queue was full: the request is still here.
    Unqueued(Option<Request>),
    Queued {
        ticket: u64,
        response: oneshot::Receiver<Result<Response, RequestError>>,
    },
    Done,
}

impl Call {
    pub(super) fn new(queue: Arc<Queue>, request: Request) -> Call {
        let mut call = Call { queue, state: CallState::Done };
        call.state = match call.enqueue(request, None) {
            Ok(state) => state,
            Err(request) => CallState::Unqueued(Some(request)),
        };
        call
    }

    /// Puts the request into the queue. If the queue is full, returns the request and registers `waker`, if any.
    fn enqueue(&self, request: Request, waker: Option<&Waker>) -> Result<CallState, Request> {
        let mut q = self.queue.inner.lock();
        let (sender, response) = oneshot::channel();
        if let Some(why) = q.ended {
            let _ = sender.send(Err(RequestError::Lost(why)));
            return Ok(CallState::Queued { ticket: 0, response });
        }
        if q.inputs.len() >= QUEUE_MAX {
            if let Some(waker) = waker {
                q.blocked.push(waker.clone());
            }
            return Err(request);
        }
        q.next_ticket += 1;
        let ticket = q.next_ticket;
        q.inputs.push_back(Input::Call(SubmittedRequest { request, reply: Some(sender), ticket }));
        let waker = q.wake_driver();
        drop(q);
        wake(waker);
        Ok(CallState::Queued { ticket, response })
    }
}

impl Future for Call {
    type Output = Result<Response, RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.state {
                CallState::Unqueued(request) => {
                    let Some(request) = request.take() else { return Poll::Pending };
                    match self.enqueue(request, Some(cx.waker())) {
                        Ok(state) => self.state = state,
                        Err(request) => {
                            self.state = CallState::Unqueued(Some(request));
                            return Poll::Pending;
                        }
                    }
                }
                CallState::Queued { response, .. } => {
                    let result = std::task::ready!(Pin::new(response).poll(cx));
                    self.state = CallState::Done;
                    // The task drops a sender only when the runtime drops the task.
                    return Poll::Ready(result.unwrap_or(Err(RequestError::Lost(Lost::Closed))));
                }
                CallState::Done => return Poll::Pending,
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let CallState::Queued { ticket, response } = &mut self.state {
            response.close();
            if let Ok(received) = response.try_recv() {
                // Closes a file that the response has opened.
                if let Some(close) = received.ok().and_then(|r| close_orphan(&r)) {
                    self.queue.send_detached(close);
                }
                return;
            }
            let mut q = self.queue.inner.lock();
            if q.ended.is_none() {
                q.cancelled.push(*ticket);
                wake(q.wake_driver());
            }
        }
    }
}
