//! Virtual disks in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arena::{Sg, SgMut, sg_len, sg_to_vec};
use disk::{Disk, DiskError, DiskId, DiskInfo, Geometry, IdKind, IoRange, Layout, Media, Op, WriteCache};
use env::{BoxFuture, Ctx, Epoch, Io};
use parking_lot::Mutex;

use super::super::{BLOCK, OpenDisk, VirtualDisk, VirtualDisks};
use crate::{Space, VfsError, VfsResult};

/// The step by which a virtual disk grows.
pub(super) const STEP: u64 = 64 << 10;

/// A pool.
#[derive(Default)]
pub(super) struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    disks: BTreeMap<u64, Entry>,
    resizes: usize,
    /// Every change fails.
    broken: bool,
}

struct Entry {
    name: String,
    data: Arc<Mutex<Bytes>>,
    in_use: Arc<()>,
}

#[derive(Default)]
struct Bytes {
    all: Vec<u8>,
    written: BTreeSet<u64>,
    /// Numbers of writes, discards, flushes, and write-through writes (which count as writes too).
    calls: [usize; 4],
}

struct Handle {
    info: DiskInfo,
    data: Arc<Mutex<Bytes>>,
}

impl Memory {
    pub(super) fn resizes(&self) -> usize {
        self.state.lock().resizes
    }

    pub(super) fn size(&self, name: &str) -> u64 {
        let all = self.list().expect("it is open");
        all.into_iter().find(|d| d.name == name).expect("it is there").size
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        let entry = state.disks.values().find(|e| e.name == name).expect("it is there");
        entry.data.lock().all.clone()
    }

    pub(super) fn calls(&self, name: &str) -> [usize; 4] {
        let state = self.state.lock();
        let entry = state.disks.values().find(|e| e.name == name).expect("it is there");
        entry.data.lock().calls
    }

    pub(super) fn set_broken(&self, broken: bool) {
        self.state.lock().broken = broken;
    }

    fn change<T>(&self, work: impl FnOnce(&mut State) -> VfsResult<T>) -> VfsResult<T> {
        let mut state = self.state.lock();
        if state.broken { Err(VfsError::Io(libc::ENODEV)) } else { work(&mut state) }
    }
}

fn describe(number: u64, entry: &Entry) -> VirtualDisk {
    let data = entry.data.lock();
    let allocated = data.written.len() as u64 * BLOCK;
    VirtualDisk { number, name: entry.name.clone(), size: data.all.len() as u64, allocated }
}

fn done<T: Send + 'static>(result: VfsResult<T>) -> BoxFuture<VfsResult<T>> {
    Box::pin(async {
        tokio::task::yield_now().await; // like a call that waits
        result
    })
}

impl VirtualDisks for Memory {
    fn list(&self) -> VfsResult<Vec<VirtualDisk>> {
        self.change(|s| Ok(s.disks.iter().map(|(number, entry)| describe(*number, entry)).collect()))
    }

    fn get(&self, number: u64) -> VfsResult<VirtualDisk> {
        self.change(|s| s.disks.get(&number).map(|e| describe(number, e)).ok_or(VfsError::Stale))
    }

    fn space(&self) -> VfsResult<Space> {
        Ok(Space { total: 1 << 30, free: 1 << 29, available: 1 << 29 })
    }

    fn create(&self, name: String) -> BoxFuture<VfsResult<VirtualDisk>> {
        done(self.change(|s| {
            if s.disks.values().any(|e| e.name == name) {
                return Err(VfsError::Exists);
            }
            let number = s.next;
            s.next += 1;
            let entry = Entry { name, data: Arc::default(), in_use: Arc::default() };
            let made = describe(number, &entry);
            s.disks.insert(number, entry);
            Ok(made)
        }))
    }

    fn open(&self, number: u64) -> VfsResult<OpenDisk> {
        self.change(|s| {
            let entry = s.disks.get(&number).ok_or(VfsError::Stale)?;
            let size = entry.data.lock().all.len() as u64;
            let disk = Arc::new(Handle { info: info(size), data: Arc::clone(&entry.data) });
            Ok(OpenDisk { disk, guard: Box::new(Arc::clone(&entry.in_use)) })
        })
    }

    fn resize(&self, number: u64, size: u64) -> BoxFuture<VfsResult<()>> {
        done(self.change(|s| {
            s.resizes += 1;
            let entry = s.disks.get(&number).ok_or(VfsError::Stale)?;
            let mut data = entry.data.lock();
            data.all.resize(usize::try_from(size).map_err(|_| VfsError::TooLarge)?, 0);
            data.written.retain(|at| *at < size);
            Ok(())
        }))
    }

    fn rename(&self, number: u64, name: String) -> BoxFuture<VfsResult<()>> {
        done(self.change(|s| {
            if s.disks.values().any(|e| e.name == name) {
                return Err(VfsError::Exists);
            }
            s.disks.get_mut(&number).ok_or(VfsError::Stale)?.name = name;
            Ok(())
        }))
    }

    fn remove(&self, number: u64) -> BoxFuture<VfsResult<()>> {
        done(self.change(|s| {
            let entry = s.disks.get(&number).ok_or(VfsError::Stale)?;
            if Arc::strong_count(&entry.in_use) > 1 {
                return Err(VfsError::Busy);
            }
            s.disks.remove(&number);
            Ok(())
        }))
    }
}

fn info(size: u64) -> DiskInfo {
    let block = BLOCK as u32;
    DiskInfo {
        id: DiskId { kind: IdKind::File, value: "memory".into() },
        path: "memory".into(),
        model: String::new(),
        serial: String::new(),
        firmware: String::new(),
        geometry: Geometry {
            size,
            logical_block: block,
            physical_block: block,
            atomic_write: block,
            dma_alignment: block,
        },
        media: Media::Unspecified,
        rotational: false,
        removable: false,
        enclosure: None,
        queue_depth: 1,
        write_cache: WriteCache::Volatile,
        layout: Some(Layout { stripe: BLOCK, row: STEP, failures: 1 }),
    }
}

impl Disk for Handle {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, _: &Ctx, offset: u64, mut dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let length: u64 = dst.iter().map(|b| b.len() as u64).sum();
        if let Err(e) = self.info.geometry.check(IoRange::new(Op::Read, offset, length)) {
            return Io::Done((Err(e), dst));
        }
        let (data, mut at) = (self.data.lock(), offset as usize);
        for b in &mut dst {
            let n = b.len();
            b.filled_mut().copy_from_slice(&data.all[at..at + n]);
            at += n;
        }
        drop(data);
        // Other tasks run between a read and the write that follows it.
        Io::pending(async move {
            tokio::task::yield_now().await;
            (Ok(()), dst)
        })
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        let length = sg_len(&src) as u64;
        if let Err(e) = self.info.geometry.check(IoRange::new(Op::Write, offset, length)) {
            return Io::Done(Err(e));
        }
        let mut data = self.data.lock();
        data.all[offset as usize..(offset + length) as usize].copy_from_slice(&sg_to_vec(&src));
        data.written.extend((offset..offset + length).step_by(BLOCK as usize));
        data.calls[0] += 1;
        data.calls[3] += usize::from(c.flags.write_through);
        Io::Done(Ok(()))
    }

    fn flush(&self, _: &Ctx) -> Io<Result<(), DiskError>> {
        self.data.lock().calls[2] += 1;
        Io::Done(Ok(()))
    }

    fn discard(&self, _: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        if let Err(e) = self.info.geometry.check(IoRange::new(Op::Discard, offset, length)) {
            return Io::Done(Err(e));
        }
        let mut data = self.data.lock();
        data.all[offset as usize..(offset + length) as usize].fill(0);
        data.written.retain(|at| !(offset..offset + length).contains(at));
        data.calls[1] += 1;
        Io::Done(Ok(()))
    }

    fn fence(&self, _: &Ctx, _: Epoch) -> Io<Result<(), DiskError>> {
        Io::Done(Ok(()))
    }

    fn allocated(&self, _: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        if let Err(e) = self.info.geometry.check(IoRange::new(Op::Check, offset, length)) {
            return Io::Done(Err(e));
        }
        let mut found = Vec::new();
        for at in self.data.lock().written.range(offset..offset + length) {
            disk::append(&mut found, *at..*at + BLOCK);
        }
        Io::Done(Ok(found))
    }
}
