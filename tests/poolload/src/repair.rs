//! A repair beside a load: what it does in a second, and what the load's slowest wait for.

use std::sync::Arc;
use std::time::Duration;

use pool::jobs::pacer::Pacing;
use pool::jobs::{Kind, Progress, Subject};
use pool::{Absence, DiskNumber};
use serde_json::{Value, json};

use crate::Failure;
use crate::bench::Bench;
use crate::load::Load;

/// Takes a disk away and rebuilds what it had on the others, under a load that ends with it: paced by a target for the load's 99th percentile, as
/// a server's jobs are, or as fast as it goes.
pub async fn run(bench: &Bench, disk: u16, load: &Load, target: Option<Duration>) -> Result<Value, Failure> {
    let path = bench.space.path()?;
    let quiet = load.run(bench).await?.to_json();
    let lost = DiskNumber(disk);
    bench.pool.disk_failed(lost, Absence::WriteFailed).await?;
    let job = match target {
        Some(target) => {
            path.jobs.set_pacing(Pacing { target, ..Pacing::default() });
            let job = path.jobs.begin(Kind::Rebuild, Subject::Disk(lost));
            Some(job.ok_or("the pool is repairing already")?)
        }
        None => None,
    };
    let progress =
        job.as_ref().map_or_else(|| Arc::new(Progress::default()), |job| Arc::clone(job.progress()));
    let began = bench.env.now();
    let running = load.start(bench)?;
    path.evacuate(lost, &progress).await?;
    let seconds = (bench.env.now() - began).as_secs_f64();
    let busy = running.finish(bench).await?.to_json();
    let (done, _) = progress.bytes();
    Ok(json!({
        "repaired_bytes": done, "seconds": seconds, "bytes_per_second": done as f64 / seconds,
        "quiet": quiet, "beside": busy,
    }))
}
