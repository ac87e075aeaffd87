//! `causeway job list|pause|resume|stop` (`Get-StorageJob`, `Stop-StorageJob`).

mod follow;

use clap::{Args, Subcommand};

use super::{ControlArgs, ListArgs};
use crate::control::client::ControlError;
use crate::control::storage::{JobChange, JobStatus};
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::Output;

/// The HTTP status for a missing job.
const NOT_FOUND: u16 = 404;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum JobCommand {
    /// List the background jobs of pools, their progress, and why they are slowed down
    #[command(visible_alias = "ls")]
    List {
        /// Update the list until no job runs
        #[arg(long, conflicts_with_all = ["wide", "columns"])]
        follow: bool,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Pause jobs until they are resumed or the server restarts
    Pause(Which),
    /// Resume paused jobs
    Resume(Which),
    /// Stop jobs after their outstanding I/O; completed work is kept
    Stop(Which),
}

#[derive(Debug, Args)]
pub(super) struct Which {
    /// Numbers of the jobs, as in job list
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<u64>,
    #[command(flatten)]
    control: ControlArgs,
}

pub(super) async fn run(command: JobCommand, out: Output) -> Result<(), Failure> {
    let (which, word) = match command {
        JobCommand::List { follow: true, list } => return follow::run(&list.control.client(), out).await,
        JobCommand::List { follow: false, list } => {
            let jobs: Vec<JobStatus> = list.control.client().get("/v1/jobs").await?;
            return out.list(&jobs, &list.table);
        }
        JobCommand::Pause(which) => (which, JobChange::Pause),
        JobCommand::Resume(which) => (which, JobChange::Resume),
        JobCommand::Stop(which) => (which, JobChange::Stop),
    };
    let word = match word {
        JobChange::Pause => "pause",
        JobChange::Resume => "resume",
        JobChange::Stop => "stop",
    };
    let client = which.control.client();
    let mut gone = Vec::new();
    for job in which.jobs {
        let changed: Result<Changed, _> = client.post(&format!("/v1/jobs/{job}/{word}"), &()).await;
        match changed {
            Ok(changed) => out.changed(&changed)?,
            // The other jobs exist and were changed.
            Err(ControlError::Refused { status: NOT_FOUND, .. }) => gone.push(job),
            Err(other) => return Err(other.into()),
        }
    }
    if gone.is_empty() { Ok(()) } else { Err(Failure::NoJobs(gone)) }
}
