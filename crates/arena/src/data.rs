//! Payload on its way out: bytes, or a part of a file that is in memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{Sg, sg_len};

/// Payload that was read.
#[derive(Debug)]
pub enum Data {
    /// Bytes, in order.
    Bufs(Sg),
    /// Bytes of a file that are in memory now, for sendfile.
    File {
        /// The file.
        fd: Arc<OwnedFd>,
        /// Where they begin.
        offset: u64,
        /// How many.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
