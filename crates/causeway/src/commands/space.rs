//! `causeway space create|list|show|set|rename|resize|attach|detach|repair|destroy` (`New-VirtualDisk`, `Get-VirtualDisk`, `Set-VirtualDisk`, `Resize-VirtualDisk`,
//! `Connect-VirtualDisk`, `Disconnect-VirtualDisk`, `Repair-VirtualDisk`, `Remove-VirtualDisk`).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use counters::InstanceSnapshot;
use schemars::JsonSchema;
use serde::Serialize;

use super::disk::size;
use super::{ControlArgs, ListArgs, ShowArgs, absolute, activity};
use crate::control::client::{ControlClient, segment};
use crate::control::storage::{
    Attach, ClassSetting, NewSpace, ProvisioningSetting, ResiliencySetting, ScrubStatus, SpaceChange,
    SpaceDetail, SpaceStatus,
};
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::{Output, TableArgs, human_bytes, human_time, some};

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum SpaceCommand {
    /// Create a virtual disk
    Create(CreateArgs),
    /// List the virtual disks
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show a virtual disk, the I/O counters of its clients, and the disks that store it
    Show {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Set the media, the resiliency or the columns of a virtual disk. Its data is moved or copied in the background,
    /// even while it is in use
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
    Set {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        /// Media of the disks that may store it; several are separated by commas
        #[arg(long, value_enum, value_delimiter = ',', group = "what")]
        media: Vec<ClassSetting>,
        /// New resiliency
        #[arg(long, value_enum, group = "what")]
        resiliency: Option<ResiliencySetting>,
        /// New number of columns, including those of parity [default: the present one for more or fewer copies,
        /// otherwise by the number of disks]
        #[arg(long, group = "what")]
        columns: Option<u8>,
        /// Number of disks of a mirror that may fail: 1 (two copies) or 2 (three copies)
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2), group = "what")]
        redundancy: Option<u8>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Change the size of a virtual disk. It may be attached while it grows; no client of a share may have it open
    Resize {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        /// New size, such as 100GiB
        #[arg(long, value_parser = size)]
        size: u64,
        /// Destroy data beyond the new size
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Rename a virtual disk, even while it is in use
    Rename {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        /// New name
        to: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Serve a virtual disk over NBD (for QEMU, nbd-client or fio) or as a block device, until it is detached. With
    /// server.state, it is attached again after a restart of the server
    #[command(group = clap::ArgGroup::new("way").required(true))]
    Attach {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        /// Unix socket to create for NBD clients
        #[arg(long, value_name = "SOCKET", group = "way")]
        nbd: Option<PathBuf>,
        /// Create a block device, /dev/ublkbN; needs Linux 6.5 or newer and a server that runs as root
        #[arg(long, group = "way")]
        ublk: bool,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Stop serving a virtual disk after the outstanding requests of its clients, and flush it; refused while it is
    /// mounted
    Detach {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Read every copy of a virtual disk, and repair damaged data; job list shows the progress, pool show the findings
    Repair {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Destroy a virtual disk and its data
    Destroy {
        /// Virtual disk: NAME or POOL/NAME
        name: String,
        /// Destroy the virtual disk; without this option, only list the data that would be lost
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("room").required(true))]
pub(super) struct CreateArgs {
    /// Name of the virtual disk
    name: String,
    /// Pool of the virtual disk
    #[arg(long)]
    pool: String,
    /// Protection of the data against disk failures
    #[arg(long, value_enum, default_value = "mirror")]
    resiliency: ResiliencySetting,
    /// How many disks of a mirror may fail: 1 (two copies) or 2 (three)
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    redundancy: Option<u8>,
    /// Size, such as 100GiB; a thin virtual disk may be larger than the pool
    #[arg(long, value_parser = size, group = "room")]
    size: Option<u64>,
    /// Use all free capacity of the pool
    #[arg(long, group = "room")]
    max: bool,
    /// Number of columns, including parity: the disks that large I/O uses in parallel [default: by the number of
    /// disks]
    #[arg(long)]
    columns: Option<u8>,
    /// Number of groups of columns of dual parity. With 2 (local reconstruction, LRC) a lost column is rebuilt from
    /// its group only, with half as many reads [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    groups: Option<u8>,
    /// Consecutive bytes on one column before the next column follows [default: 256KiB]
    #[arg(long, value_parser = interleave)]
    interleave: Option<u32>,
    /// When the pool allocates space for it
    #[arg(long, value_enum, default_value = "thin")]
    provisioning: ProvisioningSetting,
    /// Store it only on disks of these media, as in disk list; several are separated by commas [default: any]
    #[arg(long, value_enum, value_delimiter = ',')]
    media: Vec<ClassSetting>,
    #[command(flatten)]
    control: ControlArgs,
}

fn interleave(text: &str) -> Result<u32, &'static str> {
    u32::try_from(size(text)?).map_err(|_| "write it like 64KiB or 256KiB")
}

pub(super) async fn run(command: SpaceCommand, out: Output) -> Result<(), Failure> {
    let at = |name: &str, rest: &str| format!("/v1/spaces/{}{rest}", segment(name));
    let changed: Changed = match command {
        SpaceCommand::List(ListArgs { table, control }) => {
            let spaces: Vec<SpaceStatus> = control.client().get("/v1/spaces").await?;
            return out.list(&spaces, &table);
        }
        SpaceCommand::Show { name, show: ShowArgs { wide, control } } => {
            let client = control.client();
            let detail: SpaceDetail = client.get(&at(&name, "")).await?;
            return show(&client, detail, &TableArgs::new(wide), out).await;
        }
        SpaceCommand::Create(args) => {
            let resiliency = chosen(args.resiliency, args.redundancy)?;
            let CreateArgs { name, pool, size, columns, groups, interleave, provisioning, media, .. } = args;
            let new =
                NewSpace { name, pool, resiliency, size, columns, groups, interleave, provisioning, media };
            args.control.client().post("/v1/spaces", &new).await?
        }
        SpaceCommand::Set { name, media, resiliency, columns, redundancy, control } => {
            let client = control.client();
            let resiliency = match (resiliency, redundancy) {
                (None, None) => None,
                (Some(kind), redundancy) => Some(chosen(kind, redundancy)?),
                (None, redundancy) => {
                    let space: SpaceStatus = client.get(&at(&name, "")).await?;
                    let kind = match space.resiliency.as_str() {
                        "Parity" => ResiliencySetting::Parity,
                        _ => ResiliencySetting::Mirror,
                    };
                    Some(chosen(kind, redundancy)?)
                }
            };
            let media = Some(media).filter(|media| !media.is_empty());
            let change = SpaceChange { media, resiliency, columns, ..SpaceChange::default() };
            client.patch(&at(&name, ""), &change).await?
        }
        SpaceCommand::Rename { name, to, control } => {
            let change = SpaceChange { name: Some(to), ..SpaceChange::default() };
            control.client().patch(&at(&name, ""), &change).await?
        }
        SpaceCommand::Resize { name, size, yes, control } => {
            control
                .client()
                .patch(
                    &at(&name, ""),
                    &SpaceChange { size: Some(size), destroy: yes, ..SpaceChange::default() },
                )
                .await?
        }
        SpaceCommand::Attach { name, nbd, ublk, read_only, control } => {
            let attach = Attach { nbd: nbd.map(absolute).transpose()?, ublk, read_only };
            control.client().post(&at(&name, "/attachment"), &attach).await?
        }
        SpaceCommand::Detach { name, control } => control.client().delete(&at(&name, "/attachment")).await?,
        SpaceCommand::Repair { name, control } => control.client().post(&at(&name, "/repair"), &()).await?,
        SpaceCommand::Destroy { name, yes, control } => {
            let client = control.client();
            let space: SpaceStatus = client.get(&at(&name, "")).await?;
            if !yes {
                let (size, footprint) = (human_bytes(space.size), human_bytes(space.footprint));
                let text = format!(
                    "this would destroy the virtual disk {} of {size} in the pool {}, of which {footprint} are in use",
                    space.name, space.pool
                );
                return Err(Failure::NotConfirmed(text));
            }
            client.delete(&at(&name, "")).await?
        }
    };
    Ok(out.changed(&changed)?)
}

/// The kind of a virtual disk, with the redundancy of a mirror.
fn chosen(kind: ResiliencySetting, redundancy: Option<u8>) -> Result<ResiliencySetting, Failure> {
    match (kind, redundancy) {
        (ResiliencySetting::Mirror, Some(2)) => Ok(ResiliencySetting::ThreeWayMirror),
        (ResiliencySetting::Mirror, _) | (_, None) => Ok(kind),
        (kind, Some(redundancy)) => Err(Failure::Redundancy { kind, redundancy }),
    }
}

/// The output of `space show`.
#[derive(JsonSchema, Serialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    detail: SpaceDetail,
    #[schemars(with = "Option<serde_json::Value>")]
    counters: Option<InstanceSnapshot>,
}

async fn show(
    client: &ControlClient,
    detail: SpaceDetail,
    table: &TableArgs,
    out: Output,
) -> Result<(), Failure> {
    let instance = format!("{}/{}", detail.space.pool, detail.space.name);
    let counters = activity::counted(client, "Storage Spaces Virtual Disk", &instance).await?;
    let shown = Shown { detail, counters };
    let mut lines = facts(&shown.detail.space);
    let at = lines.iter().position(|(name, _)| *name == "Interleave").unwrap_or(lines.len());
    lines.insert(at, ("NumberOfDataCopies", shown.detail.copies.to_string()));
    activity::show(out, &shown, lines, shown.counters.as_ref(), &shown.detail.allocations, table)
}

/// The date and findings of the last scrub.
fn scrubbed(s: ScrubStatus) -> String {
    let found = format!("{} repaired, {} lost", some(s.healed as usize, "block"), s.lost);
    let last = s.ended_unix_s.map(|at| human_time(at as i64));
    match (s.began_unix_s, last) {
        (None, last) => format!("{} UTC: {found}", last.unwrap_or_default()),
        (Some(at), last) => {
            let before = last.map_or_else(String::new, |at| format!("; the previous one ended {at} UTC"));
            format!("since {} UTC, not complete: {found} so far{before}", human_time(at as i64))
        }
    }
}

fn facts(s: &SpaceStatus) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("FriendlyName", s.name.clone()),
        ("StoragePool", s.pool.clone()),
        ("OperationalStatus", s.operational_status.clone()),
        ("HealthStatus", s.health_status.clone()),
        ("ResiliencySettingName", s.resiliency_text()),
        ("FaultDomainRedundancy", s.redundancy.to_string()),
        ("ProvisioningType", s.provisioning.clone()),
        ("MediaType", s.media_type.clone()),
        ("Size", human_bytes(s.size)),
        ("FootprintOnPool", human_bytes(s.footprint)),
        ("StorageEfficiency", format!("{} %", s.efficiency)),
        ("NumberOfColumns", s.columns.to_string()),
        ("Interleave", human_bytes(u64::from(s.interleave))),
    ];
    if s.groups > 1 {
        lines.push(("NumberOfGroups", s.groups.to_string()));
    }
    lines.push(("LastScrub", s.scrub.map_or_else(|| "never".to_owned(), scrubbed)));
    lines.extend(s.attached.iter().map(|p| ("AttachedTo", p.display().to_string())));
    lines
}
