//! The health of pools in the control interface: `GET /v1/health`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How everything is.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct HealthReport {
    /// The pools, with what they are made of.
    pub pools: Vec<HealthNode>,
    /// The faults, each root cause once, the worst first.
    pub faults: Vec<FaultStatus>,
}

/// A pool, a fault domain, a disk or a virtual disk.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct HealthNode {
    /// `Pool`, `Rack`, `Node`, `Enclosure`, `PhysicalDisk` or `VirtualDisk`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Such as `OK`.
    pub operational_status: String,
    /// `Healthy`, `Warning`, `Unhealthy` or `Unknown`.
    pub health_status: String,
    /// Of a pool: the failures that it survives now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose: Option<String>,
    /// Its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<HealthNode>,
}

/// A fault, with the names of the fields that `Get-HealthFault` has.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct FaultStatus {
    /// The same for as long as the fault is there, and when it comes back.
    pub fault_id: String,
    /// Such as `PhysicalDisk.LostCommunication`.
    pub fault_type: String,
    /// 4 information, 5 warning, 6 error; with all that follows from it.
    pub perceived_severity: u8,
    /// The problem, and how to repair it manually.
    pub reason: String,
    /// The faulty object.
    pub faulting_object_description: String,
    /// Where that is.
    pub faulting_object_location: String,
    /// Commands, each of which can be run as it is.
    pub recommended_actions: Vec<String>,
    /// The consequences, which end with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<FaultStatus>,
    /// Since when it is known, in seconds since 1970; none for what was found just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_unix_s: Option<u64>,
}

/// The severity of what is good to know.
pub const INFORMATION: u8 = 4;
/// From this severity on something has to be done.
pub const WARNING: u8 = 5;
/// The severity of what does not work, or is lost.
pub const ERROR: u8 = 6;

impl FaultStatus {
    /// `Information`, `Warning` or `Error`.
    pub fn severity_text(&self) -> &'static str {
        severity_text(self.perceived_severity)
    }
}

/// `Information`, `Warning` or `Error`.
pub fn severity_text(perceived_severity: u8) -> &'static str {
    match perceived_severity {
        ..=INFORMATION => "Information",
        WARNING => "Warning",
        _ => "Error",
    }
}
