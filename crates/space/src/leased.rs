//! A disk of a space, on which its owner begins no write without the lease. On disks that do not fence other processes, an old
//! owner could otherwise overwrite the log of the next one.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arena::{Sg, SgMut, sg_len};
use counters::IoTally;
use disk::{Disk, DiskError, DiskInfo, Op, Place, Read, SlowReads, Then, Written};
use env::{Ctx, Env, Epoch, Io};
use pool_seam::{Lease, SeamError, Suspension};

/// After this time a pool that is suspended is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module. Writes and discards that come while the lease is out wait until it holds, or fail:
/// with [`DiskError::Fenced`] when another owner is known, with [`DiskError::Gone`] when the pool was let go.
pub(crate) struct Leased {
    pub(crate) env: Env,
    pub(crate) lease: Arc<dyn Lease>,
    pub(crate) disk: Arc<dyn Disk>,
}

impl Leased {
    fn later(
        &self,
        c: &Ctx,
        at: Place,
        write: impl FnOnce(&dyn Disk, &Ctx) -> Io<Written> + Send + 'static,
    ) -> Io<Written> {
        let (env, lease, disk, c) = (self.env.clone(), Arc::clone(&self.lease), Arc::clone(&self.disk), *c);
        Io::pending(async move {
            loop {
                let epoch = match lease.hold().wait().await {
                    Ok(()) => return write(&*disk, &c).wait().await,
                    Err(SeamError::Deposed(epoch)) => epoch.0,
                    Err(SeamError::Suspended(Suspension::TakenOver(epoch))) => epoch,
                    // The pool is let go.
                    Err(SeamError::Failed(_)) => return Err(DiskError::Gone { at }),
                    Err(_) => {
                        env.sleep(PAUSE).await;
                        continue;
                    }
                };
                return Err(DiskError::Fenced { at, had: c.epoch, epoch: Epoch(epoch) });
            }
        })
    }
}

impl Disk for Leased {
    fn info(&self) -> &DiskInfo {
        self.disk.info()
    }

    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<Read> {
        self.disk.read(c, offset, dst)
    }

    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Then<Read>) {
        self.disk.read_then(c, offset, dst, then);
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Written> {
        if self.lease.holds() {
            return self.disk.write(c, offset, src);
        }
        let at = Place::new(Op::Write, offset, sg_len(&src) as u64);
        self.later(c, at, move |disk, c| disk.write(c, offset, src))
    }

    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Then<Written>) {
        match self.lease.holds() {
            true => self.disk.write_then(c, offset, src, then),
            false => then.when(self.write(c, offset, src)),
        }
    }

    fn flush(&self, c: &Ctx) -> Io<Written> {
        self.disk.flush(c)
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Written> {
        if self.lease.holds() {
            return self.disk.discard(c, offset, length);
        }
        let at = Place::new(Op::Discard, offset, length);
        self.later(c, at, move |disk, c| disk.discard(c, offset, length))
    }

    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Written> {
        self.disk.fence(c, epoch)
    }

    fn allocated(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        self.disk.allocated(c, offset, length)
    }

    fn check(&self, c: &Ctx) -> Io<Written> {
        self.disk.check(c)
    }

    fn slow_reads(&self) -> Option<Arc<dyn SlowReads>> {
        self.disk.slow_reads()
    }

    fn tally(&self) -> Option<&Arc<IoTally>> {
        self.disk.tally()
    }
}
