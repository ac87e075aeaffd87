//! Tables of disks, pools and virtual disks, with the columns of the cmdlets.

use super::{Allocation, DiskStatus, EnclosureStatus, JobStatus, PoolStatus, SpaceStatus};
use crate::output::{Column, Row, human_bytes, human_seconds};

fn yes(b: bool) -> String {
    if b { "True" } else { "False" }.to_owned()
}

/// As `Get-PhysicalDisk`.
impl Row for DiskStatus {
    const COLUMNS: &'static [Column] = &[
        Column::right("Number"),
        Column::new("FriendlyName").rank(6),
        Column::new("StoragePool").rank(1),
        Column::new("MediaType").rank(3),
        Column::new("CanPool").rank(5),
        Column::new("CannotPoolReason").wraps().rank(2),
        Column::new("OperationalStatus").wraps().state(),
        Column::new("HealthStatus").state().rank(4),
        Column::new("Usage").rank(7),
        Column::right("Size").rank(1),
        Column::new("Path").wraps(),
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
            match (&self.path, &self.last_path) {
                (Some(path), _) => path.display().to_string(),
                (None, Some(last)) => format!("(was {})", last.display()),
                (None, None) => format!("({})", self.unique_id),
            },
        ]
    }
}

impl PoolStatus {
    /// Whether the pool is open; most facts of other pools are unknown.
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
    const COLUMNS: &'static [Column] = &[
        Column::new("FriendlyName"),
        Column::new("OperationalStatus").wraps().state(),
        Column::new("HealthStatus").state().rank(1),
        Column::new("IsReadOnly").rank(6),
        Column::right("Size").rank(1),
        Column::right("AllocatedSize").rank(1),
        Column::right("Disks").rank(2),
        Column::new("CanLose").wraps(),
        Column::new("Reason").wraps(),
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
    const COLUMNS: &'static [Column] = &[
        Column::new("FriendlyName"),
        Column::new("Model").rank(3),
        Column::new("OperationalStatus").wraps().state(),
        Column::new("HealthStatus").state().rank(1),
        Column::right("NumberOfSlots").rank(2),
        Column::right("Missing").rank(1),
        Column::new("Disks").wraps(),
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
    /// Such as `Mirror`, with a change in progress.
    pub fn resiliency_text(&self) -> String {
        if let Some(percent) = self.converted_percent {
            return format!("{} (converting, {percent} % done)", self.resiliency);
        }
        match self.copies_wanted {
            None => self.resiliency.clone(),
            Some(1) => format!("{} (changing to 1 copy)", self.resiliency),
            Some(copies) => format!("{} (changing to {copies} copies)", self.resiliency),
        }
    }
}

/// As `Get-VirtualDisk`.
impl Row for SpaceStatus {
    const COLUMNS: &'static [Column] = &[
        Column::new("FriendlyName"),
        Column::new("StoragePool").rank(2),
        Column::new("ResiliencySettingName").rank(1),
        Column::right("FaultDomainRedundancy").rank(5),
        Column::new("OperationalStatus").wraps().state(),
        Column::new("HealthStatus").state().rank(2),
        Column::right("Size"),
        Column::right("FootprintOnPool").rank(2),
        Column::new("StorageEfficiency").rank(6),
        Column::new("ProvisioningType").rank(7),
        Column::new("MediaType").rank(8),
        Column::new("AttachedTo").wraps().rank(1),
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
    const COLUMNS: &'static [Column] = &[
        Column::new("VirtualDisk"),
        Column::new("Part"),
        Column::right("Number"),
        Column::right("AllocatedSize"),
        Column::new("Path").wraps(),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.virtual_disk.clone(),
            self.part.clone(),
            self.number.to_string(),
            human_bytes(self.allocated),
            self.path.as_ref().map_or_else(|| "(absent)".to_owned(), |p| p.display().to_string()),
        ]
    }
}

impl JobStatus {
    /// The remaining time, such as `00:01:30`; empty if it is not known.
    pub fn left_text(&self) -> String {
        self.eta_s.map_or_else(String::new, human_seconds)
    }

    /// Such as `120 MiB/s`.
    pub fn rate_text(&self) -> String {
        format!("{}/s", human_bytes(self.bytes_per_s))
    }
}

/// As `Get-StorageJob`, with the rate and the reason for a reduced rate.
impl Row for JobStatus {
    const COLUMNS: &'static [Column] = &[
        Column::right("JobId"),
        Column::new("Name"),
        Column::new("Object").wraps(),
        Column::new("ElapsedTime").rank(4),
        Column::new("JobState").state(),
        Column::right("PercentComplete").rank(1),
        Column::right("BytesProcessed").rank(6),
        Column::right("BytesLeft").rank(3),
        Column::right("BytesTotal").rank(7),
        Column::right("Rate").rank(1),
        Column::new("TimeLeft").rank(1),
        Column::new("Reason").wraps(),
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
