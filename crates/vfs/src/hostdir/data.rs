//! The data path, and the implementation of [`Node`].

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{Class, PipedPayload, Sg};
use env::{Ctx, Io};
use rustix::io::{Errno, ReadWriteFlags};

use super::job::Job;
use super::node::{HostNode, Open, statx};
use super::transfer::{failed, freeze, read_once, store_all, write_all, write_once};
use super::write_exclusion::BufferedWrite;
use super::{cached, listing, reflink, stored};
use crate::{
    BasicChange, Data, DirEntry, EntrySecurity, ExtendedAttribute, FileKey, Kind, Node, ReadOptions,
    ReparsePoint, Stat, StreamInfo, StreamName, VfsError, VfsResult,
};

/// Reads of this length and more query the file's size first, so that no memory is allocated for bytes behind the end.
const CLIP: usize = 64 << 10;

/// The shortest read that is answered with a descriptor instead of bytes.
const SEND_FILE_MIN: usize = 64 << 10;

/// The largest offset of a file.
pub(super) const OFFSET_MAX: u64 = i64::MAX as u64;

impl HostNode {
    /// Runs `work` in the thread pool; on a memory file system at once.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce(&Open) -> T + Send + 'static) -> Io<T> {
        if self.open.shared.device.memory {
            return Io::Done(work(&self.open));
        }
        let open = Arc::clone(&self.open);
        Io::Pending(self.open.shared.tree.pool.run(move || work(&open)))
    }

    /// [`HostNode::run`] for calls that wait for the disk itself.
    pub(super) fn run_slow<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Open) -> T + Send + 'static,
    ) -> Io<T> {
        if self.open.shared.device.memory {
            return Io::Done(work(&self.open));
        }
        let open = Arc::clone(&self.open);
        Io::Pending(self.open.shared.tree.pool.run_slow(move || work(&open)))
    }

    /// [`HostNode::run`] for changes of a file's data.
    fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Open) -> VfsResult<T> + Send + 'static,
    ) -> Io<VfsResult<T>> {
        let allowed = self.open.must_be(Kind::File).and_then(|()| self.open.shared.tree.may_change());
        match allowed {
            Ok(()) => {
                self.open.wrote();
                self.run(work)
            }
            Err(e) => Io::Done(Err(e)),
        }
    }
}

impl Node for HostNode {
    fn id(&self) -> FileKey {
        self.open.shared.id
    }

    fn kind(&self) -> Kind {
        self.open.kind
    }

    fn stat(&self, _: &Ctx) -> Io<VfsResult<Stat>> {
        if self.open.shared.device.local {
            return Io::Done(self.open.stat()); // the inode of an open file is in memory
        }
        self.run(Open::stat)
    }

    fn may_change(&self, _: &Ctx) -> Io<VfsResult<()>> {
        if self.open.shared.device.local {
            return Io::Done(self.open.may_change());
        }
        self.run(Open::may_change)
    }

    fn set_basic(&self, _: &Ctx, change: BasicChange) -> Io<VfsResult<()>> {
        self.run(move |open| open.set_basic(&change))
    }

    fn read(&self, c: &Ctx, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>> {
        let open = &self.open;
        if c.flags.unbuffered
            && let Some(read) = self.read_unbuffered(offset, &want)
        {
            return read;
        }
        if !open.shared.device.local {
            return self.read_in_pool(offset, want);
        }
        match open.read_length(offset, want.length as usize) {
            Ok(0) => Io::Done(Ok(Data::Bufs(Sg::new()))),
            Ok(length) => self.read_some(offset, length, want),
            Err(e) => Io::Done(Err(e)),
        }
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>> {
        let open = &self.open;
        let allowed = open.must_be(Kind::File).and_then(|()| open.shared.tree.may_change());
        let length = arena::sg_len(&src);
        if let Err(e) = allowed {
            return Io::Done(Err(e));
        }
        let Some(total) = u32::try_from(length).ok().filter(|n| offset <= OFFSET_MAX - u64::from(*n)) else {
            return Io::Done(Err(VfsError::TooLarge));
        };
        let device = &open.shared.device;
        let flags = ReadWriteFlags::empty();
        if device.memory || total == 0 {
            return Io::Done(write_all(&open.fd, offset, &src, 0, flags).map(|()| total));
        }
        open.wrote();
        if c.flags.unbuffered
            && let Some(write) = self.write_unbuffered(offset, &src, c.flags.write_through)
        {
            return write;
        }
        let tree = &open.shared.tree;
        if c.flags.write_through {
            // It bypasses the queue of the file's writes: concurrent flushes share the disk's work.
            return Job::write(Arc::clone(open), offset, src, true).start(move |_| total);
        }
        let mut done = 0;
        let buffered_write = BufferedWrite::begin(&open.shared);
        if device.nowait_writes.load(Ordering::Relaxed) && buffered_write.may_start() {
            match write_once(&open.fd, offset, &src, 0, ReadWriteFlags::NOWAIT) {
                Ok(n) if n == length => return Io::Done(Ok(total)),
                Ok(n) => done = n,
                Err(Errno::OPNOTSUPP) => device.nowait_writes.store(false, Ordering::Relaxed),
                // The write would block, or failed for a reason that may be temporary (no allocated space).
                Err(_) => {}
            }
        }
        let fd = Arc::clone(&open.fd);
        let write_queue = &open.shared.write_queue;
        Io::Pending(tree.pool.run_in(write_queue, move || {
            buffered_write.wait();
            write_all(&fd, offset, &src, done, flags).map(|()| total)
        }))
    }

    fn write_piped(&self, c: &Ctx, offset: u64, src: PipedPayload) -> Io<VfsResult<u32>> {
        let open = &self.open;
        if c.flags.write_through || c.flags.unbuffered || !self.prefers_pipes() {
            return match src.into_bytes() {
                Ok(bytes) => self.write(c, offset, bytes),
                Err(e) => Io::Done(Err(failed(&e))),
            };
        }
        if let Err(e) = open.must_be(Kind::File).and_then(|()| open.shared.tree.may_change()) {
            return Io::Done(Err(e));
        }
        let Some(total) = u32::try_from(src.len()).ok().filter(|n| offset <= OFFSET_MAX - u64::from(*n))
        else {
            return Io::Done(Err(VfsError::TooLarge));
        };
        open.wrote();
        let (open, buffered_write) = (Arc::clone(open), BufferedWrite::begin(&open.shared));
        let write_queue = Arc::clone(&open.shared.write_queue);
        let job = move || {
            buffered_write.wait();
            store_all(&open.fd, offset, src, &open.shared.device.splices).map(|()| total)
        };
        Io::Pending(self.open.shared.tree.pool.run_in(&write_queue, job))
    }

    /// False if the file system accepts non-blocking buffered writes: then the worker writes from memory at once,
    /// which is cheaper.
    fn prefers_pipes(&self) -> bool {
        let device = &self.open.shared.device;
        let pool = !device.memory && !device.nowait_writes.load(Ordering::Relaxed);
        pool && device.local && device.splices.load(Ordering::Relaxed)
    }

    fn flush(&self, _: &Ctx) -> Io<VfsResult<()>> {
        self.sync()
    }

    fn close(&self, _: &Ctx) -> Io<VfsResult<()>> {
        if !self.open.unchecked_writes() {
            return Io::Done(Ok(()));
        }
        self.sync()
    }

    fn set_len(&self, _: &Ctx, len: u64) -> Io<VfsResult<()>> {
        self.change(move |open| {
            if len > OFFSET_MAX {
                return Err(VfsError::TooLarge);
            }
            open.shared.slow_close.store(true, Ordering::Relaxed);
            let before = statx(&*open.fd)?.stx_size;
            rustix::fs::ftruncate(&*open.fd, len)?;
            if len < before {
                open.shared.reserved.store(0, Ordering::Relaxed); // the system has freed it
            }
            Ok(())
        })
    }

    fn set_allocation(&self, _: &Ctx, len: u64) -> Io<VfsResult<()>> {
        self.change(move |open| open.set_allocation(len))
    }

    fn set_sparse(&self, _: &Ctx, sparse: bool) -> Io<VfsResult<()>> {
        self.change(move |open| open.set_sparse(sparse))
    }

    fn set_compressed(&self, _: &Ctx, compressed: bool) -> Io<VfsResult<()>> {
        self.run(move |open| open.set_compressed(compressed))
    }

    fn zero(&self, _: &Ctx, range: Range<u64>) -> Io<VfsResult<()>> {
        self.change(move |open| open.zero(range))
    }

    fn allocated(&self, _: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>> {
        self.run(move |open| open.allocated(range, limit))
    }

    fn copy_to(
        &self,
        _: &Ctx,
        from: u64,
        target: &Arc<dyn Node>,
        to: u64,
        length: u64,
    ) -> Io<VfsResult<u64>> {
        let target: &dyn std::any::Any = &**target;
        let Some(target) = target.downcast_ref::<HostNode>() else {
            return Io::Done(Err(VfsError::Unsupported));
        };
        let allowed = self.open.must_be(Kind::File).and_then(|()| target.open.shared.tree.may_change());
        if let Err(e) = allowed {
            return Io::Done(Err(e));
        }
        target.open.wrote();
        // Runs in the pool unless both files are on memory file systems.
        let node = if self.open.shared.device.memory { target } else { self };
        let buffered_write = BufferedWrite::begin(&target.open.shared);
        let (open, target) = (Arc::clone(&self.open), Arc::clone(&target.open));
        node.run(move |_| {
            buffered_write.wait();
            open.copy_to(from, &target, to, length)
        })
    }

    fn clone_to(
        &self,
        _: &Ctx,
        from: u64,
        target: &Arc<dyn Node>,
        to: u64,
        length: u64,
    ) -> Io<VfsResult<()>> {
        let target: &dyn std::any::Any = &**target;
        let Some(target) = target.downcast_ref::<HostNode>() else {
            return Io::Done(Err(VfsError::Unsupported));
        };
        let allowed = self.open.must_be(Kind::File).and_then(|()| target.open.shared.tree.may_change());
        if let Err(e) = allowed {
            return Io::Done(Err(e));
        }
        target.open.wrote();
        let buffered_write = BufferedWrite::begin(&target.open.shared);
        let target = Arc::clone(&target.open);
        self.run(move |open| {
            buffered_write.wait();
            Ok(reflink::clone_range(open.fd.as_fd(), from, target.fd.as_fd(), to, length)?)
        })
    }

    fn list(&self, _: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        self.run(move |open| open.list(restart, limit))
    }

    fn lookup(&self, _: &Ctx, name: &str) -> Io<VfsResult<DirEntry>> {
        let name = name.to_owned();
        self.run(move |open| {
            open.must_be(Kind::Directory)?;
            listing::lookup(open, &name)
        })
    }

    fn is_empty(&self, _: &Ctx) -> Io<VfsResult<bool>> {
        self.run(|open| {
            open.must_be(Kind::Directory)?;
            listing::is_empty(open)
        })
    }

    fn streams(&self, _: &Ctx) -> Io<VfsResult<Vec<StreamInfo>>> {
        self.run(Open::streams)
    }

    fn remove_stream(&self, _: &Ctx, name: &StreamName) -> Io<VfsResult<()>> {
        let name = name.clone();
        self.run(move |open| open.remove_stream(&name))
    }

    fn rename_stream(
        &self,
        _: &Ctx,
        from: &StreamName,
        to: Option<&StreamName>,
        replace: bool,
    ) -> Io<VfsResult<()>> {
        let (from, to) = (from.clone(), to.cloned());
        self.run_slow(move |open| open.rename_stream(&from, to.as_ref(), replace))
    }

    fn security(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        // The kernel has loaded and cached it with the inode.
        if self.open.shared.device.local {
            return Io::Done(stored::security(&self.open.fd, &self.open.shared.device));
        }
        self.run(|open| stored::security(&open.fd, &open.shared.device))
    }

    fn entry_security(&self, _: &Ctx, names: Vec<String>) -> Io<VfsResult<Vec<EntrySecurity>>> {
        self.run(move |open| {
            open.must_be(Kind::Directory)?;
            Ok(names.iter().map(|name| listing::security(open, name)).collect())
        })
    }

    fn set_security(&self, _: &Ctx, descriptor: Vec<u8>) -> Io<VfsResult<()>> {
        self.run(move |open| open.set_security(&descriptor))
    }

    fn reparse_point(&self, _: &Ctx) -> Io<VfsResult<Option<ReparsePoint>>> {
        self.run(Open::reparse_point)
    }

    fn set_reparse_point(&self, _: &Ctx, point: Option<ReparsePoint>) -> Io<VfsResult<()>> {
        self.run(move |open| open.set_reparse_point(point.as_ref()))
    }

    fn creation_id(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        self.run(|open| stored::creation_id(&open.fd, &open.shared.device))
    }

    fn extended_attributes(&self, _: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>> {
        self.run(|open| stored::extended(&open.fd, &open.shared.device))
    }

    fn set_extended_attributes(&self, _: &Ctx, set: Vec<ExtendedAttribute>) -> Io<VfsResult<()>> {
        self.run(move |open| open.set_extended(&set))
    }
}

impl HostNode {
    /// Makes everything written durable, including earlier buffered writes that are still queued.
    fn sync(&self) -> Io<VfsResult<()>> {
        let sync = Job::sync(Arc::clone(&self.open));
        if self.open.shared.write_queue.is_idle() {
            return sync.start(drop);
        }
        let shared = Arc::clone(&self.open.shared);
        Io::pending(async move {
            shared.tree.pool.run_in(&shared.write_queue, || ()).await;
            sync.start(drop).wait().await
        })
    }

    /// Reads `length` bytes (at least one), at once if they are in memory.
    fn read_some(&self, offset: u64, length: usize, want: ReadOptions<'_>) -> Io<VfsResult<Data>> {
        let open = &self.open;
        if want.file_ok && length >= SEND_FILE_MIN && open.resident(offset, length) {
            return Io::Done(Ok(Data::File { fd: Arc::clone(&open.fd), offset, length: length as u32 }));
        }
        let Some(mut bufs) = want.arena.try_alloc_sg(length, Class::Payload) else {
            return self.read_when_there_is_memory(offset, length, want);
        };
        let device = &open.shared.device;
        let mut done = 0;
        if device.nowait_reads.load(Ordering::Relaxed) {
            match read_once(&open.fd, offset, &mut bufs, 0, length, ReadWriteFlags::NOWAIT) {
                Ok(n) if n == length || open.ends_at(offset + n as u64) => {
                    return Io::Done(Ok(Data::Bufs(freeze(bufs, n))));
                }
                Ok(n) => done = n,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => device.nowait_reads.store(false, Ordering::Relaxed),
                Err(e) => return Io::Done(Err(e.into())),
            }
        }
        Job::read(Arc::clone(open), offset, bufs, done, length).start(Data::Bufs)
    }

    /// The cache state is unknown (a network file system): the whole read runs in the pool.
    fn read_in_pool(&self, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>> {
        let (open, arena, length) = (Arc::clone(&self.open), want.arena.clone(), want.length as usize);
        let limit = arena.usage().budget / 2;
        Io::pending(async move {
            let pool = &open.shared.tree.pool;
            let size = Arc::clone(&open);
            let length = pool.run(move || size.read_length(offset, length)).await?;
            if length > limit {
                return Err(VfsError::NoMemory);
            }
            let bufs = arena.alloc_sg(length, Class::Payload).await;
            Job::read(open, offset, bufs, 0, length).start(Data::Bufs).wait().await
        })
    }

    /// The arena is exhausted: the read waits for memory.
    fn read_when_there_is_memory(
        &self,
        offset: u64,
        length: usize,
        want: ReadOptions<'_>,
    ) -> Io<VfsResult<Data>> {
        if length > want.arena.usage().budget / 2 {
            return Io::Done(Err(VfsError::NoMemory));
        }
        let (open, arena) = (Arc::clone(&self.open), want.arena.clone());
        Io::pending(async move {
            let bufs = arena.alloc_sg(length, Class::Payload).await;
            Job::read(open, offset, bufs, 0, length).start(Data::Bufs).wait().await
        })
    }
}

impl Open {
    /// The number of bytes to allocate for a read; 0 behind the end of file.
    pub(super) fn read_length(&self, offset: u64, length: usize) -> VfsResult<usize> {
        self.must_be(Kind::File)?;
        if offset > OFFSET_MAX - length as u64 || length >= CLIP {
            let size = statx(&*self.fd)?.stx_size;
            return Ok(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(length));
        }
        Ok(length)
    }

    /// Whether the file ends at `offset` or before; false if that is unknown.
    fn ends_at(&self, offset: u64) -> bool {
        self.shared.device.local && statx(&*self.fd).is_ok_and(|s| s.stx_size <= offset)
    }

    /// Whether the whole range is in the page cache, so that sending it from the file does not wait for the disk. This
    /// may change: the sending thread reads pages that are evicted before they are sent (slow client, little memory).
    /// It then waits for the disk, for at most the bytes of this one read.
    fn resident(&self, offset: u64, length: usize) -> bool {
        self.shared.device.memory || cached::resident(self.fd.as_fd(), offset, length as u64) == Some(true)
    }
}
