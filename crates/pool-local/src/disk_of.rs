//! A space as a disk.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::{Sg, SgMut, sg_len};
use disk::{
    Disk, DiskError, DiskId, DiskInfo, Gate, GateGuard, Geometry, IdKind, IoRange, Layout, Media, Op,
    WriteCache,
};
use env::{Ctx, Epoch, Io};
use pool::PoolId;
use pool::jobs::ClientIo;
use pool_seam::{SpaceRecord, UNIT};
use space::Space;

use crate::LocalError;
use crate::slot::Slot;

/// Maximum outstanding I/Os of a user.
const QUEUE: u32 = 512;

/// See the module. The space owns each call: it completes even if the caller stops waiting.
pub struct VirtualDisk {
    slot: Arc<Slot>,
    info: DiskInfo,
    is_read_only: bool,
    gate: Arc<Gate>,
    /// The slot's count of doubts that flushes of this disk have reported.
    doubts: AtomicU64,
}

/// The buffer alignment that most disks require, in bytes. For disks that require more, each copy is copied
/// once.
const DMA_ALIGNMENT: u32 = 512;

/// A call in progress.
type Call = (GateGuard, Option<ClientIo>);

impl VirtualDisk {
    /// `record` describes the space to its users; its size must be the current one.
    pub(crate) fn new(
        slot: Arc<Slot>,
        pool: PoolId,
        record: &SpaceRecord,
        slab_bytes: u64,
        is_read_only: bool,
    ) -> VirtualDisk {
        // The slowest medium that the space may use.
        let media = record.media.media().next().unwrap_or(Media::Unspecified);
        let serial = format!("{pool}/{}", slot.id().0);
        let info = DiskInfo {
            id: DiskId { kind: IdKind::File, value: serial.clone() },
            path: PathBuf::from(format!("space:{}", record.name)),
            model: "causeway space".into(),
            serial,
            firmware: String::new(),
            geometry: Geometry {
                size: record.size,
                logical_block: UNIT as u32,
                physical_block: UNIT as u32,
                atomic_write: UNIT as u32,
                dma_alignment: DMA_ALIGNMENT,
            },
            media,
            rotational: media == Media::Hdd,
            removable: false,
            enclosure: None,
            queue_depth: QUEUE,
            write_cache: WriteCache::Volatile,
            layout: Some(Layout {
                stripe: u64::from(record.columns) * u64::from(record.interleave),
                row: record.row_bytes(slab_bytes),
                failures: record.promised(),
            }),
        };
        let doubts = AtomicU64::new(slot.doubts());
        VirtualDisk { slot, info, is_read_only, gate: Arc::default(), doubts }
    }

    /// Admits a call, if it is whole units inside the space.
    fn enter(&self, c: &Ctx, at: IoRange) -> Result<(Space, Call), DiskError> {
        // The duration of a flush or discard depends only on the disks, so jobs observe only reads and
        // writes.
        let begun = self.slot.begin(matches!(at.op, Op::Read | Op::Write));
        let (space, client) = begun.map_err(|error| told(&self.info, error, at))?;
        Geometry { size: space.size(), ..self.info.geometry }.check(at)?;
        if self.is_read_only && matches!(at.op, Op::Write | Op::Discard) {
            return Err(DiskError::ReadOnly { at });
        }
        let pass = self.gate.enter(c, at)?;
        Ok((space, (pass, client)))
    }
}

impl Disk for VirtualDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let at = IoRange::new(Op::Read, offset, dst.iter().map(|b| b.len() as u64).sum());
        let (space, call) = match self.enter(c, at) {
            Ok(entered) => entered,
            Err(error) => return Io::Done((Err(error), dst)),
        };
        let slot = Arc::clone(&self.slot);
        space.read(offset, dst).map(move |(result, dst)| {
            drop(call);
            (result.map_err(|error| refused(&slot, error.into(), at)), dst)
        })
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        match self.enter(c, at) {
            Ok((space, call)) => self.ends(space.write(offset, src, c.flags.write_through), call, at),
            Err(error) => Io::Done(Err(error)),
        }
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        let at = IoRange::whole(Op::Flush);
        match self.enter(c, at) {
            // A read-only disk has no writes of its own to flush.
            Ok(_) if self.is_read_only => Io::Done(Ok(())),
            Ok(_) if self.is_in_doubt() => {
                tracing::warn!(disk = %self.info.path.display(), "the virtual disk was reopened: writes that were not flushed before may be lost, so this flush fails");
                Io::Done(Err(DiskError::Gone { at }))
            }
            Ok((space, call)) => self.ends(space.flush(), call, at),
            Err(error) => Io::Done(Err(error)),
        }
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        let at = IoRange::new(Op::Discard, offset, length);
        match self.enter(c, at) {
            Ok((space, call)) => self.ends(space.discard(offset, length), call, at),
            Err(error) => Io::Done(Err(error)),
        }
    }

    fn fence(&self, _: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        self.gate.fence(epoch)
    }

    fn allocated(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        let at = IoRange::new(Op::Check, offset, length);
        let (space, call) = match self.enter(c, at) {
            Ok(entered) => entered,
            Err(error) => return Io::Done(Err(error)),
        };
        let (slot, end) = (Arc::clone(&self.slot), offset + length);
        Io::pending(async move {
            let _call = call;
            let (mut all, mut from) = (Vec::new(), offset);
            while from < end {
                let part = space.allocated(from, end - from).await;
                let part = part.map_err(|error| refused(&slot, error.into(), at))?;
                part.ranges.into_iter().for_each(|range| disk::append(&mut all, range));
                from = part.end;
            }
            Ok(all)
        })
    }
}

impl VirtualDisk {
    /// Whether writes through this disk may be lost and no flush has reported it yet.
    fn is_in_doubt(&self) -> bool {
        let doubts = self.slot.doubts();
        self.doubts.load(Ordering::Relaxed) != doubts && self.doubts.swap(doubts, Ordering::Relaxed) != doubts
    }

    fn ends(
        &self,
        io: Io<Result<(), space::SpaceError>>,
        call: Call,
        at: IoRange,
    ) -> Io<Result<(), DiskError>> {
        let slot = Arc::clone(&self.slot);
        io.map(move |result| {
            drop(call);
            result.map_err(|error| refused(&slot, error.into(), at))
        })
    }
}

fn told(info: &DiskInfo, error: LocalError, at: IoRange) -> DiskError {
    tracing::warn!(disk = %info.path.display(), %error, %at, "an I/O to a virtual disk failed");
    as_disk_error(&error, at)
}

fn refused(slot: &Slot, error: LocalError, at: IoRange) -> DiskError {
    tracing::warn!(space = slot.id().0, %error, %at, "an I/O to a virtual disk failed");
    as_disk_error(&error, at)
}

fn as_disk_error(error: &LocalError, at: IoRange) -> DiskError {
    match error {
        LocalError::Space(error) => error.as_disk_error(at.op, at.offset, at.length),
        _ => DiskError::Gone { at },
    }
}
