//! The io_uring of a runtime: jobs that are submitted on a worker complete on that worker.
//!
//! A call queues its job and wakes the driver, a task of the same runtime, so that all jobs started in one turn of the
//! runtime are submitted with one system call. The driver waits for completions on an eventfd, polled by the runtime.
//! On a current-thread runtime the kernel defers completions to this thread's next call (`IORING_SETUP_DEFER_TASKRUN`,
//! Linux 6.1): one call reaps many, and the thread is not interrupted. Such a runtime must stay on the thread that has
//! used it. The runtime needs its I/O driver.
//!
//! **Bounds.** At most [`IN_KERNEL_MAX`] jobs are in the kernel, the others wait here in order; their number is bounded
//! by the credits that the callers grant. Calls that the file system cannot do without blocking run on the kernel's
//! threads for this ring, [`KERNEL_THREADS`] at most. Jobs that block such a thread during the disk's I/O (syncs,
//! buffered write-throughs) may use half of them, so that they do not block all others.
//!
//! **Cancelling.** A dropped future loses the result. The job, its buffers and its file stay in their slot until the
//! job is complete. The end of a runtime waits for its jobs, but at most [`DRAIN_SECONDS`] without a completion.
//!
//! **Unsafe.** Invariants:
//! 1. a job is in `slots` from its acceptance until its last completion. It owns the file and the buffers that its
//!    entry refers to, and nothing accesses them while the entry is in the kernel. The slot also owns the entry's list
//!    of buffers;
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

use super::job::{Job, NextStep, Work};
use crate::VfsResult;

const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 4096;
/// From this number of due jobs on they are submitted at once, without the driver.
const EAGER: usize = 8;
/// The most jobs that are in the kernel.
pub(super) const IN_KERNEL_MAX: usize = 1024;
/// The most threads of the kernel for blocking calls.
const KERNEL_THREADS: u32 = 64;
/// The most jobs in the kernel that block one of these threads during the disk's I/O.
pub(super) const SLOW_MAX: usize = KERNEL_THREADS as usize / 2;
const DRAIN_SECONDS: u64 = 30;
/// Rounds of submitting and reaping completions before the driver yields.
const ROUNDS_MAX: usize = 8;

/// How a job's caller gets its result.
type Reply = oneshot::Sender<VfsResult<arena::Sg>>;

thread_local! {
    /// The ring of the runtime that was used last on this thread.
    static RUNTIME_RING: RefCell<Option<(Id, Arc<RuntimeRing>)>> = const { RefCell::new(None) };
}

/// No ring could be created: do not try again.
static REFUSED: AtomicBool = AtomicBool::new(false);

struct RuntimeRing {
    ring: Mutex<Ring>,
}

struct Ring {
    ring: IoUring,
    slots: ManuallyDrop<Vec<Option<AcceptedJob>>>,
    free: Vec<u32>,
    /// Jobs in the kernel.
    in_kernel: usize,
    /// The jobs among them that block a thread of the kernel during the disk's I/O.
    slow: usize,
    /// Slots of jobs whose next call is due.
    due: VecDeque<u32>,
    /// Slots of jobs that wait because `slow` is at its limit.
    parked: VecDeque<u32>,
    /// Completed jobs. Their callers are woken outside of the lock.
    ended: Vec<(AcceptedJob, End)>,
    /// The driver's waker, while it sleeps.
    driver: Option<Waker>,
    /// The driver has ended: no job is accepted any more.
    closed: bool,
}

/// The end of a job in the ring: its result, or `None` if it continues in the pool.
type End = Option<VfsResult<()>>;

/// An incomplete job.
struct AcceptedJob {
    job: Job,
    reply: Reply,
    /// The list of buffers that its entry points to, if it points to one.
    list: IoVectors,
    /// It is counted in `slow`.
    is_slow: bool,
}

#[derive(Default)]
struct IoVectors(Box<[libc::iovec]>);

// SAFETY: the addresses refer to memory that the job in the same slot owns, and that moves between threads with it.
unsafe impl Send for IoVectors {}

/// Issues a job on this runtime's ring.
///
/// # Errors
/// Returns the job if there is no ring: the caller runs it in the pool.
pub(super) fn submit(job: Job) -> Result<oneshot::Receiver<VfsResult<arena::Sg>>, Job> {
    let Some(local) = current() else { return Err(job) };
    let mut ring = local.ring.lock();
    if ring.closed {
        return Err(job);
    }
    let (reply, result) = oneshot::channel();
    ring.accept(AcceptedJob { job, reply, list: IoVectors::default(), is_slow: false });
    // The disk starts the first requests of a batch while the server still decodes the last ones.
    if ring.due.len() >= EAGER {
        ring.push_due();
        // The driver submits entries later that the kernel does not accept now.
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
fn current() -> Option<Arc<RuntimeRing>> {
    let runtime = Handle::try_current().ok()?;
    let of_runtime = |slot: &RefCell<Option<(Id, Arc<RuntimeRing>)>>| {
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
                    tracing::warn!(
                        "io_uring cannot be used, so only a few I/Os to files run at the same time: {error}"
                    );
                }
                None
            }
        }
    };
    RUNTIME_RING.try_with(of_runtime).ok()? // the thread may be ending
}

/// Creates a ring and starts its driver.
///
/// # Errors
/// The system's, if it has no io_uring or forbids it.
fn start(runtime: &Handle) -> io::Result<Arc<RuntimeRing>> {
    let ring = make(runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)?;
    let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    ring.submitter().register_eventfd(signal.as_raw_fd())?;
    // Before Linux 5.15 the kernel's own limit applies.
    let _ = ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS, 0]);
    // SAFETY: `signal` owns its descriptor, and nothing replaces or closes it while it is registered.
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
    let local = Arc::new(RuntimeRing { ring: Mutex::new(ring) });
    runtime.spawn(Driver { local: Arc::clone(&local), signal });
    Ok(local)
}

/// Creates a ring; with the single-thread options if all its calls are made by one thread.
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

/// The task that drives a ring; when it ends, it waits for the ring's jobs.
struct Driver {
    local: Arc<RuntimeRing>,
    /// Readable when there are completions.
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
                // The eventfd is never read: each signal triggers a new edge.
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
fn deliver(ended: Vec<(AcceptedJob, End)>) {
    for (AcceptedJob { job, reply, .. }, end) in ended {
        let send = |result| drop(reply.send(result));
        match end {
            Some(result) => send(job.finish(result)),
            None => job.continue_in_pool(send),
        }
    }
}

impl Ring {
    fn accept(&mut self, accepted: AcceptedJob) {
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

    /// Submits due jobs and reaps completions; returns whether to call it again at once.
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
                // Call again if the kernel had no memory for entries, or no space for completions.
                let queue = self.ring.submission();
                return !queue.is_empty() || queue.cq_overflow();
            }
        }
        true
    }

    /// Whether there are entries to submit, or the kernel must run before completions can be reaped.
    fn has_call(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn push_due(&mut self) {
        while self.in_kernel < IN_KERNEL_MAX
            && let Some(slot) = self.due.pop_front()
        {
            if self.ring.submission().is_full() && !matches!(self.ring.submit(), Ok(n) if n > 0) {
                return self.due.push_front(slot); // the queue is full: completions are reaped first
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
            // SAFETY: everything that the entry refers to stays in its slot until its completion (invariant 1).
            unsafe { self.ring.submission().push(&entry) }.expect("there is room, as was just seen");
        }
    }

    /// Reaps completions; returns how many.
    fn reap(&mut self) -> usize {
        let mut taken = 0;
        loop {
            // Bound to a variable first, so that the queue is not borrowed while jobs end.
            let completion = self.ring.completion().next();
            let Some(completion) = completion else { return taken };
            let (slot, result) = (completion.user_data() as u32, completion.result());
            self.in_kernel -= 1;
            taken += 1;
            let accepted = self.slots[slot as usize].as_mut().expect("a job for each completion");
            let outcome = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
            match accepted.job.next_step(outcome) {
                NextStep::Call => self.due.push_back(slot),
                NextStep::Buffered => self.end(slot, None),
                NextStep::End(result) => self.end(slot, Some(result)),
            }
        }
    }

    /// Removes a completed job from its slot.
    fn end(&mut self, slot: u32, end: End) {
        let accepted = self.slots[slot as usize].take().expect("a job that ends is in its slot");
        self.free.push(slot);
        if accepted.is_slow {
            self.slow -= 1;
            self.due.extend(self.parked.pop_front());
        }
        self.ended.push((accepted, end));
    }

    /// The ring accepts no entries any more: jobs that were not submitted fail.
    fn fail_due(&mut self, error: &io::Error) {
        let error = Errno::from_io_error(error).unwrap_or(Errno::IO);
        while let Some(slot) = self.due.pop_front() {
            self.end(slot, Some(Err(error.into())));
        }
    }

    /// Waits until no job is left, or until there are no completions for too long.
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
        // Jobs that were never submitted end here.
        for slot in std::mem::take(&mut self.due).into_iter().chain(std::mem::take(&mut self.parked)) {
            self.slots[slot as usize] = None;
        }
    }
}

impl AcceptedJob {
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
                self.list = IoVectors(memory.into_vec().into());
                let (list, number) = (self.list.0.as_ptr(), self.list.0.len() as u32);
                match is_read {
                    true => opcode::Readv::new(fd, list, number).offset(at).build(),
                    false => opcode::Writev::new(fd, list, number).offset(at).rw_flags(flags).build(),
                }
            }
        }
    }
}

/// Whether the call can be repeated: after a timeout or a signal, or when completions have been reaped.
fn is_temporary(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

/// Numbers of jobs of this thread's ring in the kernel, and waiting.
#[cfg(test)]
pub(super) fn load() -> (usize, usize) {
    RUNTIME_RING.with_borrow(|local| {
        let ring = local.as_ref().expect("the ring was used").1.ring.lock();
        (ring.in_kernel, ring.due.len() + ring.parked.len())
    })
}
