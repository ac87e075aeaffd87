//! Creates a log, or opens one: `docs/on-disk-format.md`, "Reading a log".
//!
//! Opening reads all replicas, and refuses a log that was rolled back. Then, each step durable before the next:
//! replicas that cannot be used or were rolled back are reported (rules 10 and 16), records that a replica lacks are
//! written to it again (rule 7), and a header with a segment of the new owner is written to one replica after the
//! other. After a crash the log opens in the same way, because only missing records and headers are written.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use arena::Sg;
use disk::{DiskError, IoRange, Op};
use env::{BoxFuture, watch};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesOrdered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::replica::{self, Deposed, FailureDecision, Replica, RunningReplica};
use super::task::Task;
use super::{LogSettings, Progress, Shared, SpaceLog, State};
use crate::blocks::ContentId;
use crate::log::BLOCK;
use crate::log::commit::Core;
use crate::log::entry::UnitPlace;
use crate::log::header::{Header, Key, SEGMENTS_MAX, Segment, older};
use crate::log::replay::{Finding, Log, NoHeader, READ_BLOCKS, Replay};
use crate::log::ring::{Point, Ring};
use crate::log::snapshot::{Annex, RING_BLOCKS_MIN};

/// The state that a log must contain, or else it was rolled back; zeros where a loss is accepted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Required {
    /// Epoch and sequence of the metadata's log state.
    pub state: (u64, u64),
    /// The highest mark of a disk.
    pub mark: u64,
}

/// The result of opening a log.
#[derive(Debug)]
pub struct Opened {
    /// Its records from the tail on, and the findings about its replicas, by their index in the caller's list.
    pub log: Log,
    /// The payload of the log's records, by sequence.
    pub payloads: BTreeMap<u64, Sg>,
    /// The first position and sequence of this owner.
    pub first: Point,
    /// The header has many segments: a checkpoint must be made before the space serves calls.
    pub is_checkpoint_required: bool,
}

/// Why a log cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum OpenError {
    /// A ring has 128 blocks at least.
    #[error("a log of {0} blocks is too small")]
    TooSmall(u64),
    /// No replica has a header.
    #[error(transparent)]
    NoHeader(#[from] NoHeader),
    /// The log lacks records that the metadata or a disk refers to.
    #[error("the log is older than its disks or the metadata: its last record is {has}")]
    SetBack { has: u64 },
    /// An owner of this epoch or a higher one wrote the log.
    #[error("the log was written by an owner of epoch {0}")]
    NewerOwner(u64),
    /// The header is full of segments.
    #[error("the log already has {SEGMENTS_MAX} segments with records, which is the limit")]
    Segments,
    /// A replica that is needed cannot be read or written now.
    #[error("the replica of the log with allocation {allocation} cannot be read or written: {error}")]
    Replica { allocation: u32, error: DiskError },
    /// All replicas were removed.
    #[error("all replicas of the log have failed")]
    NoReplica,
    /// See [`Deposed`].
    #[error(transparent)]
    Deposed(#[from] Deposed),
}

/// From this many segments on a checkpoint is required: so that as many further owners may crash before they make one.
const SEGMENTS_MANY: usize = SEGMENTS_MAX / 2;

impl SpaceLog {
    /// Creates a log with an empty ring on these replicas, and runs it. Its first record has the sequence `first`, at
    /// least 1 (rule 20). If the call is dropped, its I/O continues, and the log ends.
    pub async fn create(
        settings: LogSettings,
        ring: Ring,
        replicas: Vec<Replica>,
        first: u64,
    ) -> Result<SpaceLog, OpenError> {
        let env = settings.env.clone();
        env.run(async move {
            if ring.blocks() < RING_BLOCKS_MIN {
                return Err(OpenError::TooSmall(ring.blocks()));
            }
            let formats = replicas.iter().map(|replica| replica.format(&settings, ring));
            for (replica, result) in replicas.iter().zip(join_all(formats).await) {
                result.map_err(|error| OpenError::Replica { allocation: replica.allocation, error })?;
            }
            let tail = Point { position: 0, sequence: first };
            let segments = vec![settings.segment(tail)];
            let header = Header { serial: 1, ring, tail, joined: 0, segments };
            let live = |replica| Arc::new(RunningReplica::new(&settings, replica, 0, 0, true));
            let lives = replicas.iter().map(live).collect();
            settings.start(header, lives, tail, Annex::default()).await
        })
        .await
    }

    /// Opens a log with its complete replicas, and runs it. If the call is dropped, its I/O continues, and the log
    /// ends. Only the errors [`OpenError::Replica`], `NoReplica` and `Deposed` may occur after something was written.
    pub async fn open(
        settings: LogSettings,
        replicas: Vec<Replica>,
        required: Required,
    ) -> Result<(SpaceLog, Opened), OpenError> {
        let env = settings.env.clone();
        env.run(async move {
            let (places, mut log, failed) = settings.read(&replicas).await?;
            let newest = log.header.open().epoch;
            if newest >= settings.epoch {
                return Err(OpenError::NewerOwner(newest));
            }
            if log.is_rolled_back(required.state, required.mark) {
                return Err(OpenError::SetBack { has: log.next.sequence - 1 });
            }
            let found = log.header.clone();
            log.settle_snapshot();
            let header = settings.header(&log)?;
            for (replica, error) in replicas.iter().zip(&failed) {
                if let Some(error) = *error {
                    let failed = OpenError::Replica { allocation: replica.allocation, error };
                    match settings.coordination.replica_failed(replica.allocation, error).wait().await? {
                        FailureDecision::Removed => {}
                        FailureDecision::Retry(_) => return Err(failed),
                    }
                }
            }
            let left_out = remove_rolled_back(&settings, &log, &replicas).await?;
            let live = |((replica, places), failed): ((&Replica, &Places), &Option<DiskError>)| {
                if left_out.contains(&replica.allocation) {
                    return None;
                }
                let [first, second] = places;
                let place = older(first.as_ref(), second.as_ref());
                let joined = Header::newest(places.clone()).filter(|_| failed.is_none())?.joined;
                Some(Arc::new(RunningReplica::new(&settings, replica, joined, place, true)))
            };
            let lives: Vec<_> = replicas.iter().zip(&places).zip(&failed).map(live).collect();
            // If a crash separates this header from the next one, a replica is one serial behind, but never two.
            for (live, places) in lives.iter().zip(&places) {
                let own = Header::newest(places.clone()).map(|own| own.age());
                if let Some(live) = live.as_deref().filter(|_| own != Some(found.age())) {
                    live.write_header(&settings, &found).await?;
                }
            }
            repair(&settings, &log, &replicas, &lives).await?;
            let mut annex = Annex::default();
            log.entries().for_each(|(_, entry)| annex.apply(entry));
            let (first, lives) = (log.next, lives.into_iter().flatten().collect());
            let is_checkpoint_required = header.segments.len() >= SEGMENTS_MANY;
            let payloads = payloads(&settings, &log, &replicas).await?;
            let running = settings.start(header, lives, first, annex).await?;
            Ok((running, Opened { log, payloads, first, is_checkpoint_required }))
        })
        .await
    }
}

/// The headers in a replica's two slots.
type Places = [Option<Header>; 2];

impl LogSettings {
    pub(super) fn place_hash(&self, place: &UnitPlace) -> u32 {
        let &UnitPlace { birth, content, unit, .. } = place;
        ContentId { space: self.space, birth, content }.place_hash(unit)
    }

    fn segment(&self, first: Point) -> Segment {
        let (log, key) = (self.env.random_u64(), Key(self.env.random()));
        Segment { epoch: self.epoch, log, key, first, closed: None }
    }

    /// The header of this owner.
    fn header(&self, log: &Log) -> Result<Header, OpenError> {
        let mut header = log.header.clone();
        header.segments.last_mut().expect("a header has segments").closed = Some(log.closed);
        header.segments.push(self.segment(log.next));
        let tail = header.tail;
        let header = header.next(tail);
        if header.segments.len() <= SEGMENTS_MAX { Ok(header) } else { Err(OpenError::Segments) }
    }

    /// Reads headers and rings. Also returns the reason for each replica that cannot be used.
    async fn read(
        &self,
        replicas: &[Replica],
    ) -> Result<(Vec<Places>, Log, Vec<Option<DiskError>>), OpenError> {
        let reads = join_all(replicas.iter().map(|replica| replica.headers(self))).await;
        let mut failed: Vec<Option<DiskError>> =
            reads.iter().map(|read| read.as_ref().err().copied()).collect();
        let places: Vec<Places> = reads.into_iter().map(Result::unwrap_or_default).collect();
        let newest: Vec<Option<Header>> = places.iter().cloned().map(Header::newest).collect();
        let replay = Replay::begin(&newest, READ_BLOCKS, |place: &UnitPlace| self.place_hash(place));
        if let (Err(_), Some((replica, error))) = (&replay, unread(replicas, &failed)) {
            return Err(OpenError::Replica { allocation: replica.allocation, error });
        }
        let mut replay = replay?;
        let mut reads: Vec<FuturesOrdered<BoxFuture<Result<Sg, DiskError>>>> = Vec::new();
        reads.resize_with(replicas.len(), FuturesOrdered::new);
        while !replay.is_done() {
            for (at, reads) in reads.iter_mut().enumerate() {
                while let Some(read) = replay.wants(at) {
                    let (replica, w, failed) = (replicas[at].clone(), self.clone(), failed[at]);
                    reads.push_back(Box::pin(async move {
                        match failed {
                            Some(error) => Err(error),
                            None => replica.read_ring(&w, read.ring_block, read.blocks).await,
                        }
                    }));
                }
            }
            let (at, read) = poll_fn(|context| {
                let mut all = reads.iter_mut().enumerate();
                let ready = all.find_map(|(at, reads)| match reads.poll_next_unpin(context) {
                    Poll::Ready(Some(read)) => Some((at, read)),
                    _ => None,
                });
                ready.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            replay.give(at, read.as_ref().ok().map(|read| replica::bytes(read)).as_deref());
            failed[at] = failed[at].or(read.err());
        }
        let log = replay.finish();
        for ((newest, failed), replica) in newest.iter().zip(&mut failed).zip(replicas) {
            if newest.as_ref().is_none_or(|newest| newest.ring != log.header.ring) {
                let at = IoRange::new(Op::Read, replica.offset, 2 * BLOCK as u64);
                *failed = failed.or(Some(DiskError::Medium { at }));
            }
        }
        Ok((places, log, failed))
    }

    /// Writes the header of this owner, and starts the task.
    async fn start(
        self,
        header: Header,
        replicas: Vec<Arc<RunningReplica>>,
        first: Point,
        annex: Annex,
    ) -> Result<SpaceLog, OpenError> {
        for live in &replicas {
            live.write_header(&self, &header).await?;
        }
        if replicas.iter().all(|live| live.is_removed()) {
            return Err(OpenError::NoReplica);
        }
        let env = self.env.clone();
        let core = Core::new(self.epoch, header.ring, header.tail.position, first, env.moment());
        let (joins, checkpoint, closing, ended) = (Vec::new(), None, None, None);
        let confirmed = first.sequence.saturating_sub(1);
        let begun = Progress { confirmed, declared: confirmed, ..Progress::default() };
        let (sender, progress) = watch::channel(begun);
        let shared = Arc::new(Shared {
            settings: self,
            ring: header.ring,
            state: Mutex::new(State { core, annex, replicas, joins, checkpoint, closing, ended }),
            wake: Notify::new(),
            progress,
        });
        env.spawn(Task::new(Arc::clone(&shared), header, sender).run());
        Ok(SpaceLog { shared })
    }
}

/// Removes the replicas that lack records that were durable there (rule 16).
async fn remove_rolled_back(w: &LogSettings, log: &Log, replicas: &[Replica]) -> Result<Vec<u32>, OpenError> {
    let lacks = |finding: &Finding| match finding {
        Finding::Lacks { replica, .. } | Finding::OlderHeader { replica, .. } => {
            Some(replicas[*replica].allocation)
        }
        _ => None,
    };
    let mut lacking: Vec<u32> = log.findings.iter().filter_map(lacks).collect();
    lacking.sort_unstable();
    lacking.dedup();
    match lacking.is_empty() {
        true => Ok(lacking),
        false => Ok(w.coordination.replicas_rolled_back(lacking).wait().await?),
    }
}

/// Finds a replica whose header could not be read.
fn unread<'a>(replicas: &'a [Replica], failed: &[Option<DiskError>]) -> Option<(&'a Replica, DiskError)> {
    replicas.iter().zip(failed).find_map(|(replica, failed)| Some((replica, (*failed)?)))
}

/// The payload of records, which the replay has verified.
async fn payloads(w: &LogSettings, log: &Log, replicas: &[Replica]) -> Result<BTreeMap<u64, Sg>, OpenError> {
    let mut payloads = BTreeMap::new();
    for record in log.records.iter().filter(|record| record.head.payload_units > 0) {
        let source = &replicas[record.replica];
        let ring_block = log.header.ring.block(record.head.payload());
        let bytes = source.read_ring(w, ring_block, record.head.payload_units.into()).await;
        let bytes = bytes.map_err(|error| OpenError::Replica { allocation: source.allocation, error })?;
        payloads.insert(record.head.id.sequence, bytes);
    }
    Ok(payloads)
}

/// Writes missing records to a replica, so that all replicas are equal from the tail on, whichever replica is lost
/// next.
async fn repair(
    w: &LogSettings,
    log: &Log,
    replicas: &[Replica],
    lives: &[Option<Arc<RunningReplica>>],
) -> Result<(), OpenError> {
    for record in &log.records {
        let lacking: Vec<&RunningReplica> =
            record.lacking.iter().filter_map(|at| lives[*at].as_deref()).collect();
        if lacking.is_empty() {
            continue;
        }
        let source = &replicas[record.replica];
        let ring_block = log.header.ring.block(record.head.id.position);
        let bytes = source.read_ring(w, ring_block, record.head.blocks()).await;
        let bytes = bytes.map_err(|error| OpenError::Replica { allocation: source.allocation, error })?;
        for live in lacking {
            live.write_ring(w, ring_block, bytes.clone()).await?;
        }
    }
    Ok(())
}
