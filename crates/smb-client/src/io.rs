//! READ and WRITE: in messages, or by RDMA (MS-SMB2 3.2.4.6, 3.2.4.7).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arena::passes::{self, Pass};
use arena::{IoBufMut, Sg, SgMut, sg_len, sg_slice};
use smb_wire::msg::{Channel, ReadFlags, ReadRequest, ReadResponse, WriteFlags, WriteRequest, WriteResponse};
use smb_wire::{Command, Decode, NtStatus, WireError};

use crate::RequestError;
use crate::connection::{CREDIT, Call, Rdma, Request, Response};
use crate::file::File;
use crate::link::Direct;
use crate::tree::Tree;

/// Room for one buffer descriptor; the connection fills it in.
const DESCRIPTOR: [u8; 16] = [0; 16];

/// What SMB Direct may do for a share: RDMA payload would not be encrypted.
fn direct(tree: &Tree) -> Option<Direct> {
    tree.link().direct.filter(|_| !tree.is_encrypted())
}

/// What the credits seen so far pay for, in bytes; one credit there always is.
pub(crate) fn affordable(tree: &Tree, most: u32) -> u32 {
    let credits = tree.link().connection.credits_seen().clamp(1, u32::from(u16::MAX)) as usize;
    most.min(u32::try_from(credits * CREDIT).unwrap_or(u32::MAX))
}

pub(crate) fn max_read(tree: &Tree) -> u32 {
    let most = direct(tree).map_or(tree.link().max_read, |d| d.max_read.max(tree.link().max_read));
    affordable(tree, most)
}

pub(crate) fn max_write(tree: &Tree) -> u32 {
    let most = direct(tree).map_or(tree.link().max_write, |d| d.max_write.max(tree.link().max_write));
    affordable(tree, most)
}

pub(crate) fn read(file: &File, offset: u64, length: u32, into: Option<SgMut>) -> ReadCall {
    let tree = &file.inner.tree;
    let mut length = length.min(max_read(tree));
    if let Some(bufs) = &into {
        length = length.min(bufs.iter().map(|b| b.capacity() as u32).sum());
    }
    let by_rdma = direct(tree).filter(|d| length >= d.threshold);
    let length = length.min(by_rdma.map_or(tree.link().max_read, |d| d.max_read));
    let body = ReadRequest {
        padding: ReadResponse::HEAD_LEN as u8,
        flags: ReadFlags::empty(),
        length,
        offset,
        file_id: file.inner.id,
        minimum_count: 0,
        channel: by_rdma.map_or(Channel::NONE, |d| d.channel),
        remaining_bytes: 0,
        channel_info: if by_rdma.is_some() { &DESCRIPTOR } else { &[] },
    };
    let mut into = into;
    let request = Request::new(Command::READ, &body).map(|r| {
        let mut r = r.charged(length as usize);
        if by_rdma.is_some() {
            r.rdma = Some(match into.take() {
                Some(bufs) => Rdma::Into(bufs, length),
                None => Rdma::Read(length),
            });
        }
        r
    });
    ReadCall { call: request.map(|r| tree.call(r)).map_err(Some), length, into }
}

/// A READ in flight: its payload, as a future. Dropping it cancels the READ.
pub struct ReadCall {
    call: Result<Call, Option<RequestError>>,
    length: u32,
    /// Where to copy what comes in a message.
    into: Option<SgMut>,
}

impl ReadCall {
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, RequestError>> {
        match &mut self.call {
            Ok(call) => Pin::new(call).poll(cx),
            Err(e) => e.take().map_or(Poll::Pending, |e| Poll::Ready(Err(e))),
        }
    }

    /// The caller's buffers back, filled.
    pub(crate) async fn into_buffers(mut self) -> Result<(SgMut, u32), RequestError> {
        let mut response = std::future::poll_fn(|cx| self.poll_response(cx)).await?;
        let (head, length) = head(&response, self.length)?;
        if let Some(bufs) = response.sink.take() {
            return Ok((filled(*bufs, length), length));
        }
        let payload = payload(&response, &head)?;
        let mut bufs = self.into.take().unwrap_or_default();
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
            Some(bufs) => Ok(filled(*bufs, length).into_iter().map(IoBufMut::freeze).collect()),
            None => payload(&response, &head),
        }))
    }
}

/// The head of a READ's answer, and how many bytes were read.
fn head(response: &Response, asked: u32) -> Result<(ReadResponse, u32), RequestError> {
    match response.header.status {
        // MS-SMB2 3.3.5.12: nothing from here on.
        NtStatus::END_OF_FILE => return Ok((ReadResponse::default(), 0)),
        // A pipe's message goes on.
        NtStatus::BUFFER_OVERFLOW => {}
        _ => response.success()?,
    }
    let head = ReadResponse::decode(response.bytes())?;
    let length = if response.sink.is_some() { head.data_remaining } else { head.data_length };
    if length > asked {
        return Err(WireError::Malformed { what: "READ response length" }.into());
    }
    Ok((head, length))
}

/// The payload inside a READ's answer.
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

/// Marks the first `length` bytes of the buffers as filled.
fn filled(mut bufs: SgMut, length: u32) -> SgMut {
    let mut left = length as usize;
    for buf in &mut bufs {
        let n = left.min(buf.capacity());
        buf.set_len(n);
        left -= n;
    }
    bufs
}

pub(crate) fn write(file: &File, offset: u64, mut data: Sg) -> WriteCall {
    let tree = &file.inner.tree;
    let mut length = sg_len(&data).min(max_write(tree) as usize);
    let by_rdma = direct(tree).filter(|d| length >= d.threshold as usize);
    length = length.min(by_rdma.map_or(tree.link().max_write, |d| d.max_write) as usize);
    if length < sg_len(&data) {
        data = sg_slice(&data, 0, length);
    }
    let body = WriteRequest {
        data_offset: if by_rdma.is_some() { 0 } else { WriteRequest::HEAD_LEN as u16 },
        length: if by_rdma.is_some() { 0 } else { length as u32 },
        offset,
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
    WriteCall { call: request.map(|r| tree.call(r)).map_err(Some), length: length as u32 }
}

/// A WRITE in flight: how many bytes were written, as a future. Dropping it cancels the WRITE, which may have happened.
pub struct WriteCall {
    call: Result<Call, Option<RequestError>>,
    length: u32,
}

impl Future for WriteCall {
    type Output = Result<u32, RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut self.call {
            Ok(call) => ready!(Pin::new(call).poll(cx))?,
            Err(e) => return e.take().map_or(Poll::Pending, |e| Poll::Ready(Err(e))),
        };
        let answer: WriteResponse = response.body()?;
        if answer.count > self.length {
            return Poll::Ready(Err(WireError::Malformed { what: "WRITE response count" }.into()));
        }
        Poll::Ready(Ok(answer.count))
    }
}
