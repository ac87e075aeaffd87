//! A process of the simulated machine: its handles of the disks, and the fences that all processes share.
//!
//! A handle of [`disk::sim`] has its own gate, so a process could not fence another one. Here all handles of a disk
//! may share one gate, like a disk with reservations or a storage bus. A process can be stalled with calls in
//! transit, and can be ended without a power cut, in which case the disks lose nothing.
//!
//! `POOLSIM_PLANT=no_fence` plants a bug: handles never share a gate, whatever the seed selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use arena::{Sg, SgMut, sg_len};
use disk::{Disk, DiskError, DiskInfo, Gate, IoRange, Op};
use env::{Ctx, Env, Epoch, Io, watch};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The gates of all disks.
#[derive(Clone)]
pub(crate) struct Fences {
    are_shared: bool,
    gates: Arc<Mutex<BTreeMap<usize, Arc<Gate>>>>,
}

/// Whether the calls of a process reach the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Running,
    /// Calls wait before they reach a disk.
    Stalled,
    /// The process has ended: new calls fail, and waiting ones never reach a disk.
    Ended,
}

/// See the module. Clones are the same.
#[derive(Clone)]
pub(crate) struct Process(Arc<watch::Sender<ProcessState>>);

/// A handle of a disk.
struct Handle {
    env: Env,
    process: Process,
    gate: Arc<Gate>,
    disk: Arc<dyn Disk>,
}

impl Fences {
    /// `are_shared`: a fence by one process blocks the others.
    pub(crate) fn new(are_shared: bool) -> Fences {
        let is_planted = std::env::var("POOLSIM_PLANT").is_ok_and(|plant| plant == "no_fence");
        Fences { are_shared: are_shared && !is_planted, gates: Arc::default() }
    }

    fn gate(&self, slot: usize) -> Arc<Gate> {
        match self.are_shared {
            true => Arc::clone(self.gates.lock().entry(slot).or_default()),
            false => Arc::default(),
        }
    }
}

impl Process {
    pub(crate) fn new() -> Process {
        Process(Arc::new(watch::Sender::new(ProcessState::Running)))
    }

    pub(crate) fn set(&self, state: ProcessState) {
        self.0.send_replace(state);
    }

    pub(crate) fn state(&self) -> ProcessState {
        self.0.get()
    }

    /// The process's handle of a disk.
    pub(crate) fn handle(
        &self,
        env: &Env,
        fences: &Fences,
        disk: Arc<disk::sim::FaultyDisk>,
    ) -> Arc<dyn Disk> {
        let gate = fences.gate(disk.slot().0);
        Arc::new(Handle { env: env.clone(), process: self.clone(), gate, disk })
    }
}

impl Handle {
    /// Begins a call now, or when the process is no longer stalled. The call holds its pass until the disk has
    /// completed it, even if its deadline has passed.
    fn call<T: Send + 'static>(
        &self,
        c: &Ctx,
        at: IoRange,
        late: T,
        start: impl FnOnce(Result<&Ctx, DiskError>) -> Io<T> + Send + 'static,
    ) -> Io<T> {
        let context = Ctx { deadline: None, ..*c };
        let gate = Arc::clone(&self.gate);
        match self.process.state() {
            ProcessState::Ended => start(Err(DiskError::Gone { at })),
            ProcessState::Running => {
                let pass = match gate.enter(&context, at) {
                    Ok(pass) => pass,
                    Err(error) => return start(Err(error)),
                };
                match start(Ok(&context)) {
                    Io::Done(result) => Io::Done(result),
                    Io::Pending(ends) => self.task(c, late, async move {
                        let result = ends.await;
                        drop(pass);
                        result
                    }),
                }
            }
            ProcessState::Stalled => {
                let mut state = self.process.0.subscribe();
                self.task(c, late, async move {
                    let state = state.wait_for(|state| *state != ProcessState::Stalled).await;
                    if !matches!(state, Ok(ProcessState::Running)) {
                        return start(Err(DiskError::Gone { at })).wait().await;
                    }
                    match gate.enter(&context, at) {
                        Ok(_pass) => start(Ok(&context)).wait().await,
                        Err(error) => start(Err(error)).wait().await,
                    }
                })
            }
        }
    }

    /// Runs a call to its end. At the deadline its caller gets `late`.
    fn task<T: Send + 'static>(
        &self,
        c: &Ctx,
        late: T,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Io<T> {
        let (send, receive) = oneshot::channel();
        self.env.spawn(async move {
            let _ = send.send(call.await);
        });
        let (env, deadline) = (self.env.clone(), c.deadline);
        Io::pending(async move {
            let Some(deadline) = deadline else { return receive.await.unwrap_or(late) };
            let left = deadline.saturating_duration_since(env.now());
            tokio::select! {
                biased;
                result = receive => result.unwrap_or(late),
                () = env.sleep(left) => late,
            }
        })
    }

    fn change(
        &self,
        c: &Ctx,
        at: IoRange,
        start: impl FnOnce(&dyn Disk, &Ctx) -> Io<Result<(), DiskError>> + Send + 'static,
    ) -> Io<Result<(), DiskError>> {
        let disk = Arc::clone(&self.disk);
        self.call(c, at, Err(DiskError::Timeout { at }), move |c| match c {
            Ok(c) => start(&*disk, c),
            Err(error) => Io::Done(Err(error)),
        })
    }
}

impl Disk for Handle {
    fn info(&self) -> &DiskInfo {
        self.disk.info()
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let at = IoRange::new(Op::Read, offset, dst.iter().map(|buffer| buffer.len() as u64).sum());
        let disk = Arc::clone(&self.disk);
        self.call(c, at, (Err(DiskError::Timeout { at }), SgMut::new()), move |c| match c {
            Ok(c) => disk.read(c, offset, dst),
            Err(error) => Io::Done((Err(error), dst)),
        })
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        self.change(c, at, move |disk, c| disk.write(c, offset, src))
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        self.change(c, IoRange::whole(Op::Flush), |disk, c| disk.flush(c))
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        self.change(c, IoRange::new(Op::Discard, offset, length), move |disk, c| {
            disk.discard(c, offset, length)
        })
    }

    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        if self.process.state() == ProcessState::Ended {
            return Io::Done(Err(DiskError::Gone { at: IoRange::whole(Op::Fence) }));
        }
        let (shared, own) = (self.gate.fence(epoch), self.disk.fence(c, epoch));
        Io::pending(async move {
            shared.wait().await?;
            own.wait().await
        })
    }

    fn check(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        match self.process.state() {
            ProcessState::Ended => Io::Done(Err(DiskError::Gone { at: IoRange::whole(Op::Check) })),
            ProcessState::Running | ProcessState::Stalled => self.disk.check(c),
        }
    }
}
