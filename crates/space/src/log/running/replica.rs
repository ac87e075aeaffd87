//! One replica of a running log: its location, and writes whose failure is handled with the coordinator.
//!
//! Invariant: a write returns when it is durable, or when the coordinator has durably removed the replica (rule 10). No
//! other failure is visible to the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arena::{IoBuf, Sg};
use disk::{DiskError, IoRange, Op};
use env::{Io, watch};
use parking_lot::Mutex;

use crate::log::header::{Header, ReplicaId};
use crate::log::ring::Ring;
use crate::log::{BLOCK, LogError, LogSettings};
use crate::port::Port;

/// The delay before a failed write to a needed disk is retried.
const RETRY: Duration = Duration::from_millis(100);

/// Blocks of zeros that are written with one deadline.
const FORMAT_BLOCKS: u64 = 256;

/// Blocks before the ring; the first two are the slots of the header.
const RING_AT: u64 = 16;

/// A place for a replica: a slab of the log's row.
#[derive(Clone)]
pub struct Replica {
    /// The generation with which the slab was allocated: it identifies the replica for the log and its space.
    pub allocation: u32,
    /// The disk's port. The log's calls count as outstanding there, like the space's own, so that the disk is
    /// reopened only when it has completed all of them.
    pub port: Arc<Port>,
    /// The byte at which the slab's data begins on the disk.
    pub offset: u64,
}

/// The coordinator's decision about a replica's failed write.
pub enum FailureDecision {
    /// The replica is removed, durably.
    Removed,
    /// The replica is needed: the log retries the write on this port of its disk, and acknowledges nothing before. No
    /// earlier write may be outstanding on the port.
    Retry(Arc<Port>),
}

/// The space has another owner: nothing may be acknowledged any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the virtual disk has another owner")]
pub struct Deposed;

/// The interface of the coordinator for the log. A call that cannot be answered yet waits.
pub trait Coordination: Send + Sync {
    /// A write to this replica failed, or timed out.
    fn replica_failed(&self, allocation: u32, error: DiskError) -> Io<Result<FailureDecision, Deposed>>;

    /// These replicas lack records that were durable there: their disks were rolled back. Returns the replicas that
    /// are removed, when their removal is durable; the evidence must not be overwritten before.
    fn replicas_rolled_back(&self, allocations: Vec<u32>) -> Io<Result<Vec<u32>, Deposed>>;

    /// The replica has all records from the log's tail on; returns when that is durable: the replica is complete from
    /// then on.
    fn replica_joined(&self, allocation: u32) -> Io<Result<(), Deposed>>;
}

impl LogSettings {
    /// Waits for a call to a disk, or fails with a timeout, after which the call may still take effect.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, DiskError>>,
        op: Op,
    ) -> Result<T, DiskError> {
        tokio::select! {
            biased;
            result = call => result,
            () = self.env.sleep(self.hang) => Err(DiskError::Timeout { at: IoRange::whole(op) }),
        }
    }
}

/// The state of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplicaState {
    Active,
    /// Its disk is being removed: no I/O begins until the coordinator has decided.
    Leaving,
    Removed,
}

/// A replica in use, or removed.
pub(super) struct RunningReplica {
    pub(super) id: ReplicaId,
    pub(super) joined: AtomicU64,
    offset: u64,
    port: Mutex<Arc<Port>>,
    /// The slot for the next header.
    header_place: AtomicUsize,
    /// Whether the replica is complete: acknowledgements may rely on it.
    pub(super) counts: AtomicBool,
    pub(super) state: watch::Sender<ReplicaState>,
    /// Held while a write is in flight.
    writing: tokio::sync::Mutex<()>,
}

impl RunningReplica {
    pub(super) fn new(
        w: &LogSettings,
        replica: &Replica,
        joined: u64,
        header_place: usize,
        counts: bool,
    ) -> RunningReplica {
        RunningReplica {
            id: replica.id(w),
            joined: AtomicU64::new(joined),
            offset: replica.offset,
            port: Mutex::new(Arc::clone(&replica.port)),
            header_place: AtomicUsize::new(header_place),
            counts: AtomicBool::new(counts),
            state: watch::Sender::new(ReplicaState::Active),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        self.state.get() == ReplicaState::Removed
    }

    /// Waits until no write is in flight; none begins while the replica's disk is being removed.
    pub(super) async fn is_idle(&self) {
        drop(self.writing.lock().await);
    }

    /// Whether acknowledgements may rely on it.
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed) && !self.is_removed()
    }

    /// Writes blocks of the ring, durably; false if the replica was removed instead.
    pub(super) async fn write_ring(
        &self,
        w: &LogSettings,
        ring_block: u64,
        src: Sg,
    ) -> Result<bool, Deposed> {
        self.write(w, RING_AT + ring_block, src).await
    }

    /// Writes a header with this replica's `joined` into the older slot; false if the replica was removed instead.
    pub(super) async fn write_header(&self, w: &LogSettings, header: &Header) -> Result<bool, Deposed> {
        let block = Header { joined: self.joined.load(Ordering::Relaxed), ..header.clone() }.encode(&self.id);
        let place = self.header_place.load(Ordering::Relaxed);
        let done = self.write(w, place as u64, [IoBuf::from(block)].into_iter().collect()).await?;
        self.header_place.store(1 - place, Ordering::Relaxed);
        Ok(done)
    }

    /// Formats the slab of a replica that joins. Fails with [`LogError::ReplicaFailed`] if its disk is removed.
    pub(super) async fn format(
        &self,
        w: &LogSettings,
        replica: &Replica,
        ring: Ring,
    ) -> Result<(), LogError> {
        let mut state = self.state.subscribe();
        let result = tokio::select! {
            biased;
            _ = state.wait_for(|state| *state != ReplicaState::Active) => return Err(LogError::ReplicaFailed),
            result = replica.format(w, ring) => result,
        };
        match result {
            Err(DiskError::Fenced { .. }) => Err(Deposed.into()),
            result => result.map_err(LogError::NotFormatted),
        }
    }

    async fn write(&self, w: &LogSettings, block: u64, src: Sg) -> Result<bool, Deposed> {
        let mut state = self.state.subscribe();
        loop {
            let now = state.wait_for(|state| *state != ReplicaState::Leaving).await;
            if now.expect("the sender is a part of this") == ReplicaState::Removed {
                return Ok(false);
            }
            let _writing = self.writing.lock().await;
            if self.state.get() != ReplicaState::Active {
                continue;
            }
            let port = Arc::clone(&*self.port.lock());
            if port.is_leaving() {
                // Wait for the coordinator's decision.
                w.env.sleep(RETRY).await;
                continue;
            }
            let write = port.write(self.offset + block * BLOCK as u64, src.clone(), true);
            let result = tokio::select! {
                biased;
                result = w.in_time(write, Op::Write) => result,
                _ = state.wait_for(|state| *state == ReplicaState::Removed) => return Ok(false),
            };
            match result {
                Ok(()) => return Ok(true),
                Err(DiskError::Fenced { .. }) => return Err(Deposed),
                Err(error) => match w.coordination.replica_failed(self.id.allocation, error).wait().await? {
                    FailureDecision::Removed => {
                        self.state.send_replace(ReplicaState::Removed);
                        return Ok(false);
                    }
                    FailureDecision::Retry(port) => *self.port.lock() = port,
                },
            }
            w.env.sleep(RETRY).await;
        }
    }
}

impl Replica {
    pub(super) fn id(&self, w: &LogSettings) -> ReplicaId {
        ReplicaId { pool: w.pool, space: w.space, allocation: self.allocation }
    }

    /// Zeroes headers and ring, durably.
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

    /// The headers in the two slots. `None` for a slot without a valid one, or with a medium error; fails if both slots
    /// have medium errors.
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

    /// Blocks of the ring. Blocks with a medium error are zeros.
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
