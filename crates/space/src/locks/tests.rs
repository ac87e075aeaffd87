use futures_util::FutureExt;
use pool_seam::RowNumber;
use proptest::prelude::*;

use super::*;

const KEY: GroupKey = GroupKey { row: RowNumber(1), set: 0, group: 3 };

impl RangeLocks {
    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().queues.is_empty())
    }
}

#[test]
fn overlapping_ones_wait_in_order() {
    let locks = RangeLocks::default();
    let try_lock = |units| locks.try_lock(KEY, units, Mode::Exclusive);
    let lock = |units| Box::pin(locks.lock(KEY, units, Mode::Exclusive));
    let (first, apart) = (try_lock(0..4), try_lock(4..8));
    assert!(locks.try_lock(GroupKey { group: 4, ..KEY }, 0..4, Mode::Exclusive).is_some());
    let mut second = lock(3..5);
    assert!(second.as_mut().now_or_never().is_none());
    // No granted lock conflicts, but the second request arrived before this one.
    let mut third = lock(2..4);
    assert!(third.as_mut().now_or_never().is_none());
    drop(first);
    assert!(second.as_mut().now_or_never().is_none(), "the other neighbour still has it");
    drop(apart);
    let second = second.now_or_never().expect("free");
    assert!(try_lock(2..3).is_none(), "the third wants it");
    assert!(third.as_mut().now_or_never().is_none());
    drop(second);
    drop(third.now_or_never().expect("free"));
    assert!(locks.is_empty());
}

#[test]
fn shared_ones_do_not_starve_an_exclusive_one() {
    let locks = RangeLocks::default();
    let shared = || locks.try_lock(KEY, 0..4, Mode::Shared);
    let (a, b) = (shared(), shared());
    assert!(a.is_some() && b.is_some());
    let mut exclusive = Box::pin(locks.lock(KEY, 1..2, Mode::Exclusive));
    assert!(exclusive.as_mut().now_or_never().is_none());
    assert!(shared().is_none(), "it arrived later");
    assert!(locks.try_lock(KEY, 2..4, Mode::Shared).is_some(), "the exclusive one does not want this");
    drop(a);
    assert!(exclusive.as_mut().now_or_never().is_none());
    drop(b);
    assert!(exclusive.now_or_never().is_some());
    assert!(locks.is_empty());
}

#[test]
fn a_checkpoint_goes_before_those_that_wait() {
    let locks = RangeLocks::default();
    let first = locks.try_lock(KEY, 0..4, Mode::Exclusive);
    let mut second = Box::pin(locks.lock(KEY, 3..8, Mode::Exclusive));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(locks.try_lock_first(KEY, 3..4).is_none(), "the first has it");
    let of_checkpoint = locks.try_lock_first(KEY, 5..6).expect("no call holds it");
    assert!(locks.try_lock_first(KEY, 5..6).is_none());
    drop(first);
    assert!(second.as_mut().now_or_never().is_none(), "the checkpoint has a part of it");
    drop(of_checkpoint);
    let second = second.now_or_never().expect("free");
    assert!(locks.try_lock_first(KEY, 5..6).is_none());
    drop(second);
    assert!(locks.is_empty());
}

/// One step of a caller.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        units: std::ops::Range<usize>,
        is_shared: bool,
    },
    /// Drops a request, granted or not.
    End(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ask = (0..8_usize, 1..4_usize, any::<bool>())
        .prop_map(|(first, count, is_shared)| Step::Ask { units: first..first + count, is_shared });
    prop::collection::vec(prop_oneof![3 => ask, 2 => any::<prop::sample::Index>().prop_map(Step::End)], 1..60)
}

proptest! {
    /// A caller holds its lock exactly when there is no older conflicting request, even if waiting or granted requests
    /// are dropped at any await.
    #[test]
    fn locks_are_a_queue(steps in steps()) {
        let locks = RangeLocks::default();
        // Requests in the order of their arrival, and the lock of those that have it.
        let mut asked = Vec::new();
        for step in steps {
            match step {
                Step::Ask { units, is_shared } => {
                    let mode = if is_shared { Mode::Shared } else { Mode::Exclusive };
                    let waits = Box::pin({
                        let (locks, units) = (locks.clone(), units.clone());
                        async move { locks.lock(KEY, units, mode).await }
                    });
                    asked.push((units, mode, waits, None));
                }
                Step::End(at) if !asked.is_empty() => drop(asked.remove(at.index(asked.len()))),
                Step::End(_) => {}
            }
            for at in 0..asked.len() {
                let (before, mine) = asked.split_at_mut(at);
                let (units, mode, waits, lock) = &mut mine[0];
                if lock.is_none() {
                    *lock = waits.as_mut().now_or_never();
                }
                let conflicts = |(other, other_mode, ..): &(std::ops::Range<usize>, Mode, _, _)| {
                    let both_shared = *mode == Mode::Shared && *other_mode == Mode::Shared;
                    units.clone().any(|unit| other.contains(&unit)) && !both_shared
                };
                prop_assert_eq!(lock.is_some(), !before.iter().any(conflicts));
            }
        }
        drop(asked);
        prop_assert!(locks.is_empty());
    }
}

/// On several threads a counter behind an exclusive lock loses no increment, and all threads end.
#[test]
fn threads_exclude_each_other() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("threads");
    let (locks, counter) = (RangeLocks::default(), Arc::new(Mutex::new(0_u32)));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let (locks, counter) = (locks.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    for step in 0..200 {
                        let _lock = locks.lock(KEY, task % 4..5, Mode::Exclusive).await;
                        let seen = *counter.lock();
                        if step % 16 == 0 {
                            tokio::task::yield_now().await;
                        }
                        *counter.lock() = seen + 1;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    assert_eq!((*counter.lock(), locks.is_empty()), (1600, true));
}
