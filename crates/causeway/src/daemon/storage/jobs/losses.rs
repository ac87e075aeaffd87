//! Records lost units, so that they are known after a restart: a background task writes new ones at
//! intervals.

use std::time::{Duration, Instant};

use super::Mender;

/// Between two records, at least.
const EVERY: Duration = Duration::from_secs(3);

impl Mender {
    /// Records what is new; when it did, if there was anything.
    pub(super) async fn record_losses(&self) -> Option<Instant> {
        // A pool that accepts no changes reports that elsewhere, and reports its lost units as long as it is
        // open.
        let is_new = self.data.record_losses().await.unwrap_or(false);
        is_new.then(|| self.env.now())
    }

    /// There may be something new, and it is time.
    pub(super) async fn more_lost(&self, recorded: Option<Instant>) {
        if let Some(at) = recorded {
            self.env.sleep((at + EVERY).saturating_duration_since(self.env.now())).await;
        }
        self.data.events().more_lost().await;
    }
}
