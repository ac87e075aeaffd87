//! Disks with a limited rate in bytes per second: a call waits until the disk has completed earlier calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arena::{Sg, SgMut, sg_len};
use disk::{Disk, DiskError, DiskInfo};
use env::{Ctx, Env, Epoch, Io};
use parking_lot::Mutex;

/// How long a flush keeps a disk busy.
const FLUSH: Duration = Duration::from_millis(5);

/// The rates of all disks of a machine. They are unlimited before [`Rates::begin`].
pub(crate) struct Rates {
    env: Env,
    per_second: u64,
    counts: AtomicBool,
    /// The time until which each disk is busy.
    busy: Mutex<Vec<Instant>>,
    /// The total time for which each disk was busy.
    worked: Mutex<Vec<Duration>>,
    /// Bytes that all disks have read; below, bytes that they have written.
    read: AtomicU64,
    written: AtomicU64,
}

struct Limited {
    below: Arc<dyn Disk>,
    slot: usize,
    rates: Arc<Rates>,
}

impl Rates {
    pub(crate) fn new(env: &Env, per_second: u64) -> Arc<Rates> {
        Arc::new(Rates {
            env: env.clone(),
            per_second,
            counts: AtomicBool::new(false),
            busy: Mutex::default(),
            worked: Mutex::default(),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    pub(crate) fn begin(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// The time for which each disk was busy since [`Rates::begin`].
    pub(crate) fn worked(&self) -> Vec<Duration> {
        self.worked.lock().clone()
    }

    /// Bytes that all disks have written since [`Rates::begin`].
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes that all disks have read since [`Rates::begin`].
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(self: &Arc<Rates>, below: Arc<dyn Disk>, slot: usize) -> Arc<dyn Disk> {
        Arc::new(Limited { below, slot, rates: Arc::clone(self) })
    }

    fn count(&self, what: &AtomicU64, bytes: u64) {
        if self.counts.load(Ordering::Relaxed) {
            what.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Occupies a disk for `time`; returns when it completes. `None` before [`Rates::begin`].
    fn busy(&self, slot: usize, time: Duration) -> Option<Instant> {
        if !self.counts.load(Ordering::Relaxed) {
            return None;
        }
        let (now, mut busy) = (self.env.now(), self.busy.lock());
        let disks = busy.len().max(slot + 1);
        busy.resize(disks, now);
        busy[slot] = busy[slot].max(now) + time;
        let mut worked = self.worked.lock();
        worked.resize(disks, Duration::ZERO);
        worked[slot] += time;
        Some(busy[slot])
    }
}

impl Limited {
    fn after<T: Send + 'static>(&self, time: Duration, io: impl FnOnce() -> Io<T> + Send + 'static) -> Io<T> {
        let Some(at) = self.rates.busy(self.slot, time) else { return io() };
        let env = self.rates.env.clone();
        Io::pending(async move {
            env.sleep_until(at).await;
            io().wait().await
        })
    }

    fn time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 1_000_000_000 / self.rates.per_second)
    }
}

impl Disk for Limited {
    fn info(&self) -> &DiskInfo {
        self.below.info()
    }
    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let bytes = dst.iter().map(|part| part.len() as u64).sum();
        let (below, c) = (Arc::clone(&self.below), *c);
        self.rates.count(&self.rates.read, bytes);
        self.after(self.time(bytes), move || below.read(&c, offset, dst))
    }
    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        let (below, c, bytes) = (Arc::clone(&self.below), *c, sg_len(&src) as u64);
        let rates = Arc::clone(&self.rates);
        self.after(self.time(bytes), move || {
            rates.count(&rates.written, bytes);
            below.write(&c, offset, src)
        })
    }
    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        let (below, c) = (Arc::clone(&self.below), *c);
        self.after(FLUSH, move || below.flush(&c))
    }
    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        self.below.discard(c, offset, length)
    }
    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        self.below.fence(c, epoch)
    }
}
