//! Measures a repair during a load: its throughput, and the latency of the load's slowest I/Os.

use std::time::Duration;

use pool::jobs::pacer::Pacing;
use pool::jobs::{Kind, Subject};
use pool::{Absence, DiskNumber};
use serde_json::{Value, json};

use crate::Failure;
use crate::bench::Bench;
use crate::load::Load;

/// A latency target that every load meets.
const UNPACED: Duration = Duration::from_secs(3600);

/// Removes a disk and rebuilds its data on the others during a load, which ends with the repair. The repair
/// is paced by a target for the load's 99th percentile, like a server's jobs, or runs unpaced.
pub async fn run(bench: &Bench, disk: u16, load: &Load, target: Option<Duration>) -> Result<Value, Failure> {
    let quiet = load.run(bench).await?.to_json();
    let lost = DiskNumber(disk);
    bench.pool.disk_failed(lost, Absence::WriteFailed).await?;
    let target = target.unwrap_or(UNPACED);
    bench.pool.jobs().set_pacing(Pacing { target, ..Pacing::default() });
    let job =
        bench.pool.jobs().begin(Kind::Rebuild, Subject::Disk(lost)).ok_or("the pool is repairing already")?;
    let began = bench.env.now();
    let running = load.start(bench)?;
    bench.pool.evacuate(lost, &job).await?;
    let seconds = (bench.env.now() - began).as_secs_f64();
    let busy = running.finish(bench).await?.to_json();
    let (done, _) = job.progress().bytes();
    Ok(json!({
        "repaired_bytes": done, "seconds": seconds, "bytes_per_second": done as f64 / seconds,
        "quiet": quiet, "beside": busy,
    }))
}
