//! What seeds have found, by name.

use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, Op, PowerCut};
use env::Ctx;
use futures_util::future::join;
use pool::format::Areas;
use pool::jobs::Progress;
use pool::{Absence, DiskNumber, NewDisk};

use crate::chaos::{bring_back, resync};
use crate::in_virtual_time;
use crate::life::run;
use crate::model::Value;
use crate::rig::{DISK_BYTES, LOCAL, PARITY, Rig, SLAB_BYTES, SLOW_LOCAL, Site, USED, open, options};

/// A disk that alone had a region was pulled with an unflushed write and came back; a flush then wrote a
/// block that told of the write, and what had been discarded before passed for it.
#[test]
fn a_returned_disk_is_not_taken_at_its_word() {
    in_virtual_time(run(1_795_298_931_921, None));
}

/// Two disks, two copies.
async fn mirror() -> (Rig, Site) {
    let (rig, site) = Rig::new(0).await;
    assert_eq!((rig.shape.disks, rig.shape.copies), (2, 2));
    (rig, site)
}

/// Once all disks had left a suspended pool, a flush had nothing to do and said that it was done.
#[test]
fn a_flush_without_disks_fails() {
    in_virtual_time(async {
        let (rig, site) = mirror().await;
        site.write(0, &[1], false).await.expect("two disks");
        rig.machine.cut(PowerCut::LoseAll);
        for _ in 0..4 {
            assert!(site.space.flush(&Ctx::default()).wait().await.is_err());
        }
    });
}

/// Between its return to the pool and its joining the data path a disk was used with its old, closed log:
/// writers went round for ever.
#[test]
fn a_disk_that_returns_stops_no_writer() {
    in_virtual_time(async {
        let (rig, site) = mirror().await;
        site.write(0, &[1], false).await.expect("two disks");
        rig.machine.pull(SlotId(1), PowerCut::LoseAll);
        site.pool.disk_failed(DiskNumber(1), Absence::Gone).await.expect("the other one is there");
        site.write(0, &[2], false).await.expect("one disk");
        rig.machine.plug(SlotId(1));
        let disk = rig.machine.open(SlotId(1)).expect("it is plugged in");
        site.pool.return_disk(disk, false).await.expect("it is ours");
        let written = tokio::time::timeout(Duration::from_secs(60), site.write(0, &[3], true)).await;
        written.expect("it ends").expect("one disk");
        let member = site.pool.members().get(DiskNumber(1)).cloned().expect("it is back");
        site.path.join(&member).await.expect("it joins");
        assert_eq!(site.read(0, 1).await, Ok(vec![3]));
        assert!(site.pool.read(|s| s.is_present(DiskNumber(1))));
    });
}

/// A row that was allocated between a disk's return to the pool and its joining the data path threw the disk
/// out again, and found no room.
#[test]
fn a_disk_on_its_way_in_gets_slabs() {
    in_virtual_time(async {
        let (rig, site) = mirror().await;
        rig.machine.pull(SlotId(1), PowerCut::LoseAll);
        site.pool.disk_failed(DiskNumber(1), Absence::Gone).await.expect("the other one is there");
        rig.machine.plug(SlotId(1));
        let disk = rig.machine.open(SlotId(1)).expect("it is plugged in");
        site.pool.return_disk(disk, false).await.expect("it is ours");
        let member = site.pool.members().get(DiskNumber(1)).cloned().expect("it is back");
        site.write(0, &[1], false).await.expect("one of them can be used");
        site.path.join(&member).await.expect("it is ours");
        resync(&rig, &site).await;
        let behind = |s: &pool::State| s.rows.values().flat_map(|r| &r.slabs).any(|c| c.missed != 0);
        assert!(!site.pool.read(behind));
        assert!(site.pool.read(|s| s.is_present(DiskNumber(1))));
        assert_eq!(site.read(0, 1).await, Ok(vec![1]));
    });
}

/// When the handle of a disk that had something alone was let go of, what it had not flushed was forgotten: a
/// flush then said that all was well.
#[test]
fn a_flush_tells_of_a_disk_that_was_let_go_of() {
    in_virtual_time(async {
        let (rig, site) = Rig::new(2).await;
        assert_eq!((rig.shape.disks, rig.shape.copies), (3, 2));
        site.write(0, &[1], true).await.expect("three disks");
        let on = |s: &pool::State| {
            s.rows.values().next().expect("a row").slabs.iter().map(|c| c.place.disk).collect()
        };
        let on: Vec<DiskNumber> = site.pool.read(on);
        site.pool.disk_failed(on[0], Absence::Gone).await.expect("the other one is there");
        site.write(0, &[2], false).await.expect("one disk");
        site.pool.disk_failed(on[1], Absence::Gone).await.expect("it was pulled");
        site.path.release_absent();
        assert!(site.space.flush(&Ctx::default()).wait().await.is_err());
    });
}

/// Disks that had been told to leave, and were not emptied, had no vote: with the last other disk the
/// metadata went, though their data was whole.
#[test]
fn disks_that_are_to_leave_keep_the_metadata() {
    in_virtual_time(run(101_036, None));
    in_virtual_time(run(101_249, None));
}

/// What was kept of a copy from one try of a write to the next was kept by its index, and the row was another
/// one by then.
#[test]
fn a_row_that_is_freed_and_given_slabs_again_while_a_write_waits() {
    in_virtual_time(run(130, None));
}

/// A row that was freed as its resynchronised slabs were recorded failed the job for all of them.
#[test]
fn a_row_that_is_freed_while_it_moves_stops_no_job() {
    in_virtual_time(run(10_011, None));
}

/// A voter that failed in the record that removed it suspended the pool.
#[test]
fn a_voter_may_fail_in_the_record_that_removes_it() {
    in_virtual_time(run(10_346, None));
    in_virtual_time(run(PARITY + 102_008, None));
}

/// A disk that was pulled before its blocks were read was said to have lost them: its units stayed lost when
/// it was back, and with the next disk so was the data.
#[test]
fn a_parity_disk_that_does_not_answer_has_lost_nothing() {
    for (away, next) in [(0, 1), (1, 2), (2, 0)] {
        in_virtual_time(async {
            let (rig, site) = Rig::new(PARITY).await;
            assert_eq!((rig.shape.disks, rig.shape.columns, rig.shape.parity), (3, 2, 1));
            let values: Vec<Value> = (1..=USED).collect();
            site.write(0, &values, false).await.expect("three disks");
            site.path.quiesce().await.expect("three disks");
            drop(site);
            rig.machine.restart();
            let site = open(&rig.env, &rig.machine, false).await.expect("three disks");
            rig.machine.pull(SlotId(away), PowerCut::KeepAll);
            assert_eq!(site.read(0, USED).await.as_ref(), Ok(&values), "without disk {away}");
            bring_back(&rig, &site, away).await;
            resync(&rig, &site).await;
            rig.machine.pull(SlotId(next), PowerCut::KeepAll);
            assert_eq!(site.read(0, USED).await.as_ref(), Ok(&values), "{away} is back, without {next}");
        });
    }
}

/// A disk that could not be spared was pulled with overwrites that the journal had and its medium had not,
/// and came back: it counted as current, a checkpoint gave the journal's room back, and what had been flushed
/// was lost.
#[test]
fn the_journal_is_replayed_to_a_disk_that_could_not_be_spared() {
    in_virtual_time(async {
        let (rig, site) = Rig::new(PARITY).await;
        assert_eq!((rig.shape.disks, rig.shape.columns, rig.shape.parity), (3, 2, 1));
        let values = |from: u64| (from..from + USED).collect::<Vec<Value>>();
        site.write(0, &values(1), false).await.expect("three disks");
        site.path.quiesce().await.expect("three disks");
        for (spared, pulled) in [(2, 0), (0, 1), (1, 2)] {
            rig.machine.pull(SlotId(spared), PowerCut::KeepAll);
            let new = values(1000 * (1 + spared as u64));
            site.write(0, &new, true).await.expect("two disks");
            rig.machine.pull(SlotId(pulled), PowerCut::LoseAll);
            bring_back(&rig, &site, pulled).await;
            assert_eq!(site.read(0, USED).await.as_ref(), Ok(&new), "{pulled} is back");
            site.path.quiesce().await.expect("two disks");
            bring_back(&rig, &site, spared).await;
            resync(&rig, &site).await;
            let other = 3 - spared - pulled;
            rig.machine.pull(SlotId(other), PowerCut::LoseAll);
            assert_eq!(site.read(0, USED).await.as_ref(), Ok(&new), "without {other}");
            bring_back(&rig, &site, other).await;
            resync(&rig, &site).await;
        }
    });
}

/// What was written and not flushed when a disk that could not be spared left may be gone when it is back:
/// the next flush says so, once.
#[test]
fn a_flush_says_what_a_returned_parity_disk_lost() {
    in_virtual_time(async {
        let (rig, site) = Rig::new(PARITY).await;
        site.write(0, &[1, 2, 3, 4], true).await.expect("three disks");
        rig.machine.pull(SlotId(2), PowerCut::KeepAll);
        site.write(64, &[5, 6, 7, 8], false).await.expect("two disks");
        rig.machine.pull(SlotId(0), PowerCut::LoseAll);
        bring_back(&rig, &site, 0).await;
        assert_eq!(site.read(64, 4).await, Ok(vec![0; 4]), "they were not flushed");
        let mut flushes = Vec::new();
        for _ in 0..2 {
            flushes.push(site.space.flush(&Ctx::default()).wait().await.is_ok());
        }
        assert_eq!(flushes, [false, true]);
        assert_eq!(site.read(0, 4).await, Ok(vec![1, 2, 3, 4]), "what was flushed is there");
    });
}

/// A disk was pulled, and came back; a slow write to what it had been failed then, and threw it out: with the
/// next disk a write was refused.
#[test]
fn an_error_of_a_disk_that_has_returned_since_is_not_its() {
    for seed in [100_756, 100_920] {
        in_virtual_time(run(PARITY + seed, None));
    }
}

/// What parity seeds have found: the journal not replayed to a disk that came back; a checkpoint that passed
/// over a column whose disk did not answer, and gave the journal's room back; (the model's own) a disk called
/// good that had not joined yet.
#[test]
fn what_parity_seeds_have_found() {
    for seed in [70, 2594, 101_062] {
        in_virtual_time(run(PARITY + seed, None));
    }
}

/// A disk that has something alone stays when it fails: the journal was replayed to it over and over, where
/// it was behind already.
#[test]
fn a_replay_does_not_wait_for_a_disk_that_fails_where_it_is_behind() {
    in_virtual_time(run(SLOW_LOCAL + 900_250, None));
}

/// Whether a disk that takes part has missed anything.
fn is_behind(site: &Site, disk: u16) -> bool {
    let mine = |c: &&pool::SlabCopy| c.place.disk == DiskNumber(disk) && c.missed != 0;
    site.pool.read(|s| s.rows.values().flat_map(|r| &r.slabs).any(|c| mine(&c)))
}

/// Between its addition to the pool and its joining, a row got slabs of a new disk, which had then missed
/// everything: that was not checked, and with the next disk the row was lost.
#[test]
fn a_row_that_is_given_slabs_while_a_disk_is_added_is_whole() {
    for wait in 0..40 {
        in_virtual_time(async {
            let (rig, site) = mirror().await;
            // The disk that leaves has less room than the one that comes.
            site.write(0, &[1], true).await.expect("two disks");
            rig.machine.pull(SlotId(1), PowerCut::LoseAll);
            site.pool.disk_failed(DiskNumber(1), Absence::Gone).await.expect("the other one is there");
            let slot = rig.machine.add(&options(&rig.machine));
            rig.machine
                .rule(slot, Rule::new(Op::Write, When::From(0), Fault::Slow(Duration::from_millis(2))));
            let disk = NewDisk::new(rig.machine.open(slot).expect("it is new"));
            let adds = site.path.add_disk(&site.pool, &disk);
            let writes = async {
                rig.env.sleep(Duration::from_millis(wait)).await;
                site.write(rig.shape.row_units(), &[2], true).await
            };
            let (added, written) = join(adds, writes).await;
            assert_eq!((added.expect("it is well"), written), (DiskNumber(2), Ok(())));
            assert!(!is_behind(&site, 2), "written {wait} ms after it began");
        });
    }
    in_virtual_time(run(51_200, None));
}

/// A slab was moved to a disk that was the pool's already and did not take part yet: nothing was copied, and
/// as the slab's old disk had missed all of it too the move counted as done. With the next disk the row was
/// gone.
#[test]
fn what_moves_to_a_disk_on_its_way_in_is_copied() {
    in_virtual_time(async {
        let (rig, site) = mirror().await;
        rig.machine.pull(SlotId(1), PowerCut::LoseAll);
        site.pool.disk_failed(DiskNumber(1), Absence::Gone).await.expect("the other one is there");
        site.write(0, &[1], true).await.expect("one disk");
        let slot = rig.machine.add(&options(&rig.machine));
        let disk = NewDisk::new(rig.machine.open(slot).expect("it is new"));
        assert_eq!(site.pool.add_disk(&disk).await.expect("it is well"), DiskNumber(2));
        let evacuate = async || site.path.evacuate(DiskNumber(1), &Progress::default()).await;
        assert_eq!(evacuate().await.expect("it may be left as it is").left, 1);
        let member = site.pool.members().get(DiskNumber(2)).cloned().expect("it is there");
        site.path.join(&member).await.expect("it is ours");
        assert_eq!(evacuate().await.expect("all take part").left, 0);
        assert!(!is_behind(&site, 2));
    });
    in_virtual_time(run(1_127_695_362_678_354, None));
}

/// A write that had waited for another disk since before a disk left, came back and was brought up to date
/// said that this one had missed it, though it wrote to it then: with the other one the region was gone.
#[test]
fn a_write_from_before_a_disk_returned_does_not_make_it_behind() {
    in_virtual_time(run(70_111, None));
}

/// Writes to disks that are behind are recorded in memory, which dropped the record in the moment before the
/// record that ended a resync: the column's older sums were used again, and the units counted as lost.
#[test]
fn what_changes_as_a_resync_ends_is_remembered() {
    in_virtual_time(async {
        let (rig, site) = Rig::new(PARITY + 1).await;
        assert_eq!((rig.shape.disks, rig.shape.columns, rig.shape.parity), (4, 2, 2));
        let values = |from: u64| (from..from + USED).collect::<Vec<Value>>();
        site.write(0, &values(1), true).await.expect("four disks");
        let column = |s: &pool::State, n: u16| {
            let row = s.rows.get(&(pool::SpaceId(0), pool::RowNumber(0))).expect("a row");
            row.slabs.iter().position(|c| c.place.disk == DiskNumber(n)).expect("a disk of the row")
        };
        // The last column: every change of a stripe changes it.
        let last = (0..4).find(|n| site.pool.read(|s| column(s, *n)) == 3).expect("one has it");
        let (last, other) = (usize::from(last), (usize::from(last) + 1) % 4);
        rig.machine.pull(SlotId(last), PowerCut::KeepAll);
        site.write(0, &values(101), true).await.expect("three disks");
        bring_back(&rig, &site, last).await;
        site.path.quiesce().await.expect("four disks");
        // A disk that is about to take part, as the record waits for another one's metadata: memory forgets
        // then what is clean.
        site.pool.disk_failed(DiskNumber(other as u16), Absence::Gone).await.expect("three are there");
        let disk = rig.machine.open(SlotId(other)).expect("it is there");
        site.pool.return_disk(disk, false).await.expect("it is ours");
        let member = site.pool.members().get(DiskNumber(other as u16)).cloned().expect("it is back");
        let journal = Areas::plan(DISK_BYTES, SLAB_BYTES).expect("there is room").journal;
        let slow = Rule::new(Op::Write, When::From(0), Fault::Slow(Duration::from_secs(1)));
        let third = (0..4).find(|n| *n != last && *n != other).expect("four disks");
        rig.machine.rule(SlotId(third), slow.within(journal.offset..journal.end()));
        let progress = Progress::default();
        let ends = site.path.resync(DiskNumber(last as u16), &progress);
        let writes = async {
            rig.env.sleep(Duration::from_millis(700)).await;
            site.path.join(&member).await.expect("it is ours");
            site.write(0, &values(201), false).await.expect("four disks");
        };
        let (ended, ()) = join(ends, writes).await;
        ended.expect("it is there");
        rig.machine.no_rules(SlotId(third));
        assert!(!is_behind(&site, last as u16));
        resync(&rig, &site).await;
        site.path.quiesce().await.expect("four disks");
        for away in [third, other] {
            rig.machine.pull(SlotId(away), PowerCut::KeepAll);
            assert_eq!(site.read(0, USED).await.as_ref(), Ok(&values(201)), "without {away}");
        }
        assert_eq!(site.path.events.count(pool::events::Found::Lost), 0);
    });
    in_virtual_time(run(PARITY + 51_367, None));
}

/// The only disk with the newest of something was pulled before what another's log had left in doubt was
/// resolved: because it did not answer, what it had was decided to be lost, that was brought to the other
/// disk as the newest, and when the disk was back it no longer counted.
#[test]
fn what_a_disk_has_alone_is_not_lost_because_it_is_away() {
    in_virtual_time(async {
        let (rig, site) = mirror().await;
        let values: Vec<Value> = (1..=USED).collect();
        site.write(0, &[100; USED as usize], true).await.expect("two disks");
        rig.machine.pull(SlotId(1), PowerCut::KeepAll);
        site.write(0, &values, true).await.expect("one disk");
        site.path.quiesce().await.expect("one disk");
        bring_back(&rig, &site, 1).await;
        rig.machine.pull(SlotId(0), PowerCut::LoseAll);
        let _ = site.path.resolve_all(&Progress::default()).await;
        let _ = site.path.resync(DiskNumber(1), &Progress::default()).await;
        assert!(is_behind(&site, 1), "no present disk has the missed writes");
        drop(site);
        rig.machine.plug(SlotId(0));
        rig.machine.restart();
        let site = open(&rig.env, &rig.machine, false).await.expect("two disks");
        bring_back(&rig, &site, 0).await;
        resync(&rig, &site).await;
        assert_eq!(site.read(0, USED).await, Ok(values));
        assert_eq!(site.path.events.count(pool::events::Found::Lost), 0);
    });
    in_virtual_time(run(3_002_314, None));
}

/// A record from before a column moved to another slab still stood for the naming of its groups, and named
/// another row: blocks that a power cut tore apart after that counted as lost writes, of more columns than a
/// stripe can spare.
#[test]
fn blocks_that_are_torn_after_a_column_moved() {
    in_virtual_time(run(LOCAL + 211_664, None));
    in_virtual_time(run(LOCAL + 213_494, None));
}
