//! A medium with a volatile write cache: the storage of simulated disks. No I/O, no time.
//!
//! Invariants:
//! 1. `current` is what reads see; `durable` is what certainly survives a power cut;
//! 2. applying `pending` to `durable` in order gives `current`;
//! 3. after a cut the contents differ from `durable` only in atomic units that a pending write covers, and
//!    have the bytes of one of those writes there.

use std::sync::Arc;

use arena::{Sg, SgMut};

use crate::random::Random;
use crate::{Geometry, Image};

/// The effect of a power cut on writes that were completed but not flushed, or still outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCut {
    /// All are lost.
    LoseAll,
    /// All take effect.
    KeepAll,
    /// Each takes effect entirely or not at all, independently of the others.
    Reorder {
        /// Selects which.
        seed: u64,
    },
    /// Each atomic unit of each write independently takes effect or not.
    Tear {
        /// Selects which.
        seed: u64,
    },
}

#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) current: Image,
    pub(crate) durable: Image,
    /// Changes that are not durable, with ascending numbers.
    pub(crate) pending: Vec<(u64, Arc<Change>)>,
    /// The number of the last change.
    number: u64,
}

/// A write or discard that is not durable.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) offset: u64,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    /// A number of zeros.
    Zeros(u64),
}

impl Store {
    pub(crate) fn new(image: Image) -> Store {
        Store { current: image.clone(), durable: image, pending: Vec::new(), number: 0 }
    }

    pub(crate) fn read(&self, offset: u64, dst: &mut SgMut) {
        read_image(&self.current, offset, dst);
    }

    /// Applies a completed change. A durable change cannot be lost, and what it overwrote cannot reappear.
    pub(crate) fn apply(&mut self, change: Arc<Change>, durable: bool) {
        change.apply(&mut self.current);
        if !durable {
            self.number += 1;
            self.pending.push((self.number, change));
            return;
        }
        change.apply(&mut self.durable);
        let (start, end) = change.range();
        let outside = |(n, p): &(u64, Arc<Change>)| {
            let n = *n;
            p.without(start, end).into_iter().map(move |p| (n, p))
        };
        self.pending = self.pending.iter().flat_map(outside).collect();
    }

    /// Marks the writes that a flush beginning now must make durable: pass the mark to [`Store::flush`].
    pub(crate) fn mark(&self) -> u64 {
        self.number
    }

    /// Makes everything applied before `mark` durable, and no more, as a real flush guarantees no more.
    pub(crate) fn flush(&mut self, mark: u64) {
        if mark >= self.number {
            self.durable = self.current.clone();
            self.pending.clear();
            return;
        }
        let later = self.pending.partition_point(|(n, _)| *n <= mark);
        for (_, change) in self.pending.drain(..later) {
            change.apply(&mut self.durable);
        }
    }

    /// The contents of the medium after a power cut with `in_flight` writes outstanding.
    pub(crate) fn cut(&self, geometry: &Geometry, in_flight: &[Arc<Change>], cut: PowerCut) -> Image {
        let mut image = self.durable.clone();
        let writes = self.pending.iter().map(|(_, change)| change).chain(in_flight);
        match cut {
            PowerCut::LoseAll => {}
            PowerCut::KeepAll => writes.for_each(|w| w.apply(&mut image)),
            PowerCut::Reorder { seed } => {
                let (mut random, of) = coin(seed);
                writes.filter(|_| random.below(of.1) < of.0).for_each(|w| w.apply(&mut image));
            }
            PowerCut::Tear { seed } => {
                let (mut random, of) = coin(seed);
                for w in writes {
                    for (start, end) in w.units(u64::from(geometry.atomic_write)) {
                        if random.below(of.1) < of.0 {
                            w.apply_part(&mut image, start, end);
                        }
                    }
                }
            }
        }
        image
    }
}

impl Change {
    pub(crate) fn write(offset: u64, src: &Sg) -> Arc<Change> {
        let mut bytes = Vec::with_capacity(arena::sg_len(src));
        src.iter().for_each(|b| bytes.extend_from_slice(b));
        Arc::new(Change { offset, content: Content::Bytes(bytes) })
    }

    pub(crate) fn zeros(offset: u64, length: u64) -> Arc<Change> {
        Arc::new(Change { offset, content: Content::Zeros(length) })
    }

    pub(crate) fn range(&self) -> (u64, u64) {
        let length = match &self.content {
            Content::Bytes(b) => b.len() as u64,
            Content::Zeros(n) => *n,
        };
        (self.offset, self.offset + length)
    }

    pub(crate) fn apply(&self, image: &mut Image) {
        let (start, end) = self.range();
        self.apply_part(image, start, end);
    }

    /// Applies the part of the change in `start..end`, which must be inside its range.
    pub(crate) fn apply_part(&self, image: &mut Image, start: u64, end: u64) {
        match &self.content {
            Content::Bytes(b) => {
                image.write(start, &b[(start - self.offset) as usize..(end - self.offset) as usize]);
            }
            Content::Zeros(_) => image.zero(start, end - start),
        }
    }

    /// Its range, split into atomic units.
    pub(crate) fn units(&self, unit: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, end) = self.range();
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let start = at;
                at = ((at / unit + 1) * unit).min(end);
                (start, at)
            })
        })
    }

    /// The parts of it outside `start..end`.
    fn without(self: &Arc<Change>, start: u64, end: u64) -> Vec<Arc<Change>> {
        let (mine, my_end) = self.range();
        if end <= mine || my_end <= start {
            return vec![Arc::clone(self)];
        }
        let mut out = Vec::new();
        if mine < start {
            out.push(self.part(mine, start));
        }
        if end < my_end {
            out.push(self.part(end, my_end));
        }
        out
    }

    pub(crate) fn part(&self, start: u64, end: u64) -> Arc<Change> {
        let content = match &self.content {
            Content::Bytes(b) => {
                Content::Bytes(b[(start - self.offset) as usize..(end - self.offset) as usize].to_vec())
            }
            Content::Zeros(_) => Content::Zeros(end - start),
        };
        Arc::new(Change { offset: start, content })
    }
}

pub(crate) fn read_image(image: &Image, mut offset: u64, dst: &mut SgMut) {
    for b in dst {
        image.read(offset, b.filled_mut());
        offset += b.len() as u64;
    }
}

/// The probability that a write survives: low, medium or high, because each finds different bugs.
fn coin(seed: u64) -> (Random, (u64, u64)) {
    let mut random = Random::new(seed);
    let of = [(1, 8), (1, 2), (7, 8)][random.below(3) as usize];
    (random, of)
}
