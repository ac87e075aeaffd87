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

/// A unique buffer of the arena: a fixed capacity, of which the first `len` bytes are filled. Dropping it returns
/// its memory.
///
/// Memory is recycled without being cleared, so only what was filled becomes visible through [`IoBufMut::freeze`].
pub struct IoBufMut {
    /// A chunk, without other owners.
    block: Owner,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory has one owner (region.rs, invariant), so it may move between threads.
unsafe impl Send for IoBufMut {}
// SAFETY: shared access is read-only.
unsafe impl Sync for IoBufMut {}

/// A shared immutable part of a buffer: cloning and slicing copy nothing. The memory returns to the arena with the
/// last clone.
#[derive(Clone)]
pub struct IoBuf {
    block: Owner,
    /// In the block, which does not move.
    at: NonNull<u8>,
    len: u32,
}

// SAFETY: what it points to is kept by its block, which may move between threads.
unsafe impl Send for IoBuf {}
// SAFETY: shared access is read-only.
unsafe impl Sync for IoBuf {}

/// One of the owners of a block. The last one leaves it to its thread ([`magazine`]) or drops it.
#[derive(Clone)]
pub(crate) struct Owner(ManuallyDrop<Arc<Block>>);

/// One run of the region's pages, given back on drop.
pub(crate) struct Chunk {
    region: Arc<Region>,
    at: NonNull<u8>,
    page: u32,
    pages: u32,
    /// Bytes filled when it was frozen last; its sole owner writes it.
    filled: AtomicUsize,
}

// SAFETY: a chunk is plain memory with one owner (region.rs, invariant), so it may move between threads.
unsafe impl Send for Chunk {}
// SAFETY: shared access is read-only.
unsafe impl Sync for Chunk {}

pub(crate) enum Block {
    Arena(Chunk),
    /// Bytes of a chunk that was cut up: from where, how many. No other block has one of them.
    Piece(Owner, usize, usize),
    /// As it came: giving back what a vector has to spare costs more than keeping it as long as its message.
    Heap(Vec<u8>),
    Pages(Pages),
    /// So many bytes of a few, in the block itself.
    Short([u8; SHORT], u8),
}

/// The most that [`IoBuf::short`] keeps without memory of its own, in bytes: no more than other blocks need.
const SHORT: usize = 31;
/// What a vector may have to spare, in bytes, without being cut down to its length.
const SPARE: usize = 512;

impl IoBufMut {
    pub(crate) fn new(region: Arc<Region>, page: usize, pages: usize) -> IoBufMut {
        let at = region.at(page);
        let chunk = Chunk { region, at, page: page as u32, pages: pages as u32, filled: AtomicUsize::new(0) };
        IoBufMut { block: Owner::new(Block::Arena(chunk)), at, len: 0 }
    }

    /// An empty buffer in a block without other owners.
    pub(crate) fn again(block: Arc<Block>) -> IoBufMut {
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

    /// Whether nothing is filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Declares the first `len` bytes filled.
    ///
    /// # Panics
    /// When that is more than the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a buffer of {}", self.capacity());
        self.len = len;
    }

    /// The whole capacity, filled or not (unfilled bytes hold whatever the memory's last user left).
    pub fn space(&mut self) -> &mut [u8] {
        // SAFETY: the chunk is ours alone and `capacity` bytes long, initialised by the kernel or its last user.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.capacity()) }
    }

    /// The part after what is filled.
    pub fn spare(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.space()[len..]
    }

    /// The filled part.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.space()[..len]
    }

    /// Appends as much of `bytes` as fits, copying; the number of bytes taken.
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

    /// Makes parts of the filled bytes shareable, each by itself: a part with one owner can be changed again
    /// ([`IoBuf::get_mut`]), independent of the others. The memory returns to the arena with the last of
    /// them.
    ///
    /// # Panics
    /// When the parts overlap, are not in order, or go beyond what is filled.
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
        // SAFETY: the chunk is ours and at least `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl IoBuf {
    /// A copy of `bytes`: one allocation for a header, two for what is longer.
    pub fn short(bytes: &[u8]) -> IoBuf {
        if bytes.len() > SHORT {
            return IoBuf::from(bytes.to_vec());
        }
        let mut kept = [0; SHORT];
        kept[..bytes.len()].copy_from_slice(bytes);
        IoBuf::new(Block::Short(kept, bytes.len() as u8), bytes.len())
    }

    /// All `len` bytes of a new block.
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

    /// A part of it, sharing the memory.
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> IoBuf {
        assert!(range.start <= range.end && range.end <= self.len());
        // SAFETY: it lies inside, as checked.
        let at = unsafe { self.at.add(range.start) };
        IoBuf { block: self.block.clone(), at, len: (range.end - range.start) as u32 }
    }

    /// Splits off the first `at` bytes; `self` keeps the rest.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn split_to(&mut self, at: usize) -> IoBuf {
        let head = self.slice(0..at);
        *self = self.slice(at..self.len());
        head
    }

    /// The unique buffer again, if this is the last owner and it is a whole one of the arena; otherwise itself. The
    /// buffer's filled length is what it was when frozen.
    ///
    /// # Errors
    /// `self`, unchanged, when it has another owner, it was cut up, or it is not arena memory.
    pub fn try_unfreeze(self) -> Result<IoBufMut, IoBuf> {
        match &**self.block.0 {
            Block::Arena(chunk) if self.block.is_only() => {
                let (at, len) = (chunk.at, chunk.filled.load(Ordering::Relaxed));
                Ok(IoBufMut { block: self.block, at, len })
            }
            _ => Err(self),
        }
    }
}

impl IoBuf {
    /// Its bytes, to change them, if this is the only owner of the memory they are in.
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
        // SAFETY: the bytes lie in the block, which this keeps; they are not written until its last owner is gone.
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

    /// Of a block that is a chunk.
    fn chunk(&self) -> &Chunk {
        match &**self.0 {
            Block::Arena(chunk) => chunk,
            _ => unreachable!("only a chunk is unique or cut up"),
        }
    }

    /// All bytes that the block has room for.
    fn bytes(&self) -> &[u8] {
        match &**self.0 {
            // SAFETY: frozen memory is not written until its last owner is gone, and the whole chunk is initialised.
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

    /// Whether there is no other: what they have done with the block is over then. Only an owner makes owners, so it stays so.
    fn is_only(&self) -> bool {
        let only = Arc::strong_count(&self.0) == 1;
        if only {
            fence(Ordering::Acquire);
        }
        only
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let keep = matches!(&**self.0, Block::Arena(_)) && self.is_only();
        // SAFETY: this is the only place that takes it, and the owner ends here.
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
    fn only_what_was_filled_shows() {
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
    fn short_ones_are_as_any_other() {
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
