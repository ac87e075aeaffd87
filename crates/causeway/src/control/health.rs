//! The health of pools in the control interface: `GET /v1/health`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The health of all pools.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct HealthReport {
    /// The pools and their parts.
    pub pools: Vec<HealthNode>,
    /// The faults, one for each root cause, the most severe first.
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
    /// The failures that a pool survives now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_lose: Option<String>,
    /// Its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<HealthNode>,
}

/// A fault, with the field names of `Get-HealthFault`.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct FaultStatus {
    /// The identity: constant while the fault exists, and the same if it occurs again.
    pub fault_id: String,
    /// Such as `PhysicalDisk.LostCommunication`.
    pub fault_type: String,
    /// The highest severity of the fault and its consequences: 4 information, 5 warning, 6 error.
    pub perceived_severity: u8,
    /// The problem, and how to repair it manually.
    pub reason: String,
    /// The faulty object.
    pub faulting_object_description: String,
    /// The location of the object.
    pub faulting_object_location: String,
    /// Commands that can be run unchanged.
    pub recommended_actions: Vec<String>,
    /// The consequences, which end when the fault ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<FaultStatus>,
    /// When the fault was first seen, in seconds since 1970; none if it was found just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_unix_s: Option<u64>,
}

/// The severity of information.
pub const INFORMATION: u8 = 4;
/// From this severity on, action is needed.
pub const WARNING: u8 = 5;
/// The severity of failures and losses.
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
