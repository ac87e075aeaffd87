//! SMB Client Shares.

use super::Set;
use super::requests::{CREDIT_COUNTERS, CREDITS, DATA_COUNTERS, METRICS};

/// One instance per share that a client of this process uses.
pub static CLIENT_SHARES: Set = Set {
    name: "SMB Client Shares",
    instances: r"a share that this process uses as a client, as \\server\share",
    prefix: "causeway_smb_client_share",
    labels: &["server", "share"],
    metrics: &[&METRICS, &CREDITS],
    counters: &[&DATA_COUNTERS, &CREDIT_COUNTERS],
    absent: &[
        ("Turbo I/O Reads/sec", "Turbo I/O is not implemented: all requests use the same path"),
        ("Turbo I/O Writes/sec", "Turbo I/O is not implemented: all requests use the same path"),
    ],
};
