//! Splits RDMA transfers into pieces, and tracks when each transfer is complete.

use std::collections::VecDeque;

use arena::{Arena, CHUNK_MAX, CHUNK_MIN, Class, IoBufMut, Sg, SgMut, sg_len, sg_slice};
use rdma::{Remote, Stag, WcError};

use crate::pdu::MAX_DESCRIPTORS;
use crate::{BufferDescriptorV1, SmbDirectError};

/// Unfinished transfers of one kind, by slot.
pub(crate) struct Transfers {
    slots: Vec<Option<Transfer>>,
    free: Vec<u32>,
    limit: usize,
}

struct Transfer {
    id: u64,
    left: usize,
    failed: Option<WcError>,
    /// The sinks of the completed pieces, by piece; empty for a write.
    sinks: Vec<Option<IoBufMut>>,
}

/// A finished transfer: the caller's id, and the data of a read.
pub(crate) type Finished = (u64, Result<SgMut, WcError>);

impl Transfers {
    pub(crate) fn new(limit: usize) -> Transfers {
        Transfers { slots: Vec::new(), free: Vec::new(), limit }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() - self.free.len() >= self.limit
    }

    /// Starts a transfer of `pieces` pieces (at least 1) and returns its slot.
    pub(crate) fn start(&mut self, id: u64, pieces: usize) -> u32 {
        let transfer = Some(Transfer { id, left: pieces, failed: None, sinks: Vec::new() });
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = transfer;
                slot
            }
            None => {
                self.slots.push(transfer);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Completes a piece; returns the transfer's result if it was the last piece.
    pub(crate) fn piece(
        &mut self,
        slot: u32,
        piece: usize,
        result: Result<Option<IoBufMut>, WcError>,
    ) -> Option<Finished> {
        let entry = &mut self.slots[slot as usize];
        let t = entry.as_mut().expect("a piece belongs to an unfinished transfer");
        match result {
            Ok(None) => {}
            Ok(Some(buf)) => {
                if t.sinks.len() <= piece {
                    t.sinks.resize_with(piece + 1, || None);
                }
                t.sinks[piece] = Some(buf);
            }
            Err(e) => t.failed = Some(e),
        }
        t.left -= 1;
        if t.left > 0 {
            return None;
        }
        let t = entry.take()?;
        self.free.push(slot);
        Some((t.id, t.failed.map_or_else(|| Ok(t.sinks.into_iter().flatten().collect()), Err)))
    }

    /// Removes the unfinished transfers and returns their ids.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.free.clear();
        self.slots.drain(..).flatten().map(|t| t.id)
    }
}

/// Returns the total length of the descriptors, in bytes.
///
/// # Errors
/// [`SmbDirectError::TooManyDescriptors`], and [`SmbDirectError::TransferLength`] if the total exceeds `limit`.
pub(crate) fn total(descriptors: &[BufferDescriptorV1], limit: u32) -> Result<u64, SmbDirectError> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(SmbDirectError::TooManyDescriptors(descriptors.len()));
    }
    let length: u64 = descriptors.iter().map(|d| u64::from(d.length)).sum();
    if length > u64::from(limit) {
        return Err(SmbDirectError::TransferLength { length, limit: u64::from(limit) });
    }
    Ok(length)
}

/// Splits `src` over the descriptors, into pieces of at most `max_sge` buffers. The caller has checked that `src`
/// fits.
pub(crate) fn cut_write(src: &Sg, to: &[BufferDescriptorV1], max_sge: usize) -> Vec<(Sg, Remote)> {
    let (mut start, end, mut out) = (0, sg_len(src), Vec::with_capacity(to.len()));
    for d in to {
        let (stop, mut offset) = (end.min(start + d.length as usize), d.offset);
        while start < stop {
            let mut sg = sg_slice(src, start, stop - start);
            sg.truncate(max_sge.max(1));
            let length = sg_len(&sg);
            out.push((sg, Remote { stag: Stag(d.token), offset, length: length as u32 }));
            start += length;
            offset = offset.wrapping_add(length as u64);
        }
    }
    out
}

/// Sizes in bytes of the sinks for an RDMA Read of these descriptors: a sink holds data of one descriptor only.
fn sink_sizes(from: &[BufferDescriptorV1]) -> impl Iterator<Item = usize> + '_ {
    from.iter().flat_map(|d| {
        let length = d.length as usize;
        (0..length).step_by(CHUNK_MAX).map(move |at| (length - at).min(CHUNK_MAX))
    })
}

/// Allocates the sinks for [`crate::SmbDirect::rdma_read`] of these descriptors: all or none.
pub fn try_sinks(arena: &Arena, from: &[BufferDescriptorV1], class: Class) -> Option<SgMut> {
    sink_sizes(from).map(|n| arena.try_alloc(n, class)).collect()
}

/// Allocates the sinks for [`crate::SmbDirect::rdma_read`] of these descriptors; waits until there is memory for
/// all of them. Returns `None` if they need more than half of the arena, which might never be free at once, or if
/// other requests took the memory in every round.
pub async fn sinks(arena: Arena, from: Vec<BufferDescriptorV1>, class: Class) -> Option<SgMut> {
    let bytes: usize = sink_sizes(&from).map(|n| n.next_power_of_two().max(CHUNK_MIN)).sum();
    if bytes > arena.usage().budget / 2 {
        return None;
    }
    for _ in 0..ATTEMPTS {
        if let Some(sinks) = try_sinks(&arena, &from, class) {
            return Some(sinks);
        }
        // Waits in the arena's queue for that much memory, and holds none meanwhile. The next round allocates the
        // sinks.
        drop(arena.alloc_sg(bytes, class).await);
    }
    try_sinks(&arena, &from, class)
}

/// Maximum number of rounds of waiting for memory that other requests then take.
const ATTEMPTS: usize = 16;

/// Splits a read of the descriptors into pieces, each within one descriptor and one sink. Two pieces never share a
/// sink. So if a descriptor ends inside a sink, additional sinks may be needed; they are allocated from the arena.
///
/// # Errors
/// [`SmbDirectError::NoMemory`].
pub(crate) fn cut_read(
    from: &[BufferDescriptorV1],
    sinks: SgMut,
    arena: &Arena,
) -> Result<VecDeque<(IoBufMut, Remote)>, SmbDirectError> {
    let (mut sinks, mut out) = (sinks.into_iter(), VecDeque::with_capacity(from.len()));
    for d in from {
        let (mut offset, mut left) = (d.offset, d.length as usize);
        while left > 0 {
            let next = sinks.next().or_else(|| arena.try_alloc(left.min(CHUNK_MAX), Class::Payload));
            let sink = next.ok_or(SmbDirectError::NoMemory)?;
            let length = left.min(sink.capacity());
            out.push_back((sink, Remote { stag: Stag(d.token), offset, length: length as u32 }));
            left -= length;
            offset = offset.wrapping_add(length as u64);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors(lengths: &[u32]) -> Vec<BufferDescriptorV1> {
        lengths.iter().map(|n| BufferDescriptorV1 { offset: 0, token: 1, length: *n }).collect()
    }

    #[tokio::test]
    async fn sinks_follow_the_descriptors() {
        let arena = Arena::new(8 << 20).expect("memory");
        let lengths = [1, 0, (1 << 20) + 5, 4096, 9000];
        let from = descriptors(&lengths);
        let got = sinks(arena.clone(), from.clone(), Class::Payload).await.expect("there is memory");
        assert_eq!(got.len(), 5);
        // Splitting needs no additional sinks: the arena may be empty by now.
        let full = Arena::new(1).expect("memory");
        let mut held = Vec::new();
        while let Some(b) = full.try_alloc(CHUNK_MIN, Class::Payload) {
            held.push(b);
        }
        let pieces = cut_read(&from, got, &full).expect("they suffice");
        let cut: Vec<u32> = pieces.iter().map(|(_, r)| r.length).collect();
        assert_eq!(cut, [1, 1 << 20, 5, 4096, 9000]);
    }

    /// The caller waits for all sinks together, and holds none meanwhile.
    #[tokio::test(start_paused = true)]
    async fn sinks_are_waited_for() {
        let arena = Arena::new(4 << 20).expect("memory");
        let mut held = Vec::new();
        while let Some(b) = arena.try_alloc(CHUNK_MIN, Class::Payload) {
            held.push(b);
        }
        let from = descriptors(&[4097; 60]);
        let first = sinks(arena.clone(), from.clone(), Class::Payload);
        let second = sinks(arena.clone(), from.clone(), Class::Payload);
        let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
        let used = arena.usage().used;
        for work in [&mut first, &mut second] {
            let early = tokio::time::timeout(std::time::Duration::from_secs(9), work.as_mut()).await;
            assert!(early.is_err() && arena.usage().used == used, "it waits, and holds nothing");
        }
        drop(held);
        let (a, b) = tokio::join!(first, second);
        assert_eq!((a.expect("freed").len(), b.expect("freed").len()), (60, 60));
        assert_eq!(arena.usage().waiting, 0);
        // A request beyond the arena's size fails at once.
        assert!(sinks(arena, descriptors(&[40_000; 60]), Class::Payload).await.is_none());
    }
}
