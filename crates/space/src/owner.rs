//! The owner of a space: the state that all of its calls share, and its requests to the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arena::Arena;
use disk::{Disk, DiskError, IoRange, Op};
use env::{Env, Epoch, Io};
use pool_seam::{
    Absence, Coordinator, CopyRegions, DiskNumber, DiskReport, Finding, GROUP, JobId, JobOrder, JobReport,
    Lease, LogState, Membership, NodeId, Owner, OwnerId, OwnerOp, OwnerStatus, Regions, RejoinState, Row,
    RowNumber, SeamError, SpaceId, SpaceView, Turn, ViewVersion,
};
use tokio::sync::{Mutex, Notify, RwLock, Semaphore, SemaphorePermit};

use crate::SpaceError;
use crate::active::Active;
use crate::cache::{Budget, Cache};
use crate::coded::Unplaced;
use crate::disk_marks::DiskMarks;
use crate::findings::Findings;
use crate::jobs::{Jobs, ToFlush};
use crate::locks::RangeLocks;
use crate::log::{LogError, Progress, SpaceLog};
use crate::marks::Mark;
use crate::overlay::Overlay;
use crate::port::{Access, Ports};
use crate::replicas::Replicas;
use crate::requests::Requests;
use crate::retries::Retries;
use crate::size::Limit;
use crate::view::{GroupKey, View};
use crate::waiting_groups::WaitingGroups;
use crate::window::Window;

/// Runs of writes that are in flight at a time for each disk of the space.
const WRITES_FOR_DISK: usize = 64;

/// The delay before a failed operation is retried; also the first pause before an unanswered request is repeated.
pub(crate) const RETRY: Duration = Duration::from_millis(100);

/// The environment of an owner.
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct Settings {
    pub env: Env,
    /// Memory of reads.
    pub arena: Arena,
    pub node: NodeId,
    /// Memory of tables, shared with other spaces.
    pub budget: Arc<Budget>,
    /// The timeout of an I/O to the log.
    pub hang: Duration,
    /// Counts repeated calls, shared with other spaces of the pool.
    pub retries: Arc<Retries>,
    pub coordinator: Arc<dyn Coordinator>,
    pub lease: Arc<dyn Lease>,
    /// Opens a disk of the space, in a membership; `None` if this process cannot access it.
    pub open: OpenDisk,
}

/// See [`Settings::open`].
pub type OpenDisk = Box<dyn Fn(DiskNumber, Membership) -> Option<Arc<dyn Disk>> + Send + Sync>;

/// A space and its owner. Clones share the same owner.
///
/// Calls own their resources: they continue even if the caller stops waiting.
#[derive(Clone)]
pub struct Space(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) arena: Arena,
    pub(crate) owner: OwnerId,
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) lease: Arc<dyn Lease>,
    pub(crate) view: View,
    pub(crate) view_changed: Notify,
    /// Held while the ports and the view may be of different versions.
    following: parking_lot::Mutex<()>,
    pub(crate) ports: Ports,
    pub(crate) cache: Cache<SpaceError>,
    pub(crate) locks: RangeLocks,
    pub(crate) active: Arc<Active>,
    pub(crate) waiting_groups: Arc<WaitingGroups>,
    pub(crate) overlay: Overlay,
    pub(crate) marks: DiskMarks,
    /// Groups whose blocks were written after the marks of the disks.
    pub(crate) unmarked: parking_lot::Mutex<BTreeSet<GroupKey>>,
    pub(crate) writes: Arc<Semaphore>,
    /// All permits of `writes`.
    pub(crate) permits: AtomicUsize,
    pub(crate) budget: Arc<Budget>,
    pub(crate) log: OnceLock<SpaceLog>,
    pub(crate) replicas: Replicas,
    pub(crate) findings: Findings,
    pub(crate) requests: Requests,
    /// Held while slabs of rows are allocated, their first blocks written, and the rows declared ready.
    pub(crate) allocating: Mutex<()>,
    /// Held during a checkpoint, or while filled regions become durable.
    pub(crate) checkpoints: Mutex<()>,
    /// Limits the units of stripes that are in the log and not in place yet.
    pub(crate) unplaced: Unplaced,
    /// Held shared by changes of stripes from before they are in a record until they are in place; held exclusively
    /// during a snapshot, so that no change enters the log meanwhile. See the order in [`crate::locks`].
    pub(crate) placing: RwLock<()>,
    /// Counts stripes from the log that were put in place.
    pub(crate) placed: AtomicU64,
    pub(crate) jobs: Jobs,
    pub(crate) hedged: AtomicU64,
    retries: Arc<Retries>,
    pub(crate) limit: Limit,
    pub(crate) window: Window,
    /// Regions of incomplete copies that lack a write.
    pub(crate) unfilled: parking_lot::Mutex<BTreeSet<CopyRegion>>,
    /// Regions of copies that a job is filling.
    pub(crate) filling: parking_lot::Mutex<BTreeSet<CopyRegion>>,
    /// Filled regions that become durable together.
    pub(crate) to_flush: parking_lot::Mutex<Vec<ToFlush>>,
    pub(crate) resizing: Mutex<()>,
    /// Whether groups were emptied since the last checkpoint began: the next one frees them.
    pub(crate) has_emptied: AtomicBool,
    /// Empty rows that could not be freed because a call used them.
    pub(crate) in_use: parking_lot::Mutex<BTreeSet<RowNumber>>,
    /// Wakes the background task: a replica of the log must be replaced, the stale regions of a disk recorded, or
    /// damage recorded and repaired.
    pub(crate) to_keep: Arc<Notify>,
    /// The regions that may be stale on disks that were removed without this owner's statement.
    unaccounted: parking_lot::Mutex<BTreeMap<(DiskNumber, Membership), StaleSince>>,
}

/// A region of a copy: its row, its allocation, and the bit of the region.
pub(crate) type CopyRegion = (RowNumber, u32, u64);

/// The regions that may be stale on a disk, and the first view without a record of these regions.
type StaleSince = (ViewVersion, Vec<CopyRegions>);

/// The coordinator's decision about a reported disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportOutcome {
    /// The disk was removed from service.
    Removed,
    /// The disk stays in service, because it has the only copy of some data.
    Needed,
}

impl Owner for Space {
    fn update(&self, view: Arc<SpaceView>) {
        self.0.follow(view);
    }

    fn disk_leaving(&self, disk: DiskNumber, of: Membership) -> Io<Result<Vec<CopyRegions>, SeamError>> {
        Io::Done(Ok(self.0.disk_leaving(disk, of)))
    }

    fn disk_stays(&self, disk: DiskNumber, of: Membership) {
        self.0.disk_stays(disk, of);
    }

    fn disk_joining(&self, disk: DiskNumber, of: Membership) -> Io<Result<RejoinState, SeamError>> {
        let inner = Arc::clone(&self.0);
        Io::pending(self.0.env.run(async move { Ok(inner.disk_joining(disk, of).await) }))
    }

    fn run(&self, job: JobId, order: JobOrder) -> Io<Result<JobReport, SeamError>> {
        let report = self.job(job, order);
        let epoch = self.0.owner.epoch;
        Io::pending(async move { report.await.map_err(|error| error.as_seam_error(epoch)) })
    }

    fn stop(&self, job: JobId) {
        self.0.jobs.stop(job);
    }

    fn resize(&self, from: u64, to: u64, destroy: bool) -> Io<Result<(), SeamError>> {
        let (inner, epoch) = (Arc::clone(&self.0), self.0.owner.epoch);
        let resized = self.0.env.run(async move { inner.resize(from, to, destroy).await });
        Io::pending(async move { resized.await.map_err(|error| error.as_seam_error(epoch)) })
    }

    fn close(&self) -> Io<Result<LogState, SeamError>> {
        let (inner, epoch) = (Arc::clone(&self.0), self.0.owner.epoch);
        let closed = self.0.env.run(async move { inner.close().await });
        Io::pending(async move { closed.await.map_err(|error| error.as_seam_error(epoch)) })
    }

    fn status(&self) -> OwnerStatus {
        let dirty = self.0.cache.dirty().len() as u64;
        let unverified = self.0.in_doubt() as u64;
        OwnerStatus { disks: self.0.ports.stats(), dirty, unverified, ..OwnerStatus::default() }
    }
}

impl Space {
    /// The current size, in bytes.
    pub fn size(&self) -> u64 {
        self.0.view.get().value.record.size
    }

    /// Hits and misses of the cache of tables since the space was opened.
    pub fn table_cache(&self) -> (u64, u64) {
        self.0.cache.lookups()
    }

    /// Reads that took so long that the data was read from other disks too, since the space was opened.
    pub fn hedged_reads(&self) -> u64 {
        self.0.hedged.load(Ordering::Relaxed)
    }
}

impl Inner {
    pub(crate) fn new(settings: Settings, view: Arc<SpaceView>) -> Arc<Inner> {
        let Settings { env, arena, node, budget, coordinator, lease, open, retries, .. } = settings;
        let epoch = view.record.ownership.epoch;
        let permits = WRITES_FOR_DISK * view.disks.len();
        let access = Access { env: env.clone(), lease: Arc::clone(&lease), epoch: Epoch(epoch.0) };
        let ports = Ports::new(access, open);
        ports.follow(&view);
        Arc::new(Inner {
            env,
            arena,
            owner: OwnerId { space: view.space, node, epoch },
            coordinator,
            lease,
            ports,
            cache: Cache::new(Arc::clone(&budget)),
            budget,
            locks: RangeLocks::default(),
            active: Arc::default(),
            waiting_groups: Arc::default(),
            overlay: Overlay::default(),
            marks: DiskMarks::default(),
            unmarked: parking_lot::Mutex::default(),
            writes: Arc::new(Semaphore::new(permits)),
            permits: AtomicUsize::new(permits),
            log: OnceLock::new(),
            replicas: Replicas::default(),
            findings: Findings::default(),
            requests: Requests::new(view.record.ownership.request),
            allocating: Mutex::default(),
            checkpoints: Mutex::default(),
            unplaced: Unplaced::default(),
            placing: RwLock::default(),
            placed: AtomicU64::new(0),
            jobs: Jobs::default(),
            hedged: AtomicU64::new(0),
            retries,
            limit: Limit::default(),
            window: Window::default(),
            unfilled: parking_lot::Mutex::default(),
            filling: parking_lot::Mutex::default(),
            to_flush: parking_lot::Mutex::default(),
            resizing: Mutex::default(),
            has_emptied: AtomicBool::new(false),
            in_use: parking_lot::Mutex::default(),
            to_keep: Arc::default(),
            unaccounted: parking_lot::Mutex::default(),
            view: View::new(view),
            view_changed: Notify::new(),
            following: parking_lot::Mutex::default(),
        })
    }

    pub(crate) fn space(&self) -> SpaceId {
        self.owner.space
    }

    /// Counts a call to a disk that is repeated.
    pub(crate) fn note_retry(&self, disk: DiskNumber) {
        self.retries.add(self.space(), disk);
    }

    /// The log.
    pub(crate) fn log(&self) -> &SpaceLog {
        self.log.get().expect("a space that is ready has a log")
    }

    /// The progress of the log.
    pub(crate) fn progress(&self) -> Progress {
        self.log.get().map(SpaceLog::reached).unwrap_or_default()
    }

    /// Switches to a new view.
    pub(crate) fn follow(&self, view: Arc<SpaceView>) {
        // Done before a flush skips the disk.
        if self.view.get().value.version < view.version {
            self.note_unaccounted(&view);
        }
        {
            let _following = self.following.lock();
            self.ports.follow(&view);
            if !self.view.update(Arc::clone(&view)) {
                return;
            }
        }
        self.allow_writes(WRITES_FOR_DISK * view.disks.len());
        self.follow_replicas(&view);
        self.view_changed.notify_waiters();
    }

    /// Allows this many writes in flight, unless more are allowed already: the space has more disks.
    fn allow_writes(&self, permits: usize) {
        let before = self.permits.fetch_max(permits, Ordering::SeqCst);
        self.writes.add_permits(permits.saturating_sub(before));
    }

    /// Takes all permits of writes: writes that began before have ended.
    pub(crate) async fn all_writes(&self) -> Result<SemaphorePermit<'_>, LogError> {
        loop {
            let all = self.permits.load(Ordering::SeqCst);
            let number = u32::try_from(all).expect("few disks");
            let permits = self.writes.acquire_many(number).await.map_err(|_| LogError::Closed)?;
            // More permits may have been added meanwhile.
            if self.permits.load(Ordering::SeqCst) == all {
                return Ok(permits);
            }
        }
    }

    /// Waits until the view is at least as new as the ports. Blocks briefly.
    pub(crate) fn wait_for_view(&self) {
        drop(self.following.lock());
    }

    /// The groups of a row, in their order; empty if it has no slabs.
    pub(crate) fn groups(&self, row: RowNumber) -> Vec<GroupKey> {
        let view = self.view.get().value;
        let Some(record) = view.record.rows.get(&row) else { return Vec::new() };
        let sets = 0..view.record.shape_of(record).sets();
        let of_set =
            |set| (0..(view.slab_bytes / GROUP) as u32).map(move |group| GroupKey { row, set, group });
        sets.flat_map(of_set).collect()
    }

    /// Returns a view that is newer than the current one, if there is one.
    pub(crate) async fn newest_view(&self) -> Result<Option<Arc<SpaceView>>, SpaceError> {
        let known = self.view.get().value.version;
        Ok(self.coordinator.view(self.owner, Some(known)).wait().await?)
    }

    /// The next turn of a job.
    pub(crate) async fn turn(&self, job: JobId, done: pool_seam::Progress) -> Result<Turn, SeamError> {
        self.coordinator.turn(self.owner, job, done).wait().await
    }

    /// Reports damage to the coordinator.
    pub(crate) fn report_finding(&self, finding: Finding) {
        self.coordinator.report_finding(self.owner, finding);
    }

    /// Reports a disk whose I/O failed.
    pub(crate) async fn report(
        &self,
        disk: DiskNumber,
        of: Membership,
        reason: Absence,
        error: DiskError,
    ) -> Result<ReportOutcome, SpaceError> {
        let mut pause = RETRY;
        loop {
            // The disk may be healthy, but have no slabs of this space any more.
            if !self.ports.has(disk, of) {
                // The caller must use the new view, not the previous one.
                self.wait_for_view();
                return Ok(ReportOutcome::Removed);
            }
            let report = DiskReport { disk, membership: of, reason, error };
            match self.coordinator.disk_failed(self.owner, report).wait().await {
                Ok(view) => {
                    self.follow(view);
                    return Ok(ReportOutcome::Removed);
                }
                Err(SeamError::Needed(_)) => return Ok(ReportOutcome::Needed),
                Err(error) => self.pause(error, &mut pause).await?,
            }
        }
    }

    /// Reports a disk that has to be removed from service. Fails with [`SpaceError::Disk`] if it is needed.
    pub(crate) async fn remove_from_service(
        &self,
        disk: DiskNumber,
        of: Membership,
        reason: Absence,
        error: DiskError,
    ) -> Result<(), SpaceError> {
        match self.report(disk, of, reason, error).await? {
            ReportOutcome::Removed => Ok(()),
            ReportOutcome::Needed => Err(SpaceError::Disk { disk, error }),
        }
    }

    /// Rule 11: the regions that may be stale on the disk despite its mark.
    fn disk_leaving(&self, disk: DiskNumber, of: Membership) -> Vec<CopyRegions> {
        self.ports.set_leaving(disk, of, true);
        let stale = self.may_lack(disk);
        self.replicas_on(disk, of, SpaceLog::replica_leaving);
        stale
    }

    /// Records the regions that may be stale on absent disks for which a view has no record. Before an opening has read
    /// the log these are unknown, but nothing is flushed then either.
    pub(crate) fn note_unaccounted(&self, view: &SpaceView) {
        if view.record.unaccounted.is_empty() || self.log.get().is_none() {
            return;
        }
        let mut noted = self.unaccounted.lock();
        for (&disk, &of) in &view.record.unaccounted {
            noted.entry((disk, of)).or_insert_with(|| {
                let present = self.view.get().value;
                let lacks = match present.membership(disk) == Some(of) {
                    true => self.disk_leaving(disk, of),
                    // The disk was removed before.
                    false => self.may_lack(disk),
                };
                (view.version, lacks)
            });
        }
        self.to_keep.notify_one();
    }

    /// Commits the stale regions of disks that were removed without this owner's statement.
    pub(crate) async fn account(&self) -> Result<(), SpaceError> {
        loop {
            let first = self.unaccounted.lock().first_key_value().map(|(at, lacks)| (*at, lacks.clone()));
            let Some(((disk, of), (since, lacks))) = first else { return Ok(()) };
            let view = self.view.get().value;
            if view.version < since {
                // The new view arrives soon.
                self.env.sleep(RETRY).await;
                continue;
            }
            let is_done = view.record.unaccounted.get(&disk) != Some(&of) || {
                let seen = view.membership(disk);
                let stale = lacks.iter().filter_map(|of| {
                    let CopyRegions { row, generation, regions } = *of;
                    let copies = view.record.rows.get(&row)?.copies();
                    let mut copies = copies.filter(|(_, copy)| copy.generation == generation);
                    let index = copies.next()?.0 as u8;
                    Some(OwnerOp::MarkStale { row, index, generation, regions, membership: seen })
                });
                self.commit_if_fits(stale.chain([OwnerOp::Accounted { disk, membership: of }]).collect())
                    .await?
            };
            if is_done {
                self.unaccounted.lock().remove(&(disk, of));
            }
        }
    }

    /// Regions of a disk that may lack values of the log, the tables or writes in flight.
    pub(crate) fn may_lack(&self, disk: DiskNumber) -> Vec<CopyRegions> {
        let view = self.view.get().value;
        let regions = Regions::new(view.slab_bytes);
        let mut out = Vec::new();
        let mut add = |row: RowNumber, set: Option<u8>, regions: u64| {
            let Some(record) = view.record.rows.get(&row) else { return };
            let resiliency = view.record.resiliency_of(record);
            let is_of = |index: usize| {
                let set_of = record.slab_of(index) / resiliency.copies();
                resiliency.is_parity() || set.is_none_or(|set| set_of == usize::from(set))
            };
            let here = record.copies().filter(|(index, copy)| copy.place.disk == disk && is_of(*index));
            out.extend(here.map(|(_, copy)| CopyRegions { row, generation: copy.generation, regions }));
        };
        // In the order in which a group moves from one collection to the next, so that no group is missed.
        let mut groups: BTreeSet<GroupKey> = self.overlay.groups().into_iter().collect();
        groups.extend(self.cache.dirty().iter().map(|cached| cached.key()));
        groups.extend(self.unmarked.lock().iter().copied());
        for key in groups {
            add(key.row, Some(key.set), regions.of_group(key.group));
        }
        for (set, region) in self.active.unresolved() {
            add(set.row, Some(set.set), 1 << region);
        }
        for (row, _) in
            view.record.rows.iter().filter(|(row, record)| record.is_new || **row == RowNumber::LOG)
        {
            add(*row, None, u64::MAX);
        }
        out
    }

    /// Rule 9: the state of a disk that is about to join.
    async fn disk_joining(&self, disk: DiskNumber, of: Membership) -> RejoinState {
        self.ports.drained(disk).await;
        if let Err(error) = self.account().await {
            tracing::warn!(space = self.space().0, disk = disk.0, %error, "the stale regions of a disk cannot be recorded");
        }
        let view = self.view.get().value;
        let Some(port) = self.ports.open(disk, of) else {
            return RejoinState::Unreadable(DiskError::Gone { at: IoRange::whole(Op::Read) });
        };
        let found = match self.read_mark(&view, &port).await {
            Ok(found) => found,
            Err(error) => return RejoinState::Unreadable(error),
        };
        let was_rolled_back = self.marks.is_rolled_back(disk, found);
        if let Some(found) = found {
            // Recorded so that the next mark has a higher count.
            self.marks.found(disk, of.0, found);
        }
        let is_accounted = !view.record.unaccounted.contains_key(&disk);
        if let Some(Mark { mark, .. }) = found.filter(|_| !was_rolled_back && is_accounted) {
            return RejoinState::Proven { mark };
        }
        let others =
            |row: &Row| row.copies().any(|(_, copy)| copy.place.disk != disk && copy.stale_regions == 0);
        let on_disk = |row: &Row| row.copies().any(|(_, copy)| copy.place.disk == disk);
        // A new row is empty.
        let rows = view.record.rows.iter().filter(|(row, of)| !of.is_new || **row == RowNumber::LOG);
        let only = rows.filter(|(_, row)| on_disk(row) && !others(row));
        let only: Vec<RowNumber> = only.map(|(row, _)| *row).collect();
        if only.is_empty() { RejoinState::RolledBack } else { RejoinState::OnlyCopy(only) }
    }

    fn disk_stays(&self, disk: DiskNumber, of: Membership) {
        self.ports.set_leaving(disk, of, false);
        self.replicas_on(disk, of, |log, generation| self.replicas.replica_stays(log, generation));
    }

    /// Calls `act` for the log's replicas on a disk, unless a late message refers to an earlier membership of the
    /// disk.
    fn replicas_on(&self, disk: DiskNumber, of: Membership, act: impl Fn(&SpaceLog, u32)) {
        if !self.ports.has(disk, of) {
            return;
        }
        let view = self.view.get().value;
        let (Some(row), Some(log)) = (view.log_row(), self.log.get()) else { return };
        let here = row.copies().filter(|(_, copy)| copy.place.disk == disk);
        here.for_each(|(_, copy)| act(log, copy.generation));
    }

    /// Waits for a flush of a set, and then for the lease (rule 4).
    pub(crate) async fn confirmed(
        &self,
        wait: impl Future<Output = Result<(), LogError>>,
    ) -> Result<(), SpaceError> {
        wait.await?;
        self.lease.hold().wait().await.map_err(SpaceError::from)
    }
}
