//! From a TCP stream to messages, without copying payload.
//!
//! Bytes are read into a chunk of the arena; every whole message in it becomes a slice of it. What is left of a message
//! that did not arrive whole is either a few bytes, which are copied to the next chunk, or the beginning of a message
//! with much payload, whose remainder is then read straight into memory of its own. An idle connection holds no chunk.
//!
//! Invariant: the bytes of the stream are, in order: the messages given out, the state's bytes, what is not read yet.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arena::passes::{self, Pass};
use arena::{Arena, CHUNK_MAX, CHUNK_MIN, Class, IoBuf, IoBufMut, Sg, SgMut};
use env::BoxFuture;
use smb_wire::frame::{self, FRAME_LEN};
use smb_wire::msg::{ReadResponse, WriteRequest};
use smb_wire::{Command, Header};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use crate::{End, StreamError};

/// The reading half of a connection.
pub struct Receiver {
    arena: Arena,
    end: End,
    state: State,
    /// The size of the next chunk: grows while reads fill it, shrinks when they do not.
    size: usize,
    /// The chunk read last: reused when nobody holds a part of it any more.
    spent: Option<IoBuf>,
    waiting: Option<BoxFuture<SgMut>>,
    /// Bytes read since the connection was made.
    received: u64,
}

enum State {
    /// Between messages.
    Idle,
    /// A chunk being filled; a message begins at its start.
    Chunk(IoBufMut),
    /// The beginning of a message, and what it needs.
    Rest { rest: IoBuf, need: usize, plan: Plan, moved: bool },
    /// A message with much payload: its beginning, and the memory for the remainder.
    Large { parts: Sg, sinks: SgMut, at: usize, left: usize },
    /// A message too large for a chunk that must lie in one piece.
    Heap { buf: Vec<u8>, filled: usize },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Chunk,
    Large,
    Heap,
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

impl Receiver {
    /// Reads into `arena`'s memory.
    pub fn new(arena: Arena, end: End) -> Receiver {
        Receiver { arena, end, state: State::Idle, size: SIZE_START, spent: None, waiting: None, received: 0 }
    }

    /// Whether no message is half read.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Bytes read so far: a message that grows is not stalled.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether it is us who hold up the stream, for want of memory.
    pub fn waits_for_memory(&self) -> bool {
        self.waiting.is_some()
    }

    /// Reads once, and appends the messages that are whole to `out`. `limit` is the longest message taken, in bytes.
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
        loop {
            match std::mem::replace(&mut self.state, State::Idle) {
                State::Idle => {
                    let Poll::Ready(readable) = stream.poll_read_ready(cx) else {
                        self.spent = None; // an idle connection holds no memory
                        return Poll::Pending;
                    };
                    readable?;
                    match self.chunk(self.affordable()) {
                        Some(chunk) => self.state = State::Chunk(chunk),
                        None => ready!(self.wait(cx, CHUNK_MIN)),
                    }
                }
                State::Chunk(mut chunk) => {
                    let before = chunk.len();
                    let read = poll_into(cx, stream, chunk.spare());
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
                    self.adapt(chunk.spare().is_empty(), chunk.len());
                    self.parse(chunk, limit, out)?;
                    return Poll::Ready(Ok(Filled::Some));
                }
                State::Rest { rest, need, plan, moved } => match self.begin(&rest, need, plan) {
                    Some(state) => self.state = state,
                    None => {
                        // Who waits for memory holds none: others might wait for what this chunk would keep.
                        let move_now = !moved && rest.len() <= CHUNK_MIN;
                        let rest = if move_now { IoBuf::from(rest.to_vec()) } else { rest };
                        self.state = State::Rest { rest, need, plan, moved: moved || move_now };
                        let wanted = if plan == Plan::Chunk { need.max(CHUNK_MIN) } else { need };
                        ready!(self.wait(cx, wanted.min(CHUNK_MAX)));
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
                State::Heap { mut buf, filled } => {
                    let n = match poll_into(cx, stream, &mut buf[filled..]) {
                        Poll::Ready(Ok(n)) => n,
                        Poll::Ready(Err(e)) => return Poll::Ready(Err(e.into())),
                        Poll::Pending => {
                            self.state = State::Heap { buf, filled };
                            return Poll::Pending;
                        }
                    };
                    if n == 0 {
                        return Poll::Ready(Ok(Filled::End));
                    }
                    self.received += n as u64;
                    if filled + n == buf.len() {
                        out.push_back([IoBuf::from(buf)].into_iter().collect());
                        return Poll::Ready(Ok(Filled::Some));
                    }
                    self.state = State::Heap { buf, filled: filled + n };
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
        if ranges.is_empty() && need <= chunk.capacity() && left < chunk.capacity() {
            self.state = State::Chunk(chunk); // more of the first message fits behind what is there
            return Ok(());
        }
        let chunk = chunk.freeze();
        out.extend(
            ranges.iter().map(|&(start, len)| [chunk.slice(start..start + len)].into_iter().collect::<Sg>()),
        );
        if left > 0 {
            let rest = chunk.slice(at..at + left);
            let plan = self.plan(&rest, need);
            self.state = State::Rest { rest, need: need.max(FRAME_LEN), plan, moved: false };
        } else {
            self.spent = Some(chunk);
        }
        Ok(())
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
            Plan::Large
        } else if need > CHUNK_MAX {
            Plan::Heap
        } else {
            Plan::Chunk
        }
    }

    /// Memory for a message of which `rest` has arrived; `None` when there is none now.
    fn begin(&mut self, rest: &IoBuf, need: usize, plan: Plan) -> Option<State> {
        match plan {
            Plan::Chunk => {
                let mut chunk = self.chunk(need.max(self.affordable())).or_else(|| self.chunk(need))?;
                if chunk.capacity() < need {
                    return None;
                }
                chunk.append(rest);
                passes::count(Pass::Copy, rest.len());
                Some(State::Chunk(chunk))
            }
            Plan::Large => {
                let left = need - rest.len();
                let sinks = self.arena.try_alloc_sg(left, Class::Payload)?;
                let parts = [rest.slice(FRAME_LEN..rest.len())].into_iter().collect();
                Some(State::Large { parts, sinks, at: 0, left })
            }
            Plan::Heap => {
                let mut buf = vec![0; need - FRAME_LEN];
                let filled = rest.len() - FRAME_LEN;
                buf[..filled].copy_from_slice(&rest[FRAME_LEN..]);
                passes::count(Pass::Copy, filled);
                Some(State::Heap { buf, filled })
            }
        }
    }

    /// The size of the next chunk: the smallest once half of the memory is taken. Connections that hold the beginning
    /// of a message wait for memory for its remainder; if beginnings could take all of it, they would wait for ever.
    fn affordable(&self) -> usize {
        let usage = self.arena.usage();
        if usage.used < usage.budget / 2 { self.size } else { CHUNK_MIN }
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

    fn wait(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        let arena = self.arena.clone();
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { arena.alloc_sg(bytes, Class::Payload).await }));
        // What was waited for is given back at once: whoever asks next, asks for what it needs by then.
        let _ = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(())
    }

    fn adapt(&mut self, full: bool, filled: usize) {
        if full {
            self.size = (self.size * 2).min(SIZE_MAX);
        } else if filled < self.size / 8 {
            self.size = (self.size / 2).max(SIZE_START);
        }
    }
}

fn poll_into(cx: &mut Context<'_>, stream: &mut TcpStream, space: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut buf = ReadBuf::new(space);
    ready!(Pin::new(stream).poll_read(cx, &mut buf))?;
    Poll::Ready(Ok(buf.filled().len()))
}
