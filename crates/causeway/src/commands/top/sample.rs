//! The state of the server at one moment: its counters, its status and its sessions.

use std::time::Duration;

use counters::Snapshot;
use env::Env;

use crate::control::client::{ControlClient, ControlError};
use crate::control::types::{ServerStatus, SessionStatus};

/// How long a response may take.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The state of a server at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) server: ServerStatus,
    pub(super) sessions: Vec<SessionStatus>,
    /// Requested last: rates are over the time between two of these snapshots.
    pub(super) counters: Snapshot,
}

impl Sample {
    /// Whether `earlier` is from the same run of the same server, so that differences are valid.
    pub(super) fn follows(&self, earlier: &Sample) -> bool {
        self.server.pid == earlier.server.pid && self.counters.at_ns > earlier.counters.at_ns
    }

    /// Seconds since `earlier`.
    pub(super) fn seconds_since(&self, earlier: &Sample) -> f64 {
        self.counters.at_ns.saturating_sub(earlier.counters.at_ns) as f64 / 1e9
    }
}

/// Requests a sample from the server.
///
/// # Errors
/// See [`ControlError`]; [`ControlError::Silent`] after five seconds.
pub(super) async fn take(client: &ControlClient, env: &Env) -> Result<Sample, ControlError> {
    let asked = async {
        Ok(Sample {
            server: client.get("/v1/server").await?,
            sessions: client.get("/v1/sessions").await?,
            counters: client.get("/v1/counters").await?,
        })
    };
    tokio::select! {
        biased; // a response that has arrived counts, even if the timeout has passed too
        sample = asked => sample,
        () = env.sleep(TIME_LIMIT) => Err(client.silent(TIME_LIMIT)),
    }
}
