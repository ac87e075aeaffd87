//! Aligned memory for I/O whose own buffers are not: such an I/O is copied once, and counted.

/// One page, where O_DIRECT wants it.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; SIZE]);

const SIZE: usize = 4096;

/// As many bytes as were asked for, in whole pages.
pub(super) struct Pages(Box<[Page]>);

impl Pages {
    pub(super) fn new(length: usize) -> Pages {
        Pages(vec![Page([0; SIZE]); length.div_ceil(SIZE)].into_boxed_slice())
    }

    /// Where they begin.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// Copies pieces in, one after the other.
    pub(super) fn fill<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        let mut at = 0;
        for mut piece in pieces {
            while !piece.is_empty() {
                let n = piece.len().min(SIZE - at % SIZE);
                self.0[at / SIZE].0[at % SIZE..at % SIZE + n].copy_from_slice(&piece[..n]);
                piece = &piece[n..];
                at += n;
            }
        }
    }

    /// Copies them out into pieces, one after the other.
    pub(super) fn empty<'a>(&self, pieces: impl Iterator<Item = &'a mut [u8]>) {
        let mut at = 0;
        for piece in pieces {
            let mut done = 0;
            while done < piece.len() {
                let n = (piece.len() - done).min(SIZE - at % SIZE);
                piece[done..done + n].copy_from_slice(&self.0[at / SIZE].0[at % SIZE..at % SIZE + n]);
                done += n;
                at += n;
            }
        }
    }
}
