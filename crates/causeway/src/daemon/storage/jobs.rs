//! Repairs an open pool in the background: one task finds the work, and each job is a task on the pool's
//! board ([`pool::jobs::Board`]), which decides which job runs and how fast.
//!
//! Invariant: a disk that is behind, or a region in doubt, has a job after at most a minute, unless the job
//! was stopped by command. A job that cannot continue (its disks are absent, an I/O failed) stays listed with
//! the reason and tries again when a disk joins or leaves, or after a minute.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use env::Env;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use pool::events::DamageKind;
use pool::jobs::pacer::Pacing;
use pool::jobs::{DelayReason, Job, JobId, JobState, Kind, NoSuchJob, NotMoved, Subject};
use pool::{DiskNumber, Pool, Presence, ScrubRecord, SpaceId, State};
use pool_local::LocalPool;
use tokio::sync::Notify;

use super::error::StorageError;
use super::open_pool::OpenPool;
use super::pools::{Pools, done};
use super::reporter::{EventReporter, ReportedJob};
use crate::config::JobsSection;
use crate::control::storage::{JobChange, JobStatus};
use crate::control::types::Changed;

/// A job that could not continue tries again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The free bytes from which on a file system no longer counts as full; and the interval of checks of full ones.
const FREE_SPACE_MIN: u64 = 4 << 20;
const FREE_SPACE_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of passes of a resync that finds more stale data each time, and the pause between two passes.
/// After the last pass it waits like a failed job.
const PASSES: u32 = 20;
const PASS_PAUSE: Duration = Duration::from_millis(500);

/// The background work of an open pool; it ends with the owners.
pub(super) struct Repairer {
    env: Env,
    pool: Pool,
    local: Arc<LocalPool>,
    work_available: Notify,
    /// Jobs that were stopped by command: they start again when a disk is returned to the pool, or at the
    /// next start.
    stopped_by_command: Mutex<BTreeSet<(Kind, Subject)>>,
    stopping: AtomicBool,
    /// The interval between two scrubs of a space, in seconds; 0: scrubs are off.
    scrub_every_s: u64,
    reporter: EventReporter,
}

impl Repairer {
    /// Starts the repairs after a crash or an absence.
    pub(super) fn start(
        env: &Env,
        pool: &Pool,
        local: &Arc<LocalPool>,
        jobs: JobsSection,
        reporter: &EventReporter,
    ) -> Arc<Repairer> {
        let target = Duration::from_millis(jobs.latency_ms);
        pool.jobs().set_pacing(Pacing { target, minimum: jobs.minimum, ..Pacing::default() });
        let repairer = Arc::new(Repairer {
            env: env.clone(),
            pool: pool.clone(),
            local: Arc::clone(local),
            work_available: Notify::new(),
            stopped_by_command: Mutex::default(),
            stopping: AtomicBool::new(false),
            scrub_every_s: jobs.scrub_days * 24 * 60 * 60,
            reporter: reporter.clone(),
        });
        env.spawn(Arc::clone(&repairer).run());
        repairer
    }

    /// Checks for work, for example because a disk joined; jobs that were stopped by command may start again.
    pub(super) fn check_for_work(&self) {
        self.stopped_by_command.lock().clear();
        self.work_available.notify_one();
    }

    /// Stops all jobs after their current pieces.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.work_available.notify_one();
        self.pool.jobs().stop_all().await;
    }

    async fn run(self: Arc<Repairer>) {
        while !self.stopping.load(Ordering::Relaxed) {
            let full = !self.pool.events().full().is_empty();
            let change = self.change_within(if full { FREE_SPACE_INTERVAL } else { RETRY_INTERVAL });
            if !self.local.in_doubt().is_empty()
                && let Some(job) = self.begin(Kind::Resolve, Subject::Pool)
            {
                self.env.spawn(Arc::clone(&self).resolve(job));
            }
            for space in self.pool.to_reshape() {
                if let Some(job) = self.begin(Kind::Reshape, Subject::Space(space)) {
                    self.env.spawn(Arc::clone(&self).reshape(job, space));
                }
            }
            let reshaping = self.reshaping();
            for disk in self.pool.read(|s| stale_disks(s, &reshaping)) {
                if let Some(job) = self.begin(Kind::Resync, Subject::Disk(disk)) {
                    self.env.spawn(Arc::clone(&self).resync(job, disk));
                }
            }
            self.report_freed_space();
            self.scrub_due().await;
            select(std::pin::pin!(change), std::pin::pin!(self.work_available.notified())).await;
        }
    }

    /// Spaces with a running job that changes their shape. It also copies the missed writes of their copies.
    fn reshaping(&self) -> BTreeSet<SpaceId> {
        let works = |job: &JobState| {
            matches!(job.why, None | Some(DelayReason::Paced { .. } | DelayReason::AfterJob(..)))
        };
        let jobs = self.pool.jobs().list().into_iter();
        let jobs = jobs.filter(|job| job.kind == Kind::Reshape && works(job));
        let space = |job: JobState| match job.subject {
            Subject::Space(space) => Some(space),
            Subject::Pool | Subject::Disk(_) => None,
        };
        jobs.filter_map(space).collect()
    }

    /// Starts to change the shape of a space, also if its job was stopped by command.
    pub(super) fn reshape_now(&self, space: SpaceId) {
        self.stopped_by_command.lock().remove(&(Kind::Reshape, Subject::Space(space)));
        self.work_available.notify_one();
    }

    /// Reports disks that failed because their file system was full, and that may return because it has space again.
    fn report_freed_space(&self) {
        for disk in self.pool.events().full() {
            let path = self.pool.members().get(disk).map(|m| m.disk.info().path.clone());
            if path.is_some_and(|path| has_free_space(&path)) {
                self.pool.events().has_room(disk);
            }
        }
    }

    /// Starts a job and reports it, unless it exists already or was stopped by command.
    fn begin(&self, kind: Kind, subject: Subject) -> Option<ReportedJob> {
        let is_stopped = self.stopped_by_command.lock().contains(&(kind, subject));
        if is_stopped { None } else { self.reporter.begin(self.pool.jobs(), kind, subject) }
    }

    /// Completes when a disk joins or leaves, or after [`RETRY_INTERVAL`].
    fn change(&self) -> impl Future<Output = ()> + Send + use<> {
        self.change_within(RETRY_INTERVAL)
    }

    fn change_within(&self, time: Duration) -> impl Future<Output = ()> + Send + use<> {
        let (mut changes, env) = (self.pool.changes(), self.env.clone());
        async move {
            let changed = std::pin::pin!(changes.changed());
            let passed = std::pin::pin!(env.sleep(time));
            if let Either::Left((Err(_), passed)) = select(changed, passed).await {
                // The pool reports no more changes: only the time remains.
                passed.await;
            }
        }
    }

    /// Whether a job was stopped. Records that it was stopped by command, unless all jobs are being stopped.
    fn must_end(&self, job: &Job, what: (Kind, Subject)) -> bool {
        if job.is_stopped() && !self.stopping.load(Ordering::Relaxed) {
            self.stopped_by_command.lock().insert(what);
        }
        job.is_stopped()
    }

    async fn resolve(self: Arc<Repairer>, job: ReportedJob) {
        let name = self.name();
        let differed = || self.pool.events().count(DamageKind::Unsettled);
        let before = differed();
        loop {
            let change = self.change();
            job.forget_unfinished();
            let result = self.pool.resolve_all(&job).await;
            if self.must_end(&job, (Kind::Resolve, Subject::Pool)) {
                return;
            }
            if self.local.in_doubt().is_empty() {
                let blocks = differed().saturating_sub(before);
                tracing::info!(
                    pool = name,
                    blocks,
                    "blocks that differed after a crash are equal on all copies again"
                );
                return;
            }
            let why = match result {
                Err(error) => DelayReason::Failed(error.to_string()),
                Ok(()) => DelayReason::DisksAbsent(self.pool.read(absent)),
            };
            tracing::warn!(pool = name, %why, "some blocks in doubt after a crash could not be resolved");
            if !job.wait_for(why, change).await {
                self.must_end(&job, (Kind::Resolve, Subject::Pool));
                return;
            }
        }
    }

    async fn resync(self: Arc<Repairer>, job: ReportedJob, disk: DiskNumber) {
        let (name, number) = (self.name(), disk.0);
        tracing::info!(pool = name, disk = number, "the resync of a disk has started");
        let mut passes = 0;
        loop {
            let change = self.change();
            job.forget_unfinished();
            let result = self.pool.resync(disk, &job).await;
            if self.must_end(&job, (Kind::Resync, Subject::Disk(disk))) {
                return;
            }
            let why = match (result, self.pool.read(|s| waits_for(s, disk, &self.reshaping()))) {
                (_, None) => {
                    tracing::info!(
                        pool = name,
                        disk = number,
                        "the disk is up to date, or was removed from service"
                    );
                    return;
                }
                (Err(error), _) => DelayReason::Failed(error.to_string()),
                // Writes were missed after the check, or a write failed: makes another pass.
                (Ok(()), Some(disks)) if disks.is_empty() && passes < PASSES => {
                    passes += 1;
                    self.env.sleep(PASS_PAUSE).await;
                    continue;
                }
                (Ok(()), Some(disks)) if disks.is_empty() => {
                    DelayReason::Failed("not all missed writes could be copied".to_owned())
                }
                (Ok(()), Some(disks)) => DelayReason::DisksAbsent(disks),
            };
            tracing::warn!(pool = name, disk = number, %why, "the disk is not up to date");
            if !job.wait_for(why, change).await {
                self.must_end(&job, (Kind::Resync, Subject::Disk(disk)));
                return;
            }
            passes = 0;
        }
    }

    async fn reshape(self: Arc<Repairer>, job: ReportedJob, space: SpaceId) {
        let name = self.pool.read(|s| s.spaces.get(&space).map_or_else(String::new, |r| r.name.clone()));
        tracing::info!(space = name, "the resiliency or columns of a virtual disk are being changed");
        let mut passes = 0;
        loop {
            let change = self.change();
            job.forget_unfinished();
            let result = self.pool.reshape(space, &job).await;
            if self.must_end(&job, (Kind::Reshape, Subject::Space(space))) {
                return;
            }
            let is_changing = self.pool.to_reshape().contains(&space);
            let why = match result {
                _ if !is_changing && self.pool.read(|s| !s.spaces.contains_key(&space)) => return,
                // Resyncs copy the missed writes to disks that left or joined meanwhile.
                Ok(_) if !is_changing => {
                    tracing::info!(
                        space = name,
                        "all data of the virtual disk has the new resiliency and columns"
                    );
                    self.work_available.notify_one();
                    return;
                }
                Ok(None | Some(NotMoved::Shape | NotMoved::Unfinished)) if passes < PASSES => {
                    passes += 1;
                    self.env.sleep(PASS_PAUSE).await;
                    continue;
                }
                Ok(Some(NotMoved::NoPlace(none))) => DelayReason::Failed(none.to_string()),
                Ok(why) => match (self.pool.read(absent), why) {
                    (away, _) if !away.is_empty() => DelayReason::DisksAbsent(away),
                    (_, Some(why)) => DelayReason::Failed(why.to_string()),
                    (_, None) => DelayReason::Failed("rows were added during the change".to_owned()),
                },
                Err(error) => DelayReason::Failed(error.to_string()),
            };
            tracing::warn!(space = name, %why, "not all data has the new resiliency and columns");
            if !job.wait_for(why, change).await {
                self.must_end(&job, (Kind::Reshape, Subject::Space(space)));
                return;
            }
            passes = 0;
        }
    }

    /// Continues scrubs after a restart, and starts those that are due.
    async fn scrub_due(self: &Arc<Repairer>) {
        let (now, every) = (self.env.unix_time().as_secs(), self.scrub_every_s);
        let spaces: Vec<(SpaceId, ScrubRecord)> =
            self.pool.read(|s| s.spaces.iter().map(|(space, record)| (*space, record.scrub)).collect());
        for (space, record) in spaces {
            let is_asked = record.began != 0 && record.by_command;
            let is_due = record.began != 0 || (record.since != 0 && now >= record.since + every);
            let kind = if is_asked { Kind::Repair } else { Kind::Scrub };
            let subject = Subject::Space(space);
            // A repair of a space reads the same data as its scrub.
            let reads = |j: &JobState| j.subject == subject && matches!(j.kind, Kind::Repair | Kind::Scrub);
            if record.began == 0 && record.since == 0 && every > 0 {
                // It fails only if the pool accepts no changes, which is reported elsewhere.
                let _ = self.pool.await_scrub(space).await;
            } else if (is_asked || (every > 0 && is_due))
                && !self.pool.jobs().list().iter().any(reads)
                && let Some(job) = self.begin(kind, subject)
            {
                self.env.spawn(Arc::clone(self).scrub(job, kind, space, false));
            }
        }
    }

    async fn scrub(self: Arc<Repairer>, job: ReportedJob, kind: Kind, id: SpaceId, mut anew: bool) {
        let name = self.pool.read(|s| s.spaces.get(&id).map_or_else(String::new, |r| r.name.clone()));
        loop {
            let change = self.change();
            job.forget_unfinished();
            self.scrub_metadata(&job).await;
            match self.pool.scrub(id, kind == Kind::Repair, anew, &job).await {
                Ok(true) => {
                    let (healed, lost) = job.findings();
                    tracing::info!(space = name, healed, lost, "every copy was read");
                    return;
                }
                Ok(false) => {
                    self.must_end(&job, (kind, Subject::Space(id)));
                    return;
                }
                Err(error) => {
                    tracing::warn!(space = name, %error, "not every copy could be read");
                    let gone = self.pool.read(|s| !s.spaces.contains_key(&id));
                    if gone {
                        job.fail(error.to_string());
                    }
                    if gone || !job.wait_for(DelayReason::Failed(error.to_string()), change).await {
                        self.must_end(&job, (kind, Subject::Space(id)));
                        return;
                    }
                    anew = false;
                }
            }
        }
    }

    /// Scrubs the pool's metadata with each scrub of a space: otherwise it is not read while the pool is open.
    async fn scrub_metadata(&self, job: &Job) {
        match self.pool.scrub_metadata().await {
            Ok(found) => {
                job.add_damaged_units(found.values().sum(), 0);
                self.pool.events().metadata(&found);
            }
            Err(error) => tracing::warn!(pool = self.name(), %error, "cannot read labels and metadata"),
        }
    }

    /// Starts to read every copy of a space and to repair damaged data; false if a repair runs already, or all jobs are
    /// being stopped.
    fn repair(self: &Arc<Repairer>, space: SpaceId) -> Result<bool, StorageError> {
        let subject = Subject::Space(space);
        let Some(job) = self.reporter.begin(self.pool.jobs(), Kind::Repair, subject) else {
            return Ok(false);
        };
        // A scheduled scrub would read the same data: it is stopped, and the next interval starts at the end of this
        // repair.
        let scrubs = |j: &JobState| (j.kind, j.subject) == (Kind::Scrub, subject);
        if let Some(scrub) = self.pool.jobs().list().into_iter().find(scrubs) {
            let _ = self.pool.jobs().stop(scrub.id);
        }
        self.stopped_by_command.lock().remove(&(Kind::Repair, subject));
        self.env.spawn(Arc::clone(self).scrub(job, Kind::Repair, space, true));
        Ok(true)
    }

    fn name(&self) -> String {
        self.pool.read(|s| s.name.clone())
    }
}

impl OpenPool {
    fn describe_jobs(&self) -> Vec<JobStatus> {
        self.pool.jobs().list().into_iter().map(|job| self.describe_job(job)).collect()
    }

    fn describe_job(&self, job: JobState) -> JobStatus {
        let pool = self.name();
        let object = match job.subject {
            Subject::Pool => pool.clone(),
            Subject::Disk(disk) => format!("{pool}, disk {}", disk.0),
            Subject::Space(space) => self.pool.read(|s| {
                s.spaces.get(&space).map_or_else(|| format!("space {}", space.0), |r| r.name.clone())
            }),
        };
        let state = match job.why {
            None | Some(DelayReason::Paced { .. }) => "Running",
            Some(DelayReason::Paused) => "Suspended",
            Some(DelayReason::Stopping) => "Shutting down",
            Some(
                DelayReason::AfterJob(..)
                | DelayReason::DisksAbsent(_)
                | DelayReason::Failed(_)
                | DelayReason::Incomplete(_),
            ) => "Waiting",
        };
        JobStatus {
            id: job.id.0,
            name: job.kind.name().to_owned(),
            object,
            pool,
            elapsed_s: job.elapsed.as_secs(),
            state: state.to_owned(),
            percent_complete: (job.done * 100).checked_div(job.total).map_or(0, |p| p.min(100)),
            bytes_processed: job.done,
            bytes_total: job.total,
            bytes_left: job.total.saturating_sub(job.done),
            bytes_per_s: job.rate,
            eta_s: job.eta.map(|e| e.as_secs()),
            reason: job.why.map(|w| w.to_string()),
        }
    }
}

impl Pools {
    /// The running jobs.
    pub fn jobs(&self) -> Vec<JobStatus> {
        let mut jobs: Vec<_> = self.open_pools().iter().flat_map(|o| o.describe_jobs()).collect();
        jobs.sort_by_key(|j| j.id);
        jobs
    }

    /// Pauses, resumes or stops a job.
    ///
    /// # Errors
    /// [`StorageError::NoJob`].
    pub fn change_job(&self, id: u64, change: JobChange) -> Result<Changed, StorageError> {
        for open in self.open_pools() {
            let changed = match change {
                JobChange::Pause => open.pool.jobs().pause(JobId(id)),
                JobChange::Resume => open.pool.jobs().resume(JobId(id)),
                JobChange::Stop => open.pool.jobs().stop(JobId(id)),
            };
            match changed {
                Err(NoSuchJob(_)) => continue,
                Ok(()) => {
                    let word = match change {
                        JobChange::Pause => "paused until causeway job resume, or a restart of the server",
                        JobChange::Resume => "resumed",
                        JobChange::Stop => "stopped; its completed work is kept",
                    };
                    return Ok(done(format!("job {id} {word}"), Vec::new()));
                }
            }
        }
        Err(StorageError::NoJob(id))
    }

    /// Starts to read every copy of a virtual disk and to repair damaged data.
    ///
    /// # Errors
    /// See [`StorageError`]: there is none of that name, or its pool is open for reading only.
    pub async fn repair_space(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.space_to_change(name)?;
        let repairer = open.repairer().ok_or(StorageError::Commit(pool::CommitError::ReadOnly))?;
        let text = match repairer.repair(space)? {
            true => format!("the repair of {name} has started: see causeway job list"),
            false => format!("the repair of {name} is running already: see causeway job list"),
        };
        Ok(done(text, Vec::new()))
    }
}

/// Present disks that have missed writes, of other spaces than these.
fn stale_disks(state: &State, reshaping: &BTreeSet<SpaceId>) -> Vec<DiskNumber> {
    let spaces = state.spaces.iter().filter(|(space, _)| !reshaping.contains(space));
    let copies = spaces.flat_map(|(_, record)| {
        let copies = record.data_rows().flat_map(|(_, row)| row.slabs.iter());
        copies.filter(|copy| record.stale_regions(copy) != 0)
    });
    let behind: BTreeSet<DiskNumber> = copies.map(|copy| copy.place.disk).collect();
    behind.into_iter().filter(|d| state.is_present(*d)).collect()
}

/// The absent disks.
fn absent(state: &State) -> Vec<DiskNumber> {
    state.disks.iter().filter(|(_, r)| r.presence != Presence::Present).map(|(d, _)| *d).collect()
}

/// The absent disks with the data that a present disk has missed, in spaces other than these. Empty if present disks
/// have the data; `None` if nothing was missed.
fn waits_for(state: &State, disk: DiskNumber, reshaping: &BTreeSet<SpaceId>) -> Option<Vec<DiskNumber>> {
    if !state.is_present(disk) {
        return None;
    }
    let (mut behind, mut away) = (false, BTreeSet::new());
    let spaces = state.spaces.iter().filter(|(space, _)| !reshaping.contains(space));
    let rows = spaces.flat_map(|(_, record)| record.data_rows().map(move |(_, row)| (record, row)));
    for (record, row) in rows {
        let stale = |copy: &pool::SlabCopy| record.stale_regions(copy);
        for column in row.slabs.chunks(record.shape_of(row).slabs_in_set().max(1)) {
            for mine in column.iter().filter(|c| c.place.disk == disk && stale(c) != 0) {
                behind = true;
                let has =
                    |c: &&pool::SlabCopy| !stale(c) & stale(mine) != 0 && !state.is_present(c.place.disk);
                away.extend(column.iter().filter(has).map(|c| c.place.disk));
            }
        }
    }
    behind.then(|| away.into_iter().collect())
}

/// Whether the file system of a disk's file has at least [`FREE_SPACE_MIN`] free bytes; false for a device, even a
/// thin one, because its free space is unknown.
fn has_free_space(path: &Path) -> bool {
    let room = |path| {
        rustix::fs::statvfs(path).is_ok_and(|s| s.f_bavail.saturating_mul(s.f_frsize) >= FREE_SPACE_MIN)
    };
    path.is_file() && room(path)
}

#[cfg(test)]
mod tests;
