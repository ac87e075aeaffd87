//! Decorator that counts a disk's reads, writes and flushes.

use std::ops::Range;
use std::sync::Arc;

use arena::{Sg, SgMut, sg_len};
use counters::{IoKind, IoTally, PendingIo};
use env::{Ctx, Epoch, Io};

use crate::{Callback, Disk, DiskError, DiskInfo, Outcome, Read, Written};

/// See the module. All other calls are forwarded.
pub struct Counted {
    below: Arc<dyn Disk>,
    tally: Arc<IoTally>,
}

impl Counted {
    /// Counts the I/O to `below` through this value in `tally`.
    pub fn new(below: Arc<dyn Disk>, tally: Arc<IoTally>) -> Arc<Counted> {
        Arc::new(Counted { below, tally })
    }

    /// Counts the end of an I/O. A completed one stays completed.
    fn count_end<T: Outcome>(io: Io<T>, begun: PendingIo, bytes: u64) -> Io<T> {
        io.map(move |outcome| outcome.counted(begun, bytes))
    }
}

fn length(dst: &SgMut) -> u64 {
    dst.iter().map(|b| b.len() as u64).sum()
}

impl Disk for Counted {
    fn info(&self) -> &DiskInfo {
        self.below.info()
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<Read> {
        let (begun, bytes) = (self.tally.begin(IoKind::Read), length(&dst));
        Self::count_end(self.below.read(c, offset, dst), begun, bytes)
    }

    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Callback<Read>) {
        let then = then.counted(self.tally.begin(IoKind::Read), length(&dst));
        self.below.read_then(c, offset, dst, then);
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Written> {
        let (begun, bytes) = (self.tally.begin(IoKind::Write), sg_len(&src) as u64);
        Self::count_end(self.below.write(c, offset, src), begun, bytes)
    }

    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Callback<Written>) {
        let then = then.counted(self.tally.begin(IoKind::Write), sg_len(&src) as u64);
        self.below.write_then(c, offset, src, then);
    }

    fn flush(&self, c: &Ctx) -> Io<Written> {
        let begun = self.tally.begin(IoKind::Flush);
        Self::count_end(self.below.flush(c), begun, 0)
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Written> {
        self.below.discard(c, offset, length)
    }

    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Written> {
        self.below.fence(c, epoch)
    }

    fn allocated(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        self.below.allocated(c, offset, length)
    }

    fn check(&self, c: &Ctx) -> Io<Written> {
        self.below.check(c)
    }

    fn tally(&self) -> Option<&Arc<IoTally>> {
        Some(&self.tally)
    }
}

#[cfg(test)]
mod tests;
