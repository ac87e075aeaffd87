//! How many reads may be hedged.

/// Reads for each that may be hedged: 2 %. A disk that is slow now and then needs 1 %; one that is slow all
/// the time is avoided, and hedging every read would double the load of disks that are slow because they have
/// too much to do.
pub const READS_FOR_ONE: u64 = 50;

/// The hedges that idle times save. It covers the outstanding reads when a disk stops answering.
pub const SAVED_MAX: u64 = 64;

/// At any moment no more hedges have been taken than one for each [`READS_FOR_ONE`] reads; nor many at a
/// time, however many reads there were.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Reads that are paid for or were too many to save.
    counted: u64,
    /// In reads.
    saved: u64,
    taken: u64,
}

impl Budget {
    /// Whether one more may be hedged, after this many reads in all.
    pub(crate) fn take(&mut self, reads: u64) -> bool {
        // The reads of a removed disk no longer count: then there are fewer than before.
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

    /// How many were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests;
