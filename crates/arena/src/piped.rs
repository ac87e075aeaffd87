//! Payload that stays in the kernel between a socket and a file.
//!
//! A [`PipedPayload`] reserves arena memory for its full length although the bytes are in a pipe. So the
//! arena's budget bounds the pipes, and the bytes can always be moved to memory without waiting
//! ([`PipedPayload::into_bytes`]); until then that memory is not touched. A pipe may pin more memory than its
//! bytes: each slot refers to a part of one of the kernel's receive buffers. A pipe has [`SLOTS`] slots, and
//! [`Pipes::new`] sets the maximum number of pipes.
//!
//! Invariant: pipes in `idle` are empty. A pipe that is not empty when its `PipedPayload` is dropped is
//! closed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::{IoBufMut, Sg, SgMut};

/// Maximum references to receive buffers in one pipe: the pipe's size in pages.
pub const SLOTS: usize = 256;

/// A bounded set of pipes: a handle, cheap to clone.
#[derive(Clone)]
pub struct Pipes(Arc<Mutex<PipeSet>>);

struct PipeSet {
    idle: Vec<Pipe>,
    /// The number of pipes that may still be created.
    may_create: usize,
}

struct Pipe {
    from: OwnedFd,
    into: OwnedFd,
}

/// A payload of a known length that is received into a pipe and then moved out once.
pub struct PipedPayload {
    set: Pipes,
    /// `Some` until drop.
    pipe: Option<Pipe>,
    memory: SgMut,
    length: usize,
    /// Bytes received so far.
    received: usize,
    /// Bytes in the pipe now.
    in_pipe: usize,
}

impl Pipes {
    /// At most `most` pipes, created on demand.
    pub fn new(most: usize) -> Pipes {
        Pipes(Arc::new(Mutex::new(PipeSet { idle: Vec::new(), may_create: most })))
    }

    /// An empty pipe for `length` bytes; `memory` is the memory reserved for them.
    ///
    /// # Errors
    /// Returns `memory` if all pipes are in use or the system creates no more.
    ///
    /// # Panics
    /// If the capacity of `memory` is less than `length`.
    pub fn take(&self, memory: SgMut, length: usize) -> Result<PipedPayload, SgMut> {
        assert!(memory.iter().map(IoBufMut::capacity).sum::<usize>() >= length);
        let pipe = {
            let mut set = self.0.lock();
            set.idle.pop().or_else(|| {
                // After a failure no more pipes are created: the limits that cause it are permanent.
                set.may_create = set.may_create.checked_sub(1)?;
                Pipe::new().inspect_err(|_| set.may_create = 0).ok()
            })
        };
        match pipe {
            Some(pipe) => Ok(PipedPayload {
                set: self.clone(),
                pipe: Some(pipe),
                memory,
                length,
                received: 0,
                in_pipe: 0,
            }),
            None => Err(memory),
        }
    }
}

impl Pipe {
    fn new() -> rustix::io::Result<Pipe> {
        let (from, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&into, SLOTS * 4096)?;
        Ok(Pipe { from, into })
    }
}

impl PipedPayload {
    /// The payload's length in bytes, received or not.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether all bytes have been received.
    pub fn is_whole(&self) -> bool {
        self.received == self.length
    }

    /// Moves bytes that `socket` has received into the pipe, by one call. Returns their number, 0 at the end
    /// of the stream.
    ///
    /// # Errors
    /// The socket's error; `WouldBlock` if it has no data or the pipe has no free slot.
    pub fn fill(&mut self, socket: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let n = splice(socket, None, &self.ends().into, None, self.length - self.received, flags)?;
        self.received += n;
        self.in_pipe += n;
        Ok(n)
    }

    /// Moves the bytes in the pipe to `file` at `offset`, by one call, which may move only some of them.
    /// Returns their number. May block on the disk.
    ///
    /// # Errors
    /// The file's error; `INVAL` if its file system does not support splice from a pipe.
    pub fn store(&mut self, file: impl AsFd, mut offset: u64) -> rustix::io::Result<usize> {
        let n = splice(&self.ends().from, None, file, Some(&mut offset), self.in_pipe, SpliceFlags::MOVE)?;
        self.in_pipe -= n;
        Ok(n)
    }

    /// Reads the bytes in the pipe into the reserved memory, which also has capacity for bytes not yet
    /// received.
    ///
    /// # Errors
    /// The error of reading the pipe; none is expected.
    pub fn into_memory(mut self) -> io::Result<SgMut> {
        let mut memory = std::mem::take(&mut self.memory);
        for buf in &mut memory {
            while self.in_pipe > 0 && !buf.spare().is_empty() {
                let room = buf.spare().len().min(self.in_pipe);
                match rustix::io::read(&self.ends().from, &mut buf.spare()[..room]) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(n) => {
                        let filled = buf.len() + n;
                        buf.set_len(filled);
                        self.in_pipe -= n;
                    }
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(memory)
    }

    /// Like [`PipedPayload::into_memory`], but returns only the bytes received.
    ///
    /// # Errors
    /// See [`PipedPayload::into_memory`].
    pub fn into_bytes(self) -> io::Result<Sg> {
        Ok(self.into_memory()?.into_iter().filter(|b| !b.is_empty()).map(IoBufMut::freeze).collect())
    }

    fn ends(&self) -> &Pipe {
        self.pipe.as_ref().expect("until it is dropped")
    }
}

impl Drop for PipedPayload {
    fn drop(&mut self) {
        let mut set = self.set.0.lock();
        match self.pipe.take() {
            Some(pipe) if self.in_pipe == 0 => set.idle.push(pipe),
            // Closing the pipe discards the bytes in it.
            _ => set.may_create += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Arena, Class, sg_to_vec};

    fn memory(arena: &Arena, length: usize) -> SgMut {
        arena.try_alloc_sg(length, Class::Payload).expect("there is memory")
    }

    #[test]
    fn to_a_file_and_to_memory() {
        let arena = Arena::new(4 << 20).expect("a small mapping");
        let pipes = Pipes::new(1);
        let (mut one, two) = UnixStream::pair().expect("a pair");
        let mut piped = pipes.take(memory(&arena, 11), 11).expect("a pipe");
        assert_eq!(pipes.take(memory(&arena, 1), 1).err().expect("no other one").len(), 1);
        one.write_all(b"hello, world").expect("sent");
        assert_eq!(piped.fill(&two).expect("spliced"), 11, "no more than its length");
        assert!(piped.is_whole());
        let mut file = tempfile();
        assert_eq!(piped.store(&file, 3).expect("stored"), 11);
        drop(piped);
        let mut stored = Vec::new();
        file.rewind().expect("at the start");
        file.read_to_end(&mut stored).expect("read");
        assert_eq!(stored, b"\0\0\0hello, worl");

        // The same pipe is reused and is empty.
        let mut piped = pipes.take(memory(&arena, 3), 3).expect("a pipe");
        assert_eq!(piped.fill(&two).expect("spliced"), 1);
        two.set_nonblocking(true).expect("set");
        assert_eq!(piped.fill(&two).expect_err("no more").kind(), io::ErrorKind::WouldBlock);
        one.write_all(b"!?").expect("sent");
        assert_eq!(piped.fill(&two).expect("spliced"), 2);
        assert_eq!(sg_to_vec(&piped.into_bytes().expect("read")), b"d!?");
        assert_eq!(arena.usage().used, 0);
    }

    #[test]
    fn a_pipe_that_is_not_empty_is_closed() {
        let arena = Arena::new(4 << 20).expect("a small mapping");
        let pipes = Pipes::new(1);
        let (mut one, two) = UnixStream::pair().expect("a pair");
        one.write_all(b"lost").expect("sent");
        let mut piped = pipes.take(memory(&arena, 4), 4).expect("a pipe");
        piped.fill(&two).expect("spliced");
        drop(piped);
        one.write_all(b"kept").expect("sent");
        let mut piped = pipes.take(memory(&arena, 4), 4).expect("another one");
        piped.fill(&two).expect("spliced");
        assert_eq!(sg_to_vec(&piped.into_bytes().expect("read")), b"kept");
    }

    fn tempfile() -> std::fs::File {
        let fd = rustix::fs::memfd_create("piped", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        fd.into()
    }
}
