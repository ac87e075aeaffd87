//! `causeway enclosure list` (`Get-StorageEnclosure`).

use clap::Subcommand;

use super::ListArgs;
use crate::control::storage::EnclosureStatus;
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum EnclosureCommand {
    /// List the enclosures that the system reports, and those that were set for disks of pools
    #[command(visible_alias = "ls")]
    List(ListArgs),
}

pub(super) async fn run(command: EnclosureCommand, out: Output) -> Result<(), Failure> {
    let EnclosureCommand::List(ListArgs { table, control }) = command;
    let enclosures: Vec<EnclosureStatus> = control.client().get("/v1/enclosures").await?;
    out.list(&enclosures, &table)
}
