//! The io_uring of a runtime: jobs that are submitted on a worker complete on that worker.
//!
//! A call queues its job and wakes the driver, a task of the same runtime, so that all jobs that one turn of the
//! runtime starts go to the kernel in one system call. The driver waits for completions on an eventfd, by the runtime's
//! own poll. On a current-thread runtime the kernel leaves completions to this thread's next call
//! (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1): one call takes many, and nothing interrupts the thread. Such a runtime
//! stays on the thread that has used it. The runtime needs its I/O driver.
//!
//! **Bounds.** At most [`IN_KERNEL_MAX`] jobs are in the kernel, the others wait here in order; how many those can be
//! is bounded by the credits that the callers grant. What the file system cannot do without blocking is done by the
//! kernel's threads for this ring, [`KERNEL_THREADS`] at most. What holds such a thread as long as the disk takes
//! (syncs, write-throughs by the page cache) has half of them: so slow ones leave the others running.
//!
//! **Cancelling.** A dropped future loses the result. The job, its buffers and its file stay in their slot until the
//! job has ended. The end of a runtime waits for its jobs, [`DRAIN_SECONDS`] without a completion at most.
//!
//! **Unsafe.** Invariants:
//! 1. a job lies in `slots` from when it is accepted until its last completion; it owns the file and the buffers that
//!    its entry names, and nothing touches them while the entry is in the kernel; the slot has the entry's list of
//!    them;
//! 2. jobs that are in the kernel when the ring is dropped are leaked.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::oneshot;

use super::job::{Job, Next, Work};
use crate::VfsResult;

const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 4096;
/// With so many jobs due they are submitted at once, without the driver.
const EAGER: usize = 8;
/// The most jobs that are in the kernel.
pub(super) const IN_KERNEL_MAX: usize = 1024;
/// The most threads of the kernel for what blocks.
const KERNEL_THREADS: u32 = 64;
/// The most jobs in the kernel that hold one of these threads as long as the disk takes.
pub(super) const SLOW_MAX: usize = KERNEL_THREADS as usize / 2;
const DRAIN_SECONDS: u64 = 30;
/// Rounds of submitting and taking completions before other tasks get their turn.
const ROUNDS_MAX: usize = 8;

/// How a job's caller gets its result.
type Reply = oneshot::Sender<VfsResult<arena::Sg>>;

thread_local! {
    /// The ring of the runtime that was used last on this thread.
    static LOCAL: RefCell<Option<(Id, Arc<Local>)>> = const { RefCell::new(None) };
}

/// No ring could be made: not tried again.
static REFUSED: AtomicBool = AtomicBool::new(false);

struct Local {
    ring: Mutex<Ring>,
}

struct Ring {
    ring: IoUring,
    slots: ManuallyDrop<Vec<Option<Accepted>>>,
    free: Vec<u32>,
    /// Jobs in the kernel.
    in_kernel: usize,
    /// Those of them that hold a thread of the kernel as long as the disk takes.
    slow: usize,
    /// Slots of jobs whose next call is due.
    due: VecDeque<u32>,
    /// Those that wait because `slow` is at its limit.
    parked: VecDeque<u32>,
    /// Jobs that the ring is done with. Their callers are woken outside of the lock.
    ended: Vec<(Accepted, End)>,
    /// The driver's, while it sleeps.
    driver: Option<Waker>,
    /// The driver has ended, and takes no job any more.
    closed: bool,
}

/// How a job left the ring: with its result, or `None` where the pool does the rest.
type End = Option<VfsResult<()>>;

/// A job that has not ended.
struct Accepted {
    job: Job,
    reply: Reply,
    /// The list of buffers that its entry points to, if it points to one.
    list: List,
    /// It is counted in `slow`.
    is_slow: bool,
}

#[derive(Default)]
struct List(Box<[libc::iovec]>);

// SAFETY: the addresses are of memory that the job beside them owns, which may move between threads with it.
unsafe impl Send for List {}

/// Issues a job on this runtime's ring.
///
/// # Errors
/// The job, where there is no ring: the caller has another way.
pub(super) fn submit(job: Job) -> Result<oneshot::Receiver<VfsResult<arena::Sg>>, Job> {
    let Some(local) = current() else { return Err(job) };
    let mut ring = local.ring.lock();
    if ring.closed {
        return Err(job);
    }
    let (reply, result) = oneshot::channel();
    ring.accept(Accepted { job, reply, list: List::default(), is_slow: false });
    // Of a batch of requests the disk begins with the first while the last ones are still being decoded.
    if ring.due.len() >= EAGER {
        ring.push_due();
        // What the kernel does not take now, the driver submits again.
        let _ = ring.ring.submit();
    }
    let driver = ring.driver.take();
    drop(ring);
    if let Some(driver) = driver {
        driver.wake();
    }
    Ok(result)
}

/// The ring of the runtime that this is called in, with its driver started.
fn current() -> Option<Arc<Local>> {
    let runtime = Handle::try_current().ok()?;
    let of_runtime = |slot: &RefCell<Option<(Id, Arc<Local>)>>| {
        let mut slot = slot.borrow_mut();
        if let Some((id, local)) = &*slot
            && *id == runtime.id()
        {
            return Some(Arc::clone(local));
        }
        if REFUSED.load(Ordering::Relaxed) {
            return None;
        }
        match start(&runtime) {
            Ok(local) => {
                *slot = Some((runtime.id(), Arc::clone(&local)));
                Some(local)
            }
            Err(error) => {
                if !REFUSED.swap(true, Ordering::Relaxed) {
                    tracing::warn!("no io_uring here, so at most a few I/Os of files are in flight: {error}");
                }
                None
            }
        }
    };
    LOCAL.try_with(of_runtime).ok()? // the thread may be ending
}

/// Makes a ring and starts its driver.
///
/// # Errors
/// The system's, where it has no io_uring or forbids it.
fn start(runtime: &Handle) -> io::Result<Arc<Local>> {
    let ring = make(runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)?;
    let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    ring.submitter().register_eventfd(signal.as_raw_fd())?;
    // Before Linux 5.15 its own limit stands.
    let _ = ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS, 0]);
    // SAFETY: it owns its descriptor, which nothing replaces or closes meanwhile.
    let signal = unsafe { AsyncFd::register_with_interest(signal, Interest::READABLE) }?;
    let ring = Ring {
        ring,
        slots: ManuallyDrop::new(Vec::new()),
        free: Vec::new(),
        in_kernel: 0,
        slow: 0,
        due: VecDeque::new(),
        parked: VecDeque::new(),
        ended: Vec::new(),
        driver: None,
        closed: false,
    };
    let local = Arc::new(Local { ring: Mutex::new(ring) });
    runtime.spawn(Driver { local: Arc::clone(&local), signal });
    Ok(local)
}

/// A ring of one thread where all its calls come from one, else any.
fn make(one_thread: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(COMPLETIONS);
    let mut wanted = builder.clone();
    if one_thread {
        wanted.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    } else {
        wanted.setup_coop_taskrun();
    }
    match wanted.build(SUBMISSIONS) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => builder.build(SUBMISSIONS),
        made => made,
    }
}

/// The task that drives a ring; its end waits for the ring's jobs.
struct Driver {
    local: Arc<Local>,
    /// Readable when completions came.
    signal: AsyncFd<OwnedFd>,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let (more, ended) = {
                let mut ring = self.local.ring.lock();
                let more = ring.turn();
                ring.driver = Some(cx.waker().clone());
                (more, std::mem::take(&mut ring.ended))
            };
            deliver(ended);
            if more {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.signal.poll_read_ready(cx) {
                // Never read: each signal makes it readable anew.
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                Poll::Ready(Err(_)) => return Poll::Ready(()), // the runtime is ending
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let ended = {
            let mut ring = self.local.ring.lock();
            ring.closed = true;
            ring.drain();
            std::mem::take(&mut ring.ended)
        };
        deliver(ended);
    }
}

/// Gives the results to the callers.
fn deliver(ended: Vec<(Accepted, End)>) {
    for (Accepted { job, reply, .. }, end) in ended {
        let send = |result| drop(reply.send(result));
        match end {
            Some(result) => send(job.finish(result)),
            None => job.continue_in_pool(send),
        }
    }
}

impl Ring {
    fn accept(&mut self, accepted: Accepted) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(accepted);
                slot
            }
            None => {
                self.slots.push(Some(accepted));
                self.slots.len() as u32 - 1
            }
        };
        self.due.push_back(slot);
    }

    /// Submits what is due and takes what is complete; whether there may be more to do at once.
    fn turn(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            self.push_due();
            if self.has_call() {
                match self.ring.submit() {
                    Ok(_) => {}
                    Err(e) if is_temporary(&e) => {}
                    Err(e) => self.fail_due(&e),
                }
            }
            let taken = self.reap();
            if taken == 0 || self.due.is_empty() {
                // Entries that the kernel had no memory for, and completions that it had no room for: once more.
                let queue = self.ring.submission();
                return !queue.is_empty() || queue.cq_overflow();
            }
        }
        true
    }

    /// Whether the kernel has something to take, or to do before completions can be taken.
    fn has_call(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn push_due(&mut self) {
        while self.in_kernel < IN_KERNEL_MAX
            && let Some(slot) = self.due.pop_front()
        {
            if self.ring.submission().is_full() && !matches!(self.ring.submit(), Ok(n) if n > 0) {
                return self.due.push_front(slot); // no room now: completions are taken first
            }
            let accepted = self.slots[slot as usize].as_mut().expect("a job that is due is in its slot");
            accepted.job.prepare();
            if accepted.job.holds_thread() && !accepted.is_slow {
                if self.slow == SLOW_MAX {
                    self.parked.push_back(slot);
                    continue;
                }
                self.slow += 1;
                accepted.is_slow = true;
            }
            let blocks = accepted.job.is_blocking_read();
            let flags = if blocks { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
            let entry = accepted.entry().user_data(u64::from(slot)).flags(flags);
            self.in_kernel += 1;
            // SAFETY: what the entry names lives in its slot until its completion (invariant 1).
            unsafe { self.ring.submission().push(&entry) }.expect("there is room, as was just seen");
        }
    }

    /// Takes completions; how many there were.
    fn reap(&mut self) -> usize {
        let mut taken = 0;
        loop {
            // Bound first: it is not to hold the queue while jobs end.
            let completion = self.ring.completion().next();
            let Some(completion) = completion else { return taken };
            let (slot, result) = (completion.user_data() as u32, completion.result());
            self.in_kernel -= 1;
            taken += 1;
            let accepted = self.slots[slot as usize].as_mut().expect("a job for each completion");
            let outcome = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
            match accepted.job.judge(outcome) {
                Next::Call => self.due.push_back(slot),
                Next::Buffered => self.end(slot, None),
                Next::End(result) => self.end(slot, Some(result)),
            }
        }
    }

    /// Takes a job that the ring is done with out of its slot.
    fn end(&mut self, slot: u32, end: End) {
        let accepted = self.slots[slot as usize].take().expect("a job that ends is in its slot");
        self.free.push(slot);
        if accepted.is_slow {
            self.slow -= 1;
            self.due.extend(self.parked.pop_front());
        }
        self.ended.push((accepted, end));
    }

    /// The ring takes no entries any more: what was not submitted fails.
    fn fail_due(&mut self, error: &io::Error) {
        let error = Errno::from_io_error(error).unwrap_or(Errno::IO);
        while let Some(slot) = self.due.pop_front() {
            self.end(slot, Some(Err(error.into())));
        }
    }

    /// Waits until no job is left, as long as completions come.
    fn drain(&mut self) {
        let second = Timespec::new().sec(1);
        let mut silent = 0;
        while silent < DRAIN_SECONDS && (self.in_kernel > 0 || !self.due.is_empty()) {
            self.push_due();
            let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&second));
            if self.reap() == 0 {
                silent += u64::from(waited.is_err());
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_kernel == 0 {
            // SAFETY: dropped once, here, and nothing of it is in the kernel (invariant 2).
            unsafe { ManuallyDrop::drop(&mut self.slots) };
            return;
        }
        // What did not get as far as the kernel ends here.
        for slot in std::mem::take(&mut self.due).into_iter().chain(std::mem::take(&mut self.parked)) {
            self.slots[slot as usize] = None;
        }
    }
}

impl Accepted {
    /// The entry of the job's next call.
    fn entry(&mut self) -> squeue::Entry {
        let memory = self.job.memory();
        let (fd, at) = (Fd(self.job.fd().as_raw_fd()), self.job.position());
        let flags = self.job.flags().bits() as i32;
        match (self.job.work(), &*memory) {
            (Work::Sync, _) => opcode::Fsync::new(fd).build(),
            (Work::Read(_), [one]) => {
                opcode::Read::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(at).build()
            }
            (Work::Write(..), [one]) => {
                let from = one.iov_base.cast_const().cast();
                opcode::Write::new(fd, from, one.iov_len as u32).offset(at).rw_flags(flags).build()
            }
            (work, _) => {
                let is_read = matches!(work, Work::Read(_));
                self.list = List(memory.into_vec().into());
                let (list, number) = (self.list.0.as_ptr(), self.list.0.len() as u32);
                match is_read {
                    true => opcode::Readv::new(fd, list, number).offset(at).build(),
                    false => opcode::Writev::new(fd, list, number).offset(at).rw_flags(flags).build(),
                }
            }
        }
    }
}

/// Whether the kernel only says to call again: time is up, a signal came, or completions must be taken first.
fn is_temporary(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

/// Jobs of this thread's ring that are in the kernel, and that wait for their turn.
#[cfg(test)]
pub(super) fn load() -> (usize, usize) {
    LOCAL.with_borrow(|local| {
        let ring = local.as_ref().expect("the ring was used").1.ring.lock();
        (ring.in_kernel, ring.due.len() + ring.parked.len())
    })
}
