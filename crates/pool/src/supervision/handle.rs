//! An owner's handle of a disk, valid during one membership.

use std::ops::Range;
use std::sync::Arc;

use arena::{Sg, SgMut, sg_len};
use disk::{Callback, Completion, Disk, DiskError, DiskInfo, IoRange, Op, Read, SlowReads, Written};
use env::{Ctx, Epoch, Io};
use futures_util::future::{Either, select};

use super::record::Record;
use super::space_io::{Caller, SpaceIo};

/// See the module. Its epochs are those of the space: [`Disk::fence`] closes the disk to earlier owners of this space only.
pub(super) struct OwnerDisk(pub(super) Arc<SpaceIo>);

impl OwnerDisk {
    /// The context for the disk, which knows only the pool's epochs.
    fn below(&self, c: &Ctx) -> Ctx {
        Ctx { epoch: self.0.record.epoch(), ..*c }
    }

    /// Starts an I/O whose caller polls.
    fn polled(
        &self,
        c: &Ctx,
        at: IoRange,
        start: impl FnOnce(&dyn Disk, &Ctx) -> Io<Written>,
    ) -> Io<Written> {
        match self.0.begin(c, at, Caller::Polls(None)) {
            Ok((disk, which)) => self.0.wait(which, at, start(&**disk, &self.below(c))),
            Err((error, _)) => Io::Done(Err(error)),
        }
    }
}

fn place_of(offset: u64, dst: &SgMut) -> IoRange {
    IoRange::new(Op::Read, offset, dst.iter().map(|b| b.len() as u64).sum())
}

impl Disk for OwnerDisk {
    fn info(&self) -> &DiskInfo {
        &self.0.record.info
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<Read> {
        let at = place_of(offset, &dst);
        match self.0.begin(c, at, Caller::Polls(None)) {
            Ok((disk, which)) => self.0.wait(which, at, disk.read(&self.below(c), offset, dst)),
            Err((error, _)) => Io::Done((Err(error), dst)),
        }
    }

    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Callback<Read>) {
        let at = place_of(offset, &dst);
        match self.0.begin(c, at, Caller::Reads(then)) {
            Ok((disk, which)) => {
                let io: Arc<dyn Completion<Read>> = Arc::<SpaceIo>::clone(&self.0);
                disk.read_then(&self.below(c), offset, dst, Callback::new(io, which, at));
            }
            Err((error, Caller::Reads(then))) => then.complete((Err(error), dst)),
            Err(_) => {}
        }
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Written> {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        self.polled(c, at, |disk, c| disk.write(c, offset, src))
    }

    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Callback<Written>) {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        match self.0.begin(c, at, Caller::Writes(then)) {
            Ok((disk, which)) => {
                let io: Arc<dyn Completion<Written>> = Arc::<SpaceIo>::clone(&self.0);
                disk.write_then(&self.below(c), offset, src, Callback::new(io, which, at));
            }
            Err((error, Caller::Writes(then))) => then.complete(Err(error)),
            Err(_) => {}
        }
    }

    fn flush(&self, c: &Ctx) -> Io<Written> {
        self.polled(c, IoRange::whole(Op::Flush), |disk, c| disk.flush(c))
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Written> {
        self.polled(c, IoRange::new(Op::Discard, offset, length), |disk, c| disk.discard(c, offset, length))
    }

    /// Fails with [`DiskError::Timeout`] at the deadline, and when the disk is removed from service. An earlier
    /// owner's I/O may then still be outstanding.
    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Written> {
        let fenced = match self.0.fence(epoch) {
            Io::Done(fenced) => return Io::Done(fenced),
            Io::Pending(fenced) => fenced,
        };
        let (record, deadline) = (Arc::clone(&self.0.record), c.deadline);
        Io::pending(async move {
            let env = record.supervision.env.clone();
            let late = async {
                match deadline {
                    Some(deadline) => env.sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let given_up = select(Box::pin(late), Box::pin(record.until_ended()));
            match select(fenced, given_up).await {
                Either::Left((fenced, _)) => fenced,
                Either::Right(_) => Err(DiskError::Timeout { at: IoRange::whole(Op::Fence) }),
            }
        })
    }

    fn allocated(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        let at = IoRange::new(Op::Check, offset, length);
        match self.0.disk(c, at) {
            Ok(disk) => disk.allocated(&self.below(c), offset, length),
            Err(error) => Io::Done(Err(error)),
        }
    }

    fn check(&self, c: &Ctx) -> Io<Written> {
        match self.0.record.disk() {
            Some(disk) => disk.check(&self.below(c)),
            None => Io::Done(Err(DiskError::Gone { at: IoRange::whole(Op::Check) })),
        }
    }

    fn slow_reads(&self) -> Option<Arc<dyn SlowReads>> {
        let record: Arc<Record> = Arc::clone(&self.0.record);
        Some(record)
    }
}
