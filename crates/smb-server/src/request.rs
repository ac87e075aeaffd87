//! What a command handler gets and gives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use arena::{Arena, Class, IoBuf, Sg, SgMut, passes};
use smb_auth::crypt::TRANSFORM_LEN;
use smb_wire::msg::ReadResponse;
use smb_wire::{Encode, FileId, Guid, HEADER_LEN, Header, MessageBuilder, NtStatus};
use tokio::sync::Notify;
use vfs::Data;

use crate::Server;
use crate::connection::{HashInto, OVERHEAD};
use crate::inbox::{Inbox, Notice};
use crate::open::Open;
use crate::session::Session;
use crate::share::Tree;

/// MaxTransactSize where the transport takes it, in bytes.
pub(crate) const TRANSACT_MAX: u32 = 1 << 20;

/// The longest output buffer that stays in the message of its reply, in bytes: longer ones are memory of the arena.
const OUTPUT_SHORT: usize = arena::CHUNK_MIN;

/// Facts of a connection that do not change after NEGOTIATE; shared with its requests.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionFacts {
    pub(crate) id: u64,
    pub(crate) dialect: u16,
    pub(crate) client_guid: Guid,
    pub(crate) client_capabilities: u32,
    pub(crate) client_security_mode: u16,
    /// What the server answered, for FSCTL_VALIDATE_NEGOTIATE_INFO.
    pub(crate) server_capabilities: u32,
    pub(crate) server_security_mode: u16,
    pub(crate) max_io: u32,
    /// The longest READ, in bytes: less than `max_io` where an encrypted answer would not fit a message of the client.
    pub(crate) max_read: u32,
    /// The longest message that the client takes, in bytes.
    pub(crate) send_max: u32,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) transport: crate::TransportKind,
    /// Several credits per request are understood (dialect 2.1 and later).
    pub(crate) multi_credit: bool,
    /// POSIX extensions were negotiated.
    pub(crate) posix: bool,
    /// The last WRITE went to a file that prefers its payload in a pipe: the one thing here that changes.
    pub(crate) pipes: Arc<AtomicBool>,
}

impl ConnectionFacts {
    /// The longest payload of a request or reply that is neither READ nor WRITE, in bytes (MS-SMB2 2.2.4).
    pub(crate) fn max_transact(&self) -> u32 {
        TRANSACT_MAX.min(self.max_io).min(self.send_max.saturating_sub(OVERHEAD as u32))
    }

    /// The longest payload inside a READ response, in bytes. What comes before it is known to the byte: clients compute
    /// their largest READ from the message that they take (MS-SMBD 3.1.5.2).
    pub(crate) fn max_inline_read(&self, encrypted: bool) -> u32 {
        let transform = if encrypted { TRANSFORM_LEN } else { 0 };
        self.max_read.min(self.send_max.saturating_sub((transform + ReadResponse::HEAD_LEN) as u32))
    }
}

/// One request of an established session and tree, owned, so that a handler may outlive the call.
pub(crate) struct Request {
    pub(crate) server: Arc<Server>,
    pub(crate) facts: Arc<ConnectionFacts>,
    pub(crate) session: Arc<Session>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) header: Header,
    /// The whole message, beginning with its header: what `XRequest::decode` takes.
    pub(crate) message: IoBuf,
    /// The FileId of the operation before, when this one is related to it: stands in for [`FileId::NONE`].
    pub(crate) inherited: Option<FileId>,
    /// The open that it names, where that was looked up already.
    pub(crate) looked_up: Option<Arc<Open>>,
    /// The request came encrypted.
    pub(crate) encrypted: bool,
    /// There are other requests in its message.
    pub(crate) in_compound: bool,
    pub(crate) cancel: Cancel,
    pub(crate) pending: Pending,
}

impl Request {
    /// The open that a request names, or inherits in a compound (MS-SMB2 3.3.5.2.7.2).
    ///
    /// # Errors
    /// STATUS_FILE_CLOSED when there is none, or it belongs to another tree connect; STATUS_INVALID_HANDLE when no request
    /// before it in its compound had one.
    pub(crate) fn open(&self, id: FileId) -> Result<Arc<Open>, NtStatus> {
        let id = match self.header.is_related() {
            true => self.inherited.ok_or(NtStatus::INVALID_HANDLE)?,
            false => id,
        };
        let looked_up = self.looked_up.as_ref().filter(|o| o.id() == id).cloned();
        let open = looked_up.or_else(|| self.session_open(id)).ok_or(NtStatus::FILE_CLOSED)?;
        open.use_through(&self.tree)?;
        Ok(open)
    }

    /// An open of the session by its FileId.
    pub(crate) fn session_open(&self, id: FileId) -> Option<Arc<Open>> {
        self.server.opens.get(id).filter(|o| o.is_named_by(&self.session, id.volatile))
    }

    /// The context for calls to the backend.
    pub(crate) fn ctx(&self) -> env::Ctx {
        env::Ctx::default()
    }
}

/// What goes back. Make one from a message body with [`Reply::ok`], or an error with [`Reply::error`].
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: NtStatus,
    /// The message: [`HEADER_LEN`] bytes of room for the header, then the body.
    pub(crate) message: Vec<u8>,
    /// Payload that follows the body on the wire.
    pub(crate) payload: Data,
    /// Payload to place in the client's memory before this reply is sent.
    pub(crate) push: Option<Box<Push>>,
    /// What few replies have; see [`Reply::with`].
    pub(crate) extra: Option<Box<Extra>>,
}

/// What few replies have: a box, so that the others are moved about cheaply.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// The open that later related operations mean.
    pub(crate) file_id: Option<FileId>,
    /// A tree id to put into the header (TREE_CONNECT).
    pub(crate) tree_id: Option<u32>,
    /// A session id to put into the header (SESSION_SETUP).
    pub(crate) session_id: Option<u64>,
    /// Sent after this reply, on the same connection.
    pub(crate) then: Option<Notice>,
    /// The pre-authentication hash that this reply is taken into (NEGOTIATE, SESSION_SETUP).
    pub(crate) hash_into: Option<HashInto>,
    /// End the connection without a reply, for this reason (MS-SMB2 3.3.5.15.12).
    pub(crate) drop_connection: Option<&'static str>,
}

/// An RDMA Write into the client's memory.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) data: arena::Sg,
    pub(crate) to: Vec<smb_direct::BufferDescriptorV1>,
}

impl Reply {
    /// A reply with a body.
    pub(crate) fn ok(body: &impl Encode) -> Reply {
        Reply::with_status(NtStatus::SUCCESS, body)
    }

    /// A reply with a body and a status that is not success (BUFFER_OVERFLOW, …).
    pub(crate) fn with_status(status: NtStatus, body: &impl Encode) -> Reply {
        let mut message = arena::heads::take();
        let mut m = MessageBuilder::new(&mut message);
        m.begin(&Header::default());
        let (status, encoded) = match body.encode(&mut m) {
            Ok(()) => (status, true),
            // What a handler gives always fits; were it otherwise, the client gets an error, not a broken message.
            Err(_) => (NtStatus::INTERNAL_ERROR, false),
        };
        if encoded { Reply::from_message(status, message) } else { Reply::error(status) }
    }

    /// Moves a long output buffer, the last `length` bytes of the message, into memory of the arena, which waits until
    /// there is some: replies that are not sent yet are charged to its budget.
    pub(crate) async fn charged(self, arena: &Arena, length: usize) -> Reply {
        if length <= OUTPUT_SHORT {
            return self;
        }
        let memory = arena.alloc_sg(length, Class::Payload).await;
        self.moved(memory, length)
    }

    /// As [`Reply::charged`] into `memory`, which has been taken before the output was made: `memory` has room for it.
    pub(crate) fn charged_to(self, memory: SgMut, arena: &Arena, length: usize) -> Reply {
        if length <= OUTPUT_SHORT {
            return self;
        }
        // Mostly it is shorter than the client has room for.
        let fitting = arena.try_alloc_sg(length, Class::Payload);
        self.moved(fitting.unwrap_or(memory), length)
    }

    fn moved(mut self, memory: SgMut, length: usize) -> Reply {
        let mut output = &self.message[self.message.len() - length..];
        let mut payload = Sg::new();
        for mut buffer in memory {
            let taken = buffer.append(output);
            output = &output[taken..];
            payload.push(buffer.freeze());
            if output.is_empty() {
                break;
            }
        }
        passes::count(passes::Pass::Copy, length);
        debug_assert!(output.is_empty());
        self.message.truncate(self.message.len() - length);
        self.message.shrink_to_fit();
        self.payload = Data::Bufs(payload);
        self
    }

    /// An error: the body is MS-SMB2 2.2.2's.
    pub(crate) fn error(status: NtStatus) -> Reply {
        Reply::error_with(status, &[])
    }

    /// An error with error data (MS-SMB2 2.2.2.2).
    pub(crate) fn error_with(status: NtStatus, data: &[u8]) -> Reply {
        let mut message = vec![0; HEADER_LEN + 9];
        message[HEADER_LEN] = 9;
        message[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&(data.len() as u32).to_le_bytes());
        if !data.is_empty() {
            message.truncate(HEADER_LEN + 8);
            message.extend_from_slice(data);
        }
        Reply::from_message(status, message)
    }

    fn from_message(status: NtStatus, message: Vec<u8>) -> Reply {
        Reply { status, message, payload: Data::Bufs(arena::Sg::new()), push: None, extra: None }
    }

    /// Sets something that few replies have.
    pub(crate) fn with(mut self, set: impl FnOnce(&mut Extra)) -> Reply {
        set(self.extra.get_or_insert_default());
        self
    }

    /// With a notice that follows it, if there is one.
    pub(crate) fn with_notice(self, then: Option<Notice>) -> Reply {
        match then {
            Some(_) => self.with(|extra| extra.then = then),
            None => self,
        }
    }
}

impl From<Result<Reply, NtStatus>> for Reply {
    fn from(r: Result<Reply, NtStatus>) -> Reply {
        r.unwrap_or_else(Reply::error)
    }
}

/// Whether a request was cancelled; the handler that waits for long looks at it.
#[derive(Clone, Default)]
pub(crate) struct Cancel {
    /// `None` for what never waits for long: nobody looks.
    inner: Option<Arc<CancelState>>,
}

#[derive(Default)]
struct CancelState {
    /// 0, [`ABANDONED`] or [`CANCELLED`].
    set: AtomicU8,
    wake: Notify,
}

/// The connection is gone, the session is not: what the client may ask again elsewhere goes on.
const ABANDONED: u8 = 1;
const CANCELLED: u8 = 2;

impl Cancel {
    /// For a request that may wait. A READ or WRITE of a file is too short, and too frequent, to be worth one: it has the
    /// default.
    pub(crate) fn lasting() -> Cancel {
        Cancel { inner: Some(Arc::default()) }
    }

    /// Gives the request up: its client asks for that, or nobody is left to be answered.
    pub(crate) fn cancel(&self) {
        self.set(CANCELLED);
    }

    /// The request's connection is gone, but its session is not.
    pub(crate) fn abandon(&self) {
        self.set(ABANDONED);
    }

    fn set(&self, to: u8) {
        if let Some(inner) = &self.inner {
            inner.set.fetch_max(to, Ordering::AcqRel);
            inner.wake.notify_waiters();
        }
    }

    /// Completes when the request is cancelled or abandoned.
    pub(crate) async fn cancelled(&self) {
        self.reached(ABANDONED).await;
    }

    /// Whether it was cancelled, not abandoned only.
    pub(crate) fn is_by_client(&self) -> bool {
        self.inner.as_ref().is_some_and(|i| i.set.load(Ordering::Acquire) >= CANCELLED)
    }

    /// Completes when the request is cancelled; being abandoned is no reason.
    pub(crate) async fn cancelled_by_client(&self) {
        self.reached(CANCELLED).await;
    }

    async fn reached(&self, least: u8) {
        let Some(inner) = &self.inner else { return std::future::pending().await };
        loop {
            let mut wake = std::pin::pin!(inner.wake.notified());
            wake.as_mut().enable();
            if inner.set.load(Ordering::Acquire) >= least {
                return;
            }
            wake.await;
        }
    }
}

/// How a handler that will take long asks for an interim response (MS-SMB2 3.3.4.2).
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) slot: u64,
    pub(crate) inbox: Arc<Inbox>,
}

impl Pending {
    /// Sends STATUS_PENDING soon; the final reply follows whenever the handler returns. More than one call is as one.
    pub(crate) fn announce(&self) {
        self.inbox.announce(self.slot);
    }
}
