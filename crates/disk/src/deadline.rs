//! Waiting for a driver, but not for longer than the caller has.

use std::time::Instant;

use env::Env;
use tokio::sync::oneshot;

/// The driver's result; `late` once the deadline has passed, or if the driver ended without a result.
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
