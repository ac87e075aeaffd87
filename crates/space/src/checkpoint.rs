//! Checkpoints: write the values in the log to checksum blocks, and move the log's tail. `docs/0004-spaces.md`, section
//! D, "Checkpoint", rules 6 and 8.
//!
//! Each step is durable before the next: commit waiting values; write and flush the blocks of groups with confirmed
//! values; append a snapshot of the values that are in no block; write the new tail to the header.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arena::{IoBuf, Sg};
use futures_util::StreamExt;
use futures_util::future::join_all;
use pool_seam::{Absence, GROUP_UNITS, LogState, OwnerOp, Regions};
use smallvec::SmallVec;

use crate::SpaceError;
use crate::active::SetKey;
use crate::blocks::Units;
use crate::cache::Cached;
use crate::locks::Mode;
use crate::log::LogError;
use crate::log::commit::FlushSet;
use crate::log::snapshot::Parts;
use crate::owner::{Inner, RETRY, Space};
use crate::port::Port;
use crate::table::Table;
use crate::view::{GroupKey, Member, block_id, route};
use crate::write::{Blocked, Target};

/// Groups whose blocks are written at a time.
const AT_ONCE: usize = 16;

/// The longest time until a change is in a block.
const INTERVAL: Duration = Duration::from_secs(60);

/// How often a checkpoint writes blocks again because there are too many values for a snapshot; after [`RETRY`] each.
const WAITS_MAX: u32 = 20;

/// How often to check whether a checkpoint is due.
const LOOK: Duration = Duration::from_secs(1);

impl Space {
    /// Makes a checkpoint now. After an error the log keeps its tail.
    pub async fn checkpoint(&self) -> Result<(), SpaceError> {
        let inner = Arc::clone(&self.0);
        self.0.env.run(async move { inner.checkpoint().await }).await
    }

    /// Decides all units that a crash has left undecided (rule 12). Fails if some stay undecided because disks are
    /// absent.
    pub async fn resolve(&self) -> Result<(), SpaceError> {
        let inner = Arc::clone(&self.0);
        self.0.env.run(async move { inner.resolve().await }).await
    }

    /// Whether there are units that may be old or new after a crash or a failed write, and are not decided yet.
    pub fn is_in_doubt(&self) -> bool {
        self.0.in_doubt() > 0
    }
}

/// How many units are locked and decided at a time: writes to them wait.
const DECIDED_TOGETHER: usize = 16;

/// A group that may have undecided units.
pub(crate) struct OpenPiece {
    pub(crate) groups: Vec<GroupKey>,
    /// A region that was active at a crash.
    region: Option<(SetKey, u32)>,
}

/// Blocks of a group that were written: until they are durable, the group's units count as being in no block.
struct Blocks {
    inner: Arc<Inner>,
    cached: Arc<Cached>,
    units: Units,
    ports: SmallVec<[Arc<Port>; 3]>,
    /// All complete copies have the blocks.
    is_whole: bool,
    is_durable: bool,
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if !self.is_durable || !self.is_whole {
            self.inner.with_table(&self.cached, |table| table.blocks_failed(self.units));
        }
    }
}

impl Inner {
    /// See [`Owner::close`](pool_seam::Owner::close). Calls after this one fail.
    pub(crate) async fn close(self: &Arc<Inner>) -> Result<LogState, SpaceError> {
        // With all permits no write is in flight, and none can begin.
        let all = self.all_writes().await;
        self.writes.close();
        drop(all);
        self.checkpoint().await?;
        // If that checkpoint ran in a full log, its snapshot has regions with completed overwrites. Another one makes
        // them inactive: the next opening must treat damage there as damage, not as an interrupted write. (Regions
        // that are unresolved since a crash stay active.)
        for _ in 0..2 {
            if !self.active.is_empty() {
                self.checkpoint().await?;
            }
        }
        let sequence = self.log().close().await?;
        let state = LogState { epoch: self.owner.epoch, sequence, is_closed: true };
        self.commit(vec![OwnerOp::Log(state)]).await?;
        Ok(state)
    }

    /// The background task: makes a checkpoint when one is due, records absent disks, and replaces missing replicas of
    /// the log, until the space or its log ends.
    pub(crate) async fn keep(inner: Weak<Inner>) {
        // The time of the last checkpoint, or of the last check for changes.
        let mut last = None;
        while let Some(space) = inner.upgrade() {
            let (env, due) = (space.env.clone(), space.log().checkpoint_due());
            let to_keep = Arc::clone(&space.to_keep);
            drop(space);
            let is_due = tokio::select! {
                biased;
                due = due => due.map(|()| true),
                () = to_keep.notified() => Ok(false),
                () = env.sleep(LOOK) => Ok(false),
            };
            let (Some(space), Ok(mut is_due)) = (inner.upgrade(), is_due) else { return };
            if let Err(error) = space.account().await {
                tracing::warn!(space = space.space().0, %error, "the stale regions of a disk cannot be recorded");
            }
            if let Err(error) = space.repair_log().await {
                tracing::warn!(space = space.space().0, %error, "a missing replica of the log of a virtual disk cannot be replaced");
            }
            if let Err(error) = space.record_losses().await {
                tracing::warn!(space = space.space().0, %error, "the addresses of lost data cannot be recorded");
            }
            if let Err(error) = space.repair_blocks().await {
                tracing::debug!(space = space.space().0, %error, "damaged checksum blocks cannot be rewritten");
            }
            if let Err(error) = space.place_stuck().await {
                tracing::debug!(space = space.space().0, %error, "stripes in the log cannot be written to their disks");
            }
            let now = env.now();
            if now - *last.get_or_insert(now) >= INTERVAL {
                last = Some(now);
                is_due |= space.has_changed();
            }
            is_due |= space.has_emptied.load(Ordering::Relaxed) || space.budget.is_half_dirty();
            if !is_due {
                continue;
            }
            if let Err(error) = space.checkpoint().await {
                tracing::warn!(space = space.space().0, %error, "a checkpoint of a virtual disk failed");
                env.sleep(LOOK).await;
            }
            last = None;
        }
    }

    /// Whether a checkpoint would change anything.
    fn has_changed(&self) -> bool {
        !self.cache.dirty().is_empty() || !self.active.is_empty() || !self.overlay.groups().is_empty()
    }

    pub(crate) async fn checkpoint(self: &Arc<Inner>) -> Result<(), SpaceError> {
        let _one = self.checkpoints.lock().await;
        self.has_emptied.store(false, Ordering::Relaxed);
        let completed = self.active.take_completed();
        let committed = tokio::select! {
            biased;
            committed = self.flush_groups(None, FlushSet::everything()) => Some(committed),
            // The log is full, and only this checkpoint makes room: it continues with the confirmed values.
            () = self.log().full() => None,
        };
        if !matches!(committed, Some(Ok(()))) {
            self.active.not_confirmed(completed);
        }
        committed.transpose()?;
        let mut groups = BTreeSet::new();
        let mut waits = 0;
        loop {
            match self.write_and_trim(&mut groups).await {
                Ok(true) => break,
                Ok(false) => {}
                // Too much was written since the blocks were, or after a crash too many stripes are only in the log.
                // Blocks written again have most of these values, and the holders of the stripes' locks put them in
                // place.
                Err(SpaceError::Log(LogError::TooLarge(_))) if waits < WAITS_MAX => {
                    waits += 1;
                    self.env.sleep(RETRY).await;
                }
                Err(error) => {
                    // The next checkpoint does not write these blocks again, but may free rows.
                    self.in_use.lock().extend(groups.iter().map(|key| key.row));
                    self.has_emptied.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        self.unmarked.lock().clear();
        self.findings.blocks_written(&groups);
        self.give_back(groups).await
    }

    /// Makes the confirmed values durable in blocks, appends the snapshot, and moves the tail. Adds the groups whose
    /// blocks were written to `groups`. Returns `false` if the snapshot could not be made in this moment.
    async fn write_and_trim(self: &Arc<Inner>, groups: &mut BTreeSet<GroupKey>) -> Result<bool, SpaceError> {
        let through = self.progress().confirmed;
        let unread = self.overlay.groups();
        let loads = unread.into_iter().map(|key| self.loaded(key));
        let mut loads = futures_util::stream::iter(loads).buffered(AT_ONCE);
        while let Some(loaded) = loads.next().await {
            // Either the table is dirty, and so stays in memory, or its disks are absent, and the snapshot carries
            // its entries.
            drop(loaded);
        }
        drop(loads);
        let dirty = self.cache.dirty();
        // The tables have their entries from the log: blocks written now are newer than those.
        dirty.iter().for_each(|cached| self.overlay.loaded(&cached.key()));
        let writes: Vec<_> = dirty.iter().map(|cached| self.write_blocks(cached, through)).collect();
        let written: Vec<_> = futures_util::stream::iter(writes).buffered(AT_ONCE).collect().await;
        let written = written.into_iter().collect::<Result<Vec<_>, _>>()?;
        let written: Vec<Blocks> = written.into_iter().flatten().collect();
        groups.extend(written.iter().map(|blocks| blocks.cached.key()));
        self.place_remaining().await?;
        // Stripes in place must be durable before the tail moves, or else the snapshot carries them.
        let mut gate = std::pin::pin!(self.placing.write());
        let _gate = tokio::select! {
            biased;
            gate = &mut gate => Some(gate),
            // Running writes wait for the room that this checkpoint makes: it carries their units that are in records.
            // While this call waits for the gate, no other write begins.
            () = self.log().full() => None,
        };
        let placed = self.place_unlocked().await?;
        self.flush_blocks(written).await?;
        self.write_marks(through).await?;
        self.snapshot(through, placed).await
    }

    /// Appends the snapshot, and moves the tail. Returns `false` if the counter of placed stripes is no longer
    /// `placed`: some may not be durable.
    async fn snapshot(self: &Arc<Inner>, through: u64, placed: u64) -> Result<bool, SpaceError> {
        let inner = Arc::clone(self);
        let parts = move |(confirmed, declared): (u64, u64)| {
            let active = inner.active.snapshot();
            let state = active.into_iter().chain(inner.marks.snapshot()).collect();
            // Collected before the dirty tables are read, because a group moves only from `overlay` to the dirty
            // tables.
            let mut unloaded = inner.overlay.groups();
            let dirty = inner.cache.dirty();
            // While no replica of the log is complete, these numbers are higher than the published ones.
            let advance = |table: &mut Table| table.advance(confirmed, declared);
            dirty.iter().for_each(|cached| inner.cache.update(cached, advance));
            unloaded.retain(|key| dirty.binary_search_by_key(key, |cached| cached.key()).is_err());
            let mut carried: Vec<_> = dirty.iter().flat_map(|cached| inner.carried(cached)).collect();
            carried.extend(unloaded.into_iter().flat_map(|key| inner.carried_unloaded(key)));
            // Read last: a stripe that was placed before its value was collected has changed the counter.
            let is_durable = inner.placed.load(Ordering::SeqCst) == placed;
            is_durable.then_some(Parts { through, state, carried })
        };
        match self.log().checkpoint_if(parts).await {
            Err(LogError::Busy) => Ok(false),
            result => Ok(result.map(|_| true)?),
        }
    }

    fn carried(&self, cached: &Cached) -> Vec<(crate::log::entry::Entry, Sg)> {
        self.with_table(cached, |table| {
            let only_in_log = table.only_in_log();
            table.carry(&only_in_log)
        })
    }

    /// The table of a group; `None` if its row was freed, or is new and its slabs have no blocks yet.
    pub(crate) async fn loaded(self: &Arc<Inner>, key: GroupKey) -> Result<Option<Arc<Cached>>, SpaceError> {
        let view = self.view.get().value;
        let at = route(&view, key).filter(|at| !at.is_new);
        let loaded = match at.map(|at| self.table(key, &at)) {
            Some(Ok(cached)) => Some(cached),
            Some(Err(Blocked::Table(load))) => Some(load.await?),
            Some(Err(Blocked::Unavailable(error))) => return Err(error),
            Some(Err(_)) | None => None,
        };
        self.overlay.loaded(&key);
        Ok(loaded)
    }

    /// Writes the block of a group to all present copies, if the group has confirmed values that are in no block.
    async fn write_blocks(
        self: &Arc<Inner>,
        cached: &Arc<Cached>,
        through: u64,
    ) -> Result<Option<Blocks>, SpaceError> {
        let view = self.view.get().value;
        let key = cached.key();
        let Some(at) = route(&view, key) else { return Ok(None) };
        if self.with_table(cached, |table| table.stale().is_empty()) {
            return Ok(None);
        }
        self.learn_blocks(key, &at, cached, u32::MAX).await;
        let present =
            |member: &Member| self.ports.get(member.disk, member.membership?).map(|port| (*member, port));
        let members: Vec<(Member, Arc<Port>)> = at.members.iter().filter_map(present).collect();
        // Before the table may become clean, so that a removal of the disk finds the group in one of the two.
        self.unmarked.lock().insert(key);
        let (units, blocks_of) = self.with_table(cached, |table| {
            let unknown = table.unknown_contents();
            let known = members.iter().filter(|(member, _)| unknown & 1 << member.content == 0);
            let slabs =
                known.fold(0, |slabs, (member, _)| slabs | 1_u32 << (member.slab - at.members[0].slab));
            table.fit(at.slabs());
            let units = table.begin_blocks(through, slabs);
            (units, (0..at.contents()).map(|content| table.block(content)).collect::<Vec<_>>())
        });
        let has_block = |member: &Member| blocks_of[usize::from(member.content)].is_some();
        let is_written = at
            .members
            .iter()
            .all(|member| !member.counts || has_block(member) && members.iter().any(|(m, _)| m == member));
        let mut blocks = Blocks {
            inner: Arc::clone(self),
            cached: Arc::clone(cached),
            units,
            ports: members.iter().map(|(_, port)| Arc::clone(port)).collect(),
            is_whole: is_written,
            is_durable: false,
        };
        let writes = members.iter().filter_map(|(member, port)| {
            let block = blocks_of[usize::from(member.content)].as_ref()?;
            let id = block_id(&view, key.row, key.group, member.generation);
            let src = Sg::from_iter([IoBuf::from(block.encode(&id))]);
            Some(async move { (port, port.write(member.block, src, false).await) })
        });
        for (port, error) in join_all(writes).await.into_iter().filter_map(|(port, r)| Some((port, r.err()?)))
        {
            self.remove_from_service(port.number(), port.membership(), Absence::WriteFailed, error).await?;
        }
        // If the view has changed, a complete copy may lack the block: the snapshot then has its values.
        blocks.is_whole &= self.view.get().value.version == view.version;
        Ok(Some(blocks))
    }

    /// Makes blocks durable, and stripes that were put in place. If a needed disk fails, its blocks and stripes may
    /// be lost, so the log keeps their values.
    async fn flush_blocks(&self, mut blocks: Vec<Blocks>) -> Result<(), SpaceError> {
        let present = self.ports.all();
        let mut ports: Vec<&Arc<Port>> =
            blocks.iter().flat_map(|blocks| &blocks.ports).chain(&present).collect();
        ports.sort_by_key(|port| (port.number(), port.membership()));
        ports.dedup_by_key(|port| Arc::as_ptr(port));
        let dirty = ports.into_iter().filter(|port| port.is_dirty());
        let flushed = join_all(dirty.map(|port| self.flush_port(port))).await;
        if let Some(disk) = flushed.into_iter().flatten().next() {
            return Err(LogError::NotFlushed(disk).into());
        }
        blocks.iter_mut().for_each(|blocks| blocks.is_durable = true);
        Ok(())
    }

    /// Number of undecided groups and regions after a crash. Groups that were in the log at opening count until their
    /// tables are loaded and their units are compared.
    pub(crate) fn in_doubt(&self) -> usize {
        let is_open = |cached: &&Arc<Cached>| self.with_table(cached, |table| table.is_unresolved());
        let open = self.cache.dirty().iter().filter(is_open).count();
        open + self.active.unresolved().len() + self.overlay.groups().len()
    }

    pub(crate) async fn resolve(self: &Arc<Inner>) -> Result<(), SpaceError> {
        for piece in self.to_resolve() {
            self.resolve_piece(&piece).await?;
        }
        Ok(())
    }

    /// The groups that may have undecided units.
    pub(crate) fn to_resolve(&self) -> Vec<OpenPiece> {
        let regions = Regions::new(self.view.get().value.slab_bytes);
        let group = |key| OpenPiece { groups: vec![key], region: None };
        let region = |(set, region): (SetKey, u32)| {
            let key = |group| GroupKey { row: set.row, set: set.set, group };
            OpenPiece { groups: regions.groups(region).map(key).collect(), region: Some((set, region)) }
        };
        let unread = self.overlay.groups().into_iter().map(group);
        let active = self.active.unresolved().into_iter().map(region);
        let dirty = self.cache.dirty().into_iter().map(|cached| group(cached.key()));
        unread.chain(active).chain(dirty).collect()
    }

    pub(crate) async fn resolve_piece(self: &Arc<Inner>, piece: &OpenPiece) -> Result<(), SpaceError> {
        for key in &piece.groups {
            self.resolve_group(*key).await?;
        }
        if let Some((set, region)) = piece.region {
            self.active.resolved(set, region);
        }
        Ok(())
    }

    async fn resolve_group(self: &Arc<Inner>, key: GroupKey) -> Result<(), SpaceError> {
        for first in (0..GROUP_UNITS as usize).step_by(DECIDED_TOGETHER) {
            let target = Target { key, column: key.set, units: first..first + DECIDED_TOGETHER };
            while let Some(cached) = self.loaded(key).await?
                && self.with_table(&cached, |table| table.has_open(target.units.clone()))
            {
                let _lock = self.locks.lock(key, target.units.clone(), Mode::Exclusive).await;
                self.decide(&target, &cached).await?;
            }
        }
        Ok(())
    }
}
