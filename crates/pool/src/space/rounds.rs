//! Rounds of one act that many wait for.
//!
//! Invariant: one round at a time; a caller is answered by a round that began after its call.

use parking_lot::Mutex;
use tokio::sync::MutexGuard;

use super::SpaceError;
use super::left::Left;

#[derive(Default)]
pub(super) struct Rounds {
    lock: tokio::sync::Mutex<()>,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    begun: u64,
    done: u64,
    /// Of the last one.
    result: Option<Result<Left, SpaceError>>,
}

impl Rounds {
    /// Runs this round, or waits for another's that began after this call.
    ///
    /// # Errors
    /// The round's.
    pub(super) async fn run(
        &self,
        round: impl Future<Output = Result<Left, SpaceError>>,
    ) -> Result<Left, SpaceError> {
        let wanted = self.count.lock().begun + 1;
        let _one = self.lock.lock().await;
        {
            let mut count = self.count.lock();
            if let Some(result) = count.result.clone().filter(|_| count.done >= wanted) {
                return result;
            }
            count.begun += 1;
        }
        let result = round.await;
        let mut count = self.count.lock();
        count.done = count.begun;
        count.result = Some(result.clone());
        result
    }

    /// Keeps rounds from beginning.
    pub(super) async fn none(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().await
    }
}
