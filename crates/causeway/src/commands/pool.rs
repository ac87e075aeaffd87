//! `causeway pool create|list|show|add-disk|remove-disk|offline-disk|import|export|rename|destroy` (`New-StoragePool`, `Get-StoragePool`,
//! `Add-PhysicalDisk`, `Remove-PhysicalDisk`, `Set-StoragePool`, `Remove-StoragePool`).

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::disk::size;
use super::{ControlArgs, absolute};
use crate::control::client::segment;
use crate::control::storage::{
    ImportRequest, NewDisks, NewPool, PoolChange, PoolDetail, PoolStatus, SpaceStatus,
};
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::{Output, human_bytes};

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum PoolCommand {
    /// Make a pool of disks; what is on them is lost
    Create {
        /// What people call it
        name: String,
        #[command(flatten)]
        disks: DiskArgs,
        /// Of a slab, the piece in which spaces get room: a power of two from 2MiB to 1GiB
        #[arg(long, value_parser = size)]
        slab_size: Option<u64>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// List the pools, those too that cannot be opened
    #[command(visible_alias = "ls")]
    List(ControlArgs),
    /// Show a pool, its disks and its virtual disks
    Show {
        /// Name or identity
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Add disks to a pool, or give it disks back that it has missed
    AddDisk {
        /// The pool
        name: String,
        #[command(flatten)]
        disks: DiskArgs,
        /// Take a disk back although what only it has is old
        #[arg(long)]
        accept_loss: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Take a disk without data out of a pool
    RemoveDisk {
        /// The pool
        name: String,
        /// Number, path or identity, as pool show says it
        disk: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Let a disk take no part, to pull it out or look at it; add-disk or import give it back
    OfflineDisk {
        /// The pool
        name: String,
        /// Number, path or identity, as pool show says it
        disk: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Look for pools and open them; an open one gets disks back that it misses
    Import {
        /// Only this pool, by name or identity
        name: Option<String>,
        /// Look here too
        #[arg(long = "disk", value_name = "PATH", num_args = 1..)]
        disks: Vec<PathBuf>,
        /// Open it although disks that are missing may have newer data, which is given up
        #[arg(long, requires = "name")]
        accept_loss: bool,
        /// Write nothing
        #[arg(long)]
        read_only: bool,
        /// Take it from whoever holds it. If that one is alive, both write, and the pool is lost
        #[arg(long, requires = "name")]
        force: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Flush a pool and give it up, so that its disks can be moved or another machine can open it
    Export {
        /// The pool
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Give a pool another name
    Rename {
        /// The pool
        name: String,
        /// Its new name
        to: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Erase a pool and all that is in it
    Destroy {
        /// The pool
        name: String,
        /// Do it; without this, only say what would be lost
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct DiskArgs {
    /// Devices or files
    #[arg(long = "disk", value_name = "PATH", required = true, num_args = 1..)]
    disks: Vec<PathBuf>,
    /// Use disks that something is on, a label of another pool too; it is erased
    #[arg(long)]
    force: bool,
    /// The disks write 4 KiB at once although the system does not promise it. If they do not, a power cut can damage data
    #[arg(long)]
    assume_atomic: bool,
}

impl DiskArgs {
    fn request(self, accept_loss: bool) -> Result<NewDisks, Failure> {
        let paths = self.disks.into_iter().map(absolute).collect::<Result<_, _>>()?;
        Ok(NewDisks { paths, force: self.force, assume_atomic: self.assume_atomic, accept_loss })
    }
}

pub(super) async fn run(command: PoolCommand, out: Output) -> Result<(), Failure> {
    let at = |name: &str, rest: &str| format!("/v1/pools/{}{rest}", segment(name));
    let changed: Changed = match command {
        PoolCommand::List(control) => {
            let pools: Vec<PoolStatus> = control.client().get("/v1/pools").await?;
            return Ok(out.list(&pools)?);
        }
        PoolCommand::Show { name, control } => {
            let detail: PoolDetail = control.client().get(&at(&name, "")).await?;
            return show(&detail, out);
        }
        PoolCommand::Create { name, disks, slab_size, control } => {
            let new = NewPool { name, disks: disks.request(false)?, slab_size };
            control.client().post("/v1/pools", &new).await?
        }
        PoolCommand::AddDisk { name, disks, accept_loss, control } => {
            control.client().post(&at(&name, "/disks"), &disks.request(accept_loss)?).await?
        }
        PoolCommand::RemoveDisk { name, disk, control } => {
            let path = at(&name, &format!("/disks/{}", segment(&disk)));
            control.client().delete(&path).await?
        }
        PoolCommand::OfflineDisk { name, disk, control } => {
            let path = at(&name, &format!("/disks/{}/offline", segment(&disk)));
            control.client().post(&path, &()).await?
        }
        PoolCommand::Import { name, disks, accept_loss, read_only, force, control } => {
            let paths = disks.into_iter().map(absolute).collect::<Result<_, _>>()?;
            let request = ImportRequest { name, paths, accept_loss, read_only, force };
            control.client().post("/v1/pools/import", &request).await?
        }
        PoolCommand::Export { name, control } => control.client().post(&at(&name, "/export"), &()).await?,
        PoolCommand::Rename { name, to, control } => {
            control.client().patch(&at(&name, ""), &PoolChange { name: to }).await?
        }
        PoolCommand::Destroy { name, yes, control } => {
            let client = control.client();
            if !yes {
                let detail: PoolDetail = client.get(&at(&name, "")).await?;
                return Err(Failure::NotConfirmed(loss(&detail)));
            }
            client.delete(&at(&name, "")).await?
        }
    };
    Ok(out.changed(&changed)?)
}

/// What `destroy` would destroy.
fn loss(detail: &PoolDetail) -> String {
    let spaces: Vec<_> =
        detail.virtual_disks.iter().map(|s| format!("{} ({})", s.name, human_bytes(s.size))).collect();
    let spaces = if spaces.is_empty() { "no virtual disks".to_owned() } else { spaces.join(", ") };
    format!("this would erase the pool {} on {} disks, with {spaces}", detail.pool.name, detail.pool.disks)
}

fn show(detail: &PoolDetail, out: Output) -> Result<(), Failure> {
    if out.json {
        return Ok(out.document(detail)?);
    }
    let p = &detail.pool;
    let because = p.can_lose_because.as_ref().map_or_else(String::new, |b| format!(" (with one more, {b})"));
    let mut lines = vec![
        ("FriendlyName", p.name.clone()),
        ("UniqueId", p.unique_id.clone()),
        ("OperationalStatus", p.operational_status.clone()),
        ("HealthStatus", p.health_status.clone()),
        ("Size", human_bytes(p.size)),
        ("AllocatedSize", human_bytes(p.allocated)),
        ("SlabSize", human_bytes(p.slab_size)),
        ("CanLose", format!("{}{because}", p.can_lose_text())),
    ];
    lines.extend(p.reason.iter().map(|r| ("Reason", r.clone())));
    lines.extend(p.cure.iter().map(|c| ("Cure", c.clone())));
    for f in &detail.findings {
        lines.push(("Found", format!("{} units on disk {}: each {}", f.units, f.disk, f.found)));
    }
    lines.extend(p.notes.iter().map(|n| ("Note", n.clone())));
    out.facts(p, &lines)?;
    if !detail.physical_disks.is_empty() {
        out.blank()?;
        out.list(&detail.physical_disks)?;
    }
    if !detail.virtual_disks.is_empty() {
        out.blank()?;
        out.list::<SpaceStatus>(&detail.virtual_disks)?;
    }
    Ok(())
}
