//! Seeded histories ([`crate::history`]). `POOLSIM_SEED` is added to the seeds, so that the same tests run other
//! histories (`scripts/soak`); `POOLSIM_SEEDS` is the number of seeds. `POOLSIM_SEED=n POOLSIM_NOTES=1 cargo test -p
//! poolsim one_history` repeats one history and prints its events.

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

/// Two disks failed at the same time, and the log detected the second one when a replica joined there. A flush failed
/// although the third copy had all data.
#[test]
fn a_replica_that_cannot_join_fails_no_flush() {
    [151, 163, 197].into_iter().for_each(|seed| drop(run(seed)));
}

/// A write waits for its row while the space shrinks. It must fail because it is beyond the size, not because there
/// is no room.
#[test]
fn a_row_that_a_smaller_size_has_taken_away_is_beyond_it() {
    run(318);
}

/// A slab moves while a discard is not durable, and another process takes the pool. The discard is lost, so the new
/// slab must have the data from before it, because another disk is stale there.
#[test]
fn a_discard_that_is_lost_leaves_a_slab_that_moved_whole() {
    run(10067);
}

/// A scrub ended before a checkpoint had rewritten the damaged blocks of a group in use. With another disk absent, no
/// block of the group was left.
#[test]
fn a_scrub_leaves_no_damaged_block() {
    [100_255, 103_243, 103_251].into_iter().for_each(|seed| drop(run(seed)));
}

/// A stripe whose first change was not in place was changed again, and the second change discarded a column: no
/// replay accepted the snapshot.
#[test]
fn a_snapshot_has_no_payload_of_a_discarded_column() {
    run(100_775);
}

/// A stripe of a local code with data in one group had no parity of the other group. One table called that parity
/// lost, and another one did not.
#[test]
fn a_local_code_has_all_parities_of_a_stripe() {
    [100_247, 100_963, 105_974, 107_156, 109_286].into_iter().for_each(|seed| drop(run(seed)));
}

/// A table that was loaded while a disk was absent never read that disk's block. Its units counted as lost when
/// another disk was removed.
#[test]
fn a_disk_that_has_missed_nothing_counts_when_it_is_back() {
    [108_642, 108_658, 108_815].into_iter().for_each(|seed| drop(run(seed)));
}

/// A copy had stale bits for regions beyond its slab, and so was never complete.
#[test]
fn a_copy_that_has_everything_is_not_behind() {
    run(106_068);
}

/// A discard hid payload that a crash had left in the log, so the checkpoint that had to place the payload skipped
/// it.
#[test]
fn a_discard_does_not_keep_payload_in_the_log() {
    [115_501, 118_140].into_iter().for_each(|seed| drop(run(seed)));
}

/// One call holds a lock and waits for room in the log. Another call waits for that lock and holds up stripes that a
/// crash has left only in the log. These stripes are not locked: the checkpoint that makes room writes them in place.
#[test]
fn a_checkpoint_places_what_others_wait_for() {
    drop(run(148_371));
}

/// A discard may begin and end while a read is outstanding: the read may return data from before the discard.
#[test]
fn a_long_read_may_give_what_was_there_when_it_began() {
    run(100_080);
}

/// Rows get more or fewer copies during the history.
#[test]
fn copies_change_and_nothing_flushed_is_lost() {
    (200_000..200_020).for_each(|seed| drop(run(seed)));
}

/// Spaces are converted between mirrors, parity and other columns during the history.
#[test]
fn spaces_are_converted_and_nothing_flushed_is_lost() {
    (3_000_000..3_000_020).for_each(|seed| drop(run(seed)));
}

/// A request freed a row and began a move to one of its slabs, which was discarded after the move had written to it.
/// Another one: a conversion wrote more between a checkpoint's blocks and its snapshot than a snapshot carries.
#[test]
fn conversions_beside_moves_and_absent_disks() {
    [3_005_090, 3_002_190].into_iter().for_each(|seed| drop(run(seed)));
}

/// Disks are taken offline beside disks that were rolled back and may not be verified yet.
#[test]
fn a_second_disk_leaves_and_nothing_flushed_is_lost() {
    (400_000..400_020).for_each(|seed| drop(run(seed)));
}

/// One replica of a log was on a rolled-back disk, and the disk with the other replica was taken offline and
/// returned. The checkpoint that had to complete the replicas waited for a complete one.
#[test]
fn a_log_goes_on_after_its_only_complete_replica_returns() {
    run(420_120);
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in (0..6).chain([70_388, 200_001, 400_001, 3_000_001]) {
        assert!(run(seed) == run(seed), "seed {seed}");
    }
}

/// For manual runs: see the module.
#[test]
fn one_history() {
    run(number("POOLSIM_SEED").unwrap_or(0));
}

/// A large discard that a crash had left undecided was decided unit by unit. The records filled the log before a
/// checkpoint could carry the undecided units, and no job ended.
#[test]
fn what_a_crash_has_left_open_does_not_fill_the_log() {
    run(352_675);
}

/// A crash during the removal of a disk, and two more disks lost: the removed disk was no voter any more, and no
/// other disk had become one.
#[test]
fn a_disk_keeps_its_vote_until_another_has_it() {
    run(364_774);
}

/// A row was empty, but the block of an absent disk did not state that: the space could not shrink before the disk
/// returned.
#[test]
fn a_row_that_holds_nothing_is_freed_without_a_disk_that_is_away() {
    run(368_612);
}
