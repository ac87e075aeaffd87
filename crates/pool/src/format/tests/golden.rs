//! The golden bytes: a change of one of these changes the format.

use disk::Media;
use pool_seam::{LogState, Ownership};

use super::values::{a_claim, a_label};
use crate::format::{Header, Kind, encode_record};
use crate::metadata::{Encoded, Point};
use crate::{
    DiskId, DiskNumber, DiskRecord, FaultDomains, LossRecord, MediaClass, Membership, NewSlab, Op, Policy,
    PoolId, Presence, Provisioning, Resiliency, RowNumber, RowShape, SlabPlace, SpaceEpoch, SpaceId, SpaceOp,
    SpaceRecord, State, Usage,
};

/// Header and body, 32 bytes a line; the rest of the blocks must be zeros.
fn hex(frame: &[u8]) -> String {
    let end = 64 + u32::from_le_bytes(frame[52..56].try_into().unwrap()) as usize;
    assert!(frame[end..].iter().all(|b| *b == 0));
    let lines = frame[..end].chunks(32);
    lines.map(|l| l.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n").collect()
}

/// The operations that open a pool with three disks and the voters.
fn disks() -> Vec<Op> {
    let record = |n: u16| DiskRecord {
        id: DiskId([n as u8; 16]),
        name: format!("d{n}"),
        slabs: 7,
        usage: Usage::AutoSelect,
        presence: Presence::Present,
        domains: FaultDomains::default(),
        media: 2,
        label_sequence: 1,
        membership: crate::Membership(1),
        areas: crate::format::Areas::plan(16 << 20, 2 << 20).expect("room"),
    };
    vec![
        Op::Opened { epoch: 5, incarnation: 0x1122_3344_5566_7788 },
        Op::AddDisk { disk: DiskNumber(0), record: record(0) },
        Op::AddDisk { disk: DiskNumber(1), record: record(1) },
        Op::AddDisk { disk: DiskNumber(2), record: record(2) },
        Op::Voters { voters: [DiskNumber(0), DiskNumber(1)].into() },
    ]
}

fn place(disk: u16, slab: u32) -> SlabPlace {
    SlabPlace { disk: DiskNumber(disk), slab }
}

fn ops() -> Vec<Op> {
    let (space, row, log) = (SpaceId(0), RowNumber(0), RowNumber::LOG);
    let epoch = SpaceEpoch::first(5);
    let space_of = |name: &str, size, resiliency, columns, slot| SpaceRecord {
        name: name.into(),
        size,
        resiliency,
        interleave: 65536,
        columns,
        former: RowShape { resiliency, interleave: 65536, columns },
        slot,
        ownership: Ownership { epoch, ..Ownership::default() },
        ..SpaceRecord::default()
    };
    let (mirror, lrc) = (Resiliency::Mirror { copies: 2 }, Resiliency::LocalParity { groups: 2, global: 1 });
    let create = |record| SpaceOp::Create { record: Box::new(record) };
    let fixed = SpaceRecord {
        provisioning: Provisioning::Fixed,
        media: MediaClass::of([Media::Ssd, Media::Scm]),
        ..space_of("t", 4 << 20, Resiliency::Simple, 2, 5)
    };
    let of_space = [
        create(space_of("m", 4 << 20, mirror, 1, 3)),
        SpaceOp::Allocate { row: log, first: 1, slabs: vec![place(0, 3), place(1, 4)] },
        SpaceOp::Ready { row: log, birth: 1, stale_copies: Vec::new() },
        SpaceOp::Allocate { row, first: 3, slabs: vec![place(0, 1), place(1, 2)] },
        SpaceOp::Ready { row, birth: 3, stale_copies: vec![1] },
        SpaceOp::MarkCurrent { row, index: 1, generation: 4, regions: 0b001 },
        SpaceOp::MarkStale { row, index: 0, generation: 3, regions: 0b001 },
        SpaceOp::BeginMove { row, index: 1, to: place(2, 5) },
        SpaceOp::Unaccounted { disk: DiskNumber(1), membership: Membership(1) },
        SpaceOp::Log { state: LogState { epoch, sequence: 0x0506, is_closed: false } },
        SpaceOp::Lost { record: LossRecord { units: 0x0304, at: [0x5000, 0x6000].into() } },
        SpaceOp::SetMedia { media: MediaClass::of([Media::Hdd]) },
        SpaceOp::SetShape {
            shape: RowShape { resiliency: Resiliency::Mirror { copies: 3 }, interleave: 65536, columns: 1 },
        },
        SpaceOp::Reshape {
            row: log,
            slabs: vec![
                NewSlab::Kept { index: 0 },
                NewSlab::Kept { index: 1 },
                NewSlab::Free { place: place(2, 6) },
            ],
        },
        SpaceOp::Done { epoch, number: 0x0708 },
    ];
    let others = [
        Op::Space { space: SpaceId(1), op: create(space_of("l", 16 << 20, lrc, 8, 4)) },
        Op::Space { space: SpaceId(2), op: create(fixed) },
        Op::SetPolicy { policy: Policy { warn_at: 80, repair_after_s: 60 } },
        Op::SetUsage { disk: DiskNumber(1), usage: Usage::Leaving },
        Op::SetDiskMedia { disk: DiskNumber(1), media: 1 },
        Op::GivenUp { after: 0x0708 },
    ];
    let of_space = of_space.into_iter().map(|op| Op::Space { space, op });
    disks().into_iter().chain(of_space).chain(others).collect()
}

fn header(kind: Kind, point: &Point) -> Header {
    Header {
        kind,
        pool: PoolId(*b"0123456789abcdef"),
        disk: DiskNumber(1),
        epoch: point.epoch,
        incarnation: point.incarnation,
        sequence: point.sequence,
        chain: point.chain,
    }
}

/// A record with these operations, and a checkpoint of the state after them.
fn frames(ops: &[Op]) -> [String; 2] {
    let before = Point { epoch: 5, incarnation: 0x1122_3344_5566_7788, sequence: 9, chain: 0xC0FF_EE00 };
    let body = encode_record(ops);
    let record = Header { sequence: 10, ..header(Kind::Record, &before) }.frame(&body);
    let after = before.after(&body);
    let mut state = State::new(PoolId(*b"0123456789abcdef"), "tank".into(), 8 << 20);
    state.apply_all(ops).unwrap();
    let checkpoint = Encoded::new(&state).checkpoint(&header(Kind::Checkpoint, &after), 8192);
    [hex(&record), hex(&[&checkpoint[0][..], &checkpoint[1]].concat())]
}

fn bytes() -> String {
    let [record, checkpoint] = frames(&ops());
    let all = [
        ("label", hex(&a_label().encode())),
        ("claim", hex(&a_claim().encode(DiskNumber(1)))),
        ("record", record),
        ("checkpoint", checkpoint),
    ];
    all.iter().map(|(name, hex)| format!("{name}\n{hex}")).collect()
}

#[test]
fn golden_bytes() {
    let got = bytes();
    assert_eq!(got, include_str!("golden.txt"), "the format has changed; got\n{got}");
}
