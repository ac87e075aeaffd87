//! Requests of an owner to the coordinator, one at a time. Operations whose callers wait meanwhile share the next
//! request; if that is refused, each caller's operations are sent alone.

use std::collections::VecDeque;
use std::time::Duration;

use pool_seam::{OwnerOp, Request, SeamError};
use tokio::sync::{Mutex, oneshot};

use crate::SpaceError;
use crate::owner::{Inner, RETRY};

/// The longest pause before a request is repeated.
const RETRY_MAX: Duration = Duration::from_millis(1600);

/// The most operations that share a request, unless one caller has more.
const OPS_MAX: usize = 64;

/// See the module.
pub(crate) struct Requests {
    waiting: parking_lot::Mutex<VecDeque<PendingCall>>,
    /// Held while a request is outstanding.
    sent: Mutex<SentRequest>,
}

/// The operations of a caller.
struct PendingCall {
    ops: Vec<OwnerOp>,
    answer: oneshot::Sender<Result<(), SeamError>>,
}

struct SentRequest {
    /// The number of the last request.
    number: u64,
    /// The callers of a request without an answer yet: it is repeated with the same number.
    outstanding: Vec<PendingCall>,
    /// The callers of a request that was refused.
    refused: VecDeque<PendingCall>,
}

impl Requests {
    /// Creates the queue; `number` is the number of the last request.
    pub(crate) fn new(number: u64) -> Requests {
        let sent = SentRequest { number, outstanding: Vec::new(), refused: VecDeque::new() };
        Requests { waiting: parking_lot::Mutex::default(), sent: Mutex::new(sent) }
    }

    /// Skips a number that the coordinator has already used.
    #[cfg(test)]
    pub(crate) async fn skip(&self) {
        self.sent.lock().await.number += 1;
    }

    /// Chooses the callers of the next request, unless one is outstanding.
    fn choose(&self, sent: &mut SentRequest) {
        if !sent.outstanding.is_empty() {
            return;
        }
        sent.number += 1;
        if let Some(call) = sent.refused.pop_front() {
            sent.outstanding.push(call);
            return;
        }
        let (mut waiting, mut ops) = (self.waiting.lock(), 0);
        while let Some(next) = waiting.front() {
            ops += next.ops.len();
            if ops > OPS_MAX && !sent.outstanding.is_empty() {
                return;
            }
            sent.outstanding.extend(waiting.pop_front());
        }
    }
}

impl Inner {
    /// Commits operations through the coordinator: they are in a durable record and in the view when this returns. They
    /// are carried out even if the call is dropped meanwhile, at the latest with the next request.
    pub(crate) async fn commit(&self, ops: Vec<OwnerOp>) -> Result<(), SpaceError> {
        let (answer, mut answered) = oneshot::channel();
        self.requests.waiting.lock().push_back(PendingCall { ops, answer });
        let mut sent = self.requests.sent.lock().await;
        loop {
            if let Ok(result) = answered.try_recv() {
                return Ok(result?);
            }
            self.requests.choose(&mut sent);
            self.send(&mut sent).await;
        }
    }

    /// Sends a request until there is an answer, and gives that to its callers.
    async fn send(&self, sent: &mut SentRequest) {
        let ops: Vec<OwnerOp> = sent.outstanding.iter().flat_map(|call| call.ops.iter().cloned()).collect();
        let (space, epoch) = (self.owner.space, self.owner.epoch);
        let mut pause = RETRY;
        let result = loop {
            let request = Request { space, epoch, number: sent.number, ops: ops.clone() };
            match self.coordinator.commit(request).wait().await {
                Ok(view) => {
                    self.follow(view);
                    break Ok(());
                }
                Err(error) => match self.pause(error, &mut pause).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        let callers = std::mem::take(&mut sent.outstanding);
        if callers.len() > 1 && result.is_err() {
            sent.refused = callers.into();
            return;
        }
        for PendingCall { answer, .. } in callers {
            let _ = answer.send(result.clone());
        }
    }

    /// Waits before an unanswered request is repeated: until the view changes, or for a pause that grows each time.
    /// Returns `error` if it is a definite answer.
    pub(crate) async fn pause(&self, error: SeamError, pause: &mut Duration) -> Result<(), SeamError> {
        if !matches!(error, SeamError::Unknown | SeamError::Moved | SeamError::Suspended(_)) {
            return Err(error);
        }
        tokio::select! {
            biased;
            () = self.view_changed.notified() => {}
            () = self.env.sleep(*pause) => {}
        }
        *pause = RETRY_MAX.min(*pause * 2);
        Ok(())
    }

    /// [`Inner::commit`] for operations that may conflict with the current metadata. Returns `false` if they do; the
    /// view is then up to date.
    pub(crate) async fn commit_if_fits(&self, ops: Vec<OwnerOp>) -> Result<bool, SpaceError> {
        match self.commit(ops).await {
            Ok(()) => Ok(true),
            Err(SpaceError::Seam(SeamError::Invalid(view))) => {
                self.follow(view);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
