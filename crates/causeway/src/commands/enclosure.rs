//! `causeway enclosure list` (`Get-StorageEnclosure`).

use clap::Subcommand;

use super::ControlArgs;
use crate::control::storage::EnclosureStatus;
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum EnclosureCommand {
    /// List the enclosures that the system reports, and those that were set for disks of pools
    #[command(visible_alias = "ls")]
    List(ControlArgs),
}

pub(super) async fn run(command: EnclosureCommand, out: Output) -> Result<(), Failure> {
    let EnclosureCommand::List(control) = command;
    let enclosures: Vec<EnclosureStatus> = control.client().get("/v1/enclosures").await?;
    Ok(out.list(&enclosures)?)
}
