//! `causeway space create|list|show` (`New-VirtualDisk`, `Get-VirtualDisk`).

use clap::{Args, Subcommand};

use super::ControlArgs;
use super::disk::size;
use crate::control::client::segment;
use crate::control::storage::{NewSpace, ProvisioningSetting, ResiliencySetting, SpaceStatus};
use crate::control::types::Changed;
use crate::failure::Failure;
use crate::output::{Output, human_bytes};

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum SpaceCommand {
    /// Make a virtual disk
    Create(CreateArgs),
    /// List the virtual disks
    #[command(visible_alias = "ls")]
    List(ControlArgs),
    /// Show a virtual disk
    Show {
        /// Its name, or pool/name
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// What people call it
    name: String,
    /// Its pool
    #[arg(long)]
    pool: String,
    /// How it survives failures
    #[arg(long, value_enum, default_value = "mirror")]
    resiliency: ResiliencySetting,
    /// Such as 100GiB; a thin one may be larger than the pool
    #[arg(long, value_parser = size, required_unless_present = "max", conflicts_with = "max")]
    size: Option<u64>,
    /// As large as the pool has room for
    #[arg(long)]
    max: bool,
    /// Data columns: disks that large I/O goes to at once [default: by the number of disks]
    #[arg(long)]
    columns: Option<u8>,
    /// Bytes that go to one column before the next [default: 256KiB]
    #[arg(long, value_parser = interleave)]
    interleave: Option<u32>,
    /// When the pool's room is taken
    #[arg(long, value_enum, default_value = "thin")]
    provisioning: ProvisioningSetting,
    #[command(flatten)]
    control: ControlArgs,
}

fn interleave(text: &str) -> Result<u32, &'static str> {
    u32::try_from(size(text)?).map_err(|_| "write it like 64KiB or 256KiB")
}

pub(super) async fn run(command: SpaceCommand, out: Output) -> Result<(), Failure> {
    let at = |name: &str, rest: &str| format!("/v1/spaces/{}{rest}", segment(name));
    let changed: Changed = match command {
        SpaceCommand::List(control) => {
            let spaces: Vec<SpaceStatus> = control.client().get("/v1/spaces").await?;
            return Ok(out.list(&spaces)?);
        }
        SpaceCommand::Show { name, control } => {
            let space: SpaceStatus = control.client().get(&at(&name, "")).await?;
            return Ok(out.facts(&space, &facts(&space))?);
        }
        SpaceCommand::Create(args) => {
            let CreateArgs { name, pool, resiliency, size, columns, interleave, provisioning, .. } = args;
            let new = NewSpace { name, pool, resiliency, size, columns, interleave, provisioning };
            args.control.client().post("/v1/spaces", &new).await?
        }
    };
    Ok(out.changed(&changed)?)
}

fn facts(s: &SpaceStatus) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("FriendlyName", s.name.clone()),
        ("StoragePool", s.pool.clone()),
        ("OperationalStatus", s.operational_status.clone()),
        ("HealthStatus", s.health_status.clone()),
        ("ResiliencySettingName", s.resiliency.clone()),
        ("FaultDomainRedundancy", s.redundancy.to_string()),
        ("ProvisioningType", s.provisioning.clone()),
        ("Size", human_bytes(s.size)),
        ("FootprintOnPool", human_bytes(s.footprint)),
        ("StorageEfficiency", format!("{} %", s.efficiency)),
        ("NumberOfColumns", s.columns.to_string()),
        ("Interleave", human_bytes(u64::from(s.interleave))),
    ];
    lines.extend(s.attached.iter().map(|p| ("AttachedTo", p.display().to_string())));
    lines
}
