//! Memory and runtime of a thread whose I/O uses a network.

use arena::{Arena, Class, IoBuf, IoBufMut, Sg};
use tokio::runtime::{Builder, Runtime};

use super::error::OpenError;

/// A runtime for this thread.
pub(super) fn runtime() -> Result<Runtime, OpenError> {
    let none = |source| OpenError::Memory { bytes: 0, large: false, source };
    Builder::new_current_thread().enable_all().build().map_err(none)
}

/// An arena for `bytes` of payload.
pub(super) fn memory(bytes: usize) -> Result<Arena, OpenError> {
    Arena::new(bytes).map_err(|source| OpenError::Memory { bytes: bytes as u64, large: false, source })
}

/// Copies bytes to arena memory, which a transport can use directly; to the heap if the arena is exhausted.
pub(super) fn gathered(arena: &Arena, bytes: &[u8]) -> Sg {
    let Some(mut buffers) = arena.try_alloc_sg(bytes.len(), Class::Payload) else {
        return [IoBuf::from(bytes.to_vec())].into_iter().collect();
    };
    let mut rest = bytes;
    for buffer in &mut buffers {
        let n = buffer.append(rest);
        rest = &rest[n..];
    }
    buffers.into_iter().map(IoBufMut::freeze).collect()
}
