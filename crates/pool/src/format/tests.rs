//! Round trips, goldens, and arbitrary bytes.

mod golden;
pub(crate) mod values;

use proptest::prelude::*;

use super::*;
use crate::{DiskNumber, InvalidOp, PoolId};

proptest! {
    #[test]
    fn records_come_back(ops in prop::collection::vec(values::op(), 0..20)) {
        prop_assert_eq!(decode_record(&encode_record(&ops)), Ok(ops));
    }

    #[test]
    fn states_come_back_and_fit_the_bound(ops in prop::collection::vec(values::op(), 0..60)) {
        let state = values::state(&ops);
        let bytes = encode_state(&state);
        prop_assert!(bytes.len() <= state_size_bound(&state), "{} > {}", bytes.len(), state_size_bound(&state));
        prop_assert_eq!(decode_state(&bytes), Ok(state));
    }

    #[test]
    fn labels_come_back(label in values::label()) {
        let bytes = label.encode();
        prop_assert_eq!(bytes.len(), BLOCK, "one block");
        prop_assert_eq!(Label::decode(&bytes), Ok(label));
    }

    #[test]
    fn claims_come_back(claim in values::claim(), disk in any::<u16>()) {
        let bytes = claim.encode(DiskNumber(disk));
        prop_assert_eq!(bytes.len(), BLOCK, "one block");
        prop_assert_eq!(Claim::decode(&bytes), Ok((claim, DiskNumber(disk))));
    }

    /// A frame with one wrong bit anywhere in header or body is refused.
    #[test]
    fn a_flipped_bit_is_found(claim in values::claim(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = claim.encode(DiskNumber(1));
        let length = 64 + u32::from_le_bytes(bytes[52..56].try_into().unwrap()) as usize;
        let at = at.index(length);
        // Bytes 5 and 56 to 59 are covered too, although they are unused.
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Claim::decode(&bytes).is_err());
    }

    /// A body with a valid checksum may still be invalid: it is refused, without a panic.
    #[test]
    fn bodies_that_nobody_wrote(
        state in prop::collection::vec(values::op(), 0..30),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = encode_state(&values::state(&state));
        let _ = decode_state(&bytes[..cut.index(bytes.len())]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(mut decoded) = decode_state(&bytes) {
            for op in &state {
                let _ = decoded.apply(op);
            }
        }
        let _ = (decode_state(&noise), decode_record(&noise), Label::decode(&noise), Claim::decode(&noise));
        let mut record = encode_record(&state);
        let at = cut.index(record.len());
        record[at] = byte;
        let _ = decode_record(&record);
    }
}

#[test]
fn counts_that_promise_more_than_there_is_cost_nothing() {
    assert_eq!(decode_record(&u32::MAX.to_le_bytes()), Err(Malformed));
    let header = Header {
        kind: Kind::Record,
        pool: PoolId([1; 16]),
        disk: DiskNumber(1),
        epoch: 1,
        incarnation: 1,
        sequence: 1,
        chain: 1,
    };
    let mut frame = header.frame(b"body");
    frame[52..56].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Frame::parse(&frame, Kind::Record).map(|f| f.header), Err(FrameError::Damaged));
}

#[test]
fn a_frame_is_blank_foreign_or_damaged() {
    let claim = values::a_claim().encode(DiskNumber(3));
    assert_eq!(Claim::decode(&[0; BLOCK]), Err(FrameError::Blank));
    assert_eq!(Claim::decode(&[7; BLOCK]), Err(FrameError::Foreign));
    assert!(matches!(Label::decode(&claim), Err(LabelError::Frame(FrameError::Foreign))), "another kind");
    assert_eq!(Claim::decode(&claim[..100]), Err(FrameError::Damaged), "cut off");
}

#[test]
fn other_versions_and_unknown_features() {
    let mut label = values::a_label();
    label.features = vec![
        Feature { class: FeatureClass::Incompatible, bit: 3, name: "parity journal".into() },
        Feature { class: FeatureClass::ReadOnly, bit: 0, name: "quotas".into() },
    ];
    let read = Label::decode(&label.encode()).unwrap();
    assert_eq!(read.unknown(FeatureClass::Incompatible)[0].to_string(), "parity journal");
    assert_eq!(read.unknown(FeatureClass::ReadOnly)[0].to_string(), "quotas");
    assert!(read.unknown(FeatureClass::Compatible).is_empty());
    // An unnamed bit is reported by its number.
    let mut bytes = label.encode();
    let body = 64;
    bytes[body + 2 + 16] |= 1 << 5;
    let length = u32::from_le_bytes(bytes[52..56].try_into().unwrap()) as usize;
    let crc = crc_fast::crc32_iscsi(&[&bytes[..60], &bytes[body..body + length]].concat());
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    let unknown = Label::decode(&bytes).unwrap().unknown(FeatureClass::Incompatible);
    assert_eq!(unknown.iter().map(ToString::to_string).collect::<Vec<_>>(), ["parity journal", "bit 5"]);
    // For another version only the version number is read.
    for other in [0, 2, u16::MAX] {
        let bytes = values::of_version(&label, other);
        assert_eq!(Label::decode(&bytes), Err(LabelError::Version(other)));
    }
}

#[test]
fn areas_scale_with_the_disk_and_never_overlap() {
    for size in [16 << 20, 17 << 20, (100 << 20) + 12345, 1 << 30, 1 << 40, 20 << 40, 300 << 40_u64] {
        let slab = Areas::slab_bytes_for(size, size);
        let areas = Areas::plan(size, slab).unwrap();
        assert!(areas.is_sound() && areas.slabs.offset >= 1 << 20, "{areas:?}");
        assert!(areas.checkpoint_0.length >= 256 << 10 && areas.journal.length >= 256 << 10);
        let last = areas.slab_count() - 1;
        assert_eq!(areas.checksums(0).offset, areas.slabs.offset);
        assert!(areas.data(last).end() <= areas.slabs.end() && areas.slabs.end() <= areas.label_b.offset);
        assert_eq!(areas.data(0).end(), areas.checksums(1).offset);
        let overhead = areas.slabs.offset as f64 / size as f64;
        assert!(overhead < 0.07 && (size < 1 << 40 || overhead < 0.0006), "{overhead} of {size}");
    }
    const TIB: u64 = 1 << 40;
    assert_eq!(Areas::slab_bytes_for(16 << 20, 48 << 20), 2 << 20);
    assert_eq!(Areas::slab_bytes_for(4 * TIB, 256 * TIB), 256 << 20);
    assert_eq!(Areas::slab_bytes_for(4 * TIB, 260 * TIB), 512 << 20);
    assert_eq!(Areas::slab_bytes_for(16 * TIB, 1024 * TIB), 1 << 30);
    assert_eq!(Areas::slab_bytes_for(16 * TIB, u64::MAX), 1 << 30);
    assert_eq!(Areas::slab_bytes_for(TIB / 64, 1024 * TIB), 256 << 20, "the smallest disk has 64");
    assert!(Areas::plan(15 << 20, 2 << 20).is_none());
    assert!(Areas::plan(16 << 20, 64 << 20).is_none(), "no room for one");
}

#[test]
fn states_that_break_their_invariants_are_malformed() {
    let state = values::state(&[]);
    let bytes = encode_state(&state);
    // The list of voters follows the pool, the name and the slab size: makes a voter of a disk that does not exist.
    let at = 16 + 1 + state.name.len() + 8 + 4;
    assert_eq!(bytes[at], 0, "no voters");
    let with_voter = [&bytes[..at], &[1, 9, 0], &bytes[at + 1..]].concat();
    assert_eq!(decode_state(&with_voter), Err(Malformed));
    assert_eq!(state.clone().checked(), Ok(state.clone()));
    let mut wrong = state;
    wrong.slab_bytes = 12345;
    assert!(matches!(wrong.checked(), Err(InvalidOp::BadShape(_))));
}
