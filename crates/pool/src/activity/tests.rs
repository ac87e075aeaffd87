//! The core against a naive model: whatever is begun and durable, and not flushed since it ended, is in the
//! log on the disk.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::blocks::activity::{BLOCK, decode};
use crate::{DiskNumber, PoolId, SpaceId};

const POOL: PoolId = PoolId([7; 16]);
const DISK: DiskNumber = DiskNumber(3);
const BLOCKS: usize = 2;
const PER_BLOCK: usize = 3;

type Places = Vec<[Vec<u8>; 2]>;

fn places() -> Places {
    (0..BLOCKS).map(|_| [vec![0; BLOCK], vec![0; BLOCK]]).collect()
}

fn core(epoch: u64) -> Core {
    Core::new(POOL, DISK, epoch, BLOCKS, PER_BLOCK)
}

/// The owner of a slab in these tests.
fn owner(slab: u32) -> SpaceId {
    SpaceId(slab % 2)
}

fn on_disk(places: &Places) -> BTreeMap<u32, u64> {
    let mut marks = BTreeMap::new();
    for (number, both) in places.iter().enumerate() {
        let newest = both
            .iter()
            .filter_map(|b| decode(b, POOL, DISK, number as u16))
            .max_by_key(|(h, _)| (h.epoch, h.sequence));
        for e in newest.into_iter().flat_map(|(_, e)| e) {
            *marks.entry(e.slab).or_insert(0) |= e.regions;
        }
    }
    marks
}

fn write_all(core: &mut Core, places: &mut Places) {
    while let Some(w) = core.next_write() {
        places[w.block][w.place].clone_from(&w.bytes);
        core.written(&w, true);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u32, u8),
    End(usize),
    StartWrite,
    FinishWrite(bool),
    Flush(u32),
    Sweep,
    Crash,
    Resolve,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u32..9, 0_u8..64).prop_map(|(s, r)| Step::Begin(s, r)),
        5 => (0_usize..8).prop_map(Step::End),
        5 => Just(Step::StartWrite),
        5 => any::<bool>().prop_map(Step::FinishWrite),
        3 => (0_u32..2).prop_map(Step::Flush),
        1 => Just(Step::Sweep),
        1 => Just(Step::Crash),
        1 => Just(Step::Resolve),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn what_may_be_torn_is_in_the_log(steps in prop::collection::vec(step(), 0..120)) {
        let (mut core, mut places, mut epoch) = (core(1), places(), 1);
        let mut flying: Vec<(u32, u8, Begun)> = Vec::new();
        // Durably marked and not flushed since: these must be in the log.
        let mut owed: BTreeSet<(u32, u8)> = BTreeSet::new();
        let mut pending: Vec<LogWrite> = Vec::new();
        for step in steps {
            match step {
                Step::Begin(slab, region) => {
                    let before = core.entries();
                    match core.begin(owner(slab), slab, slab + 1, 1 << region) {
                        Ok(begun) => flying.push((slab, region, begun)),
                        Err(Full) => {
                            prop_assert_eq!(before, core.entries());
                            prop_assert_eq!(before.0, BLOCKS * PER_BLOCK);
                        }
                    }
                }
                Step::End(i) if !flying.is_empty() => {
                    let (slab, region, _) = flying.swap_remove(i % flying.len());
                    core.end(slab, slab + 1, 1 << region);
                }
                Step::End(_) => {}
                Step::StartWrite => pending.extend(core.next_write()),
                Step::FinishWrite(well) if !pending.is_empty() => {
                    let w = pending.remove(0);
                    if well {
                        places[w.block][w.place].clone_from(&w.bytes);
                    }
                    core.written(&w, well);
                }
                Step::FinishWrite(_) => {}
                Step::Flush(space) => {
                    let began = core.now();
                    core.flushed(SpaceId(space), began, |_, _| 0);
                    owed.retain(|(s, r)| {
                        owner(*s) != SpaceId(space) || flying.iter().any(|(fs, fr, _)| (fs, fr) == (s, r))
                    });
                }
                Step::Sweep => core.sweep(),
                Step::Crash => {
                    epoch += 1;
                    pending.clear();
                    flying.clear();
                    core = self::core(epoch).restore(&places, |slab, g| (g == slab + 1).then(|| owner(slab)));
                    let pinned: BTreeMap<u32, u64> = core.pinned().map(|(s, _, r)| (s, r)).collect();
                    for (slab, region) in &owed {
                        prop_assert!(pinned.get(slab).is_some_and(|r| r & 1 << region != 0), "lost a mark");
                    }
                    // Even if the power fails again while the log is being rewritten.
                    while let Some(w) = core.next_write() {
                        places[w.block][w.place].clone_from(&w.bytes);
                        core.written(&w, true);
                        let marks = on_disk(&places);
                        for (slab, regions) in &pinned {
                            prop_assert_eq!(marks.get(slab).map(|m| m & regions), Some(*regions));
                        }
                    }
                    owed = pinned
                        .iter()
                        .flat_map(|(s, r)| (0..64).filter(move |b| r & 1 << b != 0).map(move |b| (*s, b)))
                        .collect();
                }
                Step::Resolve => {
                    let pinned: Vec<_> = core.pinned().collect();
                    for (slab, generation, regions) in pinned {
                        core.unpin(slab, generation, regions);
                        owed.retain(|(s, r)| {
                            *s != slab || regions & 1 << r == 0
                                || flying.iter().any(|(fs, fr, b)| (fs, fr) == (s, r) && core.is_durable(*b))
                                || core.active(slab, generation) & 1 << r != 0
                        });
                    }
                }
            }
            owed.extend(flying.iter().filter(|(_, _, b)| core.is_durable(*b)).map(|(s, r, _)| (*s, *r)));
            let marks = on_disk(&places);
            for (slab, region) in &owed {
                prop_assert!(marks.get(slab).is_some_and(|r| r & 1 << region != 0), "{slab}/{region}");
            }
            prop_assert!(core.entries().0 <= BLOCKS * PER_BLOCK);
        }
    }
}

#[test]
fn full_until_flushed() {
    let (mut core, mut places) = (core(1), places());
    for slab in 0..6 {
        core.begin(SpaceId(0), slab, 1, 1).unwrap();
    }
    write_all(&mut core, &mut places);
    assert_eq!(core.begin(SpaceId(0), 6, 1, 1), Err(Full));
    core.end(2, 1, 1);
    assert_eq!(core.begin(SpaceId(0), 6, 1, 1), Err(Full), "ended, not flushed");
    assert_eq!(core.owners_in_use(), [SpaceId(0)].into());
    core.flushed(SpaceId(0), core.now(), |_, _| 0);
    let begun = core.begin(SpaceId(0), 6, 1, 1).unwrap();
    assert!(!core.is_durable(begun));
    write_all(&mut core, &mut places);
    assert!(core.is_durable(begun));
    assert_eq!(on_disk(&places).into_keys().collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6], "the idle one went");
}

#[test]
fn marks_go_when_they_are_swept_twice() {
    let (mut core, mut places) = (core(1), places());
    core.begin(SpaceId(0), 5, 1, 0b11).unwrap();
    core.end(5, 1, 0b11);
    write_all(&mut core, &mut places);
    core.sweep();
    core.sweep();
    assert_eq!(core.active(5, 1), 0b11, "not flushed");
    core.flushed(SpaceId(0), core.now(), |_, _| 0);
    core.sweep();
    write_all(&mut core, &mut places);
    assert!(on_disk(&places).is_empty());
    // Another life of the slab has nothing of the first.
    core.begin(SpaceId(0), 5, 1, 1).unwrap();
    core.begin(SpaceId(1), 5, 2, 2).unwrap();
    assert_eq!((core.active(5, 1), core.active(5, 2)), (0, 2));
}
