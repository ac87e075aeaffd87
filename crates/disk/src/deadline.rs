//! Waiting for a driver, but not for longer than the caller has.

use std::time::Instant;

use env::Env;
use tokio::sync::oneshot;

/// What the driver answers; `late` once the deadline has passed, or if the driver is gone without an answer.
pub(crate) async fn within<T>(
    env: Env,
    deadline: Option<Instant>,
    answer: oneshot::Receiver<T>,
    late: T,
) -> T {
    let Some(deadline) = deadline else { return answer.await.unwrap_or(late) };
    tokio::select! {
        biased;
        answer = answer => answer.unwrap_or(late),
        () = env.sleep_until(deadline) => late,
    }
}
