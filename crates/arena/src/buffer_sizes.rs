//! The sizes of the buffers of a payload.

use smallvec::SmallVec;

use crate::{Arena, Class, SgMut};

/// Sizes of buffers: capacity and filled bytes of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSizes(SmallVec<[(u32, u32); 2]>);

impl BufferSizes {
    /// The sizes of these buffers.
    pub fn of(sg: &SgMut) -> BufferSizes {
        BufferSizes(sg.iter().map(|b| (b.capacity() as u32, b.len() as u32)).collect())
    }

    /// Filled bytes of all buffers.
    pub fn length(&self) -> u64 {
        self.0.iter().map(|(_, len)| u64::from(*len)).sum()
    }

    /// Whether there are no buffers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Allocates buffers of these sizes, or returns `None`. Their contents are undefined.
    pub fn try_alloc(&self, arena: &Arena) -> Option<SgMut> {
        let one = |(capacity, len): &(u32, u32)| {
            let mut b = arena.try_alloc_run(*capacity as usize, Class::Payload)?;
            b.set_len(*len as usize);
            Some(b)
        };
        self.0.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_the_same_sizes() {
        let arena = Arena::new(1 << 20).expect("memory");
        let buffers = [(8192, 8192), (4096, 512)].into_iter().map(|(capacity, len)| {
            let mut b = arena.try_alloc_run(capacity, Class::Payload).expect("memory");
            b.set_len(len);
            b
        });
        let sizes = BufferSizes::of(&buffers.collect());
        assert_eq!((sizes.length(), sizes.is_empty()), (8704, false));
        let others = sizes.try_alloc(&arena).expect("memory");
        assert_eq!(BufferSizes::of(&others), sizes);
    }
}
