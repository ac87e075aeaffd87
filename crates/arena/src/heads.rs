//! Reusable vectors for message headers: each thread keeps some that were returned, so that a reply needs no
//! allocation.

use std::cell::RefCell;

/// Capacity of a header vector, in bytes: an SMB2 header and the fixed part of most bodies.
pub const HEAD_BYTES: usize = 192;
/// Maximum vectors kept per thread.
const SPARE_MAX: usize = 64;
/// Maximum capacity of a kept vector, in bytes; a larger one is freed.
const BYTES_MAX: usize = 512;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty vector with a capacity of at least [`HEAD_BYTES`].
pub fn take() -> Vec<u8> {
    let kept = SPARE.try_with(|kept| kept.try_borrow_mut().ok()?.pop()).ok().flatten();
    kept.unwrap_or_else(|| Vec::with_capacity(HEAD_BYTES))
}

/// Returns a vector for reuse.
pub fn give(mut head: Vec<u8>) {
    if !(HEAD_BYTES..=BYTES_MAX).contains(&head.capacity()) {
        return;
    }
    head.clear();
    let _ = SPARE.try_with(|kept| {
        if let Ok(mut kept) = kept.try_borrow_mut()
            && kept.len() < SPARE_MAX
        {
            kept.push(head);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_again_empty_and_bounded() {
        let mut head = take();
        head.push(7);
        let at = head.as_ptr();
        give(head);
        let again = take();
        assert_eq!((again.len(), again.as_ptr()), (0, at));
        give(Vec::with_capacity(HEAD_BYTES - 1));
        give(Vec::with_capacity(BYTES_MAX + 1));
        assert_eq!(SPARE.with_borrow(Vec::len), 0);
        for _ in 0..2 * SPARE_MAX {
            give(Vec::with_capacity(HEAD_BYTES));
        }
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
    }
}
