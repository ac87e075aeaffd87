//! Tables of disks, pools and virtual disks, with the columns of the cmdlets.

use super::{Allocation, DiskStatus, EnclosureStatus, JobStatus, PoolStatus, SpaceStatus};
use crate::output::{Row, human_bytes, human_seconds};

fn yes(b: bool) -> String {
    if b { "True" } else { "False" }.to_owned()
}

/// As `Get-PhysicalDisk`.
impl Row for DiskStatus {
    const COLUMNS: &'static [&'static str] = &[
        ">Number",
        "FriendlyName",
        "StoragePool",
        "MediaType",
        "CanPool",
        "CannotPoolReason",
        "OperationalStatus",
        "HealthStatus",
        "Usage",
        ">Size",
        "Path",
    ];

    fn cells(&self) -> Vec<String> {
        let reasons: Vec<_> = self.cannot_pool_reasons.iter().map(|r| r.reason.as_str()).collect();
        vec![
            self.number.map_or_else(String::new, |n| n.to_string()),
            self.friendly_name.clone(),
            self.pool.clone().unwrap_or_default(),
            self.media_type.clone(),
            yes(self.can_pool),
            reasons.join(", "),
            self.operational_status.clone(),
            self.health_status.clone(),
            self.usage.clone(),
            human_bytes(self.size),
            self.path.as_ref().map_or_else(|| format!("({})", self.unique_id), |p| p.display().to_string()),
        ]
    }
}

impl PoolStatus {
    /// Whether the pool is open; of others most is not known.
    pub fn is_open(&self) -> bool {
        self.slab_size != 0
    }

    /// `1 enclosure or 2 disks now`.
    pub fn can_lose_text(&self) -> String {
        self.can_lose_text.clone().unwrap_or_else(|| "unknown".to_owned())
    }
}

/// As `Get-StoragePool`.
impl Row for PoolStatus {
    const COLUMNS: &'static [&'static str] = &[
        "FriendlyName",
        "OperationalStatus",
        "HealthStatus",
        "IsReadOnly",
        ">Size",
        ">AllocatedSize",
        ">Disks",
        "CanLose",
        "Reason",
    ];

    fn cells(&self) -> Vec<String> {
        let disks = match self.disks_missing {
            0 => self.disks.to_string(),
            missing => format!("{} of {}", self.disks - missing.min(self.disks), self.disks),
        };
        // Unknown for a pool that is not open.
        let size = |bytes| if self.is_open() { human_bytes(bytes) } else { String::new() };
        vec![
            self.name.clone(),
            self.operational_status.clone(),
            self.health_status.clone(),
            yes(self.is_read_only),
            size(self.size),
            size(self.allocated),
            disks,
            self.can_lose_text(),
            self.reason.clone().unwrap_or_default(),
        ]
    }
}

/// As `Get-StorageEnclosure`.
impl Row for EnclosureStatus {
    const COLUMNS: &'static [&'static str] = &[
        "FriendlyName",
        "Model",
        "OperationalStatus",
        "HealthStatus",
        ">NumberOfSlots",
        ">Missing",
        "Disks",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.model.clone(),
            self.operational_status.clone(),
            self.health_status.clone(),
            self.slots.map_or_else(String::new, |n| n.to_string()),
            self.missing.to_string(),
            self.disks.join(", "),
        ]
    }
}

impl SpaceStatus {
    /// Such as `Mirror`, and what it changes to.
    pub fn resiliency_text(&self) -> String {
        match self.copies_wanted {
            None => self.resiliency.clone(),
            Some(1) => format!("{} (changes to 1 copy)", self.resiliency),
            Some(copies) => format!("{} (changes to {copies} copies)", self.resiliency),
        }
    }
}

/// As `Get-VirtualDisk`.
impl Row for SpaceStatus {
    const COLUMNS: &'static [&'static str] = &[
        "FriendlyName",
        "StoragePool",
        "ResiliencySettingName",
        ">FaultDomainRedundancy",
        "OperationalStatus",
        "HealthStatus",
        ">Size",
        ">FootprintOnPool",
        "StorageEfficiency",
        "ProvisioningType",
        "MediaType",
        "AttachedTo",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.pool.clone(),
            self.resiliency_text(),
            self.redundancy.to_string(),
            self.operational_status.clone(),
            self.health_status.clone(),
            human_bytes(self.size),
            human_bytes(self.footprint),
            format!("{} %", self.efficiency),
            self.provisioning.clone(),
            self.media_type.clone(),
            self.attached.as_ref().map_or_else(String::new, |p| p.display().to_string()),
        ]
    }
}

impl Row for Allocation {
    const COLUMNS: &'static [&'static str] = &["VirtualDisk", "Part", ">Number", ">AllocatedSize", "Path"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.virtual_disk.clone(),
            self.part.clone(),
            self.number.to_string(),
            human_bytes(self.allocated),
            self.path.as_ref().map_or_else(|| "(not here)".to_owned(), |p| p.display().to_string()),
        ]
    }
}

impl JobStatus {
    /// How long it takes yet: `00:01:30`, or nothing while that is not known.
    pub fn left_text(&self) -> String {
        self.eta_s.map_or_else(String::new, human_seconds)
    }

    /// Such as `120 MiB/s`.
    pub fn rate_text(&self) -> String {
        format!("{}/s", human_bytes(self.bytes_per_s))
    }
}

/// As `Get-StorageJob`, with how fast it goes and why it does not go faster.
impl Row for JobStatus {
    const COLUMNS: &'static [&'static str] = &[
        ">JobId",
        "Name",
        "Object",
        "ElapsedTime",
        "JobState",
        ">PercentComplete",
        ">BytesProcessed",
        ">BytesLeft",
        ">BytesTotal",
        ">Rate",
        "TimeLeft",
        "Reason",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.object.clone(),
            human_seconds(self.elapsed_s),
            self.state.clone(),
            self.percent_complete.to_string(),
            human_bytes(self.bytes_processed),
            human_bytes(self.bytes_left),
            human_bytes(self.bytes_total),
            self.rate_text(),
            self.left_text(),
            self.reason.clone().unwrap_or_default(),
        ]
    }
}
