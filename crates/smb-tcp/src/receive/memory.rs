//! Memory for received messages: chunks, and separate buffers for large messages.

use std::task::{Context, Poll, ready};

use arena::passes::{self, Pass};
use arena::{CHUNK_MAX, CHUNK_MIN, Class, IoBuf, IoBufMut, RUN_MAX, Sg, SgMut};
use smb_wire::frame::FRAME_LEN;
use smb_wire::msg::{ReadResponse, WriteRequest};
use smb_wire::{Command, Header};

use super::{Large, Receiver, State};
use crate::End;

pub(super) const SIZE_START: usize = 16 << 10;
const SIZE_MAX: usize = 256 << 10;
/// A payload message is split if at least this many bytes of it have arrived or are missing: its remainder then
/// gets separate buffers. A shorter message is copied together. In bytes.
const LARGE_MIN: usize = 4 << 10;
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// The whole message goes into one chunk, followed by the next messages.
    Chunk,
    /// The bytes that have arrived stay in their chunk; the remainder gets separate buffers.
    SeparateRemainder,
    /// The whole message gets separate buffers, contiguous if possible: it is longer than a chunk.
    Whole,
}

impl Receiver {
    /// Chooses how to receive a message of `need` bytes, framing included, of which `rest` has arrived.
    pub(super) fn plan(&self, rest: &[u8], need: usize) -> Plan {
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
            Plan::SeparateRemainder
        } else if need > CHUNK_MAX {
            Plan::Whole
        } else {
            Plan::Chunk
        }
    }

    /// Allocates memory for a message of which `rest` has arrived. Returns `None` if none is free now.
    pub(super) fn begin(&mut self, rest: &IoBuf, need: usize, plan: Plan) -> Option<State> {
        let memory = match plan {
            Plan::Chunk => {
                let chunk = self.chunk(need.max(self.affordable())).or_else(|| self.chunk(need))?;
                if chunk.capacity() < need {
                    return None;
                }
                [chunk].into_iter().collect()
            }
            Plan::SeparateRemainder => self.arena.try_alloc_sg(need - rest.len(), Class::Payload)?,
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

    /// Size of the next chunk: the smallest once half of the memory is taken. Connections that hold the start of a
    /// message wait for memory for its remainder. If message starts could take all of the memory, they would wait
    /// forever.
    pub(super) fn affordable(&self) -> usize {
        if self.arena.shared_free() > self.message_max { self.size } else { CHUNK_MIN }
    }

    /// Returns a chunk of about `size` bytes: the last one again, or one from the payload budget, or a small one
    /// from the reserve. The reserve keeps messages without payload readable when payload memory is exhausted.
    pub(super) fn chunk(&mut self, size: usize) -> Option<IoBufMut> {
        if let Some(last_chunk) = self.last_chunk.take()
            && let Ok(mut again) = last_chunk.try_unfreeze()
            && again.capacity() >= size
        {
            again.set_len(0);
            return Some(again);
        }
        self.arena
            .try_alloc(size.min(CHUNK_MAX), Class::Payload)
            .or_else(|| self.arena.try_alloc(CHUNK_MIN, Class::Control))
    }

    pub(super) fn wait(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<SgMut> {
        let arena = self.arena.clone();
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { arena.alloc_sg(bytes, Class::Payload).await }));
        let memory = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(memory)
    }

    pub(super) fn adapt(&mut self, full: bool, filled: usize) {
        if full {
            self.size = (self.size * 2).min(SIZE_MAX);
        } else if filled < self.size / 8 {
            self.size = (self.size / 2).max(SIZE_START);
        }
    }
}

/// Continues with a message of which `rest` has arrived, in memory that is sufficient for its plan. Memory that was
/// waited for may be scattered. A message planned for a chunk then owns all of the pieces.
pub(super) fn fill(rest: &IoBuf, need: usize, plan: Plan, mut memory: SgMut) -> State {
    let plan = if plan == Plan::Chunk && memory.len() > 1 { Plan::Whole } else { plan };
    match plan {
        Plan::Chunk => {
            let mut chunk = memory.pop().expect("memory for all of it");
            assert!(chunk.append(rest) == rest.len(), "a message is no longer than a chunk");
            passes::count(Pass::Copy, rest.len());
            State::Chunk(chunk)
        }
        Plan::SeparateRemainder => {
            let parts = [rest.slice(FRAME_LEN..rest.len())].into_iter().collect();
            State::Large(Large { parts, sinks: memory, at: 0, left: need - rest.len() })
        }
        Plan::Whole => {
            let (mut arrived, mut at) = (&rest[FRAME_LEN..], 0);
            passes::count(Pass::Copy, arrived.len());
            while !arrived.is_empty() {
                arrived = &arrived[memory[at].append(arrived)..];
                at += usize::from(memory[at].spare().is_empty());
            }
            State::Large(Large { parts: Sg::new(), sinks: memory, at, left: need - rest.len() })
        }
    }
}
