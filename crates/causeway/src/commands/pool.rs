//! `causeway pool create|list|show|set|add-disk|remove-disk|replace-disk|offline-disk|clear|optimize|import|export|rename|destroy`
//! (`New-StoragePool`, `Get-StoragePool`, `Set-StoragePool`, `Add-PhysicalDisk`, `Remove-PhysicalDisk`, `Optimize-StoragePool`,
//! `Update-StoragePool`, `Remove-StoragePool`).

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::disk::size;
use super::{ControlArgs, ListArgs, ShowArgs, absolute};
use crate::control::client::segment;
use crate::control::storage::{
    ClearRequest, ImportRequest, MediaSetting, MediaStatus, NewDisks, NewPool, Place, PoolChange, PoolDetail,
    PoolStatus, SpaceStatus, UsageSetting,
};
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::{Output, TableArgs, human_bytes, human_seconds, some};

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum PoolCommand {
    /// Create a pool from disks; all data on the disks is lost
    Create {
        /// Name of the pool
        name: String,
        #[command(flatten)]
        disks: DiskArgs,
        /// Size of a slab, the unit of allocation: a power of two from 2MiB to 1GiB [default: by the size of the
        /// disks]
        #[arg(long, value_parser = size)]
        slab_size: Option<u64>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// List the pools, including those that cannot be opened
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show a pool, its disks and its virtual disks
    Show {
        /// Name or identity of the pool
        name: String,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Add disks to a pool, or return disks that were absent
    AddDisk {
        /// Name or identity of the pool
        name: String,
        #[command(flatten)]
        disks: DiskArgs,
        /// Return a disk even if it has the only copy of some data and that copy is stale
        #[arg(long)]
        accept_loss: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Move the data of a disk to other disks, then remove it from its pool
    RemoveDisk {
        /// Name or identity of the pool
        name: String,
        /// Disk: number, path or identity, as in pool show
        disk: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Replace a disk: add a new disk, move the data, then remove the old disk
    ReplaceDisk {
        /// Name or identity of the pool
        name: String,
        /// Disk to remove: number, path or identity, as in pool show; it may be absent
        old: String,
        #[command(flatten)]
        disks: DiskArgs,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Balance the data over the disks of a pool, and the copies over its enclosures
    Optimize {
        /// Name or identity of the pool
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Set the capacity warning and the repair delay of a pool
    Set {
        /// Name or identity of the pool
        name: String,
        /// Warn when more than this percentage of the capacity is in use
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
        warn_at: Option<u8>,
        /// Rebuild a lost disk on other disks after this time: 30s, 5m, 1h or never
        #[arg(long, value_name = "TIME", value_parser = delay)]
        repair_after: Option<u32>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Take a disk offline, to disconnect or examine it; disk return puts it back into service
    OfflineDisk {
        /// Name or identity of the pool
        name: String,
        /// Disk: number, path or identity, as in pool show
        disk: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Clear the record of errors that were found and repaired on the disks of a pool, and of failing disks that stayed in service
    Clear {
        /// Name or identity of the pool
        name: String,
        /// Disk: number, path or identity, as in pool show [default: all]
        disk: Option<String>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Find pools and open them; for a disk of an open pool, see disk return
    Import {
        /// Name or identity of the pool [default: all pools that are found]
        name: Option<String>,
        /// Devices or files to search in addition to storage.devices
        #[arg(long = "disk", value_name = "PATH", num_args = 1..)]
        disks: Vec<PathBuf>,
        /// Open the pool even if missing disks may have newer data; that data is lost
        #[arg(long, requires = "name")]
        accept_loss: bool,
        /// Open for reading only; nothing is written to any disk
        #[arg(long)]
        read_only: bool,
        /// Take the pool from its current owner on another machine. If that server still runs, it stops using the
        /// pool within 5 seconds, and its unflushed writes are lost
        #[arg(long, requires = "name")]
        force: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Flush a pool and release it, so that its disks can be moved or another machine can open it
    Export {
        /// Name or identity of the pool
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Rename a pool
    Rename {
        /// Name or identity of the pool
        name: String,
        /// New name of the pool
        to: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Erase a pool and all its data
    Destroy {
        /// Name or identity of the pool
        name: String,
        /// Destroy the pool; without this option, only list the data that would be lost
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct DiskArgs {
    /// Paths of devices or files
    #[arg(long = "disk", value_name = "PATH", required = true, num_args = 1..)]
    disks: Vec<PathBuf>,
    /// Use disks even if they contain data or the label of another pool, which is erased
    #[arg(long)]
    force: bool,
    /// Assume that the disks write 4 KiB atomically, even if the system does not report it. If they do not, a power
    /// cut can damage data
    #[arg(long)]
    assume_atomic: bool,
    /// Usage of the disks
    #[arg(long, value_enum)]
    usage: Option<UsageSetting>,
    /// Medium of the disks, if the system reports none or a wrong one
    #[arg(long, value_enum)]
    media: Option<MediaSetting>,
    #[command(flatten)]
    place: Place,
}

impl DiskArgs {
    fn request(self, accept_loss: bool) -> Result<NewDisks, Failure> {
        let paths = self.disks.into_iter().map(absolute).collect::<Result<_, _>>()?;
        let DiskArgs { force, assume_atomic, usage, media, place, .. } = self;
        Ok(NewDisks { paths, force, assume_atomic, accept_loss, usage, media, place })
    }
}

pub(super) async fn run(command: PoolCommand, out: Output) -> Result<(), Failure> {
    let at = |name: &str, rest: &str| format!("/v1/pools/{}{rest}", segment(name));
    let changed: Changed = match command {
        PoolCommand::List(ListArgs { table, control }) => {
            let pools: Vec<PoolStatus> = control.client().get("/v1/pools").await?;
            return out.list(&pools, &table);
        }
        PoolCommand::Show { name, show: ShowArgs { wide, control } } => {
            let detail: PoolDetail = control.client().get(&at(&name, "")).await?;
            return show(&detail, &TableArgs::new(wide), out);
        }
        PoolCommand::Create { name, disks, slab_size, control } => {
            let new = NewPool { name, disks: disks.request(false)?, slab_size };
            control.client().post("/v1/pools", &new).await?
        }
        PoolCommand::AddDisk { name, disks, accept_loss, control } => {
            control.client().post(&at(&name, "/disks"), &disks.request(accept_loss)?).await?
        }
        PoolCommand::RemoveDisk { name, disk, control } => {
            let path = at(&name, &format!("/disks/{}", segment(&named(disk))));
            control.client().delete(&path).await?
        }
        PoolCommand::ReplaceDisk { name, old, disks, control } => {
            let path = at(&name, &format!("/disks/{}/replace", segment(&named(old))));
            control.client().post(&path, &disks.request(false)?).await?
        }
        PoolCommand::Optimize { name, control } => {
            control.client().post(&at(&name, "/optimize"), &()).await?
        }
        PoolCommand::Set { name, warn_at, repair_after, control } => {
            let change = PoolChange { name: None, warn_at, repair_after_s: repair_after };
            control.client().patch(&at(&name, ""), &change).await?
        }
        PoolCommand::OfflineDisk { name, disk, control } => {
            let path = at(&name, &format!("/disks/{}/offline", segment(&named(disk))));
            control.client().post(&path, &()).await?
        }
        PoolCommand::Clear { name, disk, control } => {
            let request = ClearRequest { disk: disk.map(named) };
            control.client().post(&at(&name, "/clear"), &request).await?
        }
        PoolCommand::Import { name, disks, accept_loss, read_only, force, control } => {
            let paths = disks.into_iter().map(absolute).collect::<Result<_, _>>()?;
            let request = ImportRequest { name, paths, accept_loss, read_only, force };
            control.client().post("/v1/pools/import", &request).await?
        }
        PoolCommand::Export { name, control } => control.client().post(&at(&name, "/export"), &()).await?,
        PoolCommand::Rename { name, to, control } => {
            let change = PoolChange { name: Some(to), ..PoolChange::default() };
            control.client().patch(&at(&name, ""), &change).await?
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

/// Makes the path of a disk absolute, because the server has another working directory.
pub(super) fn named(disk: String) -> String {
    let number = !disk.is_empty() && disk.bytes().all(|b| b.is_ascii_digit());
    let path = if number { None } else { std::fs::canonicalize(&disk).ok() };
    path.map_or(disk, |p| p.display().to_string())
}

/// `30s`, `5m`, `1h`, or `never`.
fn delay(text: &str) -> Result<u32, &'static str> {
    const WRONG: &str = "write it like 30s, 5m or 1h, or never";
    if text == "never" {
        return Ok(u32::MAX);
    }
    let (number, unit) = text.split_at_checked(text.len().wrapping_sub(1)).ok_or(WRONG)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(WRONG),
    };
    let number: u32 = number.parse().map_err(|_| WRONG)?;
    number.checked_mul(unit).filter(|n| *n < u32::MAX).ok_or(WRONG)
}

/// The data that `destroy` would destroy.
fn loss(detail: &PoolDetail) -> String {
    let spaces: Vec<_> =
        detail.virtual_disks.iter().map(|s| format!("{} ({})", s.name, human_bytes(s.size))).collect();
    let spaces = if spaces.is_empty() { "no virtual disks".to_owned() } else { spaces.join(", ") };
    format!("this would erase the pool {} on {} disks, with {spaces}", detail.pool.name, detail.pool.disks)
}

fn repair_after(seconds: u32) -> String {
    match seconds {
        u32::MAX => "never automatically".to_owned(),
        s => human_seconds(u64::from(s)),
    }
}

/// `SSD: 2 disks, 1 GiB, 64 MiB of it allocated`.
fn share(m: &MediaStatus) -> String {
    let disks = if m.disks == 1 { "1 disk".to_owned() } else { format!("{} disks", m.disks) };
    format!(
        "{}: {disks}, {}, {} of it allocated",
        m.media_type,
        human_bytes(m.size),
        human_bytes(m.allocated)
    )
}

fn show(detail: &PoolDetail, table: &TableArgs, out: Output) -> Result<(), Failure> {
    if out.json {
        return Ok(out.document(detail)?);
    }
    let p = &detail.pool;
    if !p.is_open() {
        return closed(detail, out);
    }
    let because =
        p.can_lose_because.as_ref().map_or_else(String::new, |b| format!(" (one more failure: {b})"));
    let mut lines = vec![
        ("FriendlyName", p.name.clone()),
        ("UniqueId", p.unique_id.clone()),
        ("OperationalStatus", p.operational_status.clone()),
        ("HealthStatus", p.health_status.clone()),
        ("Size", human_bytes(p.size)),
        ("AllocatedSize", human_bytes(p.allocated)),
        ("SlabSize", human_bytes(p.slab_size)),
    ];
    if p.media.len() > 1 {
        lines.extend(p.media.iter().map(|m| ("MediaType", share(m))));
    }
    lines.extend([
        ("WarnAt", format!("{} %", p.warn_at)),
        ("RepairAfter", repair_after(p.repair_after_s)),
        ("CanLose", format!("{}{because}", p.can_lose_text())),
    ]);
    lines.extend(p.reason.iter().map(|r| ("Reason", r.clone())));
    lines.extend(p.cure.iter().map(|c| ("Cure", c.clone())));
    for f in &detail.findings {
        lines.push(("Found", {
            let each = if f.units == 1 { "it" } else { "each" };
            format!("{} of 4 KiB on disk {}: {each} {}", some(f.units as usize, "block"), f.disk, f.found)
        }));
    }
    lines.extend(p.notes.iter().map(|n| ("Note", n.clone())));
    out.facts(p, &lines)?;
    if !detail.physical_disks.is_empty() {
        out.blank()?;
        out.list(&detail.physical_disks, table)?;
    }
    if !detail.virtual_disks.is_empty() {
        out.blank()?;
        out.list::<SpaceStatus>(&detail.virtual_disks, table)?;
    }
    Ok(())
}

/// A pool that is not open: its contents are unknown.
fn closed(detail: &PoolDetail, out: Output) -> Result<(), Failure> {
    let p = &detail.pool;
    let mut lines = vec![
        ("FriendlyName", p.name.clone()),
        ("UniqueId", p.unique_id.clone()),
        ("OperationalStatus", p.operational_status.clone()),
        ("HealthStatus", p.health_status.clone()),
    ];
    lines.extend(p.reason.iter().map(|r| ("Reason", r.clone())));
    lines.extend(p.cure.iter().map(|c| ("Cure", c.clone())));
    lines.extend(detail.closed_disks.iter().map(|d| ("Disk", d.display().to_string())));
    Ok(out.facts(p, &lines)?)
}

#[cfg(test)]
mod tests {
    use super::delay;

    #[test]
    fn delays() {
        let good = [("0s", 0), ("30s", 30), ("5m", 300), ("2h", 7200), ("never", u32::MAX)];
        good.iter().for_each(|(text, seconds)| assert_eq!(delay(text), Ok(*seconds), "{text}"));
        for text in ["", "s", "5", "m5", "5 m", "-5m", "5d", "99999999999s", "2000000h", "µ"] {
            assert!(delay(text).is_err(), "{text}");
        }
    }
}
