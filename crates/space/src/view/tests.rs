use std::collections::BTreeMap;

use pool_seam::{
    Areas, DiskView, LogState, LossRecord, MediaClass, Moving, Ownership, PoolId, Provisioning, Resiliency,
    Row, RowShape, ScrubRecord, SlabCopy, SlabPlace, SpaceId, SpaceRecord, Tree, ViewVersion,
};

use super::*;

const SLAB: u64 = 4 << 20;

fn copy(disk: u16, slab: u32, stale_regions: u64) -> SlabCopy {
    SlabCopy {
        place: SlabPlace { disk: DiskNumber(disk), slab },
        generation: 10 + u32::from(disk),
        stale_regions,
    }
}

/// A view of a space of two columns on disks 0 to 5, of which disk 3 is absent.
pub(crate) fn view(number: u64, resiliency: Resiliency, rows: Vec<(u32, Row)>) -> SpaceView {
    let areas = Areas::plan(256 << 20, SLAB).expect("room");
    let disk = |number: u16| {
        let membership = (number != 3).then_some(Membership(u64::from(number) + 1));
        (DiskNumber(number), DiskView { membership, is_leaving: false, areas })
    };
    let record = SpaceRecord {
        name: "vm".to_owned(),
        size: 16 << 20,
        resiliency,
        interleave: 64 << 10,
        columns: 2,
        former: RowShape { resiliency: Resiliency::Simple, interleave: 64 << 10, columns: 2 },
        half: 0,
        converted: None,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
        ownership: Ownership::default(),
        slot: 0,
        log: LogState::default(),
        unaccounted: BTreeMap::new(),
        scrub: ScrubRecord::default(),
        loss: LossRecord::default(),
        attachments: BTreeMap::new(),
        rows: rows.into_iter().map(|(row, r)| (RowNumber(row), r)).collect::<Tree<_, _>>(),
    };
    SpaceView {
        version: ViewVersion { pool_epoch: 1, number },
        pool: PoolId([7; 16]),
        space: SpaceId(1),
        slab_bytes: SLAB,
        record: Arc::new(record),
        disks: Arc::new((0..6).map(disk).collect()),
    }
}

#[test]
fn a_mirrored_column_is_its_copies_and_the_moving_one() {
    // The columns are on disks 0 and 1, and 2 and 3; a slab of the second column moves to disk 4. Region 1 is stale
    // on disk 2.
    let mut row = Row::new(5, [copy(0, 0, 0), copy(1, 1, 0), copy(2, 2, 0b10), copy(3, 3, 0)]);
    row.set_moving(Some(Moving { index: 2, copy: copy(4, 9, u64::MAX) }));
    let view = view(1, Resiliency::Mirror { copies: 2 }, vec![(1, row)]);
    let key = |set, group| GroupKey { row: RowNumber(1), set, group };
    let members = |set, group| {
        let route = route(&view, key(set, group)).expect("a row");
        assert_eq!((route.birth, route.is_new, route.data), (5, true, 1));
        route.members.iter().map(|m| (m.index, m.slab, m.disk.0, m.membership, m.counts)).collect::<Vec<_>>()
    };
    let of = |n| Some(Membership(n));
    assert_eq!(members(0, 0), [(0, 0, 0, of(1), true), (1, 1, 1, of(2), true)]);
    assert_eq!(
        members(1, 1),
        [(2, 2, 2, of(3), false), (3, 3, 3, None, true), (4, 2, 4, of(5), false)],
        "an absent copy may count"
    );
    assert!(members(1, 0)[0].4, "it has missed the other region");
    let moving = route(&view, key(1, 1)).expect("a row").members[2];
    let areas = view.disks[&DiskNumber(4)].areas;
    assert_eq!(moving.block, areas.checksums(9).offset + 4096);
    assert_eq!((moving.data, moving.generation), (areas.data(9).offset + (2 << 20), 14));
    assert_eq!(route(&view, GroupKey { row: RowNumber(0), set: 0, group: 0 }), None);
}

#[test]
fn a_coded_row_is_one_set() {
    let row = Row::new(5, (0..3).map(|disk| copy(disk, 0, 0)));
    let view = view(1, Resiliency::Parity { parity: 1 }, vec![(0, row)]);
    let at = layout(&view).locate((2 << 20) + (64 << 10));
    let (key, unit) = group_of(&view, at);
    assert_eq!((key, unit, at.column), (GroupKey { row: RowNumber(0), set: 0, group: 0 }, 256, 1));
    let found = route(&view, key).expect("a row");
    assert_eq!((found.members.len(), found.data), (3, 2));
}

/// While a job changes the resiliency, each row has the shape of its own record.
#[test]
fn rows_of_the_former_shape_keep_it() {
    let mut row = Row::new(5, [copy(0, 0, 0), copy(2, 0, 0)]);
    row.shape = pool_seam::Shape::Former;
    let view = view(1, Resiliency::Parity { parity: 1 }, vec![(0, row)]);
    let (key, _) = group_of(&view, ColumnPosition { row: RowNumber(0), column: 1, offset: 0 });
    assert_eq!(key.set, 1, "simple columns have a set each");
    assert_eq!(route(&view, key).expect("a row").members[0].disk, DiskNumber(2));
    assert_eq!(
        group_of(&view, ColumnPosition { row: RowNumber(7), column: 1, offset: 0 }).0.set,
        0,
        "a row to allocate"
    );
}

#[test]
fn older_views_are_ignored() {
    let of = |number| Arc::new(view(number, Resiliency::Simple, Vec::new()));
    let views = View::new(of(5));
    let snapshot = views.get();
    assert!(!views.update(of(4)) && !views.update(of(5)) && views.is_current(&snapshot));
    assert!(views.update(of(6)) && !views.is_current(&snapshot));
    assert_eq!(views.get().value.version.number, 6);
}
