//! Unbuffered I/O, which bypasses the page cache: for opens with FILE_NO_INTERMEDIATE_BUFFERING, and single READs and
//! WRITEs with the UNBUFFERED flag (MS-SMB2 2.2.19, 2.2.21).
//!
//! It uses a second descriptor of the same file, opened with `O_DIRECT` at the first use. The pool opens it, because
//! that waits for the disk. The kernel keeps it coherent with the cache: dirty pages are written before a read, and
//! pages in the range of a write are dropped. Bypassing the cache does not make data durable: see write-through.
//!
//! I/O that is not possible in this way is buffered: offsets and lengths that are no multiples of the file's sector,
//! file systems in memory, file systems without `O_DIRECT`. The latter two are logged once. Payload at unaligned
//! addresses, such as that received by TCP, is copied, 1 MiB at a time.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{CHUNK_MIN, Class, IoBuf, Sg, sg_len};
use env::Io;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::device::Device;
use super::job::Job;
use super::node::{HostNode, Open};
use crate::{Data, ReadOptions, VfsError, VfsResult};

/// A file's second descriptor.
pub(super) struct DirectFd {
    pub(super) fd: OwnedFd,
    /// The required alignment of memory addresses, in bytes.
    pub(super) memory: usize,
    /// The required alignment of offsets and lengths, in bytes.
    pub(super) sector: usize,
}

/// The smallest possible sector, in bytes: ranges that are no multiples of it are not tried.
const SECTOR_MIN: usize = 512;
/// Both alignments if the kernel (before 6.1) or the file system does not report them.
const ASSUMED: usize = 4096;

impl HostNode {
    /// An unbuffered read; `None` if that is not possible.
    pub(super) fn read_unbuffered(&self, offset: u64, want: &ReadOptions<'_>) -> Option<Io<VfsResult<Data>>> {
        let (open, length) = (&self.open, want.length as usize);
        if !open.shared.device.can_bypass_cache() || !is_aligned(offset, length, SECTOR_MIN) {
            return None;
        }
        if length > want.arena.usage().budget / 2 {
            return Some(Io::Done(Err(VfsError::NoMemory)));
        }
        let open = Arc::clone(open);
        if !open.shared.device.local {
            let arena = want.arena.clone();
            return Some(Io::pending(async move {
                let (pool, size) = (&open.shared.tree.pool, Arc::clone(&open));
                let length = pool.run(move || size.read_sectors(offset, length)).await?;
                let bufs = arena.alloc_sg(length, Class::Payload).await;
                Job::read(open, offset, bufs, 0, length).bypassing_cache().start(Data::Bufs).wait().await
            }));
        }
        let length = match open.read_sectors(offset, length) {
            Ok(0) => return Some(Io::Done(Ok(Data::Bufs(Sg::new())))),
            Ok(length) => length,
            Err(e) => return Some(Io::Done(Err(e))),
        };
        if let Some(bufs) = want.arena.try_alloc_sg(length, Class::Payload) {
            return Some(Job::read(open, offset, bufs, 0, length).bypassing_cache().start(Data::Bufs));
        }
        let arena = want.arena.clone();
        Some(Io::pending(async move {
            let bufs = arena.alloc_sg(length, Class::Payload).await;
            Job::read(open, offset, bufs, 0, length).bypassing_cache().start(Data::Bufs).wait().await
        }))
    }

    /// An unbuffered write of at most `u32::MAX` bytes; `None` if that is not possible. The caller has checked that the
    /// write is allowed.
    pub(super) fn write_unbuffered(
        &self,
        offset: u64,
        src: &Sg,
        through: bool,
    ) -> Option<Io<VfsResult<u32>>> {
        let (open, length) = (&self.open, sg_len(src));
        if !open.shared.device.can_bypass_cache() || !is_aligned(offset, length, SECTOR_MIN) {
            return None;
        }
        // It bypasses the file's queue, as a disk does several writes at a time. For buffered writes see
        // `write_exclusion`.
        let write = Job::write(Arc::clone(open), offset, src.clone(), through).bypassing_cache();
        Some(write.start(move |_| length as u32))
    }
}

impl Open {
    /// How many bytes to allocate: whole sectors, which may reach beyond the end of the file.
    fn read_sectors(&self, offset: u64, length: usize) -> VfsResult<usize> {
        let there = self.read_length(offset, length)?;
        Ok(length.min(there.next_multiple_of(ASSUMED)))
    }

    /// The second descriptor, if there can be one. The first call waits for the disk.
    pub(super) fn direct_fd(&self) -> Option<&DirectFd> {
        self.direct.get_or_init(|| DirectFd::of(&self.fd, &self.shared.device)).as_ref()
    }
}

impl DirectFd {
    fn of(fd: &OwnedFd, device: &Device) -> Option<DirectFd> {
        let reported = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let known = StatxFlags::from_bits_retain(reported.stx_mask).contains(StatxFlags::DIOALIGN);
        let (memory, sector) =
            match (reported.stx_dio_mem_align as usize, reported.stx_dio_offset_align as usize) {
                _ if !known => (ASSUMED, ASSUMED),
                // Not supported for this file: encrypted, compressed, journalled data.
                (_, 0) => return None,
                (memory, sector) => (memory.max(1), sector),
            };
        if memory > CHUNK_MIN || !memory.is_power_of_two() || !sector.is_power_of_two() {
            return None;
        }
        let access = rustix::fs::fcntl_getfl(fd).ok()? & OFlags::RWMODE;
        let flags = access | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()) {
            Ok(fd) => {
                // NONBLOCK was needed for the open only: on file systems without non-blocking I/O it would make
                // io_uring block.
                rustix::fs::fcntl_setfl(&fd, access | OFlags::DIRECT).ok()?;
                Some(DirectFd { fd, memory, sector })
            }
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                device.direct.store(false, Ordering::Relaxed);
                device.warn_buffered("the file system does not support O_DIRECT");
                None
            }
            Err(error) => {
                tracing::debug!("a file cannot be opened for unbuffered I/O: {error}");
                None
            }
        }
    }

    /// Whether this range is aligned.
    pub(super) fn takes_range(&self, offset: u64, length: usize) -> bool {
        is_aligned(offset, length, self.sector)
    }

    /// Whether this payload is aligned in memory.
    pub(super) fn takes(&self, src: &Sg) -> bool {
        let fits = |b: &IoBuf| {
            (b.as_ptr() as usize).is_multiple_of(self.memory) && b.len().is_multiple_of(self.sector)
        };
        src.iter().all(fits)
    }
}

impl Device {
    /// Whether I/O can bypass the page cache.
    fn can_bypass_cache(&self) -> bool {
        if self.memory {
            self.warn_buffered("the file system is in memory");
        }
        self.direct.load(Ordering::Relaxed)
    }

    /// Logs once why unbuffered I/O is buffered.
    fn warn_buffered(&self, why: &str) {
        if !self.warned_buffered.swap(true, Ordering::Relaxed) {
            tracing::info!(
                volume = %format_args!("{:032x}", self.volume),
                "unbuffered reads and writes use the page cache on this file system: {why}"
            );
        }
    }
}

fn is_aligned(offset: u64, length: usize, to: usize) -> bool {
    length > 0 && offset.is_multiple_of(to as u64) && length.is_multiple_of(to)
}
