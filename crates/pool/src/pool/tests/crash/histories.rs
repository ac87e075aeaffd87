//! In each cycle some of the disks are present, and some fail, disappear, lose power or return with old contents.
//! There is one history: every opening has the last acknowledged change, and perhaps the one after it, whose outcome
//! was not reported.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk::sim::{Fault, Rule, When};
use disk::{Op as DiskOp, PowerCut};

use super::*;

/// The number of events of each kind over all seeds: a test without events proves nothing.
#[derive(Default)]
struct Tally {
    opened: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    suspended: AtomicU64,
    adopted: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The expected states: the last acknowledged one, and the possible results of the change after it.
struct Model {
    acknowledged: Visible,
    in_doubt: Option<Visible>,
    epoch: u64,
}

impl Model {
    fn found(&mut self, opened: &Opened, disks: &[usize], tally: &Tally) {
        count(&tally.opened);
        let got = opened.pool.read(visible);
        let allowed = got == self.acknowledged || self.in_doubt.as_ref() == Some(&got);
        assert!(
            allowed,
            "disks {disks:?} give {got:#?}\nbut {:#?}\nwas acknowledged, and in doubt is {:#?}",
            self.acknowledged, self.in_doubt
        );
        assert!(opened.pool.epoch() > self.epoch, "epoch {} again or lower", opened.pool.epoch());
        assert!(opened.stale.is_empty(), "{:?} are stale and none lost anything", opened.stale);
        if got != self.acknowledged {
            count(&tally.adopted);
        }
        *self = Model { acknowledged: got, in_doubt: None, epoch: opened.pool.epoch() };
    }
}

/// Causes a random failure of one disk or all.
fn trouble(env: &Env, machine: &Machine, disks: usize) {
    let cut = match below(env, 4) {
        0 => PowerCut::LoseAll,
        1 => PowerCut::KeepAll,
        2 => PowerCut::Reorder { seed: env.random_u64() },
        _ => PowerCut::Tear { seed: env.random_u64() },
    };
    let soon = below(env, 30);
    for _ in 0..below(env, 3) {
        let slot = SlotId(below(env, disks as u64) as usize);
        let rule = match below(env, 4) {
            0 => Rule::new(DiskOp::Flush, When::Nth(soon / 4), Fault::Error),
            1 => Rule::new(DiskOp::Write, When::Nth(soon / 2), Fault::Vanish(cut)),
            _ => Rule::new(DiskOp::Write, When::Nth(soon / 2), Fault::Error),
        };
        machine.rule(slot, rule);
    }
    if below(env, 2) == 0 {
        machine.cut_at(machine.events() + soon, cut);
    }
}

async fn cycles(seed: u64, env: Env, arena: Arena, tally: &Tally) {
    let disks = 2 + (seed % 4) as usize;
    let machine = Machine::new(&env, seed);
    let pool = pool_on(&env, &arena, &machine, disks).await;
    let mut model = Model { acknowledged: pool.read(visible), in_doubt: None, epoch: pool.epoch() };
    drop(pool);
    if seed % 5 == 4 {
        (0..disks).for_each(|n| machine.shuffle(SlotId(n), Duration::from_millis(20)));
    }
    let mut step = 0;
    for _ in 0..8 {
        machine.restart();
        for n in 0..disks {
            machine.no_rules(SlotId(n));
            machine.plug(SlotId(n));
        }
        trouble(&env, &machine, disks);
        let away = below(&env, 1 << disks) & below(&env, 1 << disks);
        let here: Vec<usize> = (0..disks).filter(|n| away & 1 << n == 0).collect();
        let Ok(opened) = open(&env, &arena, &open_all(&machine, here.clone())).await else {
            count(&tally.refused);
            continue;
        };
        model.found(&opened, &here, tally);
        let pool = opened.pool;
        for _ in 0..1 + below(&env, 8) {
            step += 1;
            match below(&env, 8) {
                // Absent disks return, if they can be opened.
                0 => {
                    for n in 0..disks {
                        machine.plug(SlotId(n));
                        if let Ok(disk) = machine.open(SlotId(n)) {
                            let _ = pool.return_disk(disk, false).await;
                        }
                    }
                }
                1 => {
                    let _ = pool.take_offline(DiskNumber(below(&env, disks as u64) as u16)).await;
                }
                _ => {}
            }
            let ops = pool.read(|s| change(&env, s, step));
            let mut after = pool.read(State::clone);
            after.apply_all(&ops).unwrap();
            match pool.metadata().commit(ops).await {
                Ok(()) => {
                    model.acknowledged = pool.read(visible);
                    if pool.members().iter().count() < here.len() {
                        count(&tally.dropped);
                    }
                }
                Err(CommitError::Suspended(_)) => {
                    count(&tally.suspended);
                    model.in_doubt = Some(visible(&after));
                    break;
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
    // At the end all disks are present and healthy: the pool must open.
    machine.restart();
    for n in 0..disks {
        machine.no_rules(SlotId(n));
        machine.plug(SlotId(n));
    }
    let all: Vec<_> = (0..disks).collect();
    let opened = open(&env, &arena, &open_all(&machine, all.clone())).await.unwrap_or_else(|e| panic!("{e}"));
    model.found(&opened, &all, tally);
}

#[test]
fn there_is_one_history() {
    let tally = Tally::default();
    seeds(0..300, |seed, env, arena| cycles(seed, env, arena, &tally));
    let counts = [&tally.opened, &tally.refused, &tally.dropped, &tally.suspended, &tally.adopted]
        .map(|c| c.load(Ordering::Relaxed));
    println!("opened, refused, went on without a disk, suspended, adopted a change in doubt: {counts:?}");
    assert!(counts.iter().all(|n| *n >= 50), "{counts:?}");
}

/// The record that makes disk 2 a voter reaches it or not, while an old voter fails too. If the third voter has
/// continued, the two failed ones must not be able to open the pool.
#[test]
fn a_voter_that_joins_while_others_fail() {
    let continued_alone = AtomicU64::new(0);
    seeds(0..60, async |seed, env, arena| {
        let machine = Machine::new(&env, seed);
        let pool = pool_on(&env, &arena, &machine, 2).await;
        let new = NewDisk::new(machine.open(machine.add(&MemoryOptions::new("disk2", 16 * MIB))).unwrap());
        let journal = pool.members().get(DiskNumber(0)).unwrap().areas.journal;
        let fail = |slot, nth| {
            let rule = Rule::new(DiskOp::Write, When::Nth(nth), Fault::Error);
            machine.rule(SlotId(slot), rule.within(journal.offset..journal.end()));
        };
        // The third record from now on makes disk 2 a voter; it is the first record in the journal of disk 2.
        fail(0, 2);
        if seed % 3 != 0 {
            fail(2, 0);
        }
        let _ = pool.add_disk(&new).await;
        let acknowledged = pool.rename("acknowledged").await.is_ok();
        assert_eq!(acknowledged, seed % 3 == 0, "one of three may fail, not two");
        continued_alone.fetch_add(u64::from(acknowledged), Ordering::Relaxed);
        drop(pool);
        machine.record();
        let now = machine.end_recording().pop().unwrap();
        for here in [[0, 1], [0, 2], [1, 2]] {
            let copy = now.cut(&env, PowerCut::KeepAll);
            if let Ok(opened) = open(&env, &arena, &open_all(&copy, here)).await {
                let name = opened.pool.read(|s| s.name.clone());
                assert!(!acknowledged || name == "acknowledged", "disks {here:?} give {name}");
            }
        }
    });
    assert_eq!(continued_alone.load(Ordering::Relaxed), 20);
}
