//! Payload buffers with owners.
//!
//! **What it is.** One [`Arena`] per process: a single mapping of 4 KiB-aligned memory with a fixed budget, cut
//! into power-of-two chunks, and longer runs of pages, by a buddy allocator. A chunk is handed out as a unique [`IoBufMut`], filled once,
//! frozen into a shared immutable [`IoBuf`], and returned to the arena when its last owner drops it. A payload of
//! several buffers is an [`Sg`]. Because it is one mapping, a ring or a protection domain registers it once.
//!
//! **What it is not.** It is no general allocator (chunks are 4 KiB to 1 MiB, runs up to 16 MiB) and no cache. Headers and other
//! small things live in ordinary vectors, and what is computed for a disk in [`Pages`], which [`IoBuf::from`] wraps.
//!
//! **The budget.** When payload memory is exhausted [`Arena::try_alloc`] says so and [`Arena::alloc`] waits: that
//! is the server's back-pressure. A reserve that only [`Class::Control`] may use keeps CLOSE, CANCEL and break
//! acknowledgements moving meanwhile.
//!
//! **Threads.** What a thread frees it keeps for its next allocation, within bounds (`magazine.rs`): a worker that reads block
//! after block takes no lock here. What is kept counts as free.
//!
//! **Errors.** Creating the mapping can fail with the system's error. Nothing else fails: no memory is a state to
//! wait out, not an error.
//!
//! **Unsafe.** This crate owns the mapping and hands out slices of it, which the compiler cannot check; the
//! invariant is stated in `region.rs` and each block refers to it.
#![allow(unsafe_code)]

mod buddy;
mod buf;
mod data;
pub mod heads;
mod magazine;
mod pages;
pub mod passes;
mod piped;
mod region;
mod shape;

pub use buf::{IoBuf, IoBufMut};
pub use data::Data;
pub use pages::Pages;
pub use piped::{Piped, Pipes};
pub use region::{Arena, Class, Usage};
pub use shape::Shape;

use std::ops::Range;

use smallvec::SmallVec;

/// A payload in order: the bytes of its buffers one after the other. Mostly it is one buffer: what carries it through
/// queues stays short.
pub type Sg = SmallVec<[IoBuf; 1]>;

/// Unique buffers in order, before they are frozen.
pub type SgMut = SmallVec<[IoBufMut; 1]>;

/// The smallest chunk and the alignment of every chunk, in bytes.
pub const CHUNK_MIN: usize = 4096;

/// The largest chunk, in bytes; a longer payload is an [`Sg`] of several.
pub const CHUNK_MAX: usize = 1 << 20;

/// The longest run, in bytes: see [`Arena::try_alloc_run`].
pub const RUN_MAX: usize = 16 << 20;

/// The number of bytes in a scattered payload.
#[inline]
pub fn sg_len(sg: &[IoBuf]) -> usize {
    // Most payloads are one buffer, and all are asked several times.
    if let [one] = sg {
        return one.len();
    }
    sg.iter().map(|b| b.len()).sum()
}

/// Copies a scattered payload into one vector: for small control messages and tests, counted as a pass.
pub fn sg_to_vec(sg: &[IoBuf]) -> Vec<u8> {
    let mut out = Vec::with_capacity(sg_len(sg));
    for b in sg {
        out.extend_from_slice(b);
    }
    passes::count(passes::Pass::Copy, out.len());
    out
}

/// Where the `len` bytes from `start` on lie in buffers of these lengths, end to end: the index of each buffer that has some, and which
/// of its bytes. Fewer where the buffers end before.
pub fn parts(
    lengths: impl IntoIterator<Item = usize>,
    start: usize,
    len: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (mut skip, mut left) = (start, len);
    let part = move |(i, length): (usize, usize)| {
        if left == 0 {
            return None;
        }
        let from = skip.min(length);
        let n = left.min(length - from);
        (skip, left) = (skip - from, left - n);
        Some((i, from..from + n))
    };
    lengths.into_iter().enumerate().map_while(part).filter(|(_, part)| !part.is_empty())
}

/// The part of a scattered payload from `start`, `len` bytes long, sharing the buffers.
///
/// # Panics
/// When the range does not lie inside the payload: the caller has checked it.
pub fn sg_slice(sg: &[IoBuf], start: usize, len: usize) -> Sg {
    let out: Sg = parts(sg.iter().map(IoBuf::len), start, len).map(|(i, part)| sg[i].slice(part)).collect();
    assert!(sg_len(&out) == len, "slice {start}+{len} lies outside a payload of {} bytes", sg_len(sg));
    out
}
