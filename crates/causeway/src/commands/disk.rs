//! `causeway disk list|show|qualify|create-file` (`Get-PhysicalDisk`).

use std::path::PathBuf;

use clap::Subcommand;

use super::{ControlArgs, absolute};
use crate::config::parse_size;
use crate::control::storage::{DiskStatus, NewFiles, Qualified, QualifyRequest};
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::{Output, human_bytes};

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum DiskCommand {
    /// List the disks of pools and those that might be pooled
    #[command(visible_alias = "ls")]
    List(ControlArgs),
    /// Show what is known of a disk of the list
    Show {
        /// Its path or identity
        disk: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Look closely at a disk before it goes into a pool, and measure its flushes; nothing on it changes
    Qualify {
        /// The device or file
        path: PathBuf,
        /// What is on it may be overwritten
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Make sparse files that can be disks of a pool
    CreateFile {
        /// The files; there must be none of these names
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Of each, such as 4GiB
        #[arg(long, value_parser = size)]
        size: u64,
        #[command(flatten)]
        control: ControlArgs,
    },
}

pub(super) fn size(text: &str) -> Result<u64, &'static str> {
    parse_size(text).ok_or("write it like 512MiB or 4GiB")
}

pub(super) async fn run(command: DiskCommand, out: Output) -> Result<(), Failure> {
    match command {
        DiskCommand::List(control) => {
            let disks: Vec<DiskStatus> = control.client().get("/v1/disks").await?;
            Ok(out.list(&disks)?)
        }
        DiskCommand::Show { disk, control } => {
            let disks: Vec<DiskStatus> = control.client().get("/v1/disks").await?;
            let path = std::fs::canonicalize(&disk).ok();
            let is_it = |d: &&DiskStatus| d.unique_id == disk || (d.path.is_some() && d.path == path);
            let found = disks.iter().find(is_it).ok_or(Failure::NoDisk(disk.clone()))?;
            Ok(out.facts(found, &facts(found))?)
        }
        DiskCommand::Qualify { path, force, control } => {
            let request = QualifyRequest { path: absolute(path)?, force };
            let found: Qualified = control.client().post("/v1/disks/qualify", &request).await?;
            let mut lines = facts(&found.disk);
            lines.push(("AtomicWrite", human_bytes(u64::from(found.atomic_write))));
            lines.extend(found.flush_us.map(|us| ("FlushMedian", format!("{us} µs"))));
            lines.extend(found.signatures.iter().map(|s| ("Holds", s.clone())));
            lines.extend(found.warnings.iter().map(|w| ("Warning", w.clone())));
            Ok(out.facts(&found, &lines)?)
        }
        DiskCommand::CreateFile { paths, size, control } => {
            let paths = paths.into_iter().map(absolute).collect::<Result<_, _>>()?;
            let new = NewFiles { paths, size };
            let changed: Changed = control.client().post("/v1/disks/files", &new).await?;
            Ok(out.done(&changed, &changed.done)?)
        }
    }
}

fn facts(d: &DiskStatus) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("Path", d.path.as_ref().map_or_else(|| "(not here)".to_owned(), |p| p.display().to_string())),
        ("FriendlyName", d.friendly_name.clone()),
        ("UniqueId", d.unique_id.clone()),
        ("MediaType", d.media_type.clone()),
        ("Size", human_bytes(d.size)),
        ("OperationalStatus", d.operational_status.clone()),
        ("HealthStatus", d.health_status.clone()),
        ("Usage", d.usage.clone()),
        ("CanPool", if d.can_pool { "True" } else { "False" }.to_owned()),
    ];
    if let Some(pool) = &d.pool {
        lines.push(("StoragePool", pool.clone()));
        lines.push(("AllocatedSize", human_bytes(d.allocated)));
    }
    for r in &d.cannot_pool_reasons {
        lines.push(("CannotPoolReason", format!("{}: {}: {}", r.reason, r.found, r.cure)));
    }
    lines
}
