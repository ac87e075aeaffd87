//! One replica of a running log: where it lies, and writes that end only when the coordinator knows of their failure.
//!
//! Invariant: a write returns when it is durable, or when the replica is left out by a durable record of the
//! coordinator (rule 10). No other failure is visible to the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arena::{IoBuf, Sg};
use disk::{DiskError, Op, Place};
use env::{Io, watch};
use parking_lot::Mutex;

use crate::log::header::{Header, ReplicaId};
use crate::log::ring::Ring;
use crate::log::{BLOCK, LogError, LogSettings};
use crate::port::Port;

/// Between a write that failed on a disk that is needed, and the next try.
const RETRY: Duration = Duration::from_millis(100);

/// Blocks of zeros that are written with one deadline.
const FORMAT_BLOCKS: u64 = 256;

/// Blocks before the ring; the first two are the places of the header.
const RING_AT: u64 = 16;

/// A place for a replica: a slab of the log's row.
#[derive(Clone)]
pub struct Replica {
    /// The index of the slab in the row that it is, or will be when a move ends.
    pub index: u8,
    /// The generation with which the slab was allocated: what the log and its space name the replica by.
    pub allocation: u32,
    /// The disk: what the log asks of it is outstanding there like the space's own calls, so that it is opened anew only
    /// when it has answered all of them.
    pub port: Arc<Port>,
    /// The byte at which the slab's data begins on the disk.
    pub offset: u64,
}

/// What the coordinator says to a replica's failed write.
pub enum Verdict {
    /// The replica has missed everything: durable.
    LeftOut,
    /// The replica is needed: the log writes again, on this port of its disk, and nothing is acknowledged before.
    /// No earlier write may be outstanding there.
    Again(Arc<Port>),
}

/// Another owner has the space: nothing may be acknowledged any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another owner has the space")]
pub struct Deposed;

/// The coordinator, as the log knows it. A call that cannot be answered yet waits.
pub trait Coordination: Send + Sync {
    /// A write of this replica failed, or was not done in time.
    fn replica_failed(&self, allocation: u32, error: DiskError) -> Io<Result<Verdict, Deposed>>;

    /// These replicas lack what was durable there: their disks were set back. Returns those that are left out, when that is
    /// durable; what shows it stays until then.
    fn replicas_set_back(&self, allocations: Vec<u32>) -> Io<Result<Vec<u32>, Deposed>>;

    /// The replica has everything from the log's tail on; returns when that is durable, and it counts from then on.
    fn replica_joined(&self, allocation: u32) -> Io<Result<(), Deposed>>;
}

impl LogSettings {
    /// What a call to a disk gives, or that it has taken too long. It may still take effect then.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, DiskError>>,
        op: Op,
    ) -> Result<T, DiskError> {
        tokio::select! {
            biased;
            result = call => result,
            () = self.env.sleep(self.hang) => Err(DiskError::Timeout { at: Place::whole(op) }),
        }
    }
}

/// Whether a replica takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    In,
    /// No I/O begins; the coordinator decides.
    Leaving,
    Left,
}

/// A replica that takes part, or did.
pub(super) struct Live {
    pub(super) id: ReplicaId,
    pub(super) joined: AtomicU64,
    offset: u64,
    port: Mutex<Arc<Port>>,
    /// The place of the next header.
    header_place: AtomicUsize,
    /// What it has counts for acknowledgements.
    pub(super) counts: AtomicBool,
    pub(super) standing: watch::Sender<Standing>,
    /// Held while a write is on its way.
    writing: tokio::sync::Mutex<()>,
}

impl Live {
    pub(super) fn new(
        w: &LogSettings,
        replica: &Replica,
        joined: u64,
        header_place: usize,
        counts: bool,
    ) -> Live {
        Live {
            id: replica.id(w),
            joined: AtomicU64::new(joined),
            offset: replica.offset,
            port: Mutex::new(Arc::clone(&replica.port)),
            header_place: AtomicUsize::new(header_place),
            counts: AtomicBool::new(counts),
            standing: watch::Sender::new(Standing::In),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn has_left(&self) -> bool {
        self.standing.get() == Standing::Left
    }

    /// Waits until no write is on its way; none begins if the replica is leaving.
    pub(super) async fn is_idle(&self) {
        drop(self.writing.lock().await);
    }

    /// Whether acknowledgements may rely on it.
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed) && !self.has_left()
    }

    /// Writes blocks of the ring, durably; false if the replica is left out instead.
    pub(super) async fn write_ring(
        &self,
        w: &LogSettings,
        ring_block: u64,
        src: Sg,
    ) -> Result<bool, Deposed> {
        self.write(w, RING_AT + ring_block, src).await
    }

    /// Writes a header with this replica's `joined` into the older place; false if the replica is left out instead.
    pub(super) async fn write_header(&self, w: &LogSettings, header: &Header) -> Result<bool, Deposed> {
        let block = Header { joined: self.joined.load(Ordering::Relaxed), ..header.clone() }.encode(&self.id);
        let place = self.header_place.load(Ordering::Relaxed);
        let done = self.write(w, place as u64, [IoBuf::from(block)].into_iter().collect()).await?;
        self.header_place.store(1 - place, Ordering::Relaxed);
        Ok(done)
    }

    /// Formats the place of a replica that joins. Fails with [`LogError::ReplicaFailed`] if its disk leaves.
    pub(super) async fn format(
        &self,
        w: &LogSettings,
        replica: &Replica,
        ring: Ring,
    ) -> Result<(), LogError> {
        let mut standing = self.standing.subscribe();
        let result = tokio::select! {
            biased;
            _ = standing.wait_for(|standing| *standing != Standing::In) => return Err(LogError::ReplicaFailed),
            result = replica.format(w, ring) => result,
        };
        match result {
            Err(DiskError::Fenced { .. }) => Err(Deposed.into()),
            result => result.map_err(LogError::NotFormatted),
        }
    }

    async fn write(&self, w: &LogSettings, block: u64, src: Sg) -> Result<bool, Deposed> {
        let mut standing = self.standing.subscribe();
        loop {
            let now = standing.wait_for(|standing| *standing != Standing::Leaving).await;
            if now.expect("the sender is a part of this") == Standing::Left {
                return Ok(false);
            }
            let _writing = self.writing.lock().await;
            if self.standing.get() != Standing::In {
                continue;
            }
            let port = Arc::clone(&*self.port.lock());
            if port.is_leaving() {
                // The coordinator decides.
                w.env.sleep(RETRY).await;
                continue;
            }
            let write = port.write(self.offset + block * BLOCK as u64, src.clone(), true);
            let result = tokio::select! {
                biased;
                result = w.in_time(write, Op::Write) => result,
                _ = standing.wait_for(|standing| *standing == Standing::Left) => return Ok(false),
            };
            match result {
                Ok(()) => return Ok(true),
                Err(DiskError::Fenced { .. }) => return Err(Deposed),
                Err(error) => match w.coordination.replica_failed(self.id.allocation, error).wait().await? {
                    Verdict::LeftOut => {
                        self.standing.send_replace(Standing::Left);
                        return Ok(false);
                    }
                    Verdict::Again(port) => *self.port.lock() = port,
                },
            }
            w.env.sleep(RETRY).await;
        }
    }
}

impl Replica {
    pub(super) fn id(&self, w: &LogSettings) -> ReplicaId {
        ReplicaId { pool: w.pool, space: w.space, index: self.index, allocation: self.allocation }
    }

    /// Makes headers and ring zeros, durably.
    pub(super) async fn format(&self, w: &LogSettings, ring: Ring) -> Result<(), DiskError> {
        let blocks = RING_AT + ring.blocks();
        for first in (0..blocks).step_by(FORMAT_BLOCKS as usize) {
            let count = FORMAT_BLOCKS.min(blocks - first) as usize;
            let zeros = IoBuf::from(vec![0; count * BLOCK]);
            let at = self.offset + first * BLOCK as u64;
            w.in_time(self.port.write(at, Sg::from_iter([zeros]), false), Op::Write).await?;
        }
        w.in_time(self.port.flush(), Op::Flush).await
    }

    /// The two places of the header; a place without a valid one is `None`, and one that the medium does not give, unless
    /// there is no other.
    pub(super) async fn headers(&self, w: &LogSettings) -> Result<[Option<Header>; 2], DiskError> {
        let (id, mut places, mut bad) = (self.id(w), [None, None], None);
        for (block, place) in (0..).zip(&mut places) {
            match self.read(w, block, 1).await {
                Err(error @ DiskError::Medium { .. }) => bad = Some(error),
                read => *place = Header::decode(&bytes(&read?), &id).ok(),
            }
        }
        bad.filter(|_| places == [None, None]).map_or(Ok(places), Err)
    }

    /// Blocks of the ring. Those that the medium does not give are zeros.
    pub(super) async fn read_ring(
        &self,
        w: &LogSettings,
        ring_block: u64,
        blocks: u64,
    ) -> Result<Sg, DiskError> {
        let whole = self.read(w, RING_AT + ring_block, blocks).await;
        if !matches!(whole, Err(DiskError::Medium { .. })) {
            return whole;
        }
        let mut all = Sg::new();
        for block in ring_block..ring_block + blocks {
            match self.read(w, RING_AT + block, 1).await {
                Err(DiskError::Medium { .. }) => all.push(IoBuf::from(vec![0; BLOCK])),
                read => all.extend(read?),
            }
        }
        Ok(all)
    }

    async fn read(&self, w: &LogSettings, block: u64, blocks: u64) -> Result<Sg, DiskError> {
        let length = blocks as usize * BLOCK;
        let buffers = w.arena.alloc_sg(length, arena::Class::Control).await;
        let at = self.offset + block * BLOCK as u64;
        let read = self.port.read(at, disk::sized(buffers, length));
        let read = async {
            let (result, read) = read.await;
            result.map(|()| read)
        };
        let read = w.in_time(read, Op::Read).await?;
        Ok(read.into_iter().map(|buffer| buffer.freeze()).collect())
    }
}

/// The bytes of buffers, copied only if there are several.
pub(super) fn bytes(sg: &[IoBuf]) -> std::borrow::Cow<'_, [u8]> {
    match sg {
        [one] => std::borrow::Cow::Borrowed(one),
        several => arena::sg_to_vec(several).into(),
    }
}
