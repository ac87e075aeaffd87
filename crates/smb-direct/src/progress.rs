//! The progress of the peer: the work of a connection that waits for it. The owner of the connection decides for how
//! long.

use crate::SmbDirect;

/// The work that waits for the peer, and the work that the peer has completed so far. Only completions count as
/// progress; posting a request does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages and RDMA Writes queued or handed to the fabric that the peer has not taken yet.
    pub sending: usize,
    /// Messages and RDMA Writes (as work requests) that completed, since the start.
    pub sent: u64,
    /// Bytes of messages queued or handed to the fabric and not completed.
    pub message_bytes: usize,
    /// RDMA Reads handed to the fabric that the peer has not answered yet.
    pub reading: usize,
    /// RDMA Reads that wait until fewer are in flight ([`rdma::QueuePairCaps::ord`]).
    pub reads_waiting: usize,
    /// RDMA Reads answered since the start.
    pub read: u64,
}

/// The completed work, as reported in [`Progress`].
#[derive(Default)]
pub(crate) struct Completed {
    sent: u64,
    read: u64,
    pub(crate) message_bytes: usize,
}

impl Completed {
    /// A work request of the send queue has completed.
    pub(crate) fn completed(&mut self, read: bool, ok: bool) {
        *(if read { &mut self.read } else { &mut self.sent }) += u64::from(ok);
    }
}

impl SmbDirect {
    /// The work that waits for the peer now, and the work that it has completed.
    pub fn progress(&self) -> Progress {
        let sending = self.messages.len() + self.work.len() + self.send_queue_used - self.reads_in_flight;
        Progress {
            sending,
            sent: self.done.sent,
            message_bytes: self.done.message_bytes,
            reading: self.reads_in_flight,
            reads_waiting: self.reads.len(),
            read: self.done.read,
        }
    }

    /// Messages and RDMA transfers queued or handed to the fabric that the peer has not taken, or answered, yet.
    pub fn unfinished(&self) -> usize {
        self.messages.len() + self.work.len() + self.reads.len() + self.send_queue_used
    }

    /// The bytes received so far of a message that the peer has begun and not finished; `None` when there is none, and
    /// while this side has no buffer for the next fragment.
    pub fn assembling(&self) -> Option<usize> {
        self.assembly.length().filter(|_| self.memory.is_none())
    }
}
