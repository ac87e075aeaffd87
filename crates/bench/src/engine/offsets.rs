//! Chooses the offset of the next I/O, and whether it reads or writes: DiskSPD's five patterns.
//!
//! Offsets are relative to the base (`-B`) until they are returned. Invariants: a block at a returned offset
//! lies within the range of the target; in aligned patterns the offset is the base plus a multiple of the
//! alignment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::random::Random;
use crate::profile::{Range, Target, Unit};

/// The operation of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// The offsets of one thread on one target.
#[derive(Clone, Debug)]
pub struct Offsets {
    pattern: Pattern,
    base: u64,
    block: u64,
    align: u64,
    /// Bytes from the base to the end of the range.
    size: u64,
    /// The number of aligned offsets at which a block fits.
    block_offsets: u64,
    /// The first offset of this thread, relative to the base.
    start: u64,
    next: u64,
    write_percent: u32,
    last: Kind,
    ranges: Vec<TargetPart>,
}

#[derive(Clone, Debug)]
enum Pattern {
    Sequential,
    Interlocked(Arc<AtomicU64>),
    Parallel,
    Mixed { random_percent: u32 },
    Random,
}

/// A part of the target with its share of the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TargetPart {
    /// Cumulative share of the I/O up to and including this part, in percent.
    upto: u32,
    /// Its first offset.
    first: u64,
    /// The number of aligned offsets in it.
    count: u64,
}

/// A target that is too small for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall;

impl Offsets {
    /// The offsets of thread `relative` on a target of `size` bytes. `shared` is the common offset of `-si`.
    ///
    /// # Errors
    /// [`TooSmall`] if even the first block of this thread does not fit.
    pub fn new(
        target: &Target,
        size: u64,
        relative: u32,
        shared: &Arc<AtomicU64>,
        random: &mut Random,
    ) -> Result<Offsets, TooSmall> {
        let (block, align) = (u64::from(target.block), target.alignment());
        let end = if target.max_size == 0 { size } else { size.min(target.max_size) };
        let size = end.checked_sub(target.base).ok_or(TooSmall)?;
        let start = target.thread_stride.checked_mul(relative.into()).ok_or(TooSmall)?;
        if start.checked_add(block).is_none_or(|end| end > size) {
            return Err(TooSmall);
        }
        let pattern = match target.random_percent {
            100.. => Pattern::Random,
            1.. => Pattern::Mixed { random_percent: target.random_percent },
            0 if target.parallel => Pattern::Parallel,
            0 if target.interlocked => Pattern::Interlocked(shared.clone()),
            0 => Pattern::Sequential,
        };
        let mut offsets = Offsets {
            pattern,
            base: target.base,
            block,
            align,
            size,
            block_offsets: (size - block) / align + 1,
            start,
            next: start,
            write_percent: target.write_percent,
            last: Kind::Read,
            ranges: Vec::new(),
        };
        offsets.ranges = offsets.parts_of(target)?;
        if matches!(offsets.pattern, Pattern::Mixed { .. }) {
            offsets.next = offsets.random(random);
        }
        offsets.last = offsets.choose(random);
        Ok(offsets)
    }

    /// The effective distribution on this target, in bytes, for the report.
    pub fn effective(&self) -> Vec<Range> {
        let mut before = 0;
        let range = |p: &TargetPart| {
            let io_percent = p.upto - before;
            before = p.upto;
            Range { io_percent, start: p.first, length: p.count * self.align }
        };
        self.ranges.iter().map(range).collect()
    }

    /// The next I/O. `parallel` is the offset of the slot's previous I/O, for `-p`.
    pub fn next(&mut self, random: &mut Random, parallel: &mut Option<u64>) -> (u64, Kind) {
        let mut chance = false;
        let relative = match &self.pattern {
            Pattern::Sequential => self.sequential(),
            Pattern::Interlocked(shared) => {
                let turn = shared.fetch_add(1, Ordering::Relaxed);
                turn % self.block_offsets * self.align
            }
            Pattern::Parallel => {
                let next = parallel.map_or(self.start, |last| self.wrap(last + self.align));
                *parallel = Some(next);
                next
            }
            Pattern::Mixed { random_percent } => {
                chance = random.percent(*random_percent);
                if chance {
                    let offset = self.random(random);
                    self.next = offset + self.align;
                    offset
                } else {
                    self.sequential()
                }
            }
            Pattern::Random => self.random(random),
        };
        // Within mixed I/O, all of a sequential run has the same kind.
        if chance || !matches!(self.pattern, Pattern::Mixed { .. }) {
            self.last = self.choose(random);
        }
        (self.base + relative, self.last)
    }

    fn choose(&self, random: &mut Random) -> Kind {
        match self.write_percent {
            0 => Kind::Read,
            100.. => Kind::Write,
            n if random.percent(n) => Kind::Write,
            _ => Kind::Read,
        }
    }

    /// After the end it continues at the thread's position within the first stride.
    fn wrap(&self, offset: u64) -> u64 {
        if offset + self.block > self.size {
            let again = self.start % self.align;
            if again + self.block > self.size { 0 } else { again }
        } else {
            offset
        }
    }

    fn sequential(&mut self) -> u64 {
        let offset = self.wrap(self.next);
        self.next = offset + self.align;
        offset
    }

    fn random(&self, random: &mut Random) -> u64 {
        let Some(all) = self.ranges.last() else {
            return random.below(self.block_offsets) * self.align;
        };
        let dice = random.below(all.upto.into()) as u32;
        let at = self.ranges.partition_point(|p| p.upto <= dice);
        let part = self.ranges[at];
        part.first + random.below(part.count) * self.align
    }

    /// The distribution on this target. A part that is shorter than the alignment adds its share to the part
    /// before (the first one: to the next). Parts beyond the end of the target are dropped, and the others
    /// are scaled up.
    fn parts_of(&self, target: &Target) -> Result<Vec<TargetPart>, TooSmall> {
        let Some(distribution) = &target.distribution else { return Ok(Vec::new()) };
        let mut parts: Vec<TargetPart> = Vec::new();
        let (mut upto, mut carried) = (0, 0);
        for range in distribution.ranges.iter().filter(|r| r.io_percent > 0) {
            let (first, count) = match distribution.unit {
                Unit::Percent => {
                    let at =
                        |percent: u64| (u128::from(self.block_offsets) * u128::from(percent) / 100) as u64;
                    let (from, to) = (at(range.start), at((range.start + range.length).min(100)));
                    (from * self.align, to - from)
                }
                Unit::Absolute => {
                    let Some(room) = self.size.checked_sub(range.start).filter(|r| *r >= self.block) else {
                        break;
                    };
                    let fits = (room - self.block) / self.align + 1;
                    let wanted = if range.length == 0 { fits } else { (range.length / self.align).max(1) };
                    (range.start, wanted.min(fits))
                }
            };
            if count == 0 {
                match parts.last_mut() {
                    Some(last) => {
                        upto += range.io_percent;
                        last.upto = upto;
                    }
                    None => carried += range.io_percent,
                }
                continue;
            }
            upto += range.io_percent + std::mem::take(&mut carried);
            parts.push(TargetPart { upto, first, count });
        }
        if parts.is_empty() { Err(TooSmall) } else { Ok(parts) }
    }
}

#[cfg(test)]
mod tests;
