//! The deadlines of I/O to disks.

use std::time::Duration;

use crate::HANGS;

/// How long an I/O may take. The default is for the disks of one machine, which may need seconds to recover a sector; a
/// cluster, which can read other copies, needs a result in less than a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For owners: a disk that takes longer is removed from service, if the pool can continue without it. See also
    /// [`Deadlines::log`].
    pub data: Duration,
    /// For metadata, after which an I/O has failed. Longer than a disk's own error recovery.
    pub metadata: Duration,
}

impl Deadlines {
    /// For an I/O to a log, after which it has failed. Before that the disk is removed from service, if possible.
    pub fn log(&self) -> Duration {
        3 * self.data
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { data: HANGS, metadata: Duration::from_secs(30) }
    }
}
