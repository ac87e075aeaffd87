//! Seeded histories ([`crate::history`]). `POOLSIM_SEED` is added to the seeds, so that the same tests have other histories
//! (`scripts/soak`); `POOLSIM_SEEDS` is how many there are. `POOLSIM_SEED=n POOLSIM_NOTES=1 cargo test -p poolsim one_history`
//! repeats one, and prints what happens.

use crate::history::run;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

#[test]
fn nothing_is_wrong_and_nothing_flushed_is_lost() {
    let (first, count) = (number("POOLSIM_SEED").unwrap_or(0), number("POOLSIM_SEEDS"));
    let mut failed = Vec::new();
    for seed in first..first + count.unwrap_or(60) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            assert!(count.is_some(), "seed {seed}");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// Two disks fail at a time, and the log finds the second one when a replica joins there: a flush failed although the third copy
/// had everything.
#[test]
fn a_replica_that_cannot_join_fails_no_flush() {
    [151, 163, 197].into_iter().for_each(|seed| drop(run(seed)));
}

/// A write waits for its row when the space becomes smaller: it is beyond the size then, and no call that finds no room.
#[test]
fn a_row_that_a_smaller_size_has_taken_away_is_beyond_it() {
    run(318);
}

/// A slab moves while a discard is not durable, and another process takes the pool: the discard is lost, and the new slab has to
/// have what was there before, because another disk has missed it.
#[test]
fn a_discard_that_is_lost_leaves_a_slab_that_moved_whole() {
    run(10067);
}

/// A scrub ended before a checkpoint had written the damaged blocks of a group that was in use: with another disk away, nothing
/// said what the group had.
#[test]
fn a_scrub_leaves_no_damaged_block() {
    [100_255, 103_243, 103_251].into_iter().for_each(|seed| drop(run(seed)));
}

/// A discard may begin and end while a read is outstanding: the read may return the data from before the discard.
#[test]
fn a_long_read_may_give_what_was_there_when_it_began() {
    run(100_080);
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in (0..6).chain([70_388]) {
        assert!(run(seed) == run(seed), "seed {seed}");
    }
}

/// By hand: see the module.
#[test]
fn one_history() {
    run(number("POOLSIM_SEED").unwrap_or(0));
}
