//! The allocation of a file: reserving space, punching holes, finding data, copying by sharing blocks.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{self, Errno};

use super::data::OFFSET_MAX;
use super::node::{CLUSTER, Open, allocation, statx};
use crate::{Kind, VfsError, VfsResult};

impl Open {
    pub(super) fn set_allocation(&self, len: u64) -> VfsResult<()> {
        if len > OFFSET_MAX {
            return Err(VfsError::TooLarge);
        }
        let (stat, reserved) = (statx(&*self.fd)?, self.shared.reserved.load(Ordering::Relaxed));
        if len > allocation(&stat, reserved) {
            match rustix::fs::fallocate(&*self.fd, FallocateFlags::KEEP_SIZE, 0, len) {
                // It was a hint; a later write reports if there is no space.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(e) => return Err(e.into()),
                Ok(()) if len > stat.stx_size => {
                    let end = len.checked_next_multiple_of(CLUSTER).unwrap_or(u64::MAX);
                    self.shared.reserved.fetch_max(end, Ordering::Relaxed);
                }
                Ok(()) => {}
            }
        } else if len < stat.stx_size {
            self.shared.slow_close.store(true, Ordering::Relaxed);
            rustix::fs::ftruncate(&*self.fd, len)?;
            self.shared.reserved.store(0, Ordering::Relaxed); // the system has freed it
        }
        Ok(())
    }

    pub(super) fn zero(&self, range: Range<u64>) -> VfsResult<()> {
        let size = statx(&*self.fd)?.stx_size;
        let (start, end) = (range.start.min(size), range.end.min(size));
        if start >= end {
            return Ok(());
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&*self.fd, punch, start, end - start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            done => return Ok(done?),
        }
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = start;
        while at < end {
            let n = ZEROS.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            match io::pwrite(&*self.fd, &ZEROS[..n], at) {
                Ok(n) => at += n as u64,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    pub(super) fn allocated(&self, range: Range<u64>, limit: usize) -> VfsResult<Vec<Range<u64>>> {
        self.must_be(Kind::File)?;
        let end = range.end.min(statx(&*self.fd)?.stx_size);
        let (mut at, mut found) = (range.start, Vec::new());
        while at < end && found.len() < limit {
            let start = match rustix::fs::seek(&*self.fd, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break, // only a hole up to the end
                Err(e) => return Err(e.into()),
            };
            if start >= end {
                break;
            }
            let stop = match rustix::fs::seek(&*self.fd, SeekFrom::Hole(start)) {
                Ok(stop) => stop.min(end),
                Err(Errno::NXIO) => break, // truncated meanwhile
                Err(e) => return Err(e.into()),
            };
            if stop <= start {
                break;
            }
            found.push(start..stop);
            at = stop;
        }
        Ok(found)
    }

    pub(super) fn copy_to(&self, from: u64, target: &Open, to: u64, length: u64) -> VfsResult<u64> {
        target.must_be(Kind::File)?;
        let size = statx(&*self.fd)?.stx_size;
        let length = length.min(size.saturating_sub(from));
        if to > OFFSET_MAX - length {
            return Err(VfsError::TooLarge);
        }
        let mut done = 0;
        while done < length {
            let (mut source, mut sink) = (from + done, to + done);
            let part = usize::try_from(length - done).unwrap_or(usize::MAX).min(1 << 30);
            match rustix::fs::copy_file_range(
                &*self.fd,
                Some(&mut source),
                &*target.fd,
                Some(&mut sink),
                part,
            ) {
                Ok(0) => break,
                Ok(n) => done += n as u64,
                Err(Errno::INTR) => {}
                // Overlapping, between file systems, or not supported: the caller reads and writes.
                Err(Errno::INVAL | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) if done == 0 => {
                    return Err(VfsError::Unsupported);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }
}
