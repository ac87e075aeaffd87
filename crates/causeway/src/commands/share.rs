//! `causeway share add|list|remove` (`New-SmbShare`, `Get-SmbShare`, `Remove-SmbShare`).

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ControlArgs, absolute};
use crate::config::{Backend, ShareSection, parse_size};
use crate::control::client::segment;
use crate::control::types::{Changed, NewShare, ShareStatus};
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum ShareCommand {
    /// Share a directory, memory or nothing; written to the configuration file too
    Add(AddArgs),
    /// List the shares
    #[command(visible_alias = "ls")]
    List(ControlArgs),
    /// Stop sharing; open files are closed, the files stay
    #[command(visible_alias = "rm")]
    Remove {
        /// The share
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// What clients call it; a name ending in $ is not listed
    name: String,
    /// The directory
    #[arg(required_unless_present = "backend")]
    path: Option<PathBuf>,
    /// What it stands on
    #[arg(long, value_enum, default_value = "hostdir")]
    backend: Backend,
    /// Capacity of a ram share, such as 512MiB
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Shown to clients
    #[arg(long, default_value = "")]
    comment: String,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
    /// Refuse sessions that are not encrypted
    #[arg(long)]
    encrypt: bool,
    /// Leave it out of listings
    #[arg(long)]
    hidden: bool,
    /// Only until the server ends
    #[arg(long)]
    temporary: bool,
    #[command(flatten)]
    control: ControlArgs,
}

fn size(text: &str) -> Result<u64, &'static str> {
    parse_size(text).ok_or("write it like 512MiB or 4GiB")
}

pub(super) async fn run(command: ShareCommand, out: Output) -> Result<(), Failure> {
    match command {
        ShareCommand::List(control) => {
            let shares: Vec<ShareStatus> = control.client().get("/v1/shares").await?;
            Ok(out.list(&shares)?)
        }
        ShareCommand::Remove { name, control } => {
            let path = format!("/v1/shares/{}", segment(&name));
            let changed: Changed = control.client().delete(&path).await?;
            Ok(out.done(&changed, &changed.done)?)
        }
        ShareCommand::Add(args) => {
            let control = args.control.client();
            let new = new_share(args)?;
            let changed: Changed = control.post("/v1/shares", &new).await?;
            Ok(out.done(&changed, &changed.done)?)
        }
    }
}

fn new_share(args: AddArgs) -> Result<NewShare, Failure> {
    let share = ShareSection {
        name: args.name,
        backend: args.backend,
        path: args.path.map(absolute).transpose()?,
        comment: args.comment,
        read_only: args.read_only,
        encrypt: args.encrypt,
        size: args.size,
        hidden: args.hidden,
    };
    Ok(NewShare { share, temporary: args.temporary })
}
