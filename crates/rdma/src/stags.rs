//! Steering tags: the memory that the peer may access, checked before any byte is transferred.
//!
//! Invariants:
//! 1. A tag is random, and not one of the last [`REMEMBERED`] tags of its queue pair: a stale tag is not found.
//! 2. The table belongs to one queue pair (the protection domain): it contains no other connection's tag.
//! 3. The provider gets memory to place bytes only from [`Stags::write_target`], which has checked tag, rights and
//!    bounds. Once a tag is removed, no slice of its memory is handed out.
//! 4. The filled length of a returned sink ends at the first byte not recorded by [`Stags::placed`], so that
//!    earlier contents of the memory are not taken for the peer's data.

use std::collections::{HashMap, VecDeque};

use arena::{Sg, sg_len, sg_slice};
use env::Env;
use smallvec::SmallVec;

use crate::violation::Violation;
use crate::{Exposed, Exposure, RdmaError, Rights, Stag};

/// Number of recently invalidated tags that are not assigned again.
const REMEMBERED: usize = 1024;

/// Slices to place one segment into.
pub(crate) type Slices<'a> = SmallVec<[&'a mut [u8]; 4]>;

/// The exposed buffers of one queue pair, by tag.
pub(crate) struct Stags {
    env: Env,
    live: HashMap<Stag, Region>,
    /// Tags of the sinks of RDMA Reads in flight, and recently valid tags.
    taken: HashMap<Stag, ()>,
    dead: VecDeque<Stag>,
    limit: usize,
    random: SmallVec<[u8; 64]>,
}

struct Region {
    what: Exposed,
    length: u32,
    placed: Placed,
}

/// Bytes of a sink that were written: from its start to `prefix`, and the ranges in `later` behind a gap.
#[derive(Default)]
struct Placed {
    prefix: u32,
    later: SmallVec<[(u32, u32); 1]>,
}

/// Maximum number of such ranges; ranges beyond that count as not written.
const LATER_MAX: usize = 64;

impl Placed {
    fn add(&mut self, from: u32, to: u32) {
        if from > self.prefix {
            if let Some((_, end)) = self.later.iter_mut().find(|(_, end)| *end == from) {
                *end = to;
            } else if self.later.len() < LATER_MAX {
                self.later.push((from, to));
            }
            return;
        }
        self.prefix = self.prefix.max(to);
        while let Some(i) = self.later.iter().position(|(from, _)| *from <= self.prefix) {
            self.prefix = self.prefix.max(self.later.swap_remove(i).1);
        }
    }
}

impl Region {
    /// Returns the exposed buffer; the filled length of a sink is `prefix`.
    fn end(self) -> Exposed {
        let mut what = self.what;
        if let Exposed::Sink { bufs, .. } = &mut what {
            let mut left = self.placed.prefix as usize;
            for b in bufs {
                let n = left.min(b.capacity());
                b.set_len(n);
                left -= n;
            }
        }
        what
    }
}

impl Stags {
    /// Creates an empty table that holds at most `limit` buffers.
    pub(crate) fn new(env: Env, limit: usize) -> Stags {
        Stags {
            env,
            live: HashMap::new(),
            taken: HashMap::new(),
            dead: VecDeque::new(),
            limit,
            random: SmallVec::new(),
        }
    }

    /// Number of exposed buffers.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Exposes `what` under a new tag.
    ///
    /// # Errors
    /// See [`crate::QueuePair::expose`].
    pub(crate) fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        let length = match (&what, rights) {
            (Exposed::Source(sg), Rights::RemoteRead) => {
                u32::try_from(sg_len(sg)).map_err(|_| RdmaError::Length)?
            }
            (Exposed::Sink { bufs, length }, Rights::RemoteWrite) => {
                let capacity: usize = bufs.iter().map(|b| b.capacity()).sum();
                if *length as usize > capacity {
                    return Err(RdmaError::Length);
                }
                *length
            }
            _ => return Err(RdmaError::Rights),
        };
        if length == 0 {
            return Err(RdmaError::Length);
        }
        if self.live.len() >= self.limit {
            return Err(RdmaError::TooManyRegions);
        }
        let stag = self.fresh();
        self.live.insert(stag, Region { what, length, placed: Placed::default() });
        Ok(Exposure { stag, offset: 0, length })
    }

    /// Returns a tag for the sink of an RDMA Read. The sink is not an exposed buffer, so a lookup of the tag fails.
    pub(crate) fn reserve(&mut self) -> Stag {
        let stag = self.fresh();
        self.taken.insert(stag, ());
        stag
    }

    /// Releases a reserved tag.
    pub(crate) fn release(&mut self, stag: Stag) {
        self.retire_tag(stag);
    }

    /// Ends an exposure. Returns its buffer, or `None` if the tag is not valid.
    pub(crate) fn invalidate(&mut self, stag: Stag) -> Option<Exposed> {
        let region = self.live.remove(&stag)?;
        self.retire_tag(stag);
        Some(region.end())
    }

    /// Records that `len` bytes were placed into the memory that [`Stags::write_target`] returned.
    pub(crate) fn placed(&mut self, stag: Stag, offset: u64, len: usize) {
        if let Some(region) = self.live.get_mut(&stag) {
            // In bounds, as `write_target` has checked.
            region.placed.add(offset as u32, (offset + len as u64) as u32);
        }
    }

    /// Ends every exposure.
    pub(crate) fn clear(&mut self) {
        self.live.clear();
    }

    /// Checks an RDMA Write's segment (RFC 5041 7.1, RFC 5040 7.2); returns the memory for its `len` bytes.
    ///
    /// # Errors
    /// The peer's violation; no byte may be placed.
    pub(crate) fn write_target(
        &mut self,
        stag: Stag,
        offset: u64,
        len: usize,
    ) -> Result<Slices<'_>, Violation> {
        let region = self.live.get_mut(&stag).ok_or(Violation::INVALID_STAG)?;
        let Exposed::Sink { bufs, .. } = &mut region.what else { return Err(Violation::WRITE_RIGHTS) };
        let end = offset.checked_add(len as u64).ok_or(Violation::WRAP)?;
        if end > u64::from(region.length) {
            return Err(Violation::BOUNDS);
        }
        let (mut skip, mut left, mut out) = (offset as usize, len, Slices::new());
        for b in bufs.iter_mut() {
            if left == 0 {
                break;
            }
            let capacity = b.capacity();
            if skip >= capacity {
                skip -= capacity;
                continue;
            }
            let n = left.min(capacity - skip);
            out.push(&mut b.space()[skip..skip + n]);
            skip = 0;
            left -= n;
        }
        Ok(out)
    }

    /// Checks an RDMA Read Request (RFC 5040 5.2, 7.2); returns the requested bytes.
    ///
    /// # Errors
    /// The peer's violation.
    pub(crate) fn read_source(&self, stag: Stag, offset: u64, len: u32) -> Result<Sg, Violation> {
        let region = self.live.get(&stag).ok_or(Violation::READ_INVALID_STAG)?;
        let Exposed::Source(sg) = &region.what else { return Err(Violation::READ_RIGHTS) };
        let end = offset.checked_add(u64::from(len)).ok_or(Violation::READ_WRAP)?;
        if end > u64::from(region.length) {
            return Err(Violation::READ_BOUNDS);
        }
        Ok(sg_slice(sg, offset as usize, len as usize))
    }

    /// Whether a tag is valid.
    pub(crate) fn is_live(&self, stag: Stag) -> bool {
        self.live.contains_key(&stag)
    }

    fn fresh(&mut self) -> Stag {
        loop {
            if self.random.is_empty() {
                self.random.extend_from_slice(&self.env.random::<64>());
            }
            let at = self.random.len() - 4;
            let mut b = [0; 4];
            b.copy_from_slice(&self.random[at..]);
            self.random.truncate(at);
            let stag = Stag(u32::from_ne_bytes(b));
            // 0 is never used, so that an all-zero descriptor refers to no buffer.
            if stag.0 != 0 && !self.live.contains_key(&stag) && !self.taken.contains_key(&stag) {
                return stag;
            }
        }
    }

    fn retire_tag(&mut self, stag: Stag) {
        self.taken.insert(stag, ());
        self.dead.push_back(stag);
        if self.dead.len() > REMEMBERED
            && let Some(old) = self.dead.pop_front()
        {
            self.taken.remove(&old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arena::{Arena, Class, IoBuf};

    fn table() -> (Arena, Stags) {
        (Arena::new(4 << 20).expect("a mapping"), Stags::new(Env::simulated(3), 4))
    }

    #[test]
    fn a_sink_of_several_buffers_is_one_range() {
        let (arena, mut t) = table();
        let bufs = (0..3).map(|_| arena.try_alloc(4096, Class::Payload).expect("memory")).collect();
        let e = t.expose(Exposed::Sink { bufs, length: 10_000 }, Rights::RemoteWrite).expect("there is room");
        assert_eq!(e.length, 10_000);
        let lens = |t: &mut Stags, o, l| -> Result<Vec<usize>, Violation> {
            t.write_target(e.stag, o, l).map(|s| s.iter().map(|s| s.len()).collect())
        };
        assert_eq!(lens(&mut t, 0, 10_000), Ok(vec![4096, 4096, 1808]));
        assert_eq!(lens(&mut t, 4095, 2), Ok(vec![1, 1]));
        assert_eq!(lens(&mut t, 4096, 4096), Ok(vec![4096]));
        assert_eq!(lens(&mut t, 10_000, 0), Ok(vec![]));
        assert_eq!(lens(&mut t, 9_999, 2), Err(Violation::BOUNDS));
        assert_eq!(lens(&mut t, u64::MAX, 2), Err(Violation::WRAP));
        assert_eq!(t.read_source(e.stag, 0, 1).err(), Some(Violation::READ_RIGHTS));
        assert!(t.invalidate(e.stag).is_some());
        assert_eq!(lens(&mut t, 0, 1), Err(Violation::INVALID_STAG));
        assert!(t.invalidate(e.stag).is_none());
    }

    /// Whatever the memory contained before, the filled length of a returned sink ends at the first unwritten byte.
    #[test]
    fn a_sink_is_filled_as_far_as_it_was_written() {
        let (arena, mut t) = table();
        let mut placed = |writes: &[(u64, usize)]| {
            let mut bufs: arena::SgMut =
                (0..2).map(|_| arena.try_alloc(4096, Class::Payload).expect("memory")).collect();
            bufs.iter_mut().for_each(|b| b.set_len(4096));
            let e = t.expose(Exposed::Sink { bufs, length: 8000 }, Rights::RemoteWrite).expect("room");
            for (offset, len) in writes {
                t.write_target(e.stag, *offset, *len).expect("in bounds");
                t.placed(e.stag, *offset, *len);
            }
            let Some(Exposed::Sink { bufs, .. }) = t.invalidate(e.stag) else { panic!("it was live") };
            let lens: Vec<usize> = bufs.iter().map(|b| b.len()).collect();
            assert!(lens[1] == 0 || lens[0] == 4096);
            lens[0] + lens[1]
        };
        assert_eq!(placed(&[]), 0);
        assert_eq!(placed(&[(0, 100), (100, 7900)]), 8000);
        assert_eq!(placed(&[(7999, 1)]), 0);
        assert_eq!(placed(&[(1, 7999)]), 0);
        assert_eq!(placed(&[(0, 10), (11, 100)]), 10);
        // In any order, and more than once.
        assert_eq!(placed(&[(6000, 1000), (7000, 1000), (4000, 2000), (0, 4500)]), 8000);
        assert_eq!(placed(&[(0, 500), (100, 50), (400, 200)]), 600);
        // Too many gaps: ranges that are not remembered count as not written.
        let mut gaps: Vec<(u64, usize)> = (1..=LATER_MAX as u64 + 1).map(|i| (i * 10, 5)).collect();
        gaps.extend((1..=LATER_MAX as u64 + 1).map(|i| (i * 10 + 5, 5)));
        gaps.push((0, 10));
        assert_eq!(placed(&gaps), LATER_MAX * 10 + 10);
    }

    #[test]
    fn a_source_is_read_only() {
        let (_arena, mut t) = table();
        let sg: Sg = [IoBuf::from(b"hello".to_vec()), IoBuf::from(b"world".to_vec())].into_iter().collect();
        let e = t.expose(Exposed::Source(sg), Rights::RemoteRead).expect("there is room");
        assert_eq!(arena::sg_to_vec(&t.read_source(e.stag, 3, 4).expect("in bounds")), b"lowo");
        assert_eq!(t.read_source(e.stag, 9, 2).err(), Some(Violation::READ_BOUNDS));
        assert_eq!(t.read_source(e.stag, u64::MAX, 2).err(), Some(Violation::READ_WRAP));
        assert!(t.write_target(e.stag, 0, 1).is_err_and(|v| v == Violation::WRITE_RIGHTS));
    }

    #[test]
    fn the_table_is_bounded_and_wants_matching_rights() {
        let (arena, mut t) = table();
        let source = || Exposed::Source([IoBuf::from(vec![1])].into_iter().collect());
        for _ in 0..4 {
            t.expose(source(), Rights::RemoteRead).expect("there is room");
        }
        assert_eq!(t.expose(source(), Rights::RemoteRead), Err(RdmaError::TooManyRegions));
        assert_eq!(t.expose(source(), Rights::RemoteWrite), Err(RdmaError::Rights));
        let small = || [arena.try_alloc(1, Class::Payload).expect("memory")].into_iter().collect();
        let too_long = Exposed::Sink { bufs: small(), length: 4097 };
        assert_eq!(t.expose(too_long, Rights::RemoteWrite), Err(RdmaError::Length));
        let empty = Exposed::Sink { bufs: small(), length: 0 };
        assert_eq!(t.expose(empty, Rights::RemoteWrite), Err(RdmaError::Length));
    }

    #[test]
    fn dead_tags_are_remembered_up_to_a_bound() {
        let (_arena, mut t) = table();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 * REMEMBERED {
            let stag = t.reserve();
            assert!(seen.insert(stag), "random 32-bit tags of this seed do not repeat");
            t.release(stag);
        }
        assert_eq!((t.dead.len(), t.taken.len()), (REMEMBERED, REMEMBERED));
    }
}
