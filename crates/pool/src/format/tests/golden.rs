//! The golden bytes: a change of one of these changes the format.

use disk::Media;

use super::values::{a_claim, a_label};
use crate::format::{Header, Kind, encode_record};
use crate::metadata::{Encoded, Point};
use crate::{
    DiskId, DiskNumber, DiskRecord, FaultDomains, LossRecord, MediaClass, Op, Policy, PoolId, Presence,
    Provisioning, Resiliency, RowNumber, SlabPlace, SpaceId, SpaceRecord, State, Usage,
};

/// Header and body, 32 bytes a line; the rest of the blocks must be zeros.
fn hex(frame: &[u8]) -> String {
    let end = 64 + u32::from_le_bytes(frame[52..56].try_into().unwrap()) as usize;
    assert!(frame[end..].iter().all(|b| *b == 0));
    let lines = frame[..end].chunks(32);
    lines.map(|l| l.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n").collect()
}

fn ops() -> Vec<Op> {
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
    let place = |disk, slab| SlabPlace { disk: DiskNumber(disk), slab };
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
    vec![
        Op::Opened { epoch: 5, incarnation: 0x1122_3344_5566_7788 },
        Op::AddDisk { disk: DiskNumber(0), record: record(0) },
        Op::AddDisk { disk: DiskNumber(1), record: record(1) },
        Op::AddDisk { disk: DiskNumber(2), record: record(2) },
        Op::Voters { voters: [DiskNumber(0), DiskNumber(1)].into() },
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
    ]
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

/// The state after the operations.
fn state() -> State {
    let mut state = State::new(PoolId(*b"0123456789abcdef"), "tank".into(), 2 << 20);
    state.apply_all(&ops()).unwrap();
    state
}

fn bytes() -> String {
    let before = Point { epoch: 5, incarnation: 0x1122_3344_5566_7788, sequence: 9, chain: 0xC0FF_EE00 };
    let body = encode_record(&ops());
    let record = Header { sequence: 10, ..header(Kind::Record, &before) }.frame(&body);
    let after = before.after(&body);
    let checkpoint = Encoded::new(&state()).checkpoint(&header(Kind::Checkpoint, &after), 8192);
    let all = [
        ("label", hex(&a_label().encode())),
        ("claim", hex(&a_claim().encode(DiskNumber(1)))),
        ("record", hex(&record)),
        ("checkpoint", hex(&[&checkpoint[0][..], &checkpoint[1]].concat())),
    ];
    all.iter().map(|(name, hex)| format!("{name}\n{hex}")).collect()
}

#[test]
fn golden_bytes() {
    let got = bytes();
    assert_eq!(got, include_str!("golden.txt"), "the format has changed; got\n{got}");
}
