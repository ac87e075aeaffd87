//! The result of a call, and its two ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::LogError;

/// The result of a call, to wait for. Dropping it changes nothing.
#[must_use = "the result is not known before"]
#[derive(Debug)]
pub struct Wait<T>(oneshot::Receiver<Result<T, LogError>>);

/// The other end of a [`Wait`].
#[derive(Debug)]
pub(super) struct Answer<T>(oneshot::Sender<Result<T, LogError>>);

impl<T> Wait<T> {
    pub(super) fn new() -> (Answer<T>, Wait<T>) {
        let (answer, wait) = oneshot::channel();
        (Answer(answer), Wait(wait))
    }

    pub(super) fn failed(error: LogError) -> Wait<T> {
        let (answer, wait) = Wait::new();
        answer.give(Err(error));
        wait
    }
}

impl<T> Answer<T> {
    /// Gives the result to a caller that may have stopped waiting.
    pub(super) fn give(self, result: Result<T, LogError>) {
        drop(self.0.send(result).err());
    }
}

impl<T> Future for Wait<T> {
    type Output = Result<T, LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|result| result.unwrap_or(Err(LogError::Closed)))
    }
}
