//! Physical disks: the storage of a pool.
//!
//! **What it is.** [`Disk`] is one block device behind five calls and a fence. Providers: [`MemoryDisk`], a
//! sparse image with an explicit volatile write cache, which a power cut can take; [`sim::Machine`], several
//! such disks with one power switch and seeded faults, for crash tests; [`FileDisk`], a regular file or block
//! device by io_uring, past the page cache; [`Overlay`], another disk that is only read, with what is written
//! kept in memory; [`Counted`], another disk whose I/O is counted. [`qualify`] says whether a disk may go into a pool, and why not.
//!
//! **What it is not.** It keeps no checksums, copies or labels and makes no decisions: those belong to the
//! pool. (The fast CRC of data just read is here: [`crc32c_of_four`].) It does not retry: an error is
//! reported once, to the caller, which knows the purpose of the block.
//!
//! **How a value lives.** A provider's `open` returns an `Arc` of a disk; dropping the last clone closes it,
//! and does not wait. [`DiskInfo`] is fixed while it is open. A latched error (a failed flush) or a fence
//! persists until it is opened again.
//!
//! **I/O model.** Every call starts its I/O before it returns, whether or not the [`Io`] is polled. Dropping a pending
//! one loses the result, not the I/O: the driver keeps the buffers to its end. Calls may come from any thread.
//!
//! **Errors.** [`DiskError`], by blame, with what was done and where; which disk it was, the caller knows.
//!
//! **Unsafe.** The kernel reads and writes the buffers of an outstanding I/O, which the compiler cannot
//! check: one module, `file/ring.rs`, has all of it, with its invariants; only it calls `file/fixed.rs`.
//! `crc.rs` uses instructions after a check that the processor has them.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod counted;
mod crc;
mod deadline;
pub mod enclosure;
mod error;
mod file;
mod gate;
mod image;
mod info;
#[cfg(test)]
mod loops;
mod memory;
mod overlay;
pub mod qualify;
mod random;
pub mod sim;
mod slow_reads;
mod store;
mod sysfs;
mod then;
mod zeros;

pub use counted::Counted;
pub use crc::{CRC_BLOCK, crc32c_of_block, crc32c_of_four};
pub use error::{DiskError, Op, Place};
pub use file::{FileDisk, FileOptions, FixedBuffers, Holder, OpenError};
pub use gate::{FlushLatch, Gate, Pass};
pub use image::{Image, PAGE, append};
pub use info::{DiskId, DiskInfo, EnclosureSlot, Geometry, IdKind, Layout, Media, WriteCache};
pub use memory::{MemoryDisk, MemoryOptions};
pub use overlay::{Overlay, Room};
pub use slow_reads::SlowReads;
pub use store::PowerCut;
pub use then::{Completion, Outcome, Read, Then, Written};
pub use zeros::write_zeros;

use std::ops::Range;
use std::sync::Arc;

use arena::{Sg, SgMut};
use counters::IoTally;
use env::{Ctx, Epoch, Io};

/// The longest read or write, in bytes; a longer one is the caller's to split.
pub const IO_MAX: u64 = 64 << 20;

/// One physical disk.
///
/// Offsets and lengths are bytes, multiples of [`Geometry::logical_block`], and inside [`Geometry::size`]; an I/O of
/// no bytes succeeds. Buffers may have any length and alignment as long as the sum is whole blocks; those that do not
/// begin and end on [`Geometry::dma_alignment`] and a block cost a copy.
///
/// **Concurrency.** Any number of calls at a time. Writes that overlap in space and time have no order: each
/// atomic unit ends as one of them wrote it; a read that overlaps a write in flight sees each atomic unit old
/// or new. A call that begins after another's completion sees it.
///
/// **Durability.** A completed write is visible at once, and durable after a [`Disk::flush`] that began after
/// its completion, or on completion with [`env::IoFlags::write_through`]. Until then a power cut may lose it,
/// keep it, or keep some of its atomic units ([`Geometry::atomic_write`]), independently of every other
/// unflushed write.
///
/// **Deadline.** An I/O not completed by [`Ctx::deadline`] fails with [`DiskError::Timeout`] and continues in
/// the driver: whether it takes effect is unknown.
///
/// **Epoch.** Every call carries [`Ctx::epoch`]; one lower than the highest that [`Disk::fence`] was given fails with
/// [`DiskError::Fenced`] and touches nothing.
pub trait Disk: Send + Sync {
    /// Identity and geometry: fixed while it is open.
    fn info(&self) -> &DiskInfo;

    /// Reads as many bytes at `offset` as `dst` has filled ([`arena::IoBufMut::set_len`]; [`sized`] does it
    /// for a length): all of them or an error. The buffers come back either way, except that after
    /// [`DiskError::Timeout`] the driver still has them and none come back. After an error their contents are
    /// undefined.
    ///
    /// # Errors
    /// [`DiskError::Medium`] names the part that could not be read, as closely as the provider knows it.
    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)>;

    /// Callback form of `read`: calls `then` with the result on completion. Providers with native callbacks
    /// override it.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Then<Read>) {
        then.when(self.read(c, offset, dst));
    }

    /// Writes `src` at `offset`. After an error each atomic unit may be old or new.
    ///
    /// # Errors
    /// [`DiskError::Full`] where space is allocated on demand (a sparse file); a write-through one fails like a flush
    /// after a failed flush.
    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>>;

    /// Callback form of `write`: calls `then` with the result on completion. Providers with native callbacks
    /// override it.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Then<Written>) {
        then.when(self.write(c, offset, src));
    }

    /// Makes every write that completed before this call durable.
    ///
    /// # Errors
    /// A failed flush latches: it is unknown what it lost, so every later flush and write-through
    /// write fails with the same error until the disk is opened again.
    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>>;

    /// Declares the contents as no longer needed; a hint, so a disk without support succeeds and does
    /// nothing. The contents of these blocks are undefined until they are written again: old bytes, zeros or
    /// others, and two reads may differ. It is ordered like a write, and never touches a block outside of the
    /// range.
    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>>;

    /// Returns when no I/O of an epoch lower than `epoch` can reach the medium any more, dropped ones
    /// included; from the call on, new ones fail. It holds while this disk is open: the component that serves
    /// the disk to others must store the epoch durably. [`Ctx::epoch`] is ignored.
    ///
    /// # Errors
    /// [`DiskError::Fenced`] when a higher epoch has been given already; any other error leaves it unknown whether old I/O may
    /// still arrive.
    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>>;

    /// The parts of a range that may have something else than zeros, in order and apart. A provider that does not know
    /// says all of it. What is not in the answer was zeros at some time during the call, so it may stand for a read.
    ///
    /// # Errors
    /// The range is not inside of the disk; [`DiskError::Fenced`], from a provider that knows more than that all of it
    /// may be something.
    fn allocated(&self, _: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        let whole = offset..offset.saturating_add(length);
        Io::Done(self.info().geometry.check(Place::new(Op::Check, offset, length)).map(|()| vec![whole]))
    }

    /// Whether it is still what was opened, as far as its provider can tell without I/O to it: a file that has a name
    /// and its length, a device that is there. What it contains is the caller's to compare.
    ///
    /// # Errors
    /// [`DiskError::Gone`], although reads and writes may still succeed: what is written to a removed file is
    /// lost when it is closed.
    fn check(&self, _: &Ctx) -> Io<Result<(), DiskError>> {
        Io::Done(Ok(()))
    }

    /// What is counted of its I/O, if it is: see [`Counted`].
    fn tally(&self) -> Option<&Arc<IoTally>> {
        None
    }

    /// What is known of the latency of its reads, if it is supervised.
    fn slow_reads(&self) -> Option<Arc<dyn SlowReads>> {
        None
    }
}

/// Declares the first `length` bytes of the buffers filled, for [`Disk::read`]; buffers beyond are emptied.
///
/// # Panics
/// When the buffers have less room.
pub fn sized(mut dst: SgMut, length: usize) -> SgMut {
    let mut left = length;
    for b in &mut dst {
        let n = left.min(b.capacity());
        b.set_len(n);
        left -= n;
    }
    assert!(left == 0, "{left} bytes of {length} have no room");
    dst
}
