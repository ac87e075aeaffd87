//! Receives the payload of large plain WRITEs into a pipe.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use arena::{Class, IoBuf, IoBufMut, PipedPayload, Sg};
use smb_wire::frame::FRAME_LEN;
use smb_wire::msg::{Channel, WriteRequest};
use smb_wire::{Command, Decode, Header, HeaderFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::memory::{Plan, fill};
use super::{CONTINUE, Large, ReadOutcome, Receiver, State, Step};
use crate::End;

/// The shortest payload that goes into a pipe, in bytes.
pub(super) const PIPE_MIN: usize = 256 << 10;
/// Framing and fixed part of a WRITE without a channel, in bytes: the payload usually follows.
pub(super) const WRITE_HEAD: usize = FRAME_LEN + WriteRequest::HEAD_LEN;

impl Receiver {
    /// Whether the payload of a message of `need` bytes, framing included, may go into a pipe. `rest` has arrived.
    pub(super) fn may_be_piped(&self, rest: &[u8], need: usize) -> bool {
        self.pipes.is_some()
            && !self.is_fragmented
            && self.end == End::Server
            && need >= WRITE_HEAD + PIPE_MIN
            && rest.len() >= WRITE_HEAD
            && is_plain_write(&rest[FRAME_LEN..], need - FRAME_LEN)
    }

    /// Starts to receive the payload of a WRITE of which exactly the head has arrived: into a pipe, or into memory
    /// if no pipe is free. Returns `None` if the message does not qualify or no memory is free.
    pub(super) fn begin_piped(&mut self, rest: &IoBuf, need: usize) -> Option<State> {
        if rest.len() != WRITE_HEAD || !self.may_be_piped(rest, need) {
            return None;
        }
        let length = need - rest.len();
        let memory = self.arena.try_alloc_sg(length, Class::Payload)?;
        Some(match self.pipes.as_ref()?.take(memory, length) {
            Ok(piped) => State::Pipe { head: rest.slice(FRAME_LEN..rest.len()), piped },
            Err(memory) => fill(rest, need, Plan::SeparateRemainder, memory),
        })
    }

    /// Moves payload from the socket into a pipe.
    pub(super) fn poll_pipe(
        &mut self,
        cx: &mut Context<'_>,
        stream: &TcpStream,
        head: IoBuf,
        mut piped: PipedPayload,
        out: &mut VecDeque<Sg>,
    ) -> Step {
        let Poll::Ready(spliced) = poll_piped(cx, stream, &mut piped) else {
            self.state = State::Pipe { head, piped };
            return Poll::Pending;
        };
        match spliced? {
            Spliced::Some(0) => Poll::Ready(Ok(Some(ReadOutcome::Closed))),
            Spliced::Some(n) => {
                self.received += n as u64;
                if piped.is_whole() {
                    out.push_back([head].into_iter().collect());
                    self.piped = Some(piped);
                    return Poll::Ready(Ok(Some(ReadOutcome::Bytes)));
                }
                self.state = State::Pipe { head, piped };
                CONTINUE
            }
            // The payload arrives in more segments than a pipe has slots; later ones probably do, too.
            Spliced::Full => {
                (self.reads_head_only, self.is_fragmented) = (false, true);
                let length = piped.len();
                let sinks = piped.into_memory()?;
                let left = length - sinks.iter().map(IoBufMut::len).sum::<usize>();
                let at = sinks.iter().take_while(|s| s.len() == s.capacity()).count();
                let parts = [head].into_iter().collect();
                self.state = State::Large(Large { parts, sinks, at, left });
                CONTINUE
            }
        }
    }
}

/// Whether a message of `length` bytes is a single unsigned WRITE whose payload directly follows the fixed part and
/// ends the message (MS-SMB2 2.2.21).
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
    /// Number of bytes moved; 0 at the end of the stream.
    Some(usize),
    /// The pipe is full.
    Full,
}

fn poll_piped(
    cx: &mut Context<'_>,
    stream: &TcpStream,
    piped: &mut PipedPayload,
) -> Poll<io::Result<Spliced>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let tried = stream.try_io(Interest::READABLE, || match piped.fill(stream) {
            // Either the socket is empty or the pipe is full. The socket has bytes: so the pipe is full.
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
