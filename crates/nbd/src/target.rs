//! The export of a connection: validates requests and executes them on the disk.

use std::ops::Range;
use std::sync::Arc;

use arena::{Arena, Class, Sg, SgMut};
use disk::{DiskError, sized, write_zeros};
use env::{Ctx, Env, Io, IoFlags};

use crate::handshake::Negotiated;
use crate::message::{
    Command, ErrorNumber, FLAG_DF, FLAG_FUA, FLAG_NO_HOLE, FLAG_REQ_ONE, HOLE_AND_ZERO, Request,
};
use crate::server::{Export, Limits};

/// The unit of memory accounting.
pub(crate) const PAGE: usize = 4 << 10;
/// Maximum extents of one BLOCK_STATUS reply, which fits a page; the client asks again for the rest.
const EXTENTS_MAX: usize = PAGE / size_of::<(u32, u32)>();

/// The shared state of requests.
pub(crate) struct Target {
    pub(crate) export: Export,
    /// Its size when the client connected, in bytes.
    pub(crate) size: u64,
    pub(crate) payload_max: u32,
    pub(crate) agreed: Negotiated,
    /// Maximum bytes that its outstanding requests may hold.
    pub(crate) share: usize,
    pub(crate) limits: Limits,
    pub(crate) arena: Arena,
    pub(crate) env: Env,
}

/// The result of a request.
pub(crate) enum Answer {
    Done,
    /// Data of a READ.
    Data(SgMut),
    /// A READ with structured replies of a hole: all zeros, none of which is sent.
    Hole,
    /// Lengths and flags for BLOCK_STATUS.
    Extents(Vec<(u32, u32)>),
}

impl Target {
    /// Starts a request; `payload` is that of a WRITE.
    pub(crate) fn perform(
        self: &Arc<Target>,
        request: Request,
        payload: Sg,
    ) -> Io<Result<Answer, ErrorNumber>> {
        let target = Arc::clone(self);
        if let Err(refused) = self.check(&request) {
            return Io::Done(Err(refused));
        }
        let disk = Arc::clone(&self.export.disk);
        let c = Ctx {
            flags: IoFlags { write_through: request.flags & FLAG_FUA != 0, ..IoFlags::default() },
            ..Ctx::default()
        };
        let Request { offset, length, .. } = request;
        let told = move |r: Result<(), DiskError>| {
            r.map(|()| Answer::Done).map_err(|e| number(&target.export.name, &e))
        };
        match request.command {
            Command::WRITE => disk.write(&c, offset, payload).map(told),
            Command::FLUSH => disk.flush(&c).map(told),
            Command::TRIM => disk.discard(&c, offset, u64::from(length)).map(told),
            Command::READ => {
                let target = Arc::clone(self);
                Io::pending(async move {
                    if target.agreed.structured && target.is_hole(&c, offset, length).await {
                        return Ok(Answer::Hole);
                    }
                    let buffers =
                        sized(target.arena.alloc_sg(length as usize, Class::Payload).await, length as usize);
                    let (read, buffers) = disk.read(&c, offset, buffers).wait().await;
                    read.map(|()| Answer::Data(buffers)).map_err(|e| number(&target.export.name, &e))
                })
            }
            Command::BLOCK_STATUS => {
                let target = Arc::clone(self);
                let most = if request.flags & FLAG_REQ_ONE == 0 { EXTENTS_MAX } else { 1 };
                disk.allocated(&c, offset, u64::from(length)).map(move |found| {
                    let found = found.map_err(|e| number(&target.export.name, &e))?;
                    Ok(Answer::Extents(extents(offset..offset + u64::from(length), &found, most)))
                })
            }
            _ => {
                let target = Arc::clone(self);
                Io::pending(async move { told(target.write_zeros(&c, &request).await) })
            }
        }
    }

    /// Pages of memory that a request needs for its payload or reply.
    pub(crate) fn pages(&self, request: &Request) -> usize {
        match request.command {
            Command::WRITE | Command::READ if request.length <= self.payload_max => {
                (request.length as usize).div_ceil(PAGE)
            }
            Command::BLOCK_STATUS => 1,
            _ => 0,
        }
    }

    /// Whether no block of a range is allocated. Returns false on an error: the READ that follows reports it.
    async fn is_hole(&self, c: &Ctx, offset: u64, length: u32) -> bool {
        let found = self.export.disk.allocated(c, offset, u64::from(length)).wait().await;
        found.is_ok_and(|allocated| allocated.is_empty())
    }

    /// Validates a request without accessing the disk.
    fn check(&self, request: &Request) -> Result<(), ErrorNumber> {
        let geometry = self.export.disk.info().geometry;
        let (offset, length) = (request.offset, u64::from(request.length));
        let flags = match request.command {
            Command::WRITE_ZEROES => FLAG_FUA | FLAG_NO_HOLE,
            Command::READ if self.agreed.structured => FLAG_FUA | FLAG_DF,
            Command::WRITE | Command::TRIM | Command::FLUSH | Command::READ => FLAG_FUA,
            Command::BLOCK_STATUS if self.agreed.status => FLAG_REQ_ONE,
            _ => return Err(ErrorNumber::EINVAL),
        };
        if request.flags & !flags != 0 {
            return Err(ErrorNumber::EINVAL);
        }
        let writes = matches!(request.command, Command::WRITE | Command::TRIM | Command::WRITE_ZEROES);
        if writes && self.export.read_only {
            return Err(ErrorNumber::EPERM);
        }
        if request.command == Command::FLUSH {
            return if offset == 0 && length == 0 { Ok(()) } else { Err(ErrorNumber::EINVAL) };
        }
        let block = u64::from(geometry.logical_block.max(1));
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) || length == 0 {
            return Err(ErrorNumber::EINVAL);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            // NBD specifies a separate errno for writes past the end.
            return Err(if writes { ErrorNumber::ENOSPC } else { ErrorNumber::EINVAL });
        }
        if request.command == Command::READ && request.length > self.payload_max {
            return Err(ErrorNumber::EINVAL);
        }
        Ok(())
    }

    async fn write_zeros(&self, c: &Ctx, request: &Request) -> Result<(), DiskError> {
        let (offset, length) = (request.offset, u64::from(request.length));
        let disk = &self.export.disk;
        let discards = self.export.discard_zeros && request.flags & FLAG_NO_HOLE == 0;
        write_zeros(&**disk, c, offset, length, discards).await
    }
}

/// NBD, NBD_CMD_BLOCK_STATUS: consecutive extents from the beginning of the range, allocated ranges and holes
/// alternating; at least one, at most `most`.
fn extents(range: Range<u64>, allocated: &[Range<u64>], most: usize) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    let mut from = range.start;
    for part in allocated.iter().chain([&(range.end..range.end)]) {
        for (end, flags) in [(part.start, HOLE_AND_ZERO), (part.end, 0)] {
            let end = end.min(range.end);
            if end > from && out.len() < most {
                out.push(((end - from) as u32, flags));
            }
            from = from.max(end);
        }
    }
    out
}

/// The NBD error number for a disk error, which is logged in full.
fn number(export: &str, e: &DiskError) -> ErrorNumber {
    tracing::warn!("NBD: {export}: {e}");
    match e {
        DiskError::Unaligned { .. } | DiskError::TooLong { .. } | DiskError::OutOfRange { .. } => {
            ErrorNumber::EINVAL
        }
        DiskError::ReadOnly { .. } => ErrorNumber::EPERM,
        DiskError::Full { .. } => ErrorNumber::ENOSPC,
        DiskError::Fenced { .. } => ErrorNumber::ESHUTDOWN,
        _ => ErrorNumber::EIO,
    }
}
