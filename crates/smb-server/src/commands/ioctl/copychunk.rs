//! Server-side copy (MS-SMB2 3.3.5.15.6, 3.3.5.15.8).

use std::sync::Arc;

use smb_wire::ioctl::{CopyChunk, CopyChunkRequest, CopyChunkResponse, RESUME_KEY_LEN, ResumeKey};
use smb_wire::msg::IoctlRequest;
use smb_wire::{AccessMask, FileId, NtStatus};
use vfs::{Data, Kind, ReadOptions, VfsError};

use super::{Output, require_any};
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

/// Ranges in one request (MS-SMB2 3.3.3 ServerSideCopyMaxNumberofChunks).
const CHUNKS_MAX: usize = 256;
/// Bytes in one range (ServerSideCopyMaxChunkSize).
const CHUNK_MAX: u32 = 1 << 20;
/// Bytes in one request (ServerSideCopyMaxDataSize).
const TOTAL_MAX: u32 = 16 << 20;
/// STATUS_INVALID_VIEW_SIZE (MS-ERREF 2.3): the source ends before the range does.
const INVALID_VIEW_SIZE: NtStatus = NtStatus(0xC000_001F);

/// The key that names an open as the source of a copy: its FileId, valid in its session only.
pub(super) fn resume_key(open: &Open, output_max: usize) -> Result<Output, NtStatus> {
    let mut key = [0; RESUME_KEY_LEN];
    let id = open.id();
    key[..8].copy_from_slice(&id.persistent.to_le_bytes());
    key[8..16].copy_from_slice(&id.volatile.to_le_bytes());
    let mut bytes = Vec::new();
    ResumeKey { key, context_length: 0 }.encode(&mut bytes);
    // MS-SMB2 3.3.5.15.8: a buffer that is too small gets INVALID_PARAMETER here.
    if bytes.len() > output_max { Err(NtStatus::INVALID_PARAMETER) } else { Ok(Output::of(bytes)) }
}

fn source(r: &Request, key: &[u8; RESUME_KEY_LEN]) -> Option<Arc<Open>> {
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| key[at + i]));
    let rest_is_zero = key[16..].iter().all(|b| *b == 0);
    r.session_open(FileId { persistent: half(0), volatile: half(8) }).filter(|_| rest_is_zero)
}

/// FSCTL_SRV_COPYCHUNK and FSCTL_SRV_COPYCHUNK_WRITE; for the latter the target need not be readable.
pub(super) async fn copy(
    r: &Request,
    open: &Arc<Open>,
    target: &FileOpen,
    q: &IoctlRequest<'_>,
    write_only: bool,
) -> Result<Output, NtStatus> {
    // MS-SMB2 3.3.5.15.6: the output buffer is too small for the response.
    if (q.max_output_response as usize) < CopyChunkResponse::LEN {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let request = CopyChunkRequest::decode(q.input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let from = source(r, &request.source_key).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let source = from.file().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    if source.node.kind() == Kind::Directory || target.node.kind() == Kind::Directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    require_any(&from, AccessMask::READ_DATA | AccessMask::EXECUTE)?;
    require_any(open, AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)?;
    if !write_only {
        require_any(open, AccessMask::READ_DATA)?;
    }
    let chunks: Vec<CopyChunk> = request.chunks.iter().take(CHUNKS_MAX + 1).collect();
    if !within_limits(&chunks) {
        return Ok(answer(NtStatus::INVALID_PARAMETER, CHUNKS_MAX as u32, CHUNK_MAX, TOTAL_MAX));
    }
    let size = source.node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?.size;
    let (mut written, mut total, mut status) = (0, 0, NtStatus::SUCCESS);
    for chunk in &chunks {
        // MS-SMB2 3.3.5.16. A chunk in progress is not cancelled: it could overwrite a later WRITE.
        if r.cancel.is_by_client() {
            return Err(NtStatus::CANCELLED);
        }
        let job = Job { r, from: &from, source, to: open, target };
        if let Err(error) = job.run(chunk, size).await {
            status = error;
            break;
        }
        written += 1;
        total += chunk.length;
    }
    // MS-SMB2 3.3.5.15.6: durable like WRITEs. One flush makes all chunks durable before the request is acknowledged.
    if written > 0 {
        target.flush_if_write_through(&r.ctx()).await.map_err(status::of_vfs)?;
    }
    // MS-SMB2 3.3.5.15.6.2: an error response states how many chunks were written.
    Ok(answer(status, written, 0, total))
}

fn within_limits(chunks: &[CopyChunk]) -> bool {
    let total: u64 = chunks.iter().map(|c| u64::from(c.length)).sum();
    chunks.len() <= CHUNKS_MAX
        && total <= u64::from(TOTAL_MAX)
        && chunks.iter().all(|c| (1..=CHUNK_MAX).contains(&c.length))
}

fn answer(
    status: NtStatus,
    chunks_written: u32,
    chunk_bytes_written: u32,
    total_bytes_written: u32,
) -> Output {
    let mut bytes = Vec::new();
    CopyChunkResponse { chunks_written, chunk_bytes_written, total_bytes_written }.encode(&mut bytes);
    Output { status, bytes }
}

struct Job<'a> {
    r: &'a Request,
    from: &'a Open,
    source: &'a FileOpen,
    to: &'a Open,
    target: &'a FileOpen,
}

impl Job<'_> {
    async fn run(&self, c: &CopyChunk, size: u64) -> Result<(), NtStatus> {
        let length = u64::from(c.length);
        let end = c.source_offset.checked_add(length).ok_or(INVALID_VIEW_SIZE)?;
        if end > size {
            return Err(INVALID_VIEW_SIZE);
        }
        if c.target_offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.source.stream.check_io(self.from.persistent, c.source_offset, length, false)?;
        self.target.stream.check_io(self.to.persistent, c.target_offset, length, true)?;
        // Like a WRITE (MS-SMB2 3.3.5.13), an open without FILE_WRITE_DATA may only write from the end of file on.
        let mut _one = None;
        if self.to.access & AccessMask::WRITE_DATA.bits() == 0 {
            _one = Some(self.target.file.metadata().await);
            let stat = self.target.node.stat(&self.r.ctx()).wait().await.map_err(status::of_vfs)?;
            if c.target_offset < stat.size {
                return Err(NtStatus::ACCESS_DENIED);
            }
        }
        self.target.note_write(&self.r.server.env);
        let change = self.target.changes_data(&self.r.server);
        let copied = self.copy(c).await;
        drop(change);
        if copied.map_err(status::of_vfs)? { Ok(()) } else { Err(INVALID_VIEW_SIZE) }
    }

    /// Copies one chunk. Returns false if the source ended before it.
    async fn copy(&self, c: &CopyChunk) -> Result<bool, VfsError> {
        let ctx = self.r.ctx();
        let (from, to) = (&self.source.node, &self.target.node);
        // Inside one file the ranges may overlap: the whole chunk is read before any of it is written.
        if from.id() != to.id() {
            let copied =
                from.copy_to(&ctx, c.source_offset, to, c.target_offset, c.length.into()).wait().await;
            match copied {
                Ok(n) if n == u64::from(c.length) => return Ok(true),
                Ok(_) | Err(VfsError::Unsupported | VfsError::CrossDevice) => {}
                Err(e) => return Err(e),
            }
        }
        let want = ReadOptions { length: c.length, arena: &self.r.server.arena, file_ok: false };
        let Data::Bufs(data) = from.read(&ctx, c.source_offset, want).wait().await? else {
            return Err(VfsError::Unsupported);
        };
        // The source has become shorter since its size was queried.
        if arena::sg_len(&data) != c.length as usize {
            return Ok(false);
        }
        Ok(to.write(&ctx, c.target_offset, data).wait().await? == c.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-SMB2 3.3.5.15.6: the limits.
    #[test]
    fn limits() {
        let chunk = |length| CopyChunk { source_offset: 0, target_offset: 0, length };
        assert!(within_limits(&[]));
        assert!(within_limits(&[chunk(CHUNK_MAX); 16]));
        assert!(!within_limits(&[chunk(CHUNK_MAX); 17]));
        assert!(!within_limits(&[chunk(CHUNK_MAX + 1)]));
        assert!(!within_limits(&[chunk(0)]));
        assert!(within_limits(&[chunk(1); 256]));
        assert!(!within_limits(&[chunk(1); 257]));
    }
}
