//! Named pipes of IPC$: srvsvc, wkssvc, lsarpc and samr, served in memory.
//!
//! A client writes PDUs of connection-oriented DCE/RPC (MS-RPCE) and reads the responses; every fragment of a response
//! is one message of the pipe. A call is executed while its last fragment is written, for the user who opened the pipe.
//! A read of an empty pipe waits for a message.
//!
//! **Bounds.** [`FRAGMENT_MAX`] for an incomplete PDU, [`STUB_MAX`] for a fragmented call, [`OUTPUT_MAX`] for unread
//! responses, [`handles::HANDLES_MAX`] for context handles.
//!
//! **Errors.** Invalid PDUs break the pipe, as in Windows: from then on it is disconnected. A malformed or unknown call
//! gets a fault.

mod handles;
mod lsarpc;
mod samr;
mod srvsvc;
mod wkssvc;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Weak};

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use smb_wire::rpc::SyntaxId;
use smb_wire::rpc::pdu::{
    self, Bind, BindAck, ContextResult, FaultStatus, MAX_CONTEXTS, PDU_HEADER_LEN, Pdu, PduFlags, PduType,
};
use smb_wire::{NtStatus, WireError};
use tokio::sync::Notify;

use self::handles::Handles;
use crate::Server;
use crate::identity::User;
use crate::principals::Directory;
use crate::request::Request;

/// Bytes of a PDU at most, in both directions: Windows' limit.
const FRAGMENT_MAX: u16 = 5840;
/// Bytes of a fragmented call's stub.
const STUB_MAX: usize = 256 << 10;
/// Bytes of unread responses.
const OUTPUT_MAX: usize = 1 << 20;

/// The workgroup of a machine that is in no domain.
const WORKGROUP: &str = "WORKGROUP";
/// The version shown to clients, major and minor: that of the Windows releases whose behaviour is followed here.
const VERSION: (u32, u32) = (10, 0);

/// One open of a pipe.
pub(crate) struct Pipe {
    service: Service,
    /// A pipe does not keep its server alive.
    server: Weak<Server>,
    /// The user for whom calls are executed.
    caller: User,
    state: Mutex<State>,
    /// Wakes reads that wait.
    changed: Notify,
}

/// The interface at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Lsarpc,
    Samr,
    Srvsvc,
    Wkssvc,
}

#[derive(Default)]
struct State {
    /// Presentation contexts accepted.
    contexts: Vec<u16>,
    /// Largest fragment that the client accepts.
    client_fragment: u16,
    /// An incomplete PDU.
    input: Vec<u8>,
    /// A call whose last fragment was not received yet.
    call: Option<Call>,
    /// Messages to be read.
    output: VecDeque<Vec<u8>>,
    output_bytes: usize,
    /// Open context handles.
    handles: Handles,
    broken: bool,
    /// The open of the pipe is closed.
    closed: bool,
}

struct Call {
    id: u32,
    context: u16,
    opnum: u16,
    stub: Vec<u8>,
}

/// A call that is executed.
struct Context<'a> {
    server: &'a Arc<Server>,
    caller: &'a User,
    handles: &'a mut Handles,
    directory: &'a OnceCell<Directory>,
    opnum: u16,
    stub: &'a [u8],
}

impl<'a> Context<'a> {
    /// Users and groups, listed once for all calls of a write.
    fn directory(&self) -> &'a Directory {
        self.directory.get_or_init(|| Directory::new(self.server, self.caller))
    }
}

/// The state of a pipe without reading from it.
pub(crate) struct Peek {
    pub(crate) available: usize,
    pub(crate) messages: usize,
    pub(crate) first: usize,
}

impl Service {
    fn named(name: &str) -> Option<Service> {
        let is = |n: &str| name.eq_ignore_ascii_case(n);
        match () {
            () if is("srvsvc") => Some(Service::Srvsvc),
            () if is("wkssvc") => Some(Service::Wkssvc),
            // MS-LSAD 2.1 and MS-LSAT 2.1: two names of one end point.
            () if is("lsarpc") || is("lsass") => Some(Service::Lsarpc),
            () if is("samr") => Some(Service::Samr),
            () => None,
        }
    }

    fn syntax(self) -> SyntaxId {
        match self {
            Service::Srvsvc => SyntaxId::SRVSVC,
            Service::Wkssvc => SyntaxId::WKSSVC,
            Service::Lsarpc => SyntaxId::LSARPC,
            Service::Samr => SyntaxId::SAMR,
        }
    }

    /// The pipe's own name, for BIND_ACK (Windows' names: some services live in one process).
    fn address(self) -> &'static str {
        match self {
            Service::Srvsvc => "\\PIPE\\srvsvc",
            Service::Wkssvc => "\\PIPE\\wkssvc",
            Service::Lsarpc | Service::Samr => "\\PIPE\\lsass",
        }
    }
}

impl Pipe {
    /// Whether a pipe of that name exists.
    pub(crate) fn exists(name: &str) -> bool {
        Service::named(name).is_some()
    }

    /// Opens a pipe for `caller`; `None` when there is none of that name.
    pub(crate) fn open(server: &Arc<Server>, name: &str, caller: &User) -> Option<Pipe> {
        Some(Pipe {
            service: Service::named(name)?,
            server: Arc::downgrade(server),
            caller: caller.clone(),
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Accepts PDUs, or parts of them, and executes the complete calls; returns the length of `data`, which is always
    /// accepted whole.
    ///
    /// # Errors
    /// PIPE_DISCONNECTED after an invalid PDU; INSUFFICIENT_RESOURCES while too many responses are unread.
    pub(crate) fn write(&self, data: &[u8]) -> Result<u32, NtStatus> {
        let taken = self.take_bytes(data);
        self.changed.notify_waiters();
        taken
    }

    fn take_bytes(&self, data: &[u8]) -> Result<u32, NtStatus> {
        let mut s = self.state.lock();
        if s.broken {
            return Err(NtStatus::PIPE_DISCONNECTED);
        }
        if s.output_bytes > OUTPUT_MAX || data.len() > STUB_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        s.input.extend_from_slice(data);
        let directory = OnceCell::new();
        let input = std::mem::take(&mut s.input);
        let mut rest = input.as_slice();
        loop {
            let pdu = match Pdu::decode(rest) {
                Ok(pdu) => pdu,
                Err(WireError::Truncated { .. }) if !is_too_long(rest) => break,
                Err(e) => return Err(self.break_off(&mut s, &e)),
            };
            rest = &rest[usize::from(pdu.fragment_length)..];
            if s.output_bytes > OUTPUT_MAX {
                s.broken = true;
                return Err(NtStatus::PIPE_DISCONNECTED);
            }
            if let Err(e) = self.take(&mut s, &pdu, &directory) {
                return Err(self.break_off(&mut s, &e));
            }
        }
        s.input = rest.to_vec();
        Ok(data.len() as u32)
    }

    /// Returns the next message, or as much of it as `max` allows, and whether there is more of it.
    ///
    /// # Errors
    /// PIPE_EMPTY when there is none, PIPE_BROKEN after [`Pipe::close`], PIPE_DISCONNECTED after an invalid PDU.
    fn try_read(&self, max: usize) -> Result<(Vec<u8>, bool), NtStatus> {
        let mut s = self.state.lock();
        let Some(mut message) = s.output.pop_front() else {
            return Err(match (s.closed, s.broken) {
                (true, _) => NtStatus::PIPE_BROKEN,
                (false, true) => NtStatus::PIPE_DISCONNECTED,
                (false, false) => NtStatus::PIPE_EMPTY,
            });
        };
        let rest = message.split_off(message.len().min(max));
        s.output_bytes -= message.len();
        let more = !rest.is_empty();
        if more {
            s.output.push_front(rest);
        }
        Ok((message, more))
    }

    /// Like [`Pipe::try_read`], for the request `r`. While there is no message it sends an interim response, and waits
    /// until the request is cancelled or the pipe is closed (MS-SMB2 3.3.4.2, 3.3.5.12).
    ///
    /// # Errors
    /// CANCELLED, PIPE_BROKEN, PIPE_DISCONNECTED.
    pub(crate) async fn read(&self, r: &Request, max: usize) -> Result<(Vec<u8>, bool), NtStatus> {
        let mut announced = false;
        loop {
            let changed = pin!(self.changed.notified());
            match self.try_read(max) {
                Err(NtStatus::PIPE_EMPTY) => {}
                done => return done,
            }
            if !announced {
                r.pending.announce();
                announced = true;
            }
            if let Either::Right(_) = select(changed, pin!(r.cancel.cancelled())).await {
                return Err(NtStatus::CANCELLED);
            }
        }
    }

    /// Writes a message and reads the response (FSCTL_PIPE_TRANSCEIVE, MS-FSCC 2.3.50).
    ///
    /// # Errors
    /// PIPE_BUSY while there is an earlier response, and those of [`Pipe::write`] and [`Pipe::read`].
    pub(crate) async fn transceive(
        &self,
        r: &Request,
        data: &[u8],
        max: usize,
    ) -> Result<(Vec<u8>, bool), NtStatus> {
        if !self.state.lock().output.is_empty() {
            return Err(NtStatus::PIPE_BUSY);
        }
        self.write(data)?;
        self.read(r, max).await
    }

    /// The open is closed: completes waiting reads.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_waiters();
    }

    pub(crate) fn peek(&self) -> Peek {
        let s = self.state.lock();
        Peek {
            available: s.output_bytes,
            messages: s.output.len(),
            first: s.output.front().map_or(0, Vec::len),
        }
    }

    fn break_off(&self, s: &mut State, why: &WireError) -> NtStatus {
        tracing::debug!(
            pipe = self.service.address(),
            "a named pipe was disconnected, because its client sent an invalid message: {why}"
        );
        *s = State { broken: true, ..State::default() };
        NtStatus::PIPE_DISCONNECTED
    }

    fn take(&self, s: &mut State, pdu: &Pdu<'_>, directory: &OnceCell<Directory>) -> Result<(), WireError> {
        match pdu.pdu_type {
            PduType::BIND | PduType::ALTER_CONTEXT => self.bind(s, pdu),
            PduType::REQUEST => self.request(s, pdu, directory),
            // A call is complete before a cancel can arrive. The session authenticates, RPC does not.
            _ => Ok(()),
        }
    }

    /// C706 12.6.4.3, MS-RPCE 3.3.1.5.
    fn bind(&self, s: &mut State, pdu: &Pdu<'_>) -> Result<(), WireError> {
        let bind = Bind::decode(pdu.body)?;
        let mut results = Vec::new();
        for offer in bind.contexts() {
            let offer = offer?;
            let result = ContextResult::answer(&offer, &[self.service.syntax()]);
            if result == ContextResult::ACCEPTED && !s.contexts.contains(&offer.context_id) {
                s.contexts.push(offer.context_id);
                s.contexts.truncate(MAX_CONTEXTS);
            }
            results.push(result);
        }
        let (answer, address) = match pdu.pdu_type {
            PduType::BIND => (PduType::BIND_ACK, self.service.address()),
            _ => (PduType::ALTER_CONTEXT_RESP, ""),
        };
        s.client_fragment = bind.max_recv_frag.clamp(pdu::MUST_RECEIVE_FRAGMENT, FRAGMENT_MAX);
        let group = if bind.assoc_group_id == 0 { 1 } else { bind.assoc_group_id };
        let mut out = Vec::new();
        BindAck::put(&mut out, answer, pdu.call_id, s.client_fragment, group, address, &results)?;
        s.send(out);
        Ok(())
    }

    fn request(
        &self,
        s: &mut State,
        pdu: &Pdu<'_>,
        directory: &OnceCell<Directory>,
    ) -> Result<(), WireError> {
        let q = pdu::Request::decode(pdu)?;
        let mut call = if pdu.flags.contains(PduFlags::FIRST_FRAG) {
            Call { id: pdu.call_id, context: q.context_id, opnum: q.opnum, stub: Vec::new() }
        } else {
            match s.call.take() {
                Some(call) if call.id == pdu.call_id => call,
                _ => return s.fault(pdu.call_id, q.context_id, FaultStatus::PROTOCOL_ERROR),
            }
        };
        if call.stub.len() + q.stub.len() > STUB_MAX {
            s.call = None;
            return s.fault(pdu.call_id, q.context_id, FaultStatus::BAD_STUB_DATA);
        }
        call.stub.extend_from_slice(q.stub);
        if !pdu.flags.contains(PduFlags::LAST_FRAG) {
            s.call = Some(call);
            return Ok(());
        }
        if !s.contexts.contains(&call.context) {
            return s.fault(call.id, call.context, FaultStatus::UNKNOWN_INTERFACE);
        }
        match self.execute(&mut s.handles, directory, &call) {
            Ok(stub) => {
                let mut out = Vec::new();
                pdu::put_response(&mut out, call.id, call.context, &stub, s.client_fragment)?;
                s.send(out);
                Ok(())
            }
            Err(fault) => s.fault(call.id, call.context, fault),
        }
    }

    fn execute(
        &self,
        handles: &mut Handles,
        directory: &OnceCell<Directory>,
        call: &Call,
    ) -> Result<Vec<u8>, FaultStatus> {
        let server = self.server.upgrade().ok_or(FaultStatus::ACCESS_DENIED)?;
        let context = Context {
            server: &server,
            caller: &self.caller,
            handles,
            directory,
            opnum: call.opnum,
            stub: &call.stub,
        };
        match self.service {
            Service::Srvsvc => srvsvc::execute(context),
            Service::Wkssvc => wkssvc::execute(&server, call.opnum, &call.stub),
            Service::Lsarpc => lsarpc::execute(context),
            Service::Samr => samr::execute(context),
        }
    }
}

impl State {
    /// Queues PDUs, each a message of its own.
    fn send(&mut self, pdus: Vec<u8>) {
        self.output_bytes += pdus.len();
        let mut rest = pdus.as_slice();
        while let Ok(pdu) = Pdu::decode(rest) {
            let (message, after) = rest.split_at(usize::from(pdu.fragment_length));
            self.output.push_back(message.to_vec());
            rest = after;
        }
        debug_assert!(rest.is_empty(), "what is sent here are whole PDUs");
    }

    fn fault(&mut self, call: u32, context: u16, status: FaultStatus) -> Result<(), WireError> {
        let mut out = Vec::new();
        pdu::put_fault(&mut out, call, context, status)?;
        self.send(out);
        Ok(())
    }
}

/// Whether the PDU that begins with `bytes` is longer than allowed.
fn is_too_long(bytes: &[u8]) -> bool {
    match bytes.get(8..10) {
        Some(length) if bytes.len() >= PDU_HEADER_LEN => {
            u16::from_le_bytes([length[0], length[1]]) > FRAGMENT_MAX
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
