//! I/O to memory mappings (`-Sm`): a copy, which completes during submission.
//!
//! **Unsafe.** A mapping changes when other processes write the file, so no slice of it is created: bytes are
//! copied with raw pointers within its bounds. If the file is truncated meanwhile, the process gets SIGBUS,
//! as with any mapping.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Instant;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use super::{Layout, LocalFile, Slot, describe, left};
use crate::engine::backend::{Backend, Completion, Fault, Io, Payload, Setup};
use crate::engine::error::OpenError;
use crate::engine::memory::Memory;
use crate::engine::offsets::Kind;

const PAGE: usize = 4096;

/// See the module.
pub(super) struct Mapped {
    views: Vec<View>,
    sources: Vec<Arc<Memory>>,
    memory: Memory,
    slots: Vec<Slot>,
    done: Vec<Completion>,
    description: String,
    env: env::Env,
}

/// A file that is mapped as a whole.
struct View {
    start: NonNull<u8>,
    length: usize,
    flush: bool,
}

impl Mapped {
    pub(super) fn open(setup: Setup) -> Result<Mapped, OpenError> {
        let (layout, memory) = Layout::with_memory(&setup)?;
        let mut views = Vec::with_capacity(setup.lanes.len());
        for lane in &setup.lanes {
            let target = &lane.target;
            let file = LocalFile::open(target, setup.verify)?;
            let failed = |source: io::Error| OpenError::Local { path: target.path.clone(), source };
            let length =
                usize::try_from(file.size).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
            let mut protection = ProtFlags::READ;
            if target.write_percent > 0 {
                protection |= ProtFlags::WRITE;
            }
            // SAFETY: the kernel chooses the address of the new mapping, so no existing memory is affected.
            let start = unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, &file.file, 0) }
                .map_err(|e| failed(e.into()))?;
            let start =
                NonNull::new(start.cast()).ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
            views.push(View { start, length, flush: target.write_through || target.flush.is_some() });
        }
        let sources = setup.lanes.iter().map(|l| l.source.clone()).collect();
        let description = describe(&setup, "memory mapping");
        let (done, env) = (Vec::new(), env::Env::real());
        Ok(Mapped { views, sources, memory, slots: layout.slots, done, description, env })
    }

    fn copy(&mut self, io: &Io) -> Result<u32, Fault> {
        let (view, slot) = (&self.views[io.lane], self.slots[io.slot]);
        let length = io.length as usize;
        assert!(length <= slot.room, "the I/O has room in its slot");
        let offset = usize::try_from(io.offset).map_err(|_| Fault::System(libc::EFAULT))?;
        if offset.checked_add(length).is_none_or(|end| end > view.length) {
            return Err(Fault::System(libc::EFAULT));
        }
        // SAFETY: `offset + length` is within the mapping, as just checked.
        let at = unsafe { view.start.as_ptr().add(offset) };
        match io.kind {
            Kind::Read => {
                let into = self.memory.bytes_mut()[slot.read..slot.read + length].as_mut_ptr();
                // SAFETY: both ranges have `length` bytes and are in different mappings.
                unsafe { ptr::copy_nonoverlapping(at, into, length) };
            }
            Kind::Write => {
                let from = match io.payload {
                    Payload::Buffer => &self.memory.bytes()[slot.write..slot.write + length],
                    Payload::Source(n) => {
                        self.sources[io.lane].bytes().get(n..n + length).ok_or(Fault::System(libc::EFAULT))?
                    }
                };
                // SAFETY: as above; the mapping is writable, because the target is opened for writing.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr(), at, length) };
                if view.flush {
                    let begin = offset - offset % PAGE;
                    // SAFETY: the range is within the mapping and starts at a page boundary.
                    let flushed = unsafe {
                        msync(
                            view.start.as_ptr().add(begin).cast(),
                            offset + length - begin,
                            MsyncFlags::SYNC,
                        )
                    };
                    flushed.map_err(|e| Fault::System(e.raw_os_error()))?;
                }
            }
        }
        Ok(io.length)
    }
}

impl Backend for Mapped {
    fn size(&self, lane: usize) -> u64 {
        self.views[lane].length as u64
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        let Slot { write, room, .. } = self.slots[slot];
        &mut self.memory.bytes_mut()[write..write + room]
    }

    fn submit(&mut self, io: &Io) {
        let result = self.copy(io);
        self.done.push(Completion { slot: io.slot, result, at: Some(self.env.now()) });
    }

    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        if self.done.is_empty() {
            std::thread::sleep(left(&self.env, until));
        }
        done.append(&mut self.done);
        Ok(())
    }

    fn data(&mut self, slot: usize, length: usize) -> Cow<'_, [u8]> {
        let Slot { read, room, .. } = self.slots[slot];
        Cow::Borrowed(&self.memory.bytes()[read..read + length.min(room)])
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and pointers into it are used only within `copy`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
