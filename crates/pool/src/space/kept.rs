//! A call that goes on when nobody waits for it any more.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use env::{BoxFuture, Env};
use futures_util::FutureExt;

/// A call whose I/O is under way and that goes on in whoever waits for it; in a task, when nobody does any more.
pub(super) struct Kept<T: Send + 'static> {
    env: Env,
    call: Option<BoxFuture<T>>,
}

impl<T: Send + 'static> Kept<T> {
    pub(super) fn new(env: &Env, call: impl Future<Output = T> + Send + 'static) -> Kept<T> {
        Kept { env: env.clone(), call: Some(Box::pin(call)) }
    }
}

impl<T: Send + 'static> Future for Kept<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let call = self.call.as_mut().expect("not polled after its end");
        let result = ready!(call.as_mut().poll(context));
        self.call = None;
        Poll::Ready(result)
    }
}

impl<T: Send + 'static> Drop for Kept<T> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.env.spawn_if_running(call.map(drop));
        }
    }
}
