//! Rule 3: a parity that can be computed from the payload of its stripe is not in the log. After a crash during
//! writes of whole stripes, a disk is missing. Every unit must read as one of its possible values, so the columns in
//! place and the log must complete each other.

use futures_util::future::join_all;

use super::*;

const UNITS: u64 = 24;

#[test]
fn stripes_are_recovered_without_the_parities_in_the_log() {
    for seed in 0..6_u64 {
        virtual_time(async {
            let parity = 1 + (seed % 2) as u8;
            let setup = coded(700 + seed, parity);
            let world = World::new(&setup).await;
            world.write(0..UNITS, true).await.unwrap();
            // A stripe with a column of zeros has an implied parity, too.
            world.discard(5..6).await.unwrap();
            world.flush().await.unwrap();
            world.shuffle(Duration::from_millis(2));
            world.rig.record();
            // Whole stripes, and parts of them while the whole-stripe writes are in flight.
            let writes = [(0, 12), (12, 24), (0, 24), (3, 7), (13, 14)]
                .map(|(first, end)| world.write(first..end, true));
            join_all(writes).await.into_iter().for_each(|written| written.unwrap());
            world.discard(5..6).await.unwrap();
            world.write(0..4, true).await.unwrap();
            world.write(6..12, true).await.unwrap();
            let moments = world.rig.moments();
            for (at, moment) in moments.iter().enumerate().skip(seed as usize % 5).step_by(5) {
                for cut in [PowerCut::LoseAll, PowerCut::Tear { seed: at as u64 }] {
                    let rig = world.rig.after(moment, cut);
                    let missing = DiskNumber((at % setup.disks.len()) as u16);
                    rig.absent_at_opening(missing);
                    let model = world.model.lock().after_crash(moment.event, &rig.machine);
                    let after = World::open(rig, model).await;
                    let what = format!("seed {seed}, moment {at}, {missing:?} is missing");
                    after.settle(0..UNITS, &what).await;
                    after.write(0..UNITS, true).await.unwrap();
                    after.read(0..UNITS).await.unwrap();
                    assert!(after.rig.found().is_empty(), "{what}: {:?}", after.rig.found());
                }
            }
        });
    }
}
