//! A thread pool for blocking calls, with few wake-ups.
//!
//! **What it is.** [`BlockingPool::run`] passes a closure to one of at most `threads` threads, started on demand, and
//! returns the future of its result. [`BlockingPool::run_in`] does the same through a [`SerialQueue`]: the jobs of one
//! queue run in order on one thread at a time, so that a burst of writes to one file costs one wake-up of a thread, not
//! one each (the kernel would serialise them on the inode's lock anyway).
//!
//! **Completion.** A thread completes up to [`BATCH`] jobs, then passes all their wakers to the [`RuntimeWakers`] of
//! the runtime that issued the jobs. A single task of that runtime calls the wakers, which is cheap there. This costs
//! one write to an eventfd per batch instead of one per I/O.
//!
//! The pool uses the real clock, not [`env::Env`]'s: work on these threads is never replayed.
//!
//! **Slow jobs**, which wait for other processes or for the disk itself ([`BlockingPool::run_slow`]: an open that waits
//! for a lease; without io_uring also a sync, a write-through, an unbuffered write), take at most half of the threads:
//! the others stay free for other jobs.
//!
//! **Bounds.** The queue has no limit: the number of waiting jobs is bounded by the credits that the callers grant.
//!
//! **Cancelling.** The work is issued by the call, not by the first poll; a dropped future loses the result, and the
//! closure with the buffers it owns lives until it has run.
//!
//! Invariants:
//! 1. `idle` counts the threads that sleep and were not woken yet.
//! 2. A serial queue is in the pool's queue, or being drained, exactly when `draining` is set.
//! 3. `parked` has tasks only while `slow` is at its limit.
//! 4. A result is stored before its waker is taken, under the same lock, so that no wake-up is lost.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use env::BoxFuture;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

/// How many jobs of a serial queue run before their callers are woken and the thread takes other tasks.
const BATCH: usize = 16;
/// Callers are woken after this time, even within a batch.
const WAKE_AFTER: Duration = Duration::from_micros(100);

/// Threads for work that may block.
pub(crate) struct BlockingPool {
    shared: Arc<Shared>,
}

/// A queue of jobs that run in order.
#[derive(Default)]
pub(crate) struct SerialQueue {
    state: Mutex<SerialQueueState>,
}

#[derive(Default)]
struct SerialQueueState {
    jobs: VecDeque<Arc<dyn Work>>,
    draining: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    max: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    /// Slow jobs that wait because `slow` is at its limit.
    parked: VecDeque<Task>,
    /// Threads that run slow jobs.
    slow: usize,
    idle: usize,
    threads: usize,
    closing: bool,
}

enum Task {
    One(Arc<dyn Work>),
    Slow(Arc<dyn Work>),
    Serial(Arc<SerialQueue>),
}

/// Wakers of completed jobs, with the wakers of their runtimes.
type Finished = SmallVec<[(Option<Arc<RuntimeWakers>>, Waker); BATCH]>;

trait Work: Send + Sync {
    fn run(&self, finished: &mut Finished);
}

impl BlockingPool {
    pub(crate) fn new(threads: usize) -> BlockingPool {
        let shared = Shared { state: Mutex::default(), wake: Condvar::new(), max: threads.max(1) };
        BlockingPool { shared: Arc::new(shared) }
    }

    /// Runs `job` on a thread. A panic in it is resumed by the future.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> BoxFuture<T> {
        let job = Job::new(job);
        self.shared.submit(Task::One(job.clone()));
        Box::pin(Wait(job))
    }

    /// [`BlockingPool::run`] for a job that waits for a disk or for other processes: such jobs use at most half of the
    /// threads.
    pub(crate) fn run_slow<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<T> {
        let job = Job::new(job);
        self.shared.submit(Task::Slow(job.clone()));
        Box::pin(Wait(job))
    }

    /// Runs `job` after the earlier jobs of `serial_queue`.
    pub(crate) fn run_in<T: Send + 'static>(
        &self,
        serial_queue: &Arc<SerialQueue>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<T> {
        let job = Job::new(job);
        let start = {
            let mut state = serial_queue.state.lock();
            state.jobs.push_back(job.clone());
            !std::mem::replace(&mut state.draining, true)
        };
        if start {
            self.shared.submit(Task::Serial(Arc::clone(serial_queue)));
        }
        Box::pin(Wait(job))
    }
}

impl SerialQueue {
    /// Whether all its jobs are complete.
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.lock().draining
    }
}

impl Drop for BlockingPool {
    /// The threads complete the queued jobs and then end; dropping the pool does not wait for them.
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn submit(self: &Arc<Shared>, task: Task) {
        let mut state = self.state.lock();
        state.queue.push_back(task);
        self.wake_or_spawn(state);
    }

    /// Wakes an idle thread for a queued task, or starts one, if the limit allows.
    fn wake_or_spawn(self: &Arc<Shared>, mut state: parking_lot::MutexGuard<'_, State>) {
        if state.idle > 0 {
            state.idle -= 1;
            drop(state);
            self.wake.notify_one();
        } else if state.threads < self.max {
            state.threads += 1;
            drop(state);
            let shared = Arc::clone(self);
            let started = std::thread::Builder::new().name("vfs-pool".into()).spawn(move || shared.work());
            if let Err(error) = started {
                tracing::warn!(%error, "a thread for blocking file operations could not be started");
                let mut state = self.state.lock();
                state.threads -= 1;
                // No thread could be started: the caller runs the tasks itself, which is slow but makes progress.
                while state.threads == 0
                    && let Some(task) = state.take(self.max)
                {
                    drop(state);
                    self.perform(task);
                    state = self.state.lock();
                }
            }
        }
    }

    fn work(self: Arc<Shared>) {
        loop {
            let task = {
                let mut state = self.state.lock();
                loop {
                    if let Some(task) = state.take(self.max) {
                        if !state.queue.is_empty() {
                            self.wake_or_spawn(state); // this task may block, so another thread takes the next one
                        }
                        break task;
                    }
                    if state.closing {
                        state.threads -= 1;
                        return;
                    }
                    state.idle += 1;
                    self.wake.wait(&mut state); // no spurious wake-ups, so `wake_or_spawn` has decremented `idle`
                }
            };
            self.perform(task);
        }
    }

    fn perform(self: &Arc<Shared>, task: Task) {
        let mut finished = Finished::new();
        match task {
            Task::One(job) => job.run(&mut finished),
            Task::Slow(job) => {
                job.run(&mut finished);
                let mut state = self.state.lock();
                state.slow -= 1;
                // The parked task returns to the front of the queue; this thread is awake and takes it.
                if let Some(next) = state.parked.pop_front() {
                    state.queue.push_front(next);
                }
            }
            Task::Serial(serial_queue) => {
                let jobs: SmallVec<[Arc<dyn Work>; BATCH]> = {
                    let mut state = serial_queue.state.lock();
                    let n = state.jobs.len().min(BATCH);
                    state.jobs.drain(..n).collect()
                };
                let mut since = now();
                for job in jobs {
                    job.run(&mut finished);
                    // A batch saves wake-ups only if jobs are short: after a long job the callers of completed jobs are
                    // woken at once.
                    if since.elapsed() > WAKE_AFTER {
                        deliver(&mut finished);
                        since = now();
                    }
                }
                deliver(&mut finished);
                let more = {
                    let mut state = serial_queue.state.lock();
                    state.draining = !state.jobs.is_empty();
                    state.draining
                };
                if more {
                    // The serial queue goes to the end of the queue, so that one busy file does not monopolize the
                    // thread; this thread is awake and takes the next task.
                    self.state.lock().queue.push_back(Task::Serial(serial_queue));
                }
            }
        }
        deliver(&mut finished);
    }
}

impl State {
    /// The next task that may run now, in a pool of `threads` threads.
    fn take(&mut self, threads: usize) -> Option<Task> {
        loop {
            match self.queue.pop_front()? {
                slow @ Task::Slow(_) if self.slow >= (threads / 2).max(1) => self.parked.push_back(slow),
                slow @ Task::Slow(_) => {
                    self.slow += 1;
                    return Some(slow);
                }
                other => return Some(other),
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "these threads are real ones, and what they do is never replayed"
)]
fn now() -> Instant {
    Instant::now()
}

/// Wakes the callers of completed jobs: one wake-up per runtime.
fn deliver(finished: &mut Finished) {
    let mut wakers: SmallVec<[Waker; BATCH]> = SmallVec::new();
    let mut current: Option<Arc<RuntimeWakers>> = None;
    for (runtime_wakers, waker) in finished.drain(..) {
        match runtime_wakers {
            None => waker.wake(),
            Some(runtime_wakers) => {
                if let Some(at) = current.replace(Arc::clone(&runtime_wakers))
                    && !Arc::ptr_eq(&at, &runtime_wakers)
                {
                    at.take(&mut wakers);
                }
                wakers.push(waker);
            }
        }
    }
    if let Some(at) = current {
        at.take(&mut wakers);
    }
}

/// A closure, or its result, with the waker of its caller.
struct Job<F, T> {
    state: Mutex<JobState<F, T>>,
    runtime_wakers: Option<Arc<RuntimeWakers>>,
}

struct JobState<F, T> {
    closure: Option<F>,
    result: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
}

impl<F: FnOnce() -> T + Send, T: Send> Job<F, T> {
    fn new(closure: F) -> Arc<Job<F, T>> {
        let state = JobState { closure: Some(closure), result: None, waker: None };
        Arc::new(Job { state: Mutex::new(state), runtime_wakers: RuntimeWakers::current() })
    }
}

impl<F: FnOnce() -> T + Send, T: Send> Work for Job<F, T> {
    fn run(&self, finished: &mut Finished) {
        let Some(closure) = self.state.lock().closure.take() else { return };
        let result = catch_unwind(AssertUnwindSafe(closure));
        let waker = {
            let mut state = self.state.lock();
            state.result = Some(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            finished.push((self.runtime_wakers.clone(), waker));
        }
    }
}

struct Wait<F, T>(Arc<Job<F, T>>);

impl<F, T> Future for Wait<F, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.state.lock();
        match state.result.take() {
            Some(Ok(result)) => Poll::Ready(result),
            Some(Err(panic)) => {
                drop(state);
                resume_unwind(panic)
            }
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

/// The wakers of completed jobs of one runtime: a list, and one task that calls them.
struct RuntimeWakers {
    state: Mutex<RuntimeWakersState>,
}

#[derive(Default)]
struct RuntimeWakersState {
    ready: Vec<Waker>,
    task: Option<Waker>,
    /// The runtime and the task have ended.
    gone: bool,
}

thread_local! {
    /// The wakers of the runtime that was used last on this thread.
    static RUNTIME_WAKERS: RefCell<Option<(tokio::runtime::Id, Arc<RuntimeWakers>)>> = const { RefCell::new(None) };
}

impl RuntimeWakers {
    /// The wakers of the runtime that this is called in, with their task started; `None` outside of one.
    fn current() -> Option<Arc<RuntimeWakers>> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let current = |slot: &RefCell<Option<(tokio::runtime::Id, Arc<RuntimeWakers>)>>| {
            let mut slot = slot.borrow_mut();
            if let Some((id, runtime_wakers)) = &*slot
                && *id == runtime.id()
                && !runtime_wakers.state.lock().gone
            {
                return Arc::clone(runtime_wakers);
            }
            let runtime_wakers = Arc::new(RuntimeWakers { state: Mutex::default() });
            *slot = Some((runtime.id(), Arc::clone(&runtime_wakers)));
            runtime.spawn(WakeTask(Arc::clone(&runtime_wakers)));
            runtime_wakers
        };
        RUNTIME_WAKERS.try_with(current).ok() // the thread may be ending
    }

    /// Adds `wakers`; wakes the task unless it was woken already.
    fn take(&self, wakers: &mut SmallVec<[Waker; BATCH]>) {
        if wakers.is_empty() {
            return;
        }
        let task = {
            let mut state = self.state.lock();
            if state.gone {
                drop(state);
                wakers.drain(..).for_each(Waker::wake);
                return;
            }
            state.ready.extend(wakers.drain(..));
            state.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The task of a runtime: calls the wakers of jobs that completed on the pool's threads, on the runtime's thread.
struct WakeTask(Arc<RuntimeWakers>);

impl Future for WakeTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let ready = {
            let mut state = self.0.state.lock();
            state.task = Some(cx.waker().clone());
            std::mem::take(&mut state.ready)
        };
        ready.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for WakeTask {
    fn drop(&mut self) {
        let ready = {
            let mut state = self.0.state.lock();
            state.gone = true;
            std::mem::take(&mut state.ready)
        };
        ready.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
