//! The golden bytes: a change of one of these changes the format.

use disk::Media;
use pool_seam::LogState;

use super::values::{a_claim, a_label};
use crate::format::{Header, Kind, encode_record};
use crate::metadata::{Encoded, Point};
use crate::{
    DiskId, DiskNumber, DiskRecord, FaultDomains, LossRecord, MediaClass, Membership, Op, Policy, PoolId,
    Presence, Provisioning, Resiliency, RowNumber, SlabPlace, SpaceEpoch, SpaceId, SpaceOp, SpaceRecord,
    State, Usage,
};

/// Header and body, 32 bytes a line; the rest of the blocks must be zeros.
fn hex(frame: &[u8]) -> String {
    let end = 64 + u32::from_le_bytes(frame[52..56].try_into().unwrap()) as usize;
    assert!(frame[end..].iter().all(|b| *b == 0));
    let lines = frame[..end].chunks(32);
    lines.map(|l| l.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n").collect()
}

/// The opening, three disks and the voters.
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

/// Of a space that an owner drives.
fn owned_ops() -> Vec<Op> {
    let (space, row, log) = (SpaceId(0), RowNumber(0), RowNumber::LOG);
    let record = SpaceRecord {
        name: "m".into(),
        size: 4 << 20,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 65536,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::of([Media::Ssd]),
    };
    let epoch = SpaceEpoch::first(5);
    let ops = [
        SpaceOp::Create { record: Box::new(record.owned(3, 5)) },
        SpaceOp::Allocate { row: log, first: 1, slabs: vec![(place(0, 3), false), (place(1, 4), false)] },
        SpaceOp::Ready { row: log, birth: 1 },
        SpaceOp::Allocate { row, first: 3, slabs: vec![(place(0, 1), false), (place(1, 2), false)] },
        SpaceOp::Missed { row, index: 1, generation: 4, regions: 0b110 },
        SpaceOp::BeginMove { row, index: 1, to: place(2, 5) },
        SpaceOp::Unaccounted { disk: DiskNumber(1), of: Membership(1) },
        SpaceOp::Log { state: LogState { epoch, sequence: 0x0506, is_closed: false } },
        SpaceOp::Lost { record: LossRecord { units: 0x0304, at: [0x5000, 0x6000].into() } },
        SpaceOp::Done { epoch, number: 0x0708 },
    ];
    let ops = ops.into_iter().map(|op| Op::Space { space, op });
    disks().into_iter().chain(ops).collect()
}

fn ops() -> Vec<Op> {
    let (space, row) = (SpaceId(0), RowNumber(0));
    let space_of = |name: &str, size, resiliency, columns, provisioning, media| SpaceRecord {
        name: name.into(),
        size,
        resiliency,
        interleave: 65536,
        columns,
        provisioning,
        media,
    };
    let (lrc, any) = (Resiliency::LocalParity { groups: 2, global: 1 }, MediaClass::ANY);
    let some = MediaClass::of([Media::Ssd, Media::Scm]);
    let mirror = space_of("m", 4 << 20, Resiliency::Mirror { copies: 2 }, 1, Provisioning::Thin, any);
    let ops = vec![
        Op::CreateSpace { space, record: mirror },
        Op::AllocateRow { space, row, slabs: vec![place(0, 3), place(1, 4)] },
        Op::Missed { space, row, index: 1, regions: 0b110 },
        Op::BeginMove { space, row, index: 1, to: place(2, 5) },
        Op::SetPolicy { policy: Policy { warn_at: 80, repair_after_s: 60 } },
        Op::SetUsage { disk: DiskNumber(1), usage: Usage::Leaving },
        Op::CreateSpace {
            space: SpaceId(1),
            record: space_of("l", 16 << 20, lrc, 8, Provisioning::Thin, any),
        },
        Op::CreateSpace {
            space: SpaceId(2),
            record: space_of("t", 4 << 20, Resiliency::Simple, 2, Provisioning::Fixed, some),
        },
        Op::SetSpaceMedia { space, media: MediaClass::of([Media::Hdd]) },
        Op::SetDiskMedia { disk: DiskNumber(1), media: 1 },
        Op::GivenUp { after: 0x0708 },
        Op::Lost { space, record: LossRecord { units: 0x0304, at: [0x5000, 0x6000].into() } },
    ];
    disks().into_iter().chain(ops).collect()
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
    let mut state = State::new(PoolId(*b"0123456789abcdef"), "tank".into(), 2 << 20);
    state.apply_all(ops).unwrap();
    let checkpoint = Encoded::new(&state).checkpoint(&header(Kind::Checkpoint, &after), 8192);
    [hex(&record), hex(&[&checkpoint[0][..], &checkpoint[1]].concat())]
}

fn bytes() -> String {
    let ([record, checkpoint], [owned_record, owned_checkpoint]) = (frames(&ops()), frames(&owned_ops()));
    let all = [
        ("label", hex(&a_label().encode())),
        ("claim", hex(&a_claim().encode(DiskNumber(1)))),
        ("record", record),
        ("checkpoint", checkpoint),
        ("record of a space with an owner", owned_record),
        ("checkpoint of a space with an owner", owned_checkpoint),
    ];
    all.iter().map(|(name, hex)| format!("{name}\n{hex}")).collect()
}

#[test]
fn golden_bytes() {
    let got = bytes();
    assert_eq!(got, include_str!("golden.txt"), "the format has changed; got\n{got}");
}
