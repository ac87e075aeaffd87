//! SMB Server Shares.

use super::Set;
use super::requests::{DATA_COUNTERS, FILE_COUNTERS, FILES, METRICS, SERVER_COUNTERS};

const NOT_COUNTED: &str = "not counted yet";

/// One instance per share name; it stays when the share goes, so that its counts never go back.
pub static SERVER_SHARES: Set = Set {
    name: "SMB Server Shares",
    instances: "a share, by name",
    prefix: "causeway_smb_server_share",
    labels: &["share"],
    metrics: &[&METRICS, &FILES],
    counters: &[&DATA_COUNTERS, &SERVER_COUNTERS, &FILE_COUNTERS],
    absent: &[
        ("Current Durable Open File Count", NOT_COUNTED),
        ("Total Durable Handle Reopen Count", NOT_COUNTED),
        ("Total Failed Durable Handle Reopen Count", NOT_COUNTED),
        ("% Resilient Handles", NOT_COUNTED),
        ("Total Resilient Handle Reopen Count", NOT_COUNTED),
        ("Total Failed Resilient Handle Reopen Count", NOT_COUNTED),
        ("% Persistent Handles", NOT_COUNTED),
        ("Total Persistent Handle Reopen Count", NOT_COUNTED),
        ("Total Failed Persistent Handle Reopen Count", NOT_COUNTED),
    ],
};
