//! The driver of a connection: it posts receives and work requests, handles completions and timers, and ends the
//! connection.

use std::task::{Context, Poll};

use arena::{Class, IoBuf, IoBufMut, Sg, SgMut, Usage, sg_len, sg_slice, sg_to_vec};
use rdma::{Completion, Done, Down, Exposed, RdmaError, Stag, WcError, Wr, WrId};

use counters::transfers as t;

use crate::connection::{Event, Kind, Phase, SmbDirect, wr_id, wr_parts};
use crate::pdu::{DataTransfer, DataTransferFlags};
use crate::protocol::{Received, Time, Transmit};
use crate::transfers::Finished;
use crate::{SmbDirectError, Timer, Violation};

/// Length of the start of a received message that the protocol parses, in bytes.
const HEAD: usize = 32;

/// Flag in the slot of a Send's id, besides its length: the message is a keep-alive that requests a response.
const KEEP_ALIVE: u32 = 1 << 31;

/// Maximum rounds of completions in one call, before other tasks run.
const ROUNDS: usize = 64;

/// Limits the number of receives per connection by the usage of the arena (DESIGN decision 3): to 8 from a quarter on,
/// to 2 from a half on, and to 1 from three quarters on.
pub(crate) fn credit_ceiling(target: u16, usage: Usage) -> u16 {
    let quarters = usage.used / (usage.budget / 4).max(1);
    target.min(match quarters {
        0 => u16::MAX,
        1 => 8,
        2 => 2,
        _ => 1,
    })
}

impl SmbDirect {
    /// Makes progress until there is an event (ready), the connection is over (ready with the reason), or no work
    /// is left (pending).
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SmbDirectError>> {
        for _ in 0..ROUNDS {
            if !self.events.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let now = self.now();
            match self.phase {
                Phase::Finished => {
                    return Poll::Ready(Err(self.ending.take().unwrap_or(SmbDirectError::Ended)));
                }
                Phase::Closing(by) if now >= by => {
                    self.ending.get_or_insert(SmbDirectError::TimedOut(Timer::Close));
                    self.finish();
                    continue;
                }
                Phase::Closing(_) => {}
                Phase::Open => {
                    if let Err(end) = self.protocol.handle_timeout(now) {
                        self.end(end.into());
                    }
                    self.pump();
                    if self.poll_memory(cx) {
                        self.pump();
                    }
                }
            }
            // The peer's first message may have arrived already: do not poll the queue pair before a receive is
            // posted for it.
            if self.phase == Phase::Open && self.memory.is_some() && !self.protocol.is_established() {
                if self.poll_timer(cx) {
                    continue;
                }
                return Poll::Pending;
            }
            let Some(qp) = &mut self.qp else { continue };
            let mut completions = std::mem::take(&mut self.completions);
            let polled = qp.poll(cx, &mut completions);
            // Reads the clock once for all completions of this poll: the timeouts are seconds long.
            if !completions.is_empty() {
                let now = self.now();
                completions.drain(..).for_each(|c| self.complete(c, now));
            }
            self.completions = completions;
            match polled {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(down)) => {
                    self.ending.get_or_insert(SmbDirectError::Down(down));
                    self.finish();
                    continue;
                }
                Poll::Pending => {}
            }
            if !self.events.is_empty() || self.poll_timer(cx) {
                continue;
            }
            if !self.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                self.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Posts as many requests as possible, RDMA Writes before messages. While a full send queue delays a write, it
    /// delays all messages too. So no message overtakes a write that was queued before it.
    pub(crate) fn pump(&mut self) {
        self.post_all();
        self.counters.set(t::STALLS_SEND_CREDIT, self.protocol.stalls());
    }

    fn post_all(&mut self) {
        self.post_receives();
        self.post_work();
        self.post_reads();
        let now = self.now();
        while self.phase == Phase::Open {
            if !self.send_queue_free() {
                return;
            }
            let Some(transmit) = self.protocol.poll_transmit(now) else { return };
            self.transmit(transmit);
            self.post_receives();
        }
    }

    /// MS-SMBD 3.1.5.9: post the receives first, then grant credits for them.
    fn post_receives(&mut self) {
        if self.protocol.receives_wanted() == 0 {
            self.free_receive_buffers.clear();
            return;
        }
        let ceiling = credit_ceiling(self.credit_target, self.arena.usage());
        self.protocol.set_credit_target(ceiling);
        let mut posted = 0;
        for _ in 0..self.protocol.receives_wanted() {
            let size = self.protocol.receive_size();
            let buf = match self.free_receive_buffers.pop() {
                Some(mut buf) if buf.capacity() >= size => {
                    buf.set_len(0);
                    Some(buf)
                }
                _ => self.arena.try_alloc(size, Class::Payload),
            };
            let buf = match buf {
                None if posted == 0 && self.protocol.receive_needed() => {
                    self.arena.try_alloc(size, Class::Control)
                }
                other => other,
            };
            let Some(buf) = buf else { break };
            if !self.post(wr_id(Kind::Recv, 0, 0), Wr::Recv(buf)) {
                break;
            }
            posted += 1;
        }
        self.protocol.handle_posted(posted);
        self.free_receive_buffers.clear();
        let short = self.protocol.receives_wanted() > 0;
        if short && !self.receive_stalled {
            self.counters.add(t::STALLS_RECEIVE_MEMORY, 1);
        }
        self.receive_stalled = short;
        if short && self.protocol.receive_needed() && self.memory.is_none() {
            let (arena, size) = (self.arena.clone(), self.protocol.receive_size());
            self.memory = Some(Box::pin(async move { arena.alloc_sg(size, Class::Control).await }));
        }
    }

    /// Polls the pending allocation; returns whether memory was obtained.
    fn poll_memory(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(memory) = &mut self.memory else { return false };
        let Poll::Ready(bufs) = memory.as_mut().poll(cx) else { return false };
        self.memory = None;
        self.free_receive_buffers.extend(bufs);
        true
    }

    fn post_work(&mut self) {
        while self.phase == Phase::Open && !self.work.is_empty() && self.send_queue_free() {
            let Some((id, wr)) = self.work.pop_front() else { return };
            let bytes = if let Wr::Write { src, .. } = &wr { sg_len(src) as u64 } else { 0 };
            match self.try_post(id, wr) {
                Ok(()) => {
                    self.send_queue_used += 1;
                    self.counters.add(t::RDMA_WRITTEN_BYTES, bytes);
                }
                Err(why) => self.fail_request(id, why),
            }
        }
    }

    fn post_reads(&mut self) {
        while self.phase == Phase::Open
            && !self.reads.is_empty()
            && self.reads_in_flight < self.caps.ord as usize
            && self.send_queue_free()
        {
            let Some((id, sink, from)) = self.reads.pop_front() else { return };
            let bytes = u64::from(from.length);
            if self.post(id, Wr::Read { sink, from }) {
                self.send_queue_used += 1;
                self.reads_in_flight += 1;
                self.counters.add(t::RDMA_READ_BYTES, bytes);
            } else {
                self.flushed(id);
            }
        }
    }

    fn transmit(&mut self, transmit: Transmit) {
        match transmit {
            Transmit::Request(m) => self.post_send(Sg::from_iter([IoBuf::from(m.to_bytes().to_vec())]), None),
            Transmit::Response(m) => {
                self.post_send(Sg::from_iter([IoBuf::from(m.to_bytes().to_vec())]), None)
            }
            Transmit::Refusal(m, why) => {
                self.post_send(Sg::from_iter([IoBuf::from(m.to_bytes().to_vec())]), None);
                self.end(SmbDirectError::Peer(why));
            }
            Transmit::Data(header, None) => {
                let head = self.head_of(&header);
                self.post_data(&header, Sg::from_iter([head]), None);
            }
            Transmit::Data(header, Some(fragment)) => {
                let mut sg = Sg::from_iter([self.head_of(&header)]);
                let front = self.messages.front().expect("the protocol's queue is this one");
                let part = sg_slice(&front.data, fragment.start as usize, fragment.length as usize);
                sg.extend(part);
                self.done.message_bytes -= fragment.length as usize;
                let mut invalidate = None;
                if fragment.last {
                    invalidate = front.invalidate;
                    self.messages.pop_front();
                }
                if sg.len() > self.caps.max_sge {
                    sg = Sg::from_iter([IoBuf::from(sg_to_vec(&sg))]);
                }
                self.post_data(&header, sg, invalidate);
            }
        }
    }

    /// Encodes the header of a data message, with its padding if data follows.
    fn head_of(&mut self, header: &DataTransfer) -> IoBuf {
        self.scratch.clear();
        header.encode_head(&mut self.scratch);
        IoBuf::short(&self.scratch)
    }

    fn post_data(&mut self, header: &DataTransfer, sg: Sg, invalidate: Option<Stag>) {
        let asks = header.flags.contains(DataTransferFlags::RESPONSE_REQUESTED);
        self.post_send_as(if asks { KEEP_ALIVE } else { 0 }, sg, invalidate);
    }

    fn post_send(&mut self, sg: Sg, invalidate: Option<Stag>) {
        self.post_send_as(0, sg, invalidate);
    }

    fn post_send_as(&mut self, slot: u32, sg: Sg, invalidate: Option<Stag>) {
        let bytes = sg_len(&sg) as u64;
        // The completion takes the length from the id.
        if self.post(wr_id(Kind::Send, slot | bytes as u32, 0), Wr::Send { sg, invalidate }) {
            self.done.message_bytes += bytes as usize;
            self.send_queue_used += 1;
            self.counters.add(t::SENDS, 1);
            self.counters.add(t::SENT_BYTES, bytes);
        }
    }

    fn send_queue_free(&mut self) -> bool {
        let free = self.send_queue_used < self.caps.max_wr;
        if !free && !self.send_queue_stalled {
            self.counters.add(t::STALLS_SEND_QUEUE, 1);
        }
        self.send_queue_stalled = !free;
        free
    }

    fn post(&mut self, id: WrId, wr: Wr) -> bool {
        self.try_post(id, wr).is_ok()
    }

    /// Posts a request to the queue pair. If the queue pair refuses it, returns the request's result. In most cases
    /// the connection then ends: it is down already, or this side exceeded a limit.
    fn try_post(&mut self, id: WrId, wr: Wr) -> Result<(), WcError> {
        let Some(qp) = &mut self.qp else { return Err(WcError::Flushed) };
        match qp.post(id, wr) {
            Ok(()) => Ok(()),
            Err((RdmaError::Down, _)) => Err(WcError::Flushed), // `poll` returns the reason
            // The peer has invalidated the tag already; the message that did so returns the buffer.
            Err((RdmaError::UnknownStag, Wr::Invalidate(_))) => Err(WcError::UnknownStag),
            Err((e, _)) => {
                self.end(SmbDirectError::Rdma(e));
                Err(WcError::Flushed)
            }
        }
    }

    fn complete(&mut self, c: Completion, now: Time) {
        let (kind, slot, piece) = wr_parts(c.id);
        if kind != Kind::Recv {
            self.send_queue_used -= 1;
            self.done.completed(kind == Kind::Read, c.result.is_ok());
        }
        if c.result.is_ok() {
            match kind {
                Kind::Send if slot & KEEP_ALIVE != 0 => self.protocol.handle_keep_alive_sent(now),
                Kind::Read | Kind::Write => self.protocol.handle_transfer(now),
                _ => {}
            }
        }
        match (kind, c.result) {
            (Kind::Recv, Ok(Done::Recv { buf, invalidated })) => self.received(buf, invalidated, now),
            (Kind::Recv, _) => {}
            (Kind::Send, _) => self.done.message_bytes -= (slot & !KEEP_ALIVE) as usize,
            (Kind::Write, result) => {
                let finished = self.writing.piece(slot, piece, result.map(|_| None));
                self.finished(finished, false);
            }
            (Kind::Read, result) => {
                self.reads_in_flight -= 1;
                let result = match result {
                    Ok(Done::Read(buf)) => Ok(Some(buf)),
                    Ok(_) => Err(WcError::Flushed),
                    Err(e) => Err(e),
                };
                let finished = self.reading.piece(slot, piece, result);
                self.finished(finished, true);
            }
            (Kind::Invalidate, result) => {
                let result = match result {
                    Ok(Done::Invalidate(what)) => Ok(what),
                    Ok(_) => Err(WcError::UnknownStag),
                    Err(e) => Err(e),
                };
                if result.is_ok() {
                    self.counters.add(t::LOCAL_INVALIDATIONS, 1);
                    self.count_regions();
                }
                self.events.push_back(Event::Invalidated { stag: Stag(slot), result });
            }
        }
    }

    /// Completes a queued request as flushed: it will never be posted.
    fn flushed(&mut self, id: WrId) {
        self.fail_request(id, WcError::Flushed);
    }

    fn fail_request(&mut self, id: WrId, why: WcError) {
        let (kind, slot, piece) = wr_parts(id);
        match kind {
            Kind::Write => {
                let finished = self.writing.piece(slot, piece, Err(why));
                self.finished(finished, false);
            }
            Kind::Read => {
                let finished = self.reading.piece(slot, piece, Err(why));
                self.finished(finished, true);
            }
            Kind::Invalidate => {
                self.events.push_back(Event::Invalidated { stag: Stag(slot), result: Err(why) });
            }
            Kind::Recv | Kind::Send => {}
        }
    }

    fn finished(&mut self, finished: Option<Finished>, read: bool) {
        if let Some((id, result)) = finished {
            let result = result.map(|sinks: SgMut| read.then_some(sinks));
            self.events.push_back(Event::RdmaDone { id, result });
        }
    }

    fn received(&mut self, buf: IoBufMut, invalidated: Option<(Stag, Exposed)>, now: Time) {
        self.counters.add(t::RECEIVES, 1);
        self.counters.add(t::RECEIVED_BYTES, buf.len() as u64);
        if invalidated.is_some() {
            self.counters.add(t::REMOTE_INVALIDATIONS, 1);
            self.count_regions();
        }
        if self.phase != Phase::Open {
            return;
        }
        let head = &buf[..buf.len().min(HEAD)];
        match self.protocol.handle_receive(now, head, buf.len()) {
            Err(end) => self.end(end.into()),
            Ok(Received::Nothing | Received::Established) if invalidated.is_some() => {
                self.end(SmbDirectError::Peer(Violation::Invalidation));
            }
            Ok(Received::Nothing | Received::Established) => self.free_receive_buffers.push(buf),
            Ok(Received::Data { offset, length, last }) => {
                if let Some(what) = invalidated
                    && let Err(v) = self.assembly.invalidated(what)
                {
                    return self.end(v.into());
                }
                self.free_receive_buffers.extend(self.assembly.push(
                    buf,
                    offset as usize,
                    length as usize,
                    last,
                ));
                if last {
                    let (data, invalidated) = self.assembly.take();
                    self.events.push_back(Event::Message { data, invalidated });
                }
            }
        }
    }

    fn count_regions(&self) {
        let regions = self.qp.as_ref().map_or(0, |qp| qp.exposed() as u64);
        self.counters.set(t::MEMORY_REGIONS, regions);
    }

    /// Ends the connection with a reason of this side.
    pub(crate) fn end(&mut self, why: SmbDirectError) {
        tracing::debug!(%why, "an SMB Direct connection is ended");
        self.ending.get_or_insert(why);
        self.shut();
    }

    /// Closes the queue pair. Requests that are not posted yet are flushed; posted requests complete.
    pub(crate) fn shut(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        let by = self.now() + self.options.close_timeout;
        self.phase = Phase::Closing(by);
        self.messages.clear();
        self.memory = None;
        if let Some(qp) = &mut self.qp {
            qp.close();
        }
        for (id, _) in std::mem::take(&mut self.work) {
            self.flushed(id);
        }
        for (id, _, _) in std::mem::take(&mut self.reads) {
            self.flushed(id);
        }
    }

    /// The queue pair has finished, or the close timeout has passed: requests that have not completed are lost.
    fn finish(&mut self) {
        self.shut();
        self.ending.get_or_insert(SmbDirectError::Down(Down::Closed));
        self.qp = None;
        self.count_regions();
        self.phase = Phase::Finished;
        let lost: Vec<u64> = self.writing.abandon().chain(self.reading.abandon()).collect();
        for id in lost {
            self.events.push_back(Event::RdmaDone { id, result: Err(WcError::Flushed) });
        }
    }

    /// Arms the timer for the next call of [`SmbDirect::drive`]; returns whether it has fired.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let at: Option<Time> = match self.phase {
            // A due message that does not fit into the send queue is sent when a completion frees an entry.
            Phase::Open if self.send_queue_stalled => Some(self.protocol.deadline()),
            Phase::Open => self.protocol.poll_timeout(),
            Phase::Closing(by) => Some(by),
            Phase::Finished => None,
        };
        let Some(at) = at else { return false };
        // A timer that fires too early finds nothing due and is armed again. One that would fire too late is
        // replaced.
        if self.timer.as_ref().is_none_or(|(armed, _)| *armed > at) {
            let (env, until) = (self.env.clone(), self.instant(at));
            self.timer = Some((at, Box::pin(async move { env.sleep_until(until).await })));
        }
        let fired = self.timer.as_mut().is_some_and(|(_, sleep)| sleep.as_mut().poll(cx).is_ready());
        if fired {
            self.timer = None;
        }
        fired
    }
}
