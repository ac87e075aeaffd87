//! `causeway share add|list|remove` (`New-SmbShare`, `Get-SmbShare`, `Remove-SmbShare`), `set-acl|get-acl`
//! (`Grant-SmbShareAccess`, `Get-SmbShareAccess`, `Set-SmbPathAcl`).

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ControlArgs, ListArgs, absolute};
use crate::config::{AclEntry, AclLevel, Backend, ResiliencySetting, ShareSection, parse_size};
use crate::control::client::segment;
use crate::control::types::{Changed, NewAcl, NewShare, ShareAccess, ShareStatus};
use crate::failure::Failure;
use crate::output::Output;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum ShareCommand {
    /// Share a directory, the virtual disks of a pool, memory or a null device, and write it to the configuration
    /// file
    Add(AddArgs),
    /// List the shares
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Replace the permission of a share; applies to new connections
    SetAcl {
        /// Name of the share
        name: String,
        #[command(flatten)]
        acl: AclArgs,
        /// Also set it as the security descriptor of the shared directory (Set-SmbPathAcl); without --grant and
        /// --deny, use the present permission of the share
        #[arg(long)]
        to_path: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Show the permission of a share
    GetAcl {
        /// Name of the share
        name: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Remove a share: its open files are closed, the files themselves are kept
    #[command(visible_alias = "rm")]
    Remove {
        /// Name of the share
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// Share name that clients see; a name that ends in $ is hidden from listings
    name: String,
    /// Directory to share
    #[arg(required_unless_present_any = ["backend", "pool"])]
    path: Option<PathBuf>,
    /// Backend [default: spaces with --pool, else hostdir]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Pool whose virtual disks are shared, each as NAME.img and NAME.vhd
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Resiliency of virtual disks that clients create [default: mirror]
    #[arg(long, value_enum)]
    resiliency: Option<ResiliencySetting>,
    /// Columns of virtual disks that clients create [default: by the number of disks]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    columns: Option<u8>,
    /// Allow clients to delete files of a pool, which destroys the virtual disks
    #[arg(long)]
    allow_delete: bool,
    /// Capacity of a ram share, such as 512MiB [default: 256MiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Folder with snapshots of the directory, which clients show as previous versions; absolute, or relative to
    /// the directory
    #[arg(long)]
    snapshots: Option<PathBuf>,
    /// Comment shown to clients
    #[arg(long, default_value = "")]
    comment: String,
    /// Refuse all changes
    #[arg(long)]
    read_only: bool,
    /// Refuse unencrypted sessions
    #[arg(long)]
    encrypt: bool,
    /// Allow handles that survive a restart of the server (for Hyper-V and SQL Server); each write is durable before
    /// it is acknowledged; needs server.state
    #[arg(long)]
    continuous_availability: bool,
    /// Hide the share from listings
    #[arg(long)]
    hidden: bool,
    /// Hide from listings the entries that a user may not read
    #[arg(long)]
    access_based: bool,
    #[command(flatten)]
    acl: AclArgs,
    /// Keep the share only until the server stops; do not write it to the configuration file
    #[arg(long)]
    temporary: bool,
    #[command(flatten)]
    control: ControlArgs,
}

/// The permission of a share.
#[derive(Debug, Args)]
pub(super) struct AclArgs {
    /// Grant a user or group read, change or full access; may be repeated
    #[arg(long, value_name = "NAME=read|change|full", value_parser = granted)]
    grant: Vec<AclEntry>,
    /// Deny a user or group all access, regardless of grants; may be repeated
    #[arg(long, value_name = "NAME")]
    deny: Vec<String>,
}

impl AclArgs {
    /// The access list, if one was given.
    fn entries(self) -> Option<Vec<AclEntry>> {
        let denied = self.deny.into_iter().map(|name| AclEntry { name, level: AclLevel::Deny });
        let all: Vec<AclEntry> = denied.chain(self.grant).collect();
        (!all.is_empty()).then_some(all)
    }
}

fn granted(text: &str) -> Result<AclEntry, &'static str> {
    let entry: AclEntry = text.parse().map_err(|_| "write it like alice=read, alice=change or alice=full")?;
    if entry.level == AclLevel::Deny { Err("use --deny NAME") } else { Ok(entry) }
}

fn size(text: &str) -> Result<u64, &'static str> {
    parse_size(text).ok_or("write it like 512MiB or 4GiB")
}

pub(super) async fn run(command: ShareCommand, out: Output) -> Result<(), Failure> {
    match command {
        ShareCommand::List(ListArgs { table, control }) => {
            let shares: Vec<ShareStatus> = control.client().get("/v1/shares").await?;
            out.list(&shares, &table)
        }
        ShareCommand::Remove { name, control } => {
            let path = format!("/v1/shares/{}", segment(&name));
            let changed: Changed = control.client().delete(&path).await?;
            Ok(out.done(&changed, &changed.done)?)
        }
        ShareCommand::SetAcl { name, acl, to_path, control } => {
            let change = NewAcl { acl: acl.entries(), to_path };
            if change.acl.is_none() && !to_path {
                return Err(Failure::NoAcl);
            }
            let path = format!("/v1/shares/{}/acl", segment(&name));
            let changed: Changed = control.client().put(&path, &change).await?;
            Ok(out.done(&changed, &changed.done)?)
        }
        ShareCommand::GetAcl { name, list: ListArgs { table, control } } => {
            let path = format!("/v1/shares/{}/acl", segment(&name));
            let entries: Vec<ShareAccess> = control.client().get(&path).await?;
            out.list(&entries, &table)
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
        backend: args.backend.unwrap_or(match &args.pool {
            Some(_) => Backend::Spaces,
            None => Backend::Hostdir,
        }),
        path: args.path.map(absolute).transpose()?,
        snapshots: args.snapshots,
        comment: args.comment,
        read_only: args.read_only,
        encrypt: args.encrypt,
        continuous_availability: args.continuous_availability,
        pool: args.pool,
        resiliency: args.resiliency,
        columns: args.columns,
        allow_delete: args.allow_delete,
        size: args.size,
        hidden: args.hidden,
        acl: args.acl.entries(),
        access_based: args.access_based,
    };
    Ok(NewShare { share, temporary: args.temporary })
}
