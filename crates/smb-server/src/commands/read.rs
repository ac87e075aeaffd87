//! READ (MS-SMB2 3.3.5.12).

use std::sync::Arc;

use arena::sg_slice;
use env::Io;
use smb_direct::BufferDescriptorV1;
use smb_wire::msg::{Channel, ReadFlags, ReadRequest, ReadResponse};
use smb_wire::{AccessMask, Decode, NtStatus};
use vfs::{Data, Kind, VfsResult, Want};

use super::descriptors;
use crate::TransportKind;
use crate::connection::Outcome;
use crate::open::{FileOpen, Open};
use crate::request::{Push, Reply, Request};
use crate::server::{Counters, Server};
use crate::status;

/// Where the payload goes.
struct Destination {
    minimum: u32,
    length: u32,
    /// Descriptors when it goes by RDMA.
    push: Option<Vec<BufferDescriptorV1>>,
}

/// Starts a READ; complete at once where the data is at hand. `plain` says that the reply is alone in its message and
/// neither signed nor encrypted, so that its payload may come straight from a file.
pub(crate) fn start(r: Request, plain: bool) -> Outcome {
    match begin(&r, plain) {
        Ok(outcome) => outcome,
        Err(status) => status.into(),
    }
}

fn begin(r: &Request, plain: bool) -> Result<Outcome, NtStatus> {
    let q = ReadRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    Counters::add(&r.server.counters().reads, 1);
    let limit =
        if q.channel == Channel::NONE { r.facts.max_io.min(r.facts.inline_max) } else { r.facts.max_io };
    if q.length > limit {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    super::check_charge(r, q.length)?;
    let open = r.open(q.file_id)?;
    if let Some(pipe) = open.pipe() {
        let (data, more) = pipe.read(q.length as usize)?;
        let to = Destination { minimum: 0, length: q.length, push: None };
        let mut reply = reply(&r.server, &to, Data::Bufs([data.into()].into_iter().collect()));
        if more {
            reply.status = NtStatus::BUFFER_OVERFLOW;
        }
        return Ok(Outcome::Reply(reply));
    }
    let Some(file) = open.file() else { return Err(NtStatus::INVALID_DEVICE_REQUEST) };
    check(&open, file, &q)?;
    let to = destination(r, &q)?;
    let want = Want {
        length: q.length,
        arena: &r.server.arena,
        file_ok: plain && to.push.is_none() && r.facts.transport == TransportKind::Tcp,
    };
    let mut c = r.ctx();
    c.flags.unbuffered = file.unbuffered || q.flags.contains(ReadFlags::UNBUFFERED);
    match file.node.read(&c, q.offset, want) {
        Io::Done(result) => Ok(Outcome::Reply(finish(&r.server, &to, result))),
        Io::Pending(future) => {
            let server = Arc::clone(&r.server);
            // The open stays alive until its read is done, whatever the client closes meanwhile.
            let open = Arc::clone(&open);
            Ok(Outcome::Pending(Box::pin(async move {
                let reply = finish(&server, &to, future.await);
                drop(open);
                reply
            })))
        }
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
    // A range that ends beyond what a signed offset reaches does not exist.
    if q.offset.checked_add(u64::from(q.length)).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    file.file.check_io(open.id.volatile, q.offset, u64::from(q.length), false)
}

fn destination(r: &Request, q: &ReadRequest<'_>) -> Result<Destination, NtStatus> {
    let push = descriptors(r, q.channel, q.channel_info, q.length)?;
    Ok(Destination { minimum: q.minimum_count, length: q.length, push })
}

fn finish(server: &Arc<Server>, to: &Destination, result: VfsResult<Data>) -> Reply {
    match result {
        Ok(data) if data.is_empty() && to.length > 0 => Reply::error(NtStatus::END_OF_FILE),
        Ok(data) if data.len() < to.minimum as usize => Reply::error(NtStatus::END_OF_FILE),
        Ok(data) => reply(server, to, data),
        Err(e) => Reply::error(status::of_vfs(e)),
    }
}

fn reply(server: &Arc<Server>, to: &Destination, data: Data) -> Reply {
    let length = data.len() as u32;
    Counters::add(&server.counters().read_bytes, u64::from(length));
    match (&to.push, data) {
        (Some(descriptors), Data::Bufs(sg)) => {
            Counters::add(&server.counters().read_bytes_rdma, u64::from(length));
            let mut reply = Reply::ok(&ReadResponse::rdma(length));
            reply.push = Some(Push { data: sg_slice(&sg, 0, length as usize), to: descriptors.clone() });
            reply
        }
        (_, data) => {
            let mut reply = Reply::ok(&ReadResponse::inline(length));
            reply.payload = data;
            reply
        }
    }
}
