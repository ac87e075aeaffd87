//! I/O by io_uring: one ring for each thread.
//!
//! **Unsafe.** The kernel reads and writes slots' buffers between submission and completion. Invariants: a
//! slot with an outstanding I/O is not submitted again, and no slice of its buffers is handed out (the engine
//! uses only free slots, and `in_flight` is checked here); memory and files outlive the ring's I/O: if I/O is
//! outstanding at the end, both are leaked.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::{Layout, LocalFile, Slot, describe, ioprio, left};
use crate::engine::backend::{Backend, Completion, Fault, Io, Payload, Setup};
use crate::engine::error::OpenError;
use crate::engine::memory::Memory;
use crate::engine::offsets::Kind;

/// See the module.
pub(super) struct Ring {
    ring: IoUring,
    /// Used by the kernel while I/O is outstanding.
    held: ManuallyDrop<KernelOwned>,
    slots: Vec<Slot>,
    busy: Vec<bool>,
    in_flight: usize,
    /// Completions of I/Os that were not submitted to the kernel.
    failed: Vec<Completion>,
    lanes: Vec<LaneState>,
    description: String,
    env: env::Env,
}

struct KernelOwned {
    memory: Memory,
    sources: Vec<Arc<Memory>>,
    /// Kept open because the ring refers to their descriptors.
    _files: Vec<LocalFile>,
}

struct LaneState {
    fd: Fd,
    size: u64,
    write_flags: i32,
    ioprio: u16,
}

impl Ring {
    pub(super) fn open(setup: Setup) -> Result<Ring, OpenError> {
        let (layout, memory) = Layout::with_memory(&setup)?;
        let files = setup
            .lanes
            .iter()
            .map(|l| LocalFile::open(&l.target, setup.verify))
            .collect::<Result<Vec<_>, _>>()?;
        let lanes = setup.lanes.iter().zip(&files).map(|(lane, file)| LaneState {
            fd: Fd(file.file.as_raw_fd()),
            size: file.size,
            write_flags: if lane.target.write_through { libc::RWF_DSYNC } else { 0 },
            ioprio: ioprio(lane.target.priority),
        });
        let lanes = lanes.collect();
        let entries = u32::try_from(setup.slots.len()).unwrap_or(u32::MAX).max(1);
        let ring = ring(entries).map_err(OpenError::Ring)?;
        let sources = setup.lanes.iter().map(|l| l.source.clone()).collect();
        let description = describe(&setup, "io_uring");
        let busy = vec![false; layout.slots.len()];
        let held = ManuallyDrop::new(KernelOwned { memory, sources, _files: files });
        let (failed, env) = (Vec::new(), env::Env::real());
        Ok(Ring { ring, held, slots: layout.slots, busy, in_flight: 0, failed, lanes, description, env })
    }

    fn entry(&self, io: &Io) -> Result<squeue::Entry, Fault> {
        let (lane, slot) = (&self.lanes[io.lane], self.slots[io.slot]);
        let length = io.length as usize;
        assert!(length <= slot.room, "the I/O has room in its slot");
        Ok(match (io.kind, io.payload) {
            (Kind::Read, _) => {
                // SAFETY: `read..read + room` lies within the memory (see Layout).
                let buffer = unsafe { self.held.memory.as_ptr().add(slot.read) };
                opcode::Read::new(lane.fd, buffer, io.length).offset(io.offset).ioprio(lane.ioprio).build()
            }
            (Kind::Write, payload) => {
                let buffer = match payload {
                    // SAFETY: as above.
                    Payload::Buffer => unsafe { self.held.memory.as_ptr().add(slot.write) }.cast_const(),
                    Payload::Source(at) => {
                        let bytes = self.held.sources[io.lane].bytes();
                        bytes.get(at..at + length).ok_or(Fault::System(libc::EFAULT))?.as_ptr()
                    }
                };
                opcode::Write::new(lane.fd, buffer, io.length)
                    .offset(io.offset)
                    .rw_flags(lane.write_flags)
                    .ioprio(lane.ioprio)
                    .build()
            }
        }
        .user_data(io.slot as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the buffer and file of the entry live until its completion (see the module).
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.ring.submit() {
                Ok(_) => {}
                Err(e) if is_retryable(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Backend for Ring {
    fn size(&self, lane: usize) -> u64 {
        self.lanes[lane].size
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.busy[slot], "the slot is free");
        let Slot { write, room, .. } = self.slots[slot];
        &mut self.held.memory.bytes_mut()[write..write + room]
    }

    fn submit(&mut self, io: &Io) {
        assert!(!self.busy[io.slot], "the slot is free");
        let fault = match self.entry(io) {
            Ok(entry) => match self.push(&entry) {
                Ok(()) => {
                    self.busy[io.slot] = true;
                    self.in_flight += 1;
                    return;
                }
                Err(e) => Fault::System(e.raw_os_error().unwrap_or(libc::EIO)),
            },
            Err(fault) => fault,
        };
        self.failed.push(Completion { slot: io.slot, result: Err(fault), at: None });
    }

    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        let before = done.len();
        done.append(&mut self.failed);
        let wait = left(&self.env, until);
        let entered = if wait.is_zero() || done.len() > before {
            self.ring.submit()
        } else {
            let time = Timespec::from(wait);
            self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
        };
        match entered {
            Ok(_) => {}
            Err(e) if is_retryable(&e) => {}
            Err(e) => return Err(e),
        }
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            let result = u32::try_from(entry.result()).map_err(|_| Fault::System(-entry.result()));
            self.busy[slot] = false;
            self.in_flight -= 1;
            done.push(Completion { slot, result, at: None });
        }
        Ok(())
    }

    fn data(&mut self, slot: usize, length: usize) -> Cow<'_, [u8]> {
        assert!(!self.busy[slot], "the slot is free");
        let Slot { read, room, .. } = self.slots[slot];
        Cow::Borrowed(&self.held.memory.bytes()[read..read + length.min(room)])
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: dropped only here, and the kernel has no I/O on any of it.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}

/// A ring with the cooperative options that the kernel supports: one thread submits, and completions are
/// delivered on its system calls.
fn ring(entries: u32) -> io::Result<IoUring> {
    let new = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(entries);
    match new {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        other => other,
    }
}

/// Whether the caller should just retry: a timeout, a signal, or completions must be taken first.
fn is_retryable(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}
