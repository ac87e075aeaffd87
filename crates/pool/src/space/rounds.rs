//! Rounds of one act that many wait for.
//!
//! Invariant: one round at a time; a caller is answered by a round that began after its call.

use parking_lot::Mutex;
use tokio::sync::MutexGuard;

use super::SpaceError;

#[derive(Default)]
pub(super) struct Rounds {
    lock: tokio::sync::Mutex<()>,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    begun: u64,
    done: u64,
    failed: Option<SpaceError>,
}

impl Rounds {
    /// Runs this round, or waits for another's that began after this call.
    ///
    /// # Errors
    /// The round's.
    pub(super) async fn run(
        &self,
        round: impl Future<Output = Result<(), SpaceError>>,
    ) -> Result<(), SpaceError> {
        let wanted = self.count.lock().begun + 1;
        let _one = self.lock.lock().await;
        {
            let mut count = self.count.lock();
            if count.done >= wanted {
                return count.failed.clone().map_or(Ok(()), Err);
            }
            count.begun += 1;
        }
        let result = round.await;
        let mut count = self.count.lock();
        count.done = count.begun;
        count.failed = result.clone().err();
        result
    }

    /// Keeps rounds from beginning.
    pub(super) async fn none(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().await
    }
}
