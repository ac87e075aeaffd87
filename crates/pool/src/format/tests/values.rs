//! Arbitrary values.

use pool_seam::{LogState, Ownership};
use proptest::prelude::*;

use crate::format::{Areas, Claim, Claimant, Feature, FeatureClass, Label};
use crate::{
    Absence, DiskId, DiskNumber, DiskRecord, FaultDomains, LossRecord, MediaClass, Membership, NewSlab, Op,
    Policy, PoolId, Presence, Provisioning, Resiliency, RowNumber, RowShape, ScrubRecord, SlabPlace,
    SpaceEpoch, SpaceId, SpaceOp, SpaceRecord, State, Usage,
};

/// The state after the operations that it accepts.
pub fn state(ops: &[Op]) -> State {
    let mut s = State::new(PoolId([9; 16]), "tank".into(), 2 << 20);
    for op in ops {
        let _ = s.apply(op);
    }
    s
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "\\PC{0,60}"]
}

fn small() -> impl Strategy<Value = u16> {
    0..4_u16
}

fn domains() -> impl Strategy<Value = FaultDomains> {
    (name(), name(), name()).prop_map(|(enclosure, node, rack)| FaultDomains { enclosure, node, rack })
}

fn absence() -> impl Strategy<Value = Absence> {
    use Absence::*;
    prop::sample::select(vec![NotFound, Gone, WriteFailed, FlushFailed, Slow, ByCommand, Stale])
}

fn usage() -> impl Strategy<Value = Usage> {
    use Usage::*;
    prop::sample::select(vec![AutoSelect, ManualSelect, HotSpare, Journal, Retired, Leaving])
}

fn presence() -> impl Strategy<Value = Presence> {
    prop_oneof![3 => Just(Presence::Present), 1 => absence().prop_map(Presence::Absent)]
}

fn disk_record() -> impl Strategy<Value = DiskRecord> {
    let head = (any::<[u8; 16]>(), name(), 0..100_u32, usage());
    (head, presence(), domains(), 0..5_u8, any::<u64>()).prop_map(
        |((id, name, slabs, usage), presence, domains, media, label_sequence)| DiskRecord {
            id: DiskId(id),
            name,
            slabs,
            usage,
            presence,
            domains,
            media,
            label_sequence,
            membership: Membership(1),
            areas: Areas::plan(16 << 20, 2 << 20).expect("large enough"),
        },
    )
}

fn media() -> impl Strategy<Value = MediaClass> {
    prop_oneof![
        Just(MediaClass::ANY),
        (1..16_u8).prop_map(|bits| MediaClass::from_bits(bits).expect("known media"))
    ]
}

fn space_record() -> impl Strategy<Value = SpaceRecord> {
    let resiliency = prop_oneof![
        Just(Resiliency::Simple),
        (0..5_u8).prop_map(|copies| Resiliency::Mirror { copies }),
        (0..4_u8).prop_map(|parity| Resiliency::Parity { parity }),
        (0..4_u8, 0..3_u8).prop_map(|(groups, global)| Resiliency::LocalParity { groups, global }),
    ];
    let provisioning = prop::sample::select(vec![Provisioning::Thin, Provisioning::Fixed]);
    (name(), 1..50_u64, resiliency, 12..22_u32, 1..4_u8, provisioning, media()).prop_map(
        |(name, mib, resiliency, power, columns, provisioning, media)| SpaceRecord {
            name,
            size: mib << 20,
            resiliency,
            interleave: 1 << power,
            columns,
            provisioning,
            media,
            ..SpaceRecord::default()
        },
    )
}

fn scrub() -> impl Strategy<Value = ScrubRecord> {
    (any::<[u64; 7]>(), any::<bool>(), any::<u32>()).prop_map(|(n, by_command, next)| ScrubRecord {
        began: n[0],
        by_command,
        next: RowNumber(next),
        healed: n[1],
        lost: n[2],
        ended: n[3],
        last_healed: n[4],
        last_lost: n[5],
        since: n[6],
    })
}

fn losses() -> impl Strategy<Value = LossRecord> {
    let at = prop::collection::btree_set((0..9_000_u64).prop_map(|unit| unit * 4096), 0..40);
    (0..60_u64, at).prop_map(|(units, at)| LossRecord { units, at })
}

/// Any operation on a space; most fit one of the first generations.
fn space_op() -> impl Strategy<Value = SpaceOp> {
    let disk = || small().prop_map(DiskNumber);
    let row = || prop_oneof![3 => small().prop_map(|n| RowNumber(n.into())), 1 => Just(RowNumber::LOG)];
    let place = || (disk(), 0..40_u32).prop_map(|(disk, slab)| SlabPlace { disk, slab });
    let generation = || 0..6_u32;
    let copy = || (row(), 0..3_u8, generation(), prop_oneof![Just(u64::MAX), any::<u64>()]);
    let of = || (0..3_u64).prop_map(Membership);
    let epoch = || (0..3_u64).prop_map(SpaceEpoch);
    prop_oneof![
        6 => (space_record(), 0..3_u16).prop_map(|(record, slot)| SpaceOp::Create {
            record: Box::new(SpaceRecord { slot, former: record.shape(), ..record })
        }),
        1 => Just(SpaceOp::Destroy),
        1 => name().prop_map(|name| SpaceOp::Rename { name }),
        1 => media().prop_map(|media| SpaceOp::SetMedia { media }),
        1 => any::<u16>().prop_map(|mib| SpaceOp::SetSize { size: u64::from(mib) << 20 }),
        8 => (row(), generation(), prop::collection::vec(place(), 1..5))
            .prop_map(|(row, first, slabs)| SpaceOp::Allocate { row, first, slabs }),
        1 => (row(), generation(), prop::collection::vec(0..3_u8, 0..2))
            .prop_map(|(row, birth, stale_copies)| SpaceOp::Ready { row, birth, stale_copies }),
        1 => (row(), generation()).prop_map(|(row, birth)| SpaceOp::Free { row, birth }),
        1 => copy().prop_map(|(row, index, generation, regions)| {
            SpaceOp::MarkStale { row, index, generation, regions }
        }),
        1 => copy().prop_map(|(row, index, generation, regions)| {
            SpaceOp::MarkCurrent { row, index, generation, regions }
        }),
        1 => (disk(), of()).prop_map(|(disk, of)| SpaceOp::MarkDiskStale { disk, membership: of }),
        1 => (disk(), of()).prop_map(|(disk, of)| SpaceOp::Accounted { disk, membership: of }),
        1 => (disk(), of()).prop_map(|(disk, of)| SpaceOp::Unaccounted { disk, membership: of }),
        2 => (row(), 0..3_u8, place()).prop_map(|(row, index, to)| SpaceOp::BeginMove { row, index, to }),
        1 => row().prop_map(|row| SpaceOp::EndMove { row }),
        1 => row().prop_map(|row| SpaceOp::CancelMove { row }),
        1 => (row(), 0..3_u8, place()).prop_map(|(row, index, to)| SpaceOp::Replace { row, index, to }),
        1 => prop_oneof![
            Just(Resiliency::Simple),
            (2..4_u8).prop_map(|copies| Resiliency::Mirror { copies }),
        ]
        .prop_map(|resiliency| SpaceOp::SetShape {
            shape: RowShape { resiliency, interleave: 65536, columns: 1 }
        }),
        1 => any::<u8>().prop_map(|mib| SpaceOp::Converted { to: u64::from(mib) << 20 }),
        1 => (row(), prop::collection::vec(prop_oneof![
            (0..3_u8).prop_map(|index| NewSlab::Kept { index }),
            place().prop_map(|place| NewSlab::Free { place }),
        ], 1..4))
            .prop_map(|(row, slabs)| SpaceOp::Reshape { row, slabs }),
        1 => epoch().prop_map(|epoch| SpaceOp::Own { ownership: Ownership { epoch, ..Ownership::default() } }),
        1 => (epoch(), 0..4_u64).prop_map(|(epoch, number)| SpaceOp::Done { epoch, number }),
        1 => (epoch(), 0..4_u64, any::<bool>()).prop_map(|(epoch, sequence, is_closed)| SpaceOp::Log {
            state: LogState { epoch, sequence, is_closed }
        }),
        1 => scrub().prop_map(|record| SpaceOp::Scrub { record }),
        1 => losses().prop_map(|record| SpaceOp::Lost { record }),
    ]
}

/// Any operation, with numbers so small that many can be applied one after the other.
pub fn op() -> impl Strategy<Value = Op> {
    let disk = || small().prop_map(DiskNumber);
    let space = || small().prop_map(|n| SpaceId(n.into()));
    prop_oneof![
        1 => name().prop_map(|name| Op::RenamePool { name }),
        6 => (disk(), disk_record()).prop_map(|(disk, record)| Op::AddDisk { disk, record }),
        1 => disk().prop_map(|disk| Op::RemoveDisk { disk }),
        1 => (disk(), absence()).prop_map(|(disk, reason)| Op::DiskAbsent { disk, reason }),
        1 => (disk(), 0..4_u64)
            .prop_map(|(disk, of)| Op::DiskPresent { disk, membership: Membership(of) }),
        12 => (space(), space_op()).prop_map(|(space, op)| Op::Space { space, op }),
        1 => (disk(), usage()).prop_map(|(disk, usage)| Op::SetUsage { disk, usage }),
        1 => (disk(), domains()).prop_map(|(disk, domains)| Op::SetDomains { disk, domains }),
        1 => (disk(), any::<u64>()).prop_map(|(disk, sequence)| Op::Labelled { disk, sequence }),
        1 => prop::collection::btree_set(disk(), 0..4).prop_map(|voters| Op::Voters { voters }),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(epoch, incarnation)| Op::Opened { epoch, incarnation }),
        1 => disk().prop_map(|disk| Op::MarkDiskStale { disk }),
        1 => (0..102_u8, any::<u32>())
            .prop_map(|(warn_at, repair_after_s)| Op::SetPolicy { policy: Policy { warn_at, repair_after_s } }),
        1 => (disk(), 0..6_u8).prop_map(|(disk, media)| Op::SetDiskMedia { disk, media }),
        1 => any::<u64>().prop_map(|after| Op::GivenUp { after }),
    ]
}

pub fn label() -> impl Strategy<Value = Label> {
    let feature = (
        prop::sample::select(vec![
            FeatureClass::Compatible,
            FeatureClass::ReadOnly,
            FeatureClass::Incompatible,
        ]),
        0..64_u8,
        "[a-z ]{0,32}",
    );
    let features = prop::collection::btree_map(
        feature.prop_map(|(class, bit, name)| ((class, bit), name)).prop_map(|(k, v)| (k.0, k.1, v)),
        Just(()),
        0..6,
    );
    let numbers = (any::<u16>(), any::<u64>(), any::<u64>(), any::<u64>());
    (numbers, features, name(), domains(), 16..40_u32).prop_map(
        |((number, epoch, incarnation, sequence), features, pool_name, domains, mib)| {
            let mut features: Vec<Feature> =
                features.into_keys().map(|(class, bit, name)| Feature { class, bit, name }).collect();
            features.dedup_by_key(|f| (f.class, f.bit));
            Label {
                number: DiskNumber(number),
                epoch,
                incarnation,
                sequence,
                features,
                pool_name,
                domains,
                areas: Areas::plan(u64::from(mib) << 20, 2 << 20).expect("large enough"),
                ..a_label()
            }
        },
    )
}

pub fn claim() -> impl Strategy<Value = Claim> {
    (any::<u64>(), any::<u64>(), any::<u64>(), name(), any::<u32>(), any::<bool>()).prop_map(
        |(epoch, incarnation, sequence, host, process, exported)| Claim {
            epoch,
            incarnation,
            sequence,
            by: Claimant { host, process, ..a_claim().by },
            exported,
            ..a_claim()
        },
    )
}

pub fn a_label() -> Label {
    Label {
        pool: PoolId(*b"0123456789abcdef"),
        number: DiskNumber(0x0201),
        epoch: 5,
        incarnation: 0x1122_3344_5566_7788,
        sequence: 7,
        features: Vec::new(),
        id: DiskId([0xD1; 16]),
        pool_name: "tank".into(),
        node: [0xE1; 16],
        domains: FaultDomains { enclosure: "e1".into(), node: "n1".into(), rack: "r1".into() },
        atomic_write: 4096,
        areas: Areas::plan(16 << 20, 2 << 20).expect("large enough"),
    }
}

/// The bytes of a label as another version of the format would write them.
pub fn of_version(label: &Label, version: u16) -> Vec<u8> {
    let mut bytes = label.encode();
    bytes[64..66].copy_from_slice(&version.to_le_bytes());
    let length = u32::from_le_bytes(bytes[52..56].try_into().expect("four bytes")) as usize;
    let crc = crc_fast::crc32_iscsi(&[&bytes[..60], &bytes[64..64 + length]].concat());
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub fn a_claim() -> Claim {
    Claim {
        pool: PoolId(*b"0123456789abcdef"),
        epoch: 5,
        incarnation: 0x1122_3344_5566_7788,
        sequence: 3,
        by: Claimant { host: "host1".into(), machine: [0xA1; 16], boot: [0xB1; 16], process: 4242 },
        since_unix_s: 1_767_225_600,
        exported: true,
    }
}
