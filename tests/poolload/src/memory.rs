//! A disk in memory that completes each I/O immediately, so that a load measures only the software. Each 64
//! KiB have their own lock: threads that use different parts do not wait for each other.

use arena::{Sg, SgMut, sg_len};
use disk::{Callback, Disk, DiskError, DiskInfo, MemoryOptions, Read, Written};
use env::{Ctx, Epoch, Io};
use parking_lot::RwLock;

const PART: usize = 64 << 10;

/// See the module.
pub struct Memory {
    info: DiskInfo,
    parts: Vec<RwLock<Box<[u8]>>>,
}

impl Memory {
    /// A disk of `bytes` zero bytes.
    pub fn new(bytes: u64) -> Memory {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let serial = format!("memory-{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let parts = (0..bytes.div_ceil(PART as u64)).map(|_| RwLock::new(vec![0; PART].into())).collect();
        Memory { info: MemoryOptions::new(serial, bytes).info(), parts }
    }

    /// Splits a range at the parts of the disk. Calls `f` with each part, the offset in it, and the offset in
    /// the range.
    fn each(
        &self,
        offset: u64,
        length: usize,
        mut f: impl FnMut(&RwLock<Box<[u8]>>, usize, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < length {
            let at = offset as usize + done;
            let here = (PART - at % PART).min(length - done);
            f(&self.parts[at / PART], at % PART, done..done + here);
            done += here;
        }
    }
}

impl Disk for Memory {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, _: &Ctx, offset: u64, mut dst: SgMut) -> Io<Read> {
        let mut at = offset;
        for buffer in &mut dst {
            let length = buffer.len();
            let bytes = buffer.filled_mut();
            self.each(at, length, |part, from, range| {
                let size = range.len();
                bytes[range].copy_from_slice(&part.read()[from..from + size]);
            });
            at += length as u64;
        }
        Io::Done((Ok(()), dst))
    }

    fn read_then(&self, c: &Ctx, offset: u64, dst: SgMut, then: Callback<Read>) {
        then.complete_with(self.read(c, offset, dst));
    }

    fn write(&self, _: &Ctx, offset: u64, src: Sg) -> Io<Written> {
        debug_assert!(offset + sg_len(&src) as u64 <= self.info.geometry.size);
        let mut at = offset;
        for buffer in &src {
            self.each(at, buffer.len(), |part, from, range| {
                let size = range.len();
                part.write()[from..from + size].copy_from_slice(&buffer[range]);
            });
            at += buffer.len() as u64;
        }
        Io::Done(Ok(()))
    }

    fn write_then(&self, c: &Ctx, offset: u64, src: Sg, then: Callback<Written>) {
        then.complete_with(self.write(c, offset, src));
    }

    fn flush(&self, _: &Ctx) -> Io<Result<(), DiskError>> {
        Io::Done(Ok(()))
    }

    fn discard(&self, _: &Ctx, _: u64, _: u64) -> Io<Result<(), DiskError>> {
        Io::Done(Ok(()))
    }

    fn fence(&self, _: &Ctx, _: Epoch) -> Io<Result<(), DiskError>> {
        Io::Done(Ok(()))
    }
}
