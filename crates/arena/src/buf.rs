//! Unique and shared buffers.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use smallvec::SmallVec;

use crate::region::Region;
use crate::{CHUNK_MIN, Pages, magazine};

/// A unique buffer of the arena: it has a fixed capacity, and its first `len` bytes are filled. Dropping it
/// frees its memory.
///
/// Memory is reused without being cleared, so [`IoBufMut::freeze`] exposes only the filled bytes.
pub struct IoBufMut {
    /// A chunk with this owner only.
    block: Owner,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory has one owner (region.rs, invariant), so it may move between threads.
unsafe impl Send for IoBufMut {}
// SAFETY: shared access is read-only.
unsafe impl Sync for IoBufMut {}

/// A shared immutable part of a buffer: clones and slices copy no bytes. Dropping the last clone returns the
/// memory to the arena.
#[derive(Clone)]
pub struct IoBuf {
    block: Owner,
    /// Points into the block, which does not move.
    at: NonNull<u8>,
    len: u32,
}

// SAFETY: its block, which may move between threads, keeps the memory alive.
unsafe impl Send for IoBuf {}
// SAFETY: shared access is read-only.
unsafe impl Sync for IoBuf {}

/// One of the owners of a block. The last one puts it into its thread's [`magazine`] or frees it.
#[derive(Clone)]
pub(crate) struct Owner(ManuallyDrop<Arc<Block>>);

/// A run of the region's pages, returned on drop.
pub(crate) struct Chunk {
    region: Arc<Region>,
    at: NonNull<u8>,
    page: u32,
    pages: u32,
    /// The number of bytes filled at the last freeze; only a sole owner writes it.
    filled: AtomicUsize,
}

// SAFETY: a chunk is plain memory with one owner (region.rs, invariant), so it may move between threads.
unsafe impl Send for Chunk {}
// SAFETY: shared access is read-only.
unsafe impl Sync for Chunk {}

pub(crate) enum Block {
    Arena(Chunk),
    /// A part of a chunk that was cut up: chunk, offset and length in bytes. Such parts do not overlap.
    Piece(Owner, usize, usize),
    /// A vector with up to [`SPARE`] bytes of unused capacity: shrinking it costs more than it saves.
    Heap(Vec<u8>),
    Pages(Pages),
    /// Up to [`SHORT`] bytes, stored in the block itself, and their number.
    Short([u8; SHORT], u8),
}

/// The longest content that [`IoBuf::short`] stores inline, in bytes: it does not enlarge `Block`.
const SHORT: usize = 31;
/// Unused capacity, in bytes, above which a vector is shrunk to its length.
const SPARE: usize = 512;

impl IoBufMut {
    pub(crate) fn new(region: Arc<Region>, page: usize, pages: usize) -> IoBufMut {
        let at = region.at(page);
        let chunk = Chunk { region, at, page: page as u32, pages: pages as u32, filled: AtomicUsize::new(0) };
        IoBufMut { block: Owner::new(Block::Arena(chunk)), at, len: 0 }
    }

    /// An empty buffer that reuses a block without other owners.
    pub(crate) fn reuse(block: Arc<Block>) -> IoBufMut {
        let block = Owner(ManuallyDrop::new(block));
        let at = block.chunk().at;
        IoBufMut { block, at, len: 0 }
    }

    /// The number of bytes that fit.
    pub fn capacity(&self) -> usize {
        CHUNK_MIN * self.block.chunk().pages()
    }

    /// The number of bytes filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bytes are filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the number of filled bytes.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a buffer of {}", self.capacity());
        self.len = len;
    }

    /// The whole capacity, filled or not; unfilled bytes contain data of the memory's previous user.
    pub fn space(&mut self) -> &mut [u8] {
        // SAFETY: only this buffer owns the chunk, which is `capacity` bytes long; the kernel or a previous
        // user initialised it.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.capacity()) }
    }

    /// The unfilled part.
    pub fn spare(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.space()[len..]
    }

    /// The filled part.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.space()[..len]
    }

    /// Copies as much of `bytes` as fits after the filled part; returns the number of bytes copied.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare();
        let n = spare.len().min(bytes.len());
        spare[..n].copy_from_slice(&bytes[..n]);
        self.len += n;
        n
    }

    /// Makes the filled part immutable and shareable.
    pub fn freeze(self) -> IoBuf {
        let len = self.len as u32;
        self.block.chunk().filled.store(self.len, Ordering::Relaxed);
        IoBuf { block: self.block, at: self.at, len }
    }

    /// Makes parts of the filled bytes shareable separately: a part with one owner can be changed again
    /// ([`IoBuf::get_mut`]), independently of the others. Dropping the last part returns the memory to the
    /// arena.
    ///
    /// # Panics
    /// If the parts overlap, are not in order, or extend beyond the filled bytes.
    pub fn cut(self, parts: impl IntoIterator<Item = Range<usize>>) -> SmallVec<[IoBuf; 4]> {
        let (filled, chunk) = (self.len, self.block);
        let mut end = 0;
        parts
            .into_iter()
            .map(|part| {
                assert!(end <= part.start && part.start <= part.end && part.end <= filled);
                end = part.end;
                let len = part.end - part.start;
                IoBuf::new(Block::Piece(chunk.clone(), part.start, len), len)
            })
            .collect()
    }
}

impl Deref for IoBufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: this buffer owns the chunk, which is at least `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl IoBuf {
    /// A copy of `bytes`: one allocation for up to 31 bytes, otherwise two.
    pub fn short(bytes: &[u8]) -> IoBuf {
        if bytes.len() > SHORT {
            return IoBuf::from(bytes.to_vec());
        }
        let mut kept = [0; SHORT];
        kept[..bytes.len()].copy_from_slice(bytes);
        IoBuf::new(Block::Short(kept, bytes.len() as u8), bytes.len())
    }

    /// A buffer of all `len` bytes of a new block.
    fn new(block: Block, len: usize) -> IoBuf {
        let block = Owner::new(block);
        let at = NonNull::from(block.bytes()).cast();
        IoBuf { block, at, len: len as u32 }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the buffer that shares its memory.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    pub fn slice(&self, range: Range<usize>) -> IoBuf {
        assert!(range.start <= range.end && range.end <= self.len());
        // SAFETY: it lies inside, as checked.
        let at = unsafe { self.at.add(range.start) };
        IoBuf { block: self.block.clone(), at, len: (range.end - range.start) as u32 }
    }

    /// Splits off the first `at` bytes; `self` keeps the rest.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn split_to(&mut self, at: usize) -> IoBuf {
        let head = self.slice(0..at);
        *self = self.slice(at..self.len());
        head
    }

    /// Converts back to a unique buffer if this is the only owner of an uncut chunk. The filled length is the
    /// one at the time of the freeze.
    ///
    /// # Errors
    /// `self`, unchanged, if it has another owner, was cut up, or is not arena memory.
    pub fn try_unfreeze(self) -> Result<IoBufMut, IoBuf> {
        match &**self.block.0 {
            Block::Arena(chunk) if self.block.is_sole_owner() => {
                let (at, len) = (chunk.at, chunk.filled.load(Ordering::Relaxed));
                Ok(IoBufMut { block: self.block, at, len })
            }
            _ => Err(self),
        }
    }
}

impl IoBuf {
    /// Mutable access to the bytes, if this is the only owner of their memory.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let (at, len) = (self.at.as_ptr() as usize, self.len as usize);
        let whole: &mut [u8] = match Arc::get_mut(&mut self.block.0)? {
            // SAFETY: the block has no other owner, so no other thread reads the chunk, and its memory is initialised.
            Block::Arena(chunk) => unsafe {
                std::slice::from_raw_parts_mut(chunk.at.as_ptr(), chunk.pages() * CHUNK_MIN)
            },
            // SAFETY: `cut` made these bytes this block's alone, and the block has no other owner.
            Block::Piece(chunk, start, len) => unsafe {
                std::slice::from_raw_parts_mut(chunk.chunk().at.add(*start).as_ptr(), *len)
            },
            Block::Heap(b) => b,
            Block::Pages(b) => b,
            Block::Short(b, len) => &mut b[..usize::from(*len)],
        };
        let start = at - whole.as_ptr() as usize;
        Some(&mut whole[start..start + len])
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this owner keeps the block alive, and nothing writes to the bytes while the block is
        // shared.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len as usize) }
    }
}

impl AsRef<[u8]> for IoBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for IoBuf {
    fn from(mut v: Vec<u8>) -> IoBuf {
        assert!(v.len() <= u32::MAX as usize);
        let len = v.len();
        if v.capacity() - v.len() > SPARE {
            v.shrink_to_fit();
        }
        IoBuf::new(Block::Heap(v), len)
    }
}

impl From<Pages> for IoBuf {
    fn from(pages: Pages) -> IoBuf {
        assert!(pages.len() <= u32::MAX as usize);
        let len = pages.len();
        IoBuf::new(Block::Pages(pages), len)
    }
}

impl Owner {
    fn new(block: Block) -> Owner {
        Owner(ManuallyDrop::new(Arc::new(block)))
    }

    /// The chunk of this block. Panics for any other kind of block.
    fn chunk(&self) -> &Chunk {
        match &**self.0 {
            Block::Arena(chunk) => chunk,
            _ => unreachable!("only a chunk is unique or cut up"),
        }
    }

    /// All bytes of the block.
    fn bytes(&self) -> &[u8] {
        match &**self.0 {
            // SAFETY: nothing writes to frozen memory while it has owners, and the whole chunk is
            // initialised.
            Block::Arena(chunk) => unsafe {
                std::slice::from_raw_parts(chunk.at.as_ptr(), chunk.pages() * CHUNK_MIN)
            },
            // SAFETY: as above; `cut` has checked that the bytes lie in the filled part.
            Block::Piece(chunk, start, len) => unsafe {
                std::slice::from_raw_parts(chunk.chunk().at.add(*start).as_ptr(), *len)
            },
            Block::Heap(b) => b,
            Block::Pages(b) => b,
            Block::Short(b, len) => &b[..usize::from(*len)],
        }
    }

    /// Whether this is the only owner. If so, accesses of former owners have completed, and no new owner can
    /// appear because only an owner can be cloned.
    fn is_sole_owner(&self) -> bool {
        let only = Arc::strong_count(&self.0) == 1;
        if only {
            fence(Ordering::Acquire);
        }
        only
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let keep = matches!(&**self.0, Block::Arena(_)) && self.is_sole_owner();
        // SAFETY: only this function takes the value, and the owner is not used afterwards.
        let block = unsafe { ManuallyDrop::take(&mut self.0) };
        if keep {
            drop(magazine::keep(block));
        }
    }
}

impl Chunk {
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages as usize
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.region.give(self.page as usize, self.pages as usize);
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

impl fmt::Debug for IoBufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBufMut({} of {} bytes)", self.len, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arena, Class, IoBuf, Sg, sg_slice, sg_to_vec};

    #[test]
    fn fill_freeze_slice_and_return() {
        let arena = Arena::new(1 << 20).expect("a small mapping");
        let mut b = arena.try_alloc(5000, Class::Payload).expect("there is memory");
        assert_eq!(b.capacity(), 8192);
        assert_eq!(b.append(b"hello, world"), 12);
        let f = b.freeze();
        let w = f.slice(7..12);
        drop(f);
        assert_eq!(&*w, b"world");
        assert_ne!(arena.usage().used, 0);
        let m = w.try_unfreeze().expect("the last owner");
        assert_eq!(&*m, b"hello, world");
        drop(m);
        assert_eq!(arena.usage().used, 0);
    }

    #[test]
    fn only_filled_bytes_are_visible() {
        let arena = Arena::new(1 << 20).expect("a small mapping");
        let mut b = arena.try_alloc(4096, Class::Payload).expect("there is memory");
        b.space().fill(0xAA);
        b.set_len(4);
        assert_eq!(b.freeze().len(), 4);
    }

    #[test]
    fn a_sole_owner_may_change_its_part() {
        let arena = Arena::new(1 << 20).expect("a small mapping");
        let mut b = arena.try_alloc(4096, Class::Payload).expect("there is memory");
        b.append(b"hello, world");
        let mut parts = b.cut([0..5, 7..12]);
        let mut world = parts.pop().expect("two");
        // The other part has owners of its own.
        let hello = [parts[0].clone(), parts[0].clone()];
        world.get_mut().expect("one owner").make_ascii_uppercase();
        assert_eq!((&*hello[0], &*world), (&b"hello"[..], &b"WORLD"[..]));
        let mut tail = world.slice(1..5);
        assert!(tail.get_mut().is_none() && parts[0].get_mut().is_none(), "shared");
        drop(world);
        tail.get_mut().expect("one owner").make_ascii_lowercase();
        assert_eq!(&*tail, b"orld");
        assert!(tail.clone().try_unfreeze().is_err());
        drop((tail, hello));
        assert_ne!(arena.usage().used, 0);
        drop(parts);
        assert_eq!(arena.usage().used, 0);
        let mut heap = IoBuf::from(b"abc".to_vec()).slice(1..2);
        heap.get_mut().expect("one owner")[0] = b'x';
        assert_eq!(&*heap, b"x");
    }

    #[test]
    fn short_buffers_behave_like_others() {
        for length in [0, 1, 24, 31, 32, 100] {
            let bytes: Vec<u8> = (0..length).collect();
            let mut b = IoBuf::short(&bytes);
            assert_eq!((&*b, b.len()), (&bytes[..], bytes.len()));
            assert!(b.clone().try_unfreeze().is_err());
            if length >= 24 {
                let mut tail = b.slice(20..24);
                assert!(tail.get_mut().is_none() && b.get_mut().is_none(), "shared");
                drop(b);
                tail.get_mut().expect("one owner").fill(7);
                assert_eq!(&*tail, [7; 4]);
            }
        }
    }

    #[test]
    fn a_vector_keeps_little_to_spare() {
        let with = |capacity: usize| {
            let mut v = Vec::with_capacity(capacity);
            v.extend_from_slice(b"reply");
            IoBuf::from(v)
        };
        for b in [with(5), with(192), with(1 << 20)] {
            assert_eq!(&*b, b"reply");
            let super::Block::Heap(v) = &**b.block.0 else { panic!("a vector") };
            assert!(v.capacity() - v.len() <= super::SPARE);
        }
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn parts_do_not_overlap() {
        let arena = Arena::new(1 << 20).expect("a small mapping");
        let mut b = arena.try_alloc(4096, Class::Payload).expect("there is memory");
        b.set_len(10);
        b.cut([0..5, 4..6]);
    }

    #[test]
    fn slices_of_scattered_payload() {
        let sg: Sg = [&b"abc"[..], b"", b"defg", b"h"].iter().map(|s| IoBuf::from(s.to_vec())).collect();
        for start in 0..=8 {
            for len in 0..=8 - start {
                assert_eq!(sg_to_vec(&sg_slice(&sg, start, len)), b"abcdefgh"[start..start + len]);
            }
        }
    }
}
