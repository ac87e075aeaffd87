//! What a connection waits for its peer to do: its owner decides for how long.

use crate::SmbDirect;

impl SmbDirect {
    /// Messages and RDMA transfers queued or handed to the fabric that the peer has not taken, or answered, yet.
    pub fn unfinished(&self) -> usize {
        self.messages.len() + self.work.len() + self.reads.len() + self.send_queue_used
    }

    /// The bytes so far of a message that the peer has begun and not ended; `None` when there is none, and while it is
    /// us who have no buffer for its next fragment.
    pub fn assembling(&self) -> Option<usize> {
        self.assembly.length().filter(|_| self.memory.is_none())
    }
}
