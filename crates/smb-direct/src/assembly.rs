//! Upper-layer messages out of received fragments, mostly without copying.
//!
//! A fragment stays in its receive buffer, unless it fits into what is left of the buffer of the fragment before:
//! then it is copied there and its own buffer is free again. So of any two buffers in a row the contents exceed one
//! buffer, and a message of n bytes occupies fewer than 2n bytes and two buffers, however small its fragments are.
//! A short message of one fragment is copied out, so that a request that waits long holds its own size only.

use arena::passes::{Pass, count};
use arena::{IoBuf, IoBufMut, Sg};
use rdma::{Exposed, Stag};

use crate::Violation;
use crate::pdu::DATA_OFFSET;

/// Messages up to this many bytes are copied out of their receive buffer: the copy is cheaper than to replace the
/// buffer, and the upper layer may keep the message for long without occupying a receive buffer.
const COPY_BELOW: usize = 512;

/// The message under reassembly.
#[derive(Default)]
pub(crate) struct Assembly {
    done: Sg,
    /// The last fragment's buffer and where its data start.
    tail: Option<(IoBufMut, usize)>,
    invalidated: Option<(Stag, Exposed)>,
}

impl Assembly {
    /// Notes that a fragment invalidated a steering tag of ours.
    ///
    /// # Errors
    /// [`Violation::Invalidation`] for a second one.
    pub(crate) fn invalidated(&mut self, what: (Stag, Exposed)) -> Result<(), Violation> {
        match self.invalidated.replace(what) {
            None => Ok(()),
            Some(_) => Err(Violation::Invalidation),
        }
    }

    /// Adds the next fragment, `length` bytes at `offset` of a received message. Returns its buffer if that is free
    /// again.
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
            // Moved to the usual offset, so that an unusual one does not reduce the space for the fragments after this
            // one.
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

    /// The bytes so far; `None` before the first fragment.
    pub(crate) fn length(&self) -> Option<usize> {
        let tail = self.tail.as_ref().map(|(buf, start)| buf.len() - start);
        (tail.is_some() || !self.done.is_empty()).then(|| arena::sg_len(&self.done) + tail.unwrap_or(0))
    }

    /// The whole message, once its last fragment was added, and the steering tag that it invalidated.
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
        /// Every message comes out as it went in, and the memory bound of the module's doc holds.
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
