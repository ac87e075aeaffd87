//! A batch of FPDUs to write to the socket. It owns the headers and trailers; the payload stays in its buffers.
//!
//! A batch is filled while it is empty, and then written in as many writes as the socket needs. Invariants:
//! 1. `parts`, without the first `skip` bytes, are exactly the bytes that are not written yet.
//! 2. `ends` is sorted by position. The end of a request is reported when all bytes up to it are written and the
//!    batch holds no reference to its payload any more.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use arena::IoBuf;
use smallvec::SmallVec;

/// Maximum number of slices in one write; Linux accepts 1024.
const SLICES: usize = 256;

/// Slices of one write.
pub(crate) type Slices<'a> = SmallVec<[IoSlice<'a>; 32]>;

enum Part {
    Own(Range<usize>),
    Payload(IoBuf),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Own(r) => r.len(),
            Part::Payload(b) => b.len(),
        }
    }
}

pub(crate) struct Batch<E> {
    own: Vec<u8>,
    parts: VecDeque<Part>,
    skip: usize,
    ends: VecDeque<(u64, E)>,
    queued: u64,
    written: u64,
    /// Number of FPDUs so far.
    pub(crate) frames: u64,
}

impl<E> Batch<E> {
    pub(crate) fn new() -> Batch<E> {
        Batch {
            own: Vec::new(),
            parts: VecDeque::new(),
            skip: 0,
            ends: VecDeque::new(),
            queued: 0,
            written: 0,
            frames: 0,
        }
    }

    /// Whether every byte is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Number of bytes not yet written.
    pub(crate) fn len(&self) -> usize {
        (self.queued - self.written) as usize
    }

    /// Number of queued parts, which approximates the number of slices of a write.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Appends the bytes that `write` appends to the vector. Returns them, for the CRC.
    pub(crate) fn own(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        if self.parts.is_empty() {
            self.own.clear();
        }
        let start = self.own.len();
        write(&mut self.own);
        let end = self.own.len();
        self.queued += (end - start) as u64;
        match self.parts.back_mut() {
            Some(Part::Own(r)) if r.end == start => r.end = end,
            _ => self.parts.push_back(Part::Own(start..end)),
        }
        &self.own[start..end]
    }

    /// Appends payload.
    pub(crate) fn payload(&mut self, buf: IoBuf) {
        if !buf.is_empty() {
            self.queued += buf.len() as u64;
            self.parts.push_back(Part::Payload(buf));
        }
    }

    /// Reports `end` when all bytes queued so far are written.
    pub(crate) fn end(&mut self, end: E) {
        self.ends.push_back((self.queued, end));
    }

    /// Returns the next bytes to write.
    pub(crate) fn slices(&self) -> Slices<'_> {
        let mut skip = self.skip;
        self.parts
            .iter()
            .take(SLICES)
            .map(|p| {
                let bytes = match p {
                    Part::Own(r) => &self.own[r.clone()],
                    Part::Payload(b) => b,
                };
                IoSlice::new(&bytes[std::mem::take(&mut skip)..])
            })
            .collect()
    }

    /// Records that `n` more bytes of [`Batch::slices`] are written; passes each completed end to `reached`.
    pub(crate) fn advance(&mut self, n: usize, mut reached: impl FnMut(E)) {
        self.written += n as u64;
        let mut left = n + std::mem::take(&mut self.skip);
        while let Some(part) = self.parts.front() {
            if left < part.len() {
                break;
            }
            left -= part.len();
            self.parts.pop_front();
        }
        self.skip = left;
        while self.ends.front().is_some_and(|(at, _)| *at <= self.written) {
            self.ends.pop_front().into_iter().for_each(|(_, e)| reached(e));
        }
    }

    /// Drops all bytes, and passes the ends that were not reached to `lost`.
    pub(crate) fn abandon(&mut self, lost: impl FnMut(E)) {
        self.parts.clear();
        self.skip = 0;
        self.written = self.queued;
        self.ends.drain(..).map(|(_, e)| e).for_each(lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever number of bytes the socket accepts at a time, the bytes are written in order and each end is
        /// reported in time.
        #[test]
        fn writes_of_any_size(sizes in proptest::collection::vec((0usize..9, 0usize..50), 1..40),
                              writes in proptest::collection::vec(1usize..100, 1..60)) {
            let (mut batch, mut model, mut due) = (Batch::new(), Vec::new(), Vec::new());
            for (i, (own, payload)) in sizes.iter().enumerate() {
                batch.own(|v| v.extend(std::iter::repeat_n(i as u8, *own + 1)));
                batch.payload(IoBuf::from(vec![0x80 | i as u8; *payload]));
                model.extend(std::iter::repeat_n(i as u8, *own + 1));
                model.extend(std::iter::repeat_n(0x80 | i as u8, *payload));
                batch.end(i);
                due.push(model.len());
            }
            let (mut got, mut ended) = (Vec::new(), Vec::new());
            for n in writes.iter().cycle() {
                let all: Vec<u8> = batch.slices().iter().flat_map(|s| s.iter().copied()).collect();
                let n = (*n).min(all.len());
                got.extend_from_slice(&all[..n]);
                batch.advance(n, |e| ended.push(e));
                prop_assert_eq!(ended.len(), due.iter().filter(|d| **d <= got.len()).count());
                prop_assert_eq!(batch.len(), model.len() - got.len());
                if batch.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, model);
            prop_assert!(ended.is_sorted() && batch.is_empty());
        }
    }
}
