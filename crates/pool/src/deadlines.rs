//! How long disks may take.

use std::time::Duration;

use crate::HANGS;

/// How long an I/O may take. The default is for the disks of one machine, which may need seconds to recover a sector; a
/// cluster, which has other copies to ask, wants an answer in less than a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Of an owner: a disk that takes longer leaves, where the pool continues without it. See [`Deadlines::log`], too.
    pub data: Duration,
    /// Of metadata: one that takes longer has failed. Longer than a disk's own error recovery.
    pub metadata: Duration,
}

impl Deadlines {
    /// Of an I/O to a log: one that takes longer has failed. Before that the disk leaves, if it can.
    pub fn log(&self) -> Duration {
        3 * self.data
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { data: HANGS, metadata: Duration::from_secs(30) }
    }
}
