//! A repair beside a load: what it does in a second, and what the load's slowest wait for.

use std::sync::Arc;

use pool::jobs::Progress;
use pool::{Absence, DiskNumber};
use serde_json::{Value, json};

use crate::Failure;
use crate::bench::Bench;
use crate::load::Load;

/// Takes a disk away and rebuilds what it had on the others, under a load that ends with it.
pub async fn run(bench: &Bench, disk: u16, load: &Load) -> Result<Value, Failure> {
    let quiet = load.run(bench).await?.to_json();
    let lost = DiskNumber(disk);
    bench.pool.disk_failed(lost, Absence::WriteFailed).await?;
    let progress = Arc::new(Progress::default());
    let began = bench.env.now();
    let running = load.start(bench)?;
    bench.path.evacuate(lost, &progress).await?;
    let seconds = (bench.env.now() - began).as_secs_f64();
    let busy = running.finish(bench).await?.to_json();
    let (done, _) = progress.bytes();
    Ok(json!({
        "repaired_bytes": done, "seconds": seconds, "bytes_per_second": done as f64 / seconds,
        "quiet": quiet, "beside": busy,
    }))
}
