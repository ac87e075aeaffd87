//! What a caller that can read the same data from several disks has to know of a slow one.

/// The latency of a disk's reads, as the disk's supervision knows it. Late reads are reported with
/// [`Completion::late`](crate::Completion::late).
pub trait SlowReads: Send + Sync {
    /// Whether the disk is so much slower than its peers that data is to be read elsewhere, if it can be. Cheap: asked
    /// before each read. Now and then `false` for one read, which shows whether the disk still is.
    fn is_avoided(&self) -> bool;

    /// Whether a late read of this disk may be hedged: the data is read elsewhere too. Counts it, if so. Few reads may,
    /// because those of all disks are more load.
    fn may_hedge(&self) -> bool;
}
