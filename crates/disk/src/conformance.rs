//! The suite that every [`Disk`] must pass: the contract of the trait, independent of the provider.
//!
//! A disk under test may have any content at first. It must be at least [`SIZE_MIN`] long and is overwritten.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arena::{Arena, Class, IoBuf, Sg, SgMut};
use env::{Ctx, Epoch, Io};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Callback, Completion, Disk, DiskError, IO_MAX, IoRange, Op, Outcome, Read, Written, sized};

/// The smallest disk for the suite, in bytes.
pub const SIZE_MIN: u64 = 4 << 20;

/// Runs everything; each test opens its own disk by `make`.
///
/// # Panics
/// At the first violation of the contract.
pub async fn run<F, R>(arena: &Arena, mut make: F)
where
    F: FnMut() -> R,
    R: Future<Output = Arc<dyn Disk>>,
{
    let s = Suite { arena: arena.clone(), disk: make().await };
    s.describes_itself();
    s.reads_what_was_written().await;
    let s = Suite { disk: make().await, ..s };
    s.accepts_any_buffers().await;
    s.refuses_misuse().await;
    s.accepts_empty_io().await;
    let s = Suite { disk: make().await, ..s };
    s.leaves_neighbours_unchanged().await;
    s.discards().await;
    let s = Suite { disk: make().await, ..s };
    s.reports_allocation().await;
    let s = Suite { disk: make().await, ..s };
    s.exceeds_the_queue_depth().await;
    s.completes_callbacks().await;
    s.completes_dropped_io().await;
    let s = Suite { disk: make().await, ..s };
    for seed in 0..4 {
        s.behaves_like_a_vector(seed).await;
    }
    let s = Suite { disk: make().await, ..s };
    s.times_out().await;
    s.fences().await;
}

/// Records the completions of I/Os.
pub(crate) struct CompletionRecorder<T> {
    pub(crate) completions: Mutex<Vec<(usize, T)>>,
    more: Notify,
}

impl<T> Default for CompletionRecorder<T> {
    fn default() -> CompletionRecorder<T> {
        CompletionRecorder { completions: Mutex::default(), more: Notify::default() }
    }
}

impl<T: Outcome> Completion<T> for CompletionRecorder<T> {
    fn completed(self: Arc<Self>, which: usize, outcome: T) {
        self.completions.lock().push((which, outcome));
        self.more.notify_one();
    }
}

impl<T> CompletionRecorder<T> {
    /// Waits for `count` completions and returns them, sorted by the caller's number.
    async fn wait_for(&self, count: usize) -> Vec<(usize, T)> {
        while self.completions.lock().len() < count {
            self.more.notified().await;
        }
        let mut completions = std::mem::take(&mut *self.completions.lock());
        completions.sort_by_key(|(which, _)| *which);
        completions
    }
}

struct Suite {
    arena: Arena,
    disk: Arc<dyn Disk>,
}

impl Suite {
    fn block(&self) -> u64 {
        u64::from(self.disk.info().geometry.logical_block)
    }

    fn buffers(&self, length: usize) -> SgMut {
        sized(self.arena.try_alloc_sg(length, Class::Payload).expect("the arena has room"), length)
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let mut dst = self.buffers(length);
        dst.iter_mut().for_each(|b| b.filled_mut().fill(0xEE));
        let (result, dst) = self.disk.read(&Ctx::default(), offset, dst).wait().await;
        assert_eq!(dst.iter().map(|b| b.len()).sum::<usize>(), length, "the buffers come back");
        result.map(|()| dst.iter().flat_map(|b| b.to_vec()).collect())
    }

    async fn write(&self, offset: u64, data: &[u8]) {
        self.disk.write(&Ctx::default(), offset, self.payload(data)).wait().await.expect("it is written");
    }

    /// `data` in buffers of the arena.
    fn payload(&self, data: &[u8]) -> Sg {
        let (mut done, mut out) = (0, Sg::new());
        for mut b in self.buffers(data.len()) {
            let n = b.len();
            b.filled_mut().copy_from_slice(&data[done..done + n]);
            done += n;
            out.push(b.freeze());
        }
        out
    }

    fn describes_itself(&self) {
        let info = self.disk.info();
        let g = info.geometry;
        assert!(g.size >= SIZE_MIN && g.size.is_multiple_of(u64::from(g.logical_block)));
        for n in [g.logical_block, g.physical_block, g.atomic_write, g.dma_alignment] {
            assert!(n.is_power_of_two(), "{g:?}");
        }
        assert!(g.logical_block >= 512 && g.atomic_write >= g.logical_block, "{g:?}");
        assert!(!info.id.value.is_empty() && info.queue_depth > 0, "{info:?}");
    }

    async fn reads_what_was_written(&self) {
        let (b, size) = (self.block(), self.disk.info().geometry.size);
        for (offset, length) in
            [(0, b), (b, 3 * b), (64 << 10, 1 << 20), (size - b, b), (size - (2 << 20), 2 << 20)]
        {
            let data = bytes(offset ^ length, length as usize);
            self.write(offset, &data).await;
            assert!(self.read(offset, length as usize).await.expect("read") == data, "{length} at {offset}");
        }
        self.disk.flush(&Ctx::default()).wait().await.expect("it flushes");
        let data = bytes(7, 1 << 20);
        self.disk.write(&write_through(), 0, self.payload(&data)).wait().await.expect("it writes through");
        assert!(self.read(0, 1 << 20).await.expect("read") == data);
        self.disk.flush(&Ctx::default()).wait().await.expect("it flushes again");
    }

    /// Writes pieces of odd length at odd addresses, from the arena and the heap; reads into similar ones.
    async fn accepts_any_buffers(&self) {
        let b = self.block() as usize;
        let data = bytes(11, 8 * b);
        let all = IoBuf::from(data.clone());
        let own = self.payload(&data);
        let mut sg: Sg = [0..1, 1..b / 2 + 3, b / 2 + 3..b / 2 + 3, b / 2 + 3..4 * b]
            .map(|r| all.slice(r))
            .into_iter()
            .collect();
        sg.extend(arena::sg_slice(&own, 4 * b, b + 1));
        sg.extend(arena::sg_slice(&own, 5 * b + 1, 3 * b - 1));
        self.disk.write(&Ctx::default(), b as u64, sg).wait().await.expect("it takes any pieces");
        assert!(self.read(b as u64, 8 * b).await.expect("read") == data);
        let mut dst = SgMut::new();
        for n in [1, b - 1, 0, b / 2, b / 2 + b, 5 * b - 7, 7] {
            dst.extend(self.buffers(n.max(1)));
            dst.last_mut().expect("one").set_len(n);
        }
        let (result, dst) = self.disk.read(&Ctx::default(), b as u64, dst).wait().await;
        assert_eq!(result, Ok(()));
        assert!(dst.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>() == data, "read in pieces");
    }

    async fn refuses_misuse(&self) {
        let g = self.disk.info().geometry;
        let (b, size) = (self.block(), g.size);
        let before = self.read(0, b as usize * 2).await;
        for (offset, length) in [(1, b), (0, b - 1), (b / 2, b), (0, 1)] {
            let at = |op| IoRange::new(op, offset, length);
            let wrong = |op| DiskError::Unaligned { at: at(op), block: g.logical_block };
            assert_eq!(self.read(offset, length as usize).await, Err(wrong(Op::Read)));
            let data = self.payload(&bytes(1, length as usize));
            assert_eq!(self.disk.write(&Ctx::default(), offset, data).wait().await, Err(wrong(Op::Write)));
            assert_eq!(
                self.disk.discard(&Ctx::default(), offset, length).wait().await,
                Err(wrong(Op::Discard))
            );
        }
        for (offset, length) in [(size, b), (size - b, 2 * b), (u64::MAX - b + 1, b)] {
            let at = |op| IoRange::new(op, offset, length);
            let wrong = |op| DiskError::OutOfRange { at: at(op), size };
            assert_eq!(self.read(offset, length as usize).await, Err(wrong(Op::Read)));
            let data = self.payload(&bytes(1, length as usize));
            assert_eq!(self.disk.write(&Ctx::default(), offset, data).wait().await, Err(wrong(Op::Write)));
            assert_eq!(
                self.disk.discard(&Ctx::default(), offset, length).wait().await,
                Err(wrong(Op::Discard))
            );
        }
        if size > IO_MAX + b {
            let piece = IoBuf::from(vec![0; 1 << 20]);
            let mut sg: Sg = (0..IO_MAX >> 20).map(|_| piece.clone()).collect();
            sg.push(piece.slice(0..b as usize));
            let at = IoRange::new(Op::Write, 0, IO_MAX + b);
            assert_eq!(self.disk.write(&Ctx::default(), 0, sg).wait().await, Err(DiskError::TooLong { at }));
        }
        assert_eq!(self.read(0, b as usize * 2).await, before, "what is refused changes nothing");
    }

    async fn accepts_empty_io(&self) {
        let c = Ctx::default();
        let size = self.disk.info().geometry.size;
        for offset in [0, size] {
            assert_eq!(self.disk.write(&c, offset, Sg::new()).wait().await, Ok(()));
            assert_eq!(self.disk.read(&c, offset, SgMut::new()).wait().await.0, Ok(()));
            assert_eq!(self.disk.discard(&c, offset, 0).wait().await, Ok(()));
        }
    }

    async fn leaves_neighbours_unchanged(&self) {
        let b = self.block();
        let base = bytes(21, 16 * b as usize);
        self.write(0, &base).await;
        let new = bytes(22, 3 * b as usize);
        self.write(5 * b, &new).await;
        let mut expected = base;
        expected[5 * b as usize..8 * b as usize].copy_from_slice(&new);
        assert!(self.read(0, 16 * b as usize).await.expect("read") == expected);
    }

    async fn discards(&self) {
        let b = self.block();
        let (long, c) = (1 << 20, Ctx::default());
        let base = bytes(31, 3 * long);
        self.write(0, &base).await;
        self.disk.discard(&c, long as u64 - b, long as u64 + b).wait().await.expect("a hint succeeds");
        self.disk.flush(&c).wait().await.expect("flushed");
        assert!(self.read(0, long - b as usize).await.expect("before it") == base[..long - b as usize]);
        assert!(self.read(2 * long as u64, long).await.expect("after it") == base[2 * long..]);
        self.read(long as u64, long).await.expect("what is discarded can be read");
        let new = bytes(32, b as usize);
        self.write(long as u64, &new).await;
        assert!(self.read(long as u64, b as usize).await.expect("read") == new, "a later write wins");
    }

    /// Starts more I/Os than the disk's queue depth, none polled before all are started, and reads back in
    /// another order.
    /// Ranges that the disk reports as not allocated read as zeros.
    async fn reports_allocation(&self) {
        let (b, size) = (self.block(), self.disk.info().geometry.size);
        self.write(0, &vec![0; 64 * b as usize]).await;
        self.disk.discard(&Ctx::default(), 0, 64 * b).wait().await.expect("a hint");
        self.write(3 * b, &bytes(19, 2 * b as usize)).await;
        self.write(9 * b, &bytes(20, b as usize)).await;
        let c = Ctx::default();
        let found = self.disk.allocated(&c, b, 31 * b).wait().await.expect("inside");
        let apart = found.windows(2).all(|w| w[0].end < w[1].start);
        let inside = found.iter().all(|r| r.start < r.end && r.start >= b && r.end <= 32 * b);
        assert!(apart && inside, "{found:?}");
        for block in (b..32 * b).step_by(b as usize) {
            if !found.iter().any(|r| r.contains(&block)) {
                let read = self.read(block, b as usize).await.expect("read");
                assert!(read.iter().all(|byte| *byte == 0), "at {block}: {found:?}");
            }
        }
        let at = IoRange::new(Op::Check, size, b);
        assert_eq!(self.disk.allocated(&c, size, b).wait().await, Err(DiskError::OutOfRange { at, size }));
    }

    async fn exceeds_the_queue_depth(&self) {
        let b = self.block();
        let count = (2 * u64::from(self.disk.info().queue_depth)).min(SIZE_MIN / b).min(600);
        let data = |i: u64| bytes(1000 + i, b as usize);
        let writes: Vec<_> =
            (0..count).map(|i| self.disk.write(&Ctx::default(), i * b, self.payload(&data(i)))).collect();
        for w in writes.into_iter().rev() {
            w.wait().await.expect("written");
        }
        let reads: Vec<_> =
            (0..count).map(|i| self.disk.read(&Ctx::default(), i * b, self.buffers(b as usize))).collect();
        for (i, r) in reads.into_iter().enumerate().rev() {
            let (result, dst) = r.wait().await;
            assert_eq!(result, Ok(()));
            assert!(*dst[0] == data(i as u64), "block {i}");
        }
    }

    /// Each I/O with a callback completes once, and behaves like an awaited one.
    async fn completes_callbacks(&self) {
        let (b, size) = (self.block(), self.disk.info().geometry.size);
        let used = self.arena.usage().used;
        let (recorder, count) = (Arc::<CompletionRecorder<Written>>::default(), 40);
        let late = Ctx { deadline: Some(env::Env::real().now()), ..Ctx::default() };
        let tell = |c: &Ctx, which: u64, offset| {
            let at = IoRange::new(Op::Write, offset, b);
            let who: Arc<CompletionRecorder<Written>> = Arc::clone(&recorder);
            let src = self.payload(&bytes(2000 + which, b as usize));
            self.disk.write_then(c, offset, src, Callback::new(who, which as usize, at));
            at
        };
        for i in 0..count {
            tell(&Ctx::default(), i, i * b);
        }
        let beyond = tell(&Ctx::default(), count, size);
        let at = tell(&late, count + 1, count * b);
        let completions = recorder.wait_for(count as usize + 2).await;
        assert!(completions.iter().map(|(which, _)| *which as u64).eq(0..count + 2), "{completions:?}");
        let (told, rest) = completions.split_at(count as usize);
        assert!(told.iter().all(|(_, result)| result.is_ok()), "{told:?}");
        assert_eq!(rest[0].1, Err(DiskError::OutOfRange { at: beyond, size }));
        assert!([Ok(()), Err(DiskError::Timeout { at })].contains(&rest[1].1), "{rest:?}");
        let recorder = Arc::<CompletionRecorder<Read>>::default();
        let tell = |c: &Ctx, which: u64, offset| {
            let at = IoRange::new(Op::Read, offset, b);
            let who: Arc<CompletionRecorder<Read>> = Arc::clone(&recorder);
            self.disk.read_then(c, offset, self.buffers(b as usize), Callback::new(who, which as usize, at));
            at
        };
        for i in 0..count {
            tell(&Ctx::default(), i, i * b);
        }
        let beyond = tell(&Ctx::default(), count, size);
        let at = tell(&late, count + 1, 0);
        for (which, (result, dst)) in recorder.wait_for(count as usize + 2).await {
            let whole = dst.iter().map(|b| b.len()).sum::<usize>() == b as usize;
            match which as u64 {
                i if i < count => {
                    assert_eq!(result, Ok(()));
                    assert!(dst.iter().flat_map(|b| b.iter()).eq(&bytes(2000 + i, b as usize)));
                }
                i if i == count => {
                    assert!(result == Err(DiskError::OutOfRange { at: beyond, size }) && whole)
                }
                _ => assert!(if result.is_ok() { whole } else { result == Err(DiskError::Timeout { at }) }),
            }
        }
        // The late ones continue, with their buffers, until they complete.
        for _ in 0..10_000 {
            if self.arena.usage().used != used {
                env::Env::real().sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(self.arena.usage().used, used, "every buffer comes back");
    }

    /// Compares with a plain byte vector: calls of any size and offset, up to sixteen at a time if they do
    /// not overlap.
    async fn behaves_like_a_vector(&self, seed: u64) {
        type InFlight = (std::ops::Range<u64>, Io<(Result<(), DiskError>, Option<(SgMut, Vec<u8>)>)>);
        let (b, c) = (self.block(), Ctx::default());
        let (mut random, mut in_flight) = (crate::random::Random::new(seed), Vec::<InFlight>::new());
        let mut model = self.read(0, (1 << 20) as usize).await.expect("read");
        let settle = async |(_, io): InFlight| {
            let (result, read) = io.wait().await;
            assert_eq!(result, Ok(()));
            let same =
                read.is_none_or(|(dst, expected)| dst.iter().flat_map(|b| b.iter()).eq(expected.iter()));
            assert!(same, "seed {seed}");
        };
        for step in 0..300 {
            let blocks = model.len() as u64 / b;
            let start = random.below(blocks);
            let length = (random.below(blocks / 8).min(blocks - start) * b) as usize;
            let offset = start * b;
            let range = offset..offset + length as u64;
            if in_flight.len() == 16
                || in_flight.iter().any(|(r, _)| r.start < range.end && range.start < r.end)
            {
                for io in in_flight.drain(..).rev() {
                    settle(io).await;
                }
            }
            let bytes_at = start as usize * b as usize;
            let io = match random.below(10) {
                0 => self.disk.flush(&c).map(|r| (r, None)),
                1..=4 => {
                    let expected = model[bytes_at..bytes_at + length].to_vec();
                    self.disk
                        .read(&c, offset, self.buffers(length))
                        .map(|(r, dst)| (r, Some((dst, expected))))
                }
                _ => {
                    let data = bytes(seed * 1000 + step, length);
                    model[bytes_at..bytes_at + length].copy_from_slice(&data);
                    self.disk.write(&c, offset, self.payload(&data)).map(|r| (r, None))
                }
            };
            in_flight.push((range, io));
        }
        for io in in_flight {
            settle(io).await;
        }
        assert!(self.read(0, model.len()).await.expect("read") == model, "seed {seed}");
    }

    /// A dropped I/O still completes and returns its buffers; the fence waits for it.
    async fn completes_dropped_io(&self) {
        let b = self.block();
        for round in 0..20 {
            let data = bytes(2000 + round, 64 * b as usize);
            let used = self.arena.usage().used;
            let old = Ctx { epoch: Epoch(round), ..Ctx::default() };
            drop(self.disk.write(&old, 0, self.payload(&data)));
            drop(self.disk.read(&old, 64 * b, self.buffers(64 * b as usize)));
            let c = Ctx { epoch: Epoch(round + 1), ..Ctx::default() };
            self.disk.fence(&c, c.epoch).wait().await.expect("fenced");
            let (result, dst) = self.disk.read(&c, 0, self.buffers(data.len())).wait().await;
            assert_eq!(result, Ok(()));
            assert!(dst.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>() == data, "round {round}");
            drop(dst);
            assert_eq!(self.arena.usage().used, used, "every buffer came back");
        }
    }

    /// With a deadline in the past an I/O succeeds or times out, and the disk stays usable.
    async fn times_out(&self) {
        let c = Ctx { deadline: Some(env::Env::real().now()), ..Ctx::default() };
        let b = self.block();
        let late = |op, length| DiskError::Timeout { at: IoRange::new(op, 0, length) };
        let written = self.disk.write(&c, 0, self.payload(&bytes(3, b as usize))).wait().await;
        assert!(written == Ok(()) || written == Err(late(Op::Write, b)), "{written:?}");
        let (read, dst) = self.disk.read(&c, 0, self.buffers(b as usize)).wait().await;
        assert!(
            read == Ok(()) && dst.len() == 1 || read == Err(late(Op::Read, b)) && dst.is_empty(),
            "{read:?}"
        );
        self.disk.flush(&Ctx::default()).wait().await.expect("it goes on");
    }

    async fn fences(&self) {
        let (b, size) = (self.block(), self.disk.info().geometry.size);
        self.write(0, &bytes(41, b as usize)).await;
        let of = |n| Ctx { epoch: Epoch(n), ..Ctx::default() };
        let old: Vec<_> =
            (1..5).map(|i| self.disk.write(&of(4), i * b, self.payload(&bytes(i, b as usize)))).collect();
        self.disk.fence(&of(5), Epoch(5)).wait().await.expect("fenced");
        for w in old {
            w.wait().await.expect("it came before the fence");
        }
        for n in [0, 4] {
            let wrong = |op, length| DiskError::Fenced {
                at: IoRange::new(op, 0, length),
                call_epoch: Epoch(n),
                epoch: Epoch(5),
            };
            let data = self.payload(&bytes(42, b as usize));
            assert_eq!(self.disk.write(&of(n), 0, data.clone()).wait().await, Err(wrong(Op::Write, b)));
            let (recorder, at) =
                (Arc::<CompletionRecorder<Written>>::default(), IoRange::new(Op::Write, 0, b));
            let who: Arc<CompletionRecorder<Written>> = Arc::clone(&recorder);
            self.disk.write_then(&of(n), 0, data, Callback::new(who, 0, at));
            assert_eq!(recorder.wait_for(1).await, [(0, Err(wrong(Op::Write, b)))]);
            let (read, dst) = self.disk.read(&of(n), 0, self.buffers(b as usize)).wait().await;
            assert_eq!((read, dst.len()), (Err(wrong(Op::Read, b)), 1));
            let (recorder, at) = (Arc::<CompletionRecorder<Read>>::default(), IoRange::new(Op::Read, 0, b));
            let who: Arc<CompletionRecorder<Read>> = Arc::clone(&recorder);
            self.disk.read_then(&of(n), 0, dst, Callback::new(who, 0, at));
            let told = recorder.wait_for(1).await;
            assert!(told[0].1.0 == Err(wrong(Op::Read, b)) && told[0].1.1.len() == 1);
            assert_eq!(self.disk.flush(&of(n)).wait().await, Err(wrong(Op::Flush, 0)));
            assert_eq!(self.disk.discard(&of(n), 0, b).wait().await, Err(wrong(Op::Discard, b)));
            assert_eq!(self.disk.fence(&of(n), Epoch(n)).wait().await, Err(wrong(Op::Fence, 0)));
        }
        let wrong = DiskError::Unaligned { at: IoRange::new(Op::Discard, 1, b), block: b as u32 };
        assert_eq!(self.disk.discard(&of(0), 1, b).wait().await, Err(wrong), "misuse is reported first");
        self.disk.fence(&of(5), Epoch(5)).wait().await.expect("the same again");
        let (read, dst) = self.disk.read(&of(5), 0, self.buffers(b as usize)).wait().await;
        assert_eq!((read, &*dst[0]), (Ok(()), &bytes(41, b as usize)[..]));
        self.disk
            .write(&of(6), size - b, self.payload(&bytes(43, b as usize)))
            .wait()
            .await
            .expect("a later epoch may");
        self.disk.flush(&of(6)).wait().await.expect("flushed");
    }
}

/// `length` bytes that depend on `seed`.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = crate::random::Random::new(seed);
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Writes to a disk that completes calls immediately.
///
/// # Errors
/// The write's error.
///
/// # Panics
/// If the write does not complete immediately.
pub fn write_now(disk: &dyn Disk, c: &Ctx, offset: u64, data: Vec<u8>) -> Result<(), DiskError> {
    match disk.write(c, offset, Sg::from_iter([IoBuf::from(data)])) {
        Io::Done(result) => result,
        Io::Pending(_) => panic!("the disk does not complete at once"),
    }
}

/// Reads from a disk that completes calls immediately.
///
/// # Errors
/// The read's error.
///
/// # Panics
/// If the read does not complete immediately.
pub fn read_now(disk: &dyn Disk, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
    let arena = Arena::new(2 * length).expect("a small mapping");
    let dst = sized(arena.try_alloc_sg(length, Class::Control).expect("it is empty"), length);
    match disk.read(&Ctx::default(), offset, dst) {
        Io::Done((result, dst)) => result.map(|()| dst.iter().flat_map(|b| b.to_vec()).collect()),
        Io::Pending(_) => panic!("the disk does not complete at once"),
    }
}

fn write_through() -> Ctx {
    let mut c = Ctx::default();
    c.flags.write_through = true;
    c
}
