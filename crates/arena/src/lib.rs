//! Payload buffers with reference-counted owners.
//!
//! **What it is.** One [`Arena`] per process: a single mapping of 4 KiB-aligned memory with a fixed budget. A
//! buddy allocator divides it into power-of-two chunks and longer runs of pages. A chunk is handed out as a
//! unique [`IoBufMut`], filled once, frozen into a shared immutable [`IoBuf`], and returned to the arena when
//! its last owner drops it. A payload of several buffers is an [`Sg`]. Because it is one mapping, a ring or a
//! protection domain registers it once.
//!
//! **What it is not.** It is no general allocator (chunks are 4 KiB to 1 MiB, runs up to 16 MiB) and no
//! cache. Headers and other small data are in ordinary vectors. Data computed for a disk, such as parity, is
//! in [`Pages`], which [`IoBuf::from`] wraps.
//!
//! **The budget.** When payload memory is exhausted, [`Arena::try_alloc`] returns `None` and
//! [`Arena::alloc_sg`] waits: this is the server's back-pressure. Only [`Class::Control`] may use the
//! reserve, so CLOSE, CANCEL and break acknowledgements still proceed.
//!
//! **Threads.** Each thread keeps some of the blocks that it frees for its next allocation (`magazine.rs`),
//! so a worker that reads block after block takes no lock here. Kept blocks count as free.
//!
//! **Errors.** Creating the mapping can fail with the system's error. Allocations do not return errors: when
//! memory is exhausted, callers wait.
//!
//! **Unsafe.** This crate owns the mapping and hands out slices of it, which the compiler cannot verify.
//! `region.rs` states the invariant, and each `unsafe` block refers to it.
#![allow(unsafe_code)]

mod buddy;
mod buf;
mod buffer_sizes;
mod data;
pub mod heads;
mod magazine;
mod pages;
pub mod passes;
mod piped;
mod region;

pub use buf::{IoBuf, IoBufMut};
pub use buffer_sizes::BufferSizes;
pub use data::Data;
pub use pages::Pages;
pub use piped::{PipedPayload, Pipes};
pub use region::{Arena, Class, Usage};

use std::ops::Range;

use smallvec::SmallVec;

/// A payload: the bytes of its buffers in order. Inline capacity is one because most payloads are one buffer,
/// which keeps queue entries small.
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
    // Fast path: most payloads are one buffer, and this is called several times for each.
    if let [one] = sg {
        return one.len();
    }
    sg.iter().map(|b| b.len()).sum()
}

/// Copies a scattered payload into one vector, counted as a pass. For small control messages and tests.
pub fn sg_to_vec(sg: &[IoBuf]) -> Vec<u8> {
    let mut out = Vec::with_capacity(sg_len(sg));
    for b in sg {
        out.extend_from_slice(b);
    }
    passes::count(passes::Pass::Copy, out.len());
    out
}

/// Finds the `len` bytes from `start` on in consecutive buffers with these lengths. Yields the index of each
/// buffer concerned and its byte range; fewer than `len` bytes in total if the buffers end earlier.
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

/// The `len` bytes of a scattered payload from `start` on, sharing the buffers.
///
/// # Panics
/// If the range does not lie inside the payload: the caller must check it.
pub fn sg_slice(sg: &[IoBuf], start: usize, len: usize) -> Sg {
    let out: Sg = parts(sg.iter().map(IoBuf::len), start, len).map(|(i, part)| sg[i].slice(part)).collect();
    assert!(sg_len(&out) == len, "slice {start}+{len} lies outside a payload of {} bytes", sg_len(sg));
    out
}
