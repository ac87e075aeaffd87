//! `causeway open list|close` (`Get-SmbOpenFile`, `Close-SmbOpenFile`).

use clap::Subcommand;

use super::{ControlArgs, ListArgs};
use crate::control::types::{Changed, OpenStatus};
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum OpenCommand {
    /// List the open files and directories
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Close an open file; its client gets an error at the next use
    Close {
        /// FileId, as in open list
        id: u64,
        #[command(flatten)]
        control: ControlArgs,
    },
}

pub(super) async fn run(command: OpenCommand, out: Output) -> Result<(), Failure> {
    match command {
        OpenCommand::List(ListArgs { table, control }) => {
            let opens: Vec<OpenStatus> = control.client().get("/v1/opens").await?;
            out.list(&opens, &table)
        }
        OpenCommand::Close { id, control } => {
            let changed: Changed = control.client().delete(&format!("/v1/opens/{id}")).await?;
            Ok(out.done(&changed, &changed.done)?)
        }
    }
}
