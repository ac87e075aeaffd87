use std::time::Duration;

use arena::Arena;
use env::Env;

use super::*;
use crate::conformance::{bytes, read_now, write_now};
use crate::sim::{Machine, SlotId};
use crate::{MemoryDisk, MemoryOptions, PowerCut};

const UNIT: u64 = 4096;
const SIZE: u64 = 4 << 20;

fn machine() -> (Machine, SlotId, Arc<Overlay>) {
    let machine = Machine::new(&Env::simulated(1), 1);
    let slot = machine.add(&MemoryOptions::new("d0", SIZE));
    machine.scribble(slot, 0, &bytes(1, 64 << 10));
    let overlay = Overlay::new(machine.open(slot).expect("it is there"), OverlayBudget::new(1 << 20));
    (machine, slot, overlay)
}

fn write(d: &Overlay, unit: u64, seed: u64, units: u64) -> Result<(), DiskError> {
    write_now(d, &Ctx::default(), unit * UNIT, bytes(seed, (units * UNIT) as usize))
}

async fn read(d: &Overlay, unit: u64, units: u64) -> Result<Vec<u8>, DiskError> {
    let arena = Arena::new(1 << 20).expect("a small mapping");
    let mut dst = SgMut::new();
    // No buffer ends at a block boundary.
    let mut left = (units * UNIT) as usize;
    while left > 0 {
        let n = left.min(5000);
        dst.extend(sized(arena.try_alloc_sg(n, arena::Class::Control).expect("it is empty"), n));
        left -= n;
    }
    let (result, dst) = d.read(&Ctx::default(), unit * UNIT, dst).wait().await;
    assert_eq!(dst.iter().map(|b| b.len() as u64).sum::<u64>(), units * UNIT, "the buffers come back");
    result.map(|()| dst.iter().flat_map(|b| b.to_vec()).collect())
}

/// Over a disk that completes immediately and one that does not; none of the suite's writes reach the disk
/// below.
#[tokio::test(start_paused = true)]
async fn conforms() {
    let arena = Arena::new(32 << 20).expect("a small mapping");
    let env = Env::simulated(1);
    for (shuffle, logical_block) in [(None, 512), (None, 4096), (Some(Duration::from_millis(5)), 4096)] {
        let mut machines = Vec::new();
        crate::conformance::run(&arena, || {
            let machine = Machine::new(&env, 1);
            let slot = machine.add(&MemoryOptions { logical_block, ..MemoryOptions::new("d0", SIZE) });
            machine.scribble(slot, 0, &bytes(1, SIZE as usize));
            if let Some(longest) = shuffle {
                machine.shuffle(slot, longest);
            }
            let below = machine.open(slot).expect("it is there");
            machines.push((machine, slot));
            async move { Overlay::new(below, OverlayBudget::new(2 * SIZE)) as Arc<dyn Disk> }
        })
        .await;
        for (machine, slot) in machines {
            assert_eq!(machine.events(), 0);
            assert!(machine.image(slot).to_vec(0, SIZE as usize) == bytes(1, SIZE as usize));
        }
    }
}

#[tokio::test]
async fn written_blocks_are_read_where_the_disk_fails() {
    let (machine, slot, d) = machine();
    let mut expected = bytes(1, 64 << 10);
    for (unit, units) in [(2, 1), (5, 2), (15, 1)] {
        write(&d, unit, 10 + unit, units).expect("there is room");
        let at = (unit * UNIT) as usize..((unit + units) * UNIT) as usize;
        expected[at].copy_from_slice(&bytes(10 + unit, (units * UNIT) as usize));
    }
    assert!(read(&d, 0, 16).await.expect("read") == expected);
    for bad in [2, 6, 15] {
        machine.make_bad(slot, bad * UNIT, UNIT);
    }
    for (unit, units) in [(0, 16), (2, 1), (1, 3), (5, 3), (14, 2)] {
        let part = &expected[(unit * UNIT) as usize..((unit + units) * UNIT) as usize];
        assert!(read(&d, unit, units).await.expect("read") == part, "{units} at {unit}");
    }
    machine.make_bad(slot, 9 * UNIT, UNIT);
    let failed = read(&d, 0, 16).await;
    assert!(matches!(failed, Err(DiskError::Medium { .. })), "{failed:?}");
    assert!(read(&d, 10, 6).await.expect("read") == expected[10 * UNIT as usize..]);
    machine.pull(slot, PowerCut::LoseAll);
    assert!(matches!(read(&d, 0, 16).await, Err(DiskError::Gone { .. })));
    assert!(read(&d, 5, 2).await.is_ok(), "that is all in memory");
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let (budget, below) = (OverlayBudget::new(4 * UNIT), MemoryDisk::new(&MemoryOptions::new("m0", SIZE)));
    let (a, b) = (Overlay::new(below.clone(), budget.clone()), Overlay::new(below.clone(), budget.clone()));
    write(&a, 0, 1, 3).expect("there is room");
    write(&a, 1, 2, 2).expect("it takes no more");
    assert_eq!(budget.used(), 3 * UNIT);
    let at = IoRange::new(Op::Write, 0, 2 * UNIT);
    assert_eq!(write(&b, 0, 3, 2), Err(DiskError::Full { at }));
    assert_eq!(read_now(&*b, 0, UNIT as usize), Ok(vec![0; UNIT as usize]), "nothing of it is written");
    write(&b, 0, 3, 1).expect("there is room for one");
    drop(a);
    assert_eq!(budget.used(), UNIT);
    write(&b, 1, 3, 3).expect("there is room again");
    assert_eq!(below.image(), crate::Image::new());
}
