//! Reads and writes of metadata blocks, with a deadline.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use arena::{Arena, Class, IoBuf, Sg, sg_len};
use disk::{Disk, DiskError, DiskId, IoRange, Op, sized};
use env::{Ctx, Env, Epoch, Io, IoFlags};
use futures_util::future::{Either, select};
use parking_lot::Mutex;

use crate::Deadlines;
use crate::format::Extent;

/// The most bytes of one read or write.
const PIECE: u64 = 256 << 10;

/// The context of metadata I/O.
#[derive(Clone)]
pub(crate) struct DiskIo {
    pub(crate) env: Env,
    pub(crate) arena: Arena,
    /// The epoch of the pool's claim: fenced disks refuse older ones. [`DiskIo::UNOWNED_EPOCH`] before a claim exists.
    pub(crate) epoch: Epoch,
    pub(crate) deadlines: Deadlines,
    pub(crate) outstanding_writes: OutstandingWrites,
}

/// The number of outstanding metadata writes of each disk. This includes abandoned writes, which may still overwrite
/// newer data.
#[derive(Clone, Default)]
pub(crate) struct OutstandingWrites(Arc<Mutex<BTreeMap<DiskId, usize>>>);

/// An outstanding write, until it is dropped.
struct OutstandingWrite(OutstandingWrites, DiskId);

impl OutstandingWrites {
    fn begin(&self, disk: &DiskId) -> OutstandingWrite {
        *self.0.lock().entry(disk.clone()).or_default() += 1;
        OutstandingWrite(self.clone(), disk.clone())
    }

    /// Whether a write is outstanding on the disk, on any handle.
    pub(crate) fn has_write(&self, disk: &DiskId) -> bool {
        self.0.lock().contains_key(disk)
    }
}

impl Drop for OutstandingWrite {
    fn drop(&mut self) {
        let mut under_way = self.0.0.lock();
        if let Some(count) = under_way.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.1);
            }
        }
    }
}

impl DiskIo {
    /// Creates the context for a pool whose claim has this epoch.
    pub(crate) fn new(env: &Env, arena: &Arena, epoch: Epoch, deadlines: Deadlines) -> DiskIo {
        DiskIo {
            env: env.clone(),
            arena: arena.clone(),
            epoch,
            deadlines,
            outstanding_writes: OutstandingWrites::default(),
        }
    }

    /// The epoch for reading disks, regardless of their owner.
    pub(crate) const UNOWNED_EPOCH: Epoch = Epoch(u64::MAX);

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

    /// Reads an extent to verify it; returns `None` on a medium error. Errors: the disk does not respond, or refuses
    /// this process.
    pub(crate) async fn read_back(
        &self,
        disk: &Arc<dyn Disk>,
        at: Extent,
    ) -> Result<Option<Vec<u8>>, DiskError> {
        match self.read(disk, at).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e @ (DiskError::Timeout { .. } | DiskError::Gone { .. } | DiskError::Fenced { .. })) => {
                Err(e)
            }
            Err(_) => Ok(None),
        }
    }

    /// Writes a few blocks; they are durable when it returns.
    pub(crate) async fn write_durably(
        &self,
        disk: &Arc<dyn Disk>,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), DiskError> {
        self.write(disk, offset, [IoBuf::from(bytes)].into_iter().collect(), true).await
    }

    /// Writes two consecutive parts durably. Few blocks are written in one call, which a distant disk completes in
    /// one round trip; more are written in pieces, and then flushed.
    pub(crate) async fn write_and_flush(
        &self,
        disk: &Arc<dyn Disk>,
        offset: u64,
        [head, rest]: [IoBuf; 2],
    ) -> Result<(), DiskError> {
        let (before, length) = (head.len(), head.len() + rest.len());
        let in_one_call = length <= PIECE as usize;
        let mut at = 0;
        while at < length {
            let end = length.min(at + PIECE as usize);
            let parts = [
                head.slice(at.min(before)..end.min(before)),
                rest.slice(at.max(before) - before..end.max(before) - before),
            ];
            let piece = parts.into_iter().filter(|p| !p.is_empty()).collect();
            self.write(disk, offset + at as u64, piece, in_one_call).await?;
            at = end;
        }
        if in_one_call { Ok(()) } else { self.flush(disk).await }
    }

    /// Writes zeros, and then flushes.
    pub(crate) async fn clear(&self, disk: &Arc<dyn Disk>, at: Extent) -> Result<(), DiskError> {
        let zeros = [vec![0; at.length as usize], Vec::new()].map(IoBuf::from);
        self.write_and_flush(disk, at.offset, zeros).await
    }

    /// Does not pass a deadline to the disk, which would hide when the write has really ended.
    async fn write(
        &self,
        disk: &Arc<dyn Disk>,
        offset: u64,
        src: Sg,
        write_through: bool,
    ) -> Result<(), DiskError> {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        let counted = self.outstanding_writes.begin(&disk.info().id);
        let c = Ctx { deadline: None, ..self.ctx(write_through) };
        let ended = match disk.write(&c, offset, src) {
            Io::Done(result) => return result,
            Io::Pending(io) => self.env.run(async move {
                let _until_it_ends = counted;
                io.await
            }),
        };
        match select(pin!(ended), pin!(self.env.sleep(self.deadlines.metadata))).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(DiskError::Timeout { at }),
        }
    }

    /// Makes all writes durable.
    pub(crate) async fn flush(&self, disk: &Arc<dyn Disk>) -> Result<(), DiskError> {
        disk.flush(&self.ctx(false)).wait().await
    }

    /// Returns when no process with an older epoch can reach the disk any more.
    pub(crate) async fn fence(&self, disk: &Arc<dyn Disk>, epoch: Epoch) -> Result<(), DiskError> {
        disk.fence(&self.ctx(false), epoch).wait().await
    }

    /// The context of each call to the disk.
    pub(crate) fn ctx(&self, write_through: bool) -> Ctx {
        Ctx {
            deadline: Some(self.env.now() + self.deadlines.metadata),
            epoch: self.epoch,
            flags: IoFlags { write_through, ..IoFlags::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use disk::sim::{Fault, Machine, Rule, SlotId, When};
    use disk::{MemoryOptions, PowerCut};

    use super::*;

    /// The write needs no flush: the disk fails each flush.
    #[tokio::test(start_paused = true)]
    async fn a_few_blocks_are_durable_after_one_call() {
        let env = Env::simulated(1);
        let machine = Machine::new(&env, 1);
        let slot = machine.add(&MemoryOptions::new("disk", 16 << 20));
        machine.rule(slot, Rule::new(Op::Flush, When::From(0), Fault::Error));
        let arena = Arena::new(4 << 20).unwrap();
        let io = DiskIo::new(&env, &arena, Epoch(1), Deadlines::default());
        let open = |slot: SlotId| machine.open(slot).unwrap() as Arc<dyn Disk>;
        let parts = |blocks: usize| [vec![1; 4096], vec![2; blocks * 4096]].map(IoBuf::from);
        io.write_and_flush(&open(slot), 0, parts(3)).await.unwrap();
        io.write_and_flush(&open(slot), 1 << 20, parts(PIECE as usize / 4096)).await.unwrap_err();
        machine.cut(PowerCut::LoseAll);
        machine.restart();
        let at = |offset| Extent { offset, length: 4 * 4096 };
        let written = io.read(&open(slot), at(0)).await.unwrap();
        assert!(written[..4096] == [1; 4096] && written[4096..] == [2; 3 * 4096]);
        assert!(io.read(&open(slot), at(1 << 20)).await.unwrap().iter().all(|byte| *byte == 0));
    }
}
