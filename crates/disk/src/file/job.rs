//! One I/O in a ring, with everything that it needs until it completes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::passes::{Pass, count};
use arena::{Arena, IoBuf, Pages, Sg, SgMut};
use env::Epoch;
use rustix::fs::{SeekFrom, fstat, seek};
use tokio::sync::oneshot;

use super::lock::DiskLock;
use crate::{Callback, DiskError, FlushLatch, Gate, IoRange, Op, Outcome, Read, Written};

/// An open file or device, kept open by every I/O on it.
pub(super) struct Target {
    pub(super) fd: OwnedFd,
    pub(super) lock: DiskLock,
    pub(super) gate: Arc<Gate>,
    /// Distinguishes its I/Os from those of other disks in a ring.
    pub(super) key: u64,
    pub(super) is_device: bool,
    /// The size in bytes when it was opened.
    pub(super) size: u64,
    /// Maximum I/Os of one ring in the kernel at a time.
    pub(super) depth: u32,
    pub(super) latch: FlushLatch,
    pub(super) arena: Option<Arena>,
}

/// The operation, with its receiver and buffers. A read whose buffers are not aligned for the device has
/// pages, from which it is copied.
pub(super) enum Work {
    Read(Reply<Read>, SgMut, Option<Pages>),
    Write(Reply<Written>, Sg),
    Flush(Reply<Written>),
    Discard(Reply<Written>),
}

/// The receiver of the result.
pub(super) enum Reply<T: Outcome> {
    Channel(oneshot::Sender<T>),
    Callback(Callback<T>),
}

/// The open file and the admission by its gate; both are released on drop.
pub(super) struct AdmittedTarget {
    pub(super) target: Arc<Target>,
    pub(super) epoch: Epoch,
}

impl Drop for AdmittedTarget {
    fn drop(&mut self) {
        self.target.gate.leave(self.epoch);
    }
}

pub(super) struct Job {
    pub(super) admitted: AdmittedTarget,
    pub(super) work: Work,
    pub(super) at: IoRange,
    /// Write-through: durable before it completes.
    pub(super) write_through: bool,
    /// Bytes completed by earlier submissions: the kernel may do less than requested.
    pub(super) done: u64,
    /// How often the kernel asked for a retry.
    pub(super) retries: u32,
}

/// The meaning of a completion.
pub(super) enum Verdict {
    Finished(Result<(), DiskError>),
    /// Submit the rest.
    Resubmit,
}

const RETRIES_MAX: u32 = 1000;

impl Drop for Target {
    fn drop(&mut self) {
        self.lock.release(&self.fd);
    }
}

impl Target {
    pub(super) fn next_key() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the opened disk no longer exists: a removed device has size 0, a removed file has no name, or
    /// the file became shorter.
    pub(super) fn is_gone(&self) -> bool {
        if self.is_device {
            return seek(&self.fd, SeekFrom::End(0)).is_ok_and(|size| size == 0);
        }
        fstat(&self.fd)
            .is_ok_and(|s| s.st_nlink == 0 || u64::try_from(s.st_size).is_ok_and(|n| n < self.size))
    }

    fn error(&self, errno: i32, at: IoRange) -> DiskError {
        match errno {
            libc::EIO if self.is_gone() => DiskError::Gone { at },
            // Error numbers of the block layer for a medium error, a protection error and a target error.
            libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EREMOTEIO => DiskError::Medium { at },
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::ENOLINK => DiskError::Gone { at },
            libc::ENOSPC | libc::EDQUOT => DiskError::Full { at },
            libc::ETIMEDOUT => DiskError::Timeout { at },
            errno => DiskError::Refused { at, errno },
        }
    }
}

impl Work {
    /// A read. If the buffers are not aligned for the device, it goes through pages that are.
    pub(super) fn read(reply: Reply<Read>, mut dst: SgMut, alignment: u32, block: u32) -> Work {
        let length = dst.iter().map(|b| b.len()).sum();
        let fits = fits(dst.iter_mut().map(|b| &*b.filled_mut()), alignment, block);
        let pages = (!fits).then(|| Pages::zeros(length));
        Work::Read(reply, dst, pages)
    }

    /// A write. If the buffers are not aligned for the device, they are copied to pages that are.
    pub(super) fn write(reply: Reply<Written>, src: Sg, alignment: u32, block: u32) -> Work {
        let fits = fits(src.iter().map(|b| &**b), alignment, block);
        if fits {
            return Work::Write(reply, src);
        }
        let pages = Pages::copied(src.iter().map(|b| &**b));
        count(Pass::Copy, pages.len());
        Work::Write(reply, Sg::from_iter([IoBuf::from(pages)]))
    }
}

/// Whether the kernel can use the pieces directly.
fn fits<'a>(pieces: impl Iterator<Item = &'a [u8]>, alignment: u32, block: u32) -> bool {
    let mut number = 0;
    let mut every = true;
    for p in pieces.filter(|p| !p.is_empty()) {
        number += 1;
        every &=
            p.as_ptr().addr().is_multiple_of(alignment as usize) && p.len().is_multiple_of(block as usize);
    }
    every && number <= PIECES_MAX
}

/// The kernel's maximum number of pieces (iovecs) per I/O.
const PIECES_MAX: usize = 1024;

impl Job {
    /// Interprets the kernel's result: bytes done, or a negative error number.
    pub(super) fn interpret(&mut self, result: i32) -> Verdict {
        if matches!(-result, libc::EINTR | libc::EAGAIN) && self.retries < RETRIES_MAX {
            self.retries += 1;
            return Verdict::Resubmit;
        }
        let Ok(bytes) = u64::try_from(result) else {
            let hint = self.at.op == Op::Discard;
            let unable = [libc::EOPNOTSUPP, libc::EINVAL, libc::ENOTTY, libc::ENOSYS, libc::EPERM];
            if hint && unable.contains(&-result) {
                return Verdict::Finished(Ok(()));
            }
            return Verdict::Finished(Err(self.admitted.target.error(-result, self.rest())));
        };
        if matches!(self.work, Work::Flush(_) | Work::Discard(_)) {
            return Verdict::Finished(Ok(()));
        }
        self.done += bytes;
        match (self.done >= self.at.length, bytes) {
            (true, _) => Verdict::Finished(Ok(())),
            // The file ends before the disk does: another process truncated it.
            (false, 0) => Verdict::Finished(Err(DiskError::Medium { at: self.rest() })),
            (false, _) => Verdict::Resubmit,
        }
    }

    fn rest(&self) -> IoRange {
        let done = self.done.min(self.at.length);
        IoRange { op: self.at.op, offset: self.at.offset + done, length: self.at.length - done }
    }

    /// Reports the result to the receiver and returns the buffers.
    #[expect(clippy::boxed_local, reason = "out of its box all of it would be copied")]
    pub(super) fn finish(self: Box<Job>, result: Result<(), DiskError>) {
        let Job { admitted, work, write_through, at, .. } = *self;
        // A failed write-through write may have failed in its flush, and this is the only report of that
        // failure.
        let result =
            if write_through || at.op == Op::Flush { admitted.target.latch.record(result) } else { result };
        // Released before the completion, because the receiver may reopen or fence the disk.
        drop(admitted);
        match work {
            Work::Read(reply, mut dst, pages) => {
                if let (Some(pages), Ok(())) = (pages, result) {
                    let mut left = &*pages;
                    for piece in dst.iter_mut().map(|b| b.filled_mut()) {
                        let here;
                        (here, left) = left.split_at(piece.len());
                        piece.copy_from_slice(here);
                    }
                    count(Pass::Copy, at.length as usize);
                }
                reply.complete((result, dst));
            }
            Work::Write(reply, src) => {
                drop(src);
                reply.complete(result);
            }
            Work::Flush(reply) | Work::Discard(reply) => reply.complete(result),
        }
    }
}

impl<T: Outcome> Reply<T> {
    fn complete(self, outcome: T) {
        match self {
            Reply::Channel(who) => drop(who.send(outcome)),
            Reply::Callback(then) => then.complete(outcome),
        }
    }
}
