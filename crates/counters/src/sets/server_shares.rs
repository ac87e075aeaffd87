//! SMB Server Shares.

use super::Set;
use super::requests::{DATA_COUNTERS, FILE_COUNTERS, FILES, METRICS, SERVER_COUNTERS};

const NO_HANDLES: &str = "resilient handles are not supported";
const NO_DURABLE: &str = "not counted yet";

/// One instance per share name; it stays when the share goes, so that its counts never go back.
pub static SERVER_SHARES: Set = Set {
    name: "SMB Server Shares",
    instances: "a share, by name",
    prefix: "causeway_smb_server_share",
    labels: &["share"],
    metrics: &[&METRICS, &FILES],
    counters: &[&DATA_COUNTERS, &SERVER_COUNTERS, &FILE_COUNTERS],
    absent: &[
        ("Current Durable Open File Count", NO_DURABLE),
        ("Total Durable Handle Reopen Count", NO_DURABLE),
        ("Total Failed Durable Handle Reopen Count", NO_DURABLE),
        ("% Resilient Handles", NO_HANDLES),
        ("Total Resilient Handle Reopen Count", NO_HANDLES),
        ("Total Failed Resilient Handle Reopen Count", NO_HANDLES),
        ("% Persistent Handles", NO_DURABLE),
        ("Total Persistent Handle Reopen Count", NO_DURABLE),
        ("Total Failed Persistent Handle Reopen Count", NO_DURABLE),
    ],
};
