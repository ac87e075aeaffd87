//! Progress of the peer. The owner of the connection decides how long it waits without progress.

use crate::SmbDirect;

/// Work that waits for the peer, and work that has completed. Only completions count as progress; posting a request
/// does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages and RDMA Writes, queued or posted, that have not completed.
    pub sending: usize,
    /// Messages and RDMA Writes (as work requests) completed since the start.
    pub sent: u64,
    /// Bytes of messages, queued or posted, that have not completed.
    pub message_bytes: usize,
    /// RDMA Reads posted but not completed.
    pub reading: usize,
    /// RDMA Reads that wait for a free slot ([`rdma::QueuePairCaps::ord`]).
    pub reads_waiting: usize,
    /// RDMA Reads completed since the start.
    pub read: u64,
}

/// Completed work, as reported in [`Progress`].
#[derive(Default)]
pub(crate) struct Completed {
    sent: u64,
    read: u64,
    pub(crate) message_bytes: usize,
}

impl Completed {
    /// Records that a work request of the send queue completed.
    pub(crate) fn completed(&mut self, read: bool, ok: bool) {
        *(if read { &mut self.read } else { &mut self.sent }) += u64::from(ok);
    }
}

impl SmbDirect {
    /// Returns the work that waits for the peer now, and the completed work.
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

    /// Number of messages and RDMA transfers, queued or posted, that have not completed.
    pub fn unfinished(&self) -> usize {
        self.messages.len() + self.work.len() + self.reads.len() + self.send_queue_used
    }

    /// Bytes received so far of a partial message. Returns `None` if there is no partial message, or while this
    /// side has no buffer for the next fragment.
    pub fn assembling(&self) -> Option<usize> {
        self.assembly.length().filter(|_| self.memory.is_none())
    }
}
