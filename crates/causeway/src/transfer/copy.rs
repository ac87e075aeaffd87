//! Moves the bytes of one file, many requests at a time, and keeps the checkpoints of a resumable copy.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use arena::{Arena, Class, Sg};
use futures_util::stream::{self, LocalBoxStream, Stream, StreamExt, TryStreamExt};

use super::checkpoint::Summer;
use super::holes;
use super::progress::Progress;
use crate::failure::Failure;
use crate::remote::RemoteFile;

/// Bytes of one request.
pub const PIECE: u64 = 1 << 20;
/// Requests in flight: enough for a fast network, few enough for a small budget.
pub const DEPTH: usize = 16;

/// Files of a tree that are copied concurrently: small files mostly wait for responses.
pub const FILES: usize = 8;

/// The state of a resumable copy to this machine: its checksums, and the function that stores them.
pub struct Resumable<'a> {
    /// The checksums.
    pub summer: Summer,
    /// Stores the checksums.
    pub keep: &'a dyn Fn(&Summer) -> io::Result<()>,
}

/// Copies a file of a server from `from` to its end into `local`, which ends at `from`. Holes are preserved. The
/// checksums are stored after each block, when the data before them is durable.
///
/// # Errors
/// Errors of the server or of the local file.
pub async fn down(
    file: &RemoteFile,
    local: &File,
    path: &Path,
    from: u64,
    progress: &Progress,
    mut resumable: Option<Resumable<'_>>,
) -> Result<(), Failure> {
    let failed = |source| Failure::Local { path: path.to_owned(), source };
    let mut keep = |take: &dyn Fn(&mut Summer) -> bool| {
        let Some(r) = &mut resumable else { return Ok(()) };
        if !take(&mut r.summer) {
            return Ok(());
        }
        local.sync_data().and_then(|()| (r.keep)(&r.summer)).map_err(failed)
    };
    let mut at = from;
    let mut pieces = pieces(file, file.data(from..file.size()));
    while let Some(piece) = pieces.next().await {
        let (start, bytes) = piece?;
        if start > at {
            progress.hole(start - at);
            keep(&|s| s.add_zeros(start - at))?;
            at = start;
        }
        for buf in bytes {
            local.write_all_at(&buf, at).map_err(failed)?;
            at += buf.len() as u64;
            progress.moved(buf.len() as u64);
            keep(&|s| s.add(&buf))?;
        }
    }
    if at < file.size() {
        progress.hole(file.size() - at);
        local.set_len(file.size()).map_err(failed)?;
    }
    Ok(())
}

/// Passes the bytes of a file of a server to `take`, in order.
///
/// # Errors
/// The server's, or the error of `take`.
pub async fn read_all(
    file: &RemoteFile,
    range: Range<u64>,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut pieces = pieces(file, stream::iter([Ok(range)]));
    while let Some(piece) = pieces.next().await {
        for buf in piece?.1 {
            take(&buf)?;
        }
    }
    Ok(())
}

/// Copies a range of `local`, to its end, into a file of a server that ends where the range begins. Holes are preserved
/// if the server supports them. When a block is complete it is flushed, and the checksums so far are written to the
/// second file.
///
/// # Errors
/// Errors of the server or of the local file.
pub async fn up(
    local: &File,
    path: &Path,
    file: &RemoteFile,
    range: Range<u64>,
    arena: &Arena,
    progress: &Progress,
    mut resumable: Option<(&mut Summer, &RemoteFile)>,
) -> Result<(), Failure> {
    let failed = |source| Failure::Local { path: path.to_owned(), source };
    let mut parts = holes::data(local, range.clone()).peekable();
    let dense = range.is_empty() || matches!(parts.peek(), Some(Ok(first)) if *first == range);
    let parts = if dense || !file.set_sparse().await? {
        stream::iter([Ok(range.clone())]).left_stream()
    } else {
        stream::iter(parts).map_err(failed).right_stream()
    };
    let mut pieces = parts
        .map_ok(|part| stream::iter(cut(part)).map(Ok))
        .try_flatten()
        .map(|piece: Result<Range<u64>, Failure>| async move {
            let Range { start, end } = piece?;
            let bytes = fill(local, start, (end - start) as usize, arena).await.map_err(failed)?;
            file.write(start, bytes.clone()).await?;
            Ok::<_, Failure>((start, bytes))
        })
        .buffered(DEPTH)
        .boxed_local();
    let mut at = range.start;
    while let Some(piece) = pieces.next().await {
        let (start, bytes) = piece?;
        let mut completed = false;
        if start > at {
            progress.hole(start - at);
            completed |= resumable.as_mut().is_some_and(|(summer, _)| summer.add_zeros(start - at));
        }
        at = start;
        for buf in bytes {
            at += buf.len() as u64;
            progress.moved(buf.len() as u64);
            completed |= resumable.as_mut().is_some_and(|(summer, _)| summer.add(&buf));
        }
        if completed && let Some((summer, state)) = &resumable {
            // Replies arrive in any order: the flushed data includes at least the complete blocks.
            file.flush().await?;
            state.rewrite(&summer.checkpoint().to_text()).await?;
        }
    }
    if at < range.end {
        progress.hole(range.end - at);
        file.set_length(range.end).await?;
    }
    Ok(())
}

/// Reads these parts of a file of a server in pieces, with their offsets, in order. Several pieces are requested
/// concurrently.
fn pieces<'a>(
    file: &'a RemoteFile,
    parts: impl Stream<Item = Result<Range<u64>, Failure>> + 'a,
) -> LocalBoxStream<'a, Result<(u64, Sg), Failure>> {
    parts
        .map_ok(|part| stream::iter(cut(part)).map(Ok))
        .try_flatten()
        .map(move |piece: Result<Range<u64>, Failure>| async move {
            let Range { start, end } = piece?;
            Ok((start, file.read(start, (end - start) as u32).await?))
        })
        .buffered(DEPTH)
        .boxed_local()
}

/// A part in pieces of one request each.
fn cut(part: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = part.end;
    part.step_by(PIECE as usize).map(move |at| at..end.min(at + PIECE))
}

/// Reads a piece of a local file.
///
/// # Errors
/// The system's; `UnexpectedEof` when the file became shorter.
async fn fill(local: &File, at: u64, length: usize, arena: &Arena) -> io::Result<Sg> {
    let mut left = length;
    let mut at = at;
    let mut out = Sg::new();
    for mut buf in arena.alloc_sg(length, Class::Payload).await {
        let n = buf.capacity().min(left);
        local.read_exact_at(&mut buf.space()[..n], at)?;
        buf.set_len(n);
        out.push(buf.freeze());
        at += n as u64;
        left -= n;
    }
    Ok(out)
}
