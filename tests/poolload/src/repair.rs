//! A repair beside a load: what it does in a second, and what the load's slowest wait for.

use std::time::Duration;

use pool::jobs::pacer::Pacing;
use pool::jobs::{Kind, Subject};
use pool::{Absence, DiskNumber};
use serde_json::{Value, json};

use crate::Failure;
use crate::bench::Bench;
use crate::load::Load;

/// A target that no load misses.
const UNPACED: Duration = Duration::from_secs(3600);

/// Takes a disk away and rebuilds what it had on the others, under a load that ends with it: paced by a target for the load's 99th percentile, as
/// a server's jobs are, or as fast as it goes.
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
