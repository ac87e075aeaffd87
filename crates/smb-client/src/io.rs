//! READ and WRITE, with payload in the message or by RDMA (MS-SMB2 3.2.4.6, 3.2.4.7).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arena::passes::{self, Pass};
use arena::{Class, IoBufMut, Sg, SgMut, sg_len, sg_slice};
use env::BoxFuture;
use smallvec::SmallVec;
use smb_wire::msg::{Channel, ReadFlags, ReadRequest, ReadResponse, WriteFlags, WriteRequest, WriteResponse};
use smb_wire::{Command, Decode, NtStatus, WireError};

use crate::RequestError;
use crate::connection::{CREDIT, Call, Rdma, Request, Response};
use crate::file::File;
use crate::link::{Direct, Link};
use crate::tree::Tree;

/// Placeholder for one buffer descriptor, which the connection fills in.
const DESCRIPTOR: [u8; 16] = [0; 16];

/// The SMB Direct parameters of a share; `None` if the share is encrypted, because RDMA payload would not be.
fn direct(tree: &Tree, link: &Link) -> Option<Direct> {
    link.direct.filter(|_| !tree.is_encrypted())
}

/// The size that the highest number of credits so far permits, in bytes; at least one credit.
pub(crate) fn credit_limit(link: &Link, most: u32) -> u32 {
    let credits = link.connection.credits_peak().clamp(1, u32::from(u16::MAX)) as usize;
    most.min(u32::try_from(credits * CREDIT).unwrap_or(u32::MAX))
}

pub(crate) fn max_read(tree: &Tree, link: &Link) -> u32 {
    let most = direct(tree, link).map_or(link.max_read, |d| d.max_read.max(link.max_read));
    credit_limit(link, most).min(memory_share(tree))
}

/// Maximum payload that one caller may hold in the arena at a time, in bytes (see [`arena::Arena::alloc_sg`]).
pub(crate) fn memory_share(tree: &Tree) -> u32 {
    u32::try_from(tree.client().arena().budget() / 2).unwrap_or(u32::MAX)
}

pub(crate) fn max_write(tree: &Tree, link: &Link) -> u32 {
    let most = direct(tree, link).map_or(link.max_write, |d| d.max_write.max(link.max_write));
    credit_limit(link, most)
}

/// One request, and the state needed to send it again.
struct RepeatableRequest {
    file: File,
    offset: u64,
    link: Arc<Link>,
    reauthentications: u64,
    state: State,
    /// How often it was sent again.
    repeats: u32,
    /// Whether a lost channel may already have executed it.
    replay: bool,
}

enum State {
    Call(Result<Call, Option<RequestError>>),
    /// A step that must complete before it is sent again.
    Repair(BoxFuture<Result<(), RequestError>>),
    /// Must be sent now.
    Ready,
}

/// How often a WRITE waits until the server has finished the requests of a lost channel. Each wait is twice the
/// last.
const REPLAYS: u32 = 10;
const REPLAY_PAUSE: Duration = Duration::from_millis(10);

impl RepeatableRequest {
    fn new(file: &File, offset: u64) -> RepeatableRequest {
        let inner = &file.inner.tree.client().inner;
        let (link, reauthentications) = (inner.link(), inner.reauthentications());
        RepeatableRequest {
            file: file.clone(),
            offset,
            link,
            reauthentications,
            state: State::Ready,
            repeats: 0,
            replay: false,
        }
    }

    fn send(&mut self, request: Result<Request, RequestError>) {
        let tree = &self.file.inner.tree;
        let request = request.map(|r| if self.replay { r.replayed() } else { r });
        self.state = State::Call(request.map(|r| tree.send(&self.link, r)).map_err(Some));
    }

    /// Returns the response, or `None` if the caller must send the request again now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Response>, RequestError>> {
        loop {
            match &mut self.state {
                State::Ready => return Poll::Ready(Ok(None)),
                State::Repair(work) => {
                    ready!(work.as_mut().poll(cx))?;
                    let inner = &self.file.inner.tree.client().inner;
                    (self.link, self.reauthentications) = (inner.link(), inner.reauthentications());
                    self.repeats += 1;
                    self.state = State::Ready;
                }
                State::Call(Err(e)) => return e.take().map_or(Poll::Pending, |e| Poll::Ready(Err(e))),
                State::Call(Ok(call)) => {
                    let done = ready!(Pin::new(call).poll(cx));
                    match self.repair(&done) {
                        Some(work) => self.state = State::Repair(work),
                        None => return Poll::Ready(done.map(Some)),
                    }
                }
            }
        }
    }

    /// Returns the step that is required before the request is sent again; `None` if it must not be.
    fn repair(
        &mut self,
        done: &Result<Response, RequestError>,
    ) -> Option<BoxFuture<Result<(), RequestError>>> {
        let inner = &self.file.inner.tree.client().inner;
        match done {
            Ok(r) if r.header.status == NtStatus::NETWORK_SESSION_EXPIRED && self.repeats == 0 => {
                let (client, reauthentications) =
                    (self.file.inner.tree.client().clone(), self.reauthentications);
                Some(Box::pin(async move { client.inner.reauthenticate(reauthentications).await }))
            }
            // MS-SMB2 3.3.5.2.10: the server has not finished the requests of the lost channel.
            Ok(r)
                if self.replay
                    && r.header.status == NtStatus::FILE_NOT_AVAILABLE
                    && self.repeats < REPLAYS =>
            {
                let pause = REPLAY_PAUSE * (1 << self.repeats);
                let env = inner.env.clone();
                Some(Box::pin(async move {
                    env.sleep(pause).await;
                    Ok(())
                }))
            }
            Err(RequestError::Lost(_)) if !self.replay && inner.has_alternative(&self.link) => {
                self.replay = true;
                Some(Box::pin(async { Ok(()) }))
            }
            _ => None,
        }
    }
}

pub(crate) fn read(file: &File, offset: u64, length: u32, into: Option<SgMut>) -> ReadCall {
    let capacities = into.as_ref().map(|bufs| bufs.iter().map(|b| b.capacity()).collect());
    let mut call = ReadCall { request: RepeatableRequest::new(file, offset), length, capacities, into };
    call.send();
    call
}

/// A READ in flight: a future that returns its payload. Dropping it cancels the READ.
pub struct ReadCall {
    request: RepeatableRequest,
    length: u32,
    /// Capacities of the caller's buffers; `into` receives data that arrives in a message.
    capacities: Option<SmallVec<[usize; 2]>>,
    into: Option<SgMut>,
}

impl ReadCall {
    fn send(&mut self) {
        let (file, link) = (&self.request.file, &self.request.link);
        let tree = &file.inner.tree;
        self.length = self.length.min(max_read(tree, link));
        if let Some(room) = &self.capacities {
            self.length = self.length.min(room.iter().sum::<usize>() as u32);
        }
        let by_rdma = direct(tree, link).filter(|d| self.length >= d.threshold);
        let length = self.length.min(by_rdma.map_or(link.max_read, |d| d.max_read));
        self.length = length;
        let body = ReadRequest {
            padding: ReadResponse::HEAD_LEN as u8,
            flags: ReadFlags::empty(),
            length,
            offset: self.request.offset,
            file_id: file.inner.id,
            minimum_count: 0,
            channel: by_rdma.map_or(Channel::NONE, |d| d.channel),
            remaining_bytes: 0,
            channel_info: if by_rdma.is_some() { &DESCRIPTOR } else { &[] },
        };
        let request = Request::new(Command::READ, &body).map(|r| {
            let mut r = r.charged(length as usize);
            if by_rdma.is_some() {
                r.rdma = Some(match self.into.take() {
                    Some(bufs) => Rdma::Into(bufs, length),
                    None => Rdma::Read(length),
                });
            }
            r
        });
        self.request.send(request);
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, RequestError>> {
        loop {
            match ready!(self.request.poll(cx))? {
                Some(response) => return Poll::Ready(Ok(response)),
                None => self.send(),
            }
        }
    }

    /// Returns the caller's buffers, filled; other buffers of the same size if a lost channel still holds them.
    pub(crate) async fn into_buffers(mut self) -> Result<(SgMut, u32), RequestError> {
        let mut response = std::future::poll_fn(|cx| self.poll_response(cx)).await?;
        let (head, length) = head(&response, self.length)?;
        if let Some(bufs) = response.sink.take() {
            return Ok((filled(*bufs, length)?, length));
        }
        let payload = payload(&response, &head)?;
        let mut bufs = match self.into.take() {
            Some(bufs) => bufs,
            None => {
                let bytes = self.capacities.iter().flatten().sum();
                self.request.file.tree().client().arena().alloc_sg(bytes, Class::Payload).await
            }
        };
        let mut from = payload.iter().map(|b| &**b);
        let mut rest: &[u8] = &[];
        for buf in &mut bufs {
            buf.set_len(0);
            while !buf.spare().is_empty() {
                if rest.is_empty() {
                    let Some(next) = from.next() else { break };
                    rest = next;
                }
                let n = buf.append(rest);
                rest = &rest[n..];
            }
        }
        passes::count(Pass::Copy, length as usize);
        Ok((bufs, length))
    }
}

impl Future for ReadCall {
    type Output = Result<Sg, RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.poll_response(cx))?;
        Poll::Ready(head(&response, self.length).and_then(|(head, length)| match response.sink.take() {
            Some(bufs) => Ok(filled(*bufs, length)?.into_iter().map(IoBufMut::freeze).collect()),
            None => payload(&response, &head),
        }))
    }
}

/// Decodes the fixed part of a READ response; returns it and the number of bytes read.
fn head(response: &Response, requested: u32) -> Result<(ReadResponse, u32), RequestError> {
    match response.header.status {
        // MS-SMB2 3.3.5.12: there is no data from this offset on.
        NtStatus::END_OF_FILE => return Ok((ReadResponse::default(), 0)),
        // A pipe's message continues.
        NtStatus::BUFFER_OVERFLOW => {}
        _ => response.success()?,
    }
    let head = ReadResponse::decode(response.bytes())?;
    let length = if response.sink.is_some() { head.data_remaining } else { head.data_length };
    if length > requested {
        return Err(WireError::Malformed { what: "READ response length" }.into());
    }
    Ok((head, length))
}

/// The payload in a READ response.
fn payload(response: &Response, head: &ReadResponse) -> Result<Sg, RequestError> {
    let (at, len) = (usize::from(head.data_offset), head.data_length as usize);
    if len == 0 {
        return Ok(Sg::new());
    }
    let have = sg_len(&response.message);
    if at < ReadResponse::HEAD_LEN || at + len > have {
        return Err(WireError::Truncated { what: "READ data", need: at + len, have }.into());
    }
    Ok(sg_slice(&response.message, at, len))
}

/// The first `length` bytes of the buffers that the server wrote. Bytes that it did not write are data of earlier
/// uses. They are not returned even if the server reports a longer read.
fn filled(mut bufs: SgMut, length: u32) -> Result<SgMut, RequestError> {
    let mut left = length as usize;
    if bufs.iter().map(|b| b.len()).sum::<usize>() < left {
        return Err(WireError::Malformed { what: "READ response length" }.into());
    }
    for buf in &mut bufs {
        let n = left.min(buf.capacity());
        buf.set_len(n);
        left -= n;
    }
    Ok(bufs)
}

pub(crate) fn write(file: &File, offset: u64, data: Sg) -> WriteCall {
    let mut call = WriteCall { request: RepeatableRequest::new(file, offset), data, length: 0 };
    call.send();
    call
}

/// A WRITE in flight: a future that returns the number of bytes written. Dropping it cancels the WRITE, which may
/// still be executed.
pub struct WriteCall {
    request: RepeatableRequest,
    /// The data, kept until completion, because it may have to be sent again.
    data: Sg,
    length: u32,
}

impl WriteCall {
    fn send(&mut self) {
        let (file, link) = (&self.request.file, &self.request.link);
        let tree = &file.inner.tree;
        let whole = sg_len(&self.data);
        let mut length = whole.min(max_write(tree, link) as usize);
        let by_rdma = direct(tree, link).filter(|d| length >= d.threshold as usize);
        length = length.min(by_rdma.map_or(link.max_write, |d| d.max_write) as usize);
        let data = if length < whole { sg_slice(&self.data, 0, length) } else { self.data.clone() };
        let body = WriteRequest {
            data_offset: if by_rdma.is_some() { 0 } else { WriteRequest::HEAD_LEN as u16 },
            length: if by_rdma.is_some() { 0 } else { length as u32 },
            offset: self.request.offset,
            file_id: file.inner.id,
            channel: by_rdma.map_or(Channel::NONE, |d| d.channel),
            remaining_bytes: if by_rdma.is_some() { length as u32 } else { 0 },
            channel_info: if by_rdma.is_some() { &DESCRIPTOR } else { &[] },
            flags: WriteFlags::empty(),
        };
        let request = Request::new(Command::WRITE, &body).map(|r| {
            let mut r = r.charged(length);
            match by_rdma {
                Some(_) => r.rdma = Some(Rdma::Write(data)),
                None => r.payload = data,
            }
            r
        });
        self.length = length as u32;
        self.request.send(request);
    }
}

impl Future for WriteCall {
    type Output = Result<u32, RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = loop {
            match ready!(self.request.poll(cx))? {
                Some(response) => break response,
                None => self.send(),
            }
        };
        let answer: WriteResponse = response.body()?;
        if answer.count > self.length {
            return Poll::Ready(Err(WireError::Malformed { what: "WRITE response count" }.into()));
        }
        Poll::Ready(Ok(answer.count))
    }
}
