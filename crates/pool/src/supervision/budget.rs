//! The limit of hedged reads.

/// Reads per permitted hedge: 2 %. A disk that is slow occasionally needs 1 %; one that is always slow is avoided, and
/// hedging every read would double the load of overloaded disks.
pub const READS_FOR_ONE: u64 = 50;

/// The most saved hedges. They cover the outstanding reads when a disk stops responding.
pub const SAVED_MAX: u64 = 64;

/// A token bucket: one hedge per [`READS_FOR_ONE`] reads, with at most [`SAVED_MAX`] saved.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// The number of reads that are already converted to hedges, or exceeded the limit.
    counted: u64,
    /// The saved hedges, in reads.
    saved: u64,
    taken: u64,
}

impl Budget {
    /// Takes one hedge, after this many reads in total. Returns `false` if none is permitted.
    pub(crate) fn take(&mut self, reads: u64) -> bool {
        // The reads of a removed disk no longer count, so the total may have decreased.
        let new = reads.saturating_sub(self.counted);
        self.counted = reads;
        self.saved = (self.saved + new).min(SAVED_MAX * READS_FOR_ONE);
        let may = self.saved >= READS_FOR_ONE;
        if may {
            self.saved -= READS_FOR_ONE;
            self.taken += 1;
        }
        may
    }

    /// The number of hedges taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests;
