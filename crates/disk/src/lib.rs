//! Physical disks: the storage of a pool.
//!
//! **What it is.** [`Disk`] is one block device behind five calls and a fence. Providers: [`MemoryDisk`], a
//! sparse image with an explicit volatile write cache, which a power cut can lose; [`sim::Machine`], several
//! such disks with one power switch and seeded faults, for crash tests; [`FileDisk`], a regular file or block
//! device by io_uring with direct I/O; [`Overlay`], a read-only disk whose changes are kept in memory;
//! [`Counted`], a disk whose I/O is counted. [`qualify`] reports whether a disk may be pooled, and if not,
//! why.
//!
//! **What it is not.** It has no checksums, copies or labels and makes no decisions: those belong to the
//! pool. (The fast CRC for data just read is here: [`crc32c_of_four`].) It does not retry: an error is
//! reported once, to the caller, which knows the purpose of the block.
//!
//! **How a value lives.** A provider's `open` returns an `Arc` of a disk; dropping the last clone closes it
//! without waiting. [`DiskInfo`] is constant while it is open. A latched error (a failed flush) or a fence
//! persists until it is reopened.
//!
//! **I/O model.** Every call starts its I/O before it returns, whether or not the [`Io`] is polled. Dropping
//! a pending `Io` discards the result but does not cancel the I/O: the driver keeps the buffers until it
//! completes. Calls may come from any thread.
//!
//! **Errors.** [`DiskError`], by cause, with the operation and its range. The caller knows which disk it was.
//!
//! **Unsafe.** The kernel reads and writes the buffers of an outstanding I/O, which the compiler cannot
//! verify. `file/ring.rs` has this code, with its invariants; only it calls `file/fixed.rs`. `file/lock.rs`
//! has one unsafe call for locks. `crc.rs` uses special instructions after checking that the processor has
//! them.

mod callback;
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
mod zeros;

pub use callback::{Callback, Completion, Outcome, Read, Written};
pub use counted::Counted;
pub use crc::{CRC_BLOCK, crc32c_of_block, crc32c_of_four};
pub use error::{DiskError, IoRange, Op};
pub use file::{FileDisk, FileOptions, FixedBuffers, Holder, OpenError};
pub use gate::{FlushLatch, Gate, GateGuard};
pub use image::{Image, PAGE, append};
pub use info::{DiskId, DiskInfo, EnclosureSlot, Geometry, IdKind, Layout, Media, WriteCache};
pub use memory::{MemoryDisk, MemoryOptions};
pub use overlay::{Overlay, OverlayBudget};
pub use slow_reads::SlowReads;
pub use store::PowerCut;
pub use zeros::write_zeros;

use std::ops::Range;
use std::sync::Arc;

use arena::{Sg, SgMut};
use counters::IoTally;
use env::{Ctx, Epoch, Io};

/// The longest read or write, in bytes; the caller must split longer ones.
pub const IO_MAX: u64 = 64 << 20;

/// One physical disk.
///
/// Offsets and lengths are in bytes, multiples of [`Geometry::logical_block`], and inside [`Geometry::size`];
/// an I/O of no bytes succeeds. Buffers may have any length and alignment if their total is whole blocks.
/// Buffers that are not aligned to [`Geometry::dma_alignment`] and whole blocks cost a copy.
///
/// **Concurrency.** Any number of calls at a time. Overlapping concurrent writes have no order: each atomic
/// unit ends up as one of them wrote it. A read that overlaps an outstanding write sees each atomic unit old
/// or new. A call that begins after another's completion sees its effect.
///
/// **Durability.** A completed write is visible at once, and durable after a [`Disk::flush`] that began after
/// its completion, or on completion with [`env::IoFlags::write_through`]. Until then a power cut may lose it,
/// keep it, or keep some of its atomic units ([`Geometry::atomic_write`]), independently of every other
/// unflushed write.
///
/// **Deadline.** An I/O not completed by [`Ctx::deadline`] fails with [`DiskError::Timeout`] and continues in
/// the driver: whether it takes effect is unknown.
///
/// **Epoch.** Every call carries [`Ctx::epoch`]. If it is lower than the highest epoch given to
/// [`Disk::fence`], the call fails with [`DiskError::Fenced`] and accesses nothing.
pub trait Disk: Send + Sync {
    /// Identity and geometry: constant while it is open.
    fn info(&self) -> &DiskInfo;

    /// Fills the filled part of `dst` ([`arena::IoBufMut::set_len`], or [`sized`] for a length) with the
    /// bytes at `offset`: all of them or an error. The buffers are returned in both cases, except after
    /// [`DiskError::Timeout`]: then the driver still uses them and none are returned. After an error their
    /// contents are undefined.
    ///
    /// # Errors
    /// [`DiskError::Medium`] names the unreadable part as precisely as the provider knows it.
    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)>;

    /// Callback form of `read`: calls `then` with the result on completion. Providers with native callbacks
    /// override it.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Callback<Read>) {
        then.complete_with(self.read(c, offset, dst));
    }

    /// Writes `src` at `offset`. After an error each atomic unit may be old or new.
    ///
    /// # Errors
    /// [`DiskError::Full`] if space is allocated on demand (a sparse file). After a failed flush,
    /// write-through writes fail like flushes.
    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>>;

    /// Callback form of `write`: calls `then` with the result on completion. Providers with native callbacks
    /// override it.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Callback<Written>) {
        then.complete_with(self.write(c, offset, src));
    }

    /// Makes every write that completed before this call durable.
    ///
    /// # Errors
    /// A failed flush latches: it is unknown what it lost, so every later flush and write-through
    /// write fails with the same error until the disk is opened again.
    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>>;

    /// Declares the contents as no longer needed. It is a hint: a disk without support succeeds and does
    /// nothing. The contents of these blocks are undefined until they are rewritten: old bytes, zeros or
    /// others, and two reads may differ. A discard is ordered like a write and never affects blocks outside
    /// the range.
    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>>;

    /// Returns when no I/O of an epoch lower than `epoch` can reach the medium any more, dropped ones
    /// included; new ones fail from the call on. The fence lasts while this disk is open: the component that
    /// serves the disk to others must store the epoch durably. [`Ctx::epoch`] is ignored.
    ///
    /// # Errors
    /// [`DiskError::Fenced`] if a higher epoch was given before. After any other error, old I/O may still
    /// reach the medium.
    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>>;

    /// The parts of a range that may contain non-zero bytes, in order and disjoint. A provider that does not
    /// know returns the whole range. Everything else was zeros at some time during the call, so the answer
    /// can replace a read.
    ///
    /// # Errors
    /// An error if the range is not inside the disk; [`DiskError::Fenced`] from providers that track
    /// allocation.
    fn allocated(&self, _: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        let whole = offset..offset.saturating_add(length);
        Io::Done(self.info().geometry.check(IoRange::new(Op::Check, offset, length)).map(|()| vec![whole]))
    }

    /// Checks that the opened disk still exists, as far as the provider can tell without I/O to it: a file
    /// still has a name and its length, a device is present. The caller must verify the contents.
    ///
    /// # Errors
    /// [`DiskError::Gone`], although reads and writes may still succeed: data written to a removed file is
    /// lost when it is closed.
    fn check(&self, _: &Ctx) -> Io<Result<(), DiskError>> {
        Io::Done(Ok(()))
    }

    /// The statistics of its I/O, if it is counted: see [`Counted`].
    fn tally(&self) -> Option<&Arc<IoTally>> {
        None
    }

    /// The latency information of its reads, if it is supervised.
    fn slow_reads(&self) -> Option<Arc<dyn SlowReads>> {
        None
    }
}

/// Sets the filled lengths of the buffers to `length` bytes in total, for [`Disk::read`]; further buffers are
/// emptied.
///
/// # Panics
/// If the capacity of the buffers is smaller.
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
