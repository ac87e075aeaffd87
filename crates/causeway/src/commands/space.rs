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
    /// Show a virtual disk, what its clients did, and the disks that hold it
    Show {
        /// Its name, or pool/name
        name: String,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Set the media that a virtual disk may use, or its number of copies; its data follows in the background, also
    /// while it is in use
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
    Set {
        /// Its name, or pool/name
        name: String,
        /// One or several, with commas
        #[arg(long, value_enum, value_delimiter = ',', group = "what")]
        media: Vec<ClassSetting>,
        /// How it survives failures: simple, mirror or three-way-mirror; parity stays as it is
        #[arg(long, value_enum, group = "what")]
        resiliency: Option<ResiliencySetting>,
        /// How many disks of a mirror may fail: 1 (two copies) or 2 (three)
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2), group = "what")]
        redundancy: Option<u8>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Make a virtual disk larger or smaller; it may not be in use meanwhile
    Resize {
        /// Its name, or pool/name
        name: String,
        /// Its new size
        #[arg(long, value_parser = size)]
        size: u64,
        /// Cut off data beyond the new size
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Give a virtual disk another name; it may be in use
    Rename {
        /// Its name, or pool/name
        name: String,
        /// Its new name
        to: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Serve a virtual disk to QEMU, nbd-client or fio, or make it a block device, until it is detached; it
    /// comes back after a restart of the server
    #[command(group = clap::ArgGroup::new("way").required(true))]
    Attach {
        /// Its name, or pool/name
        name: String,
        /// The Unix socket to create, for the NBD protocol
        #[arg(long, value_name = "SOCKET", group = "way")]
        nbd: Option<PathBuf>,
        /// Make it a block device of the kernel, /dev/ublkbN (Linux 6.5 or newer, as root)
        #[arg(long, group = "way")]
        ublk: bool,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Stop serving a virtual disk, after outstanding requests of its clients; it is flushed. Refused while
    /// it is mounted
    Detach {
        /// Its name, or pool/name
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Read every copy, and repair damaged data; see job list, and the findings in pool show
    Repair {
        /// Its name, or pool/name
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Destroy a virtual disk and its data
    Destroy {
        /// Its name, or pool/name
        name: String,
        /// Do it; without this, only list the data that would be lost
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("room").required(true))]
pub(super) struct CreateArgs {
    /// Its name
    name: String,
    /// Its pool
    #[arg(long)]
    pool: String,
    /// Resiliency: how it survives failures
    #[arg(long, value_enum, default_value = "mirror")]
    resiliency: ResiliencySetting,
    /// How many disks of a mirror may fail: 1 (two copies) or 2 (three)
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    redundancy: Option<u8>,
    /// Such as 100GiB; a thin one may be larger than the pool
    #[arg(long, value_parser = size, group = "room")]
    size: Option<u64>,
    /// As large as the pool has room for
    #[arg(long, group = "room")]
    max: bool,
    /// Columns: disks that large I/O uses at once, including parity [default: by the number of disks]
    #[arg(long)]
    columns: Option<u8>,
    /// Groups of columns of dual parity: with 2 (local reconstruction, LRC) one lost column is rebuilt from
    /// its group, half of the others [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    groups: Option<u8>,
    /// Bytes that go to one column before the next [default: 256KiB]
    #[arg(long, value_parser = interleave)]
    interleave: Option<u32>,
    /// When it gets its room from the pool
    #[arg(long, value_enum, default_value = "thin")]
    provisioning: ProvisioningSetting,
    /// Only on disks of these media, as in disk list: one or several, with commas [default: any]
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
        SpaceCommand::Set { name, media, resiliency, redundancy, control } => {
            let resiliency = match (resiliency, redundancy) {
                (None, None) => None,
                (kind, redundancy) => Some(chosen(kind.unwrap_or(ResiliencySetting::Mirror), redundancy)?),
            };
            let media = Some(media).filter(|media| !media.is_empty());
            let change = SpaceChange { media, resiliency, ..SpaceChange::default() };
            control.client().patch(&at(&name, ""), &change).await?
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

/// What `space show` shows.
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
    let found = format!("{} healed, {} lost", some(s.healed as usize, "unit"), s.lost);
    let last = s.ended_unix_s.map(|at| human_time(at as i64));
    match (s.began_unix_s, last) {
        (None, last) => format!("{} UTC: {found}", last.unwrap_or_default()),
        (Some(at), last) => {
            let before = last.map_or_else(String::new, |at| format!("; the one before ended {at} UTC"));
            format!("since {} UTC, not ended: {found} so far{before}", human_time(at as i64))
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
