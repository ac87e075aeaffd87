//! What an administrator does while users work and disks come and go: empties a disk and uses it again or
//! takes it out, adds one, rebalances.

use std::time::Duration;

use disk::DiskError;
use disk::sim::SlotId;
use pool::jobs::Progress;
use pool::{AdminError, DiskNumber, SpaceError, Unsuitable, Usage};

use crate::rig::{Random, Rig, Site, options, placed};

/// So many things, one after the other, until the power goes.
pub async fn admin(rig: &Rig, site: &Site, steps: u64, mut random: Random) {
    for _ in 0..steps {
        rig.env.sleep(Duration::from_millis(random.below(40))).await;
        if !rig.machine.is_on() {
            return;
        }
        match random.below(6) {
            0 => drop(add(rig, site).await),
            1 => optimize(rig, site).await,
            2 => {
                // What a new disk replaces goes at once.
                if add(rig, site).await {
                    drain(rig, site, &mut random, true).await;
                }
            }
            _ => drain(rig, site, &mut random, false).await,
        }
        rig.look(site);
    }
}

/// With a disk that is bad a move may fail; with none it may not.
fn refuse<T>(rig: &Rig, what: &str, result: Result<T, String>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) if rig.is_strict() && rig.bad.borrow().is_empty() => rig.fail(&format!("{what}: {e}")),
        Err(e) => {
            rig.note(|| format!("{what}: {e}"));
            None
        }
    }
}

async fn add(rig: &Rig, site: &Site) -> bool {
    // One more than there were, in a life of a rig: a slot's number is its disk's.
    if rig.exceeded.get() || rig.machine.slots() != rig.shape.disks {
        return false;
    }
    let slot = rig.machine.add(&options(&rig.machine));
    rig.note(|| format!("disk {} is added", slot.0));
    rig.machine.shuffle(slot, Duration::from_millis(3));
    let Ok(disk) = rig.machine.open(slot) else { return false };
    let added = site.path.add_disk(&site.pool, &placed(disk, format!("{slot:?}"))).await;
    if let Err(AdminError::Unsuitable(Unsuitable::Disk(DiskError::Gone { .. }))) = added {
        rig.note(|| format!("disk {} was pulled before it was one of the pool", slot.0));
        return false;
    }
    // Its first writes may be those that fail.
    if rig.is_wild() && matches!(added, Err(AdminError::Unsuitable(Unsuitable::Disk(_)))) {
        return false;
    }
    refuse(rig, "adding", added.map_err(|e| e.to_string())).is_some()
}

async fn optimize(rig: &Rig, site: &Site) {
    rig.note(|| "optimize".into());
    rig.rebuilds.set(rig.shape.parity > 0);
    let moved = site.path.optimize(&Progress::default()).await;
    let moved = refuse(rig, "optimizing", moved.map_err(|e| e.to_string()));
    rig.note(|| format!("{moved:?} slabs moved"));
}

async fn drain(rig: &Rig, site: &Site, random: &mut Random, for_good: bool) {
    let n = random.below(rig.machine.slots() as u64) as usize;
    let disk = DiskNumber(n as u16);
    if rig.exceeded.get() || !site.pool.read(|s| s.disks.contains_key(&disk)) {
        return;
    }
    let for_good = for_good || random.one_in(3);
    rig.note(|| format!("disk {n} is emptied, for good: {for_good}"));
    rig.less_room.set(true);
    rig.rebuilds.set(rig.shape.parity > 0);
    let usage = if for_good { Usage::Leaving } else { Usage::Retired };
    let asked = site.pool.set_usage(disk, usage).await.map_err(|e| e.to_string());
    if refuse(rig, "retiring", asked).is_none() {
        return;
    }
    let emptied = site.path.evacuate(disk, &Progress::default()).await;
    // The decision may predate the move of the last slab.
    rig.rebuilds.set(rig.shape.parity > 0);
    let emptied = refuse(rig, "emptying", emptied.map_err(|e: SpaceError| e.to_string()));
    rig.note(|| format!("disk {n}: {emptied:?}"));
    let empty = emptied.is_some_and(|e| e.left == 0);
    if for_good
        && empty
        && site.pool.read(|s| s.disks.len()) > rig.shape.disks.min(usize::from(rig.shape.copies))
    {
        let mut removed = site.pool.remove_disk(disk).await;
        if let Err(AdminError::NotErased { error, .. }) = removed
            && (matches!(error, DiskError::Gone { .. }) || rig.is_wild())
        {
            removed = Ok(()); // it was pulled as it left, or failed
        }
        if refuse(rig, "removing", removed.map_err(|e| e.to_string())).is_some() {
            site.path.release_absent();
            rig.note(|| format!("disk {n} is no more of the pool"));
            // A user outside of any pool has it.
            rig.machine.pull(SlotId(n), disk::PowerCut::KeepAll);
            return;
        }
    }
    back(rig, site, disk).await;
}

async fn back(rig: &Rig, site: &Site, disk: DiskNumber) {
    let back = site.pool.set_usage(disk, Usage::AutoSelect).await;
    refuse(rig, "using it again", back.map_err(|e| e.to_string()));
}
