//! Disks, pools and virtual disks (spaces) in the control interface.
//!
//! | method and path | what |
//! |---|---|
//! | `GET /v1/disks` | [`DiskStatus`] |
//! | `GET /v1/disks/{disk}` | [`DiskDetail`] |
//! | `POST /v1/disks/return` | [`ReturnRequest`] |
//! | `POST /v1/disks/files` | [`NewFiles`]: creates files as disks |
//! | `POST /v1/disks/qualify` | [`QualifyRequest`] → [`Qualified`] |
//! | `GET, POST /v1/pools` | [`PoolStatus`], [`NewPool`] |
//! | `POST /v1/pools/import` | [`ImportRequest`] |
//! | `GET, PATCH, DELETE /v1/pools/{name}` | [`PoolDetail`], [`PoolChange`] |
//! | `POST /v1/pools/{name}/export` | |
//! | `POST /v1/pools/{name}/optimize` | |
//! | `POST /v1/pools/{name}/disks/{disk}/offline` | |
//! | `POST /v1/pools/{name}/clear` | [`ClearRequest`] |
//! | `POST /v1/pools/{name}/disks`, `DELETE /v1/pools/{name}/disks/{disk}` | [`NewDisks`] |
//! | `PATCH /v1/pools/{name}/disks/{disk}` | [`DiskChange`] |
//! | `POST /v1/pools/{name}/disks/{disk}/replace` | [`NewDisks`]: exactly one disk |
//! | `POST /v1/disks/identify` | [`Identify`] |
//! | `GET /v1/enclosures` | [`EnclosureStatus`] |
//! | `GET, POST /v1/spaces` | [`SpaceStatus`], [`NewSpace`] |
//! | `GET, PATCH, DELETE /v1/spaces/{name}` | [`SpaceDetail`], [`SpaceChange`] |
//! | `POST, DELETE /v1/spaces/{name}/attachment` | [`Attach`] |
//! | `POST /v1/spaces/{name}/repair` | |
//! | `GET /v1/health` | [`HealthReport`](super::health::HealthReport) |
//! | `GET /v1/events?after=N&pool=NAME&limit=K` | [`Event`](super::events::Event), the newest last: see [`EventQuery`](super::events::EventQuery) |
//! | `GET /v1/jobs` | [`JobStatus`] |
//! | `POST /v1/jobs/{id}/{change}` | [`JobChange`] |
//!
//! In place of the name of a pool or space its identity is accepted too; a space can also be named `pool/space`.

pub mod routes;
mod rows;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The request to clear the record of repaired errors.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ClearRequest {
    /// One disk by number, path or identity; without it, all disks of the pool.
    pub disk: Option<String>,
}

/// One disk: of a pool, or a candidate.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Its number in its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Model, or `file`.
    pub friendly_name: String,
    /// Its identity.
    pub unique_id: String,
    /// Its path; none for an absent disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The last path of an absent disk since its pool was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_path: Option<PathBuf>,
    /// `SSD`, `HDD`, `NVMe`, `SCM` or `Unspecified`.
    pub media_type: String,
    /// Whether it can be pooled.
    pub can_pool: bool,
    /// Why it cannot be pooled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cannot_pool_reasons: Vec<Reason>,
    /// Such as `OK`.
    pub operational_status: String,
    /// Such as `Healthy`.
    pub health_status: String,
    /// Such as `Auto-Select`.
    pub usage: String,
    /// The size in bytes.
    pub size: u64,
    /// Bytes of slabs in use.
    pub allocated: u64,
    /// The serial number; empty if unknown.
    #[serde(default)]
    pub serial_number: String,
    /// The version of its firmware; empty if unknown.
    #[serde(default)]
    pub firmware_version: String,
    /// The enclosure that contains it; empty if unknown.
    #[serde(default)]
    pub enclosure: String,
    /// The slot of the enclosure; empty if unknown.
    #[serde(default)]
    pub slot: String,
    /// The machine that contains it; empty if unknown.
    #[serde(default)]
    pub node: String,
    /// The rack that contains it; empty if unknown.
    #[serde(default)]
    pub rack: String,
    /// Its pool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// One disk, with the parts of virtual disks on it.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct DiskDetail {
    /// The disk.
    #[serde(flatten)]
    pub disk: DiskStatus,
    /// The parts of virtual disks on it.
    pub allocations: Vec<Allocation>,
}

/// A part of a virtual disk on one disk.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Allocation {
    /// The virtual disk.
    pub virtual_disk: String,
    /// `Data`, or `Journal`: the log of the virtual disk.
    pub part: String,
    /// The disk's number in the pool.
    pub number: u16,
    /// Bytes of slabs.
    pub allocated: u64,
    /// The path of the disk; none for an absent disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// Why a disk cannot be pooled.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Reason {
    /// `CannotPoolReason`.
    pub reason: String,
    /// The finding.
    pub found: String,
    /// The action that helps.
    pub cure: String,
}

/// Files to be disks.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewFiles {
    /// Absolute paths of files that do not exist.
    pub paths: Vec<PathBuf>,
    /// Size of each file in bytes.
    pub size: u64,
}

/// The request to return a disk to its pool.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ReturnRequest {
    /// `POOL/NUMBER`, its identity, or its path, which may be outside of the configured paths.
    pub disk: String,
    /// Return it even if data that only this disk has may be stale.
    #[serde(default)]
    pub accept_loss: bool,
}

/// A disk to examine.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct QualifyRequest {
    /// Its path.
    pub path: PathBuf,
    /// Ignore existing data on it.
    #[serde(default)]
    pub force: bool,
}

/// The examination of a disk before it is pooled.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Qualified {
    /// The disk.
    pub disk: DiskStatus,
    /// Recommended improvements.
    pub warnings: Vec<String>,
    /// The signatures of data on it.
    pub signatures: Vec<String>,
    /// The size of atomic writes in bytes: a power cut does not tear them.
    pub atomic_write: u32,
    /// The median latency of its flushes in microseconds, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_us: Option<u64>,
}

/// One pool.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub unique_id: String,
    /// Such as `OK`.
    pub operational_status: String,
    /// Such as `Healthy`.
    pub health_status: String,
    /// It accepts no changes.
    pub is_read_only: bool,
    /// Bytes of all slabs.
    pub size: u64,
    /// Bytes of slabs in use.
    pub allocated: u64,
    /// Capacity and allocation of the disks of each medium.
    #[serde(default)]
    pub media: Vec<MediaStatus>,
    /// Size of a slab in bytes.
    pub slab_size: u64,
    /// The number of its disks.
    pub disks: usize,
    /// The number of its absent disks.
    pub disks_missing: usize,
    /// The number of its virtual disks.
    pub spaces: usize,
    /// How many disks may fail now at the same moment without loss of data; none for a pool that is not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose: Option<usize>,
    /// The same in words, with the number of fault domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose_text: Option<String>,
    /// The effect of one more failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose_because: Option<String>,
    /// Why it is not open, or accepts no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The action that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
    /// See [`PoolChange::warn_at`].
    #[serde(default)]
    pub warn_at: u8,
    /// See [`PoolChange::repair_after_s`].
    #[serde(default)]
    pub repair_after_s: u32,
    /// Notes about its opening, and warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The disks of a pool with the same medium.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct MediaStatus {
    /// `SSD`, `HDD`, `NVMe`, `SCM` or `Unspecified`.
    pub media_type: String,
    /// The number of disks.
    pub disks: usize,
    /// Bytes of all slabs.
    pub size: u64,
    /// Bytes of slabs in use.
    pub allocated: u64,
}

/// One pool with its disks and virtual disks.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct PoolDetail {
    /// The pool.
    #[serde(flatten)]
    pub pool: PoolStatus,
    /// Its disks.
    pub physical_disks: Vec<DiskStatus>,
    /// Its virtual disks.
    pub virtual_disks: Vec<SpaceStatus>,
    /// Damage found since the pool was opened, and its repair.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// The paths of the disks of a pool that is not open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed_disks: Vec<PathBuf>,
}

/// Blocks of 4 KiB on a disk that were damaged.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Finding {
    /// The disk's number.
    pub disk: u16,
    /// The damage, and its repair.
    pub found: String,
    /// The number of blocks.
    pub units: u64,
}

/// One job.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct JobStatus {
    /// The number of the job.
    pub id: u64,
    /// `Resolve` (after a crash), `Resync`, `Rebuild` or `Drain` (of a disk), `Rebalance` (of a pool),
    /// `Repair` or `Scrub` (of a virtual disk).
    pub name: String,
    /// The disk, pool or virtual disk.
    pub object: String,
    /// The pool's name.
    pub pool: String,
    /// The time since it started, in seconds.
    pub elapsed_s: u64,
    /// `Running`, `Suspended` (by command), `Waiting` or `Shutting down`.
    pub state: String,
    /// The processed percentage of its bytes.
    pub percent_complete: u64,
    /// Processed bytes.
    pub bytes_processed: u64,
    /// All bytes, as far as known.
    pub bytes_total: u64,
    /// Remaining bytes.
    pub bytes_left: u64,
    /// The rate over the last ten seconds, in bytes per second.
    pub bytes_per_s: u64,
    /// The remaining time at the present rate, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    /// Why it does not run at full speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobChange {
    /// Pause it until it is resumed or the server restarts.
    Pause,
    /// Resume it.
    Resume,
    /// Stop it.
    Stop,
}

/// The request to create a pool.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its disks.
    #[serde(flatten)]
    pub disks: NewDisks,
    /// Size of a slab in bytes; if none, by the size of the disks.
    #[serde(default)]
    pub slab_size: Option<u64>,
}

/// Disks for a pool.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewDisks {
    /// Absolute paths.
    pub paths: Vec<PathBuf>,
    /// Erase the data on them, including the label of another pool.
    #[serde(default)]
    pub force: bool,
    /// Assume that they write 4 KiB atomically, even if the system does not report it.
    #[serde(default)]
    pub assume_atomic: bool,
    /// Return a disk even if data that only this disk has may be stale.
    #[serde(default)]
    pub accept_loss: bool,
    /// Their usage.
    #[serde(default)]
    pub usage: Option<UsageSetting>,
    /// Their medium; if none, as the system reports it.
    #[serde(default)]
    pub media: Option<MediaSetting>,
    /// Their location.
    #[serde(flatten)]
    pub place: Place,
}

/// The location of disks; absent fields do not change, or are as the system reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct Place {
    /// Enclosure that contains the disks; copies are placed in different enclosures
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub enclosure: Option<String>,
    /// Machine that contains the disks
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub node: Option<String>,
    /// Rack that contains the disks
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub rack: Option<String>,
}

/// The usage of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSetting {
    /// New data is allocated on it
    AutoSelect,
    /// No new data is allocated on it; existing data stays
    ManualSelect,
    /// The data of lost disks is rebuilt on it
    HotSpare,
    /// Only logs of virtual disks are allocated on it
    Journal,
    /// Its data is moved to other disks
    Retired,
}

/// The medium of a disk (`MediaType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MediaSetting {
    /// Magnetic disks with heads
    Hdd,
    /// Flash behind SATA or SAS
    Ssd,
    /// Flash behind NVMe
    Nvme,
    /// Storage-class memory
    Scm,
    /// Unknown; virtual disks that are limited to certain media do not use it
    Unspecified,
}

/// The media that a virtual disk may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ClassSetting {
    /// Disks that `disk list` calls HDD
    Hdd,
    /// Disks that `disk list` calls SSD; not NVMe
    Ssd,
    /// Disks that `disk list` calls NVMe
    Nvme,
    /// Disks that `disk list` calls SCM
    Scm,
    /// SSD, NVMe and SCM
    Flash,
    /// All media, including unknown ones
    Any,
}

/// The changes of a disk of a pool.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct DiskChange {
    /// Its usage.
    #[serde(default)]
    pub usage: Option<UsageSetting>,
    /// Its medium.
    #[serde(default)]
    pub media: Option<MediaSetting>,
    /// Its location.
    #[serde(flatten)]
    pub place: Place,
}

/// The request to switch the identification light of a disk.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Identify {
    /// `POOL/NUMBER`, its path or its identity.
    pub disk: String,
    /// Whether to switch the light on.
    pub on: bool,
}

/// An enclosure: one that the system reports, or one that was named by command.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct EnclosureStatus {
    /// Its name; the identity if the system reports it.
    pub name: String,
    /// Its manufacturer and model.
    pub model: String,
    /// The number of its slots, if the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,
    /// Disks of pools in it: pool and number.
    pub disks: Vec<String>,
    /// The number of absent disks among them.
    pub missing: usize,
    /// Such as `OK`; `Lost communication` if all of these disks are absent.
    pub operational_status: String,
    /// Such as `Healthy`.
    pub health_status: String,
}

/// The changes of a pool.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct PoolChange {
    /// Its new name.
    #[serde(default)]
    pub name: Option<String>,
    /// Warn when more than this percentage of the capacity is in use.
    #[serde(default)]
    pub warn_at: Option<u8>,
    /// Seconds after which a lost disk is rebuilt on others; 4294967295: never automatically.
    #[serde(default)]
    pub repair_after_s: Option<u32>,
}

/// The request to search for pools and open them.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct ImportRequest {
    /// Only this pool.
    #[serde(default)]
    pub name: Option<String>,
    /// Paths to search in addition to the configured ones.
    #[serde(default)]
    pub paths: Vec<PathBuf>,
    /// Accept the loss of data that only missing disks have.
    #[serde(default)]
    pub accept_loss: bool,
    /// Open for reading only.
    #[serde(default)]
    pub read_only: bool,
    /// Take it from its current owner.
    #[serde(default)]
    pub force: bool,
}

/// One virtual disk.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct SpaceStatus {
    /// Its name.
    pub name: String,
    /// The name of its pool.
    pub pool: String,
    /// `Simple`, `Mirror` or `Parity`.
    pub resiliency: String,
    /// The number of disks whose loss it is designed to survive.
    pub redundancy: usize,
    /// The requested number of copies, while it is being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_wanted: Option<usize>,
    /// The percentage of its addresses that have the new resiliency and columns, while it is converted to these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converted_percent: Option<u64>,
    /// Such as `OK`.
    pub operational_status: String,
    /// Such as `Healthy`.
    pub health_status: String,
    /// The size in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub footprint: u64,
    /// Data as a percentage of the allocated bytes.
    pub efficiency: u64,
    /// `Thin` or `Fixed`.
    pub provisioning: String,
    /// The media that it may use, such as `SSD` or `SSD, NVMe`; `Unspecified`: any.
    #[serde(default)]
    pub media_type: String,
    /// The number of columns, including parity.
    pub columns: u8,
    /// The number of groups of a local reconstruction code; 1 for all other virtual disks.
    #[serde(default = "one")]
    pub groups: u8,
    /// Consecutive bytes on one column.
    pub interleave: u32,
    /// The socket of its NBD server, or its block device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<PathBuf>,
    /// The current or last scrub; none if there was no scrub yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<ScrubStatus>,
}

/// One virtual disk, with the disks that store it.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct SpaceDetail {
    /// The virtual disk.
    #[serde(flatten)]
    pub space: SpaceStatus,
    /// The number of copies of each column; 1 with parity.
    pub copies: usize,
    /// Its parts, by disk.
    pub allocations: Vec<Allocation>,
}

/// [`SpaceStatus::groups`] of an older server.
fn one() -> u8 {
    1
}

/// A scrub: the reading of all copies of a virtual disk.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// When the current one began, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_unix_s: Option<u64>,
    /// When the last one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_unix_s: Option<u64>,
    /// Blocks of 4 KiB that the current scrub, or else the last one, repaired.
    pub healed: u64,
    /// Blocks of 4 KiB without a valid copy.
    pub lost: u64,
}

/// The resiliency of a virtual disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ResiliencySetting {
    /// One copy: no disk may fail
    Simple,
    /// Two copies: one disk may fail
    Mirror,
    /// Three copies: two disks may fail
    ThreeWayMirror,
    /// One column of parity: one disk may fail
    Parity,
    /// Two columns of parity: two disks may fail
    DualParity,
}

impl ResiliencySetting {
    /// All settings.
    pub const ALL: [ResiliencySetting; 5] = [
        ResiliencySetting::Simple,
        ResiliencySetting::Mirror,
        ResiliencySetting::ThreeWayMirror,
        ResiliencySetting::Parity,
        ResiliencySetting::DualParity,
    ];

    /// The word in the configuration file.
    pub fn as_str(self) -> &'static str {
        match self {
            ResiliencySetting::Simple => "simple",
            ResiliencySetting::Mirror => "mirror",
            ResiliencySetting::ThreeWayMirror => "three-way-mirror",
            ResiliencySetting::Parity => "parity",
            ResiliencySetting::DualParity => "dual-parity",
        }
    }
}

/// When slabs are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ProvisioningSetting {
    /// When they are written
    Thin,
    /// When the virtual disk is created
    Fixed,
}

/// The request to create a virtual disk.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewSpace {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Its resiliency.
    pub resiliency: ResiliencySetting,
    /// Size in bytes; none: all free capacity of the pool.
    #[serde(default)]
    pub size: Option<u64>,
    /// The number of columns, including parity; if none, by the number of disks.
    #[serde(default)]
    pub columns: Option<u8>,
    /// The number of groups of columns of dual parity: 1 (Reed-Solomon) or 2 (local reconstruction).
    #[serde(default)]
    pub groups: Option<u8>,
    /// Consecutive bytes on one column before the next column follows.
    #[serde(default)]
    pub interleave: Option<u32>,
    /// When slabs are allocated.
    pub provisioning: ProvisioningSetting,
    /// The media that it may use; if none, any.
    #[serde(default)]
    pub media: Vec<ClassSetting>,
}

/// The changes of a virtual disk.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct SpaceChange {
    /// Its new name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its new size in bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// The media that it may use.
    #[serde(default)]
    pub media: Option<Vec<ClassSetting>>,
    /// Its new resiliency.
    #[serde(default)]
    pub resiliency: Option<ResiliencySetting>,
    /// Its new number of columns, including parity; if none, the present one if only the number of copies changes,
    /// otherwise as for a new virtual disk.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Data beyond the new size may be destroyed.
    #[serde(default)]
    pub destroy: bool,
}

/// The request to attach a virtual disk.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Attach {
    /// The Unix socket for the NBD protocol; absolute. This or `ublk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<PathBuf>,
    /// Create a block device.
    #[serde(default)]
    pub ublk: bool,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
}
