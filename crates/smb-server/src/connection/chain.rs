//! A transport message in the engine: its waiting requests, the running one, and the completed ones.

use std::sync::Arc;

use arena::Sg;
use env::{BoxFuture, Moment};
use rdma::Stag;
use smallvec::SmallVec;
use smb_auth::sign::SigningKey;
use smb_direct::BufferDescriptorV1;
use smb_wire::{Header, NtStatus};

use super::compound::Related;
use super::counting::{Count, Counting};
use super::incoming::{InMessage, Item};
use crate::open::Sequenced;
use crate::request::{Cancel, Reply};

/// A message in progress. Its requests run one after the other (MS-SMB2 3.3.5.2.7).
pub(super) struct Chain {
    pub(super) message: InMessage,
    /// Requests that have not begun; mostly one, so that the list needs no allocation.
    pub(super) waiting: smallvec::IntoIter<[Item; 1]>,
    pub(super) finished: SmallVec<[FinishedRequest; 1]>,
    pub(super) related: Related,
    /// The running request, if it did not complete at once.
    pub(super) running: Option<ParkedRequest>,
    /// When the last request that completed at once was answered, if the clock was read for its counters.
    pub(super) answered: Option<Moment>,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain {
            message: InMessage::default(),
            waiting: SmallVec::new().into_iter(),
            finished: SmallVec::new(),
            related: Related::default(),
            running: None,
            answered: None,
        }
    }
}

/// The result of starting a request, and the data for its reply.
pub(super) struct StartedRequest {
    pub(super) outcome: Outcome,
    pub(super) signing: Signing,
    pub(super) cancel: Cancel,
    /// The request counts as running for its open until this is dropped.
    pub(super) sequenced: Option<Sequenced>,
    pub(super) count: Count,
}

impl StartedRequest {
    /// A request that names no tree connect, or is refused before that is looked up; its reply is signed with `key`.
    pub(super) fn new(outcome: impl Into<Outcome>, key: Option<Arc<SigningKey>>) -> StartedRequest {
        StartedRequest {
            outcome: outcome.into(),
            signing: key.map_or(Signing::Nothing, Signing::Key),
            cancel: Cancel::default(),
            sequenced: None,
            count: Count::Unshared,
        }
    }
}

/// Why a request is refused, and the key that signs the refusal.
pub(super) struct RefusedRequest {
    pub(super) status: NtStatus,
    pub(super) key: Option<Arc<SigningKey>>,
}

impl RefusedRequest {
    pub(super) fn new(status: NtStatus, key: Option<Arc<SigningKey>>) -> RefusedRequest {
        RefusedRequest { status, key }
    }
}

impl From<RefusedRequest> for StartedRequest {
    fn from(refusal: RefusedRequest) -> StartedRequest {
        StartedRequest::new(refusal.status, refusal.key)
    }
}

/// A request that was parked.
pub(super) struct ParkedRequest {
    pub(super) header: Header,
    /// When it was parked.
    pub(super) since: Moment,
    pub(super) signing: Signing,
    pub(super) cancel: Cancel,
    /// The client's steering tag that the reply invalidates.
    pub(super) invalidate: Option<Stag>,
    /// Its interim response was sent: the final one is asynchronous (MS-SMB2 3.3.4.2).
    pub(super) async_id: Option<u64>,
    /// It would have become asynchronous in the middle of a compound, and was therefore cancelled.
    pub(super) refused: bool,
    /// The continuation of a Pull.
    pub(super) then: Option<AfterPull>,
    pub(super) counting: Option<Counting>,
    /// The request counts as running for its open until this is dropped.
    pub(super) sequenced: Option<Sequenced>,
}

/// The key that signs a reply.
#[derive(Default)]
pub(super) enum Signing {
    #[default]
    Nothing,
    Key(Arc<SigningKey>),
    /// The key of the channel of this session, which is not removed before the reply is encoded.
    Channel(u64),
}

/// A reply that waits for the rest of its chain.
pub(super) struct FinishedRequest {
    pub(super) header: Header,
    pub(super) reply: Reply,
    pub(super) signing: Signing,
    pub(super) invalidate: Option<Stag>,
    pub(super) async_id: Option<u64>,
}

impl FinishedRequest {
    /// Bytes of the reply, payload included.
    pub(super) fn len(&self) -> usize {
        self.reply.message.len() + self.reply.payload.len()
    }
}

/// The continuation of a WRITE after its payload was fetched from the client's memory.
pub(super) type AfterPull = Box<dyn FnOnce(Result<Sg, NtStatus>) -> Outcome + Send>;

/// The result of starting a request.
pub(crate) enum Outcome {
    /// It is complete.
    Reply(Reply),
    /// It must wait.
    Pending(BoxFuture<Reply>),
    /// Its payload must be fetched by RDMA first.
    Pull { from: Vec<BufferDescriptorV1>, length: u32, then: AfterPull },
    /// There is no reply (CANCEL).
    Silent,
}

impl Outcome {
    /// The outcome of a handler that may have to wait.
    pub(super) fn later(handler: impl Future<Output = Reply> + Send + 'static) -> Outcome {
        Outcome::Pending(Box::pin(handler))
    }
}

impl From<NtStatus> for Outcome {
    fn from(status: NtStatus) -> Outcome {
        Outcome::Reply(Reply::error(status))
    }
}
