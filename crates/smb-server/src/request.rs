//! The parameters and results of command handlers.

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

/// MaxTransactSize, in bytes, where the transport's limit is not smaller.
pub(crate) const TRANSACT_MAX: u32 = 1 << 20;

/// The longest output buffer that stays in the message of its reply, in bytes: longer ones are moved into the arena.
const OUTPUT_SHORT: usize = arena::CHUNK_MIN;

/// Facts of a connection that do not change after NEGOTIATE; shared with its requests.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionFacts {
    pub(crate) id: u64,
    pub(crate) dialect: u16,
    pub(crate) client_guid: Guid,
    pub(crate) client_capabilities: u32,
    pub(crate) client_security_mode: u16,
    /// The capabilities in the server's response, for FSCTL_VALIDATE_NEGOTIATE_INFO.
    pub(crate) server_capabilities: u32,
    pub(crate) server_security_mode: u16,
    pub(crate) max_io: u32,
    /// The longest READ, in bytes: less than `max_io` where an encrypted response would not fit a message of the
    /// client.
    pub(crate) max_read: u32,
    /// The longest message that the client accepts, in bytes.
    pub(crate) send_max: u32,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) transport: crate::TransportKind,
    /// Requests may cost several credits (dialect 2.1 and later).
    pub(crate) multi_credit: bool,
    /// POSIX extensions were negotiated.
    pub(crate) posix: bool,
    /// The last WRITE was to a file that prefers its payload in a pipe. The only field that changes after NEGOTIATE.
    pub(crate) pipes: Arc<AtomicBool>,
}

impl ConnectionFacts {
    /// The longest payload of a request or reply that is neither READ nor WRITE, in bytes (MS-SMB2 2.2.4).
    pub(crate) fn max_transact(&self) -> u32 {
        TRANSACT_MAX.min(self.max_io).min(self.send_max.saturating_sub(OVERHEAD as u32))
    }

    /// The longest payload inside a READ response, in bytes. The bytes before the payload are counted exactly: clients
    /// compute their largest READ from the longest message that they accept (MS-SMBD 3.1.5.2).
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
    /// The whole message, beginning with its header, as `XRequest::decode` expects it.
    pub(crate) message: IoBuf,
    /// The FileId of the operation before, when this one is related to it: stands in for [`FileId::NONE`].
    pub(crate) inherited: Option<FileId>,
    /// The open of its FileId, if it was looked up already.
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

/// A reply. Create one from a message body with [`Reply::ok`], or an error with [`Reply::error`].
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: NtStatus,
    /// The message: [`HEADER_LEN`] bytes of room for the header, then the body.
    pub(crate) message: Vec<u8>,
    /// Payload that follows the body on the wire.
    pub(crate) payload: Data,
    /// Payload for an RDMA Write into the client's memory before this reply is sent.
    pub(crate) push: Option<Box<Push>>,
    /// Fields that few replies have; see [`Reply::with`].
    pub(crate) extra: Option<Box<Extra>>,
}

/// Fields that few replies have, in a box, so that all other replies are cheap to move.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// The open for later related operations.
    pub(crate) file_id: Option<FileId>,
    /// A tree id to put into the header (TREE_CONNECT).
    pub(crate) tree_id: Option<u32>,
    /// A session id to put into the header (SESSION_SETUP).
    pub(crate) session_id: Option<u64>,
    /// Sent after this reply, on the same connection.
    pub(crate) then: Option<Notice>,
    /// The pre-authentication hash that this reply updates (NEGOTIATE, SESSION_SETUP).
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
            // A handler's body always fits; if it did not, the client would get an error, not a broken message.
            Err(_) => (NtStatus::INTERNAL_ERROR, false),
        };
        if encoded { Reply::from_message(status, message) } else { Reply::error(status) }
    }

    /// Moves a long output buffer, the last `length` bytes of the message, into memory of the arena. Waits until there
    /// is enough memory: unsent replies are charged to the arena's budget.
    pub(crate) async fn charged(self, arena: &Arena, length: usize) -> Reply {
        if length <= OUTPUT_SHORT {
            return self;
        }
        let memory = arena.alloc_sg(length, Class::Payload).await;
        self.moved(memory, length)
    }

    /// Like [`Reply::charged`], into `memory`, which was allocated before the output was built, and is large enough.
    pub(crate) fn charged_to(self, memory: SgMut, arena: &Arena, length: usize) -> Reply {
        if length <= OUTPUT_SHORT {
            return self;
        }
        // Mostly the output is shorter than the client's buffer.
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

    /// An error reply (MS-SMB2 2.2.2).
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

    /// Sets fields of [`Extra`].
    pub(crate) fn with(mut self, set: impl FnOnce(&mut Extra)) -> Reply {
        set(self.extra.get_or_insert_default());
        self
    }

    /// Adds a notice to send after it, if there is one.
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

/// Whether a request was cancelled; handlers that may wait long check it (MS-SMB2 3.3.5.16). The end of the tree connect
/// or session ends a wait for breaks like a CANCEL; other waits end because it closes their opens.
///
/// | request                            | a CANCEL                                                              |
/// |------------------------------------|-----------------------------------------------------------------------|
/// | LOCK, CHANGE_NOTIFY, READ of a pipe, FSCTL_PIPE_WAIT | ends the wait                                       |
/// | CREATE, SET_INFO that wait for breaks | ends the wait; nothing has changed yet                              |
/// | CREATE in the backend              | takes effect when the backend has opened the file: it is closed, and removed if it is new |
/// | FLUSH                              | ends it; the backend completes what it has begun                      |
/// | FSCTL_SRV_COPYCHUNK                | takes effect between two chunks                                       |
/// | QUERY_DIRECTORY                    | takes effect between two calls of the backend                         |
/// | READ, WRITE of a file              | has no effect: see [`Cancel::lasting`]                                |
/// | others                             | has no effect: each is one call of the backend, which cannot be undone |
#[derive(Clone, Default)]
pub(crate) struct Cancel {
    /// `None` for requests that cannot be cancelled: no handler checks it.
    inner: Option<Arc<CancelState>>,
}

#[derive(Default)]
struct CancelState {
    /// 0, [`ABANDONED`] or [`CANCELLED`].
    set: AtomicU8,
    wake: Notify,
}

/// The connection has ended, but not the session: requests that the client may replay on another channel continue.
const ABANDONED: u8 = 1;
const CANCELLED: u8 = 2;

impl Cancel {
    /// For a request that can be cancelled. A READ or WRITE of a file cannot, and has the default: a WRITE in the
    /// backend could overwrite a later one, and no backend takes a request back.
    pub(crate) fn lasting() -> Cancel {
        Cancel { inner: Some(Arc::default()) }
    }

    /// Cancels the request: on a CANCEL of its client, or because its session has ended.
    pub(crate) fn cancel(&self) {
        self.set(CANCELLED);
    }

    /// The request's connection has ended, but not its session.
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

    /// Completes when the request is cancelled, not when it is abandoned.
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

/// Lets a handler that takes long request an interim response (MS-SMB2 3.3.4.2).
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) slot: u64,
    pub(crate) inbox: Arc<Inbox>,
}

impl Pending {
    /// Requests an interim response with STATUS_PENDING; the final reply follows when the handler returns. Further
    /// calls have no effect.
    pub(crate) fn announce(&self) {
        self.inbox.announce(self.slot);
    }
}
