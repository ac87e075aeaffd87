//! The transport of a connection's messages.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use arena::{Arena, Data, IoBuf, Sg};
use rdma::{Down, Exposed, Exposure, RdmaError, Rights, Stag, WcError};
use smb_direct::{Event, SmbDirect, SmbDirectError};
use smb_tcp::{End, ReadOutcome, Receiver, Sender, StreamError};
use tokio::net::TcpStream;

use crate::Lost;

/// A connection of either kind.
pub(crate) enum Transport {
    Tcp(Box<Tcp>),
    Direct(Box<SmbDirect>),
}

pub(crate) struct Tcp {
    stream: TcpStream,
    receiver: Receiver,
    sender: Sender,
    arrived: VecDeque<Sg>,
}

/// A received message or event.
pub(super) enum Arrival {
    Message {
        data: Sg,
        invalidated: Option<(Stag, Exposed)>,
    },
    /// A steering tag that this side invalidated. `None` if the server had already invalidated it.
    Invalidated {
        stag: Stag,
        exposed: Option<Exposed>,
    },
}

/// Bytes queued in the sender above which no further request is started.
const SEND_HIGH: usize = 4 << 20;
/// Messages waiting for the peer's SMB Direct credits above which no further request is started.
const QUEUED_HIGH: usize = 1024;

impl Transport {
    pub(crate) fn tcp(stream: TcpStream, arena: Arena) -> Transport {
        // The driver batches requests itself; Nagle's algorithm would only add delay.
        let _ = stream.set_nodelay(true);
        let receiver = Receiver::new(arena, End::Client);
        Transport::Tcp(Box::new(Tcp {
            stream,
            receiver,
            sender: Sender::default(),
            arrived: VecDeque::new(),
        }))
    }

    pub(crate) fn direct(direct: SmbDirect) -> Transport {
        Transport::Direct(Box::new(direct))
    }

    /// Whether it accepts more messages to send.
    pub(super) fn accepts_messages(&self) -> bool {
        match self {
            Transport::Tcp(t) => t.sender.bytes() < SEND_HIGH,
            Transport::Direct(d) => d.queued() < QUEUED_HIGH,
        }
    }

    /// Returns the next message or event.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>, limit: usize) -> Poll<Result<Arrival, Lost>> {
        match self {
            Transport::Tcp(t) => loop {
                if let Some(data) = t.arrived.pop_front() {
                    return Poll::Ready(Ok(Arrival::Message { data, invalidated: None }));
                }
                match std::task::ready!(t.receiver.poll(cx, &mut t.stream, limit, &mut t.arrived)) {
                    Ok(ReadOutcome::Bytes) => {}
                    Ok(ReadOutcome::Closed) => return Poll::Ready(Err(Lost::ByServer)),
                    Err(e) => return Poll::Ready(Err(of_stream(&e))),
                }
            },
            Transport::Direct(d) => loop {
                return Poll::Ready(match std::task::ready!(d.poll_event(cx)) {
                    Ok(Event::Message { data, invalidated }) => Ok(Arrival::Message { data, invalidated }),
                    // The connection has ended; the reason is reported next.
                    Ok(Event::Invalidated { result: Err(WcError::Flushed), .. }) => continue,
                    Ok(Event::Invalidated { stag, result }) => {
                        Ok(Arrival::Invalidated { stag, exposed: result.ok() })
                    }
                    // The client starts no RDMA transfers.
                    Ok(Event::RdmaDone { .. }) => continue,
                    Err(e) => Err(of_direct(&e)),
                });
            },
        }
    }

    /// Queues a message.
    pub(super) fn push(&mut self, head: Vec<u8>, payload: Sg) -> Result<(), Lost> {
        match self {
            Transport::Tcp(t) => {
                t.sender.push(head, Data::Bufs(payload));
                Ok(())
            }
            Transport::Direct(d) => {
                let mut message: Sg = [IoBuf::from(head)].into_iter().collect();
                message.extend(payload);
                d.send(message, None).map_err(|e| of_direct(&e))
            }
        }
    }

    /// Sends the queue; returns whether any bytes were sent.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) -> Result<bool, Lost> {
        match self {
            Transport::Tcp(t) => {
                if t.sender.is_empty() {
                    return Ok(false);
                }
                let before = t.sender.bytes();
                match t.sender.poll(cx, &t.stream) {
                    Poll::Ready(Err(e)) => Err(Lost::Transport(e.kind())),
                    _ => Ok(t.sender.bytes() < before),
                }
            }
            Transport::Direct(_) => Ok(false), // `receive` sends the queue
        }
    }

    /// Whether no message waits to be sent.
    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Transport::Tcp(t) => t.sender.is_empty(),
            Transport::Direct(d) => d.queued() == 0,
        }
    }

    /// Gives the server access to `what`. Fails with [`ExposeError::TooMany`] if the caller must try later.
    pub(super) fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, ExposeError> {
        let Transport::Direct(d) = self else {
            unreachable!("payload goes by RDMA on SMB Direct only");
        };
        d.expose(what, rights).map_err(|e| match e {
            SmbDirectError::Rdma(RdmaError::TooManyRegions) => ExposeError::TooMany,
            e => ExposeError::Lost(of_direct(&e)),
        })
    }

    /// Ends an exposure that [`Transport::expose`] started.
    pub(super) fn invalidate(&mut self, stag: Stag) -> Result<(), Lost> {
        match self {
            Transport::Tcp(_) => Ok(()),
            Transport::Direct(d) => d.invalidate(stag).map_err(|e| of_direct(&e)),
        }
    }

    pub(super) fn as_direct(&mut self) -> Option<&mut SmbDirect> {
        match self {
            Transport::Tcp(_) => None,
            Transport::Direct(d) => Some(d),
        }
    }
}

/// Why a buffer was not exposed.
pub(super) enum ExposeError {
    /// The maximum number of buffers is exposed.
    TooMany,
    Lost(Lost),
}

fn of_stream(e: &StreamError) -> Lost {
    match e {
        StreamError::Wire(_) => Lost::Protocol("a malformed frame"),
        StreamError::TooLong { .. } => Lost::Protocol("a message that is too long"),
        StreamError::Io(e) => Lost::Transport(e.kind()),
    }
}

pub(crate) fn of_direct(e: &SmbDirectError) -> Lost {
    match e {
        SmbDirectError::Down(Down::PeerClosed) => Lost::ByServer,
        SmbDirectError::Down(Down::Closed) => Lost::Closed,
        SmbDirectError::Down(Down::Transport(kind)) => Lost::Transport(*kind),
        SmbDirectError::TimedOut(_) | SmbDirectError::Down(Down::TimedOut) => Lost::TimedOut,
        e => {
            tracing::info!("SMB Direct: {e}");
            Lost::Direct
        }
    }
}
