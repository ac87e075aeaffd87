//! A disk in memory, with a volatile write cache and a power switch. Every call completes immediately.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arena::{Sg, SgMut, sg_len};
use env::{Ctx, Epoch, Io};
use parking_lot::Mutex;

use crate::store::{Change, Store};
use crate::{
    Disk, DiskError, DiskId, DiskInfo, Gate, Geometry, IdKind, Image, IoRange, Media, Op, PowerCut,
    WriteCache,
};

/// See the module. Dropping the last clone drops its contents; images from [`MemoryDisk::image`] remain.
pub struct MemoryDisk {
    info: DiskInfo,
    gate: Arc<Gate>,
    /// The medium, and the image of the surviving data. The first is `None` after a power cut.
    medium: Mutex<(Option<Store>, Image)>,
}

/// The properties of a simulated disk.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Its serial number, which is its identity.
    pub serial: String,
    /// In bytes.
    pub size: u64,
    /// See [`Geometry::logical_block`].
    pub logical_block: u32,
    /// See [`Geometry::atomic_write`].
    pub atomic_write: u32,
    /// Whether completed writes can be lost before a flush.
    pub volatile_cache: bool,
    /// See [`DiskInfo::media`].
    pub media: Media,
    /// See [`DiskInfo::enclosure`].
    pub enclosure: Option<crate::EnclosureSlot>,
}

impl MemoryOptions {
    /// A disk of `size` bytes with blocks and atomic units of 4 KiB and a volatile cache.
    pub fn new(serial: impl Into<String>, size: u64) -> MemoryOptions {
        MemoryOptions {
            serial: serial.into(),
            size,
            logical_block: 4096,
            atomic_write: 4096,
            volatile_cache: true,
            media: Media::Ssd,
            enclosure: None,
        }
    }

    /// The description of a disk with these properties.
    pub fn info(&self) -> DiskInfo {
        DiskInfo {
            id: DiskId { kind: IdKind::Serial, value: self.serial.clone() },
            path: PathBuf::from(format!("memory:{}", self.serial)),
            model: "memory".into(),
            serial: self.serial.clone(),
            firmware: String::new(),
            geometry: Geometry {
                size: self.size,
                logical_block: self.logical_block,
                physical_block: self.logical_block,
                atomic_write: self.atomic_write.max(self.logical_block),
                dma_alignment: 1,
            },
            media: self.media,
            rotational: self.media == Media::Hdd,
            removable: false,
            enclosure: self.enclosure.clone(),
            queue_depth: 1024,
            write_cache: if self.volatile_cache { WriteCache::Volatile } else { WriteCache::None },
            layout: None,
        }
    }
}

impl MemoryDisk {
    /// A new disk of zeros.
    pub fn new(options: &MemoryOptions) -> Arc<MemoryDisk> {
        MemoryDisk::with_image(options.info(), Image::new())
    }

    /// A disk with the durable content `image`.
    pub fn with_image(info: DiskInfo, image: Image) -> Arc<MemoryDisk> {
        let medium = Mutex::new((Some(Store::new(image)), Image::new()));
        Arc::new(MemoryDisk { info, gate: Arc::default(), medium })
    }

    /// Cuts the power: from now on every I/O fails with [`DiskError::Gone`].
    pub fn power_cut(&self, cut: PowerCut) {
        let mut medium = self.medium.lock();
        if let Some(store) = medium.0.take() {
            medium.1 = store.cut(&self.info.geometry, &[], cut);
        }
    }

    /// Reopens the disk with the data that survived. This handle stays unusable.
    pub fn restart(&self) -> Arc<MemoryDisk> {
        self.power_cut(PowerCut::KeepAll);
        MemoryDisk::with_image(self.info.clone(), self.medium.lock().1.clone())
    }

    /// The current contents; after a power cut, the surviving ones.
    pub fn image(&self) -> Image {
        let medium = self.medium.lock();
        medium.0.as_ref().map_or_else(|| medium.1.clone(), |store| store.current.clone())
    }

    fn with_store<T>(&self, c: &Ctx, at: IoRange, f: impl FnOnce(&mut Store) -> T) -> Result<T, DiskError> {
        self.info.geometry.check(at)?;
        let _pass = self.gate.enter(c, at)?;
        self.medium.lock().0.as_mut().map(f).ok_or(DiskError::Gone { at })
    }

    fn change(&self, c: &Ctx, at: IoRange, change: impl FnOnce() -> Arc<Change>) -> Result<(), DiskError> {
        let durable =
            self.info.write_cache == WriteCache::None || (c.flags.write_through && at.op == Op::Write);
        self.with_store(c, at, |s| s.apply(change(), durable))
    }
}

impl Disk for MemoryDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, c: &Ctx, offset: u64, mut dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let length = dst.iter().map(|b| b.len() as u64).sum();
        let result = self.with_store(c, IoRange::new(Op::Read, offset, length), |s| s.read(offset, &mut dst));
        Io::Done((result, dst))
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        Io::Done(self.change(c, at, || Change::write(offset, &src)))
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        Io::Done(self.with_store(c, IoRange::whole(Op::Flush), |s| s.flush(s.mark())))
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        Io::Done(self.change(c, IoRange::new(Op::Discard, offset, length), || Change::zeros(offset, length)))
    }

    fn fence(&self, _: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        if self.medium.lock().0.is_none() {
            return Io::Done(Err(DiskError::Gone { at: IoRange::whole(Op::Fence) }));
        }
        self.gate.fence(epoch)
    }

    fn allocated(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<Vec<Range<u64>>, DiskError>> {
        let at = IoRange::new(Op::Check, offset, length);
        Io::Done(self.with_store(c, at, |s| s.current.present(offset..offset + length)))
    }
}

#[cfg(test)]
mod tests;
