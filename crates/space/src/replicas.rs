//! The replicas of a space's log according to the metadata: a removed one is replaced, on its disk when that returns,
//! or on another one. `docs/0004-spaces.md`, section D, "Place", and rule 17.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use disk::{DiskError, IoRange, Op};
use parking_lot::Mutex;
use pool_seam::{Absence, OwnerOp, RowNumber, SeamError, SlabCopy, SpaceView, ViewVersion};

use crate::SpaceError;
use crate::log::{Deposed, FailureDecision, LogError, Replica, SpaceLog};
use crate::owner::{Inner, RETRY, ReportOutcome};
use crate::port::Port;

/// See the module.
#[derive(Default)]
pub(crate) struct Replicas(Mutex<State>);

#[derive(Default)]
struct State {
    /// The replicas in use, by the generation of their copy in the log's row.
    all: BTreeMap<u32, ReplicaInUse>,
    /// Those whose slabs are being freed: no write to them begins, even if the removal of their disk is refused.
    freeing: BTreeSet<u32>,
    /// The view in which there was no room for another one.
    no_room: Option<ViewVersion>,
}

/// A replica that is in use as long as its copy is in the log's row.
struct ReplicaInUse {
    /// The port that the log uses.
    port: Arc<Port>,
    /// Whether the copy is complete.
    counts: bool,
}

impl Replicas {
    /// Adds the replicas of a log that is opened or created.
    pub(crate) fn begin(&self, generation: u32, port: Arc<Port>) {
        self.0.lock().all.insert(generation, ReplicaInUse { port, counts: true });
    }

    /// Removes and returns the replicas that are no longer in this view.
    fn take_removed(&self, view: &SpaceView) -> Vec<u32> {
        let takes_part = |generation: u32, in_use: &ReplicaInUse| {
            replica(view, generation).is_some_and(|(_, copy)| {
                (copy.stale_regions == 0 || !in_use.counts)
                    && view.membership(copy.place.disk) == Some(in_use.port.membership())
            })
        };
        let mut left = Vec::new();
        self.0.lock().all.retain(|generation, in_use| {
            let takes_part = takes_part(*generation, in_use);
            if !takes_part {
                left.push(*generation);
            }
            takes_part
        });
        left
    }

    fn has(&self, copy: &SlabCopy) -> bool {
        self.0.lock().all.contains_key(&copy.generation)
    }

    /// The replica's disk is not removed: writes to it may begin, unless its slab is being freed.
    pub(crate) fn replica_stays(&self, log: &SpaceLog, generation: u32) {
        let state = self.0.lock();
        if !state.freeing.contains(&generation) {
            log.replica_stays(generation);
        }
    }

    fn counts(&self, copy: &SlabCopy) -> bool {
        self.0.lock().all.get(&copy.generation).is_some_and(|in_use| in_use.counts)
    }
}

/// The copy of the log's row with this generation, and its index.
fn replica(view: &SpaceView, generation: u32) -> Option<(u8, SlabCopy)> {
    let copy = view.log_row()?.copies().find(|(_, copy)| copy.generation == generation);
    copy.map(|(index, copy)| (index as u8, *copy))
}

impl Inner {
    /// Ends replicas that are not in a new view, and requests their replacement.
    pub(crate) fn follow_replicas(&self, view: &SpaceView) {
        let Some(log) = self.log.get() else { return };
        self.replicas.take_removed(view).into_iter().for_each(|generation| log.replica_removed(generation));
        let copies = view.log_row().into_iter().flat_map(|row| row.copies());
        if copies.into_iter().any(|(_, copy)| !self.replicas.has(copy)) {
            self.to_keep.notify_one();
        }
    }

    /// Adds missing replicas: a present copy joins; for an absent copy, a place on another disk is requested.
    pub(crate) async fn repair_log(self: &Arc<Inner>) -> Result<(), SpaceError> {
        loop {
            let view = self.view.get().value;
            if self.end_log_move(&view).await? || self.free_replica(&view).await? {
                continue;
            }
            let is_moving = view.log_row().is_some_and(|row| row.moving().is_some());
            let copies = view.log_row().into_iter().flat_map(|row| row.copies());
            let mut missing = copies.filter(|(_, copy)| !self.replicas.has(copy));
            let no_room = self.replicas.0.lock().no_room;
            let can_change = |(_, copy): &(usize, &SlabCopy)| match view.membership(copy.place.disk) {
                // Does not wait for a call that hangs on the disk.
                Some(of) => self.ports.reopen_now(copy.place.disk, of).is_some(),
                // The metadata allows one change of the row at a time.
                None => !is_moving && no_room != Some(view.version),
            };
            let Some((index, copy)) = missing.find(can_change) else { return Ok(()) };
            let (index, generation) = (index as u8, copy.generation);
            if let Some(of) = view.membership(copy.place.disk) {
                let Some(port) = self.ports.reopen_now(copy.place.disk, of) else { continue };
                self.join_replica(&view, copy, port);
                continue;
            }
            match self.commit_if_fits(vec![OwnerOp::ReplaceLog { index, generation }]).await {
                Ok(_) => {}
                Err(SpaceError::Seam(SeamError::NoRoom(_))) => {
                    // A newer view may have the reason of the refusal.
                    if let Some(newest) = self.newest_view().await? {
                        self.follow(newest);
                    }
                    self.replicas.0.lock().no_room = Some(self.view.get().value.version);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends a move of a replica when the new one is complete, and cancels it if its disk was removed; returns whether
    /// it did either.
    async fn end_log_move(&self, view: &SpaceView) -> Result<bool, SpaceError> {
        let (row, log) = (RowNumber::LOG, view.log_row());
        let Some((log, moving)) = log.and_then(|log| Some((log, log.moving()?))) else { return Ok(false) };
        let birth = log.birth;
        if view.membership(moving.copy.place.disk).is_none() {
            return self.commit_if_fits(vec![OwnerOp::CancelMove { row, birth }]).await.map(|_| true);
        }
        if moving.copy.stale_regions != 0 || !self.replicas.counts(&moving.copy) {
            return Ok(false);
        }
        let old = log.slabs[usize::from(moving.index)].generation;
        self.commit_freeing(old, OwnerOp::EndMove { row, birth }).await.map(|_| true)
    }

    /// Frees a replica if the space's resiliency requires fewer, and all are complete: none is joining then, and only
    /// this task begins joins. Returns whether it did.
    async fn free_replica(&self, view: &SpaceView) -> Result<bool, SpaceError> {
        let Some(log) = view.log_row() else { return Ok(false) };
        let is_complete = |copy: &SlabCopy| copy.stale_regions == 0 && self.replicas.counts(copy);
        let is_long = log.slabs.len() > view.record.log_replicas() && !view.record.is_changing();
        if !is_long || log.moving().is_some() || !log.slabs.iter().all(is_complete) {
            return Ok(false);
        }
        // The coordinator accepts a replica without which the others are separated as well as possible.
        for copy in log.slabs.iter().rev() {
            let op = OwnerOp::FreeReplica { generation: copy.generation };
            if self.commit_freeing(copy.generation, op).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Commits an operation that frees a replica's slab: no write is in flight to it. Returns whether it is committed.
    async fn commit_freeing(&self, generation: u32, op: OwnerOp) -> Result<bool, SpaceError> {
        self.replicas.0.lock().freeing.insert(generation);
        self.log().replica_leaving(generation);
        self.log().idle(generation).await;
        let freed = self.commit_if_fits(vec![op]).await;
        let mut replicas = self.replicas.0.lock();
        replicas.freeing.remove(&generation);
        // If the coordinator is removing the disk, it also ends that state.
        let is_leaving = replicas.all.get(&generation).is_some_and(|in_use| in_use.port.is_leaving());
        if freed != Ok(true) && !is_leaving {
            self.log().replica_stays(generation);
        }
        freed
    }

    fn join_replica(self: &Arc<Inner>, view: &SpaceView, copy: &SlabCopy, port: Arc<Port>) {
        let generation = copy.generation;
        let offset = view.disks[&copy.place.disk].areas.data(copy.place.slab).offset;
        let replica = Replica { allocation: generation, port: Arc::clone(&port), offset };
        let in_use = ReplicaInUse { port: Arc::clone(&port), counts: false };
        self.replicas.0.lock().all.insert(generation, in_use);
        let joins = self.log().join(replica);
        let inner: Weak<Inner> = Arc::downgrade(self);
        self.env.spawn(async move {
            let joined = joins.await;
            if joined.is_err()
                && let Some(inner) = inner.upgrade()
            {
                let error = match joined {
                    Err(LogError::ReplicaFailed) => Some(DiskError::Gone { at: IoRange::whole(Op::Write) }),
                    Err(LogError::NotFormatted(error)) => Some(error),
                    _ => None,
                };
                if let Some(error) = error {
                    // The disk is removed, as after any failed write. If it is needed, a hanging write must not take
                    // effect after the retried ones; a write that failed for lack of space has already ended.
                    let (disk, of) = (port.number(), port.membership());
                    let is_full = matches!(error, DiskError::Full { at } if at.op == Op::Write);
                    let reported = inner.report(disk, of, Absence::WriteFailed, error).await;
                    if reported != Ok(ReportOutcome::Removed) && !is_full {
                        inner.abandon(&port);
                    }
                }
                let mut replicas = inner.replicas.0.lock();
                if replicas.all.get(&generation).is_some_and(|in_use| Arc::ptr_eq(&in_use.port, &port)) {
                    replicas.all.remove(&generation);
                }
            }
        });
    }

    pub(crate) async fn replica_failed(
        &self,
        generation: u32,
        error: DiskError,
    ) -> Result<FailureDecision, Deposed> {
        let failed = self.replicas.0.lock().all.get(&generation).map(|in_use| Arc::clone(&in_use.port));
        let Some(failed) = failed else { return Ok(FailureDecision::Removed) };
        let (disk, of) = (failed.number(), failed.membership());
        match self.report(disk, of, Absence::WriteFailed, error).await {
            Ok(ReportOutcome::Removed) => return Ok(FailureDecision::Removed),
            Ok(ReportOutcome::Needed) => self.abandon(&failed),
            Err(_) => return Err(Deposed),
        }
        // A retry may fail immediately while the disk's storage is full.
        self.env.sleep(RETRY).await;
        loop {
            let opened = self.ports.reopen(disk, of).await;
            if opened.is_none() && self.view.get().value.membership(disk) != Some(of) {
                return Ok(FailureDecision::Removed);
            }
            match self.replicas.0.lock().all.get_mut(&generation) {
                None => return Ok(FailureDecision::Removed),
                Some(in_use) => {
                    if let Some(port) = opened {
                        in_use.port = Arc::clone(&port);
                        self.note_retry(disk);
                        return Ok(FailureDecision::Retry(port));
                    }
                }
            }
            self.env.sleep(RETRY).await;
        }
    }

    /// Marks all regions of the replicas' disks stale that other disks have, before any data is read from them.
    pub(crate) async fn replicas_rolled_back(&self, generations: Vec<u32>) -> Result<Vec<u32>, Deposed> {
        let copy = |generation: u32| Some(replica(&self.view.get().value, generation)?.1);
        for disk in generations.iter().filter_map(|generation| Some(copy(*generation)?.place.disk)) {
            let Some(of) = self.view.get().value.membership(disk) else { continue };
            self.was_rolled_back(disk);
            self.commit_if_fits(vec![OwnerOp::MarkDiskStale { disk, membership: of }])
                .await
                .map_err(|_| Deposed)?;
        }
        // A replica with data that the others lack stays.
        let is_left_out = |generation: &u32| copy(*generation).is_none_or(|copy| copy.stale_regions != 0);
        Ok(generations.into_iter().filter(is_left_out).collect())
    }

    pub(crate) async fn replica_joined(&self, generation: u32) -> Result<(), Deposed> {
        let membership = self.replicas.0.lock().all.get(&generation).map(|in_use| in_use.port.membership());
        let copy = replica(&self.view.get().value, generation);
        let (Some(membership), Some((index, _))) = (membership, copy) else { return Ok(()) };
        let (row, regions) = (RowNumber::LOG, u64::MAX);
        let op = OwnerOp::MarkCurrent { row, index, generation, regions, membership };
        // The operation conflicts if the disk was removed meanwhile.
        self.commit_if_fits(vec![op]).await.map_err(|_| Deposed)?;
        if let Some(in_use) = self.replicas.0.lock().all.get_mut(&generation) {
            in_use.counts = true;
        }
        // A move may be complete.
        self.to_keep.notify_one();
        Ok(())
    }
}
