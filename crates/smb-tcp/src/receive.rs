//! From a TCP stream to messages, without copying payload.
//!
//! Bytes are read into a chunk of the arena; every whole message in it becomes a slice of it. What is left of a message
//! that did not arrive whole is either a few bytes, which are copied to the next chunk, or the beginning of a message
//! with much payload, whose remainder is then read straight into memory of its own. An idle connection holds no chunk.
//!
//! Encrypted messages are cut out of their chunk, so that the receiver may decrypt them in place; a large one
//! is contiguous if the arena has such a piece, otherwise it is scattered.
//!
//! The payload of a large WRITE that is neither signed nor encrypted may go into a pipe instead ([`Receiver::use_pipes`]):
//! its message is given out when all of it is there, so that whatever becomes of it the stream is in step. That takes a
//! read of the head alone, which is tried after each such WRITE; where it brings something else it is as any other.
//!
//! Invariant: the bytes of the stream are, in order: the messages given out, the state's bytes, what is not read yet.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arena::passes::{self, Pass};
use arena::{Arena, CHUNK_MAX, CHUNK_MIN, Class, IoBuf, IoBufMut, Piped, Pipes, RUN_MAX, Sg, SgMut};
use env::BoxFuture;
use smb_wire::frame::{self, FRAME_LEN};
use smb_wire::msg::{Channel, ReadResponse, WriteRequest};
use smb_wire::{Command, Decode, Header, HeaderFlags};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::{End, StreamError};

/// The reading half of a connection.
pub struct Receiver {
    arena: Arena,
    end: End,
    state: State,
    /// The size of the next chunk: grows while reads fill it, shrinks when they do not.
    size: usize,
    /// The chunk read last: reused when no part of it is held any more.
    spent: Option<IoBuf>,
    waiting: Option<BoxFuture<SgMut>>,
    /// Bytes read since the connection was made.
    received: u64,
    /// The longest message that there can always be memory for, in bytes.
    most: usize,
    /// For the payload of large plain WRITEs, where that is of use.
    pipes: Option<Pipes>,
    /// The message read last was such a WRITE: another one may follow.
    heads: bool,
    /// The payload of the message given out last.
    piped: Option<Piped>,
    /// Payload comes in too many small pieces here for a pipe.
    shattered: bool,
}

enum State {
    /// Between messages.
    Idle,
    /// A chunk being filled; a message begins at its start.
    Chunk(IoBufMut),
    /// The beginning of a message, and what it needs.
    Rest { rest: IoBuf, need: usize, plan: Plan, moved: bool },
    /// A WRITE whose payload goes into a pipe, and its head.
    Pipe { head: IoBuf, piped: Piped },
    /// A message with memory of its own: its beginning where that lies apart, and the memory for the remainder.
    Large { parts: Sg, sinks: SgMut, at: usize, left: usize },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// All of it in a chunk, with what follows it.
    Chunk,
    /// What has come stays where it is, the remainder gets memory of its own.
    Apart,
    /// All of it in memory of its own, in one piece if there is one: it is longer than a chunk.
    Whole,
}

/// What a turn of reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Bytes; perhaps messages.
    Some,
    /// The peer closed.
    End,
}

const SIZE_START: usize = 16 << 10;
const SIZE_MAX: usize = 256 << 10;
/// A message with payload of which at least this much has arrived, or has not, gets memory of its own for the remainder,
/// in bytes: a shorter one is copied together.
const LARGE_MIN: usize = 4 << 10;
/// The shortest payload that goes into a pipe, in bytes.
pub(crate) const PIPE_MIN: usize = 256 << 10;
/// The framing and the fixed part of a WRITE without a channel: its payload follows, mostly.
const WRITE_HEAD: usize = FRAME_LEN + WriteRequest::HEAD_LEN;
/// What an encrypted message begins with (MS-SMB2 2.2.41).
const TRANSFORM: &[u8] = b"\xfdSMB";

impl Receiver {
    /// Reads into `arena`'s memory.
    pub fn new(arena: Arena, end: End) -> Receiver {
        let most = arena.usage().budget / 2;
        let state = State::Idle;
        Receiver {
            arena,
            end,
            state,
            size: SIZE_START,
            spent: None,
            waiting: None,
            received: 0,
            most,
            pipes: None,
            heads: false,
            piped: None,
            shattered: false,
        }
    }

    /// Where the payload of large plain WRITEs goes from now on; `None`: into memory.
    pub fn use_pipes(&mut self, pipes: Option<&Pipes>) {
        if self.pipes.is_some() != pipes.is_some() {
            self.pipes = pipes.cloned();
            self.heads = false;
        }
    }

    /// The payload of the message that the last poll gave out, if it is in a pipe: that message is its head, and was the
    /// only one of that poll.
    pub fn take_piped(&mut self) -> Option<Piped> {
        self.piped.take()
    }

    /// Whether no message is half read.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Bytes read so far: a message that grows is not stalled.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether this side delays the stream, for want of memory.
    pub fn waits_for_memory(&self) -> bool {
        self.waiting.is_some()
    }

    /// Reads once, and appends the messages that are whole to `out`. `limit` is the longest message taken, in bytes; one
    /// of more than half of the arena is never taken.
    ///
    /// # Errors
    /// The socket's, and what is wrong with the stream.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
        limit: usize,
        out: &mut VecDeque<Sg>,
    ) -> Poll<Result<Filled, StreamError>> {
        let limit = limit.min(self.most);
        loop {
            match std::mem::replace(&mut self.state, State::Idle) {
                State::Idle => {
                    let Poll::Ready(readable) = stream.poll_read_ready(cx) else {
                        self.spent = None; // an idle connection holds no memory
                        return Poll::Pending;
                    };
                    readable?;
                    // No larger than the messages that are taken: see the server's bound before log-on.
                    let size = if self.heads { CHUNK_MIN } else { self.affordable() };
                    let size = size.min((limit + FRAME_LEN).next_power_of_two());
                    let chunk = match self.chunk(size) {
                        Some(chunk) => chunk,
                        None => ready!(self.wait(cx, CHUNK_MIN)).pop().expect("memory was waited for"),
                    };
                    self.waiting = None;
                    self.state = State::Chunk(chunk);
                }
                State::Chunk(mut chunk) => {
                    let before = chunk.len();
                    let room = if self.heads && before == 0 { WRITE_HEAD } else { chunk.spare().len() };
                    let read = poll_into(cx, stream, &mut chunk.spare()[..room]);
                    let n = match read {
                        Poll::Ready(Ok(n)) => n,
                        Poll::Ready(Err(e)) => return Poll::Ready(Err(e.into())),
                        Poll::Pending => {
                            if before > 0 {
                                self.state = State::Chunk(chunk);
                            }
                            return Poll::Pending; // an empty chunk goes back to the arena
                        }
                    };
                    if n == 0 {
                        return Poll::Ready(Ok(Filled::End));
                    }
                    self.received += n as u64;
                    chunk.set_len(before + n);
                    if !self.heads {
                        self.adapt(chunk.spare().is_empty(), chunk.len());
                    }
                    self.parse(chunk, limit, out)?;
                    return Poll::Ready(Ok(Filled::Some));
                }
                State::Rest { rest, need, plan, moved } => {
                    let begun = self.begin_piped(&rest, need).or_else(|| self.begin(&rest, need, plan));
                    if let Some(state) = begun {
                        (self.state, self.waiting) = (state, None);
                        continue;
                    }
                    // A connection that waits for memory holds none: others might wait for the memory of this
                    // chunk.
                    let move_now = !moved && rest.len() <= CHUNK_MIN;
                    let rest = if move_now { IoBuf::from(rest.to_vec()) } else { rest };
                    self.state = State::Rest { rest: rest.clone(), need, plan, moved: moved || move_now };
                    let wanted = match plan {
                        Plan::Chunk => need.max(CHUNK_MIN),
                        Plan::Apart => need - rest.len(),
                        Plan::Whole => need - FRAME_LEN,
                    };
                    // The awaited memory is used: if it were freed and requested again, another connection
                    // might always be faster.
                    let memory = ready!(self.wait(cx, wanted));
                    self.state = fill(&rest, need, plan, memory);
                }
                State::Pipe { head, mut piped } => match poll_piped(cx, stream, &mut piped) {
                    Poll::Pending => {
                        self.state = State::Pipe { head, piped };
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(e.into())),
                    Poll::Ready(Ok(Spliced::Some(0))) => return Poll::Ready(Ok(Filled::End)),
                    Poll::Ready(Ok(Spliced::Some(n))) => {
                        self.received += n as u64;
                        if piped.is_whole() {
                            out.push_back([head].into_iter().collect());
                            self.piped = Some(piped);
                            return Poll::Ready(Ok(Filled::Some));
                        }
                        self.state = State::Pipe { head, piped };
                    }
                    // It comes in more pieces than a pipe takes, and so will the next one.
                    Poll::Ready(Ok(Spliced::Full)) => {
                        (self.heads, self.shattered) = (false, true);
                        let length = piped.len();
                        let sinks = piped.into_memory()?;
                        let left = length - sinks.iter().map(IoBufMut::len).sum::<usize>();
                        let at = sinks.iter().take_while(|s| s.len() == s.capacity()).count();
                        self.state = State::Large { parts: [head].into_iter().collect(), sinks, at, left };
                    }
                },
                State::Large { parts, mut sinks, at, left } => {
                    let sink = &mut sinks[at];
                    let room = left.min(sink.spare().len());
                    let n = match poll_into(cx, stream, &mut sink.spare()[..room]) {
                        Poll::Ready(Ok(n)) => n,
                        Poll::Ready(Err(e)) => return Poll::Ready(Err(e.into())),
                        Poll::Pending => {
                            self.state = State::Large { parts, sinks, at, left };
                            return Poll::Pending;
                        }
                    };
                    if n == 0 {
                        return Poll::Ready(Ok(Filled::End));
                    }
                    self.received += n as u64;
                    let filled = sink.len() + n;
                    sink.set_len(filled);
                    let full = sink.spare().is_empty();
                    if left == n {
                        out.push_back(
                            parts.into_iter().chain(sinks.into_iter().map(IoBufMut::freeze)).collect(),
                        );
                        return Poll::Ready(Ok(Filled::Some));
                    }
                    self.state = State::Large { parts, sinks, at: at + usize::from(full), left: left - n };
                }
            }
        }
    }

    /// Gives out the whole messages of a chunk and keeps what is left.
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
        self.heads = left > 0 && self.may_be_piped(&chunk[at..], need);
        let alone = self.heads && left == WRITE_HEAD;
        if !alone && ranges.is_empty() && need <= chunk.capacity() && left < chunk.capacity() {
            self.state = State::Chunk(chunk); // more of the first message fits behind what is there
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
                self.spent = Some(chunk);
                return Ok(());
            }
            chunk.slice(at..at + left)
        };
        if left > 0 {
            let plan = self.plan(&rest, need);
            self.state = State::Rest { rest, need: need.max(FRAME_LEN), plan, moved: false };
        }
        Ok(())
    }

    /// Whether the payload of a message of `need` bytes, framing included, may go into a pipe; `rest` has arrived of it.
    fn may_be_piped(&self, rest: &[u8], need: usize) -> bool {
        self.pipes.is_some()
            && !self.shattered
            && self.end == End::Server
            && need >= WRITE_HEAD + PIPE_MIN
            && rest.len() >= WRITE_HEAD
            && is_plain_write(&rest[FRAME_LEN..], need - FRAME_LEN)
    }

    /// A pipe for the payload of a WRITE of which the head has arrived and no more; memory where there is no pipe.
    fn begin_piped(&mut self, rest: &IoBuf, need: usize) -> Option<State> {
        if rest.len() != WRITE_HEAD || !self.may_be_piped(rest, need) {
            return None;
        }
        let length = need - rest.len();
        let memory = self.arena.try_alloc_sg(length, Class::Payload)?;
        Some(match self.pipes.as_ref()?.take(memory, length) {
            Ok(piped) => State::Pipe { head: rest.slice(FRAME_LEN..rest.len()), piped },
            Err(memory) => fill(rest, need, Plan::Apart, memory),
        })
    }

    /// How to take a message of `need` bytes, framing included, of which `rest` has arrived.
    fn plan(&self, rest: &[u8], need: usize) -> Plan {
        let head_len = match self.end {
            End::Server => WriteRequest::HEAD_LEN + 64, // room for a channel's descriptors
            End::Client => ReadResponse::HEAD_LEN,
        };
        let command = match self.end {
            End::Server => Command::WRITE,
            End::Client => Command::READ,
        };
        let apart = rest.get(FRAME_LEN..).is_some_and(|m| {
            m.len() >= head_len
                && Header::decode(m).is_ok_and(|h| h.command == command && h.next_command == 0)
        });
        if apart && rest.len().max(need - rest.len()) >= LARGE_MIN {
            Plan::Apart
        } else if need > CHUNK_MAX {
            Plan::Whole
        } else {
            Plan::Chunk
        }
    }

    /// Memory for a message of which `rest` has arrived; `None` when there is none now.
    fn begin(&mut self, rest: &IoBuf, need: usize, plan: Plan) -> Option<State> {
        let memory = match plan {
            Plan::Chunk => {
                let chunk = self.chunk(need.max(self.affordable())).or_else(|| self.chunk(need))?;
                if chunk.capacity() < need {
                    return None;
                }
                [chunk].into_iter().collect()
            }
            Plan::Apart => self.arena.try_alloc_sg(need - rest.len(), Class::Payload)?,
            Plan::Whole => {
                let length = need - FRAME_LEN;
                let run =
                    (length <= RUN_MAX).then(|| self.arena.try_alloc_run(length, Class::Payload)).flatten();
                match run {
                    Some(run) => [run].into_iter().collect(),
                    None => self.arena.try_alloc_sg(length, Class::Payload)?,
                }
            }
        };
        Some(fill(rest, need, plan, memory))
    }

    /// The size of the next chunk: the smallest once half of the memory is taken. Connections that hold the beginning
    /// of a message wait for memory for its remainder; if beginnings could take all of it, they would wait for ever.
    fn affordable(&self) -> usize {
        if self.arena.shared_free() > self.most { self.size } else { CHUNK_MIN }
    }

    /// A chunk of about `size` bytes: the last one again, or from the payload budget, or a small one from the reserve,
    /// so that messages without payload are still read when payload memory is spent.
    fn chunk(&mut self, size: usize) -> Option<IoBufMut> {
        if let Some(spent) = self.spent.take()
            && let Ok(mut again) = spent.try_unfreeze()
            && again.capacity() >= size
        {
            again.set_len(0);
            return Some(again);
        }
        self.arena
            .try_alloc(size.min(CHUNK_MAX), Class::Payload)
            .or_else(|| self.arena.try_alloc(CHUNK_MIN, Class::Control))
    }

    fn wait(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<SgMut> {
        let arena = self.arena.clone();
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { arena.alloc_sg(bytes, Class::Payload).await }));
        let memory = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(memory)
    }

    fn adapt(&mut self, full: bool, filled: usize) {
        if full {
            self.size = (self.size * 2).min(SIZE_MAX);
        } else if filled < self.size / 8 {
            self.size = (self.size / 2).max(SIZE_START);
        }
    }
}

/// Goes on with a message of which `rest` has arrived, in memory that is enough for it by its plan. What was waited for
/// may lie scattered: a message that was to have a chunk then has all of the pieces to itself.
fn fill(rest: &IoBuf, need: usize, plan: Plan, mut memory: SgMut) -> State {
    let plan = if plan == Plan::Chunk && memory.len() > 1 { Plan::Whole } else { plan };
    match plan {
        Plan::Chunk => {
            let mut chunk = memory.pop().expect("memory for all of it");
            assert!(chunk.append(rest) == rest.len(), "a message is no longer than a chunk");
            passes::count(Pass::Copy, rest.len());
            State::Chunk(chunk)
        }
        Plan::Apart => {
            let parts = [rest.slice(FRAME_LEN..rest.len())].into_iter().collect();
            State::Large { parts, sinks: memory, at: 0, left: need - rest.len() }
        }
        Plan::Whole => {
            let (mut arrived, mut at) = (&rest[FRAME_LEN..], 0);
            passes::count(Pass::Copy, arrived.len());
            while !arrived.is_empty() {
                arrived = &arrived[memory[at].append(arrived)..];
                at += usize::from(memory[at].spare().is_empty());
            }
            State::Large { parts: Sg::new(), sinks: memory, at, left: need - rest.len() }
        }
    }
}

/// Whether a message of `length` bytes is one WRITE, not signed, whose payload follows its fixed part at once and is all
/// that follows (MS-SMB2 2.2.21).
fn is_plain_write(message: &[u8], length: usize) -> bool {
    let Ok(header) = Header::decode(message) else { return false };
    let lone = header.command == Command::WRITE && header.next_command == 0;
    lone && !header.flags.contains(HeaderFlags::SIGNED)
        && WriteRequest::decode(message).is_ok_and(|w| {
            w.channel == Channel::NONE
                && usize::from(w.data_offset) == WriteRequest::HEAD_LEN
                && WriteRequest::HEAD_LEN + w.length as usize == length
        })
}

enum Spliced {
    /// So many bytes; none at the end of the stream.
    Some(usize),
    /// The pipe takes no more.
    Full,
}

fn poll_piped(cx: &mut Context<'_>, stream: &TcpStream, piped: &mut Piped) -> Poll<io::Result<Spliced>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let tried = stream.try_io(Interest::READABLE, || match piped.fill(stream) {
            // Is it the socket that has nothing, or the pipe that takes nothing? It has, and does not take it: the pipe.
            Err(e) if would_block(&e) && rustix::io::ioctl_fionread(stream)? > 0 => {
                match piped.fill(stream) {
                    Err(e) if would_block(&e) => Ok(Spliced::Full),
                    again => again.map(Spliced::Some),
                }
            }
            once => once.map(Spliced::Some),
        });
        match tried {
            Err(e) if would_block(&e) || e.kind() == io::ErrorKind::Interrupted => {}
            other => return Poll::Ready(other),
        }
    }
}

fn would_block(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock
}

fn poll_into(cx: &mut Context<'_>, stream: &mut TcpStream, space: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut buf = ReadBuf::new(space);
    ready!(Pin::new(stream).poll_read(cx, &mut buf))?;
    Poll::Ready(Ok(buf.filled().len()))
}

#[cfg(test)]
mod tests;
