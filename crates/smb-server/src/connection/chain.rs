//! A transport message on its way through the engine: one request, or a compound of several.

use std::ops::Range;
use std::sync::Arc;

use arena::{IoBuf, Piped, Sg};
use env::BoxFuture;
use rdma::Stag;
use smallvec::SmallVec;
use smb_auth::sign::SigningKey;
use smb_direct::BufferDescriptorV1;
use smb_wire::{FileId, Header, NtStatus};

use super::counting::Counting;
use crate::open::Sequenced;
use crate::request::{Cancel, Reply};
use crate::session::Session;

/// A message and how far it has come. Requests run one after the other (MS-SMB2 3.3.5.2.7).
pub(super) struct Chain {
    /// The message as it came: one buffer or more.
    pub(super) whole: Sg,
    /// All of it in one buffer, where it came scattered and is no single WRITE.
    pub(super) together: Option<IoBuf>,
    /// The payload of a single WRITE, if it is in a pipe; until the WRITE takes it.
    pub(super) piped: Option<Piped>,
    /// What has not begun yet; one request, mostly, so that it needs no memory of its own.
    pub(super) waiting: smallvec::IntoIter<[Item; 1]>,
    pub(super) finished: SmallVec<[Finished; 1]>,
    /// The session whose cipher the message came under: its replies go out under the same.
    pub(super) encrypted: Option<Arc<Session>>,
    pub(super) related: Related,
    /// It has more than one request.
    pub(super) compound: bool,
    /// The request that runs now, when it did not complete at once.
    pub(super) running: Option<Running>,
}

/// The longest message that [`Chain::leave_chunk`] copies, in bytes.
const SMALL: usize = 4 << 10;

impl Chain {
    /// The head of the message: all of it, but for the payload of a single WRITE, which may lie in `whole` only.
    pub(super) fn head(&self) -> &IoBuf {
        self.together.as_ref().unwrap_or(&self.whole[0])
    }

    /// Lets go of the receive chunk that a message without payload lies in: whoever waits for memory, or for long,
    /// must not hold memory that others wait for.
    pub(super) fn leave_chunk(&mut self) {
        if let [one] = &mut self.whole[..]
            && one.len() <= SMALL
        {
            *one = IoBuf::from(one.to_vec());
        }
    }
}

impl Default for Chain {
    fn default() -> Chain {
        Chain {
            whole: Sg::new(),
            together: None,
            piped: None,
            waiting: SmallVec::new().into_iter(),
            finished: SmallVec::new(),
            encrypted: None,
            related: Related::default(),
            compound: false,
            running: None,
        }
    }
}

/// One request of a message.
pub(super) struct Item {
    pub(super) header: Header,
    pub(super) range: Range<usize>,
}

/// What later related operations inherit (MS-SMB2 3.3.5.2.7.2).
#[derive(Default)]
pub(super) struct Related {
    pub(super) session_id: u64,
    /// `None` while no operation named or made one.
    pub(super) tree_id: Option<u32>,
    /// The open that the operation before worked on.
    pub(super) file_id: Option<FileId>,
    /// The failure of the operation that should have made `file_id`.
    pub(super) failed: Option<NtStatus>,
    /// The operation before had a session: there is something to inherit.
    pub(super) begun: bool,
}

/// A request that was parked.
pub(super) struct Running {
    pub(super) header: Header,
    pub(super) signing: Option<Arc<SigningKey>>,
    pub(super) cancel: Cancel,
    /// The client's steering tag that the reply invalidates.
    pub(super) invalidate: Option<Stag>,
    /// Its interim response was sent: the final one is asynchronous (MS-SMB2 3.3.4.2).
    pub(super) async_id: Option<u64>,
    /// It would have gone on asynchronously in the middle of a compound, and was cancelled for that.
    pub(super) refused: bool,
    /// Where a Pull goes on.
    pub(super) then: Option<AfterPull>,
    pub(super) counting: Option<Counting>,
    /// It is at work for its open until this goes.
    pub(super) sequenced: Option<Sequenced>,
}

impl Running {
    /// One that was just started.
    pub(super) fn new(
        header: Header,
        signing: Option<Arc<SigningKey>>,
        cancel: Cancel,
        invalidate: Option<Stag>,
        counting: Option<Counting>,
        sequenced: Option<Sequenced>,
    ) -> Running {
        Running {
            header,
            signing,
            cancel,
            invalidate,
            async_id: None,
            refused: false,
            then: None,
            counting,
            sequenced,
        }
    }
}

/// What a reply is signed with.
#[derive(Default)]
pub(super) enum Signing {
    #[default]
    Nothing,
    Key(Arc<SigningKey>),
    /// The key of the channel of this session, which cannot go away before the reply is encoded.
    Channel(u64),
}

impl From<Option<Arc<SigningKey>>> for Signing {
    fn from(key: Option<Arc<SigningKey>>) -> Signing {
        key.map_or(Signing::Nothing, Signing::Key)
    }
}

/// A reply that waits for the rest of its chain.
pub(super) struct Finished {
    pub(super) header: Header,
    pub(super) reply: Reply,
    pub(super) signing: Signing,
    pub(super) invalidate: Option<Stag>,
    pub(super) async_id: Option<u64>,
}

impl Finished {
    /// Bytes of the reply, payload included.
    pub(super) fn len(&self) -> usize {
        self.reply.message.len() + self.reply.payload.len()
    }
}

/// What a WRITE does once its payload was fetched from the client's memory.
pub(super) type AfterPull = Box<dyn FnOnce(Result<Sg, NtStatus>) -> Outcome + Send>;

/// What came of starting a request.
pub(crate) enum Outcome {
    /// It is done.
    Reply(Reply),
    /// It waits for something.
    Pending(BoxFuture<Reply>),
    /// Its payload must be fetched by RDMA first.
    Pull { from: Vec<BufferDescriptorV1>, length: u32, then: AfterPull },
    /// There is no reply (CANCEL).
    Silent,
}

impl From<NtStatus> for Outcome {
    fn from(status: NtStatus) -> Outcome {
        Outcome::Reply(Reply::error(status))
    }
}
