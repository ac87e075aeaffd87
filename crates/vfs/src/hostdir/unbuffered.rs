//! I/O past the page cache: what opens with FILE_NO_INTERMEDIATE_BUFFERING ask for, and single READs and WRITEs with the
//! UNBUFFERED flag (MS-SMB2 2.2.19, 2.2.21).
//!
//! It goes by a second descriptor of the same file, opened with `O_DIRECT` when an open needs it first, in the pool: it waits
//! for the disk. The kernel keeps it coherent with the cache: what is dirty there is written before a read, and what
//! a write overtakes is dropped. That it passes the cache makes nothing durable: see write-through.
//!
//! What cannot go so goes as any other I/O: offsets and lengths that are no multiples of the file's sector, file
//! systems in memory, those without `O_DIRECT`. For the latter two the log says it once. Payload that does not lie at
//! sectors in memory, as what came by TCP, passes through a buffer of [`PIECE`] bytes at most.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::passes::{self, Pass};
use arena::{CHUNK_MIN, Class, IoBuf, Sg, SgMut, sg_len, sg_slice};
use env::Io;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::device::Device;
use super::node::{HostNode, Open};
use super::transfer::{freeze, read_all, read_once, write_all, write_once};
use crate::{Data, VfsError, VfsResult, Want};

/// A file's second descriptor.
pub(super) struct Direct {
    fd: OwnedFd,
    /// What addresses in memory are multiples of, in bytes.
    memory: usize,
    /// What offsets and lengths are multiples of, in bytes.
    sector: usize,
}

/// The smallest sector there is, in bytes: what is no multiple of it need not be tried.
const SECTOR_MIN: usize = 512;
/// Both alignments where the kernel does not tell them (before 6.1, or a file system that does not say).
const ASSUMED: usize = 4096;
/// What one write takes of payload that has to be moved first, in bytes.
const PIECE: usize = 1 << 20;

impl HostNode {
    /// A read past the cache; `None` where that cannot be.
    pub(super) fn read_unbuffered(&self, offset: u64, want: &Want<'_>) -> Option<Io<VfsResult<Data>>> {
        let (open, length) = (&self.open, want.length as usize);
        if !open.shared.device.passes_cache() || !is_aligned(offset, length, SECTOR_MIN) {
            return None;
        }
        if length > want.arena.usage().budget / 2 {
            return Some(Io::Done(Err(VfsError::NoMemory)));
        }
        let (open, arena) = (Arc::clone(open), want.arena.clone());
        if !open.shared.device.local {
            return Some(Io::pending(async move {
                let (pool, size) = (&open.shared.tree.pool, Arc::clone(&open));
                let length = pool.run(move || size.read_sectors(offset, length)).await?;
                let (bufs, read) = (arena.alloc_sg(length, Class::Payload).await, Arc::clone(&open));
                pool.run(move || read.read_direct(offset, bufs, length)).await
            }));
        }
        let length = match open.read_sectors(offset, length) {
            Ok(0) => return Some(Io::Done(Ok(Data::Bufs(Sg::new())))),
            Ok(length) => length,
            Err(e) => return Some(Io::Done(Err(e))),
        };
        let tree = Arc::clone(&open.shared.tree);
        Some(match arena.try_alloc_sg(length, Class::Payload) {
            Some(bufs) => Io::Pending(tree.pool.run(move || open.read_direct(offset, bufs, length))),
            None => Io::pending(async move {
                let bufs = arena.alloc_sg(length, Class::Payload).await;
                tree.pool.run(move || open.read_direct(offset, bufs, length)).await
            }),
        })
    }

    /// A write past the cache, of no more than `u32::MAX` bytes, which may be; `None` where it cannot go so.
    pub(super) fn write_unbuffered(
        &self,
        offset: u64,
        src: &Sg,
        through: bool,
    ) -> Option<Io<VfsResult<u32>>> {
        let (open, length) = (&self.open, sg_len(src));
        if !open.shared.device.passes_cache() || !is_aligned(offset, length, SECTOR_MIN) {
            return None;
        }
        let (open, src, tree) = (Arc::clone(open), src.clone(), Arc::clone(&open.shared.tree));
        // Not in the line: the kernel orders it behind what it overtakes, and a disk has more than one thing to do.
        Some(Io::Pending(tree.pool.run_slow(move || {
            if !through {
                return open.write_direct(offset, &src, ReadWriteFlags::empty()).map(|()| length as u32);
            }
            open.shared.intact()?;
            let done = open.write_direct(offset, &src, ReadWriteFlags::DSYNC);
            done.map(|()| length as u32).map_err(|e| open.shared.failed(e))
        })))
    }
}

impl Open {
    /// How many bytes to make room for: whole sectors, which may reach beyond the end of the file.
    fn read_sectors(&self, offset: u64, length: usize) -> VfsResult<usize> {
        let there = self.read_length(offset, length)?;
        Ok(length.min(there.next_multiple_of(ASSUMED)))
    }

    /// Reads up to `length` bytes, fewer only at the end of the file. It waits for the disk.
    fn read_direct(&self, offset: u64, mut bufs: SgMut, length: usize) -> VfsResult<Data> {
        let mut done = 0;
        if let Some(direct) = self.direct(offset, length) {
            while done < length {
                match read_once(&direct.fd, offset, &mut bufs, done, length, ReadWriteFlags::empty()) {
                    // It ends in a sector only where the file does.
                    Ok(n) if n == 0 || !n.is_multiple_of(direct.sector) => {
                        return Ok(Data::Bufs(freeze(bufs, done + n)));
                    }
                    Ok(n) => done += n,
                    Err(Errno::INTR) => {}
                    Err(Errno::INVAL | Errno::OPNOTSUPP) => break, // not this part of the file
                    Err(e) => return Err(e.into()),
                }
            }
        }
        read_all(&self.fd, offset, bufs, done, length).map(Data::Bufs)
    }

    /// Writes all of `src`. It waits for the disk.
    fn write_direct(&self, offset: u64, src: &Sg, flags: ReadWriteFlags) -> VfsResult<()> {
        let mut done = 0;
        if let Some(direct) = self.direct(offset, sg_len(src)) {
            done = direct.write(offset, src, flags)?;
        }
        write_all(&self.fd, offset, src, done, flags)
    }

    /// The second descriptor, if there can be one and it takes this range.
    fn direct(&self, offset: u64, length: usize) -> Option<&Direct> {
        let direct = self.direct.get_or_init(|| Direct::of(&self.fd, &self.shared.device)).as_ref()?;
        is_aligned(offset, length, direct.sector).then_some(direct)
    }
}

impl Direct {
    fn of(fd: &OwnedFd, device: &Device) -> Option<Direct> {
        let told = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let known = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::DIOALIGN);
        let (memory, sector) = match (told.stx_dio_mem_align as usize, told.stx_dio_offset_align as usize) {
            _ if !known => (ASSUMED, ASSUMED),
            // Not this file: encrypted, compressed, journalled data.
            (_, 0) => return None,
            (memory, sector) => (memory.max(1), sector),
        };
        if memory > CHUNK_MIN || !memory.is_power_of_two() || !sector.is_power_of_two() {
            return None;
        }
        let access = rustix::fs::fcntl_getfl(fd).ok()? & OFlags::RWMODE;
        let flags = access | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()) {
            Ok(fd) => Some(Direct { fd, memory, sector }),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                device.direct.store(false, Ordering::Relaxed);
                device.tell_cached("the file system has no O_DIRECT");
                None
            }
            Err(error) => {
                tracing::debug!("a file is not opened past the page cache: {error}");
                None
            }
        }
    }

    /// Writes `src`; how many bytes, from its beginning, which are less where the rest cannot go so.
    fn write(&self, offset: u64, src: &Sg, flags: ReadWriteFlags) -> VfsResult<usize> {
        let fits = |b: &IoBuf| {
            (b.as_ptr() as usize).is_multiple_of(self.memory) && b.len().is_multiple_of(self.sector)
        };
        if src.iter().all(fits) {
            return self.write_part(offset, src, flags);
        }
        let (length, mut done) = (sg_len(src), 0);
        let mut room = vec![0; PIECE.min(length) + self.memory];
        let start = room.as_ptr().align_offset(self.memory);
        while done < length {
            let n = PIECE.min(length - done);
            let mut at = start;
            for part in sg_slice(src, done, n) {
                room[at..at + part.len()].copy_from_slice(&part);
                at += part.len();
            }
            passes::count(Pass::Copy, n);
            let written = self.write_bytes(offset + done as u64, &room[start..start + n], flags)?;
            done += written;
            if written < n {
                break;
            }
        }
        Ok(done)
    }

    fn write_part(&self, offset: u64, src: &Sg, flags: ReadWriteFlags) -> VfsResult<usize> {
        self.repeat(sg_len(src), |done| write_once(&self.fd, offset, src, done, flags))
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8], flags: ReadWriteFlags) -> VfsResult<usize> {
        self.repeat(bytes.len(), |done| {
            let rest = [std::io::IoSlice::new(&bytes[done..])];
            rustix::io::pwritev2(&self.fd, &rest, offset + done as u64, flags)
        })
    }

    /// Calls `write` until it has written `length` bytes or is refused.
    fn repeat(
        &self,
        length: usize,
        mut write: impl FnMut(usize) -> rustix::io::Result<usize>,
    ) -> VfsResult<usize> {
        let mut done = 0;
        while done < length && done.is_multiple_of(self.sector) {
            match write(done) {
                Ok(0) | Err(Errno::INVAL | Errno::OPNOTSUPP) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }
}

impl Device {
    /// Whether there is anything past the page cache here.
    fn passes_cache(&self) -> bool {
        if self.memory {
            self.tell_cached("the file system lies in memory");
        }
        self.direct.load(Ordering::Relaxed)
    }

    /// Says once why unbuffered I/O is buffered.
    fn tell_cached(&self, why: &str) {
        if !self.told_cached.swap(true, Ordering::Relaxed) {
            tracing::info!(
                volume = %format_args!("{:032x}", self.volume),
                "unbuffered reads and writes go through the page cache here: {why}"
            );
        }
    }
}

fn is_aligned(offset: u64, length: usize, to: usize) -> bool {
    length > 0 && offset.is_multiple_of(to as u64) && length.is_multiple_of(to)
}
