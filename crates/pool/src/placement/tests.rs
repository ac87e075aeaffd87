use proptest::prelude::*;

use super::*;
use crate::{Absence, DiskId, DiskRecord, FaultDomains, Op, PoolId, Presence, Provisioning, SpaceRecord};

const SPACE: SpaceId = SpaceId(0);

#[derive(Clone, Debug)]
struct Disk {
    slabs: u32,
    rack: u8,
    node: u8,
    usage: Usage,
    present: bool,
}

fn usage() -> impl Strategy<Value = Usage> {
    prop_oneof![
        8 => Just(Usage::AutoSelect),
        1 => Just(Usage::ManualSelect),
        1 => Just(Usage::HotSpare),
        1 => Just(Usage::Journal),
        1 => Just(Usage::Retired),
    ]
}

fn disks() -> impl Strategy<Value = Vec<Disk>> {
    let disk = (1..80_u32, 0..3_u8, 0..5_u8, usage(), prop::bool::weighted(0.9))
        .prop_map(|(slabs, rack, node, usage, present)| Disk { slabs, rack, node, usage, present });
    prop::collection::vec(disk, 1..12)
}

fn shape() -> impl Strategy<Value = (Resiliency, u8)> {
    prop_oneof![
        (1..5_u8).prop_map(|c| (Resiliency::Simple, c)),
        (2..4_u8, 1..4_u8).prop_map(|(copies, c)| (Resiliency::Mirror { copies }, c)),
        (1..3_u8, 2..6_u8).prop_map(|(parity, c)| (Resiliency::Parity { parity }, c)),
    ]
}

fn state(disks: &[Disk], (resiliency, columns): (Resiliency, u8)) -> State {
    let mut s = State::new(PoolId([1; 16]), "p".into(), 2 << 20);
    for (n, d) in disks.iter().enumerate() {
        let name = |kind: &str, n: u8| if n == 0 { String::new() } else { format!("{kind}{n}") };
        let record = DiskRecord {
            id: DiskId([n as u8; 16]),
            name: format!("disk{n}"),
            slabs: d.slabs,
            usage: d.usage,
            presence: if d.present { Presence::Present } else { Presence::Absent(Absence::Gone) },
            domains: FaultDomains {
                enclosure: String::new(),
                node: name("node", d.node),
                rack: name("rack", d.rack),
            },
            media: 0,
            label_sequence: 1,
        };
        s.apply(&Op::AddDisk { disk: DiskNumber(n as u16), record }).unwrap();
    }
    let record = SpaceRecord {
        name: "s".into(),
        size: 1 << 40,
        resiliency,
        interleave: 64 << 10,
        columns,
        provisioning: Provisioning::Thin,
    };
    s.apply(&Op::CreateSpace { space: SPACE, record }).unwrap();
    s
}

/// The columns of a mirror, or the whole row of parity: what must be spread.
fn groups(resiliency: Resiliency, places: &[SlabPlace]) -> Vec<Vec<DiskNumber>> {
    let size = match resiliency {
        Resiliency::Mirror { copies } => usize::from(copies),
        Resiliency::Simple => 1,
        Resiliency::Parity { .. } => places.len(),
    };
    places.chunks(size).map(|g| g.iter().map(|p| p.disk).collect()).collect()
}

fn crowd(state: &State, group: &[DiskNumber], level: Level) -> usize {
    let mut count: BTreeMap<Domain<'_>, usize> = BTreeMap::new();
    group.iter().for_each(|d| *count.entry(domain(state, *d, level)).or_default() += 1);
    count.values().copied().max().unwrap_or(0)
}

proptest! {
    /// Fills a pool, and looks at every row that it gets.
    #[test]
    fn rows_keep_the_invariants(disks in disks(), shape in shape()) {
        let mut s = state(&disks, shape);
        let (groups_of, size, cap) = match shape {
            (Resiliency::Simple, c) => (usize::from(c), 1, 1),
            (Resiliency::Mirror { copies }, c) => (usize::from(c), usize::from(copies), 1),
            (Resiliency::Parity { parity }, c) => (1, usize::from(c + parity), usize::from(parity)),
        };
        for n in 0..200 {
            let usable: Vec<_> = s.disks.keys().copied().filter(|d| {
                let r = &s.disks[d];
                r.usage == Usage::AutoSelect && s.is_present(*d) && s.slabs_free(*d) > reserve(r.slabs)
            }).collect();
            // Enough on a level: as many places, when each domain gives a group `cap` at most. Independent of `Fit`.
            let enough = |level: Level, cap: usize| {
                let mut count: BTreeMap<Domain<'_>, usize> = BTreeMap::new();
                usable.iter().for_each(|d| *count.entry(domain(&s, *d, level)).or_default() += 1);
                count.values().map(|n| (*n).min(groups_of * cap)).sum::<usize>() >= groups_of * size
            };
            let places = match row(&s, SPACE) {
                Ok(places) => places,
                Err(NoPlace::NoRoom { needed, disks }) => {
                    prop_assert_eq!((needed, disks), (groups_of * size, usable.len()));
                    let simple = shape.0 == Resiliency::Simple;
                    let room: u32 = usable.iter().map(|d| s.slabs_free(*d) - reserve(s.disks[d].slabs)).sum();
                    let full = if simple { (room as usize) < needed } else { !enough(Level::Disk, 1) };
                    prop_assert!(full);
                    break;
                }
                Err(e) => return Err(TestCaseError::fail(e.to_string())),
            };
            prop_assert_eq!(&places, &row(&s, SPACE).unwrap(), "deterministic");
            prop_assert!(places.iter().all(|p| usable.contains(&p.disk)));
            let level = LEVELS.iter().flat_map(|l| (1..=cap).map(move |c| (*l, c))).find(|(l, c)| enough(*l, *c));
            if let Some((level, cap)) = level.filter(|_| shape.0 != Resiliency::Simple) {
                for group in groups(shape.0, &places) {
                    prop_assert!(crowd(&s, &group, level) <= cap, "{group:?} on {level:?}");
                }
            }
            // 1: it can be applied.
            s.apply(&Op::AllocateRow { space: SPACE, row: RowNumber(n), slabs: places.clone() }).unwrap();

            // A replacement for each can be applied too, and leaves the row on as many domains.
            let index = n as usize % places.len();
            match replacement(&s, SPACE, RowNumber(n), index) {
                Ok(to) => {
                    let r = &s.disks[&to.disk];
                    prop_assert!(matches!(r.usage, Usage::AutoSelect | Usage::HotSpare) && s.is_present(to.disk));
                    prop_assert!(places.iter().all(|p| p.disk != to.disk));
                    if shape.0 != Resiliency::Simple {
                        s.clone().apply(&Op::MoveSlab { space: SPACE, row: RowNumber(n), index: index as u8, to }).unwrap();
                    }
                }
                Err(_) => {
                    let other = s.disks.iter().any(|(d, r)| {
                        matches!(r.usage, Usage::AutoSelect | Usage::HotSpare)
                            && s.is_present(*d) && s.slabs_free(*d) > 0 && places.iter().all(|p| p.disk != *d)
                    });
                    prop_assert!(!other, "there was one");
                }
            }
        }
    }
}

#[test]
fn copies_stand_apart_even_where_the_most_room_is_together() {
    let disk = |slabs, node| Disk { slabs, rack: 0, node, usage: Usage::AutoSelect, present: true };
    // Taking the emptiest disks first would leave two disks of node 1 for the second column.
    let disks = [disk(10, 1), disk(10, 1), disk(60, 2), disk(50, 3)];
    let s = state(&disks, (Resiliency::Mirror { copies: 2 }, 2));
    let places = row(&s, SPACE).unwrap();
    for g in groups(Resiliency::Mirror { copies: 2 }, &places) {
        assert_eq!(crowd(&s, &g, Level::Node), 1, "{places:?}");
    }
}

#[test]
fn a_replacement_goes_to_another_node_before_a_roomier_disk() {
    let disk = |slabs, node| Disk { slabs, rack: 0, node, usage: Usage::AutoSelect, present: true };
    let mut s =
        state(&[disk(9, 1), disk(9, 2), disk(60, 1), disk(5, 3)], (Resiliency::Mirror { copies: 2 }, 1));
    let places = [0, 1].map(|d| SlabPlace { disk: DiskNumber(d), slab: 0 }).to_vec();
    s.apply(&Op::AllocateRow { space: SPACE, row: RowNumber(0), slabs: places }).unwrap();
    assert_eq!(replacement(&s, SPACE, RowNumber(0), 1).unwrap().disk, DiskNumber(3));
    assert_eq!(
        replacement(&s, SPACE, RowNumber(0), 0).unwrap().disk,
        DiskNumber(2),
        "its own node is as good"
    );
}
