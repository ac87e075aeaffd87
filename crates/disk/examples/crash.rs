//! A small crash test: two copies of a number on two disks; the power is cut at every event in many ways.
//!
//! `cargo run -p disk --example crash`

use arena::{Arena, Class, IoBuf, Sg};
use disk::sim::{Machine, SlotId};
use disk::{Disk, MemoryOptions, PowerCut, sized};
use env::{Ctx, Env};

const PAGE: u64 = 4096;
const CUTS: u64 = 50;

/// Writes 1, 2, 3 ... to both disks, alternating between two places, each flushed. Returns which event
/// acknowledged which value.
async fn workload(machine: &Machine) -> Vec<(u64, u8)> {
    let disks: Vec<_> = (0..2).map(|i| machine.open(SlotId(i)).expect("it is there")).collect();
    let mut acknowledged = Vec::new();
    for n in 1..=40u8 {
        for d in &disks {
            let copy = Sg::from_iter([IoBuf::from(vec![n; PAGE as usize])]);
            d.write(&Ctx::default(), u64::from(n % 2) * PAGE, copy)
                .wait()
                .await
                .expect("no cut while it runs");
            d.flush(&Ctx::default()).wait().await.expect("no cut while it runs");
        }
        acknowledged.push((machine.events(), n));
    }
    acknowledged
}

async fn recover(machine: &Machine, arena: &Arena) -> u8 {
    let mut highest = 0;
    for i in 0..2 {
        let d = machine.open(SlotId(i)).expect("it is there");
        let dst = sized(arena.alloc_sg(2 * PAGE as usize, Class::Payload).await, 2 * PAGE as usize);
        let (result, dst) = d.read(&Ctx::default(), 0, dst).wait().await;
        result.expect("the medium is sound");
        highest = dst.iter().flat_map(|b| b.iter().copied()).fold(highest, u8::max);
    }
    highest
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (env, arena) = (Env::simulated(1), Arena::new(4 << 20).expect("a small mapping"));
    let machine = Machine::new(&env, 1);
    for serial in ["a", "b"] {
        machine.add(&MemoryOptions::new(serial, 16 << 20));
    }
    machine.record();
    let acknowledged = workload(&machine).await;
    let crash_points = machine.end_recording();
    let begun = Env::real().now();
    for moment in &crash_points {
        let owed = acknowledged.iter().filter(|(event, _)| *event <= moment.event).map(|(_, n)| *n).max();
        for seed in 0..CUTS {
            let found = recover(&moment.cut(&env, PowerCut::Tear { seed }), &arena).await;
            assert!(Some(found) >= owed, "seed {seed} at {moment:?}: {found} is left of {owed:?}");
        }
    }
    let (crashes, time) = (crash_points.len() as u64 * CUTS, Env::real().now() - begun);
    println!(
        "{crashes} crashes recovered in {time:?}: {:.0} a minute",
        crashes as f64 / time.as_secs_f64() * 60.0
    );
}
