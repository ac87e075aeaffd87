//! The model of bytes.

use arena::IoBuf;
use disk::sim::Machine;
use disk::{Disk, MemoryOptions};
use env::{Ctx, Env};

use super::super::{End, Model, fill, tell, virtual_time};

fn machine() -> Machine {
    let machine = Machine::new(&Env::simulated(1), 1);
    machine.add(&MemoryOptions::new("disk", 16 << 20));
    machine
}

/// An event of the machine.
async fn event(machine: &Machine) {
    let disk = machine.open(disk::sim::SlotId(0)).expect("it is there");
    disk.flush(&Ctx::default()).wait().await.expect("no faults");
}

#[test]
fn bytes_say_their_unit_and_version() {
    assert_eq!(tell(&fill(7, 9)), Some((7, 9)));
    assert_eq!(tell(&[0; 4096]), Some((0, 0)));
    let mut torn = fill(7, 9).to_vec();
    torn[2048..].copy_from_slice(&fill(7, 8)[2048..]);
    assert_eq!(tell(&torn), None);
    assert_eq!(tell(&fill(7, 9)[..512]), None);
    let moved = [&fill(7, 9)[512..], &fill(7, 9)[..512]].concat();
    assert_eq!(tell(&moved), None);
}

#[test]
fn a_read_finds_the_newest_acknowledged_value_or_one_in_flight() {
    virtual_time(async {
        let mut model = Model::new(&machine());
        assert!(model.check(5, &[0; 4096]).is_ok() && model.check(5, &fill(5, 1)).is_err());
        let one = model.write_begun(4..6);
        assert_eq!((model.possible(5), model.possible(6)), (vec![0, one], vec![0]));
        model.ended(one, End::Done);
        assert_eq!(model.possible(5), [one]);
        let (two, three) = (model.write_begun(5..6), model.write_begun(5..6));
        model.ended(three, End::Done);
        assert_eq!(model.possible(5), [two, three], "the second is still in flight");
        model.ended(two, End::Failed);
        let four = model.discard_begun(5..6);
        model.ended(four, End::Done);
        assert_eq!(model.possible(5), [0]);
        assert!(model.check(4, &fill(5, one)).is_err(), "another unit's bytes");
        assert_eq!(model.units().collect::<Vec<_>>(), [4, 5]);
    });
}

#[test]
fn a_crash_keeps_what_was_flushed_and_may_keep_the_rest() {
    virtual_time(async {
        let machine = machine();
        let mut model = Model::new(&machine);
        let (one, late) = (model.write_begun(0..1), model.write_begun(1..2));
        model.ended(one, End::Done);
        let flush = model.flush_begun();
        model.ended(late, End::Done);
        event(&machine).await;
        model.flushed(flush);
        let two = model.write_begun(0..1);
        model.ended(two, End::Done);
        assert_eq!(model.after_crash(0, &machine).possible(0), [0, one], "the flush had not ended");
        let mut after = model.after_crash(1, &machine);
        assert_eq!((after.possible(0), after.possible(1)), (vec![one, two], vec![0, late]));
        after.settled(0, one);
        assert_eq!(after.after_crash(u64::MAX, &machine).possible(0), [one]);
        let three = after.write_begun(1..2);
        after.ended(three, End::Durable);
        assert_eq!(after.after_crash(u64::MAX, &machine).possible(1), [three]);
        let bytes: IoBuf = fill(1, three);
        assert!(after.check(1, &bytes).is_ok());
    });
}
