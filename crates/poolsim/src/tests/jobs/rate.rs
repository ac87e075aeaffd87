use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arena::{IoBuf, Sg};
use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Op, PowerCut};
use futures_util::future::join_all;
use pool::SpaceRecord;
use pool::jobs::{Kind, Subject};
use pool_seam::{DiskNumber, UNIT};

use super::{begin, on};
use crate::world::{OwnedSpace, World, mirror, virtual_time};

const MIB: u64 = 1 << 20;

/// Units of one write.
const PART: u64 = 256;

fn one_unit() -> IoBuf {
    IoBuf::from(vec![7; UNIT as usize])
}

/// Writes a space of this size.
async fn fill(owned: &OwnedSpace, size: u64) {
    let unit = one_unit();
    for part in 0..size / UNIT / PART {
        let src: Sg = (0..PART).map(|_| unit.clone()).collect();
        owned.space.write(part * PART * UNIT, src, false).wait().await.expect("a write");
    }
}

/// One of eight disks of 100 MB/s is lost with the data of mirrors. Returns the rate of the rebuild in bytes per
/// second, without its first and last eighth: in the first the pacer detects that there are no clients, in the last
/// some disks are already done.
fn rebuilds_at(spaces: usize, rows: u64, slab_bytes: u64) -> u64 {
    virtual_time(async {
        let (world, rates) = World::rated(8, 160 * slab_bytes, slab_bytes, 100_000_000);
        let pool = world.create().await;
        let mut all = Vec::new();
        for n in 0..spaces {
            let record = SpaceRecord { size: rows * slab_bytes, ..mirror(&format!("vm{n}")) };
            let space = pool.create_space(record).await.expect("a space");
            let owned = world.own(&pool, space).await.expect("an owner");
            fill(&owned, rows * slab_bytes).await;
            owned.flush().await.expect("a flush");
            owned.space.checkpoint().await.expect("a checkpoint");
            all.push((space, owned));
        }
        let lost = DiskNumber(3);
        world.machine.pull(SlotId(3), PowerCut::LoseAll);
        pool.disk_failed(lost, pool::Absence::Gone).await.expect("the others have everything");
        // The replicas of logs are replaced first.
        world.env.sleep(Duration::from_secs(5)).await;
        let slabs: usize = all.iter().map(|(space, _)| on(&pool, *space, lost)).sum();
        let total = slabs as u64 * slab_bytes;
        rates.begin();
        let job = begin(&pool, Kind::Rebuild, Subject::Disk(lost));
        let mut middle = Vec::new();
        let watch = async {
            loop {
                let done = rates.written();
                if (total / 8..=total / 8 * 7).contains(&done) {
                    middle.push((world.env.now(), done));
                }
                world.env.sleep(Duration::from_millis(5)).await;
            }
        };
        let start = world.env.now();
        let rebuilt = tokio::select! {
            rebuilt = pool.evacuate(lost, &job) => rebuilt.expect("a rebuild"),
            () = watch => unreachable!("it watches for ever"),
        };
        let whole = world.env.now() - start;
        assert_eq!((rebuilt.moved, rebuilt.remaining), (slabs, 0));
        // Each copied byte is read once, and some blocks; the former contents of the new places are not read.
        assert!(rates.read() < total + total / 50, "{} of {total} bytes were read", rates.read());
        let (first, last) = (middle[0], middle[middle.len() - 1]);
        let per_second = |bytes: u64, time: Duration| bytes * 1_000 / (time.as_millis() as u64).max(1);
        let rate = per_second(last.1 - first.1, last.0 - first.0);
        let mib = total / MIB;
        println!("each disk was busy for {:?}", rates.worked());
        println!("{mib} MiB in {whole:?}: {} B/s; in the middle {rate} B/s", per_second(total, whole));
        rate
    })
}

/// Measured: 315 MB/s of a possible 350. Required: 300. The test allows 290, because a small loss has other causes
/// than this test checks.
#[test]
fn a_disk_of_eight_is_rebuilt_by_all_others() {
    for (spaces, rows) in [(4, 56), (1, 224)] {
        let rate = rebuilds_at(spaces, rows, 8 * MIB);
        assert!(rate >= 290_000_000, "{spaces} spaces: {rate} B/s");
    }
}

/// Durable writes of 4 KiB at random addresses of a mirror whose disks flush in 5 ms, 32 in flight: all that wait share
/// a flush. Returns the writes per second, and the flushes of both disks for 100 writes.
fn durable_writes() -> (u64, u64) {
    const WRITERS: u64 = 32;
    const SECONDS: u64 = 5;
    virtual_time(async {
        let world = World::new(3, 2);
        let pool = world.create().await;
        let record = SpaceRecord { size: 16 * MIB, ..mirror("vm") };
        let space = pool.create_space(record).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        let bytes = one_unit();
        let units = 16 * MIB / UNIT;
        fill(&owned, units * UNIT).await;
        owned.space.checkpoint().await.expect("a checkpoint");
        let flushes = || [0, 1].iter().map(|slot| world.machine.counts(SlotId(*slot)).flushes).sum::<u64>();
        for slot in [0, 1] {
            let flush = Rule::new(Op::Flush, When::From(0), Fault::Slow(Duration::from_millis(5)));
            world.machine.rule(SlotId(slot), flush);
        }
        let (before, written, begun) = (flushes(), AtomicU64::new(0), world.env.now());
        let writers = (0..WRITERS).map(|_| async {
            while world.env.now() - begun < Duration::from_secs(SECONDS) {
                let (unit, src) = (world.env.random_u64() % units, Sg::from_iter([bytes.clone()]));
                owned.space.write(unit * UNIT, src, true).wait().await.expect("a write");
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        join_all(writers).await;
        let written = written.into_inner();
        (written / SECONDS, (flushes() - before) * 100 / written)
    })
}

/// The most that is possible is 32 writes in 5 ms, 6,400 a second.
#[test]
fn durable_writes_share_slow_flushes() {
    let (rate, flushes) = durable_writes();
    println!("{rate} durable writes per second; {flushes} flushes for 100 writes");
    assert!(rate >= 5_000 && flushes <= 8, "{rate} a second, {flushes} flushes for 100 writes");
}
