//! Disks with counters, and an identity if the system reports none; and a disk in this process's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::{Arena, Sg, SgMut, sg_len};
use disk::{Callback, Disk, DiskError, DiskId, DiskInfo, FileDisk, FileOptions, IdKind, Read, Written};
use env::{Ctx, Env, Epoch, Io};
use serde::Serialize;

use crate::Failure;
use crate::memory::Memory;

/// A device with counters of its I/O.
pub struct Counted {
    disk: Arc<dyn Disk>,
    info: DiskInfo,
    counts: [AtomicU64; 5],
}

/// I/Os and bytes of one disk or of all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
}

impl Counted {
    /// Opens a file or block device; `memory:BYTES` means [`Memory`]. RAM disks have no identity; a made-up
    /// one suffices, because their data does not outlive this process.
    pub fn open(env: &Env, arena: &Arena, path: &str) -> Result<Arc<Counted>, Failure> {
        let disk: Arc<dyn Disk> = match path.strip_prefix("memory:") {
            Some(bytes) => Arc::new(Memory::new(bytes.parse()?)),
            None => {
                let options = FileOptions { arena: Some(arena.clone()), ..FileOptions::default() };
                FileDisk::open(env, path.as_ref(), &options)?
            }
        };
        let mut info = disk.info().clone();
        if info.id.kind == IdKind::Path {
            info.id = DiskId { kind: IdKind::File, value: path.to_owned() };
        }
        Ok(Arc::new(Counted { disk, info, counts: Default::default() }))
    }

    /// The counts since it was opened.
    pub fn counts(&self) -> Counts {
        let [reads, read_bytes, writes, written_bytes, flushes] =
            std::array::from_fn(|n| self.counts[n].load(Ordering::Relaxed));
        Counts { reads, read_bytes, writes, written_bytes, flushes }
    }

    fn count(&self, what: usize, amount: u64) {
        // There is only one thread, so no atomic addition is needed.
        self.counts[what].store(self.counts[what].load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }
}

impl Counts {
    /// Combines two counts field by field: a sum, or the difference to an earlier count.
    pub fn each(self, other: Counts, f: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            reads: f(self.reads, other.reads),
            read_bytes: f(self.read_bytes, other.read_bytes),
            writes: f(self.writes, other.writes),
            written_bytes: f(self.written_bytes, other.written_bytes),
            flushes: f(self.flushes, other.flushes),
        }
    }
}

impl Disk for Counted {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        self.count(0, 1);
        self.count(1, dst.iter().map(|b| b.len() as u64).sum());
        self.disk.read(c, offset, dst)
    }

    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Callback<Read>) {
        self.count(0, 1);
        self.count(1, dst.iter().map(|b| b.len() as u64).sum());
        self.disk.read_then(c, offset, dst, then);
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        self.count(2, 1);
        self.count(3, sg_len(&src) as u64);
        self.disk.write(c, offset, src)
    }

    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Callback<Written>) {
        self.count(2, 1);
        self.count(3, sg_len(&src) as u64);
        self.disk.write_then(c, offset, src, then);
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        self.count(4, 1);
        self.disk.flush(c)
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        self.disk.discard(c, offset, length)
    }

    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        self.disk.fence(c, epoch)
    }
}
