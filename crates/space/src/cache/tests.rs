use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64};

use pool_seam::RowNumber;
use proptest::prelude::*;
use smallvec::smallvec;
use tokio::sync::Notify;

use super::*;
use crate::log::commit::RecordCapacity;
use crate::table::{TableId, Value};

/// Why a load fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Away;

fn key(group: u32) -> GroupKey {
    GroupKey { row: RowNumber(1), set: 0, group }
}

/// Groups of one shard, so that the order of its evictions is known.
fn keys() -> Vec<GroupKey> {
    (0..).map(key).filter(|key| shard_of(key) == 3).take(12).collect()
}

fn table(key: GroupKey) -> Table {
    Table::empty(TableId { row: key.row, birth: 1, set: key.set, group: key.group }, 1, 1, 2)
}

fn bytes() -> usize {
    table(key(0)).bytes()
}

/// The bytes of a table with a unit that waits.
fn dirty_bytes() -> usize {
    let mut table = table(key(0));
    change(&mut table);
    assert!(table.bytes() > bytes(), "pending units take memory");
    table.bytes()
}

async fn get(cache: &Cache<Away>, key: GroupKey) -> Arc<Cached> {
    let load = || async move { Ok((table(key), Source::All)) };
    cache.get(&Env::real(), key, Need::Whole, load).wait().await.expect("loads do not fail")
}

fn write(cache: &Cache<Away>, cached: &Cached) {
    cache.update(cached, change);
}

/// A change that takes the same memory whatever the unit was before.
fn change(table: &mut Table) {
    table.set(0, smallvec![Value::Unwritten]);
}

/// Commits the waiting entries in a record of their own, and confirms it.
fn confirm(table: &mut Table) {
    static RECORDS: AtomicU64 = AtomicU64::new(1);
    let record = RECORDS.fetch_add(1, Ordering::Relaxed);
    table.take(record, true, &mut RecordCapacity::new(1024));
    table.advance(record, record);
}

/// Makes a table clean, like a checkpoint.
fn clean(cache: &Cache<Away>, cached: &Cached) {
    cache.update(cached, |table| {
        confirm(table);
        table.begin_blocks(1, 3);
    });
}

/// The groups in memory.
fn present(cache: &Cache<Away>) -> Vec<GroupKey> {
    let slots = |shard: &Arc<Shard<Away>>| shard.inner.lock().slots.keys().copied().collect::<Vec<_>>();
    let mut all: Vec<_> = cache.shards.iter().flat_map(slots).collect();
    all.sort_unstable();
    all
}

/// The model of a cache, for groups of one shard.
struct Model {
    room: usize,
    /// The tables, the least recently used first, each with whether it is dirty.
    tables: Vec<(GroupKey, bool)>,
    held: BTreeMap<GroupKey, Arc<Cached>>,
}

impl Model {
    fn touch(&mut self, key: GroupKey) {
        let at = self.tables.iter().position(|(k, _)| *k == key);
        let entry = at.map_or((key, false), |at| self.tables.remove(at));
        self.tables.push(entry);
    }

    fn bytes(&self) -> usize {
        self.tables.iter().map(|(_, is_dirty)| if *is_dirty { dirty_bytes() } else { bytes() }).sum()
    }

    /// Evicts after `key` was loaded; the caller still holds `key`.
    fn evict(&mut self, key: GroupKey) {
        while self.bytes() > self.room * bytes() {
            let is_idle = |(k, dirty): &(GroupKey, bool)| *k != key && !dirty && !self.held.contains_key(k);
            let idle = self.tables.iter().position(is_idle);
            // The tables that the eviction passed count as used then.
            self.tables.rotate_left(idle.unwrap_or(0));
            match idle {
                Some(_) => drop(self.tables.remove(0)),
                None => return,
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Get(usize),
    Hold(usize),
    Release(usize),
    Write(usize),
    Clean(usize),
    Forget(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..12_usize, 0..10).prop_map(|(at, what)| match what {
        0..4 => Step::Get(at),
        4 => Step::Hold(at),
        5 => Step::Release(at),
        6 | 7 => Step::Write(at),
        8 => Step::Clean(at),
        _ => Step::Forget(at),
    });
    prop::collection::vec(step, 1..80)
}

async fn take(step: &Step, cache: &Cache<Away>, model: &mut Model, keys: &[GroupKey]) {
    let (Step::Get(at)
    | Step::Hold(at)
    | Step::Release(at)
    | Step::Write(at)
    | Step::Clean(at)
    | Step::Forget(at)) = step;
    let key = keys[*at];
    let is_new = |model: &Model| !model.tables.iter().any(|(k, _)| *k == key);
    match step {
        Step::Release(_) => drop(model.held.remove(&key)),
        Step::Forget(_) => {
            model.held.remove(&key);
            model.tables.retain(|(k, _)| *k != key);
            cache.forget(|k| *k == key);
        }
        _ => {
            let was_new = is_new(model);
            let cached = get(cache, key).await;
            model.touch(key);
            if was_new {
                model.evict(key);
            }
            let dirty = &mut model.tables.iter_mut().find(|(k, _)| *k == key).expect("it is held").1;
            match step {
                Step::Write(_) => {
                    write(cache, &cached);
                    *dirty = true;
                }
                Step::Clean(_) => {
                    clean(cache, &cached);
                    *dirty = false;
                }
                Step::Hold(_) => drop(model.held.insert(key, cached)),
                _ => {}
            }
        }
    }
}

proptest! {
    /// The tables in memory are those of the least-recently-used order; dirty and held tables are never replaced; and
    /// the budget matches the memory in use.
    #[test]
    fn a_cache_is_what_its_model_is(steps in steps(), room in 2..6_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let budget = Budget::new(room * bytes());
        let cache: Cache<Away> = Cache::new(Arc::clone(&budget));
        let (keys, mut model) = (keys(), Model { room, tables: Vec::new(), held: BTreeMap::new() });
        for step in &steps {
            runtime.block_on(take(step, &cache, &mut model, &keys));
            let mut expected: Vec<_> = model.tables.iter().map(|(k, _)| *k).collect();
            expected.sort_unstable();
            prop_assert_eq!(present(&cache), expected);
            let mut dirty: Vec<_> = model.tables.iter().filter(|(_, d)| *d).map(|(k, _)| *k).collect();
            dirty.sort_unstable();
            prop_assert_eq!(cache.dirty().iter().map(|c| c.key).collect::<Vec<_>>(), dirty.clone());
            prop_assert_eq!(budget.used(), model.bytes());
            prop_assert_eq!(budget.is_half_dirty(), dirty.len() * dirty_bytes() * 2 > room * bytes());
            for (key, held) in &model.held.clone() {
                let again = runtime.block_on(get(&cache, *key));
                prop_assert!(Arc::ptr_eq(held, &again));
                model.touch(*key);
            }
        }
        drop((cache, model));
        prop_assert_eq!((budget.used(), budget.is_half_dirty()), (0, false));
    }
}

/// Two callers request a group, and are dropped at each of their awaits: there is one load, and it completes.
#[tokio::test]
async fn a_group_is_loaded_once_whoever_waits() {
    for dropped_after in 0..4 {
        let cache: Cache<Away> = Cache::new(Budget::new(1 << 20));
        let (gate, loads) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
        let ask = || {
            let (gate, loads) = (Arc::clone(&gate), Arc::clone(&loads));
            let load = move || async move {
                loads.fetch_add(1, Ordering::Relaxed);
                for _ in 0..2 {
                    gate.notified().await;
                }
                Ok((table(key(7)), Source::All))
            };
            Box::pin(cache.get(&Env::real(), key(7), Need::Whole, load).wait())
        };
        let (mut first, mut second) = (ask(), Some(ask()));
        for await_point in 0..dropped_after {
            assert!(first.as_mut().now_or_never().is_none(), "not before the load has ended");
            gate.notify_one();
            tokio::task::yield_now().await;
            if await_point == 0 {
                drop(second.take());
            }
            if await_point == 1 {
                break;
            }
        }
        drop((first, second));
        for _ in 0..4 {
            gate.notify_one();
            tokio::task::yield_now().await;
        }
        let Io::Done(Ok(cached)) = cache.get(&Env::real(), key(7), Need::Whole, || async { Err(Away) })
        else {
            panic!("its callers are gone, and it is there");
        };
        assert_eq!((cached.with_table(|table| table.id().group), loads.load(Ordering::Relaxed)), (7, 1));
    }
}

#[tokio::test]
async fn a_load_that_fails_is_tried_again() {
    let budget = Budget::new(1 << 20);
    let cache: Cache<Away> = Cache::new(Arc::clone(&budget));
    let fail = || cache.get(&Env::real(), key(1), Need::Whole, || async { Err(Away) }).wait();
    let (first, second) = tokio::join!(fail(), fail());
    assert_eq!((first.err(), second.err()), (Some(Away), Some(Away)));
    assert_eq!((present(&cache), budget.used()), (vec![], 0));
    get(&cache, key(1)).await;
    assert_eq!(budget.used(), bytes());
}

/// A partial table serves readers. A caller that needs a whole one gets a whole one, even while the partial one is
/// being loaded.
#[tokio::test]
async fn a_whole_table_takes_the_place_of_another() {
    let budget = Budget::new(1 << 20);
    let cache: Cache<Away> = Cache::new(Arc::clone(&budget));
    let of_one = |key| move || async move { Ok((table(key), Source::Column)) };
    let any = |key| cache.get(&Env::real(), key, Need::Any, of_one(key));
    let read = any(key(1)).wait().await.expect("loads do not fail");
    assert_eq!((read.source(), budget.used()), (Source::Column, bytes()));
    assert!(matches!(any(key(1)), Io::Done(Ok(cached)) if Arc::ptr_eq(&cached, &read)));
    let whole = get(&cache, key(1)).await;
    assert_eq!((whole.source(), budget.used()), (Source::All, bytes()));
    assert!(matches!(any(key(1)), Io::Done(Ok(cached)) if Arc::ptr_eq(&cached, &whole)));
    // The partial table, which is still held, is no longer found.
    write(&cache, &whole);
    assert_eq!(
        (read.with_table(|table| table.value(0, 0)), budget.used()),
        (Value::Unwritten, dirty_bytes())
    );
    let (reading, whole) = tokio::join!(any(key(2)).wait(), get(&cache, key(2)));
    assert_eq!((reading.map(|cached| cached.source()), whole.source()), (Ok(Source::Column), Source::All));
    assert!(matches!(any(key(2)), Io::Done(Ok(cached)) if Arc::ptr_eq(&cached, &whole)));
    assert_eq!(budget.used(), bytes() + dirty_bytes());
}

/// A row is freed while a group of it is loaded for a caller that was dropped: the old table is not inserted.
#[tokio::test]
async fn a_forgotten_load_leaves_nothing() {
    let budget = Budget::new(1 << 20);
    let cache: Cache<Away> = Cache::new(Arc::clone(&budget));
    let gate = Arc::new(Notify::new());
    let wait = Arc::clone(&gate);
    drop(cache.get(&Env::real(), key(1), Need::Whole, || async move {
        wait.notified().await;
        Ok((table(key(1)), Source::All))
    }));
    tokio::task::yield_now().await;
    cache.forget(|k| k.row == RowNumber(1));
    let held = get(&cache, key(1)).await;
    gate.notify_one();
    tokio::task::yield_now().await;
    assert!(Arc::ptr_eq(&held, &get(&cache, key(1)).await));
    assert_eq!(budget.used(), bytes());
}

/// Tables of an idle space are evicted for those of a busy one, and the budget is kept.
#[tokio::test]
async fn spaces_share_a_budget() {
    let budget = Budget::new(40 * bytes());
    let spaces: [Cache<Away>; 2] = std::array::from_fn(|_| Cache::new(Arc::clone(&budget)));
    for group in 0..40 {
        get(&spaces[0], key(group)).await;
    }
    for group in 0..400 {
        get(&spaces[1], key(group)).await;
        assert!(budget.used() <= 40 * bytes());
    }
    assert!(present(&spaces[1]).len() >= 38, "{}", present(&spaces[1]).len());
    // With dirty tables only, the cache uses more than its budget, and less again afterwards.
    for group in 1000..1100 {
        let cached = get(&spaces[1], key(group)).await;
        write(&spaces[1], &cached);
    }
    assert!(budget.used() >= 100 * bytes() && budget.is_half_dirty());
    spaces[1].dirty().iter().for_each(|cached| clean(&spaces[1], cached));
    for group in 2000..2004 {
        get(&spaces[1], key(group)).await;
    }
    assert!(budget.used() <= 40 * bytes() && !budget.is_half_dirty());
}

/// Several threads load, write and clean the tables of few groups in little memory: no change is lost.
#[test]
fn threads_lose_no_change() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("threads");
    let budget = Budget::new(3 * bytes());
    let cache: Arc<Cache<Away>> = Arc::new(Cache::new(Arc::clone(&budget)));
    // The checksum of unit 0 of each group in the blocks.
    let blocks: Arc<Mutex<BTreeMap<GroupKey, u32>>> = Arc::default();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..4_u32)
            .map(|task| {
                let (cache, blocks) = (Arc::clone(&cache), Arc::clone(&blocks));
                tokio::spawn(async move {
                    for step in 0..500 {
                        let key = key((task * 7 + step * 5) % 13);
                        let from = Arc::clone(&blocks);
                        let load = move || async move {
                            let mut loaded = table(key);
                            tokio::task::yield_now().await;
                            if let Some(sum) = from.lock().get(&key).copied() {
                                loaded.set(0, smallvec![Value::Written(sum)]);
                                confirm(&mut loaded);
                                loaded.begin_blocks(1, 3);
                            }
                            Ok((loaded, Source::All))
                        };
                        let cached = cache
                            .get(&Env::real(), key, Need::Whole, load)
                            .wait()
                            .await
                            .expect("loads do not fail");
                        cache.update(&cached, |table| {
                            let sum = if let Value::Written(sum) = table.value(0, 0) { sum } else { 0 };
                            table.set(0, smallvec![Value::Written(sum + 1)]);
                        });
                        if step % 3 == 0 {
                            let mut blocks = blocks.lock();
                            cache.update(&cached, |table| {
                                let Value::Written(sum) = table.value(0, 0) else { panic!("it was written") };
                                blocks.insert(key, sum);
                            });
                            clean(&cache, &cached);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    for cached in cache.dirty() {
        let Value::Written(sum) = cached.with_table(|table| table.value(0, 0)) else {
            panic!("it was written")
        };
        blocks.lock().insert(cached.key, sum);
    }
    assert_eq!(blocks.lock().values().sum::<u32>(), 2000);
}

#[test]
fn a_load_that_panics_is_repeated() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let cache: Cache<Away> = Cache::new(Budget::new(1 << 20));
    runtime.block_on(async {
        let load = || async { panic!("a load that panics") };
        let failed = tokio::spawn(cache.get(&Env::real(), key(1), Need::Whole, load).wait());
        assert!(failed.await.is_err());
        get(&cache, key(1)).await;
        assert_eq!(present(&cache), [key(1)]);
    });
}
