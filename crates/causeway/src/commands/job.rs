//! `causeway job list` (`Get-StorageJob`).

use clap::Subcommand;

use super::ControlArgs;
use crate::control::storage::JobStatus;
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum JobCommand {
    /// List what runs beside the clients of pools
    #[command(visible_alias = "ls")]
    List(ControlArgs),
}

pub(super) async fn run(JobCommand::List(control): JobCommand, out: Output) -> Result<(), Failure> {
    let jobs: Vec<JobStatus> = control.client().get("/v1/jobs").await?;
    Ok(out.list(&jobs)?)
}
