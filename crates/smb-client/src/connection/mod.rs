//! One connection: calls go in, answers come out.
//!
//! [`Connection`] is the handle. A call is put into a bounded queue; the connection's one task (`driver`)
//! takes the queued calls, lets [`core::Core`] assign message ids and credits, sends everything in one system
//! call, and hands each response to its caller. The core does no I/O and reads no clock.
//!
//! Dropping a [`Call`] cancels it: an unsent request is never sent; a pending one is cancelled at the server.

mod core;
mod counting;
mod driver;
pub(crate) mod protect;
mod queue;
#[cfg(test)]
mod tests;
mod transport;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use arena::{Arena, Sg, SgMut};
use counters::Opened;
use env::Env;
use smb_auth::sign::SigningKey;
use smb_wire::header::OFFSET_FLAGS;
use smb_wire::{Command, Decode, Encode, Header, HeaderFlags, MessageBuilder, NtStatus};

use crate::{Lost, RequestError};
pub(crate) use core::{Agreed, Limits};
pub(crate) use counting::Counted;
pub(crate) use protect::{Channel, Ciphers};
pub(crate) use queue::Call;
use queue::Queue;
pub(crate) use transport::Transport;

/// The handle of a connection. When the last clone is dropped, the connection completes the queued calls and
/// closes.
#[derive(Clone)]
pub(crate) struct Connection {
    handle: Arc<Handle>,
}

struct Handle(Arc<Queue>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A request as its author made it; the connection adds the header. Boxed, because it is moved often.
pub(crate) struct Request(Box<Parts>);

/// The parts of a request.
pub(crate) struct Parts {
    /// Room for the header, then the body.
    pub(crate) message: Vec<u8>,
    /// Payload behind the message: WRITE's.
    pub(crate) payload: Sg,
    pub(crate) tree_id: u32,
    /// Credits it takes: one for each 64 KiB of the larger of payload and answer (MS-SMB2 3.2.4.1.5).
    pub(crate) charge: u16,
    /// The share demands encryption.
    pub(crate) encrypt: bool,
    /// Signed even where signing is not required.
    pub(crate) sign: bool,
    /// Part of a log-on.
    pub(crate) setup: Option<Setup>,
    /// Payload that goes by RDMA.
    pub(crate) rdma: Option<Rdma>,
    /// Where it is counted.
    pub(crate) counted: Option<Arc<Counted>>,
}

/// The differences of NEGOTIATE and SESSION_SETUP: there is no channel yet.
pub(crate) struct Setup {
    pub(crate) session_id: u64,
    /// Signs a request that binds (MS-SMB2 3.2.4.2.3).
    pub(crate) key: Option<Arc<SigningKey>>,
    /// ChannelSequence of the session that it binds to.
    pub(crate) sequence: u16,
}

/// Memory that the server reaches for one READ or WRITE.
pub(crate) enum Rdma {
    /// READ into memory taken when the request's turn comes.
    Read(u32),
    /// READ into the caller's memory.
    Into(SgMut, u32),
    /// WRITE.
    Write(Sg),
}

/// An answer.
pub(crate) struct Response {
    pub(crate) header: Header,
    /// All of it; of everything but a READ response, in one buffer.
    pub(crate) message: Sg,
    /// It was encrypted.
    pub(crate) encrypted: bool,
    /// Where the payload of a READ went by RDMA.
    pub(crate) sink: Option<Box<SgMut>>,
    /// The request's: an asynchronous answer does not say.
    pub(crate) tree_id: u32,
    /// The request as it was sent, for [`Setup`] requests.
    pub(crate) request: Option<Vec<u8>>,
}

impl Deref for Request {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Request {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

impl Request {
    /// A request of `command` with this body.
    ///
    /// # Errors
    /// [`RequestError::Unencodable`].
    pub(crate) fn new<B: Encode>(command: Command, body: &B) -> Result<Request, RequestError> {
        let mut message = arena::heads::take();
        let header = Header { command, ..Header::default() };
        MessageBuilder::new(&mut message).push(&header, body).map_err(RequestError::Unencodable)?;
        Ok(Request(Box::new(Parts {
            message,
            payload: Sg::new(),
            tree_id: 0,
            charge: 1,
            encrypt: false,
            sign: false,
            setup: None,
            rdma: None,
            counted: None,
        })))
    }

    /// The same once more, of a request without payload.
    pub(crate) fn again(&self) -> Request {
        Request(Box::new(Parts {
            message: self.message.clone(),
            payload: Sg::new(),
            tree_id: self.tree_id,
            charge: self.charge,
            encrypt: self.encrypt,
            sign: self.sign,
            setup: None,
            rdma: None,
            counted: None,
        }))
    }

    /// Says that an earlier one may have been done: of a channel that was lost (MS-SMB2 3.3.5.2.10).
    pub(crate) fn replayed(mut self) -> Request {
        let at = OFFSET_FLAGS + 3;
        self.message[at] |= (HeaderFlags::REPLAY.bits() >> 24) as u8;
        self
    }

    /// The charge for a payload or an answer of `bytes`.
    pub(crate) fn charged(mut self, bytes: usize) -> Request {
        self.charge = charge_of(bytes);
        self
    }
}

/// MS-SMB2 3.2.4.1.5.
pub(crate) fn charge_of(bytes: usize) -> u16 {
    u16::try_from(bytes.saturating_sub(1) / CREDIT + 1).unwrap_or(u16::MAX)
}

/// Bytes for a credit.
pub(crate) const CREDIT: usize = 65_536;

impl Response {
    /// All messages except READ responses: one buffer.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.message.first().map_or(&[], |b| b)
    }

    /// The body of a successful answer.
    ///
    /// # Errors
    /// [`RequestError::Status`], [`RequestError::Malformed`].
    pub(crate) fn body<'a, B: Decode<'a>>(&'a self) -> Result<B, RequestError> {
        self.success()?;
        Ok(B::decode(self.bytes())?)
    }

    /// # Errors
    /// [`RequestError::Status`].
    pub(crate) fn success(&self) -> Result<(), RequestError> {
        match self.header.status {
            NtStatus::SUCCESS => Ok(()),
            status => Err(RequestError::Status(status)),
        }
    }
}

impl Connection {
    /// Starts the connection's task; `counted` keeps it among the performance counters until it ends.
    pub(crate) fn start(
        transport: Transport,
        limits: Limits,
        arena: Arena,
        env: Env,
        counted: Option<Opened>,
    ) -> Connection {
        let queue = Arc::new(Queue::default());
        let driver = driver::Driver::new(Arc::clone(&queue), transport, limits, arena, env.clone(), counted);
        env.spawn(driver.run());
        Connection { handle: Arc::new(Handle(queue)) }
    }

    /// Queues a call; it is on its way without being polled where there is room in the queue.
    pub(crate) fn call(&self, request: Request) -> Call {
        Call::new(Arc::clone(&self.handle.0), request)
    }

    /// Queues a request without a waiting caller. Dropped if the connection has ended.
    pub(crate) fn tell(&self, request: Request) {
        self.handle.0.tell(request);
    }

    /// The negotiated values, from the next call on.
    pub(crate) fn agree(&self, agreed: Agreed) {
        self.handle.0.configure(queue::Setting::Agreed(agreed));
    }

    /// From the next call on: the session, its keys, and what must be signed and encrypted.
    pub(crate) fn set_channel(&self, channel: Arc<Channel>) {
        self.handle.0.configure(queue::Setting::Channel(channel));
    }

    /// The highest number of credits so far: the maximum cost of a request without being shortened.
    pub(crate) fn credits_seen(&self) -> u32 {
        self.handle.0.credits_seen()
    }

    /// Why it has ended; `None`: it has not.
    pub(crate) fn ended(&self) -> Option<Lost> {
        self.handle.0.ended()
    }

    /// Completes when the connection has ended, everything has been given back and the socket is closed.
    pub(crate) async fn closed(&self) {
        self.handle.0.closed().await;
    }

    /// Completes the queued calls and closes.
    pub(crate) fn close(&self) {
        self.handle.0.close();
    }

    /// The counters of SMB Direct, if that is the transport.
    pub(crate) fn direct_counters(&self) -> Option<smb_direct::Counters> {
        self.handle.0.direct_counters()
    }
}
