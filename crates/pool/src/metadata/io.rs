//! Blocks between memory and a disk, with a deadline.

use std::sync::Arc;
use std::time::Duration;

use arena::{Arena, Class, IoBuf};
use disk::{Disk, DiskError, sized};
use env::{Ctx, Env, Epoch, IoFlags};

use crate::format::Extent;

/// How long a voter may take for one I/O before it counts as failed: longer than a disk's own error recovery.
const TIMEOUT: Duration = Duration::from_secs(30);

/// At a time, in bytes.
const PIECE: u64 = 256 << 10;

/// What I/O on the metadata needs.
#[derive(Clone)]
pub(crate) struct DiskIo {
    pub(crate) env: Env,
    pub(crate) arena: Arena,
    /// That of the pool's claim: disks that were fenced take no older one. [`DiskIo::LOOKING`] before there is a claim.
    pub(crate) epoch: Epoch,
}

impl DiskIo {
    /// For looking at disks, whoever has them.
    pub(crate) const LOOKING: Epoch = Epoch(u64::MAX);

    /// Reads the whole extent.
    pub(crate) async fn read(&self, disk: &Arc<dyn Disk>, at: Extent) -> Result<Vec<u8>, DiskError> {
        let mut out = Vec::with_capacity(at.length as usize);
        while (out.len() as u64) < at.length {
            let n = (at.length - out.len() as u64).min(PIECE) as usize;
            let buffers = self.arena.alloc_sg(n, Class::Control).await;
            let (result, read) =
                disk.read(&self.ctx(false), at.offset + out.len() as u64, sized(buffers, n)).wait().await;
            result?;
            read.iter().for_each(|b| out.extend_from_slice(b));
        }
        Ok(out)
    }

    /// Writes a few blocks; they are durable when it returns.
    pub(crate) async fn write_durably(
        &self,
        disk: &Arc<dyn Disk>,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), DiskError> {
        disk.write(&self.ctx(true), offset, [IoBuf::from(bytes)].into_iter().collect()).wait().await
    }

    /// Writes much, in two parts that come one after the other, and then flushes.
    pub(crate) async fn write_and_flush(
        &self,
        disk: &Arc<dyn Disk>,
        offset: u64,
        [head, rest]: [IoBuf; 2],
    ) -> Result<(), DiskError> {
        let (before, length) = (head.len(), head.len() + rest.len());
        let mut at = 0;
        while at < length {
            let end = length.min(at + PIECE as usize);
            let parts = [
                head.slice(at.min(before)..end.min(before)),
                rest.slice(at.max(before) - before..end.max(before) - before),
            ];
            let piece = parts.into_iter().filter(|p| !p.is_empty()).collect();
            disk.write(&self.ctx(false), offset + at as u64, piece).wait().await?;
            at = end;
        }
        self.flush(disk).await
    }

    /// Writes zeros, and then flushes.
    pub(crate) async fn clear(&self, disk: &Arc<dyn Disk>, at: Extent) -> Result<(), DiskError> {
        let zeros = [vec![0; at.length as usize], Vec::new()].map(IoBuf::from);
        self.write_and_flush(disk, at.offset, zeros).await
    }

    /// Makes durable what was written.
    pub(crate) async fn flush(&self, disk: &Arc<dyn Disk>) -> Result<(), DiskError> {
        disk.flush(&self.ctx(false)).wait().await
    }

    /// Returns when nobody with an older epoch can reach the disk any more.
    pub(crate) async fn fence(&self, disk: &Arc<dyn Disk>, epoch: Epoch) -> Result<(), DiskError> {
        disk.fence(&self.ctx(false), epoch).wait().await
    }

    fn ctx(&self, write_through: bool) -> Ctx {
        Ctx {
            deadline: Some(self.env.now() + TIMEOUT),
            epoch: self.epoch,
            flags: IoFlags { write_through, ..IoFlags::default() },
        }
    }
}
