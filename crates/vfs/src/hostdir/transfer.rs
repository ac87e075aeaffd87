//! Vectored reads and writes at an offset, once or to the end.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use arena::{CHUNK_MAX, PipedPayload, Sg, SgMut};
use rustix::io::{self, Errno, ReadWriteFlags};
use smallvec::SmallVec;

use crate::{VfsError, VfsResult};

/// The most parts of one vectored call (IOV_MAX is 1024).
const PARTS: usize = 64;

/// One vectored read of the bytes from `done` to `length` into the buffers; it may read fewer bytes.
pub(super) fn read_once(
    fd: &OwnedFd,
    offset: u64,
    bufs: &mut SgMut,
    done: usize,
    length: usize,
    flags: ReadWriteFlags,
) -> io::Result<usize> {
    let (mut skip, mut left) = (done, length - done);
    let mut parts: SmallVec<[IoSliceMut<'_>; 4]> = SmallVec::new();
    for b in bufs.iter_mut() {
        let n = b.capacity().min(CHUNK_MAX).min(skip + left);
        if skip >= n {
            skip -= n;
            continue;
        }
        parts.push(IoSliceMut::new(&mut b.space()[skip..n]));
        left -= n - skip;
        skip = 0;
        if left == 0 || parts.len() == PARTS {
            break;
        }
    }
    io::preadv2(fd, &mut parts, offset + done as u64, flags)
}

/// The first `filled` bytes, immutable.
pub(super) fn freeze(bufs: SgMut, filled: usize) -> Sg {
    let (mut left, mut out) = (filled, Sg::new());
    for mut b in bufs {
        if left == 0 {
            break;
        }
        let n = left.min(b.capacity());
        b.set_len(n);
        out.push(b.freeze());
        left -= n;
    }
    out
}

/// One vectored write of the bytes of `src` from `done` on.
pub(super) fn write_once(
    fd: &OwnedFd,
    offset: u64,
    src: &Sg,
    done: usize,
    flags: ReadWriteFlags,
) -> io::Result<usize> {
    let mut skip = done;
    let mut parts: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
    for b in src {
        if skip >= b.len() {
            skip -= b.len();
            continue;
        }
        parts.push(IoSlice::new(&b[skip..]));
        skip = 0;
        if parts.len() == PARTS {
            break;
        }
    }
    io::pwritev2(fd, &parts, offset + done as u64, flags)
}

/// Writes all bytes of `src` from `done` on.
pub(super) fn write_all(
    fd: &OwnedFd,
    offset: u64,
    src: &Sg,
    mut done: usize,
    flags: ReadWriteFlags,
) -> VfsResult<()> {
    let length = arena::sg_len(src);
    while done < length {
        match write_once(fd, offset, src, done, flags) {
            Ok(0) => return Err(VfsError::Io(Errno::IO.raw_os_error())),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Writes the content of a pipe. If the file system does not support splicing, which is recorded in `splices`, writes
/// from memory.
pub(super) fn store_all(
    fd: &OwnedFd,
    offset: u64,
    mut src: PipedPayload,
    splices: &AtomicBool,
) -> VfsResult<()> {
    let (length, mut done) = (src.len(), 0);
    while done < length {
        match src.store(fd, offset + done as u64) {
            Ok(0) => return Err(VfsError::Io(Errno::IO.raw_os_error())),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) => {
                splices.store(false, Ordering::Relaxed);
                let bytes = src.into_bytes().map_err(|e| failed(&e))?;
                return write_all(fd, offset + done as u64, &bytes, 0, ReadWriteFlags::empty());
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// The error of a pipe that cannot be read.
pub(super) fn failed(e: &std::io::Error) -> VfsError {
    VfsError::Io(e.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
}

#[cfg(test)]
mod tests;
