//! The task of a running log. It alone does I/O to the replicas, one piece of work at a time: a record on all of them
//! in parallel, a header on one after the other, or a replica that joins. Flushes of the space's disks run beside it.
//!
//! Invariants:
//! 1. A record is kept until a replica has stored it. It is written again, at the same place, to the replicas that
//!    exist then (rule 7).
//! 2. While no replica is complete, records are written to those that join, and no caller is answered.
//! 3. A replica joins between two records, and not inside of a snapshot as long as another one exists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{IoBuf, Pages, Sg};
use env::{BoxFuture, Moment, watch};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use pool_seam::DiskNumber;
use smallvec::SmallVec;

use super::replica::{Deposed, RunningReplica};
use super::{Answer, Join, LogError, Progress, Shared, State};
use crate::log::BLOCK;
use crate::log::commit::{Answers, Next, Record};
use crate::log::entry::Entry;
use crate::log::header::{Header, Key};
use crate::log::record;
use crate::log::ring::Point;
use crate::log::snapshot::Content;

pub(super) struct Task {
    shared: Arc<Shared>,
    key: Key,
    header: Header,
    work: Option<BoxFuture<Result<Done, Deposed>>>,
    flushes: FuturesUnordered<BoxFuture<(u64, SmallVec<[DiskNumber; 1]>)>>,
    /// The record that is being written, or that no replica has stored.
    unwritten: Option<Unwritten>,
    checkpoint: Option<Running>,
    /// Results that wait for a complete replica.
    answers: Answers<Answer<()>>,
    progress: watch::Sender<Progress>,
    /// Waiting entries have no room in the ring.
    is_full: bool,
    /// Replicas that are not complete yet, with the callers of [`super::SpaceLog::join`].
    joining: Vec<(Arc<RunningReplica>, Answer<()>)>,
    ended: LogError,
}

struct Unwritten {
    position: u64,
    bytes: Sg,
}

/// A checkpoint whose snapshot is being written.
struct Running {
    /// The first record of the snapshot.
    tail: Point,
    /// The records that are not begun yet.
    records: VecDeque<Content>,
    done: Answer<()>,
}

/// The result of a piece of work.
enum Done {
    /// Whether a replica has the record.
    Record(bool),
    Header(Header),
    /// A new replica has its header, or was removed again.
    Joined,
}

impl Task {
    pub(super) fn new(shared: Arc<Shared>, header: Header, progress: watch::Sender<Progress>) -> Task {
        Task {
            shared,
            key: header.open().key,
            header,
            work: None,
            flushes: FuturesUnordered::new(),
            unwritten: None,
            checkpoint: None,
            answers: Vec::new(),
            progress,
            is_full: false,
            joining: Vec::new(),
            ended: LogError::Closed,
        }
    }

    /// Works until the log ends.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let env = &shared.settings.env;
        loop {
            let sleep = self.begin();
            self.answer();
            if self.is_finished() {
                return;
            }
            let is_confirmed = tokio::select! {
                biased;
                done = async { self.work.as_mut().expect("checked").await }, if self.work.is_some() => {
                    self.work = None;
                    match done {
                        Ok(done) => self.done(done),
                        Err(deposed) => {
                            self.ended = deposed.into();
                            return;
                        }
                    }
                    true
                }
                Some((sequence, failed)) = self.flushes.next() => {
                    let now = env.moment();
                    shared.state.lock().core.flushed(now, sequence, failed, &mut self.answers);
                    true
                }
                () = shared.wake.notified() => false,
                () = async { env.sleep_until(env.instant(sleep.expect("checked"))).await }, if sleep.is_some() => false,
            };
            self.answer();
            if is_confirmed {
                // Lets callers that were answered enqueue more work for the next record.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Begins the next piece of work, if none is in progress. Returns when to call it again without another event.
    fn begin(&mut self) -> Option<Moment> {
        if self.work.is_some() {
            return None;
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        self.forget_left(&mut state);
        if (self.checkpoint.is_none() || state.replicas.is_empty())
            && let Some(at) = state.joins.iter().position(|join| join.is_formatted)
        {
            let join = state.joins.remove(at);
            self.join(&mut state, join);
            return None;
        }
        if state.replicas.is_empty() {
            return None;
        }
        if let Some(unwritten) = &self.unwritten {
            self.work = Some(self.write(&state, unwritten));
            return None;
        }
        if self.checkpoint.is_none() && state.checkpoint.is_some() && !state.core.is_confirmed() {
            // Otherwise the snapshot would have to declare values unconfirmed, which a later record cannot correct.
            return None;
        }
        if self.checkpoint.is_none()
            && let Some(ordered) = state.checkpoint.take()
        {
            let progress = state.core.progress();
            drop(state);
            // This task appends nothing else before the snapshot's first record.
            let parts = (ordered.parts)(progress);
            state = shared.state.lock();
            match parts.map(|parts| state.annex.pack(shared.ring, parts)) {
                None => _ = ordered.done.send(Err(LogError::Busy)),
                Some(Ok(records)) => {
                    let tail = state.core.end();
                    self.checkpoint = Some(Running { tail, records: records.into(), done: ordered.done });
                }
                Some(Err(error)) => _ = ordered.done.send(Err(error.into())),
            }
        }
        if let Some(running) = &mut self.checkpoint {
            if running.records.is_empty() {
                self.work = Some(self.write_headers(&state));
            } else if state.core.is_free() {
                let content = running.records.pop_front().expect("checked");
                let record = state.core.snapshot(shared.settings.env.moment(), content.size());
                if running.tail.sequence == record.id.sequence {
                    running.tail.position = record.id.position;
                }
                drop(state);
                self.begin_record(record, content);
            }
            return None;
        }
        self.is_full = false;
        let (sequence, set, mut capacity) = match state.core.begin(shared.settings.env.moment()) {
            Next::Wait(until) => return until,
            Next::Full => {
                self.is_full = true;
                return None;
            }
            Next::Take(sequence, set, capacity) => (sequence, set, capacity),
        };
        let (entries, has_rest) = state.annex.take(&mut capacity);
        drop(state);
        let taken = shared.settings.source.take(sequence, &set, &mut capacity);
        let mut content = Content { entries, payload: taken.content.payload };
        content.entries.extend(taken.content.entries);
        let has_rest = has_rest || taken.has_rest;
        let record = shared.state.lock().core.begun(shared.settings.env.moment(), content.size(), has_rest);
        match record {
            Some(record) => self.begin_record(record, content),
            None => self.is_full = true,
        }
        None
    }

    /// Begins a record: writes it to the replicas, and flushes the disks that it requires.
    fn begin_record(&mut self, record: Record, content: Content) {
        let Record { id, flush } = record;
        if let Some(set) = flush {
            let flush = self.shared.settings.source.flush(set);
            self.flushes.push(Box::pin(async move { (id.sequence, flush.wait().await) }));
        }
        debug_assert!(self.is_valid(&content), "no replay would accept: {:?}", content.entries);
        let head = record::encode(&id, &self.key, &content.entries);
        let head = IoBuf::from(Pages::copied(std::iter::once(&*head)));
        let bytes = std::iter::once(head).chain(content.payload).collect();
        let unwritten = Unwritten { position: id.position, bytes };
        self.work = Some(self.write(&self.shared.state.lock(), &unwritten));
        self.unwritten = Some(unwritten);
    }

    /// Whether the payload matches the checksums in the entries.
    fn is_valid(&self, content: &Content) -> bool {
        let units: Vec<u8> = content.payload.iter().flat_map(|unit| unit.iter().copied()).collect();
        let count = content.entries.iter().flat_map(Entry::payload).count();
        let is_complete = units.len() == count * BLOCK;
        is_complete
            && record::verify_payload(&content.entries, &units, |place| {
                self.shared.settings.place_hash(place)
            })
            .is_ok()
    }

    fn write(&self, state: &State, unwritten: &Unwritten) -> BoxFuture<Result<Done, Deposed>> {
        let ring_block = self.shared.ring.block(unwritten.position);
        let writes: Vec<_> = state
            .replicas
            .iter()
            .cloned()
            .map(|live| {
                let (shared, bytes) = (Arc::clone(&self.shared), unwritten.bytes.clone());
                async move { live.write_ring(&shared.settings, ring_block, bytes).await }
            })
            .collect();
        Box::pin(async move {
            let took = try_join_all(writes).await?;
            Ok(Done::Record(took.contains(&true)))
        })
    }

    /// Writes the header of a checkpoint to one replica after the other; then replicas that have all records become
    /// complete.
    fn write_headers(&self, state: &State) -> BoxFuture<Result<Done, Deposed>> {
        let tail = self.checkpoint.as_ref().expect("checked").tail;
        let header = self.header.clone().next(tail);
        let (shared, replicas) = (Arc::clone(&self.shared), state.replicas.clone());
        Box::pin(async move {
            for live in &replicas {
                live.write_header(&shared.settings, &header).await?;
            }
            for live in replicas
                .iter()
                .filter(|live| !live.counts() && live.joined.load(Ordering::Relaxed) <= tail.position)
            {
                if !live.is_removed() {
                    shared.settings.coordination.replica_joined(live.id.allocation).wait().await?;
                    live.counts.store(true, Ordering::Relaxed);
                }
            }
            Ok(Done::Header(header))
        })
    }

    /// Writes the current header to a new replica, which gets every record from the next one on.
    fn join(&mut self, state: &mut State, Join { live, done, .. }: Join) {
        let joined = self.unwritten.as_ref().map_or(state.core.end().position, |record| record.position);
        live.joined.store(joined, Ordering::Relaxed);
        let (shared, header) = (Arc::clone(&self.shared), self.header.clone());
        self.joining.push((Arc::clone(&live), done));
        state.replicas.push(Arc::clone(&live));
        self.work = Some(Box::pin(async move {
            live.write_header(&shared.settings, &header).await?;
            Ok(Done::Joined)
        }));
    }

    fn done(&mut self, done: Done) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        match done {
            Done::Record(false) => {}
            Done::Record(true) => {
                self.unwritten = None;
                state.core.durable(shared.settings.env.moment(), &mut self.answers);
            }
            Done::Header(header) => {
                state.core.trim(header.tail.position);
                let running = self.checkpoint.take().expect("a header is a checkpoint's");
                // Without a complete replica no caller is answered before another checkpoint.
                let result = state.counts().then_some(());
                _ = running.done.send(result.ok_or(LogError::ReplicaFailed));
                self.header = header;
            }
            Done::Joined => {}
        }
    }

    /// Publishes the progress, and answers callers, if a replica is complete (invariant 2).
    fn answer(&mut self) {
        let state = self.shared.state.lock();
        let (counts, is_checkpoint_due) = (state.counts(), state.is_checkpoint_due());
        // While all replicas are joining, no caller is answered before a checkpoint (invariant 2).
        let is_full = self.is_full || !counts && !state.replicas.is_empty();
        let (confirmed, declared) = state.core.progress();
        drop(state);
        self.progress.send_if_modified(|progress| {
            let before = *progress;
            (progress.is_checkpoint_due, progress.is_full) = (is_checkpoint_due, is_full);
            if counts {
                (progress.confirmed, progress.declared) = (confirmed, declared);
            }
            *progress != before
        });
        for (_, done) in self.joining.extract_if(.., |(live, _)| live.counts()) {
            _ = done.send(Ok(()));
        }
        if counts {
            for (caller, result) in self.answers.drain(..) {
                _ = caller.send(result.map_err(LogError::NotFlushed));
            }
        }
    }

    /// Drops removed replicas, and answers the callers that wanted to join them.
    fn forget_left(&mut self, state: &mut State) {
        state.replicas.retain(|live| !live.is_removed());
        let failed = self.joining.extract_if(.., |(live, _)| live.is_removed());
        failed.for_each(|(_, done)| _ = done.send(Err(LogError::ReplicaFailed)));
    }

    fn is_finished(&mut self) -> bool {
        let state = self.shared.state.lock();
        if state.closing.is_none() || self.work.is_some() {
            return false;
        }
        let has_checkpoint = self.checkpoint.is_some() || state.checkpoint.is_some();
        // Only a checkpoint makes room, and the handle that could request one was dropped: the task must end.
        if self.is_full && !has_checkpoint && state.core.is_confirmed() {
            self.ended = LogError::NoRoom;
            return true;
        }
        // Without replicas no work is possible any more.
        !has_checkpoint && state.core.is_idle() && self.answers.is_empty() || state.replicas.is_empty()
    }
}

/// When the task ends in any way, even with its worker, all waiting calls fail.
impl Drop for Task {
    fn drop(&mut self) {
        let error = self.ended;
        let mut state = self.shared.state.lock();
        state.ended = Some(error);
        let joins = std::mem::take(&mut state.joins);
        let (checkpoint, closing) = (state.checkpoint.take(), state.closing.take());
        let is_closed = error == LogError::Closed && state.core.is_idle() && self.answers.is_empty();
        let last = state.core.end().sequence - 1;
        let callers = state.core.take_callers();
        drop(state);
        let answers = std::mem::take(&mut self.answers).into_iter().map(|(caller, _)| caller);
        callers.into_iter().chain(answers).for_each(|caller| _ = caller.send(Err(error)));
        joins.into_iter().for_each(|join| _ = join.done.send(Err(error)));
        checkpoint.into_iter().for_each(|ordered| _ = ordered.done.send(Err(error)));
        let result = if is_closed { Ok(last) } else { Err(error) };
        closing.flatten().into_iter().for_each(|done| _ = done.send(result));
        // All other waits fail when the senders are dropped with this.
    }
}
