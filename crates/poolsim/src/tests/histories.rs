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

/// A second change of a stripe whose first one was not in place, and which discarded a column: no replay accepted the snapshot.
#[test]
fn a_snapshot_has_no_payload_of_a_discarded_column() {
    run(100_775);
}

/// A stripe of a local code with data in one group had no parity of the other one: a table called that lost, and another one
/// did not.
#[test]
fn a_local_code_has_all_parities_of_a_stripe() {
    [100_247, 100_963, 105_974, 107_156, 109_286].into_iter().for_each(|seed| drop(run(seed)));
}

/// A table that was loaded while a disk was away never learnt what the disk's block says, and units counted as lost when
/// another disk left.
#[test]
fn a_disk_that_has_missed_nothing_counts_when_it_is_back() {
    [108_642, 108_658, 108_815].into_iter().for_each(|seed| drop(run(seed)));
}

/// A copy lacked regions that its slab does not have, and counted as behind for good.
#[test]
fn a_copy_that_has_everything_is_not_behind() {
    run(106_068);
}

/// A discard hid payload that a crash had left in the log from the checkpoint that had to place it.
#[test]
fn a_discard_does_not_keep_payload_in_the_log() {
    [115_501, 118_140].into_iter().for_each(|seed| drop(run(seed)));
}

/// Two calls wait: one holds a lock and waits for room in the log, the other waits behind it for stripes that a crash has left in
/// the log only. Those are not locked: the checkpoint that makes the room writes them in place.
#[test]
fn a_checkpoint_places_what_others_wait_for() {
    drop(run(148_371));
}

/// A discard may begin and end while a read is outstanding: the read may return the data from before the discard.
#[test]
fn a_long_read_may_give_what_was_there_when_it_began() {
    run(100_080);
}

/// Rows get more or fewer copies meanwhile.
#[test]
fn copies_change_and_nothing_flushed_is_lost() {
    (200_000..200_020).for_each(|seed| drop(run(seed)));
}

/// Disks are taken offline beside others that were set back and may not be verified yet.
#[test]
fn a_second_disk_leaves_and_nothing_flushed_is_lost() {
    (400_000..400_020).for_each(|seed| drop(run(seed)));
}

/// One replica of a log is on a disk that was set back, and the disk with the other one was taken offline and returned: the
/// checkpoint that had to make the replicas complete waited for a complete one.
#[test]
fn a_log_goes_on_after_its_only_complete_replica_returns() {
    run(420_120);
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in (0..6).chain([70_388, 200_001, 400_001]) {
        assert!(run(seed) == run(seed), "seed {seed}");
    }
}

/// By hand: see the module.
#[test]
fn one_history() {
    run(number("POOLSIM_SEED").unwrap_or(0));
}

/// A large discard that a crash had left open was decided unit by unit: the records filled the log before a checkpoint could carry
/// what was still open, and no job ended.
#[test]
fn what_a_crash_has_left_open_does_not_fill_the_log() {
    run(352_675);
}

/// A crash while a disk was removed, and two more lost: the removed one had its vote no more, and no other disk had it yet.
#[test]
fn a_disk_keeps_its_vote_until_another_has_it() {
    run(364_774);
}

/// A row held nothing, and a disk that was away had no block that said so: the space did not become smaller before it returned.
#[test]
fn a_row_that_holds_nothing_is_freed_without_a_disk_that_is_away() {
    run(368_612);
}
