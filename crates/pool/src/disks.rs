//! The disks as the data path uses them: a member, its activity log, how busy it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arena::{Arena, Class, Sg, SgMut};
use disk::{Disk, DiskError, sized};
use env::{Ctx, Epoch, Io};
use parking_lot::Mutex;
use std::collections::BTreeMap;

use crate::Member;
use crate::activity::Log;
use crate::{DiskNumber, RowNumber, SpaceId};

/// A disk that takes part, or did until a moment ago.
pub(crate) struct DataDisk {
    pub(crate) number: DiskNumber,
    pub(crate) member: Arc<Member>,
    pub(crate) log: Arc<Log>,
    in_flight: AtomicU32,
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
        let mut out = Vec::with_capacity(length);
        read.iter().for_each(|b| out.extend_from_slice(b));
        Ok(out)
    }
}

impl DataDisk {
    pub(crate) fn new(member: Arc<Member>, epoch: Epoch, log: Arc<Log>) -> Arc<DataDisk> {
        Arc::new(DataDisk {
            number: member.number,
            member,
            log,
            in_flight: AtomicU32::new(0),
            ctx: Ctx { epoch, ..Ctx::default() },
            resyncing: Mutex::default(),
        })
    }

    /// How many I/Os of data are under way.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Starts a read, which goes on whether or not somebody waits.
    pub(crate) fn start_read(self: &Arc<DataDisk>, offset: u64, dst: SgMut) -> Reading {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Reading { io: Some(self.member.disk.read(&self.ctx, offset, dst)), disk: Arc::clone(self) }
    }

    pub(crate) async fn read(&self, offset: u64, dst: SgMut) -> (Result<(), DiskError>, SgMut) {
        let _busy = self.busy();
        self.member.disk.read(&self.ctx, offset, dst).wait().await
    }

    pub(crate) async fn write(&self, offset: u64, src: Sg) -> Result<(), DiskError> {
        self.start_write(offset, src).wait().await
    }

    /// Starts a write, which goes on whether or not somebody waits.
    pub(crate) fn start_write(&self, offset: u64, src: Sg) -> Started<'_> {
        let busy = self.busy();
        Started { io: self.member.disk.write(&self.ctx, offset, src), _busy: busy }
    }

    pub(crate) async fn flush(&self) -> Result<(), DiskError> {
        self.member.disk.flush(&self.ctx).wait().await
    }

    /// A job begins to bring regions up to date.
    pub(crate) fn resync_begins(&self, copy: (SpaceId, RowNumber, usize), regions: u64) {
        *self.resyncing.lock().entry(copy).or_insert(0) |= regions;
    }

    /// A write to a copy failed: what a job copied there is not up to date.
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

    fn busy(&self) -> Busy<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Busy(&self.in_flight)
    }
}

/// A read under way.
pub(crate) struct Reading {
    io: Option<Io<(Result<(), DiskError>, SgMut)>>,
    disk: Arc<DataDisk>,
}

impl Reading {
    pub(crate) async fn wait(mut self) -> (Result<(), DiskError>, SgMut) {
        self.io.take().expect("waited for once").wait().await
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.disk.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A write under way.
pub(crate) struct Started<'a> {
    io: Io<Result<(), DiskError>>,
    _busy: Busy<'a>,
}

impl Started<'_> {
    pub(crate) async fn wait(self) -> Result<(), DiskError> {
        self.io.wait().await
    }
}

struct Busy<'a>(&'a AtomicU32);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
