//! Creating local files (`-c`): written from end to end, so that reads find blocks and not holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use super::verify::Ledger;
use crate::profile::Content;

/// Bytes of a write.
pub const PIECE: usize = 1 << 20;

/// The contents of a new file.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Zeros, rather than 0, 1 … 255, 0 …
    pub zero: bool,
    /// Stamps of this seed (`--verify`).
    pub stamp: Option<u32>,
}

impl Fill {
    /// The contents of a file for writes with `content`.
    pub fn new(content: &Content, stamp: Option<u32>) -> Fill {
        Fill { zero: *content == Content::Zero, stamp }
    }

    /// Fills `piece`, which belongs at `offset`. Data behind the last whole sector is not stamped.
    pub fn fill(self, offset: u64, piece: &mut [u8]) {
        if self.zero {
            piece.fill(0);
        } else {
            for (byte, n) in piece.iter_mut().zip((0..=255u8).cycle()) {
                *byte = n;
            }
        }
        if let Some(seed) = self.stamp {
            Ledger::stamp_new(seed, offset, piece);
        }
    }
}

/// Creates `path` with `size` bytes, replacing an existing file, and its directories; without a `fill` no
/// byte is written. `done` receives the number of bytes written and returns whether to continue. Block
/// devices are not changed. Returns whether the file was written.
///
/// # Errors
/// The system's; [`io::ErrorKind::Interrupted`] if `done` said to stop.
pub fn create(
    path: &Path,
    size: u64,
    fill: Option<Fill>,
    mut done: impl FnMut(u64) -> bool,
) -> io::Result<bool> {
    if std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device()) {
        return Ok(false);
    }
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory)?;
    }
    let file = File::create(path)?;
    let Some(fill) = fill else { return file.set_len(size).map(|()| false) };
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let n = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
        fill.fill(at, &mut piece[..n]);
        file.write_all_at(&piece[..n], at)?;
        at += n as u64;
        if !done(at) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    file.sync_all()?;
    Ok(true)
}
