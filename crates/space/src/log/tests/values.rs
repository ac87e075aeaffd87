use pool_seam::{DiskNumber, PoolId, RowNumber, SpaceId};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::log::entry::*;
use crate::log::header::*;
use crate::log::ring::{Point, Ring};

pub(super) const ID: ReplicaId =
    ReplicaId { pool: PoolId(*b"pool of 16 bytes"), space: SpaceId(0x0102), allocation: 77 };

fn first_unit() -> impl Strategy<Value = FirstUnit> {
    (any::<u32>(), any::<u32>(), any::<u8>(), any::<u8>(), prop_oneof![0..9_u32, Just(u32::MAX - 20)])
        .prop_map(|(row, birth, content, column, unit)| FirstUnit {
            row: RowNumber(row),
            birth,
            content,
            column,
            unit,
        })
}

fn first_stripe() -> impl Strategy<Value = FirstStripe> {
    (any::<u32>(), any::<u32>(), 0..1000_u32).prop_map(|(row, birth, unit)| FirstStripe {
        row: RowNumber(row),
        birth,
        unit,
    })
}

fn stripe() -> impl Strategy<Value = Stripe> {
    (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(written, a, b, seed)| {
        let known = a & b;
        let sums = (0..known.count_ones()).map(|i| seed.wrapping_mul(i + 1)).collect();
        Stripe { written, known, sums }
    })
}

fn redo() -> impl Strategy<Value = RedoStripe> {
    (stripe(), any::<u32>(), any::<u32>()).prop_map(|(stripe, a, b)| {
        let payload = stripe.known & a & b;
        RedoStripe { stripe, payload }
    })
}

fn change() -> impl Strategy<Value = Change> {
    let sums = || vec(any::<u32>(), 1..20).prop_map(Sums::from_vec);
    let row = || any::<u32>().prop_map(RowNumber);
    prop_oneof![
        (first_unit(), sums()).prop_map(|(first, sums)| Change::Written { first, sums }),
        (first_unit(), 1..20_u16).prop_map(|(first, count)| Change::Discarded { first, count }),
        (first_unit(), sums()).prop_map(|(first, sums)| Change::Lost { first, sums }),
        (first_unit(), 1..20_u16).prop_map(|(first, count)| Change::LostWithoutSum { first, count }),
        (first_stripe(), vec(stripe(), 1..4)).prop_map(|(first, stripes)| Change::Fresh { first, stripes }),
        (first_stripe(), vec(redo(), 1..4)).prop_map(|(first, stripes)| Change::Redo { first, stripes }),
        (row(), any::<u32>(), any::<u8>(), any::<u64>())
            .prop_map(|(row, birth, set, regions)| Change::Active { row, birth, set, regions }),
        (first_unit(), 1..20_u16).prop_map(|(first, count)| Change::Doubt { first, count }),
        (0..1_u64 << 62, any::<u32>())
            .prop_map(|(through, records)| Change::SnapshotBegins { through, records }),
        (any::<u16>(), 0..1_u64 << 62, 0..1_u64 << 62, any::<u64>()).prop_map(
            |(disk, mark, count, membership)| Change::DiskMark {
                disk: DiskNumber(disk),
                mark,
                count,
                membership
            }
        ),
        (any::<u64>(), vec(any::<u8>(), 0..40)).prop_map(|(key, value)| Change::AnnexPut { key, value }),
        any::<u64>().prop_map(|key| Change::AnnexRemove { key }),
        Just(Change::SnapshotEnds),
    ]
}

pub(super) fn entry() -> impl Strategy<Value = Entry> {
    (change(), any::<bool>()).prop_map(|(change, is_unconfirmed)| {
        use Change::{Discarded, Doubt, Fresh, Lost, LostWithoutSum, Redo, Written};
        let is_of_units = matches!(
            change,
            Written { .. }
                | Discarded { .. }
                | Lost { .. }
                | LostWithoutSum { .. }
                | Fresh { .. }
                | Redo { .. }
                | Doubt { .. }
        );
        Entry { change, is_unconfirmed: is_unconfirmed && is_of_units }
    })
}

pub(super) fn header() -> impl Strategy<Value = Header> {
    let steps = vec((1..9_u64, 0..99_u64, 0..9_u64, any::<[u8; 16]>(), 0..9_u64), 1..=SEGMENTS_MAX);
    (steps, 1..=16_384_u64, any::<u32>(), 0..5_u64, any::<u32>()).prop_map(
        |(steps, ring, serial, past, joined)| {
            let mut segments: Vec<Segment> = Vec::new();
            let (mut epoch, mut at) = (0, Point { position: 0, sequence: 1 });
            for (more, blocks, records, key, unconfirmed) in steps {
                epoch += more;
                if let Some(last) = segments.last_mut() {
                    let confirmed = at.sequence.saturating_sub(unconfirmed);
                    last.closed = Some(Closed { end: at.position, confirmed });
                }
                let log = u64::from_le_bytes(std::array::from_fn(|i| key[i]));
                segments.push(Segment { epoch, log, key: Key(key), first: at, closed: None });
                at = Point { position: at.position + blocks, sequence: at.sequence + records };
            }
            let first = segments[0].first;
            let tail = Point { position: first.position + past, sequence: first.sequence + past };
            let ring = Ring::new(ring).unwrap();
            Header { serial: serial.into(), ring, tail, joined: joined.into(), segments }
        },
    )
}
