//! The golden bytes: a change of one of these changes the format, and needs another version.

use disk::Media;

use super::values::{a_claim, a_label};
use crate::format::{FORMAT_VERSION, Header, Kind, Label, decode_state, encode_record, encode_state};
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

fn ops(version: u16) -> Vec<Op> {
    let record = |n: u16| DiskRecord {
        id: DiskId([n as u8; 16]),
        name: format!("d{n}"),
        slabs: 7,
        usage: Usage::AutoSelect,
        presence: Presence::Present,
        domains: FaultDomains::default(),
        media: 2,
        label_sequence: 1,
    };
    let place = |disk, slab| SlabPlace { disk: DiskNumber(disk), slab };
    let (space, row) = (SpaceId(0), RowNumber(0));
    let mut ops = vec![
        Op::Opened { epoch: 5, incarnation: 0x1122_3344_5566_7788 },
        Op::AddDisk { disk: DiskNumber(0), record: record(0) },
        Op::AddDisk { disk: DiskNumber(1), record: record(1) },
        Op::Voters { voters: [DiskNumber(0), DiskNumber(1)].into() },
        Op::CreateSpace {
            space,
            record: SpaceRecord {
                name: "m".into(),
                size: 4 << 20,
                resiliency: Resiliency::Mirror { copies: 2 },
                interleave: 65536,
                columns: 1,
                provisioning: Provisioning::Thin,
                media: MediaClass::ANY,
            },
        },
        Op::AllocateRow { space, row, slabs: vec![place(0, 3), place(1, 4)] },
        Op::Missed { space, row, index: 1, regions: 0b110 },
    ];
    if version > 1 {
        ops.insert(3, Op::AddDisk { disk: DiskNumber(2), record: record(2) });
        ops.push(Op::BeginMove { space, row, index: 1, to: place(2, 5) });
        ops.push(Op::SetPolicy { policy: Policy { warn_at: 80, repair_after_s: 60 } });
        ops.push(Op::SetUsage { disk: DiskNumber(1), usage: Usage::Leaving });
    }
    if version > 2 {
        let record = SpaceRecord {
            name: "l".into(),
            size: 16 << 20,
            resiliency: Resiliency::LocalParity { groups: 2, global: 1 },
            interleave: 65536,
            columns: 8,
            provisioning: Provisioning::Thin,
            media: MediaClass::ANY,
        };
        ops.push(Op::CreateSpace { space: SpaceId(1), record });
    }
    if version > 3 {
        let record = SpaceRecord {
            name: "t".into(),
            size: 4 << 20,
            resiliency: Resiliency::Simple,
            interleave: 65536,
            columns: 2,
            provisioning: Provisioning::Fixed,
            media: MediaClass::of([Media::Ssd, Media::Scm]),
        };
        ops.push(Op::CreateSpace { space: SpaceId(2), record });
        ops.push(Op::SetSpaceMedia { space, media: MediaClass::of([Media::Hdd]) });
        ops.push(Op::SetDiskMedia { disk: DiskNumber(1), media: 1 });
    }
    if version > 4 {
        ops.push(Op::GivenUp { after: 0x0708 });
    }
    if version > 5 {
        let record = LossRecord { units: 0x0304, at: [0x5000, 0x6000].into() };
        ops.push(Op::Lost { space, record });
    }
    ops
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

/// The state after the operations of a version.
fn state(version: u16) -> State {
    let mut state = State::new(PoolId(*b"0123456789abcdef"), "tank".into(), 2 << 20);
    state.version = version;
    state.apply_all(&ops(version)).unwrap();
    state
}

fn bytes(version: u16) -> String {
    let before = Point { epoch: 5, incarnation: 0x1122_3344_5566_7788, sequence: 9, chain: 0xC0FF_EE00 };
    let body = encode_record(&ops(version));
    let record = Header { sequence: 10, ..header(Kind::Record, &before) }.frame(&body);
    let after = before.after(&body);
    let checkpoint = Encoded::new(&state(version)).checkpoint(&header(Kind::Checkpoint, &after), 8192);
    let all = [
        ("label", hex(&Label { version, ..a_label() }.encode())),
        ("claim", hex(&a_claim().encode(DiskNumber(1)))),
        ("record", hex(&record)),
        ("checkpoint", hex(&[&checkpoint[0][..], &checkpoint[1]].concat())),
    ];
    all.iter().map(|(name, hex)| format!("{name}\n{hex}")).collect()
}

#[test]
fn golden_bytes() {
    let got = bytes(FORMAT_VERSION);
    assert_eq!(got, include_str!("golden.txt"), "the format has changed; got\n{got}");
}

/// Pools of older versions are written as those wrote them, and read.
#[test]
fn older_versions_are_as_they_were() {
    for (version, golden) in [
        (1, include_str!("golden-1.txt")),
        (2, include_str!("golden-2.txt")),
        (3, include_str!("golden-3.txt")),
        (4, include_str!("golden-4.txt")),
        (5, include_str!("golden-5.txt")),
    ] {
        assert_eq!(bytes(version), golden);
        let label = Label { version, ..a_label() };
        assert_eq!(Label::decode(&label.encode()), Ok(label));
        assert_eq!(decode_state(&encode_state(&state(version))), Ok(state(version)));
    }
}
