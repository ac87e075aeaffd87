//! The layout of the journal's ring, and the parts that may be reused. Pure.
//!
//! Invariants:
//! 1. Positions only grow: units since the beginning of time. Position `p` lies at unit `p % capacity` of the ring.
//! 2. From `tail` to `head` are records, end to end, that may be needed; no more than the capacity.
//! 3. Reservations fit: `used + reserved + MARGIN <= capacity`.
//! 4. The tail moves only to the beginning of a record, and never past one whose writes in place have not ended.

use std::collections::{BTreeMap, VecDeque};

/// Units that are kept for what must be written to make room.
pub(crate) const MARGIN: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    capacity: u64,
    tail: u64,
    head: u64,
    reserved: u64,
    next_sequence: u64,
    /// The records from the tail on: position, sequence.
    records: VecDeque<(u64, u64)>,
    /// Records with outstanding writes in place, and their number.
    pending: BTreeMap<u64, usize>,
}

/// Where a tail may be: position and sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
}

impl Ring {
    pub(crate) fn new(capacity: u64) -> Ring {
        Ring {
            capacity,
            tail: 0,
            head: 0,
            reserved: 0,
            next_sequence: 1,
            records: VecDeque::new(),
            pending: BTreeMap::new(),
        }
    }

    /// Begins at a point, empty.
    pub(crate) fn begin_at(&mut self, point: Point) {
        *self = Ring {
            tail: point.position,
            head: point.position,
            next_sequence: point.sequence,
            ..Ring::new(self.capacity)
        };
    }

    /// The largest reservation that is sure to be possible when nothing else is in the ring.
    pub(crate) fn most(&self) -> u64 {
        (self.capacity - MARGIN) / 4
    }

    pub(crate) fn reserve(&mut self, units: u64) -> bool {
        let fits = self.used() + self.reserved + units + MARGIN <= self.capacity;
        self.reserved += if fits { units } else { 0 };
        fits
    }

    pub(crate) fn release(&mut self, units: u64) {
        self.reserved -= units;
    }

    pub(crate) fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// Whether so much is used that it is time to make room.
    pub(crate) fn is_half_full(&self) -> bool {
        self.used() > self.capacity / 2
    }

    /// Where the next record goes.
    pub(crate) fn next(&self) -> Point {
        Point { position: self.head, sequence: self.next_sequence }
    }

    /// Where the ring's first record is.
    pub(crate) fn tail(&self) -> Point {
        match self.records.front() {
            Some(&(position, sequence)) => Point { position, sequence },
            None => self.next(),
        }
    }

    /// Units that fit at all.
    pub(crate) fn has_room(&self, units: u64) -> bool {
        self.used() + units <= self.capacity
    }

    /// Unreserved units, including those of the margin.
    pub(crate) fn has_spare(&self, units: u64) -> bool {
        self.used() + self.reserved + units <= self.capacity
    }

    /// A record of this many units is durable at [`Ring::next`]; `writers` will write its data in place.
    pub(crate) fn written(&mut self, units: u64, writers: usize) -> u64 {
        let position = self.head;
        self.records.push_back((position, self.next_sequence));
        self.next_sequence += 1;
        self.head += units;
        if writers > 0 {
            self.pending.insert(position, writers);
        }
        position
    }

    /// One of a record's writers is done.
    pub(crate) fn done(&mut self, position: u64) {
        if let Some(n) = self.pending.get_mut(&position) {
            *n -= 1;
            if *n == 0 {
                self.pending.remove(&position);
            }
        }
    }

    /// Everything before this point is written in place.
    pub(crate) fn in_place(&self) -> Point {
        let Some((&position, _)) = self.pending.first_key_value() else { return self.next() };
        self.at(position)
    }

    /// Where a record at a position is; the tail, if there is none.
    pub(crate) fn at(&self, position: u64) -> Point {
        let found = self.records.iter().find(|r| r.0 == position);
        found.map_or(self.tail(), |&(position, sequence)| Point { position, sequence })
    }

    /// Records before this point are no longer needed.
    pub(crate) fn trim(&mut self, to: Point) {
        while self.records.front().is_some_and(|r| r.0 < to.position) {
            self.records.pop_front();
        }
        self.tail = self.tail.max(to.position);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_stays_until_it_is_in_place() {
        let mut ring = Ring::new(100);
        assert!(ring.reserve(90) && !ring.reserve(7) && ring.reserve(6));
        ring.release(96);
        let (a, b) = (ring.written(10, 2), ring.written(5, 0));
        assert_eq!((a, b, ring.used()), (0, 10, 15));
        ring.done(a);
        assert_eq!(ring.in_place(), Point { position: 0, sequence: 1 });
        ring.done(a);
        assert_eq!(ring.in_place(), Point { position: 15, sequence: 3 });
        ring.trim(Point { position: 10, sequence: 2 });
        assert_eq!((ring.used(), ring.tail()), (5, Point { position: 10, sequence: 2 }));
    }

    proptest! {
        /// Reserved room can be written, and records in progress are not overwritten.
        #[test]
        fn it_never_runs_over(steps in prop::collection::vec((0..4_u8, 1..30_u64), 1..200)) {
            let mut ring = Ring::new(64);
            let (mut reserved, mut open): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            for (what, n) in steps {
                match what {
                    0 => if ring.reserve(n) { reserved.push(n) },
                    1 => if let Some(n) = reserved.pop() {
                        prop_assert!(ring.has_room(n));
                        ring.release(n);
                        open.push(ring.written(n, 1));
                    },
                    2 if !open.is_empty() => {
                        let position = open.remove(n as usize % open.len());
                        ring.done(position);
                    }
                    _ => {
                        let point = ring.in_place();
                        prop_assert!(open.iter().all(|p| *p >= point.position));
                        ring.trim(point);
                        prop_assert_eq!(ring.tail(), point);
                    }
                }
                prop_assert!(ring.used() + reserved.iter().sum::<u64>() + MARGIN <= 64);
            }
        }
    }
}
