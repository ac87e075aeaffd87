//! READ (MS-SMB2 3.3.5.12).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{Arena, IoBuf, Sg};
use env::Io;
use smb_direct::BufferDescriptorV1;
use smb_wire::msg::{Channel, ReadFlags, ReadRequest, ReadResponse};
use smb_wire::{AccessMask, Decode, Header, NtStatus};
use vfs::{Data, Kind, ReadOptions, VfsResult};

use super::descriptors;
use crate::TransportKind;
use crate::connection::Outcome;
use crate::open::{FileOpen, Open};
use crate::request::{ConnectionFacts, Push, Reply, Request};
use crate::share::Tree;
use crate::status;

/// Starts a READ; completes at once where the backend has the data in memory. `plain` says that the reply is alone in
/// its message and neither signed nor encrypted, so that its payload may come straight from a file.
pub(crate) fn start(mut r: Request, plain: bool) -> Outcome {
    match begin(&r, plain) {
        Ok(Begun::Outcome(outcome)) => outcome,
        Ok(Begun::Pipe(open, length)) => {
            r.message = IoBuf::from(Vec::new()); // releases its part of a receive chunk early
            Outcome::Pending(Box::pin(async move { of_pipe(&r, &open, length).await.into() }))
        }
        Err(status) => status.into(),
    }
}

enum Begun {
    Outcome(Outcome),
    /// A read of a pipe, which may have to wait for a message; the length is the most bytes to return.
    Pipe(Arc<Open>, u32),
}

async fn of_pipe(r: &Request, open: &Open, length: u32) -> Result<Reply, NtStatus> {
    let pipe = open.pipe().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let (data, more) = pipe.read(r, length as usize).await?;
    let status = if more { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    let mut reply = Reply::with_status(status, &ReadResponse::inline(data.len() as u32));
    reply.payload = Data::Bufs([data.into()].into_iter().collect());
    Ok(reply)
}

fn begin(r: &Request, plain: bool) -> Result<Begun, NtStatus> {
    let q = decode(&r.message, &r.facts, &r.header, r.encrypted)?;
    let open = r.open(q.file_id)?;
    if open.pipe().is_some() {
        return Ok(Begun::Pipe(open, q.length));
    }
    let (facts, arena) = (&*r.facts, &r.server.arena);
    let read = FileRead { facts, arena, tree: &r.tree, open: &open, encrypted: r.encrypted, plain };
    read.begin(&q).map(Begun::Outcome)
}

/// Decodes a READ; checks its length against the connection's limit and its credit charge.
///
/// # Errors
/// STATUS_INVALID_PARAMETER if the message or its length is invalid.
fn decode<'m>(
    message: &'m [u8],
    facts: &ConnectionFacts,
    header: &Header,
    encrypted: bool,
) -> Result<ReadRequest<'m>, NtStatus> {
    let q = ReadRequest::decode(message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    // A READ whose response would not fit the client's messages is refused, never shortened: Linux's page cache and
    // Windows take a short response for the end of the file, and read zeros behind it.
    let by_rdma = q.channel != Channel::NONE;
    let limit = if by_rdma { facts.max_read } else { facts.max_inline_read(encrypted) };
    if q.length > limit {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    super::charge_covers(facts, header, q.length)?;
    Ok(q)
}

/// A READ through an open of a file. Borrows all that it needs: a READ that completes at once touches no reference
/// count.
pub(crate) struct FileRead<'a> {
    pub(crate) facts: &'a ConnectionFacts,
    pub(crate) arena: &'a Arena,
    pub(crate) tree: &'a Tree,
    pub(crate) open: &'a Arc<Open>,
    pub(crate) encrypted: bool,
    /// The reply is alone in its message and neither signed nor encrypted.
    pub(crate) plain: bool,
}

impl FileRead<'_> {
    /// Starts the READ in `message`; completes at once where the backend has the data in memory.
    ///
    /// # Errors
    /// The status to answer with.
    #[inline]
    pub(crate) fn start(&self, header: &Header, message: &[u8]) -> Result<Outcome, NtStatus> {
        let q = decode(message, self.facts, header, self.encrypted)?;
        self.open.use_through(self.tree)?;
        self.begin(&q)
    }

    /// Starts a decoded READ.
    #[inline]
    fn begin(&self, q: &ReadRequest<'_>) -> Result<Outcome, NtStatus> {
        let by_rdma = q.channel != Channel::NONE;
        let Some(file) = self.open.file() else { return Err(NtStatus::INVALID_DEVICE_REQUEST) };
        check(self.open, file, q)?;
        let push = descriptors(self.facts, self.encrypted, q.channel, q.channel_info, q.length)?;
        let file_ok = self.plain && !by_rdma && self.facts.transport == TransportKind::Tcp;
        let want = ReadOptions { length: q.length, arena: self.arena, file_ok };
        let mut c = env::Ctx::default();
        c.flags.unbuffered = file.unbuffered || q.flags.contains(ReadFlags::UNBUFFERED);
        let job = Job { offset: q.offset, length: q.length, minimum: q.minimum_count, push };
        Ok(match file.node.read(&c, q.offset, want) {
            Io::Done(result) => Outcome::Reply(job.finish(file, result)),
            Io::Pending(future) => {
                // Keeps the open alive until its read completes, even if the client closes it meanwhile.
                let open = Arc::clone(self.open);
                Outcome::Pending(Box::pin(async move {
                    let result = future.await;
                    let file = open.file().expect("an open stays one of a file");
                    job.finish(file, result)
                }))
            }
        })
    }
}

fn check(open: &Open, file: &FileOpen, q: &ReadRequest<'_>) -> Result<(), NtStatus> {
    if file.node.kind() == Kind::Directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let readable = AccessMask::READ_DATA.bits() | AccessMask::EXECUTE.bits();
    if open.access & readable == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // A range must end within the limit of a signed offset.
    if q.offset.checked_add(u64::from(q.length)).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    file.stream.check_io(open.persistent, q.offset, u64::from(q.length), false)
}

/// A READ that is pending in the backend.
struct Job {
    offset: u64,
    length: u32,
    minimum: u32,
    /// The client's buffers if the payload is sent by RDMA.
    push: Option<Vec<BufferDescriptorV1>>,
}

impl Job {
    fn finish(self, file: &FileOpen, result: VfsResult<Data>) -> Reply {
        match result {
            Ok(data) if data.is_empty() && self.length > 0 => Reply::error(NtStatus::END_OF_FILE),
            Ok(data) if data.len() < self.minimum as usize => Reply::error(NtStatus::END_OF_FILE),
            Ok(data) => self.reply(file, data),
            Err(e) => Reply::error(status::of_vfs(e)),
        }
    }

    fn reply(self, file: &FileOpen, data: Data) -> Reply {
        let length = data.len() as u32;
        // For FilePositionInformation (MS-FSA 2.1.5.2).
        file.position.store(self.offset + u64::from(length), Ordering::Relaxed);
        let Some(to) = self.push else {
            let mut reply = Reply::ok(&ReadResponse::inline(length));
            reply.payload = data;
            return reply;
        };
        let mut reply = Reply::ok(&ReadResponse::rdma(length));
        reply.push = Some(Box::new(Push { data: bytes(data), to }));
        reply
    }
}

/// The buffers of a payload that was requested in memory.
fn bytes(data: Data) -> Sg {
    match data {
        Data::Bufs(sg) => sg,
        Data::File { .. } => unreachable!("a file is not welcome where payload goes by RDMA"),
    }
}
