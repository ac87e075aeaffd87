//! Reads return the written data, and a flush makes it durable.

use futures_util::future::join_all;

use super::*;

const UNITS: u64 = (16 << 20) / UNIT;

fn setups() -> Vec<Setup> {
    let mut all = Vec::new();
    for (seed, resiliency) in
        [Resiliency::Simple, MIRROR, Resiliency::Mirror { copies: 3 }].into_iter().enumerate()
    {
        for columns in 1..=2 {
            let disks = resiliency.copies() * usize::from(columns) + 1;
            let setup = Setup::new(seed as u64 + 1, disks, resiliency);
            all.push(Setup { columns, ..setup });
        }
    }
    all.extend((1..=2).map(|parity| coded(10 + u64::from(parity), parity)));
    all
}

#[test]
fn reads_give_what_was_written() {
    for setup in setups() {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.read(0..UNITS).await.unwrap();
            for units in [0..1, 3..20, 500..530, 0..UNITS, 511..513, 1..2] {
                world.write(units.clone(), false).await.unwrap();
                world.read(units).await.unwrap();
            }
            world.flush().await.unwrap();
            world.write(7..9, false).await.unwrap();
            world.write(500..530, true).await.unwrap();
            world.read(0..UNITS).await.unwrap();
        });
    }
}

/// A unit may span several buffers whose ends are not unit boundaries.
#[test]
fn writes_from_buffers_of_any_length() {
    for setup in setups() {
        virtual_time(async {
            let world = World::new(&setup).await;
            for units in [0..24, 3..9, 5..40] {
                let version = world.model.lock().write_begun(units.clone());
                let bytes: Vec<u8> = units.clone().flat_map(|unit| fill(unit, version).to_vec()).collect();
                let src: Sg = bytes.chunks(1000).map(|part| IoBuf::from(part.to_vec())).collect();
                world.space.write(units.start * UNIT, src, false).wait().await.unwrap();
                world.model.lock().ended(version, End::Done);
                world.read(0..40).await.unwrap();
                world.flush().await.unwrap();
            }
        });
    }
}

/// Many concurrent users: reads return one of the newest values, in whatever order the disks complete the I/O.
#[test]
fn users_at_the_same_units() {
    for setup in setups() {
        for seed in 0..8 {
            virtual_time(async {
                let world = World::new(&Setup { seed: setup.seed + 100 * seed, ..setup.clone() }).await;
                world.shuffle(Duration::from_millis(3));
                let users = (0..6).map(|_| user(&world, 40));
                join_all(users).await;
                world.flush().await.unwrap();
                world.read(0..64).await.unwrap();
            });
        }
    }
}

async fn user(world: &World, steps: usize) {
    for _ in 0..steps {
        let random = world.rig.env.random_u64();
        let first = random % 60;
        let units = first..first + 1 + (random >> 8) % 4;
        match (random >> 16) % 8 {
            0 => world.flush().await.unwrap(),
            1 => world.write(units, true).await.unwrap(),
            2..5 => world.write(units, false).await.unwrap(),
            _ => world.read(units).await.unwrap(),
        }
    }
}

/// Rule 2: a unit is overwritten while a flush waits for it. The flush waits for that write, and includes its value.
#[test]
fn a_flush_waits_for_a_write_of_what_it_makes_durable() {
    virtual_time(async {
        let world = World::new(&Setup::new(3, 2, MIRROR)).await;
        world.write(0..1, false).await.unwrap();
        for slot in 0..2 {
            world.rig.machine.shuffle(SlotId(slot), Duration::from_millis(20));
        }
        let second = world.write(0..1, false);
        let flush = async {
            tokio::task::yield_now().await;
            world.flush().await
        };
        let third = async {
            world.rig.env.sleep(Duration::from_millis(1)).await;
            world.write(0..1, false).await
        };
        let (second, flush, third) = tokio::join!(second, flush, third);
        assert_eq!((second, flush, third), (Ok(()), Ok(()), Ok(())));
        world.read(0..1).await.unwrap();
    });
}

/// A call whose future is dropped still takes effect.
#[test]
fn calls_that_are_dropped_are_done() {
    virtual_time(async {
        let world = World::new(&Setup::new(4, 2, MIRROR)).await;
        for (unit, through) in [(0, false), (1, true), (600, false)] {
            let src = Sg::from_iter([fill(unit, 1)]);
            drop(world.space.write(unit * UNIT, src, through));
        }
        drop(world.space.flush());
        world.rig.env.sleep(Duration::from_secs(1)).await;
        for unit in [0, 1, 600] {
            let bytes = world.bytes(unit..unit + 1).await.unwrap();
            assert_eq!(tell(&bytes[0]), Some((unit, 1)));
        }
        world.flush().await.unwrap();
        assert_eq!(world.space.status().disks.iter().map(|port| port.unflushed).sum::<u64>(), 0);
    });
}

/// Rule 4: nothing is acknowledged without a lease.
#[test]
fn an_owner_without_a_lease_acknowledges_nothing() {
    virtual_time(async {
        let world = World::new(&Setup::new(5, 2, MIRROR)).await;
        world.write(0..1, false).await.unwrap();
        world.lease.0.send_replace(false);
        let (write, through, flush) = (world.write(0..1, false), world.write(9..10, true), world.flush());
        let reads = join_all([0..1, 5..6].map(|units| async {
            let second = Duration::from_secs(1);
            tokio::time::timeout(second, world.bytes(units)).await.is_err()
        }));
        assert_eq!(reads.await, [true, true], "another owner may have written");
        let second = Duration::from_secs(1);
        let waits = |call| tokio::time::timeout(second, call);
        let (write, through, flush) = tokio::join!(
            waits(Box::pin(write) as futures_util::future::LocalBoxFuture<'_, _>),
            waits(Box::pin(through)),
            waits(Box::pin(flush))
        );
        assert!(write.is_err() && through.is_err() && flush.is_err(), "{write:?} {through:?} {flush:?}");
        world.lease.0.send_replace(true);
        world.write(0..1, false).await.unwrap();
        world.flush().await.unwrap();
    });
}

#[test]
fn look_ups_of_tables_are_counted() {
    virtual_time(async {
        let world = World::new(&Setup::new(90, 2, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        let (hits, misses) = world.space.table_cache();
        assert!(hits > 0 && misses > 0);
        world.read(0..8).await.unwrap();
        assert_eq!(world.space.table_cache(), (hits + 1, misses));
    });
}

/// Units that a crash has left undecided are in doubt until they are resolved.
#[test]
fn a_crash_leaves_a_space_in_doubt() {
    virtual_time(async {
        let world = World::new(&Setup::new(91, 2, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        assert!(!world.space.is_in_doubt());
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        assert!(world.space.is_in_doubt());
        world.space.resolve().await.unwrap();
        assert!(!world.space.is_in_doubt());
        world.space.close().wait().await.unwrap();
        let rig = world.rig.restarted();
        let model = world.model.lock().after_crash(u64::MAX, &rig.machine);
        drop(world);
        assert!(!World::open(rig, model).await.space.is_in_doubt());
    });
}
