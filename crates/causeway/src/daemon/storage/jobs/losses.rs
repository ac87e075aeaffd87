//! What is lost is known after a restart, too: it is recorded beside those who find it, now and then.

use std::time::{Duration, Instant};

use super::Mender;

/// Between two records, at least.
const EVERY: Duration = Duration::from_secs(3);

impl Mender {
    /// Records what is new; when it did, if there was anything.
    pub(super) async fn record_losses(&self) -> Option<Instant> {
        // A pool that takes no changes says so elsewhere, and what is lost is told for as long as it is open.
        let is_new = self.data.record_losses().await.unwrap_or(false);
        is_new.then(|| self.env.now())
    }

    /// There may be something new, and it is time.
    pub(super) async fn more_lost(&self, recorded: Option<Instant>) {
        if let Some(at) = recorded {
            self.env.sleep((at + EVERY).saturating_duration_since(self.env.now())).await;
        }
        self.data.events.more_lost().await;
    }
}
