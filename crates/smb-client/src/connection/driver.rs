//! The task of one connection: takes calls, sends requests, receives messages, and hands out responses.
//!
//! A READ without memory is set aside. Such READs wait in order, at most as long as for a response. Requests that
//! need no memory continue, so that the holder of the memory can release it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arena::{Arena, Class, SgMut};
use counters::InstanceGuard;
use counters::transfers::MEMORY_REGIONS;
use env::{BoxFuture, Env};
use rdma::{Exposed, Rights};

use super::Rdma;
use super::core::{Core, Limits};
use super::queue::{Input, QUEUE_MAX, Queue, SubmittedRequest};
use super::transport::{Arrival, ExposeError, Transport};
use crate::{Lost, RequestError};

pub(super) struct Driver {
    queue: Arc<Queue>,
    core: Core,
    transport: Transport,
    arena: Arena,
    env: Env,
    /// Taken from the queue and not sent, usually for lack of credits.
    inputs: VecDeque<Input>,
    cancelled: Vec<u64>,
    /// READs that wait for memory, each with its deadline.
    waiting_reads: VecDeque<(SubmittedRequest, Instant)>,
    /// Memory for the first of `waiting_reads`.
    memory: Memory,
    memory_timeout: Duration,
    timer: Option<BoxFuture<()>>,
    tick: Duration,
    /// When all handles were dropped; `None` while one exists.
    closing: Option<Instant>,
    /// The request at the front of `inputs` waits for credits.
    credit_stalled: bool,
    _counted: Option<InstanceGuard>,
}

enum Memory {
    None,
    Waiting(BoxFuture<SgMut>),
    Ready(SgMut),
}

/// Turns in a row before other tasks of this worker run.
const TURNS: usize = 16;
/// Maximum number of messages received in one turn.
const ARRIVALS: usize = 256;
/// How long outstanding requests may take after all handles are dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Driver {
    pub(super) fn new(
        queue: Arc<Queue>,
        transport: Transport,
        limits: Limits,
        arena: Arena,
        env: Env,
        counted: Option<InstanceGuard>,
    ) -> Driver {
        let mut transport = transport;
        if let Some(direct) = transport.as_direct() {
            queue.set_tally(Arc::clone(direct.tally()));
        }
        Driver {
            core: Core::new(limits, arena.clone()),
            queue,
            transport,
            arena,
            env,
            inputs: VecDeque::new(),
            cancelled: Vec::new(),
            waiting_reads: VecDeque::new(),
            memory: Memory::None,
            memory_timeout: limits.request_timeout,
            timer: None,
            tick: (limits.request_timeout / 4).min(CLOSE_TIMEOUT / 4),
            closing: None,
            credit_stalled: false,
            _counted: counted,
        }
    }

    pub(super) async fn run(mut self) {
        let why = poll_fn(|cx| self.poll(cx)).await;
        if why != Lost::Closed {
            tracing::debug!("connection ended: {why}");
        }
        let waiting = self.queue.end(why);
        // Before a caller gets the error, the queue pair releases all buffers: the peer can then no longer access
        // them.
        if let Some(direct) = self.transport.as_direct() {
            direct.close();
            while direct.event().await.is_ok() {}
        }
        for input in self.inputs.drain(..).chain(waiting) {
            if let Input::Call(SubmittedRequest { reply: Some(reply), .. }) = input {
                let _ = reply.send(Err(RequestError::Lost(why)));
            }
        }
        for reply in self.waiting_reads.drain(..).filter_map(|(call, _)| call.reply) {
            let _ = reply.send(Err(RequestError::Lost(why)));
        }
        self.core.fail(why);
        let queue = Arc::clone(&self.queue);
        drop(self);
        queue.set_closed();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        for _ in 0..TURNS {
            let now = self.env.now();
            match self.turn(cx, now) {
                Err(why) => return Poll::Ready(why),
                Ok(_) if self.is_finished(now) => return Poll::Ready(Lost::Closed),
                Ok(true) => {}
                Ok(false) => return self.wait(cx),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Processes received messages, starts waiting requests, sends. Returns whether it made progress.
    fn turn(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Lost> {
        let mut any = false;
        for _ in 0..ARRIVALS {
            let limit = self.core.message_limit();
            match self.transport.receive(cx, limit) {
                Poll::Pending => break,
                Poll::Ready(arrival) => self.handle(now, arrival?)?,
            }
            any = true;
        }
        self.queue.record_credits(self.core.credits());
        if self.queue.take(cx, &mut self.inputs, &mut self.cancelled) && self.closing.is_none() {
            self.closing = Some(now);
            any = true;
        }
        for ticket in std::mem::take(&mut self.cancelled) {
            self.core.cancel(ticket)?;
        }
        any |= self.start(cx, now)?;
        for stag in std::mem::take(&mut self.core.stags_to_invalidate) {
            self.transport.invalidate(stag)?;
            any = true;
        }
        while let Some((head, payload)) = self.core.out.pop_front() {
            self.transport.push(head, payload)?;
            any = true;
        }
        any |= self.transport.flush(cx)?;
        Ok(any)
    }

    fn handle(&mut self, now: Instant, arrival: Arrival) -> Result<(), Lost> {
        match arrival {
            Arrival::Message { data, invalidated } => self.core.message(now, data, invalidated),
            Arrival::Invalidated { stag, exposed } => self.core.invalidated(now, stag, exposed),
        }
    }

    /// Starts calls in order, as long as credits and queue space last.
    fn start(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Lost> {
        let mut any = self.resume_read(cx, now);
        while let Some(input) = self.inputs.front_mut() {
            let call = match input {
                Input::Setting(_) => {
                    if let Some(Input::Setting(setting)) = self.inputs.pop_front() {
                        self.core.apply(setting);
                    }
                    any = true;
                    continue;
                }
                Input::Call(call) => call,
            };
            if call.reply.as_ref().is_some_and(|r| r.is_closed()) {
                self.inputs.pop_front(); // the caller has dropped its call
                any = true;
                continue;
            }
            if !self.transport.accepts_messages() {
                break;
            }
            match self.core.can_pay(now, call.request.charge) {
                Ok(true) => self.credit_stalled = false,
                Ok(false) => {
                    if let (Some(share), false) = (&call.request.counted, self.credit_stalled) {
                        self.core.credit_stall(share);
                    }
                    self.credit_stalled = true;
                    break;
                }
                Err(error) => {
                    self.fail_front(error);
                    any = true;
                    continue;
                }
            }
            if let (false, Some(Rdma::Read(_))) = (self.waiting_reads.is_empty(), &call.request.rdma) {
                if self.set_read_aside(now) {
                    continue;
                }
                break;
            }
            let exposure = match call.request.rdma.take() {
                None => None,
                Some(rdma) => match self.expose(cx, rdma)? {
                    Ok(exposure) => Some(exposure),
                    Err(later) => {
                        if let Some(Input::Call(call)) = self.inputs.front_mut() {
                            call.request.rdma = Some(later);
                        }
                        if matches!(self.memory, Memory::Waiting(_)) && self.set_read_aside(now) {
                            continue;
                        }
                        break;
                    }
                },
            };
            if let Some(Input::Call(call)) = self.inputs.pop_front() {
                self.core.start(now, call, exposure)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Sets the READ at the front aside to wait for memory. Returns false if too many READs already wait.
    fn set_read_aside(&mut self, now: Instant) -> bool {
        if self.waiting_reads.len() >= QUEUE_MAX {
            return false;
        }
        if let Some(Input::Call(call)) = self.inputs.pop_front() {
            self.waiting_reads.push_back((call, now + self.memory_timeout));
        }
        true
    }

    /// Gives memory, if available, to the READ that has waited longest, and makes it the next to start. Returns
    /// whether it did.
    fn resume_read(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        self.fail_expired_reads(now);
        // A READ that already has its memory starts first.
        let has_memory =
            |i: &Input| matches!(i, Input::Call(c) if matches!(c.request.rdma, Some(Rdma::Into(..))));
        if self.inputs.front().is_some_and(has_memory) {
            return false;
        }
        let Some(Some(Rdma::Read(length))) = self.waiting_reads.front().map(|(call, _)| &call.request.rdma)
        else {
            return false;
        };
        let length = *length;
        let Some(bufs) = self.sink(cx, length) else { return false };
        if let Some((mut call, _)) = self.waiting_reads.pop_front() {
            call.request.rdma = Some(Rdma::Into(bufs, length));
            self.inputs.push_front(Input::Call(call));
        }
        true
    }

    /// Fails the waiting READs whose callers are gone or whose deadline has passed.
    fn fail_expired_reads(&mut self, now: Instant) {
        while let Some((call, until)) = self.waiting_reads.front_mut() {
            let gone = call.reply.as_ref().is_some_and(|r| r.is_closed());
            if !gone && *until > now {
                break;
            }
            let needed = match &call.request.rdma {
                Some(Rdma::Read(length)) => *length,
                _ => 0,
            };
            if let Some(reply) = call.reply.take() {
                let _ = reply.send(Err(RequestError::NoMemory { needed }));
            }
            self.waiting_reads.pop_front();
        }
        if self.waiting_reads.is_empty() {
            self.memory = Memory::None; // the READ that requested this memory is gone
        }
    }

    fn fail_front(&mut self, error: RequestError) {
        if let Some(Input::Call(SubmittedRequest { reply: Some(reply), .. })) = self.inputs.pop_front() {
            let _ = reply.send(Err(error));
        }
    }

    /// Exposes the memory of a READ or WRITE. Returns the request's memory if it must wait.
    fn expose(&mut self, cx: &mut Context<'_>, rdma: Rdma) -> Result<Result<rdma::Exposure, Rdma>, Lost> {
        let (what, rights, again) = match rdma {
            Rdma::Write(source) => (Exposed::Source(source.clone()), Rights::RemoteRead, Rdma::Write(source)),
            Rdma::Into(bufs, length) => {
                // Checks for a full table before it hands over the caller's buffers, so that they are not lost.
                if self.is_full() {
                    return Ok(Err(Rdma::Into(bufs, length)));
                }
                (Exposed::Sink { bufs, length }, Rights::RemoteWrite, Rdma::Read(length))
            }
            Rdma::Read(length) => {
                let Some(bufs) = self.sink(cx, length) else { return Ok(Err(Rdma::Read(length))) };
                (Exposed::Sink { bufs, length }, Rights::RemoteWrite, Rdma::Read(length))
            }
        };
        match self.transport.expose(what, rights) {
            Ok(exposure) => Ok(Ok(exposure)),
            Err(ExposeError::TooMany) => Ok(Err(again)),
            Err(ExposeError::Lost(why)) => Err(why),
        }
    }

    fn is_full(&mut self) -> bool {
        let Some(direct) = self.transport.as_direct() else { return false };
        let full = direct.tally().get(MEMORY_REGIONS) >= REGIONS_MAX;
        if full {
            direct.note_registration_stall();
        }
        full
    }

    fn sink(&mut self, cx: &mut Context<'_>, length: u32) -> Option<SgMut> {
        loop {
            match std::mem::replace(&mut self.memory, Memory::None) {
                Memory::Ready(bufs)
                    if bufs.iter().map(|b| b.capacity()).sum::<usize>() >= length as usize =>
                {
                    return Some(bufs);
                }
                Memory::Waiting(mut waiting) => match waiting.as_mut().poll(cx) {
                    Poll::Ready(bufs) => self.memory = Memory::Ready(bufs),
                    Poll::Pending => {
                        self.memory = Memory::Waiting(waiting);
                        return None;
                    }
                },
                Memory::None | Memory::Ready(_) => {
                    if let Some(bufs) = self.arena.try_alloc_sg(length as usize, Class::Payload) {
                        return Some(bufs);
                    }
                    let arena = self.arena.clone();
                    let bytes = length as usize;
                    self.memory =
                        Memory::Waiting(Box::pin(async move { arena.alloc_sg(bytes, Class::Payload).await }));
                }
            }
        }
    }

    /// Whether all handles are dropped and their requests are complete, or the time for that has passed.
    fn is_finished(&self, now: Instant) -> bool {
        self.closing.is_some_and(|since| {
            let done = self.inputs.is_empty()
                && self.waiting_reads.is_empty()
                && self.core.is_idle()
                && self.transport.is_flushed();
            done || now >= since + CLOSE_TIMEOUT
        })
    }

    /// Waits without progress; checks the clock at intervals while a response is due. The timer is kept across
    /// short pauses, so that sequential requests share one timer.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        loop {
            if self.timer.is_none() {
                if self.core.is_idle() && self.closing.is_none() && self.waiting_reads.is_empty() {
                    return Poll::Pending;
                }
                let (env, tick) = (self.env.clone(), self.tick);
                self.timer = Some(Box::pin(async move { env.sleep(tick).await }));
            }
            if let Some(timer) = &mut self.timer
                && timer.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            self.timer = None;
            let now = self.env.now();
            self.fail_expired_reads(now);
            if self.core.is_late(now) {
                return Poll::Ready(Lost::TimedOut);
            }
            if self.is_finished(now) {
                return Poll::Ready(Lost::Closed);
            }
        }
    }
}

/// Maximum number of exposed buffers: below the limit of every provider.
const REGIONS_MAX: u64 = 1000;
