//! One connection: takes calls and returns responses.
//!
//! [`Connection`] is the handle. A call is put into a bounded queue. The connection's one task (`driver`) takes the
//! queued calls, lets [`core::Core`] assign message ids and credits, sends all of them in one system call, and
//! hands each response to its caller. The core does no I/O and reads no clock.
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
use counters::InstanceGuard;
use env::Env;
use smb_auth::sign::SigningKey;
use smb_wire::header::OFFSET_FLAGS;
use smb_wire::{Command, Decode, Encode, Header, HeaderFlags, MessageBuilder, NtStatus};

use crate::{Lost, RequestError};
pub(crate) use core::{Limits, NegotiatedParameters};
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

/// A request as its caller built it; the connection completes the header. Boxed, because it is moved often.
pub(crate) struct Request(Box<Parts>);

/// The parts of a request.
pub(crate) struct Parts {
    /// Space for the header, then the body.
    pub(crate) message: Vec<u8>,
    /// Payload after the message, for a WRITE.
    pub(crate) payload: Sg,
    pub(crate) tree_id: u32,
    /// Credit charge: one for each 64 KiB of the larger of payload and response (MS-SMB2 3.2.4.1.5).
    pub(crate) charge: u16,
    /// Whether the share demands encryption.
    pub(crate) encrypt: bool,
    /// Whether it is signed even if signing is not required.
    pub(crate) sign: bool,
    /// Set for requests of a log-on.
    pub(crate) setup: Option<Setup>,
    /// Payload that is transferred by RDMA.
    pub(crate) rdma: Option<Rdma>,
    /// Where the request is counted.
    pub(crate) counted: Option<Arc<Counted>>,
}

/// What differs for NEGOTIATE and SESSION_SETUP, when there is no channel yet.
pub(crate) struct Setup {
    pub(crate) session_id: u64,
    /// Signs a request that binds a channel (MS-SMB2 3.2.4.2.3).
    pub(crate) key: Option<Arc<SigningKey>>,
    /// ChannelSequence of the session to which it binds.
    pub(crate) sequence: u16,
}

/// Memory that the server accesses by RDMA for one READ or WRITE.
pub(crate) enum Rdma {
    /// READ into memory allocated when the request is started.
    Read(u32),
    /// READ into the caller's buffers.
    Into(SgMut, u32),
    /// WRITE from these buffers.
    Write(Sg),
}

/// A response.
pub(crate) struct Response {
    pub(crate) header: Header,
    /// The whole message; in one buffer, except for a READ response.
    pub(crate) message: Sg,
    /// Whether it was encrypted.
    pub(crate) encrypted: bool,
    /// Buffers that received the payload of a READ by RDMA.
    pub(crate) sink: Option<Box<SgMut>>,
    /// Copied from the request: an asynchronous response does not contain it.
    pub(crate) tree_id: u32,
    /// The request as sent, only for [`Setup`] requests.
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
    /// Creates a request of `command` with this body.
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

    /// Copies a request without payload, to send it again.
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

    /// Sets the REPLAY flag: a lost channel may already have executed the request (MS-SMB2 3.3.5.2.10).
    pub(crate) fn replayed(mut self) -> Request {
        let at = OFFSET_FLAGS + 3;
        self.message[at] |= (HeaderFlags::REPLAY.bits() >> 24) as u8;
        self
    }

    /// Sets the charge for a payload or a response of `bytes` bytes.
    pub(crate) fn charged(mut self, bytes: usize) -> Request {
        self.charge = charge_of(bytes);
        self
    }
}

/// Credit charge for a payload of `bytes` bytes (MS-SMB2 3.2.4.1.5).
pub(crate) fn charge_of(bytes: usize) -> u16 {
    u16::try_from(bytes.saturating_sub(1) / CREDIT + 1).unwrap_or(u16::MAX)
}

/// Bytes per credit.
pub(crate) const CREDIT: usize = 65_536;

impl Response {
    /// The message in one buffer; not for READ responses.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.message.first().map_or(&[], |b| b)
    }

    /// Decodes the body of a successful response.
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
    /// Starts the connection's task. The task holds `counted`, an entry of the performance counters, until it ends.
    pub(crate) fn start(
        transport: Transport,
        limits: Limits,
        arena: Arena,
        env: Env,
        counted: Option<InstanceGuard>,
    ) -> Connection {
        let queue = Arc::new(Queue::default());
        let driver = driver::Driver::new(Arc::clone(&queue), transport, limits, arena, env.clone(), counted);
        env.spawn(driver.run());
        Connection { handle: Arc::new(Handle(queue)) }
    }

    /// Queues a call. If the queue has space, the request is sent even before the future is polled.
    pub(crate) fn call(&self, request: Request) -> Call {
        Call::new(Arc::clone(&self.handle.0), request)
    }

    /// Queues a request without waiting for its response. The request is dropped if the connection has ended.
    pub(crate) fn send_detached(&self, request: Request) {
        self.handle.0.send_detached(request);
    }

    /// Sets the negotiated values for later calls.
    pub(crate) fn set_parameters(&self, parameters: NegotiatedParameters) {
        self.handle.0.configure(queue::Setting::Parameters(parameters));
    }

    /// Sets the session, its keys, and what must be signed and encrypted, for later calls.
    pub(crate) fn set_channel(&self, channel: Arc<Channel>) {
        self.handle.0.configure(queue::Setting::Channel(channel));
    }

    /// The highest number of credits held so far: the largest charge that a request can use without being
    /// shortened.
    pub(crate) fn credits_peak(&self) -> u32 {
        self.handle.0.credits_peak()
    }

    /// Why the connection has ended; `None` if it has not.
    pub(crate) fn ended(&self) -> Option<Lost> {
        self.handle.0.ended()
    }

    /// Completes when the connection has ended, all buffers are released and the socket is closed.
    pub(crate) async fn closed(&self) {
        self.handle.0.closed().await;
    }

    /// Completes the queued calls and closes.
    pub(crate) fn close(&self) {
        self.handle.0.close();
    }

    /// The counters of SMB Direct; `None` if the transport is TCP.
    pub(crate) fn direct_counters(&self) -> Option<smb_direct::Counters> {
        self.handle.0.direct_counters()
    }
}
