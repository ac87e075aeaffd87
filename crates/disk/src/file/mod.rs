//! Regular files and block devices by io_uring with direct I/O.
//!
//! Each thread has its own ring. A disk may be used from any thread that runs a Tokio runtime with its I/O
//! driver; the I/O goes through that thread's ring. A disk has at most [`DiskInfo::queue_depth`] I/Os of one
//! ring in the kernel; further ones wait in order. A flush is `fdatasync`; a discard punches a hole or
//! discards blocks of a device.
//!
//! A fence applies to I/O through this value, on all threads. It does not exclude other machines from a
//! shared device (shared SAS, NVMe over fabrics): the caller must refuse such devices or reserve them by
//! other means.
//!
//! Dropping the last clone closes a disk and releases its lock after the last I/O completes. The process may
//! reopen it immediately.
//!
//! A file's identity is a random number in an extended attribute, stored together with the inode number. A
//! copy has another inode number, so it gets another identity, and its pool label shows that it is a copy.

mod fixed;
mod holders;
mod identity;
mod job;
mod lock;
mod open;
mod ring;
#[cfg(test)]
mod tests;

pub use holders::Holder;
pub(crate) use identity::of_device;
pub use open::{FileOptions, OpenError};
pub(crate) use open::{alignment, atomic};

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arena::{Sg, SgMut, sg_len};
use env::{Ctx, Env, Epoch, Io};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use tokio::sync::oneshot;

use crate::deadline::within;
use crate::{Callback, Disk, DiskError, DiskInfo, IoRange, Op, Outcome, Read, Written};
use job::{AdmittedTarget, Job, Reply, Target, Work};

/// See the module.
pub struct FileDisk {
    env: Env,
    info: DiskInfo,
    read_only: bool,
    target: Arc<Target>,
}

/// Whether the arena's pages are registered with the kernel, or pinned for each I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedBuffers {
    /// The disk was opened without an arena.
    NotRequested,
    /// No I/O has used this thread's ring yet.
    NotYet,
    /// Buffers are registered with this thread's ring on first use.
    Registered {
        /// Bytes registered so far, pinned in memory.
        bytes: usize,
    },
    /// The kernel refused to register more; I/O continues with unregistered buffers.
    Refused {
        /// The registered bytes.
        bytes: usize,
        /// The system's error: ENOMEM (12) for the limit on locked memory.
        errno: i32,
    },
}

impl FileDisk {
    /// Whether I/O of this thread uses registered buffers, and if not, why.
    pub fn fixed_buffers(&self) -> FixedBuffers {
        if self.target.arena.is_none() { FixedBuffers::NotRequested } else { ring::fixed_buffers() }
    }

    /// The next range at or after `offset` that may contain non-zero bytes; everything after `offset` if the
    /// file system does not report holes.
    pub(crate) fn next_data(&self, offset: u64) -> Option<Range<u64>> {
        let size = self.info.geometry.size;
        if offset >= size {
            return None;
        }
        let start = match seek(&self.target.fd, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return None,
            Err(_) => return Some(offset..size),
        };
        let end = seek(&self.target.fd, SeekFrom::Hole(start)).unwrap_or(size);
        (start < size).then(|| start..end.min(size))
    }

    /// Validates an I/O and admits it through the gate.
    fn enter(&self, c: &Ctx, at: IoRange) -> Result<AdmittedTarget, DiskError> {
        self.info.geometry.check(at)?;
        self.target.gate.enter_unguarded(c, at)?;
        let admitted = AdmittedTarget { target: Arc::clone(&self.target), epoch: c.epoch };
        if self.read_only && matches!(at.op, Op::Write | Op::Discard) {
            return Err(DiskError::ReadOnly { at });
        }
        if is_write_through(c, at) || at.op == Op::Flush {
            admitted.target.latch.check()?;
        }
        Ok(admitted)
    }

    /// Starts an admitted I/O.
    fn submit(&self, c: &Ctx, at: IoRange, work: Work, admitted: AdmittedTarget) {
        let write_through = is_write_through(c, at);
        ring::submit(&self.env, Box::new(Job { admitted, work, at, write_through, done: 0, retries: 0 }));
    }

    fn start<T: Outcome>(
        &self,
        c: &Ctx,
        at: IoRange,
        work: impl FnOnce(Reply<T>) -> Work,
    ) -> Result<Io<T>, DiskError> {
        let admitted = self.enter(c, at)?;
        let (send, receive) = oneshot::channel();
        self.submit(c, at, work(Reply::Channel(send)), admitted);
        Ok(match c.deadline {
            // Without a deadline the future does not contain a timer.
            None => Io::pending(async move { receive.await.unwrap_or_else(|_| T::unknown(at)) }),
            deadline => Io::pending(within(self.env.clone(), deadline, receive, T::unknown(at))),
        })
    }

    fn done(&self, c: &Ctx, at: IoRange, work: impl FnOnce(Reply<Written>) -> Work) -> Io<Written> {
        self.start(c, at, work).unwrap_or_else(|e| Io::Done(Err(e)))
    }

    fn work_of_read(&self, reply: Reply<Read>, dst: SgMut) -> Work {
        let g = self.info.geometry;
        Work::read(reply, dst, g.dma_alignment, g.logical_block)
    }

    fn work_of_write(&self, reply: Reply<Written>, src: Sg) -> Work {
        let g = self.info.geometry;
        Work::write(reply, src, g.dma_alignment, g.logical_block)
    }
}

/// Whether the write is durable before it completes.
fn is_write_through(c: &Ctx, at: IoRange) -> bool {
    c.flags.write_through && at.op == Op::Write
}

fn of_read(offset: u64, dst: &SgMut) -> IoRange {
    IoRange::new(Op::Read, offset, dst.iter().map(|b| b.len() as u64).sum())
}

impl Disk for FileDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<Read> {
        let at = of_read(offset, &dst);
        let mut dst = Some(dst);
        match self.start(c, at, |reply| self.work_of_read(reply, dst.take().unwrap_or_default())) {
            Ok(io) => io,
            Err(e) => Io::Done((Err(e), dst.unwrap_or_default())),
        }
    }

    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Callback<Read>) {
        if c.deadline.is_some() {
            return then.complete_with(self.read(c, offset, dst));
        }
        let at = of_read(offset, &dst);
        match self.enter(c, at) {
            Ok(admitted) => self.submit(c, at, self.work_of_read(Reply::Callback(then), dst), admitted),
            Err(error) => then.complete((Err(error), dst)),
        }
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Written> {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        self.done(c, at, |reply| self.work_of_write(reply, src))
    }

    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Callback<Written>) {
        if c.deadline.is_some() {
            return then.complete_with(self.write(c, offset, src));
        }
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        match self.enter(c, at) {
            Ok(admitted) => self.submit(c, at, self.work_of_write(Reply::Callback(then), src), admitted),
            Err(error) => then.complete(Err(error)),
        }
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        self.done(c, IoRange::whole(Op::Flush), Work::Flush)
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        self.done(c, IoRange::new(Op::Discard, offset, length), Work::Discard)
    }

    fn fence(&self, _: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        self.target.gate.fence(epoch)
    }

    fn check(&self, _: &Ctx) -> Io<Result<(), DiskError>> {
        let at = IoRange::whole(Op::Check);
        Io::Done(if self.target.is_gone() { Err(DiskError::Gone { at }) } else { Ok(()) })
    }
}

impl fmt::Display for FixedBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FixedBuffers::NotRequested => f.write_str("not registered: the disk was opened without an arena"),
            FixedBuffers::NotYet => f.write_str("not registered: no I/O yet"),
            FixedBuffers::Registered { bytes } => write!(f, "registered: {bytes} bytes"),
            FixedBuffers::Refused { bytes, errno: libc::ENOMEM } => write!(
                f,
                "registered: {bytes} bytes, and no more may be locked in memory; \
                 raise LimitMEMLOCK= of the service (ulimit -l)"
            ),
            FixedBuffers::Refused { bytes, errno } => {
                write!(f, "registered: {bytes} bytes, and the kernel refused more with error {errno}")
            }
        }
    }
}
