//! An open virtual disk, shared by all nodes of both its forms (`.img` and `.vhd`).
//!
//! Invariants:
//! 1. The length (`Meta::stat`) is a multiple of [`BLOCK`] and at most the size of the disk; the range between the two
//!    reads as zeros.
//! 2. While `disk` is locked for writing there is no other read or write: lengths and partial blocks are changed only
//!    then.
//! 3. A task waits for payload memory before it locks `disk`, never while it holds the lock: a task that waits for
//!    `disk` may hold that memory.

use std::ops::Range;
use std::sync::Arc;

use arena::passes::{Pass, count};
use arena::{Arena, Class, IoBuf, Sg, sg_len, sg_slice, sg_to_vec};
use disk::{DiskError, sized};
use env::{Ctx, Env};
use parking_lot::Mutex;
use tokio::sync::RwLock;

use super::vhd::{self, FOOTER, footer};
use super::{BLOCK, Form, OpenDisk, VirtualDisks, now};
use crate::{Stat, VfsError, VfsResult};

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The metadata of a file.
pub(super) struct Meta {
    /// For an open file, `size` is the number of bytes of data.
    pub(super) stat: Stat,
    /// The footer that a client wrote behind the data.
    pub(super) footer: Option<[u8; FOOTER as usize]>,
}

pub(super) struct File {
    env: Env,
    arena: Arena,
    disks: Arc<dyn VirtualDisks>,
    pub(super) number: u64,
    pub(super) meta: Arc<Mutex<Meta>>,
    /// `None` once the disk was destroyed.
    disk: RwLock<Option<OpenDisk>>,
}

impl File {
    pub(super) fn open(
        (env, arena): (Env, Arena),
        disks: Arc<dyn VirtualDisks>,
        number: u64,
        meta: Arc<Mutex<Meta>>,
    ) -> VfsResult<Arc<File>> {
        let open = disks.open(number)?;
        let size = open.disk.info().geometry.size;
        let mut known = meta.lock();
        if known.stat.size != size {
            // The size changed while it was closed, or the file is new.
            (known.stat.size, known.footer) = (size, None);
        }
        drop(known);
        Ok(Arc::new(File { env, arena, disks, number, meta, disk: RwLock::new(Some(open)) }))
    }

    fn length(&self) -> u64 {
        self.meta.lock().stat.size
    }

    /// Updates the metadata after a write up to `end`.
    fn wrote(&self, end: u64) {
        let mut meta = self.meta.lock();
        if end > meta.stat.size {
            // A footer that a client wrote is valid for the previous length only.
            (meta.stat.size, meta.footer) = (end, None);
        }
        let now = now(&self.env);
        (meta.stat.written, meta.stat.changed) = (now, now);
    }

    /// The footer that a client wrote, otherwise a computed one.
    fn footer(&self) -> [u8; FOOTER as usize] {
        let meta = self.meta.lock();
        meta.footer.unwrap_or_else(|| footer(meta.stat.id, meta.stat.size))
    }

    /// Reads up to `length` bytes; fewer at the end.
    pub(super) async fn read(&self, c: &Ctx, form: Form, offset: u64, length: u64) -> VfsResult<Sg> {
        let end = |of: u64| offset.saturating_add(length).min(of).max(offset);
        let first = offset / BLOCK * BLOCK;
        let ends = |end: u64| (end - first).next_multiple_of(BLOCK) as usize;
        let room = ends(end(self.length()));
        if room > self.arena.budget() / 2 {
            return Err(VfsError::NoMemory);
        }
        let memory = self.arena.alloc_sg(room, Class::Payload).await;
        let disk = self.disk.read().await;
        let open = disk.as_ref().ok_or(VfsError::Stale)?;
        let data = self.length();
        // The file may have grown while this waited for memory.
        let inside = offset..end(data.min(first + room as u64));
        let mut out = Sg::new();
        if !inside.is_empty() {
            let (result, memory) = open.disk.read(c, first, sized(memory, ends(inside.end))).wait().await;
            result.map_err(of_disk)?;
            let all: Sg = memory.into_iter().map(|b| b.freeze()).collect();
            out = sg_slice(&all, (offset - first) as usize, (inside.end - offset) as usize);
        }
        let behind = inside.end..end(data + form.footer());
        if behind.start >= data && !behind.is_empty() {
            out.push(IoBuf::short(
                &self.footer()[(behind.start - data) as usize..(behind.end - data) as usize],
            ));
        }
        Ok(out)
    }

    /// Writes all of `src`.
    pub(super) async fn write(self: Arc<File>, c: Ctx, form: Form, offset: u64, src: Sg) -> VfsResult<u32> {
        let length = u32::try_from(sg_len(&src)).map_err(|_| VfsError::TooLarge)?;
        if length == 0 {
            return Ok(0);
        }
        let end = offset.checked_add(length.into()).filter(|e| *e <= SIZE_MAX).ok_or(VfsError::TooLarge)?;
        if form == Form::Vhd && offset == 0 {
            self.refuse_dynamic(&sg_to_vec(&sg_slice(&src, 0, sg_len(&src).min(FOOTER as usize))))?;
        }
        if offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK) {
            let disk = self.disk.read().await;
            let open = disk.as_ref().ok_or(VfsError::Stale)?;
            // A write behind the data of a VHD may be the footer: the length decides.
            let most = if form == Form::Vhd { self.length() } else { open.disk.info().geometry.size };
            if end <= most {
                let src = self.aligned(src, open.disk.info().geometry.dma_alignment as usize);
                open.disk.write(&c, offset, src).wait().await.map_err(of_disk)?;
                self.wrote(end);
                return Ok(length);
            }
        }
        // A change of length must not be left incomplete: it continues if the caller's future is dropped.
        let (env, file) = (self.env.clone(), self);
        env.run(async move { file.write_exclusively(&c, form, offset..end, &src).await }).await?;
        Ok(length)
    }

    /// # Errors
    /// `Unsupported`: a file that begins with these bytes is not a fixed VHD; the reason is logged.
    fn refuse_dynamic(&self, start: &[u8]) -> VfsResult<()> {
        if !vhd::is_dynamic(start) {
            return Ok(());
        }
        let disk = self.disks.get(self.number).map_or_else(|_| String::new(), |d| d.name);
        tracing::warn!(
            disk,
            "a dynamic or differencing VHD was refused: a virtual disk is shown as a fixed VHD only; convert it first: \
             qemu-img convert -O vpc -o subformat=fixed,force_size=on"
        );
        Err(VfsError::Unsupported)
    }

    /// Returns the payload in buffers with the alignment of the disks. An unaligned payload is copied here once,
    /// instead of once per copy of the data. If no memory is free it is returned unchanged, and the disks copy it.
    fn aligned(&self, src: Sg, alignment: usize) -> Sg {
        let fits =
            |b: &IoBuf| b.as_ptr().addr().is_multiple_of(alignment) && b.len().is_multiple_of(BLOCK as usize);
        if src.iter().all(fits) {
            return src;
        }
        let length = sg_len(&src);
        let Some(mut memory) = self.arena.try_alloc_sg(length, Class::Payload) else { return src };
        let mut done = 0;
        for buffer in &mut memory {
            let room = buffer.spare().len().min(length - done);
            for piece in sg_slice(&src, done, room) {
                done += buffer.append(&piece);
            }
        }
        count(Pass::Copy, length);
        memory.into_iter().map(|buffer| buffer.freeze()).collect()
    }

    async fn write_exclusively(&self, c: &Ctx, form: Form, at: Range<u64>, src: &Sg) -> VfsResult<()> {
        let mut disk = self.disk.write().await;
        if at.end > self.length() + form.footer() {
            let data = form.data_of(at.end);
            let open = disk.as_ref().ok_or(VfsError::Stale)?;
            let (size, row) =
                (open.disk.info().geometry.size, open.disk.info().layout.map_or(BLOCK, |l| l.row));
            let steps = data.checked_next_multiple_of(row.max(BLOCK)).filter(|s| *s <= SIZE_MAX);
            let size = if data > size { steps.ok_or(VfsError::TooLarge)? } else { size };
            self.set_length(c, &mut disk, form, data, size).await?;
        }
        let data = self.length();
        let inside = at.start.min(data)..at.end.min(data);
        let split = (inside.end - inside.start) as usize;
        if split > 0 {
            self.patch(c, &disk, inside, sg_slice(src, 0, split)).await?;
        }
        if at.end > data {
            let bytes = sg_to_vec(&sg_slice(src, split, sg_len(src) - split));
            let (mut footer, from) = (self.footer(), (at.start.max(data) - data) as usize);
            footer[from..from + bytes.len()].copy_from_slice(&bytes);
            self.meta.lock().footer = Some(footer);
        }
        self.wrote(0);
        Ok(())
    }

    /// Writes bytes inside the data; reads the partial first and last block before.
    async fn patch(&self, c: &Ctx, disk: &Option<OpenDisk>, at: Range<u64>, src: Sg) -> VfsResult<()> {
        let open = disk.as_ref().ok_or(VfsError::Stale)?;
        let block = async |at: u64| {
            let memory = sized(self.arena.alloc_sg(BLOCK as usize, Class::Control).await, BLOCK as usize);
            let (result, memory) = open.disk.read(c, at, memory).wait().await;
            result.map_err(of_disk)?;
            Ok::<Sg, VfsError>(memory.into_iter().map(|b| b.freeze()).collect())
        };
        let (first, last) = (at.start / BLOCK * BLOCK, (at.end - 1) / BLOCK * BLOCK);
        let mut all = Sg::new();
        if at.start > first {
            all = sg_slice(&block(first).await?, 0, (at.start - first) as usize);
        }
        all.extend(src);
        if at.end < last + BLOCK {
            let kept = (last + BLOCK - at.end) as usize;
            all.extend(sg_slice(&block(last).await?, BLOCK as usize - kept, kept));
        }
        open.disk.write(c, first, all).wait().await.map_err(of_disk)
    }

    /// Sets the length of the file, and the size of the disk. If a VHD grows, a footer that a client wrote becomes
    /// data.
    async fn set_length(
        &self,
        c: &Ctx,
        disk: &mut Option<OpenDisk>,
        form: Form,
        length: u64,
        size: u64,
    ) -> VfsResult<()> {
        if disk.as_ref().ok_or(VfsError::Stale)?.disk.info().geometry.size != size {
            self.disks.resize(self.number, size).await?;
            // The new one is opened first, so that there always is a guard.
            *disk = Some(self.disks.open(self.number)?);
        }
        let before = {
            let mut meta = self.meta.lock();
            let kept = if length == meta.stat.size { meta.footer } else { None };
            let before = (meta.stat.size, std::mem::replace(&mut meta.footer, kept));
            meta.stat.size = length;
            before
        };
        match before {
            (had, Some(footer)) if form == Form::Vhd && length > had => {
                let footer = [IoBuf::short(&footer)].into_iter().collect();
                self.patch(c, disk, had..had + FOOTER, footer).await
            }
            _ => Ok(()),
        }
    }

    /// Sets the number of bytes of the file in this form, rounded up as by a write that ends there.
    pub(super) async fn set_len(self: Arc<File>, form: Form, length: u64) -> VfsResult<()> {
        let data = form.data_of(length.min(SIZE_MAX + 1));
        if data > SIZE_MAX {
            return Err(VfsError::TooLarge);
        }
        let (env, file) = (self.env.clone(), self);
        env.run(async move {
            let mut disk = file.disk.write().await;
            file.set_length(&Ctx::default(), &mut disk, form, data, data).await?;
            file.wrote(0);
            Ok(())
        })
        .await
    }

    /// Sets the size of the disk to the length of the file, after writes have enlarged the disk.
    pub(super) async fn settle(self: Arc<File>) -> VfsResult<()> {
        let size = self.disk.read().await.as_ref().map(|open| open.disk.info().geometry.size);
        if size.is_none_or(|size| size == self.length()) {
            return Ok(());
        }
        let (env, file) = (self.env.clone(), self);
        env.run(async move {
            let (mut disk, length) = (file.disk.write().await, file.length());
            file.set_length(&Ctx::default(), &mut disk, Form::Raw, length, length).await
        })
        .await
    }

    pub(super) async fn flush(self: Arc<File>, c: Ctx) -> VfsResult<()> {
        Arc::clone(&self).settle().await?;
        let disk = self.disk.read().await;
        disk.as_ref().ok_or(VfsError::Stale)?.disk.flush(&c).wait().await.map_err(of_disk)
    }

    /// Zeroes a range of the data: whole blocks are discarded.
    pub(super) async fn zero(&self, c: &Ctx, range: Range<u64>) -> VfsResult<()> {
        let inside = || range.start..range.end.min(self.length());
        let at = inside();
        if at.is_empty() {
            return Ok(());
        }
        if !at.start.is_multiple_of(BLOCK) || !at.end.is_multiple_of(BLOCK) {
            let (disk, at) = (self.disk.write().await, inside());
            let middle = at.start.next_multiple_of(BLOCK).min(at.end);
            let edges = [at.start..middle, (at.end / BLOCK * BLOCK).max(middle)..at.end];
            for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
                let zeros = vec![0; (edge.end - edge.start) as usize];
                self.patch(c, &disk, edge, [IoBuf::from(zeros)].into_iter().collect()).await?;
            }
        }
        let (disk, at) = (self.disk.read().await, inside());
        let (first, end) = (at.start.next_multiple_of(BLOCK), at.end / BLOCK * BLOCK);
        if first < end {
            let open = disk.as_ref().ok_or(VfsError::Stale)?;
            open.disk.discard(c, first, end - first).wait().await.map_err(of_disk)?;
        }
        self.wrote(0);
        Ok(())
    }

    /// The ranges that have data, at most `limit`.
    pub(super) async fn allocated(
        &self,
        c: &Ctx,
        form: Form,
        range: Range<u64>,
        limit: usize,
    ) -> VfsResult<Vec<Range<u64>>> {
        let disk = self.disk.read().await;
        let (open, length) = (disk.as_ref().ok_or(VfsError::Stale)?, self.length());
        let (first, end) = (range.start / BLOCK * BLOCK, range.end.min(length).next_multiple_of(BLOCK));
        let mut found = Vec::new();
        if first < end {
            found = open.disk.allocated(c, first, end - first).wait().await.map_err(of_disk)?;
        }
        if form == Form::Vhd {
            disk::append(&mut found, length..length + FOOTER);
        }
        let cut = found.into_iter().map(|r| r.start.max(range.start)..r.end.min(range.end));
        Ok(cut.filter(|r| r.start < r.end).take(limit).collect())
    }

    /// Destroys the virtual disk; its opens fail from then on.
    pub(super) async fn remove(self: Arc<File>) -> VfsResult<()> {
        let (env, file) = (self.env.clone(), self);
        env.run(async move {
            let mut disk = file.disk.write().await;
            *disk = None; // the guard of an open disk would prevent the removal
            let removed = file.disks.remove(file.number).await;
            if removed.is_err() {
                *disk = file.disks.open(file.number).ok();
            }
            removed
        })
        .await
    }
}

fn of_disk(error: DiskError) -> VfsError {
    match error {
        DiskError::ReadOnly { .. } => VfsError::ReadOnly,
        DiskError::Full { .. } => VfsError::NoSpace,
        DiskError::Timeout { .. } => VfsError::Cancelled,
        DiskError::Gone { .. } | DiskError::Fenced { .. } => VfsError::Io(libc::ENODEV),
        misuse if misuse.is_misuse() => VfsError::InvalidArgument,
        _ => VfsError::Io(libc::EIO),
    }
}
