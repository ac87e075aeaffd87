//! `causeway disk list|show|set|retire|return|identify|qualify|create-file` (`Get-PhysicalDisk`, `Set-PhysicalDisk`,
//! `Enable-PhysicalDiskIdentification`).

mod smart;

use std::path::PathBuf;

use clap::Subcommand;
use counters::InstanceSnapshot;
use schemars::JsonSchema;
use serde::Serialize;

use super::pool::named;
use super::{ControlArgs, ListArgs, ShowArgs, absolute, activity};
use crate::config::parse_size;
use crate::control::client::{ControlClient, segment};
use crate::control::storage::{
    DiskChange, DiskDetail, DiskStatus, Identify, MediaSetting, NewFiles, Place, Qualified, QualifyRequest,
    ReturnRequest, UsageSetting,
};
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::{Output, TableArgs, human_bytes};
use smart::Smart;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum DiskCommand {
    /// List all disks: their state in a pool, or whether they can be pooled
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show the identity, SMART health (by smartctl), counters and virtual disks of a disk
    Show {
        /// Disk: POOL/NUMBER, path or identity
        disk: String,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Set the usage, medium and location of a disk of a pool
    Set {
        /// Disk: POOL/NUMBER, path or identity
        disk: String,
        /// Usage of the disk
        #[arg(long, value_enum)]
        usage: Option<UsageSetting>,
        /// Medium of the disk, if the system reports none or a wrong one
        #[arg(long, value_enum)]
        media: Option<MediaSetting>,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Retire a disk of a pool: move its data to other disks, and store no new data on it; `disk set --usage
    /// auto-select` reverts this
    Retire {
        /// Disk: POOL/NUMBER, path or identity
        disk: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Return an offline or absent disk to its open pool, and copy the writes to it that it missed. A disk that was
    /// only disconnected returns automatically when it is connected again
    Return {
        /// Disk: POOL/NUMBER, identity, or its present path
        disk: String,
        /// Return the disk even if data that only this disk has may be stale
        #[arg(long)]
        accept_loss: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Switch on the identification light of a disk's slot
    Identify {
        /// Disk: POOL/NUMBER, path or identity
        disk: String,
        /// Switch the light off
        #[arg(long)]
        off: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Examine a disk before it is pooled, and measure its flush latency; the disk is not changed
    Qualify {
        /// Path of the device or file
        path: PathBuf,
        /// Ignore existing data on the disk, as pool create --force would overwrite it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Create sparse files to use as disks of a pool
    CreateFile {
        /// Paths of the files, which must not exist
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Size of each file, such as 4GiB
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
        DiskCommand::List(ListArgs { table, control }) => {
            let disks: Vec<DiskStatus> = control.client().get("/v1/disks").await?;
            out.list(&disks, &table)
        }
        DiskCommand::Show { disk, show: args } => show(&disk, &args, out).await,
        DiskCommand::Set { disk, usage, media, place, control } => {
            change(&disk, DiskChange { usage, media, place }, &control, out).await
        }
        DiskCommand::Retire { disk, control } => {
            let usage = Some(UsageSetting::Retired);
            change(&disk, DiskChange { usage, ..DiskChange::default() }, &control, out).await
        }
        DiskCommand::Return { disk, accept_loss, control } => {
            let request = ReturnRequest { disk: named(disk), accept_loss };
            let changed: Changed = control.client().post("/v1/disks/return", &request).await?;
            Ok(out.changed(&changed)?)
        }
        DiskCommand::Identify { disk, off, control } => {
            let request = Identify { disk, on: !off };
            let changed: Changed = control.client().post("/v1/disks/identify", &request).await?;
            Ok(out.changed(&changed)?)
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

/// The output of `disk show`.
#[derive(JsonSchema, Serialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    detail: DiskDetail,
    /// The health that the disk reports; none for a file.
    smart: Option<Smart>,
    /// The counters of a present disk of an open pool.
    #[schemars(with = "Option<serde_json::Value>")]
    counters: Option<InstanceSnapshot>,
}

async fn show(disk: &str, args: &ShowArgs, out: Output) -> Result<(), Failure> {
    let client = args.control.client();
    let detail = find(&client, disk).await?;
    let d = &detail.disk;
    let counters = match (&d.pool, d.number) {
        (Some(pool), Some(number)) => {
            activity::counted(&client, "PhysicalDisk", &format!("{pool}/{number}")).await?
        }
        _ => None,
    };
    let smart = match &d.path {
        Some(path) => smart::query_smart(path).await,
        None => None,
    };
    let shown = Shown { detail, smart, counters };
    let mut lines = facts(&shown.detail.disk);
    let is_file = || "none, because the disk is a file".to_owned();
    if shown.detail.disk.path.is_some() {
        lines.push(("SmartStatus", shown.smart.as_ref().map_or_else(is_file, |s| s.text.clone())));
    }
    activity::show(
        out,
        &shown,
        lines,
        shown.counters.as_ref(),
        &shown.detail.allocations,
        &TableArgs::new(args.wide),
    )
}

/// The disk with this `POOL/NUMBER`, path or identity.
async fn find(client: &ControlClient, disk: &str) -> Result<DiskDetail, Failure> {
    Ok(client.get(&format!("/v1/disks/{}", segment(&named(disk.to_owned())))).await?)
}

async fn change(disk: &str, change: DiskChange, control: &ControlArgs, out: Output) -> Result<(), Failure> {
    let client = control.client();
    let found = find(&client, disk).await?.disk;
    let (Some(pool), Some(number)) = (&found.pool, found.number) else {
        return Err(Failure::NoDisk(format!("{disk} of a pool")));
    };
    let path = format!("/v1/pools/{}/disks/{number}", segment(pool));
    let changed: Changed = client.patch(&path, &change).await?;
    Ok(out.changed(&changed)?)
}

fn facts(d: &DiskStatus) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("Path", d.path.as_ref().map_or_else(|| "(absent)".to_owned(), |p| p.display().to_string())),
        ("FriendlyName", d.friendly_name.clone()),
        ("UniqueId", d.unique_id.clone()),
        ("SerialNumber", d.serial_number.clone()),
        ("FirmwareVersion", d.firmware_version.clone()),
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
    let places = [("Enclosure", &d.enclosure), ("Slot", &d.slot), ("Node", &d.node), ("Rack", &d.rack)];
    lines.extend(places.into_iter().filter(|(_, p)| !p.is_empty()).map(|(what, p)| (what, p.clone())));
    // The pool is printed above.
    for r in d.cannot_pool_reasons.iter().filter(|_| d.pool.is_none()) {
        lines.push(("CannotPoolReason", format!("{}: {}: {}", r.reason, r.found, r.cure)));
    }
    lines
}
