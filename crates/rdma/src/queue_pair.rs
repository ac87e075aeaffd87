//! The queue pair: the interface that every provider implements.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use arena::{IoBufMut, Sg};
use counters::Block;

use crate::{Down, RdmaError, WcError};

/// A steering tag: identifies an exposed buffer on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stag(pub u32);

/// The caller's id for a work request, returned in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// A range of memory that the peer exposed to this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Steering tag of the buffer.
    pub stag: Stag,
    /// Tagged offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// The peer's access to an exposed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// RDMA Read from it.
    RemoteRead,
    /// RDMA Write into it.
    RemoteWrite,
}

/// A buffer to which the peer gets access.
#[derive(Debug)]
pub enum Exposed {
    /// The peer may read it, with [`Rights::RemoteRead`].
    Source(Sg),
    /// The peer may write its capacity up to `length`, with [`Rights::RemoteWrite`]. Several buffers form one
    /// range. They are returned with a filled length up to the first byte that the peer did not write: later bytes
    /// are the earlier contents of the memory. (A provider that cannot track this must clear the buffers first, and
    /// fills them completely.)
    Sink {
        /// The buffers, in order.
        bufs: arena::SgMut,
        /// Number of exposed bytes.
        length: u32,
    },
}

/// The address of an exposed buffer, to be sent to the peer in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// Steering tag: random, and not one of the tags that were recently valid on this connection.
    pub stag: Stag,
    /// Tagged offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
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
        /// Data to write.
        src: Sg,
        /// Target; its length is the source's.
        to: Remote,
    },
    /// Reads the peer's memory. At most [`QueuePairCaps::ord`] are in flight; further ones wait in order.
    Read {
        /// Target buffer; its filled length is set to the number of bytes read.
        sink: IoBufMut,
        /// Source; its length is at most the sink's capacity.
        from: Remote,
    },
    /// A buffer for one arriving message.
    Recv(IoBufMut),
    /// Invalidates a steering tag of this side.
    Invalidate(Stag),
}

/// The capabilities of a queue pair, fixed once it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairCaps {
    /// Maximum number of this side's RDMA Reads in flight: min(our ORD, the peer's IRD).
    pub ord: u32,
    /// Maximum number of the peer's RDMA Reads in flight: our IRD.
    pub ird: u32,
    /// Maximum number of buffers in one [`Sg`].
    pub max_sge: usize,
    /// Maximum number of outstanding work requests, for sends and receives each.
    pub max_wr: usize,
    /// Whether the peer can access the sink of a Read in flight (iWARP cards). The caller then treats it as
    /// exposed.
    pub read_sink_exposed: bool,
}

/// A finished work request.
#[derive(Debug)]
pub struct Completion {
    /// Id of the request.
    pub id: WrId,
    /// Its result.
    pub result: Result<Done, WcError>,
}

/// Result of a work request; it returns buffers by value.
#[derive(Debug)]
pub enum Done {
    /// The fabric has taken the message; its buffers are free for reuse.
    Send,
    /// The source buffers are free for reuse. The data is placed before any later Send of this side arrives.
    Write,
    /// The data that was read.
    Read(IoBufMut),
    /// A message arrived.
    Recv {
        /// The message.
        buf: IoBufMut,
        /// The steering tag of this side that the message invalidated, and the buffer that was exposed under it.
        invalidated: Option<(Stag, Exposed)>,
    },
    /// The steering tag is now invalid; this was its buffer.
    Invalidate(Exposed),
}

/// One reliable connection.
pub trait QueuePair: Send {
    /// Its capabilities.
    fn caps(&self) -> QueuePairCaps;

    /// Gives the peer access to `what`. The queue pair holds it until [`Wr::Invalidate`] or the peer invalidates
    /// the tag.
    ///
    /// # Errors
    /// [`RdmaError::TooManyRegions`], [`RdmaError::Down`]; `what` is dropped.
    fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError>;

    /// Posts a work request. Sends, Writes, Reads and Invalidates start in order. Each completes once, with its
    /// `id`, through [`QueuePair::poll`]. The caller must poll after posting: posting wakes no task. An Invalidate
    /// does not wait for earlier requests: once it has completed, nothing accesses the buffer any more.
    ///
    /// # Errors
    /// The reason, and the unchanged request.
    fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)>;

    /// Makes progress and appends completions to `out`. Ready if it appended any. Ready with an error if the
    /// connection has ended and earlier calls have appended the completions of all outstanding requests; further
    /// calls return the same error.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>>;

    /// Closes the connection: further polls send the queued requests, then close it, and [`QueuePair::poll`]
    /// returns [`Down::Closed`].
    fn close(&mut self);

    /// Number of buffers exposed now.
    fn exposed(&self) -> usize;

    /// The block in which the queue pair counts posted requests and transferred bytes (the cells of
    /// [`counters::transfers`]). `None` if it does not count. The driver of the queue pair may count in the other
    /// cells of the block.
    fn counters(&self) -> Option<Arc<Block>> {
        None
    }

    /// The local and the remote address; `None` if the fabric has no addresses.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}
