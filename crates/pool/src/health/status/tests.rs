use std::collections::BTreeSet;
use std::sync::Arc;

use disk::Media;

use super::super::{CanLose, Limit, can_lose};
use super::*;
use crate::testing;
use crate::{MediaClass, Op, PoolId, Row, RowNumber, SlabPlace, SpaceOp};

const SLAB: u64 = 8 << 20;

fn state(slabs: &[u32]) -> State {
    let mut s = State::new(PoolId([1; 16]), "tank".to_owned(), SLAB);
    for (n, slabs) in slabs.iter().enumerate() {
        let record = DiskRecord { slabs: *slabs, ..testing::disk(n as u16) };
        s.apply(&Op::AddDisk { disk: DiskNumber(n as u16), record }).expect("a disk");
    }
    let voters: BTreeSet<_> = s.disks.keys().copied().collect();
    s.apply(&Op::Voters { voters }).expect("voters");
    s
}

fn space(s: &mut State, name: &str, resiliency: Resiliency, columns: u8, rows: &[&[u16]]) -> SpaceId {
    let record = SpaceRecord {
        name: name.to_owned(),
        size: 32 * SLAB,
        resiliency,
        interleave: 64 << 10,
        columns,
        ..SpaceRecord::default()
    };
    let space = s.make(record);
    for (n, disks) in rows.iter().enumerate() {
        let mut slabs: Vec<SlabPlace> = Vec::new();
        for disk in disks.iter().map(|d| DiskNumber(*d)) {
            let taken = slabs.iter().filter(|p| p.disk == disk).count();
            let slab = s.free_slabs(disk).nth(taken).expect("a free slab");
            slabs.push(SlabPlace { disk, slab });
        }
        s.fill(space, RowNumber(n as u32), slabs).expect("a row");
    }
    space
}

fn lose(s: &mut State, disk: u16) {
    // The owners answer that the disk has every write.
    let answers = s.spaces.keys().map(|space| (*space, Vec::new())).collect();
    let ops = s.removal_ops(DiskNumber(disk), Absence::Gone, &answers);
    s.apply_all(&ops).expect("it leaves");
}

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

#[test]
fn an_empty_pool_can_lose_what_its_metadata_survives() {
    for (disks, can) in [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2)] {
        let s = state(&vec![8; disks]);
        assert_eq!(
            can_lose(&s, &BTreeSet::new()),
            CanLose { disks: can, limit: Limit::Metadata, domains: Vec::new() },
            "{disks} disks"
        );
    }
}

#[test]
fn a_mirror_can_lose_one_disk_and_then_none() {
    let mut s = state(&[8, 8]);
    let vm = space(&mut s, "vm", MIRROR, 1, &[&[0, 1]]);
    assert_eq!(
        can_lose(&s, &BTreeSet::new()),
        CanLose { disks: 1, limit: Limit::Space("vm".to_owned()), domains: Vec::new() }
    );
    assert_eq!(
        (of_space(&s, vm, &Problems::default(), false), of_pool(&s, &Problems::default(), false, false)),
        (Health::OK, Health::OK)
    );
    lose(&mut s, 1);
    assert_eq!(can_lose(&s, &BTreeSet::new()).disks, 0);
    assert_eq!(of_space(&s, vm, &Problems::default(), false).operational, "Incomplete");
    s.apply_stale(vm, RowNumber(0), 1, 4).expect("a write that it missed");
    assert_eq!(of_space(&s, vm, &Problems::default(), false), Health::new("Degraded", "Warning"));
    assert_eq!(of_pool(&s, &Problems::default(), false, false), Health::new("Degraded", "Warning"));
    // It returns: its stale regions have to be copied; until then the other copy is the only one.
    s.apply(&Op::DiskPresent { disk: DiskNumber(1), membership: crate::Membership(2) }).expect("back");
    assert_eq!(of_space(&s, vm, &Problems::default(), false), Health::new("In service", "Warning"));
    assert_eq!(can_lose(&s, &BTreeSet::new()).disks, 0);
    s.apply_current(vm, RowNumber(0), 1, 4).expect("copied");
    assert_eq!(of_space(&s, vm, &Problems::default(), false), Health::OK);
}

#[test]
fn a_disk_in_trouble_says_so_while_it_takes_part() {
    let s = state(&[8, 8]);
    let all = |problems: &Problems| {
        let disks = s.disks.iter().map(|(number, record)| of_disk(*number, record, problems).operational);
        (disks.collect::<Vec<_>>(), of_pool(&s, problems, false, false))
    };
    assert_eq!(all(&Problems::default()), (vec!["OK", "OK"], Health::OK));
    let mut problems = Problems { slow: [DiskNumber(1)].into(), ..Problems::default() };
    assert_eq!(all(&problems), (vec!["OK", "Abnormal latency"], Health::OK));
    problems.failing.insert(DiskNumber(0));
    let degraded = Health::new("Degraded", "Warning");
    assert_eq!(all(&problems), (vec!["IO error", "Abnormal latency"], degraded));
}

/// A crash has left a row without its first blocks: the row is empty, so no disk is needed for it.
#[test]
fn a_new_row_needs_no_disk() {
    let mut s = state(&[8; 5]);
    let vm = space(&mut s, "vm", MIRROR, 1, &[&[0, 1]]);
    let slabs = [2, 3].map(|d| SlabPlace { disk: DiskNumber(d), slab: 7 }).to_vec();
    let op = SpaceOp::Allocate { row: RowNumber(1), first: s.next_generation, slabs };
    s.apply(&Op::Space { space: vm, op }).expect("a row");
    [2, 3].into_iter().for_each(|disk| lose(&mut s, disk));
    assert_eq!(of_space(&s, vm, &Problems::default(), false), Health::OK);
}

#[test]
fn who_may_leave() {
    let mut s = state(&[8; 4]);
    space(&mut s, "vm", MIRROR, 1, &[&[0, 1]]);
    let may = |s: &State| (0..4).map(|d| may_leave(s, DiskNumber(d))).collect::<Vec<_>>();
    assert_eq!(may(&s), [true; 4]);
    lose(&mut s, 1);
    // Disk 0 has the only copy, and disk 1 is absent. Of the three remaining voters two must remain.
    assert_eq!(may(&s), [false, false, true, true]);
    space(&mut s, "scratch", Resiliency::Simple, 1, &[&[2]]);
    assert_eq!(may(&s), [false, false, false, true]);
    // A space without one of its rows needs the disks of its other rows, and the only replica of its log.
    let mut s = state(&[8; 9]);
    let vm = space(&mut s, "vm", MIRROR, 1, &[&[0, 1], &[2, 3]]);
    let log = [4, 5].map(|d| SlabPlace { disk: DiskNumber(d), slab: 7 }).to_vec();
    s.fill(vm, RowNumber::LOG, log).expect("a log");
    (0..2).for_each(|disk| lose(&mut s, disk));
    assert_eq!(of_space(&s, vm, &Problems::default(), false).health, "Unhealthy");
    let may = |s: &State| (2..9).map(|d| may_leave(s, DiskNumber(d))).collect::<Vec<_>>();
    assert_eq!(may(&s), [true; 7]);
    [2, 4].into_iter().for_each(|disk| lose(&mut s, disk));
    assert_eq!(may(&s), [false, false, false, false, true, true, true]);
    assert!(!may_leave(&state(&[8]), DiskNumber(0)), "a pool has a disk");
}

#[test]
fn the_weakest_space_decides() {
    let mut s = state(&[8; 5]);
    let triple = Resiliency::Mirror { copies: 3 };
    space(&mut s, "three", triple, 1, &[&[0, 1, 2], &[2, 3, 4]]);
    assert_eq!(
        can_lose(&s, &BTreeSet::new()),
        CanLose { disks: 2, limit: Limit::Space("three".to_owned()), domains: Vec::new() }
    );
    space(&mut s, "two", MIRROR, 2, &[&[0, 1, 2, 3]]);
    assert_eq!(
        can_lose(&s, &BTreeSet::new()),
        CanLose { disks: 1, limit: Limit::Space("two".to_owned()), domains: Vec::new() }
    );
    // A space without any written row needs no disk.
    let scratch = space(&mut s, "scratch", Resiliency::Simple, 2, &[]);
    assert_eq!(can_lose(&s, &BTreeSet::new()).disks, 1);
    s.apply(&Op::Space { space: scratch, op: SpaceOp::Destroy }).expect("gone");
    let scratch = space(&mut s, "scratch", Resiliency::Simple, 2, &[&[3, 4]]);
    assert_eq!(
        can_lose(&s, &BTreeSet::new()),
        CanLose { disks: 0, limit: Limit::Space("scratch".to_owned()), domains: Vec::new() }
    );
    lose(&mut s, 4);
    assert_eq!(of_space(&s, scratch, &Problems::default(), false), Health::new("No redundancy", "Unhealthy"));
    assert_eq!(of_pool(&s, &Problems::default(), false, false).health, "Unhealthy");
}

/// The formula agrees with the definition: any set of that many disks may be lost, but some larger set may not.
#[test]
fn what_can_be_lost_is_exact() {
    let mut s = state(&[8; 5]);
    space(&mut s, "a", Resiliency::Mirror { copies: 3 }, 1, &[&[0, 1, 2], &[1, 3, 4]]);
    let survives = |s: &State, gone: u32| {
        let is_gone = |d: DiskNumber| gone >> d.0 & 1 == 1;
        let left = s.voters.iter().filter(|v| !is_gone(**v)).count();
        let copy = |row: &Row| row.slabs.iter().any(|c| s.is_present(c.place.disk) && !is_gone(c.place.disk));
        left >= s.quorum_to_continue() && s.rows_of(SpaceId(0)).all(|(_, row)| copy(row))
    };
    for lost in [None, Some(0), Some(3)] {
        let mut s = s.clone();
        lost.into_iter().for_each(|d| lose(&mut s, d));
        let can = can_lose(&s, &BTreeSet::new()).disks as u32;
        let present = |gone: u32| (0..5).all(|d| gone >> d & 1 == 0 || s.is_present(DiskNumber(d)));
        let sets = |size| (0_u32..32).filter(move |g| g.count_ones() == size).filter(|g| present(*g));
        assert!(sets(can).all(|g| survives(&s, g)), "{can} after {lost:?}");
        assert!(!sets(can + 1).all(|g| survives(&s, g)), "{can} and one more after {lost:?}");
    }
}

/// LRC (4,2,1): columns 0, 1 and 4 are a group, 2, 3 and 5 another, 6 is the global one.
#[test]
fn what_local_reconstruction_can_lose() {
    let resiliency = Resiliency::LocalParity { groups: 2, global: 1 };
    for (lost, can, operational) in [
        ([].as_slice(), 2, "OK"),
        (&[0], 1, "Incomplete"),
        (&[6], 1, "Incomplete"),
        (&[0, 2], 1, "Incomplete"),
        (&[0, 4], 0, "Incomplete"),
        (&[0, 2, 6], 0, "Incomplete"),
        (&[0, 1, 4], 0, "No redundancy"),
    ] {
        let mut s = state(&[8; 12]);
        // The metadata survives more failures than the space.
        s.apply(&Op::Voters { voters: (7..12).map(DiskNumber).collect() }).expect("voters");
        let l = space(&mut s, "l", resiliency, 4, &[&[0, 1, 2, 3, 4, 5, 6]]);
        lost.iter().for_each(|d| lose(&mut s, *d));
        assert_eq!(
            (can_lose(&s, &BTreeSet::new()).disks, of_space(&s, l, &Problems::default(), false).operational),
            (can, operational),
            "{lost:?}"
        );
    }
}

#[test]
fn rows_fit_as_placement_finds_them() {
    for slabs in [vec![8, 8], vec![8, 3, 3], vec![4, 4, 4, 4], vec![9, 1], vec![40, 50, 70, 5, 64]] {
        for (resiliency, columns) in [(MIRROR, 1), (MIRROR, 2), (Resiliency::Simple, 2)] {
            let mut s = state(&slabs);
            let id = space(&mut s, "x", resiliency, columns, &[]);
            let op = SpaceOp::SetSize { size: 1 << 40 };
            s.apply(&Op::Space { space: id, op }).expect("larger");
            let record = SpaceRecord::clone(&s.spaces[&id]);
            let (fit, with_log) = (rows_to_grow(&s, id), rows_that_fit(&s, &record));
            // For a media class only its disks count; a disk of unknown medium is in no class.
            let class = SpaceRecord { media: MediaClass::of([Media::Nvme]), ..record.clone() };
            assert_eq!(rows_that_fit(&s, &class), 0);
            let mut mixed = state(&[slabs.clone(), vec![50, 50, 50]].concat());
            let known = Arc::make_mut(&mut mixed.disks).values_mut().take(slabs.len());
            known.for_each(|r| r.media = 3);
            assert_eq!(rows_that_fit(&mixed, &class), with_log);
            let mut logged = s.clone();
            let log = crate::placement::log_row(&s, &record, |_| true).expect("there is room");
            logged.fill(id, RowNumber::LOG, log).expect("its log");
            assert_eq!(rows_to_grow(&logged, id), with_log, "{slabs:?} {resiliency:?} {columns}");
            let mut rows = 0;
            while let Ok(places) = crate::placement::row(&s, id, crate::RowNumber(0), |_| true) {
                s.fill(id, RowNumber(rows), places).expect("a row");
                rows += 1;
            }
            assert_eq!(fit, u64::from(rows), "{slabs:?} {resiliency:?} {columns}");
        }
    }
}
