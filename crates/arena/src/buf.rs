//! Unique and shared buffers.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::CHUNK_MIN;
use crate::region::Region;

/// A unique buffer of the arena: a fixed capacity, of which the first `len` bytes are filled. Dropping it returns
/// its memory.
///
/// Memory is recycled without being cleared, so only what was filled becomes visible through [`IoBufMut::freeze`].
pub struct IoBufMut {
    chunk: Chunk,
    len: usize,
}

/// A shared immutable part of a buffer: cloning and slicing copy nothing. The memory returns to the arena with the
/// last clone.
#[derive(Clone)]
pub struct IoBuf {
    block: Arc<Block>,
    start: u32,
    len: u32,
}

/// One run of the region's pages, given back on drop.
struct Chunk {
    region: Arc<Region>,
    at: NonNull<u8>,
    page: u32,
    pages: u32,
}

// SAFETY: a chunk is plain memory with one owner (region.rs, invariant), so it may move between threads.
unsafe impl Send for Chunk {}
// SAFETY: shared access is read-only.
unsafe impl Sync for Chunk {}

enum Block {
    /// A chunk, of which so many bytes are filled.
    Arena(Chunk, usize),
    /// Bytes of a chunk that was cut up: from where, how many. No other block has one of them.
    Piece(Arc<Chunk>, usize, usize),
    /// As it came: giving back what a vector has to spare costs more than keeping it as long as its message.
    Heap(Vec<u8>),
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
        IoBufMut { chunk: Chunk { region, at, page: page as u32, pages: pages as u32 }, len: 0 }
    }

    /// The number of bytes that fit.
    pub fn capacity(&self) -> usize {
        CHUNK_MIN * self.chunk.pages as usize
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
        unsafe { std::slice::from_raw_parts_mut(self.chunk.at.as_ptr(), self.capacity()) }
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
        IoBuf { block: Arc::new(Block::Arena(self.chunk, self.len)), start: 0, len }
    }

    /// Makes parts of what is filled shareable, each by itself: a part that has one owner can be changed again
    /// ([`IoBuf::get_mut`]), whoever has the others. The memory returns to the arena with the last of them.
    ///
    /// # Panics
    /// When the parts overlap, are not in order, or go beyond what is filled.
    pub fn cut(self, parts: impl IntoIterator<Item = Range<usize>>) -> SmallVec<[IoBuf; 4]> {
        let (filled, chunk) = (self.len, Arc::new(self.chunk));
        let mut end = 0;
        parts
            .into_iter()
            .map(|part| {
                assert!(end <= part.start && part.start <= part.end && part.end <= filled);
                end = part.end;
                let len = part.end - part.start;
                let block = Arc::new(Block::Piece(Arc::clone(&chunk), part.start, len));
                IoBuf { block, start: 0, len: len as u32 }
            })
            .collect()
    }
}

impl Deref for IoBufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the chunk is ours and at least `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.chunk.at.as_ptr(), self.len) }
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
        IoBuf { block: Arc::new(Block::Short(kept, bytes.len() as u8)), start: 0, len: bytes.len() as u32 }
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
        IoBuf {
            block: Arc::clone(&self.block),
            start: self.start + range.start as u32,
            len: (range.end - range.start) as u32,
        }
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
    /// `self`, unchanged, when somebody else still holds it, it was cut up, or it is not arena memory.
    pub fn try_unfreeze(self) -> Result<IoBufMut, IoBuf> {
        let IoBuf { block, start, len } = self;
        match Arc::try_unwrap(block) {
            Ok(Block::Arena(chunk, filled)) => Ok(IoBufMut { chunk, len: filled }),
            Ok(other) => Err(IoBuf { block: Arc::new(other), start, len }),
            Err(block) => Err(IoBuf { block, start, len }),
        }
    }
}

impl IoBuf {
    /// Its bytes, to change them, if this is the only owner of the memory they are in.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let range = self.start as usize..(self.start + self.len) as usize;
        let whole: &mut [u8] = match Arc::get_mut(&mut self.block)? {
            // SAFETY: the block has no other owner, so nobody else reads the chunk, and `filled` bytes lie in it.
            Block::Arena(chunk, filled) => unsafe {
                std::slice::from_raw_parts_mut(chunk.at.as_ptr(), *filled)
            },
            // SAFETY: `cut` made these bytes this block's alone, and the block has no other owner.
            Block::Piece(chunk, start, len) => unsafe {
                std::slice::from_raw_parts_mut(chunk.at.add(*start).as_ptr(), *len)
            },
            Block::Heap(b) => b,
            Block::Short(b, len) => &mut b[..usize::from(*len)],
        };
        Some(&mut whole[range])
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let whole: &[u8] = match &*self.block {
            // SAFETY: frozen memory is not written until its last owner is gone, and `filled` bytes lie in the chunk.
            Block::Arena(chunk, filled) => unsafe { std::slice::from_raw_parts(chunk.at.as_ptr(), *filled) },
            // SAFETY: as above; `cut` has checked that the bytes lie in the filled part.
            Block::Piece(chunk, start, len) => unsafe {
                std::slice::from_raw_parts(chunk.at.add(*start).as_ptr(), *len)
            },
            Block::Heap(b) => b,
            Block::Short(b, len) => &b[..usize::from(*len)],
        };
        &whole[self.start as usize..(self.start + self.len) as usize]
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
        let len = v.len() as u32;
        if v.capacity() - v.len() > SPARE {
            v.shrink_to_fit();
        }
        IoBuf { block: Arc::new(Block::Heap(v)), start: 0, len }
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
            let super::Block::Heap(v) = &*b.block else { panic!("a vector") };
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
