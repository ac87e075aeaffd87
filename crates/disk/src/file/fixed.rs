//! Registered buffers: the arena's memory is registered with a ring, piece by piece.
//!
//! The kernel pins the pages of a registered buffer once, instead of looking them up for each I/O. A piece is
//! registered when an I/O first uses it. The arena reuses the most recently freed memory, so an idle server
//! has few pages pinned, and a busy one as many as it uses.
//!
//! **Unsafe** in one call: registered memory must stay mapped until the ring is closed, which
//! [`Ring`](super::ring) ensures.
#![allow(unsafe_code)]

use std::io;

use arena::Arena;
use io_uring::Submitter;

use super::FixedBuffers;

/// The minimum length of a piece, in bytes: longer than any chunk of the arena, and a multiple of the
/// processor's large page.
const PIECE_MIN: usize = 4 << 20;
/// The kernel's maximum number of registered buffers per ring.
const PIECES_MAX: usize = 1 << 14;

/// See the module.
pub(super) struct Fixed {
    arena: Arena,
    /// Bytes of a piece, except for the last one.
    piece: usize,
    registered: Vec<bool>,
    bytes: usize,
    /// The kernel's errno after it refused to register more.
    refused: Option<i32>,
}

impl Fixed {
    /// Reserves the ring's buffer table; no memory is registered yet.
    pub(super) fn new(arena: Arena, ring: &Submitter<'_>) -> Fixed {
        let (_, bytes) = arena.mapping();
        let piece = bytes.div_ceil(PIECES_MAX).next_power_of_two().max(PIECE_MIN);
        let pieces = bytes.div_ceil(piece);
        let mut fixed = Fixed { arena, piece, registered: vec![false; pieces], bytes: 0, refused: None };
        if let Err(e) = ring.register_buffers_sparse(pieces as u32) {
            fixed.refuse(&e);
        }
        fixed
    }

    /// The index of the piece that contains an address range, registered on first use. Returns `None` if no
    /// single piece contains the range or registration failed.
    ///
    /// # Safety
    /// The caller must keep the arena mapped until the ring is closed.
    pub(super) unsafe fn index(&mut self, range: &libc::iovec, ring: &Submitter<'_>) -> Option<u16> {
        let (base, bytes) = self.arena.mapping();
        let start = range.iov_base.addr().checked_sub(base.addr().get())?;
        let last = start.checked_add(range.iov_len)?.checked_sub(1)?;
        let (index, at) = (start / self.piece, start / self.piece * self.piece);
        if last >= bytes || index != last / self.piece {
            return None;
        }
        if !self.registered[index] {
            if self.refused.is_some() {
                return None;
            }
            let length = self.piece.min(bytes - at);
            let piece = libc::iovec { iov_base: base.as_ptr().wrapping_add(at).cast(), iov_len: length };
            // SAFETY: the caller keeps the memory mapped until the ring is closed.
            if let Err(e) = unsafe { ring.register_buffers_update(index as u32, &[piece], None) } {
                self.refuse(&e);
                return None;
            }
            self.registered[index] = true;
            self.bytes += length;
        }
        Some(index as u16)
    }

    /// Records the error. I/O continues with unregistered buffers.
    fn refuse(&mut self, error: &io::Error) {
        self.refused = Some(error.raw_os_error().unwrap_or(0));
        tracing::info!(buffers = %self.state(), "some I/O buffers are not registered with the kernel: I/O costs more processor time");
    }

    pub(super) fn state(&self) -> FixedBuffers {
        match self.refused {
            None => FixedBuffers::Registered { bytes: self.bytes },
            Some(errno) => FixedBuffers::Refused { bytes: self.bytes, errno },
        }
    }
}
