//! The ring of a thread: what is submitted from a thread goes through that thread's ring.
//!
//! A call queues its I/O and wakes the driver, a task on the same runtime; so all that one turn of the runtime starts
//! goes to the kernel in one system call. The driver waits on the ring's descriptor by the runtime's own poll.
//! A runtime that ends waits for its I/O, [`DRAIN_SECONDS`] at most.
//!
//! **Unsafe.** The only module of the crate with it. Invariants:
//! 1. a [`Job`] in the kernel lies in `slots` from before its entry is pushed until its completion is taken; it owns
//!    the buffers, the pages and the open file that the entry names, and its pieces; nothing touches them meanwhile;
//! 2. jobs that are still in the kernel when the ring goes are leaked;
//! 3. registered memory belongs to an [`Arena`] that the ring holds on to, so an address in that range is that memory.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use arena::Arena;
use env::Env;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::FixedBuffers;
use super::job::{Job, Outcome, Work};
use crate::DiskError;

const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 4096;
const DRAIN_SECONDS: u64 = 30;
/// Rounds of submitting and reaping before other tasks get their turn.
const ROUNDS_MAX: usize = 8;
/// The kernel registers no more than this in one piece.
const PIECE_MAX: usize = 1 << 30;
/// `_IO(0x12, 0)`, BLOCK_URING_CMD_DISCARD of linux/blkdev.h, from Linux 6.12 on.
const DISCARD_COMMAND: u32 = 0x1200;

thread_local! {
    static LOCAL: RefCell<Option<Arc<Local>>> = const { RefCell::new(None) };
}

struct Local {
    ring: Mutex<Ring>,
    work: Notify,
}

struct Ring {
    /// Closed last of all.
    ring: IoUring,
    slots: ManuallyDrop<Vec<Option<Flying>>>,
    free: Vec<usize>,
    flying: usize,
    ready: VecDeque<Job>,
    disks: HashMap<u64, Queue>,
    fixed: Option<(Arena, FixedBuffers)>,
    driven: bool,
}

/// A job in the kernel.
struct Flying {
    job: Job,
    /// The pieces that the entry points to, if it points to any.
    _pieces: Pieces,
}

/// Addresses for the kernel.
struct Pieces(Box<[libc::iovec]>);

// SAFETY: the addresses are of memory that the job beside them owns, which may move between threads with it.
unsafe impl Send for Pieces {}

/// One disk's I/Os in this ring.
#[derive(Default)]
struct Queue {
    flying: u32,
    waiting: VecDeque<Job>,
}

/// Makes this thread's ring, if it has none.
///
/// # Errors
/// The system's, where it has no io_uring or forbids it.
pub(super) fn prepare() -> io::Result<()> {
    local().map(drop)
}

/// Starts an I/O on this thread's ring.
///
/// # Panics
/// Outside of a Tokio runtime, or in one without its I/O driver.
pub(super) fn submit(env: &Env, job: Job) {
    let local = match local() {
        Ok(local) => local,
        Err(e) => {
            let error = DiskError::Refused { at: job.at, errno: e.raw_os_error().unwrap_or(libc::EIO) };
            return job.finish(Err(error));
        }
    };
    let driven = {
        let mut ring = local.ring.lock();
        ring.accept(job);
        std::mem::replace(&mut ring.driven, true)
    };
    if driven {
        local.work.notify_one();
    } else {
        env.spawn(drive(Driver(local)));
    }
}

fn local() -> io::Result<Arc<Local>> {
    LOCAL.with(|slot| {
        let mut slot = slot.borrow_mut();
        if let Some(local) = &*slot {
            return Ok(Arc::clone(local));
        }
        let local = Arc::new(Local { ring: Mutex::new(Ring::new()?), work: Notify::new() });
        *slot = Some(Arc::clone(&local));
        Ok(local)
    })
}

/// The right to drive a ring; with its end, the ring's I/O is waited for.
struct Driver(Arc<Local>);

impl Drop for Driver {
    fn drop(&mut self) {
        let mut ring = self.0.ring.lock();
        ring.drain();
        ring.driven = false;
    }
}

async fn drive(driver: Driver) {
    let local = &driver.0;
    // Its own descriptor of the ring; it is closed before the driver's end waits for the I/O.
    let fd = match local.ring.lock().descriptor() {
        Ok(fd) => fd,
        Err(e) => return local.ring.lock().fail_all(&e),
    };
    // SAFETY: it owns its descriptor, which nobody replaces or closes meanwhile.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    let fd = fd.expect("the runtime has an I/O driver");
    loop {
        let more = local.ring.lock().turn();
        if more {
            local.work.notify_one();
        }
        tokio::select! {
            () = local.work.notified() => {}
            ready = fd.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is ending.
                Err(_) => return,
            },
        }
    }
}

impl Ring {
    fn new() -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS);
        let cooperative = builder.clone().setup_coop_taskrun().build(SUBMISSIONS);
        let ring = match cooperative {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => builder.build(SUBMISSIONS)?,
            other => other?,
        };
        Ok(Ring {
            ring,
            slots: ManuallyDrop::new(Vec::new()),
            free: Vec::new(),
            flying: 0,
            ready: VecDeque::new(),
            disks: HashMap::new(),
            fixed: None,
            driven: false,
        })
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring, and with it its descriptor, is open during this call.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        fd.try_clone_to_owned()
    }

    fn accept(&mut self, job: Job) {
        if let Some(arena) = &job.target.arena {
            self.register(arena);
            let (_, state) = self.fixed.as_ref().expect("just registered");
            *job.target.fixed.lock() = *state;
        }
        let queue = self.disks.entry(job.target.key).or_default();
        if queue.flying < job.target.depth {
            queue.flying += 1;
            self.ready.push_back(job);
        } else {
            queue.waiting.push_back(job);
        }
    }

    /// Registers an arena's memory once; what the kernel says to that is kept.
    fn register(&mut self, arena: &Arena) {
        if self.fixed.is_some() {
            return;
        }
        let (base, bytes) = arena.mapping();
        let pieces: Vec<_> = (0..bytes)
            .step_by(PIECE_MAX)
            .map(|at| libc::iovec {
                iov_base: base.as_ptr().wrapping_add(at).cast(),
                iov_len: PIECE_MAX.min(bytes - at),
            })
            .collect();
        // SAFETY: the memory is mapped, and stays so as long as the ring (invariant 3).
        let result = unsafe { self.ring.submitter().register_buffers(&pieces) };
        let state = match result {
            Ok(()) => FixedBuffers::Registered { bytes },
            Err(e) => FixedBuffers::Refused { bytes, errno: e.raw_os_error().unwrap_or(0) },
        };
        self.fixed = Some((arena.clone(), state));
    }

    /// Submits what is ready and takes what is complete; whether there may be more at once.
    fn turn(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            self.push_ready();
            match self.ring.submit() {
                Ok(_) => {}
                Err(e) if waits(&e) => {}
                Err(e) => self.fail_all(&e),
            }
            if self.reap() == 0 && self.ready.is_empty() {
                // Entries that the kernel had no memory for are tried again.
                return !self.ring.submission().is_empty();
            }
        }
        true
    }

    fn push_ready(&mut self) {
        while let Some(job) = self.ready.pop_front() {
            if self.ring.submission().is_full() {
                match self.ring.submit() {
                    Ok(n) if n > 0 => {}
                    // No room now: reap first.
                    _ => return self.ready.push_front(job),
                }
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let (entry, job) = self.entry(job);
            self.slots[slot] = Some(job);
            self.flying += 1;
            let entry = entry.user_data(slot as u64);
            // SAFETY: what the entry names lives in its slot until its completion (invariant 1).
            unsafe { self.ring.submission().push(&entry) }.expect("there is room, as was just seen");
        }
    }

    fn entry(&self, mut job: Job) -> (squeue::Entry, Flying) {
        let fd = Fd(job.target.fd.as_raw_fd());
        let (offset, length) = (job.at.offset + job.done, job.at.length - job.done);
        let flags = if job.through { libc::RWF_DSYNC } else { 0 };
        let whole = length as u32;
        let found = pieces(&mut job.work, job.at.length as usize, job.done as usize);
        let one = match &*found {
            [one] => Some((one.iov_base.cast::<u8>(), self.fixed_index(one))),
            _ => None,
        };
        let pieces = Pieces(if one.is_some() { Box::default() } else { found.into_vec().into() });
        let (at, number) = (pieces.0.as_ptr(), pieces.0.len() as u32);
        let entry = match (&job.work, one) {
            (Work::Read(..), Some((p, Some(index)))) => {
                opcode::ReadFixed::new(fd, p, whole, index).offset(offset).build()
            }
            (Work::Read(..), Some((p, None))) => opcode::Read::new(fd, p, whole).offset(offset).build(),
            (Work::Read(..), None) => opcode::Readv::new(fd, at, number).offset(offset).build(),
            (Work::Write(..), Some((p, Some(index)))) => {
                opcode::WriteFixed::new(fd, p, whole, index).offset(offset).rw_flags(flags).build()
            }
            (Work::Write(..), Some((p, None))) => {
                opcode::Write::new(fd, p, whole).offset(offset).rw_flags(flags).build()
            }
            (Work::Write(..), None) => {
                opcode::Writev::new(fd, at, number).offset(offset).rw_flags(flags).build()
            }
            (Work::Flush, _) => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            (Work::Discard, _) if job.target.is_device => {
                let mut command = [0; 16];
                command[..8].copy_from_slice(&length.to_ne_bytes());
                opcode::UringCmd16::new(fd, DISCARD_COMMAND).addr(Some(offset)).cmd(command).build()
            }
            (Work::Discard, _) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, length).offset(offset).mode(mode).build()
            }
        };
        (entry, Flying { job, _pieces: pieces })
    }

    /// Which registered piece an address range lies in.
    fn fixed_index(&self, piece: &libc::iovec) -> Option<u16> {
        let Some((arena, FixedBuffers::Registered { .. })) = &self.fixed else { return None };
        let (base, bytes) = arena.mapping();
        let start = piece.iov_base.addr().checked_sub(base.addr().get())?;
        let last = start.checked_add(piece.iov_len)?.checked_sub(1)?;
        (last < bytes && start / PIECE_MAX == last / PIECE_MAX).then_some((start / PIECE_MAX) as u16)
    }

    /// Takes completions; how many there were.
    fn reap(&mut self) -> usize {
        let done: Vec<(u64, i32)> = self.ring.completion().map(|c| (c.user_data(), c.result())).collect();
        for (slot, result) in &done {
            let Flying { mut job, .. } =
                self.slots[*slot as usize].take().expect("a job for each completion");
            self.free.push(*slot as usize);
            self.flying -= 1;
            match job.judge(*result) {
                Outcome::Again => self.ready.push_back(job),
                Outcome::Finished(result) => self.finish(job, result),
            }
        }
        done.len()
    }

    fn finish(&mut self, job: Job, result: Result<(), DiskError>) {
        let key = job.target.key;
        if let Some(queue) = self.disks.get_mut(&key) {
            match queue.waiting.pop_front() {
                Some(next) => self.ready.push_back(next),
                None if queue.flying > 1 => queue.flying -= 1,
                None => drop(self.disks.remove(&key)),
            }
        }
        job.finish(result);
    }

    /// The ring does not take entries any more: what was not submitted fails.
    fn fail_all(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        while let Some(job) = self.ready.pop_front() {
            let at = job.at;
            self.finish(job, Err(DiskError::Refused { at, errno }));
        }
    }

    /// Waits until nothing is in the kernel, as long as that makes sense.
    fn drain(&mut self) {
        let second = Timespec::new().sec(1);
        let mut silent = 0;
        while silent < DRAIN_SECONDS && (self.flying > 0 || !self.ready.is_empty()) {
            self.push_ready();
            let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&second));
            if self.reap() == 0 {
                silent += u64::from(waited.is_err());
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
        if self.flying == 0 {
            // SAFETY: dropped once, here, and nothing of it is in the kernel (invariant 2).
            unsafe { ManuallyDrop::drop(&mut self.slots) };
        } else {
            // The arena's memory is in the kernel's hands too.
            std::mem::forget(self.fixed.take());
        }
    }
}

/// The memory of an I/O beyond its first `done` bytes; neighbours in memory are one piece.
fn pieces(work: &mut Work, length: usize, done: usize) -> SmallVec<[libc::iovec; 2]> {
    let mut out: SmallVec<[libc::iovec; 2]> = SmallVec::new();
    let mut skip = done;
    let mut add = |p: *mut u8, n: usize| {
        let skipped = skip.min(n);
        skip -= skipped;
        let (p, n) = (p.wrapping_add(skipped), n - skipped);
        match out.last_mut() {
            _ if n == 0 => {}
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == p => last.iov_len += n,
            _ => out.push(libc::iovec { iov_base: p.cast(), iov_len: n }),
        }
    };
    match work {
        Work::Read(_, Some(pages)) | Work::Write(_, Some(pages)) => add(pages.as_mut_ptr(), length),
        Work::Read(dst, None) => dst.iter_mut().for_each(|b| {
            let b = b.filled_mut();
            add(b.as_mut_ptr(), b.len());
        }),
        // The kernel only reads from it.
        Work::Write(src, None) => src.iter().for_each(|b| add(b.as_ptr().cast_mut(), b.len())),
        Work::Flush | Work::Discard => {}
    }
    out
}

/// Whether the kernel only says to come again: time is up, a signal came, or completions must be taken first.
fn waits(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}
