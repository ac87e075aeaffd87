//! WRITE (MS-SMB2 3.3.5.13).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{PipedPayload, Sg, sg_len, sg_slice};
use env::{Ctx, Io};
use smb_wire::msg::{WriteFlags, WriteRequest, WriteResponse};
use smb_wire::{AccessMask, Decode, NtStatus};
use vfs::{Kind, VfsError, VfsResult};

use super::descriptors;
use crate::Server;
use crate::connection::Outcome;
use crate::open::{FileOpen, GateGuard, Open};
use crate::request::{Reply, Request};
use crate::status;

/// Starts a WRITE. `whole` is the message with its payload, or only its head if the payload is in `piped`.
pub(crate) fn start(r: Request, whole: &Sg, piped: Option<PipedPayload>) -> Outcome {
    match begin(&r, whole, piped) {
        Ok(outcome) => outcome,
        Err(status) => status.into(),
    }
}

fn begin(r: &Request, whole: &Sg, piped: Option<PipedPayload>) -> Result<Outcome, NtStatus> {
    let q = WriteRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let by_rdma = q.channel != smb_wire::msg::Channel::NONE;
    // MS-SMB2 2.2.21: with a channel, Length and DataOffset are 0 and RemainingBytes is the payload's length.
    let length = if by_rdma { q.remaining_bytes } else { q.length };
    if length > r.facts.max_io || (by_rdma && q.length != 0) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    super::check_charge(r, length)?;
    let open = r.open(q.file_id)?;
    if let Some(pipe) = open.pipe() {
        let data = match piped {
            Some(piped) => bytes(piped)?,
            None => inline(r, whole, &q)?,
        };
        let count = pipe.write(&arena::sg_to_vec(&data))?;
        return Ok(Outcome::Reply(Reply::ok(&WriteResponse { count, remaining: 0 })));
    }
    check(&open, &q, length)?;
    let mut c = r.ctx();
    let told = r.facts.dialect >= 0x0210 && q.flags.contains(WriteFlags::WRITE_THROUGH);
    c.flags.write_through = told || open.file().is_some_and(FileOpen::write_through);
    c.flags.unbuffered =
        open.file().is_some_and(|f| f.unbuffered) || q.flags.contains(WriteFlags::UNBUFFERED);
    let from = descriptors(&r.facts, r.encrypted, q.channel, q.channel_info, length)?;
    if length >= LARGE && !by_rdma {
        // The next WRITE mostly has the same destination as this one.
        let by_memory = c.flags.write_through || c.flags.unbuffered;
        let prefers = open.file().is_some_and(|f| f.node.prefers_pipes()) && !by_memory;
        r.facts.pipes.store(prefers, Ordering::Relaxed);
    }
    let job = Job { server: Arc::clone(&r.server), open, c, offset: q.offset };
    match from {
        None => match piped {
            Some(piped) => Ok(job.run(Payload::Piped(piped))),
            None => Ok(job.run(Payload::Bytes(inline(r, whole, &q)?))),
        },
        Some(_) if length == 0 => Ok(job.run(Payload::Bytes(Sg::new()))),
        Some(from) => {
            let offset = q.offset;
            // A lock may have been taken while the payload was received.
            let then = Box::new(move |data: Result<Sg, NtStatus>| {
                match data.and_then(|data| unlocked(&job.open, offset, length).map(|()| data)) {
                    Ok(data) => job.run(Payload::Bytes(data)),
                    Err(status) => status.into(),
                }
            });
            Ok(Outcome::Pull { from, length, then })
        }
    }
}

/// The shortest payload, in bytes, that updates the prediction of where the next one is received.
const LARGE: u32 = 64 << 10;

/// The payload, in the place where it was received.
enum Payload {
    Bytes(Sg),
    /// Received whole, into a pipe.
    Piped(PipedPayload),
}

fn bytes(piped: PipedPayload) -> Result<Sg, NtStatus> {
    piped.into_bytes().map_err(|e| status::of_vfs(VfsError::Io(e.raw_os_error().unwrap_or_default())))
}

/// The payload inside the message.
fn inline(r: &Request, whole: &Sg, q: &WriteRequest<'_>) -> Result<Sg, NtStatus> {
    if q.length == 0 {
        return Ok(Sg::new());
    }
    let (start, length) = (usize::from(q.data_offset), q.length as usize);
    if start < WriteRequest::HEAD_LEN {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // In a compound the message is a slice of one buffer; alone it may be scattered.
    let sg: Sg = if r.in_compound { [r.message.clone()].into_iter().collect() } else { whole.clone() };
    if start + length > sg_len(&sg) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(sg_slice(&sg, start, length))
}

fn check(open: &Open, q: &WriteRequest<'_>, length: u32) -> Result<(), NtStatus> {
    let Some(file) = open.file() else { return Err(NtStatus::INVALID_DEVICE_REQUEST) };
    if file.node.kind() == Kind::Directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let writable = AccessMask::WRITE_DATA.bits() | AccessMask::APPEND_DATA.bits();
    if open.access & writable == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if q.offset.checked_add(u64::from(length)).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    unlocked(open, q.offset, length)
}

/// Checks that no byte-range lock forbids the write.
fn unlocked(open: &Open, offset: u64, length: u32) -> Result<(), NtStatus> {
    let Some(file) = open.file() else { return Err(NtStatus::INVALID_DEVICE_REQUEST) };
    file.stream.check_io(open.persistent, offset, u64::from(length), true)
}

/// A WRITE whose payload was received.
struct Job {
    server: Arc<Server>,
    open: Arc<Open>,
    c: Ctx,
    offset: u64,
}

impl Job {
    fn run(self, data: Payload) -> Outcome {
        // The open may have been closed while the payload was received.
        let Some(gate_guard) = GateGuard::new(&self.open) else { return NtStatus::FILE_CLOSED.into() };
        let Some(file) = gate_guard.open().file() else { return NtStatus::INVALID_DEVICE_REQUEST.into() };
        let change = file.changes_data(&self.server);
        if matches!(&data, Payload::Bytes(b) if b.is_empty()) {
            return Outcome::Reply(finish(Ok(0)));
        }
        file.note_write(&self.server.env);
        if self.appends() {
            drop(change);
            return Outcome::Pending(Box::pin(async move {
                let data = match data {
                    Payload::Bytes(data) => Ok(data),
                    Payload::Piped(piped) => bytes(piped),
                };
                let reply = match data {
                    Ok(data) => self.append(data).await.unwrap_or_else(Reply::error),
                    Err(status) => Reply::error(status),
                };
                drop(gate_guard);
                reply
            }));
        }
        let written = match data {
            Payload::Bytes(data) => file.node.write(&self.c, self.offset, data),
            Payload::Piped(piped) => file.node.write_piped(&self.c, self.offset, piped),
        };
        drop(change);
        match written {
            Io::Done(result) => Outcome::Reply(finish(result)),
            Io::Pending(future) => Outcome::Pending(Box::pin(async move {
                let reply = finish(future.await);
                gate_guard
                    .open()
                    .file()
                    .into_iter()
                    .for_each(|f| f.file.note_change(self.server.env.moment()));
                drop(gate_guard);
                reply
            })),
        }
    }

    /// Whether the open may only append to its file.
    fn appends(&self) -> bool {
        self.open.access & AccessMask::WRITE_DATA.bits() == 0
    }

    /// MS-SMB2 3.3.5.13: an open without FILE_WRITE_DATA may not overwrite existing data. (With it, an open may also
    /// extend, as on NTFS.) One append at a time, or the second would overwrite the data that the first has appended.
    async fn append(&self, data: Sg) -> Result<Reply, NtStatus> {
        let file = self.open.file().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        let _one = file.file.metadata().await;
        let _change = file.file.begin_change(&self.server.env);
        let size = file.node.stat(&self.c).wait().await.map_err(status::of_vfs)?.size;
        if self.offset < size {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(finish(file.node.write(&self.c, self.offset, data).wait().await))
    }
}

fn finish(result: VfsResult<u32>) -> Reply {
    match result {
        Ok(count) => Reply::ok(&WriteResponse { count, remaining: 0 }),
        Err(e) => Reply::error(status::of_vfs(e)),
    }
}
