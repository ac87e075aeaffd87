//! Pieces of a job, several at a time.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, stream};

use crate::space::SpaceError;

/// Pieces that a job has in hand at a time; how many of them work is for the pacer to say.
const AT_ONCE: usize = 16;

/// Runs all of them and returns their results in order of completion. After the first error no more are
/// started, and the outstanding ones are awaited: an abandoned I/O could overtake a later one.
pub(super) async fn each<T, R, F>(
    pieces: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> F,
) -> Result<Vec<R>, SpaceError>
where
    F: Future<Output = Result<R, SpaceError>>,
{
    let failed = &AtomicBool::new(false);
    let work = &work;
    let one = |piece: T| async move {
        if failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let result = work(piece).await;
        failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result.map(Some)
    };
    // Collected first: a stream that makes them on the way could not be sent to another thread.
    let all: Vec<_> = pieces.into_iter().map(one).collect();
    let mut running = stream::iter(all).buffer_unordered(AT_ONCE);
    let (mut done, mut result) = (Vec::new(), Ok(()));
    while let Some(one) = running.next().await {
        match one {
            Ok(one) => done.extend(one),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result.map(|()| done)
}
