//! Information about a slow disk, for a caller that can read the same data from several disks.

/// The read latency of a disk according to its supervision, which reports late reads with
/// [`Completion::late`](crate::Completion::late).
pub trait SlowReads: Send + Sync {
    /// Whether the disk is so much slower than its peers that data should be read elsewhere if possible.
    /// Cheap: called before each read. Occasionally returns false for one read, to test whether the disk is
    /// still slow.
    fn is_avoided(&self) -> bool;

    /// Whether a late read of this disk may be hedged, that is, repeated on another disk; if so, it is
    /// counted. Only a few reads may be hedged, because hedging all of them adds load.
    fn may_hedge(&self) -> bool;
}
