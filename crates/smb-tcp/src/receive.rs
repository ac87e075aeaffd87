//! Splits a TCP stream into messages without copying payload.
//!
//! A read fills a chunk of the arena; every whole message in the chunk becomes a slice of it. A partial message at
//! the end is handled by size. A short one is copied to the next chunk. For one with a large payload, the remainder
//! is read directly into separate buffers. An idle connection holds no chunk.
//!
//! Encrypted messages are split off their chunk as owned buffers, so that the receiver can decrypt in place. A
//! large encrypted message is contiguous if the arena has a free run of that length, otherwise scattered.
//!
//! The payload of a large WRITE that is neither signed nor encrypted may go into a pipe instead
//! ([`Receiver::use_pipes`]). The message is delivered only after all of its payload has arrived; the stream stays
//! in step even if the message is refused. This needs a read that returns only the head of the WRITE. The receiver
//! tries such a read after each large WRITE; if it returns another message, that message is handled normally.
//!
//! Invariant: the stream is the concatenation of the delivered messages, the bytes held by the state, and the
//! unread bytes.

mod memory;
mod pipe;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arena::{Arena, CHUNK_MIN, IoBuf, IoBufMut, PipedPayload, Pipes, Sg, SgMut};
use env::BoxFuture;
use smb_wire::frame::{self, FRAME_LEN};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use self::memory::{Plan, SIZE_START, fill};
use self::pipe::WRITE_HEAD;
use crate::{End, StreamError};

/// The reading half of a connection.
pub struct Receiver {
    arena: Arena,
    end: End,
    state: State,
    /// Size of the next chunk, in bytes: grows while reads fill it, shrinks while they do not.
    size: usize,
    /// The chunk of the last read: reused once no slice of it is held.
    last_chunk: Option<IoBuf>,
    waiting: Option<BoxFuture<SgMut>>,
    /// Bytes read since the connection was made.
    received: u64,
    /// Longest message for which memory can always be found, in bytes.
    message_max: usize,
    /// Pipes for the payload of large plain WRITEs; `None` if pipes are not used.
    pipes: Option<Pipes>,
    /// The last message was such a WRITE: the next read asks only for the head of another one.
    reads_head_only: bool,
    /// Payload of the last delivered message, if it is in a pipe.
    piped: Option<PipedPayload>,
    /// Payload arrives in too many small segments for a pipe.
    is_fragmented: bool,
}

enum State {
    /// Between messages.
    Idle,
    /// A chunk being filled; it starts with the start of a message.
    Chunk(IoBufMut),
    Partial(PartialMessage),
    /// A WRITE: its head, and the pipe that receives its payload.
    Pipe {
        head: IoBuf,
        piped: PipedPayload,
    },
    Large(Large),
}

/// The first bytes of a partial message, and the memory that the message needs.
struct PartialMessage {
    rest: IoBuf,
    /// Total length of the message in bytes, framing included.
    need: usize,
    plan: Plan,
    /// `rest` was copied out of its chunk.
    moved: bool,
}

/// A message with separate buffers: its first part if that stays in the chunk, and buffers for the remainder.
struct Large {
    parts: Sg,
    sinks: SgMut,
    /// Index of the sink that is being filled.
    at: usize,
    /// Bytes still to be read.
    left: usize,
}

/// Result of a state's function: `None` means that the next state runs immediately.
type Step = Poll<Result<Option<ReadOutcome>, StreamError>>;
const CONTINUE: Step = Poll::Ready(Ok(None));

/// Result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Bytes were read; messages may be complete.
    Bytes,
    /// The peer closed.
    Closed,
}

/// First bytes of an encrypted message (MS-SMB2 2.2.41).
const TRANSFORM: &[u8] = b"\xfdSMB";

impl Receiver {
    /// Creates a receiver that allocates from `arena`.
    pub fn new(arena: Arena, end: End) -> Receiver {
        let most = arena.usage().budget / 2;
        let state = State::Idle;
        Receiver {
            arena,
            end,
            state,
            size: SIZE_START,
            last_chunk: None,
            waiting: None,
            received: 0,
            message_max: most,
            pipes: None,
            reads_head_only: false,
            piped: None,
            is_fragmented: false,
        }
    }

    /// Sets where the payload of later large plain WRITEs goes: into `pipes`, or into memory if `None`.
    pub fn use_pipes(&mut self, pipes: Option<&Pipes>) {
        if self.pipes.is_some() != pipes.is_some() {
            self.pipes = pipes.cloned();
            self.reads_head_only = false;
        }
    }

    /// Takes the payload of the message that the last poll delivered, if it is in a pipe. That message is then only
    /// the head of the WRITE, and it was the only message of that poll.
    pub fn take_piped(&mut self) -> Option<PipedPayload> {
        self.piped.take()
    }

    /// Whether no message is half read.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Bytes read so far. The caller uses it to see that a slow message still makes progress.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether this side delays the stream because no memory is free.
    pub fn waits_for_memory(&self) -> bool {
        self.waiting.is_some()
    }

    /// Reads once, and appends the complete messages to `out`. `limit` is the longest accepted message, in bytes; a
    /// message of more than half of the arena is never accepted.
    ///
    /// # Errors
    /// Socket errors, malformed frames, and messages over the limit.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
        limit: usize,
        out: &mut VecDeque<Sg>,
    ) -> Poll<Result<ReadOutcome, StreamError>> {
        let limit = limit.min(self.message_max);
        loop {
            let step = match std::mem::replace(&mut self.state, State::Idle) {
                State::Idle => self.poll_idle(cx, stream, limit),
                State::Chunk(chunk) => self.poll_chunk(cx, stream, chunk, limit, out),
                State::Partial(rest) => self.poll_rest(cx, rest),
                State::Pipe { head, piped } => self.poll_pipe(cx, stream, head, piped, out),
                State::Large(large) => self.poll_large(cx, stream, large, out),
            };
            if let Some(filled) = ready!(step)? {
                return Poll::Ready(Ok(filled));
            }
        }
    }

    /// Between messages: takes a chunk when the socket becomes readable.
    fn poll_idle(&mut self, cx: &mut Context<'_>, stream: &TcpStream, limit: usize) -> Step {
        let Poll::Ready(readable) = stream.poll_read_ready(cx) else {
            self.last_chunk = None; // an idle connection holds no memory
            return Poll::Pending;
        };
        readable?;
        // The chunk is at most as large as the accepted messages: see the server's limit before log-on.
        let size = if self.reads_head_only { CHUNK_MIN } else { self.affordable() };
        let size = size.min((limit + FRAME_LEN).next_power_of_two());
        let chunk = match self.chunk(size) {
            Some(chunk) => chunk,
            None => ready!(self.wait(cx, CHUNK_MIN)).pop().expect("memory was waited for"),
        };
        self.waiting = None;
        self.state = State::Chunk(chunk);
        CONTINUE
    }

    /// Reads into a chunk, and delivers the messages that are complete in it.
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
        mut chunk: IoBufMut,
        limit: usize,
        out: &mut VecDeque<Sg>,
    ) -> Step {
        let before = chunk.len();
        let room = if self.reads_head_only && before == 0 { WRITE_HEAD } else { chunk.spare().len() };
        let Poll::Ready(n) = poll_into(cx, stream, &mut chunk.spare()[..room]) else {
            if before > 0 {
                self.state = State::Chunk(chunk);
            }
            return Poll::Pending; // dropping the empty chunk returns it to the arena
        };
        let n = n?;
        if n == 0 {
            return Poll::Ready(Ok(Some(ReadOutcome::Closed)));
        }
        self.received += n as u64;
        chunk.set_len(before + n);
        if !self.reads_head_only {
            self.adapt(chunk.spare().is_empty(), chunk.len());
        }
        self.parse(chunk, limit, out)?;
        Poll::Ready(Ok(Some(ReadOutcome::Bytes)))
    }

    /// Allocates memory for the remainder of a message.
    fn poll_rest(&mut self, cx: &mut Context<'_>, begun: PartialMessage) -> Step {
        let PartialMessage { rest, need, plan, moved } = begun;
        let taken = self.begin_piped(&rest, need).or_else(|| self.begin(&rest, need, plan));
        if let Some(state) = taken {
            (self.state, self.waiting) = (state, None);
            return CONTINUE;
        }
        // A connection that waits for memory holds none: others might wait for the memory of this chunk.
        let move_now = !moved && rest.len() <= CHUNK_MIN;
        let rest = if move_now { IoBuf::from(rest.to_vec()) } else { rest };
        self.state =
            State::Partial(PartialMessage { rest: rest.clone(), need, plan, moved: moved || move_now });
        let wanted = match plan {
            Plan::Chunk => need.max(CHUNK_MIN),
            Plan::SeparateRemainder => need - rest.len(),
            Plan::Whole => need - FRAME_LEN,
        };
        // The awaited memory is used: if it were freed and requested again, another connection might always be faster.
        let memory = ready!(self.wait(cx, wanted));
        self.state = fill(&rest, need, plan, memory);
        CONTINUE
    }

    /// Reads into the memory of a large message.
    fn poll_large(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
        mut large: Large,
        out: &mut VecDeque<Sg>,
    ) -> Step {
        let sink = &mut large.sinks[large.at];
        let room = large.left.min(sink.spare().len());
        let Poll::Ready(n) = poll_into(cx, stream, &mut sink.spare()[..room]) else {
            self.state = State::Large(large);
            return Poll::Pending;
        };
        let n = n?;
        if n == 0 {
            return Poll::Ready(Ok(Some(ReadOutcome::Closed)));
        }
        self.received += n as u64;
        let filled = sink.len() + n;
        sink.set_len(filled);
        large.at += usize::from(sink.spare().is_empty());
        large.left -= n;
        if large.left > 0 {
            self.state = State::Large(large);
            return CONTINUE;
        }
        let Large { parts, sinks, .. } = large;
        out.push_back(parts.into_iter().chain(sinks.into_iter().map(IoBufMut::freeze)).collect());
        Poll::Ready(Ok(Some(ReadOutcome::Bytes)))
    }

    /// Delivers the complete messages of a chunk and keeps the remaining bytes.
    fn parse(&mut self, chunk: IoBufMut, limit: usize, out: &mut VecDeque<Sg>) -> Result<(), StreamError> {
        let mut ranges: smallvec::SmallVec<[(usize, usize); 40]> = Default::default();
        let (mut at, mut need) = (0, 0);
        while let Some(head) = chunk[at..].first_chunk::<FRAME_LEN>() {
            let length = frame::decode(*head)?;
            if length > limit {
                return Err(StreamError::TooLong { length, limit });
            }
            need = FRAME_LEN + length;
            if chunk.len() - at < need {
                break;
            }
            ranges.push((at + FRAME_LEN, length));
            at += need;
            need = 0;
        }
        let left = chunk.len() - at;
        self.reads_head_only = left > 0 && self.may_be_piped(&chunk[at..], need);
        let alone = self.reads_head_only && left == WRITE_HEAD;
        if !alone && ranges.is_empty() && need <= chunk.capacity() && left < chunk.capacity() {
            self.state = State::Chunk(chunk); // the remainder of the first message fits behind its first bytes
            return Ok(());
        }
        let sealed = |start: usize| chunk.get(start..).is_some_and(|m| m.starts_with(TRANSFORM));
        let sealed = ranges.iter().any(|&(start, _)| sealed(start)) || sealed(at + FRAME_LEN);
        let rest = if sealed {
            let messages = ranges.iter().map(|&(start, len)| start..start + len);
            let mut pieces = chunk.cut(messages.chain(std::iter::once(at..at + left)));
            let rest = pieces.pop().expect("the last one");
            out.extend(pieces.into_iter().map(|p| Sg::from_iter([p])));
            rest
        } else {
            let chunk = chunk.freeze();
            out.extend(ranges.iter().map(|&(start, len)| Sg::from_iter([chunk.slice(start..start + len)])));
            if left == 0 {
                self.last_chunk = Some(chunk);
                return Ok(());
            }
            chunk.slice(at..at + left)
        };
        if left > 0 {
            let plan = self.plan(&rest, need);
            self.state =
                State::Partial(PartialMessage { rest, need: need.max(FRAME_LEN), plan, moved: false });
        }
        Ok(())
    }
}

fn poll_into(cx: &mut Context<'_>, stream: &mut TcpStream, space: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut buf = ReadBuf::new(space);
    ready!(Pin::new(stream).poll_read(cx, &mut buf))?;
    Poll::Ready(Ok(buf.filled().len()))
}

#[cfg(test)]
mod tests;
