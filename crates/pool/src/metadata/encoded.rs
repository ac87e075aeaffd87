//! A state, encoded for checkpoints. It may be large: it is in memory once, and the checkpoints of all voters share it
//! after their first block.

use arena::IoBuf;

use crate::State;
use crate::format::{BLOCK, HEADER, Header, encode_state, framed};

/// See the module.
pub(crate) struct Encoded {
    /// The encoded state, padded with zeros to the end of the frame's last block.
    bytes: IoBuf,
    length: usize,
}

/// Bytes of a checkpoint's body before the state: the position of the next record in the ring.
const RING_AT: usize = 8;

impl Encoded {
    pub(crate) fn new(state: &State) -> Encoded {
        let mut bytes = encode_state(state);
        let length = bytes.len();
        bytes.resize(framed(RING_AT + length) - HEADER - RING_AT, 0);
        Encoded { bytes: IoBuf::from(bytes), length }
    }

    /// Encodes the checkpoint with this header: its first block, and the blocks after it.
    pub(crate) fn checkpoint(&self, header: &Header, ring_at: u64) -> [IoBuf; 2] {
        let ring_at = ring_at.to_le_bytes();
        let mut head = header.seal(&[&ring_at, &self.bytes[..self.length]]).to_vec();
        head.extend_from_slice(&ring_at);
        let first = BLOCK - head.len();
        head.extend_from_slice(&self.bytes[..first]);
        [IoBuf::from(head), self.bytes.slice(first..self.bytes.len())]
    }
}
