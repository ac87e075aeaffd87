//! Reports what happens to an open pool as events, including the start and the result of its jobs.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use env::Env;
use parking_lot::Mutex;
use pool::jobs::{Board, Job, Kind, Subject};
use pool::{DiskNumber, Pool};

use super::describe;
use crate::control::events::{EventKind, Happening};
use crate::control::health::{ERROR, INFORMATION, WARNING};
use crate::daemon::events::Events;
use crate::output::{human_bytes, human_seconds, some};

/// See the module.
#[derive(Clone)]
pub(super) struct EventReporter {
    env: Env,
    events: Arc<Events>,
    pool: Pool,
    /// The paths of disks; for absent disks the last known paths.
    paths: Arc<Mutex<BTreeMap<DiskNumber, PathBuf>>>,
}

/// A job whose end is reported when it is dropped.
pub(super) struct ReportedJob {
    job: Job,
    kind: Kind,
    object: String,
    began: Instant,
    failure: Mutex<Option<String>>,
    reporter: EventReporter,
}

impl EventReporter {
    pub(super) fn new(env: &Env, events: &Arc<Events>, pool: &Pool) -> EventReporter {
        let (env, events, pool) = (env.clone(), Arc::clone(events), pool.clone());
        let reporter = EventReporter { env, events, pool, paths: Arc::default() };
        reporter.paths();
        reporter
    }

    /// The paths of its disks; for absent disks the last known paths since the pool was opened.
    pub(super) fn paths(&self) -> BTreeMap<DiskNumber, PathBuf> {
        let mut paths = self.paths.lock();
        paths.extend(self.pool.members().iter().map(|m| (m.number, m.disk.info().path.clone())));
        paths.clone()
    }

    /// Reports an event of the pool as a whole.
    pub(super) fn report(&self, kind: EventKind, message: String) {
        self.report_object(kind, self.object(Subject::Pool), message);
    }

    /// Reports an event of an object of the pool.
    pub(super) fn report_object(&self, kind: EventKind, object: String, message: String) {
        self.events.record(self.happening(kind, object, message));
    }

    /// Reports a warning.
    pub(super) fn report_warning(&self, kind: EventKind, subject: Subject, message: String) {
        let what = self.happening(kind, self.object(subject), message);
        self.events.record(Happening { perceived_severity: WARNING, ..what });
    }

    /// The description of an object of the pool, the same as in faults.
    pub(super) fn object(&self, subject: Subject) -> String {
        let paths = self.paths();
        self.pool.read(|s| match subject {
            Subject::Pool => format!("pool {}", s.name),
            Subject::Disk(disk) => describe::disk_text(s, disk, &paths),
            Subject::Space(space) => match s.spaces.get(&space) {
                Some(record) => format!("virtual disk {}", record.name),
                None => format!("virtual disk {}", space.0),
            },
        })
    }

    /// Starts a job and reports it. `None` if the object has such a job already, or all jobs are being stopped.
    pub(super) fn begin(&self, board: &Arc<Board>, kind: Kind, subject: Subject) -> Option<ReportedJob> {
        let job = board.begin(kind, subject)?;
        let object = self.object(subject);
        let message = format!("{} (job {}) has started", kind.name(), job.id().0);
        self.report_object(EventKind::JobStarted, object.clone(), message);
        let (began, failure, reporter) = (self.env.now(), Mutex::default(), self.clone());
        Some(ReportedJob { job, kind, object, began, failure, reporter })
    }

    fn happening(&self, kind: EventKind, object: String, message: String) -> Happening {
        Happening::new(kind, &self.pool.read(|s| s.name.clone()), object, message)
    }
}

impl ReportedJob {
    /// Records that the job failed.
    pub(super) fn fail(&self, why: String) {
        *self.failure.lock() = Some(why);
    }

    /// The severity and the text of the result.
    fn result(&self) -> (u8, String) {
        let ((done, total), (healed, lost)) = (self.job.bytes(), self.job.findings());
        let elapsed = self.reporter.env.now().saturating_duration_since(self.began);
        let time = human_seconds(elapsed.as_secs());
        let (severity, ended) = match self.failure.lock().take() {
            Some(why) => (WARNING, format!("failed after {time}: {why}")),
            None if self.job.is_stopped() && total == 0 => (INFORMATION, "was stopped".to_owned()),
            None if self.job.is_stopped() => {
                let (done, total) = (human_bytes(done), human_bytes(total));
                (INFORMATION, format!("was stopped after {time}, with {done} of {total} completed"))
            }
            None if done == 0 => (INFORMATION, format!("is complete after {time}")),
            None => (INFORMATION, format!("is complete: {} in {time}", human_bytes(done))),
        };
        match (healed, lost) {
            (0, 0) => (severity, ended),
            (_, 0) => (severity, format!("{ended}, {} repaired", some(healed as usize, "block"))),
            _ => (ERROR, format!("{ended}, {} repaired, {lost} lost", some(healed as usize, "block"))),
        }
    }
}

impl Deref for ReportedJob {
    type Target = Job;
    fn deref(&self) -> &Job {
        &self.job
    }
}

impl Drop for ReportedJob {
    fn drop(&mut self) {
        let (perceived_severity, result) = self.result();
        let message = format!("{} (job {}) {result}", self.kind.name(), self.job.id().0);
        let what = self.reporter.happening(EventKind::JobEnded, self.object.clone(), message);
        self.reporter.events.record(Happening { perceived_severity, ..what });
    }
}
