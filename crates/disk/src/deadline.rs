//! Waits for a driver's result until the caller's deadline.

use std::time::Instant;

use env::Env;
use tokio::sync::oneshot;

/// Returns the driver's result, or `late` if the deadline passes or the driver ends without a result.
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
