//! The io_uring of a thread: I/O submitted on a thread uses that thread's ring.
//!
//! A call queues its I/O and wakes the driver, a task on the same runtime. So all I/O that one turn of the
//! runtime starts is submitted by one system call. The runtime polls the ring's descriptor for the driver. On
//! a current-thread runtime the kernel delivers completions during this thread's next system call
//! (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1), so one call takes many and completions do not interrupt the
//! thread. Such a runtime must stay on the thread that has used disks in it. A runtime that ends waits for
//! its I/O, at most [`DRAIN_SECONDS`].
//!
//! **Unsafe.** Of the modules that do I/O, only this one and [`fixed`](super::fixed), which only this one
//! calls, have unsafe code. Invariants:
//! 1. a [`Job`] is in `slots` from its acceptance until its completion is taken. It owns the buffers, pages
//!    and open file that its entry names, and `AcceptedJob` owns the iovecs. Nothing else accesses them while
//!    the job is in the kernel;
//! 2. jobs that are still in the kernel when the ring is dropped are leaked;
//! 3. registered memory belongs to an [`Arena`](arena::Arena) that the ring keeps alive, so an address in its
//!    range is always arena memory.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use env::Env;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use smallvec::SmallVec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::FixedBuffers;
use super::fixed::Fixed;
use super::job::{Job, Verdict, Work};
use crate::DiskError;

const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 4096;
const DRAIN_SECONDS: u64 = 30;
/// Rounds of submitting and reaping before the task yields.
const ROUNDS_MAX: usize = 8;
/// `_IO(0x12, 0)`, BLOCK_URING_CMD_DISCARD of linux/blkdev.h, from Linux 6.12 on.
const DISCARD_COMMAND: u32 = 0x1200;

thread_local! {
    static THREAD_RING: RefCell<Option<Arc<ThreadRing>>> = const { RefCell::new(None) };
}

struct ThreadRing {
    ring: Mutex<Ring>,
    work: Notify,
}

struct Ring {
    ring: IoUring,
    /// The eventfd that signals completions, if the ring's own descriptor does not.
    signal: Option<OwnedFd>,
    slots: ManuallyDrop<Vec<Option<AcceptedJob>>>,
    free: Vec<u32>,
    /// The number of jobs in the kernel.
    in_flight: usize,
    /// Slots of jobs to submit next.
    ready: VecDeque<u32>,
    disks: FxHashMap<u64, Queue>,
    /// Completed jobs whose receivers are not notified yet. They are notified without the lock, because a
    /// receiver may use this ring immediately.
    completed: CompletedJobs,
    fixed: Option<Fixed>,
    has_driver: bool,
}

/// Jobs and their results.
type CompletedJobs = Vec<(Box<Job>, Result<(), DiskError>)>;

/// A job that has not completed.
struct AcceptedJob {
    /// Boxed because it moves several times.
    job: Box<Job>,
    /// The iovecs that its entry points to, if any.
    pieces: Pieces,
}

/// Iovecs for the kernel.
#[derive(Default)]
struct Pieces(Box<[libc::iovec]>);

// SAFETY: the job beside it owns the memory at these addresses and moves between threads with it.
unsafe impl Send for Pieces {}

/// One disk's I/Os in this ring.
#[derive(Default)]
struct Queue {
    /// Jobs in the kernel or in `ready`.
    in_flight: u32,
    /// Slots of jobs that wait for one of those to complete.
    waiting: VecDeque<u32>,
}

/// Creates this thread's ring if it has none.
///
/// # Errors
/// The system's error if it lacks io_uring or forbids it.
pub(super) fn prepare() -> io::Result<()> {
    THREAD_RING.with_borrow_mut(|local| {
        if local.is_none() {
            *local = Some(Arc::new(ThreadRing { ring: Mutex::new(Ring::new()?), work: Notify::new() }));
        }
        Ok(())
    })
}

/// Starts an I/O on this thread's ring.
///
/// # Panics
/// Outside a Tokio runtime, or in one without an I/O driver.
pub(super) fn submit(env: &Env, job: Box<Job>) {
    if let Err(e) = prepare() {
        let error = DiskError::Refused { at: job.at, errno: e.raw_os_error().unwrap_or(libc::EIO) };
        return job.finish(Err(error));
    }
    THREAD_RING.with_borrow(|local| {
        let local = local.as_ref().expect("it was made, or was there");
        let mut ring = local.ring.lock();
        ring.accept(job);
        // The driver must be woken only for the first ready job.
        let (first, has_driver) = (ring.ready.len() == 1, std::mem::replace(&mut ring.has_driver, true));
        drop(ring);
        if !has_driver {
            env.spawn(drive(Driver(Arc::clone(local))));
        } else if first {
            local.work.notify_one();
        }
    });
}

/// The state of this thread's registered buffers.
pub(super) fn fixed_buffers() -> FixedBuffers {
    THREAD_RING.with_borrow(|local| {
        let Some(local) = local else { return FixedBuffers::NotYet };
        local.ring.lock().fixed.as_ref().map_or(FixedBuffers::NotYet, Fixed::state)
    })
}

/// The driver of a ring; dropping it waits for the ring's I/O.
struct Driver(Arc<ThreadRing>);

impl Drop for Driver {
    fn drop(&mut self) {
        let completed = {
            let mut ring = self.0.ring.lock();
            ring.drain();
            ring.has_driver = false;
            std::mem::take(&mut ring.completed)
        };
        complete_all(completed);
    }
}

async fn drive(driver: Driver) {
    let local = &driver.0;
    // A duplicate of the descriptor; it is closed before dropping the driver waits for the I/O.
    let fd = match local.ring.lock().descriptor() {
        Ok(fd) => fd,
        Err(e) => return local.ring.lock().fail_all(&e),
    };
    // SAFETY: the value owns its descriptor, which is not replaced or closed meanwhile.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    let fd = fd.expect("the runtime has an I/O driver");
    let mut completed = CompletedJobs::new();
    loop {
        let more = {
            let mut ring = local.ring.lock();
            let more = ring.turn();
            std::mem::swap(&mut completed, &mut ring.completed);
            more
        };
        complete_all(completed.drain(..));
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
        let unknown = |e: &io::Error| e.raw_os_error() == Some(libc::EINVAL);
        let one = tokio::runtime::Handle::try_current()
            .is_ok_and(|h| h.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread);
        if one {
            let mut deferred = builder.clone();
            deferred.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            match deferred.build(SUBMISSIONS) {
                Err(e) if unknown(&e) => {}
                other => return Ring::with_signal(other?),
            }
        }
        match builder.clone().setup_coop_taskrun().build(SUBMISSIONS) {
            Err(e) if unknown(&e) => Ok(Ring::of(builder.build(SUBMISSIONS)?, None)),
            other => Ok(Ring::of(other?, None)),
        }
    }

    /// With deferred completions only an eventfd signals that completions are available.
    fn with_signal(ring: IoUring) -> io::Result<Ring> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(signal.as_raw_fd())?;
        Ok(Ring::of(ring, Some(signal)))
    }

    fn of(ring: IoUring, signal: Option<OwnedFd>) -> Ring {
        Ring {
            ring,
            signal,
            slots: ManuallyDrop::new(Vec::new()),
            free: Vec::new(),
            in_flight: 0,
            ready: VecDeque::new(),
            disks: FxHashMap::default(),
            completed: CompletedJobs::new(),
            fixed: None,
            has_driver: false,
        }
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        if let Some(signal) = &self.signal {
            return signal.try_clone();
        }
        // SAFETY: the ring, and with it its descriptor, is open during this call.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        fd.try_clone_to_owned()
    }

    fn accept(&mut self, job: Box<Job>) {
        if self.fixed.is_none() {
            self.fixed = job
                .admitted
                .target
                .arena
                .as_ref()
                .map(|arena| Fixed::new(arena.clone(), &self.ring.submitter()));
        }
        let (key, depth) = (job.admitted.target.key, job.admitted.target.depth);
        let accepted = Some(AcceptedJob { job, pieces: Pieces::default() });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = accepted;
                slot
            }
            None => {
                self.slots.push(accepted);
                self.slots.len() as u32 - 1
            }
        };
        let queue = self.disks.entry(key).or_default();
        if queue.in_flight < depth {
            queue.in_flight += 1;
            self.ready.push_back(slot);
        } else {
            queue.waiting.push_back(slot);
        }
    }

    /// Submits ready jobs and takes completions; returns whether more may be available at once. Completions
    /// that arrive meanwhile are taken by the next call, together with the submission of the I/Os that follow
    /// from these.
    fn turn(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            self.push_ready();
            if self.has_call() {
                match self.ring.submit() {
                    Ok(_) => {}
                    Err(e) if is_retryable(&e) => {}
                    Err(e) => self.fail_all(&e),
                }
            }
            self.reap();
            if self.ready.is_empty() {
                // The kernel had no memory for entries, which are retried, or no room for completions, which
                // are then not signalled.
                let queue = self.ring.submission();
                return !queue.is_empty() || queue.cq_overflow();
            }
        }
        true
    }

    /// Whether the kernel has completions, or work to do before completions can be taken. (Without deferred
    /// completions it does that work without a call.)
    fn has_call(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn push_ready(&mut self) {
        while let Some(slot) = self.ready.pop_front() {
            if self.ring.submission().is_full() {
                match self.ring.submit() {
                    Ok(n) if n > 0 => {}
                    // The queue is full: take completions first.
                    _ => return self.ready.push_front(slot),
                }
            }
            let entry = self.entry(slot).user_data(u64::from(slot));
            self.in_flight += 1;
            // SAFETY: everything that the entry refers to lives in its slot until its completion (invariant
            // 1).
            unsafe { self.ring.submission().push(&entry) }.expect("there is room, as was just seen");
        }
    }

    /// Builds the entry of the job in a slot, and stores the iovecs that it points to in the slot.
    fn entry(&mut self, slot: u32) -> squeue::Entry {
        let AcceptedJob { job, pieces: kept } =
            self.slots[slot as usize].as_mut().expect("a job that is ready is in its slot");
        let fd = Fd(job.admitted.target.fd.as_raw_fd());
        let (offset, length) = (job.at.offset + job.done, job.at.length - job.done);
        let flags = if job.write_through { libc::RWF_DSYNC } else { 0 };
        let whole = length as u32;
        let found = pieces(&mut job.work, job.at.length as usize, job.done as usize);
        let one = match &*found {
            [one] => {
                let fixed = self.fixed.as_mut();
                // SAFETY: the memory stays mapped as long as the ring has the arena (invariant 3).
                let index = fixed.and_then(|f| unsafe { f.index(one, &self.ring.submitter()) });
                Some((one.iov_base.cast::<u8>(), index))
            }
            _ => None,
        };
        *kept = Pieces(if one.is_some() { Box::default() } else { found.into_vec().into() });
        let (at, number) = (kept.0.as_ptr(), kept.0.len() as u32);
        match (&job.work, one) {
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
            (Work::Flush(_), _) => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            (Work::Discard(_), _) if job.admitted.target.is_device => {
                let mut command = [0; 16];
                command[..8].copy_from_slice(&length.to_ne_bytes());
                opcode::UringCmd16::new(fd, DISCARD_COMMAND).addr(Some(offset)).cmd(command).build()
            }
            (Work::Discard(_), _) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, length).offset(offset).mode(mode).build()
            }
        }
    }

    /// Takes completions; returns their number.
    fn reap(&mut self) -> usize {
        let mut done = 0;
        loop {
            // A separate binding, so that the queue is not borrowed while jobs finish.
            let completion = self.ring.completion().next();
            let Some(completion) = completion else { return done };
            let slot = completion.user_data() as u32;
            self.in_flight -= 1;
            done += 1;
            let job = self.slots[slot as usize].as_mut().map(|a| &mut a.job);
            match job.expect("a job for each completion").interpret(completion.result()) {
                Verdict::Resubmit => self.ready.push_back(slot),
                Verdict::Finished(result) => self.finish(slot, result),
            }
        }
    }

    fn finish(&mut self, slot: u32, result: Result<(), DiskError>) {
        let Some(AcceptedJob { job, .. }) = self.slots[slot as usize].take() else { return };
        self.free.push(slot);
        let key = job.admitted.target.key;
        if let Some(queue) = self.disks.get_mut(&key) {
            match queue.waiting.pop_front() {
                Some(next) => self.ready.push_back(next),
                None if queue.in_flight > 1 => queue.in_flight -= 1,
                None => drop(self.disks.remove(&key)),
            }
        }
        self.completed.push((job, result));
    }

    /// The ring accepts no more entries: fails jobs that were not submitted.
    fn fail_all(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        while let Some(slot) = self.ready.pop_front() {
            let at = self.slots[slot as usize].as_ref().map(|a| a.job.at);
            let at = at.expect("a job that is ready is in its slot");
            self.finish(slot, Err(DiskError::Refused { at, errno }));
        }
    }

    /// Waits until no I/O is in the kernel, or until nothing completes for too long.
    fn drain(&mut self) {
        let second = Timespec::new().sec(1);
        let mut silent = 0;
        while silent < DRAIN_SECONDS && (self.in_flight > 0 || !self.ready.is_empty()) {
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
        complete_all(std::mem::take(&mut self.completed));
        if self.in_flight == 0 {
            // SAFETY: dropped only here, and the kernel uses none of it (invariant 2).
            unsafe { ManuallyDrop::drop(&mut self.slots) };
        } else {
            // A job that was not submitted ends here; its receiver gets an error.
            let waiting = std::mem::take(&mut self.disks).into_values().flat_map(|queue| queue.waiting);
            for slot in waiting.chain(std::mem::take(&mut self.ready)) {
                self.slots[slot as usize] = None;
            }
            // The kernel still uses the arena's memory too.
            std::mem::forget(self.fixed.take());
        }
    }
}

/// The memory of an I/O after its first `done` bytes; adjacent memory is merged into one piece.
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
        Work::Read(_, _, Some(pages)) => add(pages.as_mut_ptr(), length),
        Work::Read(_, dst, None) => dst.iter_mut().for_each(|b| {
            let b = b.filled_mut();
            add(b.as_mut_ptr(), b.len());
        }),
        // The kernel only reads this memory.
        Work::Write(_, src) => src.iter().for_each(|b| add(b.as_ptr().cast_mut(), b.len())),
        Work::Flush(_) | Work::Discard(_) => {}
    }
    out
}

/// Reports the results to the receivers.
fn complete_all(completed: impl IntoIterator<Item = (Box<Job>, Result<(), DiskError>)>) {
    completed.into_iter().for_each(|(job, result)| job.finish(result));
}

/// Whether the caller should just retry: a timeout, a signal, or completions must be taken first.
fn is_retryable(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}
