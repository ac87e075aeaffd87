//! SMB Server Sessions.

use super::Set;
use super::requests::{DATA_COUNTERS, METRICS, SERVER_COUNTERS};

/// One instance per session, over all its channels and tree connects.
pub static SESSIONS: Set = Set {
    name: "SMB Server Sessions",
    instances: "a session, by its id (see causeway session list); counts requests on its tree connects",
    prefix: "causeway_smb_server_session",
    labels: &["session", "user", "client"],
    metrics: &[&METRICS],
    counters: &[&DATA_COUNTERS, &SERVER_COUNTERS],
    absent: &[
        ("Current Open File Count", "see causeway session list"),
        ("Tree Connect Count", "not counted per session"),
        ("Files Opened/sec", "not counted per session"),
    ],
};
