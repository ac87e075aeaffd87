//! Reassembles upper-layer messages from received fragments, mostly without copying.
//!
//! A fragment stays in its receive buffer unless it fits into the free space of the previous fragment's buffer. In
//! that case it is copied there and its own buffer is free again. So any two adjacent buffers together contain more
//! than one buffer's worth of data: a message of n bytes occupies less than 2n bytes plus two buffers, however
//! small its fragments are. A short message of one fragment is copied out, so that a request that waits for long
//! occupies only its own size.

use arena::passes::{Pass, count};
use arena::{IoBuf, IoBufMut, Sg};
use rdma::{Exposed, Stag};

use crate::Violation;
use crate::pdu::DATA_OFFSET;

/// Messages up to this many bytes are copied out of their receive buffer. The copy is cheaper than a new receive
/// buffer, and the upper layer may hold the message for long without occupying a receive buffer.
const COPY_BELOW: usize = 512;

/// The message under reassembly.
#[derive(Default)]
pub(crate) struct Assembly {
    done: Sg,
    /// Buffer of the last fragment, and the offset of its data.
    tail: Option<(IoBufMut, usize)>,
    invalidated: Option<(Stag, Exposed)>,
}

impl Assembly {
    /// Records that a fragment invalidated one of our steering tags.
    ///
    /// # Errors
    /// [`Violation::Invalidation`] if the message has already invalidated one.
    pub(crate) fn invalidated(&mut self, what: (Stag, Exposed)) -> Result<(), Violation> {
        match self.invalidated.replace(what) {
            None => Ok(()),
            Some(_) => Err(Violation::Invalidation),
        }
    }

    /// Adds the next fragment: `length` bytes at `offset` of the received message `buf`. Returns `buf` if it is
    /// free again.
    pub(crate) fn push(
        &mut self,
        mut buf: IoBufMut,
        offset: usize,
        length: usize,
        last: bool,
    ) -> Option<IoBufMut> {
        let first = self.done.is_empty() && self.tail.is_none();
        if first && last && length <= COPY_BELOW {
            count(Pass::Copy, length);
            self.done.push(IoBuf::from(buf[offset..offset + length].to_vec()));
            return Some(buf);
        }
        if let Some((tail, _)) = &mut self.tail
            && tail.spare().len() >= length
        {
            count(Pass::Copy, length);
            tail.append(&buf[offset..offset + length]);
            return Some(buf);
        }
        self.close_tail();
        let start = if offset > DATA_OFFSET && !last {
            // Moves the data to the usual offset: a larger offset would reduce the space for later fragments.
            buf.filled_mut().copy_within(offset..offset + length, DATA_OFFSET);
            count(Pass::Copy, length);
            DATA_OFFSET
        } else {
            offset
        };
        buf.set_len(start + length);
        self.tail = Some((buf, start));
        None
    }

    /// Number of bytes so far; `None` before the first fragment.
    pub(crate) fn length(&self) -> Option<usize> {
        let tail = self.tail.as_ref().map(|(buf, start)| buf.len() - start);
        (tail.is_some() || !self.done.is_empty()).then(|| arena::sg_len(&self.done) + tail.unwrap_or(0))
    }

    /// Takes the complete message after its last fragment, and the steering tag that it invalidated.
    pub(crate) fn take(&mut self) -> (Sg, Option<(Stag, Exposed)>) {
        self.close_tail();
        (std::mem::take(&mut self.done), self.invalidated.take())
    }

    fn close_tail(&mut self) {
        if let Some((tail, start)) = self.tail.take() {
            let end = tail.len();
            self.done.push(tail.freeze().slice(start..end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arena::{Arena, Class, sg_to_vec};
    use proptest::prelude::*;

    fn received(arena: &Arena, offset: usize, data: &[u8]) -> IoBufMut {
        let mut b = arena.try_alloc(4096, Class::Payload).expect("there is memory");
        b.append(&[0xEE; 4096][..offset]);
        assert_eq!(b.append(data), data.len());
        b
    }

    #[test]
    fn a_long_fragment_is_not_copied_and_a_short_message_is() {
        let arena = Arena::new(4 << 20).expect("a mapping");
        let mut a = Assembly::default();
        let buf = received(&arena, 24, &[7; 1000]);
        let at = buf[24..].as_ptr();
        assert!(a.push(buf, 24, 1000, true).is_none());
        let (sg, _) = a.take();
        assert_eq!((sg[0].as_ptr(), sg[0].len()), (at, 1000));
        assert!(a.push(received(&arena, 24, &[8; 512]), 24, 512, true).is_some());
        drop(sg);
        assert_eq!((arena.usage().used, sg_to_vec(&a.take().0)), (0, vec![8; 512]));
    }

    proptest! {
        /// Every message is reassembled unchanged, within the memory bound of the module's documentation.
        #[test]
        fn reassembles_within_its_bound(parts in prop::collection::vec((0usize..500, prop_oneof![1usize..40, 1usize..2000]), 1..60)) {
            let arena = Arena::new(4 << 20).expect("a mapping");
            let (mut a, mut want, mut sent) = (Assembly::default(), Vec::new(), 0u8);
            for (i, (offset, length)) in parts.iter().enumerate() {
                let data: Vec<u8> = (0..*length).map(|_| { sent = sent.wrapping_add(1); sent }).collect();
                let offset = 24 + offset / 8 * 8;
                a.push(received(&arena, offset, &data), offset, *length, i + 1 == parts.len());
                want.extend(data);
                // A buffer has 24 bytes of header, so two in a row hold at least 4096 - 24 bytes of data.
                prop_assert!(arena.usage().used <= 2 * (want.len() * 4096 / (4096 - 24)) + 3 * 4096);
            }
            let (sg, _) = a.take();
            prop_assert_eq!(sg_to_vec(&sg), want);
            drop(sg);
            prop_assert_eq!(arena.usage().used, 0);
        }
    }
}
