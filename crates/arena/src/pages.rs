//! Ordinary memory that is aligned for direct I/O.

use std::ops::{Deref, DerefMut};

use crate::CHUNK_MIN;

/// Page-aligned bytes outside the arena's budget, zeroed or copied; disks take them without another copy. For
/// computed data such as parity; payload is received and read into the arena.
pub struct Pages {
    pages: Box<[Page]>,
    len: usize,
}

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; CHUNK_MIN]);

impl Pages {
    /// `len` zero bytes.
    pub fn zeros(len: usize) -> Pages {
        Pages { pages: vec![Page([0; CHUNK_MIN]); len.div_ceil(CHUNK_MIN)].into_boxed_slice(), len }
    }

    /// A copy of `pieces`, concatenated.
    pub fn copied<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Pages {
        let mut pages = Pages::zeros(pieces.clone().map(<[u8]>::len).sum());
        let mut left = &mut *pages;
        for piece in pieces {
            left.split_off_mut(..piece.len()).expect("as long as the pieces").copy_from_slice(piece);
        }
        pages
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are initialised, contiguous, and at least `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoBuf;

    #[test]
    fn pieces_are_copied_to_whole_pages() {
        let pieces: [&[u8]; 4] = [&[1; 5000], &[], &[2; 3], &[3; 4096]];
        let mut pages = Pages::copied(pieces.iter().copied());
        assert_eq!(pages[..], pieces.concat());
        pages[4999] = 9;
        let at = pages.as_ptr().addr();
        assert!(at.is_multiple_of(CHUNK_MIN));
        let mut bytes = IoBuf::from(pages);
        assert_eq!((bytes.as_ptr().addr(), bytes.len()), (at, 9099));
        assert_eq!(bytes[4998..5001], [1, 9, 2]);
        bytes.get_mut().expect("the only owner")[0] = 7;
        let part = bytes.slice(0..2);
        assert!(bytes.get_mut().is_none());
        drop(bytes);
        assert_eq!(part[..], [7, 1]);
        assert!(Pages::zeros(0).is_empty());
    }
}
