//! Disks, pools and virtual disks (spaces) in the control interface.
//!
//! | method and path | what |
//! |---|---|
//! | `GET /v1/disks` | [`DiskStatus`] |
//! | `GET /v1/disks/{disk}` | [`DiskDetail`] |
//! | `POST /v1/disks/return` | [`ReturnRequest`] |
//! | `POST /v1/disks/files` | [`NewFiles`]: files to be disks |
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
//! | `POST /v1/pools/{name}/disks/{disk}/replace` | [`NewDisks`]: one |
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
//! A pool's or space's name may be its identity too; a space's may be written `pool/space`.

pub mod routes;
mod rows;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose repaired errors are forgotten.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ClearRequest {
    /// One disk by number, path or identity; all of the pool if there is none.
    pub disk: Option<String>,
}

/// One disk: of a pool, or one that might become one.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Its number in its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Model, or `file`.
    pub friendly_name: String,
    /// Its identity.
    pub unique_id: String,
    /// Where it is; none for one that is not here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Where one that is not here was last since its pool was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_path: Option<PathBuf>,
    /// `SSD`, `HDD`, `NVMe`, `SCM` or `Unspecified`.
    pub media_type: String,
    /// Whether it may go into a pool.
    pub can_pool: bool,
    /// Why not: the field's words, what was found, and the cure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cannot_pool_reasons: Vec<Reason>,
    /// Such as `OK`.
    pub operational_status: String,
    /// Such as `Healthy`.
    pub health_status: String,
    /// Such as `Auto-Select`.
    pub usage: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of slabs in use.
    pub allocated: u64,
    /// The maker's number; empty if unknown.
    #[serde(default)]
    pub serial_number: String,
    /// The version of its firmware; empty if unknown.
    #[serde(default)]
    pub firmware_version: String,
    /// The enclosure it stands in, and the slot; empty if unknown.
    #[serde(default)]
    pub enclosure: String,
    /// See above.
    #[serde(default)]
    pub slot: String,
    /// The machine and the rack it stands in; empty if unknown.
    #[serde(default)]
    pub node: String,
    /// See above.
    #[serde(default)]
    pub rack: String,
    /// Its pool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// One disk, with what it holds.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct DiskDetail {
    /// It.
    #[serde(flatten)]
    pub disk: DiskStatus,
    /// The parts of virtual disks there.
    pub allocations: Vec<Allocation>,
}

/// The part of a virtual disk that one disk holds.
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
    /// Where the disk is; none for one that is not here.
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
    /// Absolute; none may be there.
    pub paths: Vec<PathBuf>,
    /// Bytes of each.
    pub size: u64,
}

/// A disk to give back to the pool that misses it.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ReturnRequest {
    /// `POOL/NUMBER`, its identity, or its path, which may be in none of the configured places.
    pub disk: String,
    /// It is taken although what only it has may be old.
    #[serde(default)]
    pub accept_loss: bool,
}

/// A disk to examine.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct QualifyRequest {
    /// Which.
    pub path: PathBuf,
    /// Data on it may be overwritten.
    #[serde(default)]
    pub force: bool,
}

/// The examination of a disk before it is pooled.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Qualified {
    /// It.
    pub disk: DiskStatus,
    /// Recommended improvements.
    pub warnings: Vec<String>,
    /// Its contents.
    pub signatures: Vec<String>,
    /// Bytes that a power cut does not tear.
    pub atomic_write: u32,
    /// The median of its flushes in microseconds, if it was measured.
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
    /// It takes no changes.
    pub is_read_only: bool,
    /// Bytes of all slabs.
    pub size: u64,
    /// Bytes of slabs in use.
    pub allocated: u64,
    /// The same of the disks of each medium.
    #[serde(default)]
    pub media: Vec<MediaStatus>,
    /// Bytes of a slab.
    pub slab_size: u64,
    /// Its disks, and how many of them are not here.
    pub disks: usize,
    /// See above.
    pub disks_missing: usize,
    /// Its virtual disks.
    pub spaces: usize,
    /// How many disks may fail at the same moment now, with nothing lost; none for a pool that is not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose: Option<usize>,
    /// The same in words, and how many fault domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose_text: Option<String>,
    /// The effect of one more failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose_because: Option<String>,
    /// Why it is not open, or takes no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The action that helps with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
    /// See [`PoolChange::warn_at`].
    #[serde(default)]
    pub warn_at: u8,
    /// See [`PoolChange::repair_after_s`].
    #[serde(default)]
    pub repair_after_s: u32,
    /// Findings of its opening.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The disks of a pool that keep their bits in the same.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct MediaStatus {
    /// `SSD`, `HDD`, `NVMe`, `SCM` or `Unspecified`.
    pub media_type: String,
    /// How many.
    pub disks: usize,
    /// Bytes of all slabs.
    pub size: u64,
    /// Bytes of slabs in use.
    pub allocated: u64,
}

/// One pool with all that is in it.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct PoolDetail {
    /// It.
    #[serde(flatten)]
    pub pool: PoolStatus,
    /// Its disks.
    pub physical_disks: Vec<DiskStatus>,
    /// Its virtual disks.
    pub virtual_disks: Vec<SpaceStatus>,
    /// Damage found since the pool was opened, and its repair.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Where its disks were found, of one that is not open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed_disks: Vec<PathBuf>,
}

/// Units of 4 KiB on a disk that were not as they were written.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Finding {
    /// The disk's number.
    pub disk: u16,
    /// The damage, and its repair.
    pub found: String,
    /// How many.
    pub units: u64,
}

/// One job.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its number.
    pub id: u64,
    /// `Resolve` (after a crash), `Resync`, `Rebuild` or `Drain` (of a disk), `Rebalance` (of a pool),
    /// `Repair` or `Scrub` (of a virtual disk).
    pub name: String,
    /// Of what.
    pub object: String,
    /// The pool's name.
    pub pool: String,
    /// Since it began, in seconds.
    pub elapsed_s: u64,
    /// `Running`, `Suspended` (by hand), `Waiting` or `Shutting down`.
    pub state: String,
    /// Of its bytes.
    pub percent_complete: u64,
    /// Bytes done.
    pub bytes_processed: u64,
    /// Bytes there are, as far as is known.
    pub bytes_total: u64,
    /// Remaining bytes.
    pub bytes_left: u64,
    /// Bytes a second, over the last ten.
    pub bytes_per_s: u64,
    /// Seconds until it ends, at the present rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    /// Why it does not go at full speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobChange {
    /// It continues when it is resumed, or when the server restarts.
    Pause,
    /// Continue.
    Resume,
    /// It ends.
    Stop,
}

/// A pool to make.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its disks.
    #[serde(flatten)]
    pub disks: NewDisks,
    /// Bytes of a slab; by the size of the disks if none.
    #[serde(default)]
    pub slab_size: Option<u64>,
}

/// Disks for a pool.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewDisks {
    /// Absolute.
    pub paths: Vec<PathBuf>,
    /// Data on them is erased, including another pool's label.
    #[serde(default)]
    pub force: bool,
    /// They write 4 KiB at once although the system does not promise it.
    #[serde(default)]
    pub assume_atomic: bool,
    /// A disk that returns is taken although what only it has may be old.
    #[serde(default)]
    pub accept_loss: bool,
    /// Their usage.
    #[serde(default)]
    pub usage: Option<UsageSetting>,
    /// Their medium; if none, as the system reports it.
    #[serde(default)]
    pub media: Option<MediaSetting>,
    /// Where they stand.
    #[serde(flatten)]
    pub place: Place,
}

/// The location of disks; absent fields do not change, or are as the system reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct Place {
    /// The enclosure that the disks are in: copies go to different ones
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub enclosure: Option<String>,
    /// The machine that the disks are in
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub node: Option<String>,
    /// The rack that the disks are in
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub rack: Option<String>,
}

/// The usage of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSetting {
    /// New slabs go there
    AutoSelect,
    /// No new slabs go there; existing ones stay
    ManualSelect,
    /// It takes what a disk had that was lost
    HotSpare,
    /// Only the logs of virtual disks go there
    Journal,
    /// Its data moves to other disks
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
    /// Unknown; virtual disks with a class of media do not use it
    Unspecified,
}

/// The media that a virtual disk may lie on.
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
    /// All of them, also those of which nothing is known
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
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
}

/// A disk to show itself.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Identify {
    /// `POOL/NUMBER`, its path or its identity.
    pub disk: String,
    /// Whether its light is to be on.
    pub on: bool,
}

/// An enclosure: one that the system reports, or one that was named by command.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct EnclosureStatus {
    /// Its name, which is its identity where the system knows it.
    pub name: String,
    /// Its maker and model.
    pub model: String,
    /// Places for disks, as far as the system knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,
    /// Disks of pools that stand in it: pool and number.
    pub disks: Vec<String>,
    /// How many of them are not here.
    pub missing: usize,
    /// Such as `OK`; `Lost communication` when all of them are gone.
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
    /// A warning when more of its room is in use, in percent.
    #[serde(default)]
    pub warn_at: Option<u8>,
    /// Seconds after which a lost disk is rebuilt on others; 4294967295: never automatically.
    #[serde(default)]
    pub repair_after_s: Option<u32>,
}

/// Pools to look for and open.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct ImportRequest {
    /// Only this one.
    #[serde(default)]
    pub name: Option<String>,
    /// Where to look beside the configured places.
    #[serde(default)]
    pub paths: Vec<PathBuf>,
    /// Data that only missing disks have is given up.
    #[serde(default)]
    pub accept_loss: bool,
    /// Nothing is written.
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
    /// Its pool's.
    pub pool: String,
    /// `Simple`, `Mirror` or `Parity`.
    pub resiliency: String,
    /// How many disks it promises to survive.
    pub redundancy: usize,
    /// The copies that its data is to have, while their number changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_wanted: Option<usize>,
    /// Such as `OK`.
    pub operational_status: String,
    /// Such as `Healthy`.
    pub health_status: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of its slabs.
    pub footprint: u64,
    /// Bytes of data in a hundred bytes of the pool.
    pub efficiency: u64,
    /// `Thin` or `Fixed`.
    pub provisioning: String,
    /// The media that it may lie on, such as `SSD` or `SSD, NVMe`; `Unspecified`: any.
    #[serde(default)]
    pub media_type: String,
    /// Columns, those of parity too.
    pub columns: u8,
    /// Groups of a local reconstruction code; 1: it has none.
    #[serde(default = "one")]
    pub groups: u8,
    /// Bytes that go to one column.
    pub interleave: u32,
    /// The socket it is served on, or the block device it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<PathBuf>,
    /// The current or last scrub; none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<ScrubStatus>,
}

/// One virtual disk, with the disks that hold it.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct SpaceDetail {
    /// It.
    #[serde(flatten)]
    pub space: SpaceStatus,
    /// Copies of each column; 1 with parity.
    pub copies: usize,
    /// Its parts, by disk.
    pub allocations: Vec<Allocation>,
}

/// [`SpaceStatus::groups`] of a server that does not say.
fn one() -> u8 {
    1
}

/// The reading of all copies of a virtual disk.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// When the current one began, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_unix_s: Option<u64>,
    /// When the last one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_unix_s: Option<u64>,
    /// Units of 4 KiB that the current one, or else the last one, repaired.
    pub healed: u64,
    /// Those that it found on no copy.
    pub lost: u64,
}

/// How a space survives failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ResiliencySetting {
    /// It does not
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
    /// All of them.
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
    /// When the virtual disk is made
    Fixed,
}

/// A virtual disk to make.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewSpace {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// How it survives failures.
    pub resiliency: ResiliencySetting,
    /// Bytes; none: all that the pool has room for.
    #[serde(default)]
    pub size: Option<u64>,
    /// Columns, those of parity too; by the number of disks if none.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Groups of columns, each with a parity of its own, of dual parity: 1 (Reed-Solomon) or 2 (local reconstruction).
    #[serde(default)]
    pub groups: Option<u8>,
    /// Bytes that go to one column before the next.
    #[serde(default)]
    pub interleave: Option<u32>,
    /// When slabs are allocated.
    pub provisioning: ProvisioningSetting,
    /// The media that it may lie on; any, if none is named.
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
    /// The media that it may lie on from now on.
    #[serde(default)]
    pub media: Option<Vec<ClassSetting>>,
    /// How it survives failures from now on: another number of copies.
    #[serde(default)]
    pub resiliency: Option<ResiliencySetting>,
    /// Data beyond the new size may be destroyed.
    #[serde(default)]
    pub destroy: bool,
}

/// Where to serve a virtual disk.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Attach {
    /// The Unix socket for the NBD protocol; absolute. This or `ublk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<PathBuf>,
    /// As a block device of the kernel.
    #[serde(default)]
    pub ublk: bool,
    /// Nothing may be written through it.
    #[serde(default)]
    pub read_only: bool,
}
