//! An open virtual disk, shared by all nodes of both its forms.
//!
//! Invariants:
//! 1. `length` is a multiple of [`BLOCK`] and at most the size of the disk; what is between the two reads as zeros.
//! 2. Under `disk` for writing nothing else is read or written: lengths and parts of blocks change there only.
//! 3. Memory is waited for before `disk`, never under it: who waits for `disk` may hold the memory.

use std::ops::Range;
use std::sync::Arc;

use arena::{Arena, Class, IoBuf, Sg, SgMut, sg_len, sg_slice, sg_to_vec};
use disk::{DiskError, IO_MAX, sized};
use env::{Ctx, Env};
use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockWriteGuard};

use super::vhd::{FOOTER, footer};
use super::{BLOCK, Form, OpenDisk, VirtualDisks, now};
use crate::{Attributes, FileKey, Timestamp, VfsError, VfsResult};

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;

/// What is known of a file beside its data.
pub(super) struct Meta {
    pub(super) created: Timestamp,
    pub(super) accessed: Timestamp,
    pub(super) written: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) attributes: Attributes,
    /// Of an open one: bytes of data.
    pub(super) length: u64,
    /// The footer that a client wrote behind this length.
    footer: Option<Footer>,
}

type Footer = Box<[u8; FOOTER as usize]>;

impl Meta {
    pub(super) fn new(now: Timestamp) -> Arc<Mutex<Meta>> {
        Arc::new(Mutex::new(Meta {
            created: now,
            accessed: now,
            written: now,
            changed: now,
            attributes: Attributes::ARCHIVE,
            length: 0,
            footer: None,
        }))
    }
}

pub(super) struct File {
    env: Env,
    arena: Arena,
    disks: Arc<dyn VirtualDisks>,
    id: FileKey,
    pub(super) number: u64,
    pub(super) meta: Arc<Mutex<Meta>>,
    /// `None` once it was removed.
    disk: RwLock<Option<OpenDisk>>,
}

type Exclusive<'a> = RwLockWriteGuard<'a, Option<OpenDisk>>;

impl File {
    pub(super) fn open(
        env: Env,
        arena: Arena,
        disks: Arc<dyn VirtualDisks>,
        id: FileKey,
        number: u64,
        meta: Arc<Mutex<Meta>>,
    ) -> VfsResult<Arc<File>> {
        let open = disks.open(number)?;
        {
            let (mut meta, size) = (meta.lock(), open.disk.info().geometry.size);
            if meta.length != size {
                // Changed while it was closed, or never seen.
                (meta.length, meta.footer) = (size, None);
            }
        }
        Ok(Arc::new(File { env, arena, disks, id, number, meta, disk: RwLock::new(Some(open)) }))
    }

    fn length(&self) -> u64 {
        self.meta.lock().length
    }

    fn wrote(&self, end: u64) {
        let mut meta = self.meta.lock();
        if end > meta.length {
            // A footer that a client wrote was for the length before.
            (meta.length, meta.footer) = (end, None);
        }
        let now = now(&self.env);
        (meta.written, meta.changed) = (now, now);
    }

    /// The client's footer, else one that is made now.
    fn footer_now(&self) -> [u8; FOOTER as usize] {
        let meta = self.meta.lock();
        meta.footer.as_ref().map_or_else(|| footer(self.id, meta.length), |kept| **kept)
    }

    /// Reads up to `length` bytes; fewer at the end.
    pub(super) async fn read(&self, c: &Ctx, form: Form, offset: u64, length: u64) -> VfsResult<Sg> {
        let wanted = |data: u64| offset..offset.saturating_add(length).min(data).max(offset);
        let around = |r: &Range<u64>| r.start / BLOCK * BLOCK..r.end.next_multiple_of(BLOCK);
        let space = around(&wanted(self.length()));
        let space = (space.end - space.start) as usize;
        if space > self.arena.budget() / 2 {
            return Err(VfsError::NoMemory);
        }
        let memory = if space > 0 { self.arena.alloc_sg(space, Class::Payload).await } else { SgMut::new() };
        let disk = self.disk.read().await;
        let open = disk.as_ref().ok_or(VfsError::Stale)?;
        let data = self.length();
        let mut inside = wanted(data);
        // It became longer while memory was waited for.
        inside.end = inside.end.min(inside.start / BLOCK * BLOCK + space as u64).max(inside.start);
        let mut out = Sg::new();
        if !inside.is_empty() {
            let blocks = around(&inside);
            let memory = sized(memory, (blocks.end - blocks.start) as usize);
            let (result, memory) = open.disk.read(c, blocks.start, memory).wait().await;
            result.map_err(of_disk)?;
            let all: Sg = memory.into_iter().map(|b| b.freeze()).collect();
            let skip = (inside.start - blocks.start) as usize;
            out = sg_slice(&all, skip, (inside.end - inside.start) as usize);
        }
        let end = offset.saturating_add(length).min(data + form.footer());
        let from = inside.end.max(data).max(offset);
        if inside.end.max(offset) >= data && from < end {
            let part = (from - data) as usize..(end - data) as usize;
            out.push(IoBuf::short(&self.footer_now()[part]));
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
        if offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK) {
            let disk = self.disk.read().await;
            let open = disk.as_ref().ok_or(VfsError::Stale)?;
            // Behind the data of a VHD the length decides what a write means.
            let most = if form == Form::Vhd { self.length() } else { open.disk.info().geometry.size };
            if end <= most {
                write_long(&c, open, offset, &src).await?;
                self.wrote(end);
                return Ok(length);
            }
        }
        // A growth must not be left half known: it goes on without its caller.
        let (env, file) = (self.env.clone(), self);
        env.run(async move { file.write_exclusively(&c, form, offset..end, &src).await }).await?;
        Ok(length)
    }

    async fn write_exclusively(&self, c: &Ctx, form: Form, at: Range<u64>, src: &Sg) -> VfsResult<()> {
        let mut edges = self.edges().await;
        let mut disk = self.disk.write().await;
        let length = self.length();
        if form == Form::Vhd && at.end > length + FOOTER {
            let grown = match at.end % BLOCK {
                FOOTER => at.end - FOOTER,
                _ => at.end.next_multiple_of(BLOCK),
            };
            self.grow(&mut disk, grown).await?;
            // The bytes of a footer that a client wrote are where it wrote them.
            let kept = self.meta.lock().footer.take();
            if let Some(kept) = kept {
                let kept = [IoBuf::short(&*kept)].into_iter().collect();
                edges = self.patch(c, &disk, length..length + FOOTER, &kept, edges).await?;
            }
            self.wrote(grown);
        } else if form == Form::Raw && at.end > length {
            self.grow(&mut disk, at.end.next_multiple_of(BLOCK)).await?;
            self.wrote(at.end.next_multiple_of(BLOCK));
        }
        let length = self.length();
        let inside = at.start.min(length)..at.end.min(length);
        if !inside.is_empty() {
            let part = sg_slice(src, 0, (inside.end - inside.start) as usize);
            self.patch(c, &disk, inside.clone(), &part, edges).await?;
        }
        if at.end > length {
            let first = at.start.max(length);
            let bytes = sg_to_vec(&sg_slice(src, (first - at.start) as usize, (at.end - first) as usize));
            let from = (first - length) as usize;
            let mut whole = self.footer_now();
            whole[from..from + bytes.len()].copy_from_slice(&bytes);
            self.meta.lock().footer = Some(Box::new(whole));
        }
        self.wrote(0);
        Ok(())
    }

    /// Memory for the first and the last block of a write of parts.
    async fn edges(&self) -> [SgMut; 2] {
        let first = self.arena.alloc_sg(BLOCK as usize, Class::Control).await;
        [first, self.arena.alloc_sg(BLOCK as usize, Class::Control).await]
    }

    /// Writes bytes inside the file; the blocks that they begin and end in are read first.
    async fn patch(
        &self,
        c: &Ctx,
        disk: &Exclusive<'_>,
        at: Range<u64>,
        src: &Sg,
        edges: [SgMut; 2],
    ) -> VfsResult<[SgMut; 2]> {
        let open = disk.as_ref().ok_or(VfsError::Stale)?;
        let (first, last) = (at.start / BLOCK * BLOCK, (at.end - 1) / BLOCK * BLOCK);
        let read = async |block: u64, memory: SgMut| {
            let (result, memory) = open.disk.read(c, block, sized(memory, BLOCK as usize)).wait().await;
            let bytes: Vec<u8> = memory.iter().flat_map(|b| b.to_vec()).collect();
            result.map(|()| (bytes, memory)).map_err(of_disk)
        };
        let [head, tail] = edges;
        let (mut all, mut memory) = (Sg::new(), [head, tail]);
        if at.start > first {
            let (bytes, back) = read(first, std::mem::take(&mut memory[0])).await?;
            all.push(IoBuf::from(bytes[..(at.start - first) as usize].to_vec()));
            memory[0] = back;
        }
        all.extend(src.iter().cloned());
        if at.end < last + BLOCK {
            let (bytes, back) = read(last, std::mem::take(&mut memory[1])).await?;
            all.push(IoBuf::from(bytes[(at.end - last) as usize..].to_vec()));
            memory[1] = back;
        }
        write_long(c, open, first, &all).await?;
        Ok(memory)
    }

    /// Makes the disk at least so long, by whole steps.
    async fn grow(&self, disk: &mut Exclusive<'_>, length: u64) -> VfsResult<()> {
        let open = disk.as_ref().ok_or(VfsError::Stale)?;
        if length <= open.disk.info().geometry.size {
            return Ok(());
        }
        let steps = length.checked_next_multiple_of(open.step.max(BLOCK)).filter(|s| *s <= SIZE_MAX);
        self.resize(disk, steps.ok_or(VfsError::TooLarge)?).await
    }

    async fn resize(&self, disk: &mut Exclusive<'_>, size: u64) -> VfsResult<()> {
        self.disks.resize(self.number, size).await?;
        // The new one first: there is a guard all the time.
        **disk = Some(self.disks.open(self.number)?);
        Ok(())
    }

    /// Sets the number of bytes of the file in this form.
    pub(super) async fn set_len(self: Arc<File>, form: Form, length: u64) -> VfsResult<()> {
        if length > SIZE_MAX {
            return Err(VfsError::TooLarge);
        }
        let data = match length {
            0 => 0, // what a client does before it writes the file anew
            n => n.checked_sub(form.footer()).ok_or(VfsError::InvalidArgument)?,
        };
        if !data.is_multiple_of(BLOCK) {
            return Err(VfsError::InvalidArgument);
        }
        let (env, file) = (self.env.clone(), self);
        env.run(async move {
            let edges = file.edges().await;
            let mut disk = file.disk.write().await;
            let open = disk.as_ref().ok_or(VfsError::Stale)?;
            let before = file.length();
            if open.disk.info().geometry.size != data {
                file.resize(&mut disk, data).await?;
            }
            let kept = (data != before).then(|| file.meta.lock().footer.take()).flatten();
            if let Some(kept) = kept.filter(|_| form == Form::Vhd && data > before) {
                let kept = [IoBuf::short(&*kept)].into_iter().collect();
                file.patch(&Ctx::default(), &disk, before..before + FOOTER, &kept, edges).await?;
            }
            file.meta.lock().length = data;
            file.wrote(0);
            Ok(())
        })
        .await
    }

    /// Gives the disk the length of the file, where writes made it longer.
    pub(super) async fn settle(self: Arc<File>) -> VfsResult<()> {
        let longer = |open: &OpenDisk, file: &File| open.disk.info().geometry.size > file.length();
        if !self.disk.read().await.as_ref().is_some_and(|open| longer(open, &self)) {
            return Ok(());
        }
        let (env, file) = (self.env.clone(), self);
        env.run(async move {
            let mut disk = file.disk.write().await;
            match disk.as_ref() {
                Some(open) if longer(open, &file) => file.resize(&mut disk, file.length()).await,
                _ => Ok(()),
            }
        })
        .await
    }

    pub(super) async fn flush(self: Arc<File>, c: Ctx) -> VfsResult<()> {
        Arc::clone(&self).settle().await?;
        let disk = self.disk.read().await;
        disk.as_ref().ok_or(VfsError::Stale)?.disk.flush(&c).wait().await.map_err(of_disk)
    }

    /// Makes a range of the data zeros.
    pub(super) async fn zero(self: Arc<File>, c: Ctx, range: Range<u64>) -> VfsResult<()> {
        let inside = |file: &File| range.start..range.end.min(file.length());
        let whole = inside(&self);
        if whole.is_empty() {
            return Ok(());
        }
        if whole.start.is_multiple_of(BLOCK) && whole.end.is_multiple_of(BLOCK) {
            let disk = self.disk.read().await;
            let open = disk.as_ref().ok_or(VfsError::Stale)?;
            let whole = inside(&self);
            if whole.is_empty() {
                return Ok(());
            }
            open.disk.discard(&c, whole.start, whole.end - whole.start).wait().await.map_err(of_disk)?;
            self.wrote(0);
            return Ok(());
        }
        let mut edges = self.edges().await;
        let disk = self.disk.write().await;
        let whole = inside(&self);
        let middle = whole.start.next_multiple_of(BLOCK)..whole.end / BLOCK * BLOCK;
        let parts = match middle.start <= middle.end {
            true => [whole.start..middle.start, middle.end..whole.end],
            false => [whole.clone(), 0..0],
        };
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let zeros = [IoBuf::from(vec![0; (part.end - part.start) as usize])].into_iter().collect();
            edges = self.patch(&c, &disk, part, &zeros, edges).await?;
        }
        if middle.start < middle.end {
            let open = disk.as_ref().ok_or(VfsError::Stale)?;
            open.disk.discard(&c, middle.start, middle.end - middle.start).wait().await.map_err(of_disk)?;
        }
        self.wrote(0);
        Ok(())
    }

    /// The ranges that have data.
    pub(super) async fn allocated(
        &self,
        c: &Ctx,
        form: Form,
        range: Range<u64>,
        limit: usize,
    ) -> VfsResult<Vec<Range<u64>>> {
        let disk = self.disk.read().await;
        let open = disk.as_ref().ok_or(VfsError::Stale)?;
        let length = self.length();
        let mut found = Vec::new();
        let inside = range.start / BLOCK * BLOCK..range.end.min(length);
        if inside.start < inside.end {
            let end = inside.end.next_multiple_of(BLOCK);
            found = open.disk.allocated(c, inside.start, end - inside.start).wait().await.map_err(of_disk)?;
        }
        if form == Form::Vhd {
            disk::append(&mut found, length..length + FOOTER);
        }
        let cut = found.into_iter().map(|r| r.start.max(range.start)..r.end.min(range.end));
        Ok(cut.filter(|r| r.start < r.end).take(limit).collect())
    }

    /// Destroys the virtual disk; what is open fails from then on.
    pub(super) async fn remove(self: Arc<File>) -> VfsResult<()> {
        let (env, file) = (self.env.clone(), self);
        env.run(async move {
            let mut disk = file.disk.write().await;
            *disk = None; // its guard would keep it
            let removed = file.disks.remove(file.number).await;
            if removed.is_err() {
                *disk = file.disks.open(file.number).ok();
            }
            removed
        })
        .await
    }
}

/// A write of any length.
async fn write_long(c: &Ctx, open: &OpenDisk, offset: u64, src: &Sg) -> VfsResult<()> {
    let (length, mut at) = (sg_len(src), 0);
    while at < length {
        let part = (length - at).min(IO_MAX as usize);
        let src = sg_slice(src, at, part);
        open.disk.write(c, offset + at as u64, src).wait().await.map_err(of_disk)?;
        at += part;
    }
    Ok(())
}

fn of_disk(error: DiskError) -> VfsError {
    match error {
        DiskError::Unaligned { .. } | DiskError::OutOfRange { .. } | DiskError::TooLong { .. } => {
            VfsError::InvalidArgument
        }
        DiskError::ReadOnly { .. } => VfsError::ReadOnly,
        DiskError::Full { .. } => VfsError::NoSpace,
        DiskError::Timeout { .. } => VfsError::Cancelled,
        DiskError::Gone { .. } | DiskError::Fenced { .. } => VfsError::Io(libc::ENODEV),
        DiskError::Medium { .. } => VfsError::Io(libc::EIO),
        DiskError::Refused { errno, .. } => VfsError::Io(errno),
    }
}
