//! Moves the bytes of one file, many requests at a time, and keeps the checkpoints of a resumable copy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use arena::{Arena, Class, Sg};
use futures_util::stream::{self, StreamExt};

use super::checkpoint::Summer;
use super::progress::Progress;
use crate::failure::Failure;
use crate::remote::RemoteFile;

/// Bytes of one request.
pub const PIECE: u64 = 1 << 20;
/// Requests in flight: enough for a fast network, few enough for a small budget.
pub const DEPTH: usize = 16;

/// Files of a tree at a time: small ones are mostly waiting.
pub const FILES: usize = 8;

/// What a resumable copy to this machine keeps: its sums, and how they are written down.
pub struct Resumable<'a> {
    /// The sums.
    pub summer: Summer,
    /// Writes them down.
    pub keep: &'a dyn Fn(&Summer) -> io::Result<()>,
}

/// Copies a file of a server from `from` to its end into `local`. The sums are kept after each block, when what
/// came before is durable.
///
/// # Errors
/// Either side's.
pub async fn down(
    file: &RemoteFile,
    local: &File,
    path: &Path,
    from: u64,
    progress: &Progress,
    mut resumable: Option<Resumable<'_>>,
) -> Result<(), Failure> {
    let failed = |source| Failure::Local { path: path.to_owned(), source };
    let mut at = from;
    let mut pieces = pieces(file, from, file.size());
    while let Some(piece) = pieces.next().await {
        for buf in piece? {
            local.write_all_at(&buf, at).map_err(failed)?;
            at += buf.len() as u64;
            progress.moved(buf.len() as u64);
            if let Some(r) = &mut resumable
                && r.summer.add(&buf)
            {
                local.sync_data().map_err(failed)?;
                (r.keep)(&r.summer).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Gives the bytes of a file of a server to `take`, in order.
///
/// # Errors
/// The server's, or what `take` says.
pub async fn read_all(
    file: &RemoteFile,
    range: std::ops::Range<u64>,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut pieces = pieces(file, range.start, range.end);
    while let Some(piece) = pieces.next().await {
        for buf in piece? {
            take(&buf)?;
        }
    }
    Ok(())
}

/// Copies `local` from `from` to `size` into a file of a server. When a block is complete it is flushed and
/// `checkpoint` awaited with the sums so far.
///
/// # Errors
/// Either side's.
pub async fn up(
    local: &File,
    path: &Path,
    file: &RemoteFile,
    range: std::ops::Range<u64>,
    arena: &Arena,
    progress: &Progress,
    mut resumable: Option<(&mut Summer, &RemoteFile)>,
) -> Result<(), Failure> {
    let starts = (range.start..range.end).step_by(PIECE as usize);
    let mut pieces = stream::iter(starts)
        .map(|at| {
            let length = PIECE.min(range.end - at) as usize;
            async move {
                let sg = fill(local, at, length, arena)
                    .await
                    .map_err(|source| Failure::Local { path: path.to_owned(), source })?;
                file.write(at, sg.clone()).await?;
                Ok::<Sg, Failure>(sg)
            }
        })
        .buffered(DEPTH);
    while let Some(piece) = pieces.next().await {
        for buf in piece? {
            progress.moved(buf.len() as u64);
            if let Some((summer, state)) = &mut resumable
                && summer.add(&buf)
            {
                // Replies come in any order: what is flushed here holds at least the blocks that are complete.
                file.flush().await?;
                state.rewrite(&summer.checkpoint().to_text()).await?;
            }
        }
    }
    Ok(())
}

/// A file's bytes in pieces, several asked for at a time, in order.
fn pieces(
    file: &RemoteFile,
    from: u64,
    to: u64,
) -> impl stream::Stream<Item = Result<Sg, Failure>> + Unpin + '_ {
    let starts = (from..to).step_by(PIECE as usize);
    let read = move |at| async move { file.read(at, PIECE.min(to - at) as u32).await };
    stream::iter(starts).map(read).buffered(DEPTH).boxed_local()
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
