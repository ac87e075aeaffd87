//! Payload to be sent: bytes in memory, or a range of a file in the page cache.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{Sg, sg_len};

/// Payload that was read.
#[derive(Debug)]
pub enum Data {
    /// Bytes, in order.
    Bufs(Sg),
    /// A range of a file that is in the page cache, for sendfile.
    File {
        /// The file.
        fd: Arc<OwnedFd>,
        /// The start of the range, in bytes.
        offset: u64,
        /// The length of the range, in bytes.
        length: u32,
    },
}

impl Data {
    /// No bytes.
    pub fn empty() -> Data {
        Data::Bufs(Sg::new())
    }

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Data::Bufs(sg) => sg_len(sg),
            Data::File { length, .. } => *length as usize,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
