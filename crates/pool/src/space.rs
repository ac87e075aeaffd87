//! A space: a virtual disk of rows of slabs, in columns and copies. [`Space`] implements [`disk::Disk`].
//!
//! Invariants (`docs/0001-pool.md` has the reasons):
//! 1. Data is written only under the lock of its units, in a group that is ready (known, resolved), with its
//!    regions durably marked on every present copy's disk, and durably missed for every absent copy.
//! 2. A write is acknowledged when every copy on a present disk has it, and every copy that does not have it
//!    is durably absent or missed; a current copy has it.
//! 3. The table changes after the data and before the acknowledgement; the mark ends after both.
//! 4. Data that a read returns matched the table, or was never written (zeros); otherwise the read fails.
//! 5. Order of locks: a group's `preparing`, then ranges in ascending (row, column), then the flusher. None
//!    is held while waiting for an earlier one.

mod allocate;
mod blocks;
mod change;
mod copies;
mod direct;
mod discard;
mod emptying;
mod error;
mod flight;
mod flush;
mod heal;
mod hedge;
pub(crate) mod left;
mod load;
mod locks;
mod own;
mod parity;
mod prepare;
mod read;
mod resolve;
mod rounds;
mod routes;
mod unresolved;
mod unwritten;
mod write;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::{Sg, SgMut, sg_len};
use disk::{Disk, DiskError, DiskInfo, Gate, Op, Pass, Place};
use env::{Ctx, Epoch, Io};
use futures_util::FutureExt;

pub(crate) use copies::{Copy, current, in_pieces};
pub use error::SpaceError;
pub use parity::ParityCounts;
pub(crate) use parity::{Parity, Resynced};

use crate::groups::{Groups, Regions};
use crate::jobs::ClientIo;
use crate::layout::Layout;
use crate::path::DataPath;
use crate::{PoolId, SpaceId, SpaceRecord, UNIT};
use emptying::Emptying;
use flush::Flusher;
use locks::RangeLocks;
use routes::Routes;
use unresolved::Unresolved;

/// A space of an open pool. Clones share it. Its calls run in tasks on the worker on which they are made
/// ([`env::Env::spawn`]), with two exceptions. Reads whose result the caller verifies: a fence waits for
/// those too, until they are polled to their end or dropped. Writes that wait only for their disks: they end
/// in their last completion.
#[derive(Clone)]
pub struct Space {
    pub(crate) path: Arc<DataPath>,
    pub(crate) inner: Arc<SpaceInner>,
    /// As of when it was opened.
    info: Arc<DiskInfo>,
}

pub(crate) struct SpaceInner {
    pub(crate) id: SpaceId,
    pub(crate) layout: Layout,
    pub(crate) copies: usize,
    pub(crate) columns: u8,
    pub(crate) regions: Regions,
    pub(crate) groups: Groups,
    pub(crate) locks: RangeLocks,
    routes: Routes,
    pub(crate) parity: Option<Arc<Parity>>,
    pub(crate) emptying: Emptying,
    flusher: Flusher,
    unresolved: Unresolved,
    /// In bytes, now.
    size: AtomicU64,
    info: Arc<DiskInfo>,
    gate: Arc<Gate>,
}

impl SpaceInner {
    pub(crate) fn new(
        path: &DataPath,
        id: SpaceId,
        record: &SpaceRecord,
        journal: Option<u64>,
    ) -> SpaceInner {
        let regions = Regions::new(path.slab_bytes);
        let coded = record.code().zip(journal);
        let parity = coded.map(|(code, units)| Parity::new(path.options.tables, id, code, units));
        SpaceInner {
            id,
            layout: Layout::new(record.columns, record.interleave, path.slab_bytes),
            copies: record.resiliency.copies(),
            columns: record.columns,
            regions,
            groups: Groups::with(path.options.tables, regions),
            locks: RangeLocks::default(),
            routes: Routes::default(),
            parity: parity.map(Arc::new),
            emptying: Emptying::default(),
            flusher: Flusher::default(),
            unresolved: Unresolved::with(regions),
            size: AtomicU64::new(record.size),
            info: Arc::new(info(path.pool, id, record)),
            gate: Arc::default(),
        }
    }

    /// In bytes, now.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }
}

fn info(pool: PoolId, id: SpaceId, record: &SpaceRecord) -> DiskInfo {
    DiskInfo {
        id: disk::DiskId { kind: disk::IdKind::File, value: format!("{pool}/{}", id.0) },
        path: std::path::PathBuf::from(format!("space:{}", record.name)),
        model: "causeway space".into(),
        serial: format!("{pool}/{}", id.0),
        firmware: String::new(),
        geometry: disk::Geometry {
            size: record.size,
            logical_block: UNIT as u32,
            physical_block: UNIT as u32,
            atomic_write: UNIT as u32,
            dma_alignment: UNIT as u32,
        },
        media: disk::Media::Unspecified,
        rotational: false,
        removable: false,
        enclosure: None,
        queue_depth: crate::path::WRITES_MAX as u32,
        write_cache: disk::WriteCache::Volatile,
    }
}

impl Space {
    pub(crate) fn new(path: Arc<DataPath>, inner: Arc<SpaceInner>) -> Space {
        let size = inner.size();
        let info = match inner.info.geometry.size == size {
            true => Arc::clone(&inner.info),
            false => {
                let geometry = disk::Geometry { size, ..inner.info.geometry };
                Arc::new(DiskInfo { geometry, ..(*inner.info).clone() })
            }
        };
        Space { path, inner, info }
    }

    /// Its number in the pool.
    pub fn id(&self) -> SpaceId {
        self.inner.id
    }

    /// Whether a call is inside the space and whole units.
    fn check(&self, at: Place) -> Result<(), DiskError> {
        disk::Geometry { size: self.inner.size(), ..self.info.geometry }.check(at)
    }

    /// Checks a call and lets it in.
    fn enter(&self, c: &Ctx, at: Place) -> Result<Call, DiskError> {
        self.check(at)?;
        if self.path.options.read_only && matches!(at.op, Op::Write | Op::Discard) {
            return Err(DiskError::ReadOnly { at });
        }
        let pass = self.inner.gate.enter(c, at)?;
        // The disk alone decides how long a flush or a discard takes: jobs observe reads and writes only.
        Ok((pass, self.path.jobs.client(matches!(at.op, Op::Read | Op::Write))))
    }

    /// Waits until this process owns the pool.
    async fn owned(&self) -> Result<(), SpaceError> {
        if self.path.tenure.holds() {
            return Ok(());
        }
        Ok(Box::pin(self.path.tenure.hold()).await?)
    }

    /// A change, which neither begins nor is acknowledged before that.
    async fn owning(&self, change: impl Future<Output = Result<(), SpaceError>>) -> Result<(), SpaceError> {
        self.owned().await?;
        change.await?;
        self.owned().await
    }

    /// Runs a call in a task of its own, so that it completes whether or not the caller waits for it.
    fn run<T, F>(&self, call: impl Send + 'static, work: impl FnOnce(Space) -> F) -> Io<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        // Not a block that awaits the work: it would have room for it twice.
        Io::pending(self.path.env.run(work(self.clone()).map(move |result| {
            drop(call);
            result
        })))
    }
}

/// Admits a call, which is outstanding until this is dropped.
type Call = (Pass, Option<ClientIo>);

fn told(space: &Space, result: Result<(), SpaceError>, at: Place) -> Result<(), DiskError> {
    result.map_err(|error| {
        tracing::warn!(disk = %space.info.path.display(), %error, %at, "a virtual disk refused");
        error.as_disk_error(at.op, at.offset, at.length)
    })
}

impl Disk for Space {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let at = Place::new(Op::Read, offset, dst.iter().map(|b| b.len() as u64).sum());
        let call = match self.enter(c, at) {
            Ok(call) => call,
            Err(e) => return Io::Done((Err(e), dst)),
        };
        match self.start_read(offset, at.length, dst) {
            Ok(direct) => Io::pending(direct::Wait::new(self.clone(), direct, call, at)),
            Err(dst) => self.run(call, |space| async move {
                let (result, dst) = space.read_at(offset, dst).await;
                (told(&space, result, at), dst)
            }),
        }
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        let at = Place::new(Op::Write, offset, sg_len(&src) as u64);
        let call = match self.enter(c, at) {
            Ok(call) => call,
            Err(e) => return Io::Done(Err(e)),
        };
        let through = c.flags.write_through;
        let (src, call) = if through {
            (src, Some(call))
        } else {
            match self.start_write(offset, src, Some(call)) {
                Ok(wait) => return Io::pending(wait.told(at)),
                Err(back) => back,
            }
        };
        self.run(call, |space| async move {
            let result = space
                .owning(async {
                    space.write_from(offset, &src).await?;
                    // Boxed: a rare case must not make every write large.
                    if through { Box::pin(space.flush_for_user()).await } else { Ok(()) }
                })
                .await;
            told(&space, result, at)
        })
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        let at = Place::whole(Op::Flush);
        match self.enter(c, at) {
            Ok(call) => self.run(call, |space| async move {
                let result = space.owning(space.flush_for_user()).await;
                told(&space, result, at)
            }),
            Err(e) => Io::Done(Err(e)),
        }
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        let at = Place::new(Op::Discard, offset, length);
        match self.enter(c, at) {
            Ok(call) => self.run(call, |space| async move {
                let result = space.owning(space.discard_at(offset, length)).await;
                told(&space, result, at)
            }),
            Err(e) => Io::Done(Err(e)),
        }
    }

    fn fence(&self, _: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        self.inner.gate.fence(epoch)
    }

    /// By rows: one that has slabs counts as all written.
    fn allocated(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        let _call = match self.enter(c, Place::new(Op::Check, offset, length)) {
            Ok(call) => call,
            Err(e) => return Io::Done(Err(e)),
        };
        let (id, row_bytes, end) = (self.inner.id, self.inner.layout.row_bytes(), offset + length);
        let row = |address: u64| (id, crate::RowNumber((address / row_bytes) as u32));
        let mut out: Vec<Range<u64>> = Vec::new();
        self.path.read(|s| {
            for ((_, row), _) in s.rows.range(row(offset)..=row(end)) {
                let first = u64::from(row.0) * row_bytes;
                disk::append(&mut out, first.max(offset)..(first + row_bytes).min(end));
            }
        });
        Io::Done(Ok(out))
    }
}
