//! A space on many disks: a slow disk delays only the writes to it.

use disk::Op;
use disk::sim::{Fault, Rule, When};
use futures_util::future::join_all;
use pool_seam::RowNumber;

use super::*;

const DISKS: usize = 400;

/// Units of a row of one column.
const ROW_UNITS: u64 = 512;

#[test]
fn writes_that_wait_for_one_disk_of_400_stop_no_others() {
    virtual_time(async {
        let slow = Duration::from_secs(5);
        let rows = DISKS as u64 / 2;
        let setup = Setup { size: rows << 21, ..Setup::new(1, DISKS, MIRROR) };
        let world = World::new(&setup).await;
        // The space was empty when it was opened, and got its disks afterwards.
        for row in 0..rows {
            world.write(row * ROW_UNITS..row * ROW_UNITS + 1, false).await.unwrap();
        }
        let view = world.rig.view_now();
        let disks_of = |row: u64| {
            let slabs = &view.record.rows[&RowNumber(row as u32)].slabs;
            slabs.iter().map(|copy| copy.place.disk).collect::<Vec<_>>()
        };
        assert!(view.disks.len() > DISKS * 9 / 10, "{}", view.disks.len());
        let one = disks_of(0)[0];
        world.rig.machine.rule(SlotId(one.0.into()), Rule::new(Op::Write, When::From(0), Fault::Slow(slow)));
        let others: Vec<u64> = (0..rows).filter(|row| !disks_of(*row).contains(&one)).collect();
        let counts = |disk: DiskNumber| world.rig.machine.counts(SlotId(disk.0.into())).writes;
        let before: Vec<u64> = (0..DISKS as u16).map(|disk| counts(DiskNumber(disk))).collect();
        // More writes than the slow disk's share of the writes in flight.
        let waiting = join_all((1..ROW_UNITS).map(|unit| world.write(unit..unit + 1, false)));
        let began = world.rig.env.now();
        let quick = async {
            tokio::task::yield_now().await;
            for unit in 1..4 {
                let writes = others.iter().map(|row| row * ROW_UNITS + unit);
                let all = join_all(writes.map(|unit| world.write(unit..unit + 1, false))).await;
                assert!(all.into_iter().all(|written| written.is_ok()));
            }
            let took = world.rig.env.now() - began;
            assert!(took < slow / 10, "{took:?}: writes to other disks waited for the slow one");
            for disk in others.iter().flat_map(|row| disks_of(*row)) {
                assert!(counts(disk) >= before[usize::from(disk.0)] + 3, "disk {} had nothing to do", disk.0);
            }
        };
        let (waited, ()) = tokio::join!(waiting, quick);
        assert!(waited.into_iter().all(|written| written.is_ok()) && world.rig.env.now() - began >= slow);
        world.flush().await.unwrap();
    });
}
