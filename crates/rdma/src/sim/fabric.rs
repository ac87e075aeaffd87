//! The shared state of both sides: their queues and the wires between them.
//!
//! Invariants:
//! 1. A wire delivers in order. The sender's outstanding requests and the receiver's ORD limit the number of
//!    messages on it.
//! 2. A Send or Write completes when it has arrived, so its buffers are held until then.
//! 3. Once a side is down no packet is delivered to it: its exposures end before its requests are flushed.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use arena::passes::{Pass, count};
use arena::{IoBufMut, Sg, sg_len};
use env::Env;

use super::Options;
use crate::requests::{Outstanding, check};
use crate::stags::Stags;
use crate::violation::Violation;
use crate::{
    Completion, Done, Down, Exposed, Exposure, QueuePairCaps, RdmaError, Remote, Rights, Stag, WcError, Wr,
    WrId,
};

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    fn other(self) -> Side {
        if self == Side::A { Side::B } else { Side::A }
    }
}

pub(super) struct Fabric {
    ends: [End; 2],
    options: Options,
    operations: u64,
    wakers: Vec<Waker>,
}

pub(super) struct End {
    stags: Stags,
    sends: VecDeque<(WrId, Wr)>,
    /// Number of Sends and Writes on the wire.
    in_flight: usize,
    reads: VecDeque<(WrId, IoBufMut, Remote)>,
    recvs: VecDeque<(WrId, IoBufMut)>,
    /// The packets on the wire towards this side.
    wire: VecDeque<(Option<Instant>, Packet)>,
    finished: [VecDeque<Completion>; KINDS],
    waker: Option<Waker>,
    closing: bool,
    down: Option<Down>,
}

/// Kinds of completions: send queue, Reads, receives. Completions of one kind keep their order.
const KINDS: usize = 3;
const SENT: usize = 0;
const READ: usize = 1;
const RECEIVED: usize = 2;

enum Packet {
    Send { id: WrId, sg: Sg, invalidate: Option<Stag> },
    Write { id: WrId, src: Sg, to: Remote },
    ReadRequest { from: Remote },
    ReadResponse { data: Sg },
    Terminate(Violation),
    Fin,
}

impl Packet {
    /// The id of the Send or Write in this packet.
    fn request(&self) -> Option<WrId> {
        match self {
            Packet::Send { id, .. } | Packet::Write { id, .. } => Some(*id),
            _ => None,
        }
    }
}

impl Fabric {
    pub(super) fn new(options: Options) -> Fabric {
        let end = || End {
            stags: Stags::new(options.env.clone(), options.max_regions),
            sends: VecDeque::new(),
            in_flight: 0,
            reads: VecDeque::new(),
            recvs: VecDeque::new(),
            wire: VecDeque::new(),
            finished: Default::default(),
            waker: None,
            closing: false,
            down: None,
        };
        Fabric { ends: [end(), end()], options, operations: 0, wakers: Vec::new() }
    }

    pub(super) fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    /// Does one poll of `side`; `None` if it must wait.
    pub(super) fn poll(&mut self, side: Side, out: &mut Vec<Completion>) -> Option<Result<(), Down>> {
        self.transmit(side);
        self.receive(side);
        self.transmit(side); // a Read Response may allow a waiting Read to start
        let (env, reorder) = (self.options.env.clone(), self.options.reorder);
        let end = self.end(side);
        if end.drain(&env, reorder, out) {
            return Some(Ok(()));
        }
        end.down.clone().map(Err)
    }

    /// When the next packet on the wire to `side` arrives.
    pub(super) fn next_arrival(&mut self, side: Side) -> Option<Instant> {
        let end = self.end(side);
        if end.down.is_some() { None } else { end.wire.front().and_then(|(due, _)| *due) }
    }

    /// Takes the wakers of the tasks to wake after the lock is released.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Handles the drop of `side` without a close.
    pub(super) fn abandon(&mut self, side: Side) {
        if self.end(side).down.is_none() {
            self.put(side.other(), Packet::Fin);
            self.fail(side, Down::Closed);
        }
        self.end(side).waker = None;
    }

    fn transmit(&mut self, side: Side) {
        let ord = self.options.ord.min(self.options.ird) as usize;
        loop {
            let end = self.end(side);
            if end.down.is_some() {
                return;
            }
            // A Read waits while ORD Reads are in flight; the requests posted after it wait too.
            if matches!(end.sends.front(), Some((_, Wr::Read { .. }))) && end.reads.len() >= ord {
                return;
            }
            let Some((id, wr)) = end.sends.pop_front() else { break };
            let packet = match wr {
                Wr::Send { sg, invalidate } => Packet::Send { id, sg, invalidate },
                Wr::Write { src, to } => Packet::Write { id, src, to },
                Wr::Read { sink, from } => {
                    end.reads.push_back((id, sink, from));
                    self.put(side.other(), Packet::ReadRequest { from });
                    continue;
                }
                Wr::Recv(_) | Wr::Invalidate(_) => unreachable!("not queued to send"),
            };
            end.in_flight += 1;
            self.put(side.other(), packet);
        }
        if self.end(side).closing {
            self.put(side.other(), Packet::Fin);
            self.fail(side, Down::Closed);
        }
    }

    fn put(&mut self, to: Side, packet: Packet) {
        let due = self.arrival();
        let end = self.end(to);
        // Keeps the order: no packet arrives before one that is already on the wire.
        let due = due.max(end.wire.back().and_then(|(d, _)| *d));
        end.wire.push_back((due, packet));
        self.wake(to);
    }

    fn arrival(&self) -> Option<Instant> {
        let Options { env, latency, jitter, .. } = &self.options;
        if latency.is_zero() && jitter.is_zero() {
            return None;
        }
        let extra = match jitter.as_nanos() as u64 {
            0 => 0,
            nanos => env.random_u64() % nanos,
        };
        Some(env.now() + *latency + Duration::from_nanos(extra))
    }

    fn wake(&mut self, side: Side) {
        let waker = self.end(side).waker.take();
        self.wakers.extend(waker);
    }

    fn receive(&mut self, side: Side) {
        loop {
            let now = self.options.env.now();
            let end = self.end(side);
            let arrived = matches!(end.wire.front(), Some((due, _)) if due.is_none_or(|d| d <= now));
            if end.down.is_some() || !arrived {
                return;
            }
            let Some((_, packet)) = end.wire.pop_front() else { return };
            self.operations += 1;
            let request = packet.request();
            let undelivered = request.map(|id| Completion { id, result: Err(WcError::Flushed) });
            if self.options.cut_at == Some(self.operations) {
                undelivered.into_iter().for_each(|c| self.sent(side.other(), c));
                self.cut(side, packet);
                return;
            }
            if let Err(violation) = self.deliver(side, packet) {
                undelivered.into_iter().for_each(|c| self.sent(side.other(), c));
                self.put(side.other(), Packet::Terminate(violation));
                self.fail(side, violation.into());
                return;
            }
        }
    }

    /// Breaks the connection in the middle of `packet`: a Write places a random part of its bytes.
    fn cut(&mut self, side: Side, packet: Packet) {
        if let Packet::Write { src, to, .. } = packet {
            let some = sg_len(&src) as u64;
            let some = self.options.env.random_u64() % (some + 1);
            let part = arena::sg_slice(&src, 0, some as usize);
            // A forbidden write does not place any byte either.
            let _ = self.end(side).place(to, &part);
        }
        let reset = Down::Transport(std::io::ErrorKind::ConnectionReset);
        self.fail(side, reset.clone());
        self.fail(side.other(), reset);
    }

    fn deliver(&mut self, side: Side, packet: Packet) -> Result<(), Violation> {
        match packet {
            Packet::Send { id, sg, invalidate } => {
                self.end(side).take_message(&sg, invalidate)?;
                drop(sg);
                self.sent(side.other(), Completion { id, result: Ok(Done::Send) });
            }
            Packet::Write { id, src, to } => {
                self.end(side).place(to, &src)?;
                drop(src);
                self.sent(side.other(), Completion { id, result: Ok(Done::Write) });
            }
            Packet::ReadRequest { from } => {
                let data = match from.length {
                    0 => Sg::new(), // RFC 5040 5.2.1: the tag of an empty Read is not checked
                    len => self.end(side).stags.read_source(from.stag, from.offset, len)?,
                };
                self.put(side.other(), Packet::ReadResponse { data });
            }
            Packet::ReadResponse { data } => {
                let end = self.end(side);
                let (id, mut sink, _) = end.reads.pop_front().ok_or(Violation::UNEXPECTED_RESPONSE)?;
                fill(&mut sink, &data);
                end.finished[READ].push_back(Completion { id, result: Ok(Done::Read(sink)) });
            }
            Packet::Terminate(violation) => self.fail(side, Down::Terminated(violation.code)),
            Packet::Fin => self.fail(side, Down::PeerClosed),
        }
        Ok(())
    }

    fn sent(&mut self, side: Side, completion: Completion) {
        let end = self.end(side);
        if end.down.is_none() {
            end.in_flight -= 1;
            end.finished[SENT].push_back(completion);
            self.wake(side);
        }
    }

    /// Ends the connection for `side`: ends all exposures, then flushes every outstanding request. Packets on the
    /// wire from the other side stay there, unread, until that side is down too; then its requests are flushed.
    fn fail(&mut self, side: Side, why: Down) {
        if self.end(side).down.is_some() {
            return;
        }
        let closed = why == Down::Closed;
        let mine = &mut self.end(side.other()).wire;
        let done =
            |id: WrId, d| Completion { id, result: if closed { Ok(d) } else { Err(WcError::Flushed) } };
        let on_wire: Vec<Completion> = mine
            .iter()
            .filter_map(|(_, p)| {
                let kind = if matches!(p, Packet::Send { .. }) { Done::Send } else { Done::Write };
                p.request().map(|id| done(id, kind))
            })
            .collect();
        if !closed && !matches!(why, Down::Protocol { .. }) {
            mine.clear();
        }
        let end = self.end(side);
        end.stags.clear();
        end.in_flight = 0;
        end.finished[SENT].extend(on_wire);
        let flushed = |id| Completion { id, result: Err(WcError::Flushed) };
        end.finished[SENT].extend(end.sends.drain(..).map(|(id, _)| flushed(id)));
        end.finished[READ].extend(end.reads.drain(..).map(|(id, ..)| flushed(id)));
        end.finished[RECEIVED].extend(end.recvs.drain(..).map(|(id, _)| flushed(id)));
        end.down = Some(why);
        self.wake(side);
        if self.ends.iter().all(|e| e.down.is_some()) {
            self.ends.iter_mut().for_each(|e| e.wire.clear());
        }
    }
}

impl End {
    pub(super) fn watch(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(w) => w.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    pub(super) fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        if self.down.is_some() || self.closing {
            return Err(RdmaError::Down);
        }
        self.stags.expose(what, rights)
    }

    pub(super) fn exposed(&self) -> usize {
        self.stags.len()
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn post(&mut self, id: WrId, wr: Wr, caps: &QueuePairCaps) -> Result<(), (RdmaError, Wr)> {
        if self.down.is_some() || self.closing {
            return Err((RdmaError::Down, wr));
        }
        let sends = self.sends.len() + self.in_flight + self.reads.len();
        let now = Outstanding {
            sends: sends + self.finished[SENT].len() + self.finished[READ].len(),
            recvs: self.recvs.len() + self.finished[RECEIVED].len(),
        };
        if let Err(e) = check(&wr, caps, now) {
            return Err((e, wr));
        }
        match wr {
            Wr::Recv(buf) => self.recvs.push_back((id, buf)),
            Wr::Invalidate(stag) => match self.stags.invalidate(stag) {
                Some(what) => {
                    self.finished[SENT].push_back(Completion { id, result: Ok(Done::Invalidate(what)) });
                }
                None => return Err((RdmaError::UnknownStag, wr)),
            },
            wr => self.sends.push_back((id, wr)),
        }
        Ok(())
    }

    fn take_message(&mut self, sg: &Sg, invalidate: Option<Stag>) -> Result<(), Violation> {
        if self.recvs.front().ok_or(Violation::NO_BUFFER)?.1.capacity() < sg_len(sg) {
            return Err(Violation::TOO_LONG);
        }
        let invalidated = match invalidate {
            Some(stag) => Some((stag, self.stags.invalidate(stag).ok_or(Violation::CANNOT_INVALIDATE)?)),
            None => None,
        };
        let (id, mut buf) = self.recvs.pop_front().ok_or(Violation::NO_BUFFER)?;
        fill(&mut buf, sg);
        self.finished[RECEIVED].push_back(Completion { id, result: Ok(Done::Recv { buf, invalidated }) });
        Ok(())
    }

    fn place(&mut self, to: Remote, src: &Sg) -> Result<(), Violation> {
        let len = sg_len(src);
        if len == 0 {
            return Ok(());
        }
        let mut bytes = src.iter().flat_map(|b| b.iter().copied());
        for slice in self.stags.write_target(to.stag, to.offset, len)? {
            slice.iter_mut().zip(&mut bytes).for_each(|(to, from)| *to = from);
        }
        count(Pass::Place, len);
        self.stags.placed(to.stag, to.offset, len);
        Ok(())
    }

    /// Moves completions to `out`; returns whether there were any. With `reorder`, delays some of them, but never
    /// all.
    fn drain(&mut self, env: &Env, reorder: bool, out: &mut Vec<Completion>) -> bool {
        let before = out.len();
        if !reorder {
            out.extend(self.finished.iter_mut().flat_map(|f| f.drain(..)));
            return out.len() > before;
        }
        loop {
            let chance = env.random_u64();
            let waiting = self.finished.iter().filter(|f| !f.is_empty()).count() as u64;
            if waiting == 0 || (out.len() > before && chance.is_multiple_of(4)) {
                return out.len() > before;
            }
            let pick = ((chance >> 8) % waiting) as usize;
            let kind = self.finished.iter_mut().filter(|f| !f.is_empty()).nth(pick);
            out.extend(kind.and_then(VecDeque::pop_front));
        }
    }
}

fn fill(buf: &mut IoBufMut, sg: &Sg) {
    buf.set_len(0);
    for b in sg {
        buf.append(b);
    }
    count(Pass::Place, buf.len());
}
