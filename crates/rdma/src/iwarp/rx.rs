//! Parses FPDUs and places their payload (RFC 5044 5, RFC 5041 5 and 7, RFC 5040 5).
//!
//! Without CRCs, the payload of a segment is placed as it arrives; the payload of a long segment is read directly
//! from the socket. With CRCs, an FPDU is processed only when it is complete and its CRC matches (RFC 5044 5). In
//! both cases its header has passed all checks before its first byte is placed. The target is looked up again for
//! every piece, so that an invalidation in between takes effect.

use arena::passes::{Pass, count};

use super::core::{Core, Cursor, Response};
use super::ddp::{Header, Queue, Tagged, Untagged};
use super::mpa::{Ready, crc_matches, fpdu_len};
use super::rdmap::{Opcode, ReadRequest};
use super::terminate::{self, Offender};
use crate::stags::Slices;
use crate::violation::Violation;
use crate::{Done, Down, Stag};

/// The state of the parser of the incoming stream.
pub(super) struct Receiver {
    /// The segment whose payload is arriving.
    open: Option<Segment>,
    send: Expected,
    read_msn: u32,
    /// Whether a Send without data may arrive first; it takes no posted receive.
    ready_send: bool,
    /// Payload length of the last segment if another segment of its message follows, otherwise 0.
    more: usize,
    /// Number of FPDUs so far.
    pub(super) frames: u64,
}

/// The next message on the queue of Sends.
struct Expected {
    msn: u32,
    /// Number of bytes placed; `opcode` is set once a segment of the message has arrived.
    placed: u32,
    opcode: Option<Opcode>,
}

#[derive(Clone, Copy)]
struct Segment {
    header: Header,
    target: Target,
    /// Payload length in bytes; `placed` of them are placed.
    len: usize,
    placed: usize,
    /// Length of padding and CRC.
    trailer: usize,
}

/// The target of a segment's payload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// An exposed sink.
    Write,
    /// The oldest Read in flight.
    Response,
    /// The oldest posted receive.
    Message,
    /// A ready-to-receive Send: no data and no posted receive.
    Ready,
    /// A Read Request or Terminate, processed as a whole.
    Control,
}

impl Receiver {
    pub(super) fn new(ready: Ready) -> Receiver {
        let send = Expected { msn: 1, placed: 0, opcode: None };
        Receiver { open: None, send, read_msn: 1, ready_send: ready.send, more: 0, frames: 0 }
    }

    /// Whether the stream is between two FPDUs, where it may end.
    pub(super) fn is_between(&self) -> bool {
        self.open.is_none()
    }
}

/// A violation, and the FPDU that contains it.
type LocatedViolation = (Violation, Offender);

impl Core {
    /// Processes bytes of the stream; returns how many were used. At the next call the caller must pass the unused
    /// bytes again, followed by more. The unused bytes are less than one FPDU, and less than one header if CRCs are
    /// off.
    pub fn input(&mut self, data: &[u8]) -> usize {
        let mut at = 0;
        while self.takes_input() {
            match self.step(&data[at..]) {
                Ok(0) => break,
                Ok(n) => at += n,
                Err((violation, offender)) => self.violated(violation, &offender),
            }
        }
        at
    }

    /// Returns the memory for the next bytes of the stream; `None` if fewer than `least` of them may be placed
    /// directly.
    pub fn direct(&mut self, least: usize) -> Option<Slices<'_>> {
        let segment = self.rx.open?;
        let left = segment.len - segment.placed;
        if left < least || !self.takes_input() {
            return None;
        }
        // `input` reports a tag that is no longer valid.
        self.target(&segment, left).ok()
    }

    /// Whether a segment of at least `least` bytes probably follows: the last segment was as long and its message
    /// continues.
    pub fn expects(&self, least: usize) -> bool {
        !self.config.crc && self.rx.open.is_none() && self.rx.more >= least
    }

    /// Records that `n` bytes were placed into the slices of [`Core::direct`].
    pub fn placed_directly(&mut self, n: usize) {
        if let Some(segment) = &mut self.rx.open {
            if let (Target::Write, Header::Tagged(t)) = (segment.target, &segment.header) {
                self.stags.placed(t.stag, t.offset + segment.placed as u64, n);
            }
            segment.placed += n;
        }
    }

    /// Returns why the connection ends, after the peer has closed its side with `leftover` unused bytes.
    pub fn input_ended(&self, leftover: usize) -> Down {
        if leftover == 0 && self.rx.is_between() {
            Down::PeerClosed
        } else {
            Down::Transport(std::io::ErrorKind::UnexpectedEof)
        }
    }

    /// Processes some bytes and returns how many; 0 if more are needed first.
    fn step(&mut self, data: &[u8]) -> Result<usize, LocatedViolation> {
        match self.rx.open {
            Some(segment) => self.continue_segment(segment, data).map_err(|v| (v, offender(&segment))),
            None => self.start(data),
        }
    }

    fn start(&mut self, data: &[u8]) -> Result<usize, LocatedViolation> {
        let Some((len, rest)) = data.split_first_chunk::<2>() else { return Ok(0) };
        let len = usize::from(u16::from_be_bytes(*len));
        let (whole, ulpdu) = (fpdu_len(len), &rest[..rest.len().min(len)]);
        if self.config.crc {
            if data.len() < whole {
                return Ok(0);
            }
            if !crc_matches(&data[..whole]) {
                return Err((Violation::CRC, Offender::default()));
            }
        }
        let bare = |v| (v, Offender { length: len as u16, ..Offender::default() });
        let Some((header, head)) = Header::parse(ulpdu).map_err(bare)? else {
            return match (len, data.len() >= whole) {
                (_, false) if ulpdu.len() < len => Ok(0),
                // RFC 6581 8: an FPDU without a ULPDU is also a ready-to-receive message.
                (0, true) if self.rx.ready_send => {
                    self.first_arrived();
                    Ok(whole)
                }
                (0, false) if self.rx.ready_send => Ok(0),
                _ => Err((Violation::FPDU_LENGTH, Offender::default())),
            };
        };
        let wrong = |v| (v, Offender { length: len as u16, header: Some(header), request: None });
        let target = self.check(&header, len - head).map_err(wrong)?;
        if target == Target::Control {
            if data.len() < whole {
                return Ok(0);
            }
            self.first_arrived();
            self.control(&header, &ulpdu[head..], len)?;
            return Ok(whole);
        }
        self.first_arrived();
        let (len, trailer) = (len - head, whole - 2 - len);
        self.rx.open = Some(Segment { header, target, len, placed: 0, trailer });
        Ok(2 + head)
    }

    /// Handles the arrival of a valid FPDU. RFC 5044 7.1.2: after the initiator's first one the responder may send.
    fn first_arrived(&mut self) {
        self.rx.frames += 1;
        self.wait = false;
        self.rx.ready_send = false;
    }

    /// Processes further bytes of the segment whose header has been parsed.
    fn continue_segment(&mut self, mut segment: Segment, data: &[u8]) -> Result<usize, Violation> {
        let n = data.len().min(segment.len - segment.placed);
        if n > 0 {
            let mut rest = &data[..n];
            for slice in self.target(&segment, n)? {
                let (now, later) = rest.split_at(slice.len());
                slice.copy_from_slice(now);
                rest = later;
            }
            count(Pass::Place, n);
            if let (Target::Write, Header::Tagged(t)) = (segment.target, &segment.header) {
                self.stags.placed(t.stag, t.offset + segment.placed as u64, n);
            }
            segment.placed += n;
        }
        if segment.placed == segment.len && data.len() - n >= segment.trailer {
            self.rx.open = None;
            self.delivered(&segment)?;
            return Ok(n + segment.trailer);
        }
        self.rx.open = Some(segment);
        Ok(n)
    }

    /// Checks a segment's header completely, before any byte of its payload is placed.
    fn check(&mut self, header: &Header, len: usize) -> Result<Target, Violation> {
        let opcode = Opcode::parse(header.control())?;
        match header {
            Header::Tagged(t) if opcode == Opcode::WRITE => {
                // RFC 5040 5.1: the tag of an RDMA Write without data is not checked.
                if len > 0 {
                    self.stags.write_target(t.stag, t.offset, len)?;
                }
                Ok(Target::Write)
            }
            Header::Tagged(t) if opcode == Opcode::READ_RESPONSE => self.check_response(t, len),
            Header::Tagged(_) => Err(Violation::UNEXPECTED_OPCODE),
            Header::Untagged(u) => match u.queue {
                Queue::SEND if opcode.is_send() => self.check_send(u, opcode, len),
                Queue::READ_REQUEST if opcode == Opcode::READ_REQUEST => {
                    single(u, self.rx.read_msn)?;
                    // RFC 5040 5.2: the queue has IRD buffers.
                    if self.responses.len() >= self.config.ird as usize {
                        return Err(Violation::NO_BUFFER);
                    }
                    Ok(Target::Control)
                }
                Queue::TERMINATE if opcode == Opcode::TERMINATE => single(u, 1).map(|()| Target::Control),
                Queue::SEND | Queue::READ_REQUEST | Queue::TERMINATE => Err(Violation::UNEXPECTED_OPCODE),
                _ => Err(Violation::QUEUE_NUMBER),
            },
        }
    }

    /// A Read Response is accepted only for the oldest Read in flight, at the offset of its next byte.
    fn check_response(&mut self, t: &Tagged, len: usize) -> Result<Target, Violation> {
        let fetch = self.reads.front().filter(|f| f.stag == t.stag).ok_or(Violation::INVALID_STAG)?;
        let end = u64::from(fetch.placed) + len as u64;
        if t.offset != u64::from(fetch.placed) || end > u64::from(fetch.length) {
            return Err(Violation::BOUNDS);
        }
        if t.last && end != u64::from(fetch.length) {
            return Err(Violation::RESPONSE_SIZE);
        }
        Ok(Target::Response)
    }

    /// RFC 5041 5.3, 7.1: a segment must belong to the next message, at the offset of its next byte. It is placed
    /// into the oldest posted receive.
    fn check_send(&mut self, u: &Untagged, opcode: Opcode, len: usize) -> Result<Target, Violation> {
        let expected = &self.rx.send;
        if u.msn != expected.msn {
            return Err(Violation::MSN);
        }
        if u.offset != expected.placed {
            return Err(Violation::MESSAGE_OFFSET);
        }
        if expected.opcode.is_some_and(|o| o != opcode) {
            return Err(Violation::UNEXPECTED_OPCODE);
        }
        if self.rx.ready_send && opcode == Opcode::SEND && u.last && len == 0 && u.offset == 0 {
            return Ok(Target::Ready);
        }
        let (_, buf) = self.recvs.front().ok_or(Violation::NO_BUFFER)?;
        if u64::from(u.offset) + len as u64 > buf.capacity() as u64 {
            return Err(Violation::TOO_LONG);
        }
        if u.last && opcode.invalidates() && !self.stags.is_live(Stag(u.word)) {
            return Err(Violation::CANNOT_INVALIDATE);
        }
        Ok(Target::Message)
    }

    /// Returns the memory for the next `n` bytes of a segment.
    fn target(&mut self, segment: &Segment, n: usize) -> Result<Slices<'_>, Violation> {
        let placed = segment.placed;
        let one = |space: &'_ mut [u8], at: usize| -> Result<std::ops::Range<usize>, Violation> {
            if at + n <= space.len() { Ok(at..at + n) } else { Err(Violation::BOUNDS) }
        };
        match (segment.target, &segment.header) {
            (Target::Write, Header::Tagged(t)) => {
                self.stags.write_target(t.stag, t.offset + placed as u64, n)
            }
            (Target::Response, Header::Tagged(t)) => {
                let fetch = self.reads.front_mut().ok_or(Violation::INVALID_STAG)?;
                let space = fetch.sink.space();
                let range = one(space, t.offset as usize + placed)?;
                Ok([&mut space[range]].into_iter().collect())
            }
            (Target::Message, Header::Untagged(u)) => {
                let (_, buf) = self.recvs.front_mut().ok_or(Violation::NO_BUFFER)?;
                let space = buf.space();
                let range = one(space, u.offset as usize + placed)?;
                Ok([&mut space[range]].into_iter().collect())
            }
            _ => Ok(Slices::new()),
        }
    }

    /// Handles a segment that is completely placed.
    fn delivered(&mut self, segment: &Segment) -> Result<(), Violation> {
        self.rx.more = if segment.header.last() { 0 } else { segment.len };
        match (segment.target, &segment.header) {
            (Target::Response, Header::Tagged(t)) => {
                if let Some(fetch) = self.reads.front_mut() {
                    fetch.placed += segment.len as u32;
                }
                if t.last
                    && let Some(mut fetch) = self.reads.pop_front()
                {
                    self.stags.release(fetch.stag);
                    fetch.sink.set_len(fetch.placed as usize);
                    self.complete(fetch.id, Ok(Done::Read(fetch.sink)));
                }
            }
            (Target::Message, Header::Untagged(u)) => {
                let opcode = Opcode::parse(u.control)?;
                let expected = &mut self.rx.send;
                expected.placed += segment.len as u32;
                expected.opcode = Some(opcode);
                if u.last {
                    self.message_delivered(u, opcode)?;
                }
            }
            (Target::Ready, Header::Untagged(_)) => self.rx.send.msn = self.rx.send.msn.wrapping_add(1),
            _ => {}
        }
        Ok(())
    }

    /// RFC 5040 5.3: delivers the message and invalidates the tag that it names.
    fn message_delivered(&mut self, u: &Untagged, opcode: Opcode) -> Result<(), Violation> {
        let invalidated = if opcode.invalidates() {
            let stag = Stag(u.word);
            Some((stag, self.stags.invalidate(stag).ok_or(Violation::CANNOT_INVALIDATE)?))
        } else {
            None
        };
        let (id, mut buf) = self.recvs.pop_front().ok_or(Violation::NO_BUFFER)?;
        let expected = &mut self.rx.send;
        buf.set_len(expected.placed as usize);
        *expected = Expected { msn: expected.msn.wrapping_add(1), placed: 0, opcode: None };
        self.complete(id, Ok(Done::Recv { buf, invalidated }));
        Ok(())
    }

    /// Handles a complete Read Request or Terminate.
    fn control(&mut self, header: &Header, payload: &[u8], len: usize) -> Result<(), LocatedViolation> {
        let wrong = |v, request| (v, Offender { length: len as u16, header: Some(*header), request });
        if Opcode::parse(header.control()) == Ok(Opcode::TERMINATE) {
            let code = terminate::parse(payload).map_err(|v| wrong(v, None))?;
            self.end(Down::Terminated(code));
            return Ok(());
        }
        let request = ReadRequest::parse(payload).map_err(|v| wrong(v, None))?;
        self.rx.read_msn = self.rx.read_msn.wrapping_add(1);
        let from = request.from;
        let sg = match from.length {
            0 => Default::default(), // RFC 5040 5.2: the tag of an empty Read is not checked
            n => self.stags.read_source(from.stag, from.offset, n).map_err(|v| wrong(v, Some(request)))?,
        };
        self.responses.push_back(Response {
            sink: request.sink,
            sink_offset: request.sink_offset,
            source: from.stag,
            payload: Cursor::new(sg),
        });
        Ok(())
    }
}

/// Checks that a message has one segment and the expected sequence number (RFC 5041 5.3).
fn single(u: &Untagged, msn: u32) -> Result<(), Violation> {
    if u.msn != msn {
        return Err(Violation::MSN);
    }
    if u.offset != 0 {
        return Err(Violation::MESSAGE_OFFSET);
    }
    if u.last { Ok(()) } else { Err(Violation::TOO_LONG) }
}

fn offender(segment: &Segment) -> Offender {
    let head = if matches!(segment.header, Header::Tagged(_)) { 14 } else { 18 };
    Offender { length: (head + segment.len) as u16, header: Some(segment.header), request: None }
}
