//! The protocol of one connection without its socket: turns requests into FPDUs, and received bytes into
//! completions.
//!
//! Invariants:
//! 1. Exposures are accessed only in [`Phase::Open`] and [`Phase::Closing`]; the table is cleared before the phase
//!    changes to another one.
//! 2. `sends` holds the requests that have not started. `current` is the one message that is being split into
//!    segments. A started Read is in `reads`, in the order of the requests, until its last byte is placed.
//! 3. `responses` holds at most IRD Reads of the peer: a Read counts until its last byte is written to the socket.
//! 4. Every request is in exactly one of `sends`, `current`, the batch's ends, `reads`, `recvs`, `finished`.

use std::collections::VecDeque;

use arena::{IoBuf, IoBufMut, Sg, sg_len};
use env::Env;

use super::batch::{Batch, Slices};
use super::mpa::Ready;
use super::rx::Receiver;
use crate::requests::{Outstanding, check};
use crate::stags::Stags;
use crate::{
    Completion, Done, Down, Exposed, Exposure, QueuePairCaps, RdmaError, Remote, Rights, Stag, WcError, Wr,
    WrId,
};

/// Parameters negotiated during the connection setup, and this side's limits.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Whether CRCs are sent and checked.
    pub crc: bool,
    /// The longest ULPDU that this side sends, in bytes.
    pub max_ulpdu: usize,
    /// Maximum number of the peer's Reads that are answered concurrently.
    pub ird: u32,
    /// Maximum number of this side's Reads in flight.
    pub ord: u32,
    /// Maximum number of outstanding requests, for sends and receives each.
    pub max_wr: usize,
    /// Maximum number of exposed buffers.
    pub max_regions: usize,
    /// Whether this side is the responder, which sends nothing before the initiator's first FPDU (RFC 5044 7.1.2).
    pub wait: bool,
    /// The ready-to-receive messages that the initiator may send first (RFC 6581 8).
    pub ready: Ready,
}

/// Maximum number of buffers in one payload.
const MAX_SGE: usize = 256;

pub struct Core {
    pub(super) config: Config,
    pub(super) stags: Stags,
    pub(super) sends: VecDeque<(WrId, Wr)>,
    pub(super) current: Option<Message>,
    pub(super) responses: VecDeque<Response>,
    /// Index of the first response with bytes left to send.
    pub(super) response_at: usize,
    pub(super) reads: VecDeque<ReadInFlight>,
    pub(super) recvs: VecDeque<(WrId, IoBufMut)>,
    pub(super) finished: VecDeque<Completion>,
    pub(super) batch: Batch<End>,
    pub(super) send_msn: u32,
    pub(super) read_msn: u32,
    pub(super) wait: bool,
    pub(super) own_turn: bool,
    pub(super) rx: Receiver,
    pub(super) phase: Phase,
    outstanding: Outstanding,
}

/// The phase of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Requests are accepted and input is processed.
    Open,
    /// Posted requests are still sent; new ones are refused.
    Closing,
    /// A Terminate is being sent; afterwards the connection is down for this reason.
    Terminating(Down),
    /// The connection has ended for this reason.
    Down(Down),
}

/// A message of this side that is being split into segments.
pub(super) struct Message {
    pub(super) id: WrId,
    pub(super) kind: MessageKind,
    pub(super) payload: Cursor,
}

#[derive(Clone, Copy)]
pub(super) enum MessageKind {
    Send { invalidate: Option<Stag>, msn: u32 },
    Write(Remote),
}

/// A Read of the peer that is being answered.
pub(super) struct Response {
    pub(super) sink: Stag,
    pub(super) sink_offset: u64,
    /// The tag of the source; checked again for every segment.
    pub(super) source: Stag,
    pub(super) payload: Cursor,
}

/// A Read of this side in flight.
pub(super) struct ReadInFlight {
    pub(super) id: WrId,
    pub(super) stag: Stag,
    pub(super) sink: IoBufMut,
    pub(super) length: u32,
    pub(super) placed: u32,
}

/// The request or response that is complete when the batch is written up to a position.
pub(super) enum End {
    Message(WrId, MessageKind),
    Response,
}

impl Core {
    pub fn new(env: Env, config: Config) -> Core {
        Core {
            config,
            stags: Stags::new(env, config.max_regions),
            sends: VecDeque::new(),
            current: None,
            responses: VecDeque::new(),
            response_at: 0,
            reads: VecDeque::new(),
            recvs: VecDeque::new(),
            finished: VecDeque::new(),
            batch: Batch::new(),
            send_msn: 1,
            read_msn: 1,
            wait: config.wait,
            own_turn: true,
            rx: Receiver::new(config.ready),
            phase: Phase::Open,
            outstanding: Outstanding::default(),
        }
    }

    pub fn caps(&self) -> QueuePairCaps {
        QueuePairCaps {
            ord: self.config.ord,
            ird: self.config.ird,
            max_sge: MAX_SGE,
            max_wr: self.config.max_wr,
            read_sink_exposed: false,
        }
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    pub fn exposed(&self) -> usize {
        self.stags.len()
    }

    pub fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        if self.phase != Phase::Open {
            return Err(RdmaError::Down);
        }
        self.stags.expose(what, rights)
    }

    pub fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)> {
        if self.phase != Phase::Open {
            return Err((RdmaError::Down, wr));
        }
        if let Err(e) = check(&wr, &self.caps(), self.outstanding) {
            return Err((e, wr));
        }
        match wr {
            Wr::Recv(buf) => {
                self.outstanding.recvs += 1;
                self.recvs.push_back((id, buf));
                return Ok(());
            }
            Wr::Invalidate(stag) => match self.stags.invalidate(stag) {
                Some(what) => self.complete(id, Ok(Done::Invalidate(what))),
                None => return Err((RdmaError::UnknownStag, wr)),
            },
            wr => self.sends.push_back((id, wr)),
        }
        self.outstanding.sends += 1;
        Ok(())
    }

    pub fn close(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
        }
    }

    /// Moves completions to `out`; returns whether there were any.
    pub fn drain(&mut self, out: &mut Vec<Completion>) -> bool {
        for c in &self.finished {
            let receive = matches!(c.result, Ok(Done::Recv { .. }));
            let count = if receive { &mut self.outstanding.recvs } else { &mut self.outstanding.sends };
            // After the end of the connection the kind of a flushed request is unknown, but the counts are then
            // unused.
            *count = count.saturating_sub(1);
        }
        let any = !self.finished.is_empty();
        out.extend(self.finished.drain(..));
        any
    }

    /// Returns the bytes to write next; empty if there are none now.
    pub fn output(&mut self) -> Slices<'_> {
        if self.batch.is_empty() {
            self.fill();
        }
        self.batch.slices()
    }

    /// Records that `n` bytes of [`Core::output`] are written.
    pub fn written(&mut self, n: usize) {
        let Core { batch, finished, responses, response_at, .. } = self;
        batch.advance(n, |end| match end {
            End::Message(id, kind) => {
                let done = if matches!(kind, MessageKind::Write(_)) { Done::Write } else { Done::Send };
                finished.push_back(Completion { id, result: Ok(done) });
            }
            End::Response => {
                responses.pop_front();
                *response_at -= 1;
            }
        });
    }

    /// Whether all bytes that must be sent before the end of the connection are written.
    pub fn ready_to_end(&self) -> bool {
        let sent = self.batch.is_empty();
        match &self.phase {
            Phase::Closing => sent && self.sends.is_empty() && self.current.is_none(),
            Phase::Terminating(_) => sent,
            _ => false,
        }
    }

    /// FPDUs received and sent so far.
    pub fn frames(&self) -> (u64, u64) {
        (self.rx.frames, self.batch.frames)
    }

    /// Whether completions wait to be drained.
    pub fn has_completions(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Whether input from the peer is still processed.
    pub fn takes_input(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Closing)
    }

    /// Ends the connection: no further byte is placed, and every outstanding request is flushed.
    pub fn end(&mut self, why: Down) {
        if matches!(self.phase, Phase::Down(_)) {
            return;
        }
        self.stags.clear();
        self.phase = Phase::Down(why);
        let mut lost = Vec::new();
        self.batch.abandon(|end| {
            if let End::Message(id, _) = end {
                lost.push(id);
            }
        });
        lost.extend(self.current.take().map(|m| m.id));
        lost.extend(self.sends.drain(..).map(|(id, _)| id));
        lost.extend(self.reads.drain(..).map(|f| f.id));
        lost.extend(self.recvs.drain(..).map(|(id, _)| id));
        self.responses.clear();
        self.response_at = 0;
        self.finished.extend(lost.into_iter().map(|id| Completion { id, result: Err(WcError::Flushed) }));
    }

    /// Starts the oldest Read if none is in flight; returns the tag of its sink, or 0 if there is none.
    pub(super) fn reads_in_flight_tag(&mut self) -> Stag {
        self.wait = false;
        self.fill();
        self.reads.front().map_or(Stag(0), |f| f.stag)
    }

    pub(super) fn complete(&mut self, id: WrId, result: Result<Done, WcError>) {
        self.finished.push_back(Completion { id, result });
    }
}

/// A payload and the position up to which it has been sent.
pub(super) struct Cursor {
    sg: Sg,
    index: usize,
    at: usize,
    pub(super) sent: u32,
    pub(super) total: u32,
}

impl Cursor {
    /// Starts at the beginning of `sg`. The caller has checked that its length fits.
    pub(super) fn new(sg: Sg) -> Cursor {
        let total = sg_len(&sg) as u32;
        Cursor { sg, index: 0, at: 0, sent: 0, total }
    }

    pub(super) fn left(&self) -> usize {
        (self.total - self.sent) as usize
    }

    /// Whether a part of it was sent, but not all.
    pub(super) fn is_cut(&self) -> bool {
        self.sent > 0 && self.sent < self.total
    }

    /// Takes the next `n` bytes, buffer by buffer.
    pub(super) fn take(&mut self, n: usize, mut piece: impl FnMut(IoBuf)) {
        let mut left = n;
        while left > 0 {
            let buf = &self.sg[self.index];
            let len = left.min(buf.len() - self.at);
            if len > 0 {
                piece(buf.slice(self.at..self.at + len));
            }
            self.at += len;
            left -= len;
            if self.at == buf.len() {
                self.index += 1;
                self.at = 0;
            }
        }
        self.sent += n as u32;
    }
}
