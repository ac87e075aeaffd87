//! Several spaces on one disk.

use disk::{IoRange, MemoryDisk, MemoryOptions, Op};
use env::{Ctx, Env};

use super::super::outliers::SHORT_QUEUE;
use super::super::space_io::Caller;
use super::*;

fn record(env: &Env) -> Arc<Record> {
    let disk = MemoryDisk::new(&MemoryOptions::new("a", 1 << 20));
    Record::new(
        &Supervision::new(env, 1, crate::Deadlines::default()),
        DiskNumber(0),
        Membership::default(),
        disk,
    )
}

fn begin(io: &Arc<SpaceIo>) -> usize {
    let begun = io.begin(&Ctx::default(), IoRange::new(Op::Read, 0, 4096), Caller::Polls(None));
    begun.map(|(_, which)| which).unwrap_or_else(|(error, _)| panic!("{error}"))
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_a_disk_is_that_of_all_spaces() {
    let env = Env::simulated(1);
    let record = record(&env);
    let (one, two) = (record.of_space(SpaceId(1)), record.of_space(SpaceId(2)));
    assert!(Arc::ptr_eq(&one, &record.of_space(SpaceId(1))));
    let queue: Vec<_> = (0..SHORT_QUEUE).map(|_| begin(&one)).collect();
    env.sleep(QUEUE_COUNT_LIFETIME).await;
    let behind = begin(&two);
    assert!(!record.is_idle());
    env.sleep(Duration::from_millis(10)).await;
    queue.into_iter().for_each(|which| drop(one.take_caller(which)));
    let long = Duration::from_secs(1);
    env.sleep(long).await;
    let io = record.recent_io(env.moment());
    assert!(io.longest > long && io.longest_short < long, "{io:?}");
    drop(two.take_caller(behind));
    // Alone again, after a while.
    let alone = begin(&two);
    env.sleep(long).await;
    let io = record.recent_io(env.moment());
    assert!(io.longest_short >= long, "{io:?}");
    drop(two.take_caller(alone));
    assert!(record.is_idle());
    let reads = record.reads();
    drop(one);
    assert_eq!((record.reads(), reads), (6, 6), "those of spaces that are gone count");
}

#[tokio::test(start_paused = true)]
async fn how_long_reads_take_is_known_from_all_spaces() {
    let env = Env::simulated(1);
    let record = record(&env);
    let spaces = [1, 2].map(|n| record.of_space(SpaceId(n)));
    for _ in 0..60 {
        let each = spaces.each_ref().map(|io| (io, begin(io)));
        env.sleep(Duration::from_millis(8)).await;
        each.into_iter().for_each(|(io, which)| drop(io.take_caller(which)));
    }
    env.sleep(RENEWAL).await;
    record.late_reads(env.moment());
    let (after, _) = *record.hedge_after.lock();
    assert!(after < Duration::from_millis(12), "{after:?}: neither space alone has had enough reads");
    assert_eq!(record.recent_io(env.moment()).reads.map(|r| r.crowded), Some(false));
}
