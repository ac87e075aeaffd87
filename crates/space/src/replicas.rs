//! The replicas of a space's log, as the metadata has them: one that has left is replaced, on its disk when that returns or on
//! another one. `docs/0004-spaces.md`, section D, "Place", and rule 17.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use disk::{DiskError, Op, Place};
use parking_lot::Mutex;
use pool_seam::{Absence, OwnerOp, RowNumber, SeamError, SlabCopy, SpaceView, ViewVersion};

use crate::SpaceError;
use crate::log::{Deposed, LogError, Replica, Verdict};
use crate::owner::{Inner, RETRY, Reported};
use crate::port::Port;

/// See the module.
#[derive(Default)]
pub(crate) struct Replicas(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that take part, by their index in the log's row.
    all: BTreeMap<u8, Taking>,
    /// The view in which there was no room for another one.
    no_room: Option<ViewVersion>,
}

/// A replica takes part as long as its copy in the log's row is this one.
struct Taking {
    generation: u32,
    /// The port with the handle that the log has.
    port: Arc<Port>,
    /// The copy has missed nothing.
    counts: bool,
}

impl Replicas {
    /// Those of a log that is opened or made.
    pub(crate) fn begin(&self, index: u8, generation: u32, port: Arc<Port>) {
        self.0.lock().all.insert(index, Taking { generation, port, counts: true });
    }

    /// The indices of those that do not take part any more in this view; they are forgotten.
    fn left(&self, view: &SpaceView) -> Vec<u8> {
        let takes_part = |index: u8, taking: &Taking| {
            view.log_row().and_then(|row| row.copy(index.into())).is_some_and(|copy| {
                copy.generation == taking.generation
                    && (copy.missed == 0 || !taking.counts)
                    && view.membership(copy.place.disk) == Some(taking.port.membership())
            })
        };
        let mut left = Vec::new();
        self.0.lock().all.retain(|index, taking| {
            let takes_part = takes_part(*index, taking);
            if !takes_part {
                left.push(*index);
            }
            takes_part
        });
        left
    }

    fn has(&self, index: u8) -> bool {
        self.0.lock().all.contains_key(&index)
    }
}

impl Inner {
    /// Ends replicas that do not take part in a new view, and has others put in their place.
    pub(crate) fn follow_replicas(&self, view: &SpaceView) {
        let Some(log) = self.log.get() else { return };
        self.replicas.left(view).into_iter().for_each(|index| log.left(index));
        let copies = view.log_row().into_iter().flat_map(|row| row.copies());
        if copies.into_iter().any(|(index, _)| !self.replicas.has(index as u8)) {
            self.to_keep.notify_one();
        }
    }

    /// Has every copy of the log's row take part: one that is present joins, for one that is absent another disk is found.
    pub(crate) async fn mend_log(self: &Arc<Inner>) -> Result<(), SpaceError> {
        loop {
            let view = self.view.get().value;
            let copies = view.log_row().into_iter().flat_map(|row| row.copies());
            let mut missing = copies.filter(|(index, _)| !self.replicas.has(*index as u8));
            let no_room = self.replicas.0.lock().no_room;
            let can_change = |(_, copy): &(usize, &SlabCopy)| match view.membership(copy.place.disk) {
                // A call that hangs there holds up nothing else.
                Some(of) => self.ports.reopen_now(copy.place.disk, of).is_some(),
                None => no_room != Some(view.version),
            };
            let Some((index, copy)) = missing.find(can_change) else { return Ok(()) };
            let (index, generation) = (index as u8, copy.generation);
            if let Some(of) = view.membership(copy.place.disk) {
                let Some(port) = self.ports.reopen_now(copy.place.disk, of) else { continue };
                self.join_replica(&view, index, copy, port);
                continue;
            }
            match self.commit_if_fits(vec![OwnerOp::ReplaceLog { index, generation }]).await {
                Ok(_) => {}
                Err(SpaceError::Seam(SeamError::NoRoom(_))) => {
                    // The refusal may be in a newer view.
                    if let Some(newest) = self.newest_view().await? {
                        self.follow(newest);
                    }
                    self.replicas.0.lock().no_room = Some(self.view.get().value.version);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn join_replica(self: &Arc<Inner>, view: &SpaceView, index: u8, copy: &SlabCopy, port: Arc<Port>) {
        let offset = view.disks[&copy.place.disk].areas.data(copy.place.slab).offset;
        let replica = Replica { index, allocation: copy.generation, port: Arc::clone(&port), offset };
        let taking = Taking { generation: copy.generation, port: Arc::clone(&port), counts: false };
        self.replicas.0.lock().all.insert(index, taking);
        let joins = self.log().join(replica);
        let inner: Weak<Inner> = Arc::downgrade(self);
        self.env.spawn(async move {
            let joined = joins.await;
            if joined.is_err()
                && let Some(inner) = inner.upgrade()
            {
                if joined == Err(LogError::ReplicaFailed) {
                    // The disk leaves, as after any other write that failed. If it is needed, a write that hangs must not
                    // follow those of the next try.
                    let (disk, of) = (port.number(), port.membership());
                    let error = DiskError::Gone { at: Place::whole(Op::Write) };
                    let reported = inner.report(disk, of, Absence::WriteFailed, error).await;
                    if reported != Ok(Reported::Removed) {
                        inner.abandon(&port);
                    }
                }
                let mut replicas = inner.replicas.0.lock();
                if replicas.all.get(&index).is_some_and(|taking| Arc::ptr_eq(&taking.port, &port)) {
                    replicas.all.remove(&index);
                }
            }
        });
    }

    pub(crate) async fn replica_failed(&self, index: u8, error: DiskError) -> Result<Verdict, Deposed> {
        let failed = self.replicas.0.lock().all.get(&index).map(|taking| Arc::clone(&taking.port));
        let Some(failed) = failed else { return Ok(Verdict::LeftOut) };
        let (disk, of) = (failed.number(), failed.membership());
        match self.report(disk, of, Absence::WriteFailed, error).await {
            Ok(Reported::Removed) => return Ok(Verdict::LeftOut),
            Ok(Reported::Needed) => self.abandon(&failed),
            Err(_) => return Err(Deposed),
        }
        loop {
            let opened = self.ports.reopen(disk, of).await;
            if opened.is_none() && self.view.get().value.membership(disk) != Some(of) {
                return Ok(Verdict::LeftOut);
            }
            match self.replicas.0.lock().all.get_mut(&index) {
                None => return Ok(Verdict::LeftOut),
                Some(taking) => {
                    if let Some(port) = opened {
                        taking.port = Arc::clone(&port);
                        return Ok(Verdict::Again(port));
                    }
                }
            }
            self.env.sleep(RETRY).await;
        }
    }

    /// Their disks miss all that others have, before anything is read from them.
    pub(crate) async fn replicas_set_back(&self, indices: Vec<u8>) -> Result<Vec<u8>, Deposed> {
        let copy = |index: u8| self.view.get().value.log_row()?.copy(index.into()).copied();
        for disk in indices.iter().filter_map(|index| Some(copy(*index)?.place.disk)) {
            let Some(of) = self.view.get().value.membership(disk) else { continue };
            self.was_set_back(disk);
            self.commit_if_fits(vec![OwnerOp::Stale { disk, of }]).await.map_err(|_| Deposed)?;
        }
        // One that has what the others lack stays.
        Ok(indices.into_iter().filter(|index| copy(*index).is_none_or(|copy| copy.missed != 0)).collect())
    }

    pub(crate) async fn replica_joined(&self, index: u8) -> Result<(), Deposed> {
        let taking = self.replicas.0.lock().all.get(&index).map(|t| (t.generation, t.port.membership()));
        let Some((generation, membership)) = taking else { return Ok(()) };
        let (row, regions) = (RowNumber::LOG, u64::MAX);
        let op = OwnerOp::NotMissed { row, index, generation, regions, membership };
        // It does not fit if the disk has left meanwhile.
        self.commit_if_fits(vec![op]).await.map_err(|_| Deposed)?;
        if let Some(taking) = self.replicas.0.lock().all.get_mut(&index) {
            taking.counts = true;
        }
        Ok(())
    }
}
