//! One read, write or sync that may wait for a disk, with all its resources.
//!
//! A [`Job`] is a loop of system calls: [`Job::judge`] decides after each whether another one follows. The [`ring`]
//! makes the calls through io_uring; without one, [`Job::run`] makes them on a thread of the pool. [`Job::start`]
//! issues a job, which always runs to its end: dropping the returned future loses only the result.
//!
//! An unbuffered job uses the file's second descriptor until the file system refuses a call, and from there on the
//! first one.

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::passes::{self, Pass};
use arena::{Sg, SgMut, sg_len, sg_slice};
use env::Io;
use rustix::io::{self, Errno, ReadWriteFlags};
use smallvec::SmallVec;

use super::node::Open;
use super::transfer::{freeze, read_once, write_once};
use super::unbuffered::DirectFd;
use super::{ring, write_exclusion};
use crate::{Kind, VfsError, VfsResult};

/// The most bytes that one write copies of a payload that must be copied first.
const PIECE: usize = 1 << 20;
/// The most buffers of one call (IOV_MAX).
const PARTS_MAX: usize = 1024;
/// How often the kernel may ask to repeat a call.
const REPEATS_MAX: u32 = 1000;

/// An incomplete read, write or sync.
pub(super) struct Job {
    open: Arc<Open>,
    work: Work,
    /// It bypasses the page cache.
    direct: bool,
    /// It is durable before it completes.
    through: bool,
    offset: u64,
    length: usize,
    /// Bytes done by earlier calls.
    done: usize,
    /// Calls that the kernel asked to repeat.
    repeats: u32,
    /// Its part in the exclusion of buffered and direct writes, if it has one.
    write_guard: WriteGuard,
}

enum WriteGuard {
    None,
    Buffered(write_exclusion::BufferedWrite),
    /// Kept until the job has ended.
    Direct(#[expect(dead_code, reason = "dropping it leaves")] write_exclusion::DirectWrite),
}

pub(super) enum Work {
    Read(SgMut),
    /// The payload, and an aligned copy of a part of it if the device cannot read the original.
    Write(Sg, Option<Aligned>),
    Sync,
}

/// A part of a payload, copied to an address that the device can read from.
pub(super) struct Aligned {
    buffer: Vec<u8>,
    /// The offset of the copy in `buffer`, in bytes.
    start: usize,
    /// The range of the payload that was copied.
    part: Range<usize>,
}

/// The next step after a call.
pub(super) enum NextStep {
    Call,
    /// The rest of a write uses the page cache: it may have to wait for other writes.
    Buffered,
    /// The job is complete.
    End(VfsResult<()>),
}

impl Job {
    /// A read of `length` bytes into `bufs` from byte `done` on.
    pub(super) fn read(open: Arc<Open>, offset: u64, bufs: SgMut, done: usize, length: usize) -> Job {
        Job { done, ..Job::new(open, Work::Read(bufs), offset, length) }
    }

    pub(super) fn write(open: Arc<Open>, offset: u64, src: Sg, through: bool) -> Job {
        let length = sg_len(&src);
        Job { through, ..Job::new(open, Work::Write(src, None), offset, length) }
    }

    /// Makes everything written to the file durable.
    pub(super) fn sync(open: Arc<Open>) -> Job {
        Job { through: true, ..Job::new(open, Work::Sync, 0, 0) }
    }

    fn new(open: Arc<Open>, work: Work, offset: u64, length: usize) -> Job {
        Job {
            open,
            work,
            direct: false,
            through: false,
            offset,
            length,
            done: 0,
            repeats: 0,
            write_guard: WriteGuard::None,
        }
    }

    /// The same job, bypassing the page cache.
    pub(super) fn bypassing_cache(self) -> Job {
        Job { direct: true, ..self }
    }

    /// Issues it; `result` converts the data read (empty for writes and syncs) to the result.
    pub(super) fn start<T: Send + 'static>(
        mut self,
        result: impl FnOnce(Sg) -> T + Send + 'static,
    ) -> Io<VfsResult<T>> {
        if !matches!(self.work, Work::Sync) && self.done >= self.length {
            return Io::Done(self.finish(Ok(())).map(result)); // the end of the file
        }
        if self.open.shared.device.memory {
            return Io::Done(self.run().map(result));
        }
        if let Err(e) = self.may_start() {
            return Io::Done(Err(e));
        }
        let submitted = if self.may_use_ring() { ring::submit(self) } else { Err(self) };
        let job = match submitted {
            Ok(issued) => {
                let lost = Err(VfsError::Io(Errno::CANCELED.raw_os_error()));
                return Io::pending(async move { issued.await.unwrap_or(lost).map(result) });
            }
            Err(mut job) => {
                job.leave_direct();
                job
            }
        };
        let tree = Arc::clone(&job.open.shared.tree);
        let issued = match job.work {
            Work::Read(_) => tree.pool.run(move || job.run()),
            _ => tree.pool.run_slow(move || job.run()),
        };
        Io::pending(async move { issued.await.map(result) })
    }

    /// Whether it may run in the ring; registers a write with the exclusion of buffered and direct ones.
    fn may_use_ring(&mut self) -> bool {
        let file = &self.open.shared;
        // Opening the second descriptor waits for the disk.
        let is_ready = file.tree.options.io_uring && (!self.direct || self.open.direct.get().is_some());
        let (write_guard, may) = match self.work {
            Work::Write(..) if !self.direct => {
                let buffered = write_exclusion::BufferedWrite::begin(file);
                let may = is_ready && buffered.may_start();
                (WriteGuard::Buffered(buffered), may)
            }
            Work::Write(..) if is_ready => match write_exclusion::DirectWrite::try_begin(file) {
                Some(direct) => (WriteGuard::Direct(direct), true),
                None => (WriteGuard::None, false),
            },
            _ => (WriteGuard::None, is_ready),
        };
        self.write_guard = write_guard;
        may
    }

    /// Is no direct write of the ring any more: on a thread of the pool the write holds the inode's lock instead.
    fn leave_direct(&mut self) {
        if let WriteGuard::Direct(_) = self.write_guard {
            self.write_guard = WriteGuard::None;
        }
    }

    /// Makes all calls on this thread.
    pub(super) fn run(mut self) -> VfsResult<Sg> {
        self.may_start()?;
        if let WriteGuard::Buffered(buffered) = &self.write_guard {
            buffered.wait();
        }
        loop {
            self.prepare();
            let outcome = self.call();
            if let NextStep::End(result) = self.next_step(outcome) {
                return self.finish(result); // `NextStep::Buffered` needs no wait: each call here holds the inode's lock
            }
        }
    }

    /// # Errors
    /// A durable write fails after earlier data was lost.
    fn may_start(&self) -> VfsResult<()> {
        if self.through { self.open.shared.intact() } else { Ok(()) }
    }

    /// Prepares the next call.
    pub(super) fn prepare(&mut self) {
        if self.direct && self.direct_fd().is_none() {
            self.direct = false;
        }
        let direct = if self.direct { self.open.direct_fd() } else { None };
        if let Work::Write(src, aligned) = &mut self.work {
            *aligned = match (direct, aligned.take()) {
                (Some(_), Some(a)) if a.part.contains(&self.done) => Some(a),
                (Some(direct), _) if !direct.takes(src) => Some(Aligned::copy(src, self.done, direct.memory)),
                _ => None,
            };
        }
    }

    /// The second descriptor, if there is one that supports this range.
    fn direct_fd(&self) -> Option<&DirectFd> {
        self.open.direct_fd().filter(|direct| direct.takes_range(self.offset, self.length))
    }

    /// The descriptor for the next call.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self.open.direct.get() {
            Some(Some(direct)) if self.direct => direct.fd.as_fd(),
            _ => self.open.fd.as_fd(),
        }
    }

    /// Where the next call begins in the file.
    pub(super) fn position(&self) -> u64 {
        self.offset + self.done as u64
    }

    pub(super) fn flags(&self) -> ReadWriteFlags {
        if self.through { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() }
    }

    pub(super) fn work(&self) -> &Work {
        &self.work
    }

    /// Whether its next call blocks a thread during the disk's I/O: syncs, buffered write-throughs, and buffered reads
    /// on a file system without non-blocking reads.
    pub(super) fn holds_thread(&self) -> bool {
        !self.direct && (self.through || self.is_blocking_read())
    }

    /// Whether its next call, a read, would block although a non-blocking read was requested.
    pub(super) fn is_blocking_read(&self) -> bool {
        let device = &self.open.shared.device;
        let says_so = device.local && device.nowait_reads.load(Ordering::Relaxed);
        !self.direct && matches!(self.work, Work::Read(_)) && !says_so
    }

    fn call(&mut self) -> io::Result<usize> {
        let (at, flags) = (self.position(), self.flags());
        let fd = match self.open.direct.get() {
            Some(Some(direct)) if self.direct => &direct.fd,
            _ => &*self.open.fd,
        };
        match &mut self.work {
            Work::Read(bufs) => read_once(fd, self.offset, bufs, self.done, self.length, flags),
            Work::Write(_, Some(aligned)) => {
                io::pwritev2(fd, &[IoSlice::new(aligned.from(self.done))], at, flags)
            }
            Work::Write(src, None) => write_once(fd, self.offset, src, self.done, flags),
            Work::Sync => rustix::fs::fsync(fd).map(|()| 0),
        }
    }

    /// The memory of the next call, in order. The job owns it, and its address is stable when the job is moved.
    pub(super) fn memory(&mut self) -> SmallVec<[libc::iovec; 2]> {
        let mut out: SmallVec<[libc::iovec; 2]> = SmallVec::new();
        let (mut skip, mut left) = (self.done, self.length - self.done);
        let mut add = |p: *mut u8, n: usize| {
            let skipped = skip.min(n);
            let n = (n - skipped).min(left);
            skip -= skipped;
            if n > 0 && out.len() < PARTS_MAX {
                left -= n;
                out.push(libc::iovec { iov_base: p.wrapping_add(skipped).cast(), iov_len: n });
            }
        };
        match &mut self.work {
            Work::Read(bufs) => bufs.iter_mut().for_each(|b| {
                let space = b.space();
                add(space.as_mut_ptr(), space.len());
            }),
            // The kernel only reads from it.
            Work::Write(_, Some(aligned)) => {
                let rest = aligned.from(self.done);
                out.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
            }
            Work::Write(src, None) => src.iter().for_each(|b| add(b.as_ptr().cast_mut(), b.len())),
            Work::Sync => {}
        }
        out
    }

    /// Processes the result of a call: the number of bytes, or the system's error.
    pub(super) fn next_step(&mut self, outcome: io::Result<usize>) -> NextStep {
        match outcome {
            Err(Errno::INTR | Errno::AGAIN) if self.repeats < REPEATS_MAX => {
                self.repeats += 1;
                NextStep::Call
            }
            Err(Errno::INVAL | Errno::OPNOTSUPP) if self.direct => self.buffered(), // not this part of the file
            // Some file systems cannot sync a directory.
            Err(Errno::INVAL) if matches!(self.work, Work::Sync) && self.open.kind == Kind::Directory => {
                NextStep::End(Ok(()))
            }
            Err(e) if self.through => NextStep::End(Err(self.open.shared.failed(e.into()))),
            Err(e) => NextStep::End(Err(e.into())),
            Ok(n) => self.advance(n),
        }
    }

    fn advance(&mut self, n: usize) -> NextStep {
        self.done += n;
        let whole_sectors = !self.direct || self.direct_fd().is_some_and(|d| n.is_multiple_of(d.sector));
        match self.work {
            Work::Sync => NextStep::End(Ok(())),
            // A read that ends inside a sector has reached the end of the file.
            Work::Read(_) if n == 0 || !whole_sectors => NextStep::End(Ok(())),
            _ if self.done >= self.length => NextStep::End(Ok(())),
            Work::Write(..) if self.direct && (n == 0 || !whole_sectors) => self.buffered(),
            Work::Write(..) if n == 0 => NextStep::End(Err(VfsError::Io(Errno::IO.raw_os_error()))),
            _ => NextStep::Call,
        }
    }

    /// Continues with the page cache.
    fn buffered(&mut self) -> NextStep {
        self.direct = false;
        if matches!(self.work, Work::Write(..)) { NextStep::Buffered } else { NextStep::Call }
    }

    /// Continues in the pool, and calls `then` with the result there.
    pub(super) fn continue_in_pool(mut self, then: impl FnOnce(VfsResult<Sg>) + Send + 'static) {
        let file = Arc::clone(&self.open.shared);
        self.write_guard = WriteGuard::Buffered(write_exclusion::BufferedWrite::begin(&file));
        drop(file.tree.pool.run_slow(move || then(self.run())));
    }

    /// The result of the job: the data read.
    pub(super) fn finish(self, result: VfsResult<()>) -> VfsResult<Sg> {
        result?;
        match self.work {
            Work::Read(bufs) => Ok(freeze(bufs, self.done)),
            Work::Write(..) | Work::Sync => Ok(Sg::new()),
        }
    }
}

impl Aligned {
    /// Copies the bytes of `src` from `done` on, at most [`PIECE`], to an address that is a multiple of `memory`.
    fn copy(src: &Sg, done: usize, memory: usize) -> Aligned {
        let length = PIECE.min(sg_len(src) - done);
        let mut buffer: Vec<u8> = Vec::with_capacity(length + memory);
        let start = buffer.as_ptr().align_offset(memory);
        buffer.resize(start, 0);
        for part in sg_slice(src, done, length) {
            buffer.extend_from_slice(&part);
        }
        passes::count(Pass::Copy, length);
        Aligned { buffer, start, part: done..done + length }
    }

    /// The copy of the payload's bytes from `done` on.
    fn from(&self, done: usize) -> &[u8] {
        &self.buffer[self.start + done - self.part.start..]
    }
}
