//! Messages to send.

use arena::Sg;
use rdma::Stag;
use smallvec::SmallVec;
use vfs::Data;

use crate::inbox::Notice;
use crate::request::Push;

/// One transport message: a head, then payload. The transport adds its framing.
#[derive(Debug)]
pub(crate) struct OutMessage {
    /// Header, body and small payloads; for a compound the whole message.
    pub(crate) head: Vec<u8>,
    /// The payload that follows the head on the wire.
    pub(crate) payload: Data,
    /// RDMA Writes that must be placed before this message arrives.
    pub(crate) pushes: SmallVec<[Push; 1]>,
    /// The client's steering tag that this message invalidates.
    pub(crate) invalidate: Option<Stag>,
    /// Notices to process after it.
    pub(crate) then: Vec<Notice>,
}

impl OutMessage {
    /// A message without payload.
    pub(crate) fn plain(head: Vec<u8>) -> OutMessage {
        OutMessage {
            head,
            payload: Data::Bufs(Sg::new()),
            pushes: SmallVec::new(),
            invalidate: None,
            then: Vec::new(),
        }
    }

    /// Bytes of memory that it holds: the message, and the payload of its RDMA Writes.
    pub(crate) fn cost(&self) -> usize {
        self.len() + self.pushes.iter().map(|p| arena::sg_len(&p.data)).sum::<usize>()
    }

    /// Bytes on the wire, the transport's framing not counted.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}
