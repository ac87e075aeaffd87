//! Spaces, of parity above all, on a disk that loses the blocks of a checkpoint, with or without the data
//! under them: one disk that is bad, whatever happens then.

use disk::Op;
use disk::PowerCut;
use disk::sim::{Fault, Rule, SlotId, When};
use pool::events::Found;
use pool::format::Areas;
use pool::jobs::Progress;
use pool::{RowNumber, SpaceId};

use crate::chaos::{bring_back, resync};
use crate::in_virtual_time;
use crate::life::run;
use crate::model::Value;
use crate::rig::{DISK_BYTES, LOCAL, PARITY, Rig, SLAB_BYTES, Shape, Site, USED, WILD, open};

/// The last unit, changed once more.
const LAST: Value = 1000;

/// One parity column, two, a local reconstruction code.
const SEEDS: [u64; 3] = [PARITY, PARITY + 1, LOCAL];

/// With two copies, of one column and of two.
const MIRRORS: [u64; 2] = [2, 3];

/// Each column, and what its disk loses.
fn cases(seed: u64) -> impl Iterator<Item = (usize, Loses)> {
    let shape = Shape::of(seed);
    let columns = 0..usize::from(shape.columns + shape.parity + shape.groups - 1);
    columns.flat_map(|c| [(c, Loses::Blocks), (c, Loses::BlocksAndData)])
}

fn values(from: u64, count: u64) -> Vec<Value> {
    (from..from + count).collect()
}

/// What a disk loses.
#[derive(Clone, Copy, Debug)]
enum Loses {
    Blocks,
    BlocksAndData,
}

/// Units are written, then some of them again; the checkpoint that says so is lost on the disk of a column. The disk.
async fn a_lost_checkpoint(rig: &Rig, site: &Site, column: usize, lost: Loses) -> usize {
    site.write(0, &values(1, USED), true).await.expect("all disks");
    site.path.quiesce().await.expect("all disks");
    let place = site.pool.read(|s| s.rows[&(SpaceId(0), RowNumber(0))].slabs[column].place);
    let liar = usize::from(place.disk.0);
    let areas = Areas::plan(DISK_BYTES, SLAB_BYTES).expect("there is room");
    let (blocks, data) = (areas.checksums(place.slab), areas.data(place.slab));
    let end = match lost {
        Loses::Blocks => blocks.end(),
        Loses::BlocksAndData => data.end(),
    };
    rig.machine
        .rule(SlotId(liar), Rule::new(Op::Write, When::From(0), Fault::Lost).within(blocks.offset..end));
    site.write(0, &values(101, USED - 8), true).await.expect("all disks");
    site.path.quiesce().await.expect("all disks");
    rig.machine.no_rules(SlotId(liar));
    liar
}

/// What there is then.
fn now(last: Value) -> Vec<Value> {
    let mut all = values(101, USED - 8);
    all.extend(values(1 + USED - 8, 7));
    all.push(last);
    all
}

/// The last unit is changed, so that the journal names the group, and the power goes.
async fn a_cut_while_it_is_named(rig: &Rig, site: Site) {
    site.write(USED - 1, &[LAST], true).await.expect("all disks");
    cut(rig, site);
}

fn cut(rig: &Rig, site: Site) {
    rig.machine.cut(PowerCut::LoseAll);
    drop(site);
    rig.machine.restart();
}

/// A scrub finds all, and so do reads without any one disk.
async fn nothing_is_lost(rig: &Rig, site: Site, what: &str) {
    site.space.scrub(&Progress::default()).await.expect("all disks");
    assert_eq!(site.path.events.count(Found::Lost), 0, "{what}");
    site.path.quiesce().await.expect("all disks");
    drop(site);
    each_away(rig, LAST).await;
}

async fn each_away(rig: &Rig, last: Value) {
    for away in 0..rig.machine.slots() {
        rig.machine.record();
        let moment = rig.machine.recorded().pop().expect("one for now");
        let rest = moment.cut(&rig.env, PowerCut::LoseAll);
        rest.pull(SlotId(away), PowerCut::LoseAll);
        let site = open(&rig.env, &rest, true).await.expect("one is away");
        assert_eq!(site.read(0, USED).await, Ok(now(last)), "{:?} without {away}", rig.shape);
    }
}

/// The sums of such a column were believed: its newer units could not be read, nor made, nor others from
/// them; and its older ones were read.
#[test]
fn an_older_block_is_not_believed_against_the_others() {
    for seed in SEEDS {
        in_virtual_time(async {
            for (column, lost) in cases(seed) {
                let (rig, site) = Rig::new(seed).await;
                a_lost_checkpoint(&rig, &site, column, lost).await;
                a_cut_while_it_is_named(&rig, site).await;
                let site = open(&rig.env, &rig.machine, false).await.expect("all disks");
                let what = format!("{:?}, column {column}, {lost:?}", rig.shape);
                assert_eq!(site.read(0, USED).await, Ok(now(LAST)), "{what}");
                nothing_is_lost(&rig, site, &what).await;
            }
        });
    }
    in_virtual_time(run(WILD + LOCAL + 1205, None));
    in_virtual_time(run(WILD + LOCAL + 1820, None));
    in_virtual_time(run(WILD + LOCAL + 5152, None));
}

/// The same for a column that was absent when the journal was replayed: its valid block is unknown then.
#[test]
fn nor_is_that_of_a_disk_that_was_away() {
    for seed in SEEDS {
        in_virtual_time(async {
            for (column, lost) in cases(seed) {
                let (rig, site) = Rig::new(seed).await;
                let liar = a_lost_checkpoint(&rig, &site, column, lost).await;
                a_cut_while_it_is_named(&rig, site).await;
                rig.machine.pull(SlotId(liar), PowerCut::KeepAll);
                let site = open(&rig.env, &rig.machine, false).await.expect("one is away");
                let what = format!("{:?}, column {column}, {lost:?}", rig.shape);
                assert_eq!(site.read(0, USED).await, Ok(now(LAST)), "{what}");
                bring_back(&rig, &site, liar).await;
                resync(&rig, &site).await;
                nothing_is_lost(&rig, site, &what).await;
            }
        });
    }
}

/// A scrub that had repaired a column said so, and the power took what it had repaired: with the next disk it was lost.
#[test]
fn what_a_scrub_repaired_stays_so() {
    for seed in SEEDS.into_iter().chain(MIRRORS) {
        in_virtual_time(async {
            for (column, lost) in cases(seed) {
                let (rig, site) = Rig::new(seed).await;
                a_lost_checkpoint(&rig, &site, column, lost).await;
                cut(&rig, site);
                let site = open(&rig.env, &rig.machine, false).await.expect("all disks");
                site.space.scrub(&Progress::default()).await.expect("all disks");
                cut(&rig, site);
                each_away(&rig, USED).await;
            }
        });
    }
}
