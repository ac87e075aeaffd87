//! Memory for I/O by the kernel: page-aligned mappings, with large pages on request.
//!
//! **Unsafe.** This module owns the mapping. It hands out slices under the borrow rules, or a raw pointer for
//! the kernel to `local`, which states when its use is sound.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::random::Random;
use crate::profile::Content;

/// The size of a large page, in bytes.
const LARGE_PAGE: usize = 2 << 20;

/// A mapping.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    /// Length in bytes.
    length: usize,
    mapped: usize,
}

// SAFETY: the mapping is owned like the memory of a Vec; `&Memory` only reads it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `length` zero bytes.
    ///
    /// # Errors
    /// The system's error: no memory, or no large pages.
    pub fn new(length: usize, large_pages: bool) -> io::Result<Memory> {
        let (unit, flags) = if large_pages {
            (LARGE_PAGE, MapFlags::HUGETLB | MapFlags::POPULATE)
        } else {
            (4096, MapFlags::empty())
        };
        let mapped = length.max(1).checked_next_multiple_of(unit).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel chooses the address of the new private mapping, so no existing memory is
        // affected.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | flags,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory { start, length, mapped })
    }

    /// The source of constant writes of `block` bytes.
    ///
    /// # Errors
    /// The system's error, or that of the file with the content.
    pub fn source(
        content: &Content,
        block: u32,
        random: &mut Random,
        large_pages: bool,
    ) -> io::Result<Memory> {
        let size = match content {
            Content::Buffer { size, .. } => usize::try_from(*size).map_err(|_| io::ErrorKind::OutOfMemory)?,
            _ => block as usize,
        };
        let mut memory = Memory::new(size, large_pages)?;
        match content {
            Content::Zero => {}
            Content::Sequential => {
                for (byte, n) in memory.bytes_mut().iter_mut().zip((0..=255u8).cycle()) {
                    *byte = n;
                }
            }
            Content::Buffer { file: None, .. } => random.fill(memory.bytes_mut()),
            Content::Buffer { file: Some(path), .. } => fill_from(path, memory.bytes_mut())?,
        }
        Ok(memory)
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes from `start` are mapped and initialised for the lifetime of self. Only
        // `bytes_mut` writes them, or the kernel while no slice of that part exists (see `local::ring`).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// All bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// The start address.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` and `mapped` describe a mapping that this value owns, and no slice outlives it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

/// Fills `out` from a file, repeating a shorter file.
fn fill_from(path: &str, out: &mut [u8]) -> io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let mut filled = 0;
    while filled < out.len() {
        match io::Read::read(&mut file, &mut out[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    if filled == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    while filled < out.len() {
        let n = filled.min(out.len() - filled);
        out.copy_within(..n, filled);
        filled += n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents() {
        let mut random = Random::new(1);
        let mut make = |content| Memory::source(&content, 1000, &mut random, false).expect("memory");
        assert_eq!(make(Content::Sequential).bytes()[254..258], [254, 255, 0, 1]);
        assert!(make(Content::Zero).bytes().iter().all(|b| *b == 0));
        let buffer = make(Content::Buffer { size: 5000, file: None });
        assert_eq!(buffer.bytes().len(), 5000);
        assert_ne!(buffer.bytes()[..8], buffer.bytes()[8..16]);
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
        let mut out = [0; 40];
        fill_from("/proc/version", &mut out[..5]).expect("readable");
        assert_eq!(&out[..5], b"Linux");
        assert!(fill_from("/dev/null", &mut out).is_err());
    }
}
