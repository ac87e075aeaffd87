//! Which copy is read, and when another one is read too.
//!
//! A read that its disk has not completed in the time that 99 of 100 of its recent reads took is also sent to
//! another copy, if the [budget](crate::supervision::budget) allows; the first valid result counts. The other I/O
//! continues, and keeps its buffers until it completes: the caller gets those of the result that counts.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arena::SgMut;
use disk::Read;
use env::Moment;
use futures_util::future::{Either, select};

use super::Space;
use super::copies::Copy;
use crate::disks::{DataDisk, Reading};
use crate::path::DataPath;
use crate::{GROUP_UNITS, RowNumber};

/// Whether bytes are what was written.
type Good<'a> = &'a (dyn Fn(&mut SgMut) -> bool + Sync);

impl Space {
    /// The copy that will answer first, of those that are current in all of these units: the shortest queue,
    /// in reads of that disk. Disks that are alike within a factor of two count as equal, and of equals it is
    /// another for each group. Outliers are read only if there is no other.
    pub(super) fn choose<'a>(&self, now: Moment, copies: &'a [Copy], units: &Range<u32>) -> Option<&'a Copy> {
        let regions = self.inner.regions.of(units);
        let turn = (units.start / GROUP_UNITS as u32) as usize;
        let current =
            || copies.iter().filter(|c| c.is_current(regions)).filter_map(|c| Some((c, c.disk.as_ref()?)));
        // Without knowing all of them none is preferred.
        let typical = |known: Option<Duration>, next: Option<Duration>| Some(known?.min(next?));
        let fastest = current().map(|(_, d)| d.pulse.typical(now)).reduce(typical).flatten();
        let rank = |(copy, disk): &(&Copy, &Arc<DataDisk>)| {
            let pulse = &disk.pulse;
            let times = fastest.zip(pulse.typical(now)).map_or(1, |(f, t)| times(t, f));
            let queue = (u64::from(pulse.in_flight()) + 1).saturating_mul(times);
            (pulse.is_avoided(now), queue, (copy.index + turn) % copies.len().max(1))
        };
        current().min_by_key(rank).map(|(copy, _)| copy)
    }

    /// After how long a read of a disk is late: never, if it may not be hedged, or there is no other copy.
    pub(super) fn late(&self, disk: &DataDisk, copies: &[Copy], units: &Range<u32>) -> Option<Duration> {
        let regions = self.inner.regions.of(units);
        let another = self.path.is_hedging() && copies.iter().filter(|c| c.is_current(regions)).count() > 1;
        another.then(|| disk.pulse.hedge_after())
    }

    /// Waits for a read of units of a column, and reads another copy too when it is late.
    pub(super) async fn hedged(
        &self,
        first: &Reading,
        row: RowNumber,
        column: u8,
        units: &Range<u32>,
        good: Good<'_>,
    ) -> Read {
        first.disk().pulse.count_user_read();
        if !first.ends_in_time().await {
            return self.hedge(first, row, column, units, good).await;
        }
        first.answer(&self.path.io, &self.path.env).await
    }

    /// It takes too long: another copy is read, too, if there is one and it may be.
    pub(super) async fn hedge(
        &self,
        first: &Reading,
        row: RowNumber,
        column: u8,
        units: &Range<u32>,
        good: Good<'_>,
    ) -> Read {
        let path = &self.path;
        match self.second(first, row, column, units) {
            // Boxed: a rare case must not make every read large.
            Some(second) => Box::pin(race(path, first, second, good)).await,
            None => first.answer(&path.io, &path.env).await,
        }
    }

    /// Starts to read another copy, if there is one, and it may be.
    fn second(&self, first: &Reading, row: RowNumber, column: u8, units: &Range<u32>) -> Option<Reading> {
        let mut others = self.inner.copies(&self.path, row, column)?;
        others.retain(|c| c.number != first.disk().number);
        let now = self.path.env.moment();
        let copy = self.choose(now, &others, units)?;
        let disk = copy.disk.as_ref()?;
        let dst = self.path.may_hedge().then(|| first.shape().try_alloc(&self.path.io.arena)).flatten()?;
        first.disk().pulse.count_hedged();
        Some(disk.start_read(now, copy.data_at(disk, units.start), dst, None))
    }
}

/// How many times another latency one is; those within a factor of two are equal.
fn times(one: Duration, other: Duration) -> u64 {
    if one < other * 2 {
        return 1;
    }
    let times = one.as_nanos() / other.as_nanos().max(1);
    u64::try_from(times).unwrap_or(u64::MAX).max(1)
}

/// The first good answer; if there is none, the first disk's.
async fn race(path: &DataPath, first: &Reading, second: Reading, good: Good<'_>) -> Read {
    let first = Box::pin(first.answer(&path.io, &path.env));
    let second = Box::pin(second.wait(&path.io, &path.env));
    match select(first, second).await {
        Either::Left(((Ok(()), mut dst), other)) => {
            if good(&mut dst) {
                return (Ok(()), dst);
            }
            or(other.await, (Ok(()), dst), good)
        }
        Either::Left((failed, other)) => or(other.await, failed, good),
        Either::Right(((result, mut dst), other)) => {
            if result.is_ok() && good(&mut dst) {
                return (Ok(()), dst);
            }
            other.await
        }
    }
}

fn or(mut second: Read, first: Read, good: Good<'_>) -> Read {
    if second.0.is_ok() && good(&mut second.1) { second } else { first }
}
