//! Access to the data of a stream in its record, and its move to a sidecar.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use arena::{Sg, sg_len};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::record::{self, Content, Record};
use super::{DataLocation, INLINE_MAX, Stream, store};
use crate::hostdir::node::{HostNode, Open};
use crate::{VfsError, VfsResult};

/// The result of a call on a stream: complete, or not started, because the data is in the sidecar.
pub(super) enum InlineResult<T> {
    Done(T),
    Sidecar(HostNode),
}

impl Stream {
    /// The bytes of `range`.
    pub(super) fn read(&self, offset: u64, length: usize) -> VfsResult<InlineResult<Vec<u8>>> {
        self.inline(|data| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
            data[start..data.len().min(start.saturating_add(length))].to_vec()
        })
    }

    /// The parts of `range` that hold data.
    pub(super) fn allocated(
        &self,
        range: &Range<u64>,
        limit: usize,
    ) -> VfsResult<InlineResult<Vec<Range<u64>>>> {
        self.inline(|data| {
            let there = range.start..range.end.min(data.len() as u64);
            if there.start < there.end && limit > 0 { vec![there] } else { Vec::new() }
        })
    }

    pub(super) fn write(&self, offset: u64, src: &Sg) -> VfsResult<InlineResult<u32>> {
        let length = sg_len(src);
        let end = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(length);
        self.change(end, |data| {
            if length > 0 {
                data.resize(data.len().max(end), 0);
                let mut at = end - length;
                for part in src {
                    data[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
            }
            length as u32
        })
    }

    pub(super) fn set_len(&self, len: u64) -> VfsResult<InlineResult<()>> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.change(len, |data| data.resize(len, 0))
    }

    /// Has no effect on data in the record, except that a smaller value truncates the data.
    pub(super) fn set_allocation(&self, len: u64) -> VfsResult<InlineResult<()>> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.change(0, |data| data.truncate(len))
    }

    pub(super) fn zero(&self, range: &Range<u64>) -> VfsResult<InlineResult<()>> {
        self.change(0, |data| {
            let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(data.len());
            let there = bound(range.start)..bound(range.end);
            if there.start < there.end {
                data[there].fill(0);
            }
        })
    }

    /// Reads data in the record.
    fn inline<T>(&self, look: impl FnOnce(&[u8]) -> T) -> VfsResult<InlineResult<T>> {
        match self.location()? {
            DataLocation::Inline(Record { content: Content::Inline(data), .. }, _lock) => {
                Ok(InlineResult::Done(look(&data)))
            }
            DataLocation::Inline(..) => Err(VfsError::Stale),
            DataLocation::Sidecar(node) => Ok(InlineResult::Sidecar(node)),
        }
    }

    /// Changes data in the record, which may grow to `end` bytes; moves it to a sidecar if that is too large.
    fn change<T>(&self, end: usize, change: impl FnOnce(&mut Vec<u8>) -> T) -> VfsResult<InlineResult<T>> {
        self.file.shared.tree.may_change()?;
        self.wrote.store(true, Ordering::Relaxed);
        let (before, lock) = match self.location()? {
            DataLocation::Inline(record, lock) => (record, lock),
            DataLocation::Sidecar(node) => return Ok(InlineResult::Sidecar(node)),
        };
        let mut after = before.clone();
        let Content::Inline(data) = &mut after.content else { return Err(VfsError::Stale) };
        if end <= INLINE_MAX {
            let done = change(data);
            if after == before {
                return Ok(InlineResult::Done(done));
            }
            match record::set(&self.file, &after) {
                Err(VfsError::AttributeTooLarge) => {}
                stored => {
                    stored?;
                    drop(lock);
                    touch(&self.file)?;
                    return Ok(InlineResult::Done(done));
                }
            }
        }
        let promoted = match store::promote(&self.file, &before) {
            // The name of a sidecar takes more space than a few bytes.
            Err(VfsError::AttributeTooLarge) if store::promote_all(&self.file)? => {
                let record = record::read(&self.file, self.id)?.ok_or(VfsError::Stale)?;
                store::promote(&self.file, &record)?
            }
            promoted => promoted?,
        };
        Ok(InlineResult::Sidecar(self.moved(promoted)))
    }
}

/// Sets the file's last write time to now (MS-FSA 2.1.4.17): the system does not do so for data of a stream.
pub(super) fn touch(file: &Open) -> VfsResult<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
    };
    Ok(rustix::fs::futimens(&*file.fd, &times)?)
}

/// The unnamed stream, opened for writing.
pub(super) fn writable(file: &Open) -> VfsResult<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/self/fd/{}", file.fd.as_raw_fd()), flags, Mode::empty())?)
}

/// Writes `bytes` at the beginning of `to`.
pub(super) fn fill(to: &OwnedFd, bytes: &[u8]) -> VfsResult<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(to, &bytes[done..], done as u64) {
            Ok(0) => return Err(VfsError::Io(Errno::IO.raw_os_error())),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Copies all of `from` to the beginning of `to`, on one file system.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd) -> VfsResult<()> {
    let mut at = 0;
    loop {
        let (mut source, mut sink) = (at, at);
        match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut sink), 1 << 30) {
            Ok(0) => return Ok(()),
            Ok(n) => at += n as u64,
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) if at == 0 => break,
            Err(e) => return Err(e.into()),
        }
    }
    let mut room = vec![0; 256 << 10];
    loop {
        match rustix::io::pread(from, &mut room[..], at) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                let mut done = 0;
                while done < n {
                    done += rustix::io::pwrite(to, &room[done..n], at + done as u64)?;
                }
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
