use std::collections::BTreeSet;
use std::sync::Arc;

use disk::Media;
use proptest::prelude::*;

use super::*;
use crate::testing::{self, copy};
use crate::{
    Absence, DiskId, DiskRecord, FaultDomains, Op, PoolId, Presence, RowNumber, SpaceId, SpaceOp, SpaceRecord,
};

const SPACE: SpaceId = SpaceId(0);

#[derive(Clone, Debug)]
struct Disk {
    slabs: u32,
    rack: u8,
    node: u8,
    usage: Usage,
    present: bool,
    media: u8,
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
    let disk = (1..80_u32, 0..3_u8, 0..5_u8, usage(), prop::bool::weighted(0.9), 0..5_u8).prop_map(
        |(slabs, rack, node, usage, present, media)| Disk { slabs, rack, node, usage, present, media },
    );
    prop::collection::vec(disk, 1..12)
}

/// Any disk, or those of some media.
fn class() -> impl Strategy<Value = MediaClass> {
    let some = (1..16_u8).prop_map(|bits| MediaClass::from_bits(bits).expect("known media"));
    prop_oneof![2 => Just(MediaClass::ANY), 3 => some]
}

/// Whether a class accepts a disk. The numbers of media on disks are 1 (HDD) to 4 (SCM), one bit each.
fn on_class(class: MediaClass, disk: &DiskRecord) -> bool {
    class.bits() == 0 || disk.media > 0 && class.bits() >> (disk.media - 1) & 1 == 1
}

fn shape() -> impl Strategy<Value = (Resiliency, u8)> {
    prop_oneof![
        (1..5_u8).prop_map(|c| (Resiliency::Simple, c)),
        (2..4_u8, 1..4_u8).prop_map(|(copies, c)| (Resiliency::Mirror { copies }, c)),
        (1..3_u8, 2..6_u8).prop_map(|(parity, c)| (Resiliency::Parity { parity }, c)),
        (2..4_u8).prop_map(|half| (Resiliency::LocalParity { groups: 2, global: 1 }, 2 * half)),
    ]
}

fn state(disks: &[Disk], (resiliency, columns): (Resiliency, u8)) -> State {
    let mut s = State::new(PoolId([1; 16]), "p".into(), 8 << 20);
    for (n, d) in disks.iter().enumerate() {
        let name = |kind: &str, n: u8| if n == 0 { String::new() } else { format!("{kind}{n}") };
        let record = DiskRecord {
            slabs: d.slabs,
            usage: d.usage,
            presence: if d.present { Presence::Present } else { Presence::Absent(Absence::Gone) },
            domains: FaultDomains {
                enclosure: String::new(),
                node: name("node", d.node),
                rack: name("rack", d.rack),
            },
            media: d.media,
            ..testing::disk(n as u16)
        };
        s.apply(&Op::AddDisk { disk: DiskNumber(n as u16), record }).unwrap();
    }
    let record = SpaceRecord {
        name: "s".into(),
        size: 1 << 40,
        resiliency,
        interleave: 64 << 10,
        columns,
        ..SpaceRecord::default()
    };
    s.make(record);
    s
}

/// Places for a row, and whether one of them is on an absent disk.
fn places(s: &State) -> Result<(Vec<SlabPlace>, bool), NoPlace> {
    let places = row(s, SPACE, RowNumber(0), |_| true)?;
    let is_absent = places.iter().any(|place| !s.is_present(place.disk));
    Ok((places, is_absent))
}

/// Allocates a row at its places.
fn fill_row(s: &mut State, row: u32) {
    let (slabs, _) = places(s).expect("there is room");
    s.fill(SPACE, RowNumber(row), slabs).expect("they are free");
}

fn set_media(s: &mut State, media: MediaClass) {
    s.apply(&Op::Space { space: SPACE, op: SpaceOp::SetMedia { media } }).unwrap();
}

fn begin(Step { space, row, index, to }: Step) -> Op {
    Op::Space { space, op: SpaceOp::BeginMove { row, index: index as u8, to } }
}

/// Applies a step.
fn make(s: &mut State, step: Step) {
    let Step { space, row, .. } = step;
    s.apply(&begin(step)).unwrap();
    let new = s.spaces[&space].rows[&row].slabs.len() as u8;
    s.apply_current(space, row, new, u64::MAX).unwrap();
    s.apply(&Op::Space { space, op: SpaceOp::EndMove { row } }).unwrap();
}

fn replacement(s: &State, row: u32, index: u8) -> Result<SlabPlace, NoPlace> {
    slab(s, SPACE, RowNumber(row), index, |_| true)
}

/// The groups of disks that must be separated: the columns of a mirror, or the whole parity row.
fn groups(resiliency: Resiliency, places: &[SlabPlace]) -> Vec<Vec<DiskNumber>> {
    let size = match resiliency {
        Resiliency::Mirror { copies } => usize::from(copies),
        Resiliency::Simple => 1,
        _ => places.len(),
    };
    places.chunks(size).map(|g| g.iter().map(|p| p.disk).collect()).collect()
}

fn crowd(state: &State, group: &[DiskNumber], level: usize) -> usize {
    let mut count: BTreeMap<Domain<'_>, usize> = BTreeMap::new();
    group.iter().for_each(|d| *count.entry(domain(state, *d, level)).or_default() += 1);
    count.values().copied().max().unwrap_or(0)
}

proptest! {
    /// Fills a pool, and checks each row.
    #[test]
    fn rows_keep_the_invariants(disks in disks(), shape in shape(), class in class()) {
        let mut s = state(&disks, shape);
        set_media(&mut s, class);
        let (groups_of, size, cap) = match shape {
            (Resiliency::Simple, c) => (usize::from(c), 1, 1),
            (Resiliency::Mirror { copies }, c) => (usize::from(c), usize::from(copies), 1),
            (Resiliency::Parity { parity }, c) => (1, usize::from(c + parity), usize::from(parity)),
            (Resiliency::LocalParity { .. }, c) => (1, usize::from(c) + 3, 2),
        };
        for n in 0..200 {
            let usable: Vec<_> = s.disks.keys().copied().filter(|d| {
                let r = &s.disks[d];
                r.usage == Usage::AutoSelect && on_class(class, r) && s.is_present(*d) && s.slabs_free(*d) > reserve(r.slabs)
            }).collect();
            // Enough places on a level, if each domain gives a group at most `cap`. Computed without `Fit`.
            let enough = |level: usize, cap: usize| {
                let mut count: BTreeMap<Domain<'_>, usize> = BTreeMap::new();
                usable.iter().for_each(|d| *count.entry(domain(&s, *d, level)).or_default() += 1);
                count.values().map(|n| (*n).min(groups_of * cap)).sum::<usize>() >= groups_of * size
            };
            let here = match places(&s) {
                Ok((places, false)) => places,
                Ok((_, true)) => {
                    prop_assert!(shape.0 != Resiliency::Simple && !enough(LEVELS - 1, 1), "present disks are enough");
                    break;
                }
                Err(NoPlace::NoRoom { needed, disks, .. }) => {
                    prop_assert_eq!((needed, disks), (groups_of * size, usable.len()));
                    let simple = shape.0 == Resiliency::Simple;
                    let room: u32 = usable.iter().map(|d| s.slabs_free(*d) - reserve(s.disks[d].slabs)).sum();
                    let full = if simple { (room as usize) < needed } else { !enough(LEVELS - 1, 1) };
                    prop_assert!(full);
                    break;
                }
                Err(e) => return Err(TestCaseError::fail(e.to_string())),
            };
            let places = here;
            prop_assert_eq!(&places, &self::places(&s).unwrap().0, "deterministic");
            prop_assert!(places.iter().all(|p| usable.contains(&p.disk)));
            let level = (0..LEVELS).flat_map(|l| (1..=cap).map(move |c| (l, c))).find(|(l, c)| enough(*l, *c));
            if let Some((level, cap)) = level.filter(|_| shape.0 != Resiliency::Simple) {
                for group in groups(shape.0, &places) {
                    prop_assert!(crowd(&s, &group, level) <= cap, "{group:?} on {level:?}");
                }
            }
            // 1: it can be applied.
            s.fill(SPACE, RowNumber(n), places.clone()).unwrap();

            // A replacement for each slab can be applied too, and keeps the row in as many domains.
            let index = n as usize % places.len();
            match replacement(&s, n, index as u8) {
                Ok(to) => {
                    let r = &s.disks[&to.disk];
                    prop_assert!(r.usage == Usage::AutoSelect && s.is_present(to.disk));
                    prop_assert!(on_class(class, r));
                    let simple = shape.0 == Resiliency::Simple;
                    let others = places.iter().enumerate().filter(|(i, _)| *i == index || !simple);
                    prop_assert!(others.map(|(_, p)| p).all(|p| p.disk != to.disk));
                    if shape.0 != Resiliency::Simple {
                        s.clone().apply(&begin(Step { space: SPACE, row: RowNumber(n), index, to })).unwrap();
                    }
                }
                Err(_) => {
                    let other = s.disks.iter().any(|(d, r)| {
                        r.usage == Usage::AutoSelect
                            && on_class(class, r) && s.is_present(*d) && s.slabs_free(*d) > 0
                            && if shape.0 == Resiliency::Simple { places[index].disk != *d } else { places.iter().all(|p| p.disk != *d) }
                    });
                    prop_assert!(!other, "there was one");
                }
            }
        }
    }
}

/// The number of pairs of slabs of one group in the same domain, from the rack to the disk.
fn crowds(s: &State) -> [usize; 4] {
    let mut all = [0; 4];
    for (_, r) in s.rows_of(SPACE) {
        for index in 0..r.slabs.len() {
            let mates = mates(s.spaces[&SPACE].resiliency, &r.slabs, index);
            let of = shared(s, &mates, r.slabs[index].place.disk);
            all.iter_mut().zip(of).for_each(|(a, n)| *a += n);
        }
    }
    all
}

/// Slabs on disks outside the class.
fn wrong(s: &State, class: MediaClass) -> usize {
    let slabs = s.rows_of(SPACE).flat_map(|(_, r)| r.slabs.iter());
    slabs.filter(|c| !on_class(class, &s.disks[&c.place.disk])).count()
}

/// The unevenness that rebalancing reduces, in parts per billion.
fn unevenness(s: &State) -> f64 {
    let of = |(d, r): (&DiskNumber, &DiskRecord)| {
        let used = f64::from(r.slabs - s.slabs_free(*d));
        if r.usage == Usage::AutoSelect && s.is_present(*d) { used * used / f64::from(r.slabs) } else { 0.0 }
    };
    s.disks.iter().map(of).sum()
}

proptest! {
    /// Fills a part of a pool, adds disks, and rebalances until no step is left.
    #[test]
    fn rebalancing_ends_and_makes_nothing_worse(
        first in disks(), more in disks(), shape in shape(), rows in 1..60_u32, class in class(),
    ) {
        let mut s = state(&first, shape);
        for n in 0..rows {
            let Ok((slabs, false)) = places(&s) else { break };
            s.fill(SPACE, RowNumber(n), slabs).unwrap();
        }
        let all: Vec<Disk> = first.iter().chain(&more).cloned().collect();
        let whole = state(&all, shape);
        for n in first.len()..all.len() {
            let disk = DiskNumber(n as u16);
            s.apply(&Op::AddDisk { disk, record: whole.disks[&disk].clone() }).unwrap();
        }
        set_media(&mut s, class);
        let moves_max = 2 * s.slabs_allocated() * all.len() + 1;
        let mut moves = 0;
        while let Some(step) = rebalance(&s, &BTreeSet::new()) {
            let to = step.to;
            moves += 1;
            prop_assert!(moves <= moves_max, "it does not end");
            let (wrong, crowded, uneven) = (wrong(&s, class), crowds(&s), unevenness(&s));
            make(&mut s, step);
            let r = &s.disks[&to.disk];
            prop_assert!(r.usage == Usage::AutoSelect && s.slabs_free(to.disk) >= reserve(r.slabs));
            prop_assert!(on_class(class, r));
            let outside_now = crate::placement::tests::wrong(&s, class);
            if outside_now < wrong {
                continue;
            }
            prop_assert!(crowds(&s) <= crowded, "copies came nearer to each other");
            prop_assert!(crowds(&s) < crowded || unevenness(&s) < uneven, "nothing is better");
        }
        // Slabs left on other media have no possible place: each disk of the class is full, or has a slab of the row.
        for (_, r) in s.rows_of(SPACE) {
            let outside = r.slabs.iter().any(|c| !on_class(class, &s.disks[&c.place.disk]) && s.is_present(c.place.disk));
            let place = |(d, to): (&DiskNumber, &DiskRecord)| {
                to.usage == Usage::AutoSelect && on_class(class, to) && s.is_present(*d)
                    && s.slabs_free(*d) > reserve(to.slabs) && r.slabs.iter().all(|c| c.place.disk != *d)
            };
            prop_assert!(!(outside && s.disks.iter().any(place)), "there was a place");
        }
    }
}

#[test]
fn columns_do_not_bring_copies_nearer() {
    let disk = |node| Disk { slabs: 40, rack: 0, node, usage: Usage::AutoSelect, present: true, media: 0 };
    let of = |nodes: &[u8], copies, most| {
        let disks: Vec<Disk> = nodes.iter().map(|n| disk(*n)).collect();
        let resiliency = Resiliency::Mirror { copies };
        columns(&state(&disks, (resiliency, 1)), resiliency, MediaClass::ANY, most)
    };
    assert_eq!(of(&[0; 8], 2, 4), 4, "disks that stand nowhere");
    assert_eq!(of(&[0; 3], 2, 1), 1);
    assert_eq!(of(&[1, 1, 2, 2, 3, 3], 2, 3), 3);
    assert_eq!(of(&[1, 1, 1, 1, 2, 3], 2, 3), 2, "the third column would have both copies on node 1");
    assert_eq!(of(&[1, 1, 1], 2, 1), 1);
    assert_eq!(
        columns(&state(&[disk(0)], (Resiliency::Simple, 1)), Resiliency::Simple, MediaClass::ANY, 1),
        1
    );
}

/// The number of columns is such that an enclosure, or a node, may be lost.
#[test]
fn columns_of_parity_leave_no_more_in_one_place_than_may_be_lost() {
    let disk = |node| Disk { slabs: 40, rack: 0, node, usage: Usage::AutoSelect, present: true, media: 0 };
    let of = |nodes: &[u8], parity, most| {
        let disks: Vec<Disk> = nodes.iter().map(|n| disk(*n)).collect();
        let resiliency = Resiliency::Parity { parity };
        columns(&state(&disks, (resiliency, 2)), resiliency, MediaClass::ANY, most)
    };
    assert_eq!(of(&[0; 8], 1, 6), 6, "disks that stand nowhere");
    assert_eq!(of(&[1, 1, 2, 2, 3, 3], 1, 4), 2, "one of each");
    assert_eq!(of(&[1, 1, 2, 2, 3, 3], 2, 4), 4, "two of each");
    assert_eq!(of(&[1, 1, 1, 2, 2, 2], 1, 4), 4, "two nodes are too few for that, so disks count");
    assert_eq!(of(&[1, 2, 3, 4, 5, 6], 1, 4), 4);
}

#[test]
fn what_a_disk_has_may_have_no_other_place() {
    let disk = |slabs| Disk { slabs, rack: 0, node: 0, usage: Usage::AutoSelect, present: true, media: 0 };
    let mut s = state(&[disk(40), disk(40), disk(6)], (Resiliency::Mirror { copies: 2 }, 1));
    for n in 0..10 {
        s.fill(SPACE, RowNumber(n), [0, 1].map(|d| SlabPlace { disk: DiskNumber(d), slab: n })).unwrap();
    }
    let plan = evacuation(&s, DiskNumber(0));
    assert_eq!((plan.moves, plan.left), (6, 4), "the reserve too");
    assert!(matches!(plan.why, Some(crate::jobs::NotMoved::NoPlace(_))));
    assert_eq!(evacuation(&s, DiskNumber(2)), Evacuation::default(), "it is empty");
    // Both copies are on absent disks: no other disk has disk 0's data.
    Arc::make_mut(&mut s.disks).get_mut(&DiskNumber(0)).unwrap().presence = Presence::Absent(Absence::Gone);
    assert_eq!(evacuation(&s, DiskNumber(0)).moves, 6, "the other has it all");
    Arc::make_mut(&mut s.disks).get_mut(&DiskNumber(1)).unwrap().presence = Presence::Absent(Absence::Gone);
    let plan = evacuation(&s, DiskNumber(0));
    assert_eq!((plan.moves, plan.left, plan.why), (0, 10, Some(crate::jobs::NotMoved::OnlyCopy(SPACE))));
}

#[test]
fn new_disks_get_their_share() {
    let disk = |slabs| Disk { slabs, rack: 0, node: 0, usage: Usage::AutoSelect, present: true, media: 0 };
    let shape = (Resiliency::Mirror { copies: 2 }, 1);
    let mut s = state(&[disk(40), disk(40)], shape);
    for n in 0..30 {
        fill_row(&mut s, n);
    }
    for n in 2..4_u16 {
        let record = DiskRecord { id: DiskId([n as u8; 16]), ..s.disks[&DiskNumber(0)].clone() };
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record }).unwrap();
    }
    assert_eq!(to_rebalance(&s), 30);
    let mut moves = 0;
    while let Some(step) = rebalance(&s, &BTreeSet::new()) {
        make(&mut s, step);
        moves += 1;
    }
    assert_eq!(moves, 30);
    assert!((0..4).all(|d| s.slabs_used(DiskNumber(d)).count() == 15));
}

#[test]
fn copies_stand_apart_even_where_the_most_room_is_together() {
    let disk = |slabs, node| Disk { slabs, rack: 0, node, usage: Usage::AutoSelect, present: true, media: 0 };
    // Taking the emptiest disks first would leave two disks of node 1 for the second column.
    let disks = [disk(10, 1), disk(10, 1), disk(60, 2), disk(50, 3)];
    let s = state(&disks, (Resiliency::Mirror { copies: 2 }, 2));
    let (places, _) = places(&s).unwrap();
    for g in groups(Resiliency::Mirror { copies: 2 }, &places) {
        assert_eq!(crowd(&s, &g, Level::Node as usize), 1, "{places:?}");
    }
}

#[test]
fn a_pool_that_is_not_whole_gives_slabs_of_absent_disks_where_it_must() {
    let disk = |present| Disk { slabs: 64, rack: 0, node: 0, usage: Usage::AutoSelect, present, media: 0 };
    let mirror = (Resiliency::Mirror { copies: 2 }, 1);
    let s = state(&[disk(true), disk(false)], mirror);
    let given = row(&s, SPACE, RowNumber(0), |_| true).expect("one is there");
    assert_eq!(given.iter().filter(|place| !s.is_present(place.disk)).count(), 1, "{given:?}");
    // A disk that is present but cannot be used yet counts as absent.
    let s = state(&[disk(true), disk(true)], mirror);
    let given = row(&s, SPACE, RowNumber(0), |d| d.0 == 0).unwrap();
    assert_eq!(given.iter().filter(|place| place.disk.0 == 1).count(), 1, "{given:?}");
    assert!(row(&s, SPACE, RowNumber(0), |_| false).is_err());
    let gives = |present: &[bool], shape| {
        let disks: Vec<Disk> = present.iter().map(|present| disk(*present)).collect();
        row(&state(&disks, shape), SPACE, RowNumber(0), |_| true).is_ok()
    };
    assert!(!gives(&[false, false], mirror), "none of the copies would be anywhere");
    let simple =
        row(&state(&[disk(true), disk(false)], (Resiliency::Simple, 2)), SPACE, RowNumber(0), |_| true);
    assert!(simple.unwrap().iter().all(|place| place.disk.0 == 0), "one copy is none less");
    assert!(gives(&[false, true, false], (Resiliency::Mirror { copies: 3 }, 1)));
    let parity = (Resiliency::Parity { parity: 1 }, 2);
    assert!(gives(&[true, true, false], parity) && !gives(&[true, false, false], parity));
}

#[test]
fn a_replacement_goes_to_another_node_before_a_roomier_disk() {
    let disk = |slabs, node| Disk { slabs, rack: 0, node, usage: Usage::AutoSelect, present: true, media: 0 };
    let mut s =
        state(&[disk(9, 1), disk(9, 2), disk(60, 1), disk(5, 3)], (Resiliency::Mirror { copies: 2 }, 1));
    s.fill(SPACE, RowNumber(0), [0, 1].map(|d| SlabPlace { disk: DiskNumber(d), slab: 0 })).unwrap();
    assert_eq!(replacement(&s, 0, 1).unwrap().disk, DiskNumber(3));
    assert_eq!(replacement(&s, 0, 0).unwrap().disk, DiskNumber(2), "its own node is as good");
}

#[test]
fn a_replacement_goes_to_the_disk_with_the_least_work_before_a_roomier_one() {
    let disk = |slabs, node| Disk { slabs, rack: 0, node, usage: Usage::AutoSelect, present: true, media: 0 };
    let disks = [disk(9, 1), disk(9, 2), disk(60, 3), disk(5, 4), disk(70, 1)];
    let mut s = state(&disks, (Resiliency::Mirror { copies: 2 }, 1));
    s.fill(SPACE, RowNumber(0), [0, 1].map(|d| SlabPlace { disk: DiskNumber(d), slab: 0 })).unwrap();
    let by = |work: [usize; 5]| {
        slab_by(&s, SPACE, RowNumber(0), 1, |_| true, |d| work[usize::from(d.0)]).unwrap().disk.0
    };
    assert_eq!(by([0; 5]), 2);
    assert_eq!(by([0, 0, 2, 1, 0]), 3, "the node of the other copy is no place, however idle");
}

/// The disks of the log of a parity space of this class, on disks with these media, usages and nodes.
fn log_on(class: MediaClass, disks: &[(u8, Usage, u8)], parity: u8) -> Vec<u16> {
    let disk = |(media, usage, node): &(u8, Usage, u8)| Disk {
        slabs: 64,
        rack: 0,
        node: *node,
        usage: *usage,
        present: true,
        media: *media,
    };
    let s = state(&disks.iter().map(disk).collect::<Vec<_>>(), (Resiliency::Parity { parity }, 2));
    let record = SpaceRecord { media: class, ..SpaceRecord::clone(&s.spaces[&SPACE]) };
    let log = log_row(&s, &record, |_| true).expect("there is room");
    let mut on: Vec<u16> = log.iter().map(|place| place.disk.0).collect();
    on.sort_unstable();
    on
}

#[test]
fn logs_go_to_what_is_fastest() {
    let kind = |(media, usage): (u8, Usage)| (media, usage, 0);
    let [hdd, ssd, nvme] = [HDD, SSD, NVME].map(kind);
    let on = |disks: &[(u8, Usage, u8)], parity| log_on(MediaClass::ANY, disks, parity);
    assert_eq!(on(&[hdd, hdd, hdd, ssd, hdd, ssd], 1), [3, 5]);
    assert_eq!(on(&[nvme, ssd, hdd, ssd, nvme, hdd], 1), [0, 4]);
    let three = on(&[hdd, ssd, hdd, ssd, hdd], 2);
    assert!(three.len() == 3 && three.contains(&1) && three.contains(&3), "{three:?}");
}

#[test]
fn logs_go_to_disks_that_are_for_them() {
    let kind = |(media, usage): (u8, Usage)| (media, usage, 0);
    let [hdd, ssd] = [HDD, SSD].map(kind);
    let own = (1, Usage::Journal, 0);
    let on = |disks: &[(u8, Usage, u8)]| log_on(MediaClass::ANY, disks, 1);
    assert_eq!(on(&[ssd, ssd, ssd, own, own]), [3, 4]);
    let one = on(&[ssd, hdd, hdd, own]);
    assert_eq!(one, [0, 3]);
    // Separate fault domains come first.
    let node = |kind: (u8, Usage, u8), node| (kind.0, kind.1, node);
    let apart = on(&[node(own, 1), node(own, 1), node(hdd, 2), node(ssd, 3), node(hdd, 3)]);
    assert!(apart[0] < 2 && apart[1] == 3, "{apart:?}");
    // No other slabs are placed on these disks.
    let disk = |usage| Disk { slabs: 64, rack: 0, node: 0, usage, present: true, media: 0 };
    let s = state(&[disk(Usage::Journal), disk(Usage::AutoSelect)], (Resiliency::Mirror { copies: 2 }, 1));
    assert!(row(&s, SPACE, RowNumber(0), |_| true).is_err());
}

/// One replica more than the failures that the space survives, and at least two if the pool has enough disks.
#[test]
fn logs_have_as_many_replicas_as_their_space_needs() {
    let disk = || Disk { slabs: 64, rack: 0, node: 0, usage: Usage::AutoSelect, present: true, media: 0 };
    let replicas = |disks, resiliency| {
        let s = state(&(0..disks).map(|_| disk()).collect::<Vec<_>>(), (resiliency, 2));
        log_row(&s, &s.spaces[&SPACE], |_| true).ok().map(|log| {
            let on: BTreeSet<DiskNumber> = log.iter().map(|place| place.disk).collect();
            assert_eq!(on.len(), log.len(), "each on another disk");
            log.len()
        })
    };
    assert_eq!(
        (1..4).map(|n| replicas(n, Resiliency::Simple)).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(2)]
    );
    let mirror = |copies| Resiliency::Mirror { copies };
    assert_eq!(
        (replicas(1, mirror(2)), replicas(5, mirror(2)), replicas(5, mirror(3))),
        (None, Some(2), Some(3))
    );
    let parity = |parity| Resiliency::Parity { parity };
    assert_eq!((replicas(8, parity(1)), replicas(8, parity(2))), (Some(2), Some(3)));
}

/// A rebuild of one disk must read from all others, not from a few that share all of its rows.
#[test]
fn a_disk_shares_its_rows_with_all_others() {
    let disk = Disk { slabs: 128, rack: 0, node: 0, usage: Usage::AutoSelect, present: true, media: 0 };
    let mut s = state(&vec![disk; 8], (Resiliency::Mirror { copies: 2 }, 1));
    for n in 0..256 {
        fill_row(&mut s, n);
    }
    for disk in (0..8).map(DiskNumber) {
        let mine = s.rows_of(SPACE).filter(|(_, r)| r.slabs.iter().any(|c| c.place.disk == disk));
        let others: BTreeSet<DiskNumber> =
            mine.flat_map(|(_, r)| r.slabs.iter().map(|c| c.place.disk)).collect();
        assert_eq!(others.len(), 8, "{disk:?}: {others:?}");
        assert_eq!(s.slabs_used(disk).count(), 64);
    }
}

fn only(media: &[Media]) -> MediaClass {
    MediaClass::of(media.iter().copied())
}

/// A two-way mirror of this class on disks with these media and usages.
fn mirror_on(class: MediaClass, disks: &[(u8, Usage)]) -> State {
    let disk = |(media, usage): &(u8, Usage)| Disk {
        slabs: 33,
        rack: 0,
        node: 0,
        usage: *usage,
        present: true,
        media: *media,
    };
    let all: Vec<Disk> = disks.iter().map(disk).collect();
    let mut s = state(&all, (Resiliency::Mirror { copies: 2 }, 1));
    set_media(&mut s, class);
    s
}

const HDD: (u8, Usage) = (1, Usage::AutoSelect);
const SSD: (u8, Usage) = (2, Usage::AutoSelect);
const NVME: (u8, Usage) = (3, Usage::AutoSelect);
const UNKNOWN: (u8, Usage) = (0, Usage::AutoSelect);

/// The slab that a row has on a disk.
fn index_on(s: &State, row: u32, disk: u16) -> u8 {
    let is_on =
        |index: &u8| copy(s, SPACE, RowNumber(row), usize::from(*index)).place.disk == DiskNumber(disk);
    (0..2).find(is_on).expect("it has one there")
}

#[test]
fn a_class_has_its_disks_to_itself_and_no_others() {
    let ssd = only(&[Media::Ssd]);
    let mut s = mirror_on(ssd, &[HDD, HDD, SSD, UNKNOWN, NVME, SSD, (1, Usage::HotSpare)]);
    let mut rows = 0;
    while let Ok((slabs, _)) = places(&s) {
        assert!(slabs.iter().all(|p| [2, 5].contains(&p.disk.0)), "{slabs:?}");
        s.fill(SPACE, RowNumber(rows), slabs).unwrap();
        rows += 1;
    }
    assert_eq!(rows, 32, "all but the reserve");
    let told = places(&s).unwrap_err().to_string();
    assert_eq!(told, "2 SSD disks with room are needed and there are 0; add SSD disks or make room");
    // Neither the hot spare nor another disk can replace a slab of this disk.
    Arc::make_mut(&mut s.disks).get_mut(&DiskNumber(5)).unwrap().presence = Presence::Absent(Absence::Gone);
    let full = NoPlace::NoRoom { needed: 1, disks: 0, media: ssd };
    assert_eq!(replacement(&s, 0, index_on(&s, 0, 5)), Err(full.clone()));
    assert_eq!(
        full.to_string(),
        "1 SSD disk with room is needed and there are 0; add SSD disks or make room"
    );
    let plan = evacuation(&s, DiskNumber(5));
    assert_eq!((plan.moves, plan.left, plan.why), (0, 32, Some(crate::jobs::NotMoved::NoPlace(full))));
    // An absent disk of another class gets no slabs either when a row is allocated while disks are absent.
    let (row, birth) = (RowNumber(0), s.spaces[&SPACE].rows[&RowNumber(0)].birth);
    s.apply(&Op::Space { space: SPACE, op: SpaceOp::Free { row, birth } }).unwrap();
    let (places, _) = places(&s).expect("one of two is there");
    assert!(places.iter().all(|p| [2, 5].contains(&p.disk.0)), "{places:?}");
    // The medium of the unknown one is set.
    s.apply(&Op::SetDiskMedia { disk: DiskNumber(3), media: 2 }).unwrap();
    assert_eq!(replacement(&s, 1, index_on(&s, 1, 5)).unwrap().disk, DiskNumber(3));
    assert_eq!(evacuation(&s, DiskNumber(5)).moves, 31);
    // A hot spare of the class can replace it.
    let mut s = mirror_on(only(&[Media::Ssd]), &[SSD, SSD, HDD, (2, Usage::HotSpare)]);
    fill_row(&mut s, 0);
    let index = index_on(&s, 0, 1);
    assert!(
        replacement(&s, 0, index).is_err(),
        "while the disk is there and stays, there is nothing to replace"
    );
    let mut absent = s.clone();
    Arc::make_mut(&mut absent.disks).get_mut(&DiskNumber(1)).unwrap().presence =
        Presence::Absent(Absence::Gone);
    Arc::make_mut(&mut s.disks).get_mut(&DiskNumber(1)).unwrap().usage = Usage::Retired;
    for s in [absent, s] {
        assert_eq!(replacement(&s, 0, index).unwrap().disk, DiskNumber(3));
    }
}

#[test]
fn a_class_of_several_media_takes_all_of_them() {
    let s = mirror_on(MediaClass::flash(), &[HDD, NVME, HDD, SSD]);
    let on: BTreeSet<u16> = places(&s).unwrap().0.iter().map(|p| p.disk.0).collect();
    assert_eq!(on, [1, 3].into());
    assert_eq!(columns(&s, Resiliency::Mirror { copies: 2 }, MediaClass::flash(), 2), 1);
    assert_eq!(columns(&s, Resiliency::Mirror { copies: 2 }, MediaClass::ANY, 2), 2);
    assert!(places(&mirror_on(only(&[Media::Scm]), &[HDD, NVME, SSD])).is_err());
}

#[test]
fn what_lies_outside_of_its_class_moves_there_first() {
    let mut s = mirror_on(MediaClass::ANY, &[HDD, HDD, SSD, SSD, SSD]);
    for n in 0..10 {
        let slabs = [0, 1 + n as u16 % 2].map(|d| SlabPlace { disk: DiskNumber(d), slab: n });
        s.fill(SPACE, RowNumber(n), slabs).unwrap();
    }
    // Rebalancing moves a slab off this disk only if the slab is outside its class.
    s.apply(&Op::SetUsage { disk: DiskNumber(0), usage: Usage::ManualSelect }).unwrap();
    assert_eq!(outside(&s, SPACE), 0, "any disk will do");
    set_media(&mut s, only(&[Media::Ssd]));
    assert_eq!((outside(&s, SPACE), to_rebalance(&s)), (15, 15 + 3));
    let mut moves = 0;
    while let Some(step) = rebalance(&s, &BTreeSet::new()) {
        let was = outside(&s, SPACE);
        make(&mut s, step);
        assert!(was == 0 || outside(&s, SPACE) == was - 1, "those come first");
        moves += 1;
    }
    assert_eq!((outside(&s, SPACE), moves), (0, 16), "each once, and one that makes them even");
    let mut used: Vec<usize> = (0..5).map(|d| s.slabs_used(DiskNumber(d)).count()).collect();
    used.sort_unstable();
    assert_eq!(used, [0, 0, 6, 7, 7]);
}

#[test]
fn logs_are_as_fast_as_their_space_or_faster() {
    let kind = |(media, usage): (u8, Usage)| (media, usage, 0);
    let [hdd, ssd, nvme, unknown] = [HDD, SSD, NVME, UNKNOWN].map(kind);
    let disks = [hdd, hdd, hdd, ssd, ssd, hdd];
    assert_eq!(log_on(only(&[Media::Hdd]), &disks, 1), [3, 4], "of HDDs on SSDs");
    assert_eq!(log_on(only(&[Media::Ssd]), &disks, 1), [3, 4]);
    let disks = [nvme, unknown, ssd, ssd, ssd, hdd, nvme];
    assert_eq!(log_on(only(&[Media::Ssd]), &disks, 1), [0, 6], "of SSDs on NVMe");
    // One of the disks is full or absent: no disk slower than an SSD replaces it.
    let disks = [nvme, ssd, hdd, hdd, hdd, unknown, unknown];
    assert_eq!(log_on(only(&[Media::Ssd]), &disks, 1), [0, 1]);
    // Disks for logs are permitted, whatever their medium.
    let own = (1, Usage::Journal, 0);
    let disks = [own, ssd, ssd, ssd, hdd, own];
    assert_eq!(log_on(only(&[Media::Ssd]), &disks, 1), [0, 5]);
}

#[test]
fn a_log_moves_to_the_media_where_it_may_lie_and_for_nothing_else() {
    let disk = |media| Disk { slabs: 64, rack: 0, node: 0, usage: Usage::AutoSelect, present: true, media };
    let mut s = state(&[disk(1), disk(1), disk(1), disk(2), disk(2)], (Resiliency::Mirror { copies: 2 }, 1));
    s.fill(SPACE, RowNumber::LOG, [0, 1].map(|d| SlabPlace { disk: DiskNumber(d), slab: 0 })).unwrap();
    assert_eq!(rebalance(&s, &BTreeSet::new()), None, "neither to faster disks nor to make them more even");
    set_media(&mut s, only(&[Media::Ssd]));
    assert_eq!(outside(&s, SPACE), 2);
    assert_eq!(rebalance(&s, &[(SPACE, RowNumber::LOG)].into()), None, "it is left alone");
    let settle = |s: &mut State| {
        for left in [1, 0] {
            let step = rebalance(s, &BTreeSet::new()).expect("a replica is outside");
            assert_eq!(step.row, RowNumber::LOG);
            make(s, step);
            assert_eq!(outside(s, SPACE), left);
        }
        assert_eq!(rebalance(s, &BTreeSet::new()), None);
        [0, 1].map(|index| copy(s, SPACE, RowNumber::LOG, index).place.disk.0)
    };
    assert_eq!(settle(&mut s.clone()), [3, 4]);
    // A disk with the usage "journal" comes first, whatever its medium.
    s.apply(&Op::SetUsage { disk: DiskNumber(2), usage: Usage::Journal }).unwrap();
    assert_eq!(settle(&mut s), [2, 3]);
}
