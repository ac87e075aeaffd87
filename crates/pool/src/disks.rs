//! The disks as the data path uses them: a member, its activity log, how it answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arena::{Arena, Class, Sg, SgMut, Shape, sg_len};
use disk::{Disk, DiskError, Op, Place, Read, Told, Written, sized};
use env::{Ctx, Env, Epoch, Moment};
use parking_lot::Mutex;

use crate::Member;
use crate::activity::Log;
use crate::pulse::{Came, Followed, Pulse, Waits};
use crate::{DiskNumber, RowNumber, SpaceId};

/// Between two looks for memory, when there is none for a buffer that a disk keeps.
const MEMORY_WAIT: Duration = Duration::from_millis(1);

/// A disk in service, or removed from it a moment ago.
pub(crate) struct DataDisk {
    pub(crate) number: DiskNumber,
    pub(crate) member: Arc<Member>,
    pub(crate) log: Arc<Log>,
    pub(crate) pulse: Arc<Pulse>,
    ctx: Ctx,
    /// Regions of its copies that a job is bringing up to date, as long as no write to them has failed.
    resyncing: Mutex<BTreeMap<(SpaceId, RowNumber, usize), u64>>,
}

/// Whole reads for what is small.
#[derive(Clone)]
pub(crate) struct RawIo {
    pub(crate) arena: Arena,
    pub(crate) epoch: Epoch,
}

impl RawIo {
    /// Reads `length` bytes into one vector.
    pub(crate) async fn read(
        &self,
        disk: &dyn Disk,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, DiskError> {
        let buffers = self.arena.alloc_sg(length, Class::Control).await;
        let ctx = Ctx { epoch: self.epoch, ..Ctx::default() };
        let (result, read) = disk.read(&ctx, offset, sized(buffers, length)).wait().await;
        result?;
        Ok(whole(&read))
    }
}

/// The data read, in one vector.
pub(crate) fn whole(read: &SgMut) -> Vec<u8> {
    let mut out = Vec::with_capacity(read.iter().map(|b| b.len()).sum());
    read.iter().for_each(|b| out.extend_from_slice(b));
    out
}

impl DataDisk {
    pub(crate) fn new(member: Arc<Member>, epoch: Epoch, log: Arc<Log>, pulse: Arc<Pulse>) -> Arc<DataDisk> {
        Arc::new(DataDisk {
            number: member.number,
            member,
            log,
            pulse,
            ctx: Ctx { epoch, ..Ctx::default() },
            resyncing: Mutex::default(),
        })
    }

    /// Starts a read now; it continues whether or not the caller waits. The caller is notified when it has
    /// taken as long as `late`.
    pub(crate) fn start_read(
        self: &Arc<DataDisk>,
        now: Moment,
        offset: u64,
        dst: SgMut,
        late: Option<Duration>,
    ) -> Reading {
        let shape = Shape::of(&dst);
        let at = Place::new(Op::Read, offset, shape.length());
        let start = |then| self.member.disk.read_then(&self.ctx, offset, dst, then);
        let waits = self.pulse.read_then(now, at, late, start);
        Reading { waits, disk: Arc::clone(self), at, shape }
    }

    /// Reads `length` bytes into one vector.
    ///
    /// # Errors
    /// [`DiskError`]; [`DiskError::Timeout`] when the disk was removed meanwhile.
    pub(crate) async fn read_vec(
        &self,
        io: &RawIo,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, DiskError> {
        let buffers = sized(io.arena.alloc_sg(length, Class::Control).await, length);
        let at = Place::new(Op::Read, offset, length as u64);
        let answer = self.pulse.follow(at, || self.member.disk.read(&self.ctx, offset, buffers));
        let (result, read) = answer.wait(at).await?;
        result?;
        Ok(whole(&read))
    }

    pub(crate) async fn write(&self, offset: u64, src: Sg) -> Result<(), DiskError> {
        self.pulse.may_write(&self.ctx, Place::new(Op::Write, offset, sg_len(&src) as u64)).await?;
        self.start_write(self.pulse.now(), offset, src).wait().await
    }

    /// Starts a write now; it continues whether or not the caller waits.
    pub(crate) fn start_write(&self, now: Moment, offset: u64, src: Sg) -> Started {
        let at = Place::new(Op::Write, offset, sg_len(&src) as u64);
        let answer = self.pulse.follow_data(now, at, || self.member.disk.write(&self.ctx, offset, src));
        Started { answer, at, ended: false }
    }

    /// Starts a write now; calls `who` back with the result, or with the removal of the disk. Perhaps before
    /// this returns.
    pub(crate) fn write_then(&self, now: Moment, offset: u64, src: Sg, who: (Arc<dyn Told<Written>>, usize)) {
        let at = Place::new(Op::Write, offset, sg_len(&src) as u64);
        let start = |then| self.member.disk.write_then(&self.ctx, offset, src, then);
        self.pulse.write_then(now, at, who, start);
    }

    pub(crate) async fn flush(&self) -> Result<(), DiskError> {
        let at = Place::whole(Op::Flush);
        self.pulse.follow(at, || self.member.disk.flush(&self.ctx)).wait(at).await?
    }

    pub(crate) async fn discard(&self, offset: u64, length: u64) -> Result<(), DiskError> {
        let at = Place::new(Op::Discard, offset, length);
        self.pulse.may_write(&self.ctx, at).await?;
        self.pulse.follow(at, || self.member.disk.discard(&self.ctx, offset, length)).wait(at).await?
    }

    /// A job begins to bring regions up to date.
    pub(crate) fn resync_begins(&self, copy: (SpaceId, RowNumber, usize), regions: u64) {
        *self.resyncing.lock().entry(copy).or_insert(0) |= regions;
    }

    /// A write to a copy failed: a job's copy there is not up to date.
    pub(crate) fn resync_spoiled(&self, copy: (SpaceId, RowNumber, usize), regions: u64) {
        if let Some(r) = self.resyncing.lock().get_mut(&copy) {
            *r &= !regions;
        }
    }

    /// Nothing that a job copied here counts.
    pub(crate) fn resync_spoiled_all(&self) {
        self.resyncing.lock().clear();
    }

    /// The regions of `regions` that are up to date; the job is done with them.
    pub(crate) fn resync_ends(&self, copy: (SpaceId, RowNumber, usize), regions: u64) -> u64 {
        let mut resyncing = self.resyncing.lock();
        let Some(r) = resyncing.get_mut(&copy) else { return 0 };
        let good = *r & regions;
        *r &= !regions;
        if *r == 0 {
            resyncing.remove(&copy);
        }
        good
    }
}

/// An outstanding read.
pub(crate) struct Reading {
    waits: Waits,
    disk: Arc<DataDisk>,
    at: Place,
    shape: Shape,
}

impl Reading {
    /// See [`Reading::answer`].
    pub(crate) async fn wait(self, io: &RawIo, env: &Env) -> Read {
        self.answer(io, env).await
    }

    /// Its result, once. The buffers are the given ones, except when the disk keeps those: it was removed,
    /// and its driver has not completed the I/O.
    pub(crate) async fn answer(&self, io: &RawIo, env: &Env) -> Read {
        let answer = self.waits.end().await;
        self.given(answer, io, env).await
    }

    /// The same, when it has given it.
    pub(crate) async fn given(&self, answer: Option<Read>, io: &RawIo, env: &Env) -> Read {
        match answer {
            Some((result, dst)) if !dst.is_empty() || self.shape.is_empty() => (result, dst),
            other => {
                let error =
                    other.and_then(|(result, _)| result.err()).unwrap_or(DiskError::Timeout { at: self.at });
                (Err(error), Box::pin(alloc(&self.shape, io, env)).await)
            }
        }
    }

    /// Its result, once, or that it is late; it continues then.
    pub(crate) fn poll_first(&self, context: &Context<'_>) -> Poll<Came> {
        self.waits.poll_first(context)
    }

    /// Whether it ends before it is late; it continues in any case.
    pub(crate) async fn ends_in_time(&self) -> bool {
        self.waits.ends_in_time().await
    }

    pub(crate) fn disk(&self) -> &Arc<DataDisk> {
        &self.disk
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Buffers of these sizes, when there is memory.
async fn alloc(shape: &Shape, io: &RawIo, env: &Env) -> SgMut {
    loop {
        if let Some(buffers) = shape.try_alloc(&io.arena) {
            return buffers;
        }
        env.sleep(MEMORY_WAIT).await;
    }
}

/// A write, outstanding or completed.
pub(crate) struct Started {
    answer: Followed<Result<(), DiskError>>,
    at: Place,
    ended: bool,
}

impl Started {
    /// Waits for all of them.
    pub(crate) async fn wait_all(all: &mut [Started]) {
        std::future::poll_fn(|context| Started::poll_all(all, context)).await;
    }

    /// Whether all have ended, looking at each as it does.
    fn poll_all(all: &mut [Started], context: &mut Context<'_>) -> Poll<()> {
        let mut done = true;
        for one in all.iter_mut().filter(|one| !one.ended) {
            one.ended = one.answer.poll_end(context).is_ready();
            done &= one.ended;
        }
        if done { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Its result, after [`Started::wait_all`].
    pub(crate) fn result(&self) -> Result<(), DiskError> {
        self.answer.result().copied().unwrap_or(Err(DiskError::Timeout { at: self.at }))
    }

    pub(crate) async fn wait(self) -> Result<(), DiskError> {
        self.answer.wait(self.at).await?
    }
}
