//! Disks that take long, or for ever. They are not wrong: whatever they end, they end well.

use std::time::Duration;

use disk::Op;
use disk::sim::{Fault, Rule, SlotId, When};
use pool::{Absence, AdminError, DiskNumber, Presence};

use crate::chaos::resync;
use crate::in_virtual_time;
use crate::rig::{Random, Rig, SLOW, Site, WILD, open};

/// So many times a disk becomes slow, within what is promised: it may have to leave. Only of seeds that have this.
pub async fn slow(rig: &Rig, times: u64, mut random: Random) {
    if rig.seed % WILD < SLOW {
        return;
    }
    for _ in 0..times {
        rig.env.sleep(Duration::from_millis(random.below(60))).await;
        let n = random.below(rig.machine.slots() as u64) as usize;
        if !rig.machine.is_on()
            || rig.exceeded.get()
            || !rig.has_budget(n)
            || rig.pulled.borrow().contains(&n)
        {
            continue;
        }
        let by = match random.below(4) {
            0 => Duration::from_millis(60),
            1 => Duration::from_millis(4000),
            2 => Duration::from_millis(11_700),
            _ => Duration::from_secs(3600),
        };
        let all = [Op::Read, Op::Write, Op::Flush];
        let ops = match random.below(4) {
            3 => &all[..],
            one => &all[one as usize..=one as usize],
        };
        let when = if random.one_in(2) { When::From(random.below(10)) } else { When::Nth(random.below(20)) };
        rig.note(|| format!("disk {n}: {when:?} of {ops:?} takes {by:?}"));
        rig.sluggish.borrow_mut().insert(n);
        rig.spoil(n);
        for op in ops {
            rig.machine.rule(SlotId(n), Rule::new(*op, when, Fault::Slow(by)));
        }
    }
}

/// The second disk is to be taken back.
async fn back(rig: &Rig, site: &Site) -> Result<DiskNumber, AdminError> {
    let disk = rig.machine.open(SlotId(1)).expect("it is there");
    site.path.return_disk(&site.pool, disk, false).await
}

/// A whole pool, metadata too: the disk leaves, and comes back when nothing is under way on it any more, no sooner.
#[test]
fn a_disk_that_left_slow_returns_when_its_writes_have_ended() {
    in_virtual_time(async {
        let (rig, site) = Rig::new(0).await;
        site.write(0, &[1], true).await.expect("two disks");
        for op in [Op::Read, Op::Write, Op::Flush] {
            rig.machine.rule(SlotId(1), Rule::new(op, When::From(0), Fault::Slow(Duration::from_secs(100))));
        }
        let began = rig.env.now();
        site.write(0, &[2], true).await.expect("one disk");
        let took = rig.env.now() - began;
        assert!(took < Duration::from_secs(15), "{took:?}");
        let presence = site.pool.read(|s| s.disks[&DiskNumber(1)].presence);
        assert_eq!(presence, Presence::Absent(Absence::Slow));
        rig.machine.no_rules(SlotId(1));
        assert_eq!(back(&rig, &site).await, Err(AdminError::StillWriting(DiskNumber(1))));
        site.path.release_absent();
        assert_eq!(
            back(&rig, &site).await,
            Err(AdminError::StillWriting(DiskNumber(1))),
            "it is not forgotten"
        );
        rig.env.sleep(Duration::from_secs(100)).await;
        assert_eq!(back(&rig, &site).await, Ok(DiskNumber(1)));
        resync(&rig, &site).await;
        assert!(site.pool.read(|s| s.rows.values().flat_map(|r| &r.slabs).all(|c| c.missed == 0)));
        assert_eq!(site.read(0, 1).await, Ok(vec![2]));
    });
}

/// A write of metadata that hangs, its disk dropped for that: it would arrive over what the disk got when it came back.
#[test]
fn a_disk_that_left_slow_returns_when_its_metadata_is_written() {
    in_virtual_time(async {
        let (rig, site) = Rig::new(0).await;
        rig.machine
            .rule(SlotId(1), Rule::new(Op::Write, When::From(0), Fault::Slow(Duration::from_secs(100))));
        let began = rig.env.now();
        site.pool.rename("lake").await.expect("one disk");
        let took = rig.env.now() - began;
        assert!((30..60).contains(&took.as_secs()), "{took:?}");
        let presence = site.pool.read(|s| s.disks[&DiskNumber(1)].presence);
        assert_eq!(presence, Presence::Absent(Absence::Slow));
        rig.machine.no_rules(SlotId(1));
        assert_eq!(back(&rig, &site).await, Err(AdminError::StillWriting(DiskNumber(1))));
        rig.env.sleep(Duration::from_secs(100)).await;
        assert_eq!(back(&rig, &site).await, Ok(DiskNumber(1)));
        resync(&rig, &site).await;
        site.pool.rename("sea").await.expect("two disks");
        drop(site);
        rig.machine.restart();
        let site = open(&rig.env, &rig.machine, false).await.expect("both are current");
        assert_eq!(site.pool.read(|s| (s.name.clone(), s.voters.len())), ("sea".to_owned(), 2));
    });
}
