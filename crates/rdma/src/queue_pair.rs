//! The queue pair: the interface of every provider.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use arena::{IoBufMut, Sg};
use counters::Block;

use crate::{Down, RdmaError, WcError};

/// A steering tag: names an exposed buffer on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stag(pub u32);

/// The caller's id for a work request, returned in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// A range of the peer's memory that it exposed to this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its steering tag.
    pub stag: Stag,
    /// Tagged offset of the first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

/// The access of the peer to an exposed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// RDMA Read from it.
    RemoteRead,
    /// RDMA Write into it.
    RemoteWrite,
}

/// A buffer handed over for the peer to reach.
#[derive(Debug)]
pub enum Exposed {
    /// The peer may read it: with [`Rights::RemoteRead`].
    Source(Sg),
    /// The peer may write its whole capacity up to `length`: with [`Rights::RemoteWrite`]. Several buffers form one
    /// range. They are returned filled as far as the peer has written them from the start without a gap: the bytes
    /// behind that are the former contents of the memory. (A provider that cannot know has to clear them first, and
    /// fills all.)
    Sink {
        /// The memory, in order.
        bufs: arena::SgMut,
        /// How many bytes of it are exposed.
        length: u32,
    },
}

/// The address of an exposed buffer, for the descriptor that is sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// Its steering tag: random, never one that was valid on this connection shortly before.
    pub stag: Stag,
    /// Tagged offset of its first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

/// A work request.
#[derive(Debug)]
pub enum Wr {
    /// Sends a message into the peer's next posted receive, optionally invalidating one of the peer's steering tags.
    Send {
        /// The message.
        sg: Sg,
        /// The peer's steering tag to invalidate on arrival.
        invalidate: Option<Stag>,
    },
    /// Writes into the peer's memory.
    Write {
        /// From here.
        src: Sg,
        /// To there; its length is the source's.
        to: Remote,
    },
    /// Reads the peer's memory. At most [`QueuePairCaps::ord`] are in flight; further ones wait in order.
    Read {
        /// Into this buffer; its length is set to what was read.
        sink: IoBufMut,
        /// From there; its length is at most the sink's capacity.
        from: Remote,
    },
    /// A buffer for one arriving message.
    Recv(IoBufMut),
    /// Invalidates one of our own steering tags.
    Invalidate(Stag),
}

/// The capabilities of a queue pair, fixed once it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairCaps {
    /// RDMA Reads that may be in flight from here: min(our ORD, the peer's IRD).
    pub ord: u32,
    /// RDMA Reads that the peer may have in flight: our IRD.
    pub ird: u32,
    /// The most buffers in one [`Sg`].
    pub max_sge: usize,
    /// Outstanding work requests at most, sends and receives each.
    pub max_wr: usize,
    /// The sink of a Read is reachable by the peer while it is in flight (iWARP cards): the caller treats it as
    /// exposed.
    pub read_sink_exposed: bool,
}

/// A finished work request.
#[derive(Debug)]
pub struct Completion {
    /// The request.
    pub id: WrId,
    /// Its result.
    pub result: Result<Done, WcError>,
}

/// A work request's result; buffers come back by value.
#[derive(Debug)]
pub enum Done {
    /// The message is handed to the fabric, its buffers are free for reuse.
    Send,
    /// The source buffers are free for reuse; the data is placed before any later Send of ours arrives.
    Write,
    /// The data, complete.
    Read(IoBufMut),
    /// A message arrived.
    Recv {
        /// The message.
        buf: IoBufMut,
        /// The steering tag of ours that it invalidated, with the buffer that was exposed under it.
        invalidated: Option<(Stag, Exposed)>,
    },
    /// The steering tag is invalid now; this was its buffer.
    Invalidate(Exposed),
}

/// One reliable connection.
pub trait QueuePair: Send {
    /// Its capabilities.
    fn caps(&self) -> QueuePairCaps;

    /// Gives the peer access to `what`. The queue pair holds it until the tag is invalidated, by [`Wr::Invalidate`] or
    /// by the peer.
    ///
    /// # Errors
    /// [`RdmaError::TooManyRegions`], [`RdmaError::Down`]; `what` is dropped.
    fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError>;

    /// Posts a work request. Sends, Writes, Reads and Invalidates start in order; each completes once, with
    /// its `id`, through [`QueuePair::poll`], which the caller calls afterwards: posting wakes no task. An
    /// Invalidate need not wait for earlier requests: nothing reaches the buffer any more once it has
    /// completed.
    ///
    /// # Errors
    /// The reason and the request itself, unchanged.
    fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)>;

    /// Makes progress and appends completions to `out`. Ready when any were appended; ready with an error when the
    /// connection has ended and every outstanding request's completion has been appended by earlier calls, and with
    /// the same error if called again.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>>;

    /// Ends the connection: further polls send the queued requests, then the connection is closed and
    /// [`QueuePair::poll`] reports [`Down::Closed`].
    fn close(&mut self);

    /// Buffers exposed now.
    fn exposed(&self) -> usize;

    /// The block in which it counts posted requests and transferred bytes (the cells of [`counters::transfers`]);
    /// `None`: it does not count. The driver of the queue pair may count in the other cells of the block.
    fn counters(&self) -> Option<Arc<Block>> {
        None
    }

    /// The addresses of both sides, this one's first, where the fabric has addresses.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}
