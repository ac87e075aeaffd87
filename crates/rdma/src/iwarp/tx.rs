//! Splits messages into FPDUs (RFC 5041 5, RFC 5040 5).
//!
//! Responses to the peer's Reads and this side's requests alternate, one segment each. Two tagged messages are
//! never interleaved: Linux's siw treats a segment of a Read Response inside an RDMA Write, or the reverse, as an
//! error.

use arena::Sg;

use super::batch::Batch;
use super::core::{Core, Cursor, End, Message, MessageKind, Phase, ReadInFlight};
use super::ddp::{Header, Queue, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged};
use super::mpa::{Crc, padding};
use super::rdmap::{Opcode, ReadRequest};
use super::terminate::{self, Offender};
use crate::violation::Violation;
use crate::{Remote, Stag, Wr, WrId};

/// Limits of a batch in bytes and in parts: an urgent message must wait for the whole batch.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_PARTS: usize = 250;

impl Core {
    /// Fills the empty batch with the segments that may be sent.
    pub(super) fn fill(&mut self) {
        if self.wait || !matches!(self.phase, Phase::Open | Phase::Closing) {
            return;
        }
        while self.batch.len() < BATCH_BYTES && self.batch.parts() < BATCH_PARTS {
            if self.current.is_none() {
                self.start_next();
            }
            let (own, response) = (self.current.is_some(), self.response_at < self.responses.len());
            if own && (!response || self.own_first()) {
                self.cut_own();
                self.own_turn = false;
            } else if response {
                if let Err(violation) = self.cut_response() {
                    self.violated(violation, &Offender::default());
                    return;
                }
                self.own_turn = true;
            } else {
                return;
            }
        }
    }

    /// Whether this side's message is sent before the Read Response.
    fn own_first(&self) -> bool {
        let Some(own) = &self.current else { return false };
        if matches!(own.kind, MessageKind::Write(_)) {
            if own.payload.is_cut() {
                return true;
            }
            if self.responses[self.response_at].payload.is_cut() {
                return false;
            }
        }
        self.own_turn
    }

    /// Starts requests in order, up to one that must be split into segments.
    fn start_next(&mut self) {
        while self.current.is_none() && self.batch.parts() < BATCH_PARTS {
            // RFC 5040 5.2: no more Reads are in flight than the peer's IRD. The requests behind a waiting Read
            // wait too.
            let full = self.reads.len() >= self.config.ord as usize;
            if full && matches!(self.sends.front(), Some((_, Wr::Read { .. }))) {
                return;
            }
            let Some((id, wr)) = self.sends.pop_front() else { return };
            let (kind, sg) = match wr {
                Wr::Send { sg, invalidate } => {
                    let msn = self.send_msn;
                    self.send_msn = msn.wrapping_add(1);
                    (MessageKind::Send { invalidate, msn }, sg)
                }
                Wr::Write { src, to } => (MessageKind::Write(to), src),
                Wr::Read { sink, from } => {
                    self.request_read(id, sink, from);
                    continue;
                }
                Wr::Recv(_) | Wr::Invalidate(_) => unreachable!("these are not queued to send"),
            };
            self.current = Some(Message { id, kind, payload: Cursor::new(sg) });
        }
    }

    fn request_read(&mut self, id: WrId, mut sink: arena::IoBufMut, from: Remote) {
        sink.set_len(0);
        let stag = self.stags.reserve();
        let header = Untagged {
            last: true,
            control: Opcode::READ_REQUEST.control(),
            word: 0,
            queue: Queue::READ_REQUEST,
            msn: self.read_msn,
            offset: 0,
        };
        self.read_msn = self.read_msn.wrapping_add(1);
        let request = ReadRequest { sink: stag, sink_offset: 0, from };
        let payload = |v: &mut Vec<u8>| request.write(v);
        small(&mut self.batch, self.config.crc, &Header::Untagged(header), ReadRequest::LEN, payload);
        self.reads.push_back(ReadInFlight { id, stag, sink, length: from.length, placed: 0 });
    }

    /// Sends one segment of the current message.
    fn cut_own(&mut self) {
        let Some(message) = &mut self.current else { return };
        let (payload, max) = (&mut message.payload, self.config.max_ulpdu);
        let (header, n) = match message.kind {
            MessageKind::Send { invalidate, msn } => {
                let n = payload.left().min(max - UNTAGGED_LEN);
                let opcode = if invalidate.is_some() { Opcode::SEND_INVALIDATE } else { Opcode::SEND };
                let header = Untagged {
                    last: n == payload.left(),
                    control: opcode.control(),
                    word: invalidate.unwrap_or(Stag(0)).0,
                    queue: Queue::SEND,
                    msn,
                    offset: payload.sent,
                };
                (Header::Untagged(header), n)
            }
            MessageKind::Write(to) => tagged(payload, max, Opcode::WRITE, to.stag, to.offset),
        };
        cut(&mut self.batch, self.config.crc, &header, payload, n);
        if header.last() {
            self.batch.end(End::Message(message.id, message.kind));
            self.current = None;
        }
    }

    /// Sends one segment of the current Read Response.
    fn cut_response(&mut self) -> Result<(), Violation> {
        let response = &mut self.responses[self.response_at];
        // No byte of a source is read once its tag has been invalidated.
        if response.payload.total > 0 && !self.stags.is_live(response.source) {
            return Err(Violation::READ_REVOKED);
        }
        let (payload, max) = (&mut response.payload, self.config.max_ulpdu);
        let (header, n) = tagged(payload, max, Opcode::READ_RESPONSE, response.sink, response.sink_offset);
        cut(&mut self.batch, self.config.crc, &header, payload, n);
        if header.last() {
            // The batch holds the buffers now. The entry counts for the IRD until they are written.
            response.payload = Cursor::new(Sg::new());
            self.batch.end(End::Response);
            self.response_at += 1;
        }
        Ok(())
    }

    /// RFC 6581 8: the initiator's ready-to-receive message, an RDMA Write without data.
    pub(super) fn send_ready(&mut self) {
        // The peer does not check the tag, but some cards refuse 0.
        let header = Tagged { last: true, control: Opcode::WRITE.control(), stag: Stag(1), offset: 0 };
        small(&mut self.batch, self.config.crc, &Header::Tagged(header), 0, |_| {});
    }

    /// Handles a violation by the peer: ends all exposures, and sends a Terminate after the contents of the batch,
    /// as the last message.
    pub(super) fn violated(&mut self, violation: Violation, offender: &Offender) {
        self.stags.clear();
        let header = Untagged {
            last: true,
            control: Opcode::TERMINATE.control(),
            word: 0,
            queue: Queue::TERMINATE,
            msn: 1,
            offset: 0,
        };
        let mut payload = Vec::with_capacity(terminate::MAX_LEN);
        terminate::write(violation.code, offender, &mut payload);
        let write = |v: &mut Vec<u8>| v.extend_from_slice(&payload);
        small(&mut self.batch, self.config.crc, &Header::Untagged(header), payload.len(), write);
        self.phase = Phase::Terminating(violation.into());
    }
}

/// Returns the header of the next tagged segment and the length of its payload.
fn tagged(payload: &Cursor, max: usize, opcode: Opcode, stag: Stag, base: u64) -> (Header, usize) {
    let n = payload.left().min(max - TAGGED_LEN);
    let header = Tagged {
        last: n == payload.left(),
        control: opcode.control(),
        stag,
        offset: base.wrapping_add(payload.sent.into()),
    };
    (Header::Tagged(header), n)
}

/// Appends an FPDU with the next `n` bytes of `payload`, zero-copy.
fn cut(batch: &mut Batch<End>, crc: bool, header: &Header, payload: &mut Cursor, n: usize) {
    let mut crc = crc.then(Crc::new);
    batch.frames += 1;
    let len = head_len(header) + n;
    let head = batch.own(|v| {
        v.extend_from_slice(&(len as u16).to_be_bytes());
        header.write(v);
    });
    if let Some(crc) = &mut crc {
        crc.update(head);
    }
    payload.take(n, |piece| {
        if let Some(crc) = &mut crc {
            crc.update(&piece);
        }
        batch.payload(piece);
    });
    batch.own(|v| trailer(v, len, crc));
}

/// Appends an FPDU with a payload of `n` bytes, which is encoded next to its header.
fn small(batch: &mut Batch<End>, crc: bool, header: &Header, n: usize, payload: impl FnOnce(&mut Vec<u8>)) {
    let len = head_len(header) + n;
    batch.frames += 1;
    batch.own(|v| {
        let start = v.len();
        v.extend_from_slice(&(len as u16).to_be_bytes());
        header.write(v);
        payload(v);
        let crc = crc.then(|| {
            let mut crc = Crc::new();
            crc.update(&v[start..]);
            crc
        });
        trailer(v, len, crc);
    });
}

fn trailer(v: &mut Vec<u8>, len: usize, crc: Option<Crc>) {
    let pad = &[0; 3][..padding(len)];
    v.extend_from_slice(pad);
    let crc = crc.map_or([0; 4], |mut crc| {
        crc.update(pad);
        crc.to_bytes()
    });
    v.extend_from_slice(&crc);
}

fn head_len(header: &Header) -> usize {
    match header {
        Header::Tagged(_) => TAGGED_LEN,
        Header::Untagged(_) => UNTAGGED_LEN,
    }
}
