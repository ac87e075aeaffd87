//! Creates local files (`-c`), writing all of them so that reads do not hit holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use super::verify::Ledger;
use crate::profile::Content;

/// Bytes of one write.
pub const PIECE: usize = 1 << 20;

/// The contents of a new file.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Fill with zeros instead of 0, 1 … 255, 0 …
    pub zero: bool,
    /// Stamp sectors with this seed (`--verify`).
    pub stamp: Option<u32>,
}

impl Fill {
    /// The contents of a file for writes with `content`.
    pub fn new(content: &Content, stamp: Option<u32>) -> Fill {
        Fill { zero: *content == Content::Zero, stamp }
    }

    /// Fills `piece`, which is at `offset` in the file. Data after the last whole sector is not stamped.
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

/// Creates `path` and its directories with `size` bytes, replacing an existing file. Without `fill` nothing
/// is written. `done` receives the number of bytes written so far and returns whether to continue. Block
/// devices are not changed. Returns whether the file was written.
///
/// # Errors
/// The system's error; [`io::ErrorKind::Interrupted`] if `done` returned false.
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
