//! What runs beside the clients of a pool: one job at a time, each with its progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use env::Env;
use parking_lot::Mutex;
use pool::jobs::Progress;
use pool::{DataPath, DiskNumber, Pool, Presence, SpaceId, State};

use super::error::StorageError;
use super::pools::{Pools, done};
use crate::control::storage::JobStatus;
use crate::control::types::Changed;

/// The jobs of one data path; they end with it.
#[derive(Default)]
pub(super) struct Jobs {
    running: Mutex<Running>,
    turn: tokio::sync::Mutex<()>,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Running {
    next: u64,
    jobs: BTreeMap<u64, Entry>,
}

struct Entry {
    name: &'static str,
    object: String,
    began: Instant,
    progress: Arc<Progress>,
}

/// A job from when it begins until it is dropped.
struct Job<'a> {
    of: &'a Jobs,
    number: u64,
    progress: Arc<Progress>,
}

impl Jobs {
    /// Resolves what a crash has left in doubt, and brings disks up to date.
    pub(super) fn mend(self: &Arc<Jobs>, env: &Env, pool: &Pool, data: &Arc<DataPath>) {
        let (jobs, env, pool, data) = (Arc::clone(self), env.clone(), pool.clone(), Arc::clone(data));
        env.clone().spawn(async move {
            let _turn = jobs.turn.lock().await;
            let name = pool.read(|s| s.name.clone());
            let job = jobs.begin(&env, "Resolve", name.clone());
            if let Err(error) = data.resolve_all(&job.progress).await {
                tracing::warn!(pool = name, %error, "not everything in doubt after a crash could be resolved");
            }
            drop(job);
            for disk in pool.read(behind) {
                let job = jobs.begin(&env, "Resync", format!("{name}, disk {}", disk.0));
                tracing::info!(pool = name, disk = disk.0, "a disk is brought up to date");
                match data.resync(disk, &job.progress).await {
                    Ok(()) if jobs.is_stopping() => return,
                    Ok(()) => tracing::info!(pool = name, disk = disk.0, "the disk is up to date"),
                    Err(error) => {
                        tracing::warn!(pool = name, disk = disk.0, %error, "the disk is not up to date");
                    }
                }
            }
        });
    }

    /// Reads every copy of a virtual disk, and heals what is not as it was written.
    fn scrub(
        self: &Arc<Jobs>,
        env: &Env,
        data: &Arc<DataPath>,
        space: SpaceId,
        name: String,
    ) -> Result<(), StorageError> {
        let (jobs, env, space) = (Arc::clone(self), env.clone(), data.space(space)?);
        env.clone().spawn(async move {
            let _turn = jobs.turn.lock().await;
            let job = jobs.begin(&env, "Repair", name.clone());
            match space.scrub(&job.progress).await {
                Ok(()) => tracing::info!(space = name, "every copy was read"),
                Err(error) => tracing::warn!(space = name, %error, "not every copy could be read"),
            }
        });
        Ok(())
    }

    /// Ends all of them, after the pieces that they are at.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.running.lock().jobs.values().for_each(|job| job.progress.stop());
        let _ended = self.turn.lock().await;
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn begin(&self, env: &Env, name: &'static str, object: String) -> Job<'_> {
        let progress = Arc::new(Progress::default());
        if self.is_stopping() {
            progress.stop();
        }
        let mut running = self.running.lock();
        let number = running.next;
        running.next += 1;
        running
            .jobs
            .insert(number, Entry { name, object, began: env.now(), progress: Arc::clone(&progress) });
        Job { of: self, number, progress }
    }

    /// Those that run now.
    pub(super) fn describe(&self, env: &Env) -> Vec<JobStatus> {
        let describe = |job: &Entry| {
            let (done, total) = job.progress.bytes();
            JobStatus {
                name: job.name.to_owned(),
                object: job.object.clone(),
                elapsed_s: (env.now() - job.began).as_secs(),
                state: "Running".to_owned(),
                percent_complete: (done * 100).checked_div(total).map_or(0, |p| p.min(100)),
                bytes_processed: done,
                bytes_total: total,
            }
        };
        self.running.lock().jobs.values().map(describe).collect()
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.of.running.lock().jobs.remove(&self.number);
    }
}

impl Pools {
    /// What runs now.
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.open_pools().iter().filter_map(|o| o.jobs()).flat_map(|j| j.describe(&self.env)).collect()
    }

    /// Begins to read every copy of a virtual disk, and to heal what is not as it was written.
    ///
    /// # Errors
    /// See [`StorageError`]: there is none of that name, or its pool is open for reading only.
    pub async fn repair_space(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.find_space(name)?;
        let (Some(jobs), Some(data)) = (open.jobs(), open.data()) else {
            return Err(StorageError::Commit(pool::CommitError::ReadOnly));
        };
        jobs.scrub(&self.env, &data, space, name.to_owned())?;
        Ok(done(format!("the repair of {name} has begun: see causeway job list"), Vec::new()))
    }
}

/// Present disks that have missed writes.
fn behind(state: &State) -> Vec<DiskNumber> {
    let missed = |disk: DiskNumber| {
        state.rows.values().flat_map(|r| &r.slabs).any(|c| c.place.disk == disk && c.missed != 0)
    };
    let present = state.disks.iter().filter(|(_, r)| r.presence == Presence::Present).map(|(d, _)| *d);
    present.filter(|d| missed(*d)).collect()
}
