use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use crate::log::ring::Ring;

#[test]
fn a_record_that_would_pass_the_end_begins_at_block_0() {
    let ring = Ring::new(16).unwrap();
    assert_eq!((ring.place(13, 3), ring.place(13, 4), ring.place(16, 4)), (13, 16, 16));
    assert_eq!((ring.block(13), ring.block(16), ring.to_end(13), ring.to_end(16)), (13, 0, 3, 16));
    assert_eq!(ring.fit(4, 13, 4), Some(16), "the skipped blocks count: 16 to 20 is the lap of 0 to 4");
    assert_eq!(ring.fit(3, 13, 4), None);
    assert_eq!((ring.room(3, 13), ring.room(3, 19), ring.room(3, 20)), (6, 0, 0));
    assert_eq!((Ring::new(0), Ring::new(16_385)), (None, None));
    assert_eq!((Ring::new(16_384).unwrap().record_max(), Ring::new(4).unwrap().record_max()), (2048, 1));
}

proptest! {
    /// Compares with a model ring that knows the record in each block.
    #[test]
    fn no_live_record_is_overwritten(blocks in 1..40_u64, steps in vec((1..12_u64, 0..4_usize), 1..200)) {
        let ring = Ring::new(blocks).unwrap();
        let (mut tail, mut end) = (0, 0);
        let mut live = VecDeque::new();
        let mut owner = BTreeMap::new();
        for (length, trim) in steps {
            match ring.fit(tail, end, length) {
                Some(position) => {
                    prop_assert!(position >= end && position - end < blocks);
                    prop_assert!(ring.block(position) + length <= blocks, "contiguous");
                    prop_assert!(position == end || ring.block(position) == 0 && end % blocks + length > blocks);
                    for block in 0..length {
                        owner.insert(ring.block(position) + block, position);
                    }
                    live.push_back((position, length));
                    end = position + length;
                }
                None => {
                    // The record would fit an empty ring at this place, so only live records are in its way.
                    let position = ring.place(end, length);
                    prop_assert!(position + length - tail > blocks);
                }
            }
            for (position, length) in &live {
                let first = ring.block(*position);
                prop_assert!((first..first + length).all(|block| owner[&block] == *position));
            }
            for _ in 0..trim {
                live.pop_front();
            }
            tail = live.front().map_or(end, |(position, _)| *position);
        }
    }
}
