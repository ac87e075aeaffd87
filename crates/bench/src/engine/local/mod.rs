//! Files and block devices of this machine.
//!
//! `ring` does I/O by io_uring, `mapped` (`-Sm`) by memory mappings; `device` protects devices from
//! unintended writes. This module opens the targets and assigns memory to slots.

mod device;
mod mapped;
mod ring;

pub(super) use device::{claim, sector};

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use super::backend::{Backend, Setup};
use super::error::OpenError;
use super::memory::Memory;
use crate::profile::{CacheMode, Priority, Target};

/// Opens all targets of a thread.
///
/// # Errors
/// See [`OpenError`].
pub fn open(setup: Setup) -> Result<Box<dyn Backend>, OpenError> {
    let mapped = setup.lanes.iter().filter(|l| l.target.mapped).count();
    if mapped == setup.lanes.len() {
        Ok(Box::new(mapped::Mapped::open(setup)?))
    } else if mapped == 0 {
        Ok(Box::new(ring::Ring::open(setup)?))
    } else {
        Err(OpenError::MixedMapping)
    }
}

/// An open file or block device.
struct LocalFile {
    file: File,
    size: u64,
}

impl LocalFile {
    fn open(target: &Target, verify: bool) -> Result<LocalFile, OpenError> {
        let path = &target.path;
        let failed = |source| OpenError::Local { path: path.clone(), source };
        if target.cache == CacheMode::NoLocalCache {
            return Err(OpenError::NotRemote { path: path.clone() });
        }
        let kind = std::fs::metadata(path).map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::NotAFile { path: path.clone() });
        }
        let writes = target.write_percent > 0;
        let mut flags = 0;
        if target.cache == CacheMode::Unbuffered {
            flags |= libc::O_DIRECT;
        }
        let mut options = OpenOptions::new();
        options.read(target.write_percent < 100 || verify || target.mapped).write(writes).custom_flags(flags);
        let mut file = options.open(path).map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL) if target.cache == CacheMode::Unbuffered => {
                OpenError::NoDirect { path: path.clone() }
            }
            _ => failed(source),
        })?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        for (hint, advice) in
            [(target.random_hint, Advice::Random), (target.sequential_hint, Advice::Sequential)]
        {
            if hint {
                fadvise(&file, 0, None, advice).map_err(|e| failed(e.into()))?;
            }
        }
        Ok(LocalFile { file, size })
    }
}

/// The I/O priority in the format of `ioprio_set(2)`: class and level.
fn ioprio(priority: Priority) -> u16 {
    const BEST_EFFORT: u16 = 2 << 13;
    const IDLE: u16 = 3 << 13;
    match priority {
        Priority::Normal => 0,
        Priority::Low => BEST_EFFORT | 7,
        Priority::VeryLow => IDLE,
    }
}

/// The offsets of each slot's buffers within the thread's memory. Slots begin at page boundaries.
struct Layout {
    slots: Vec<Slot>,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    read: usize,
    write: usize,
    room: usize,
}

impl Layout {
    fn new(rooms: &[u32]) -> io::Result<Layout> {
        let mut at = 0usize;
        let mut slots = Vec::with_capacity(rooms.len());
        for room in rooms {
            let room = *room as usize;
            let size = room.checked_next_multiple_of(4096).ok_or(io::ErrorKind::OutOfMemory)?;
            slots.push(Slot { read: at, write: at + size, room });
            at = size.checked_mul(2).and_then(|two| at.checked_add(two)).ok_or(io::ErrorKind::OutOfMemory)?;
        }
        Ok(Layout { slots, bytes: at })
    }

    /// The layout of a set-up's buffers, and their memory.
    fn with_memory(setup: &Setup) -> Result<(Layout, Memory), OpenError> {
        let layout = Layout::new(&setup.slots).map_err(|source| OpenError::Memory {
            bytes: 0,
            large: false,
            source,
        })?;
        let large = setup.lanes.iter().any(|l| l.target.large_pages);
        let bytes = layout.bytes as u64;
        let memory =
            Memory::new(layout.bytes, large).map_err(|source| OpenError::Memory { bytes, large, source })?;
        Ok((layout, memory))
    }
}

fn describe(setup: &Setup, how: &str) -> String {
    let mut words = vec![how];
    let any = |f: fn(&Target) -> bool| setup.lanes.iter().any(|l| f(&l.target));
    if any(|t| t.cache == CacheMode::Unbuffered) {
        words.push("O_DIRECT");
    }
    if any(|t| t.write_through && !t.mapped) {
        words.push("RWF_DSYNC");
    }
    if any(|t| t.mapped && (t.write_through || t.flush.is_some())) {
        words.push("msync after each write");
    }
    words.join(", ")
}

/// The time until `until`.
fn left(env: &env::Env, until: Instant) -> std::time::Duration {
    until.saturating_duration_since(env.now())
}
