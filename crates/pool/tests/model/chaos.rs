//! What happens to the disks while users work, within what is promised, and now and then beyond.

use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Op, PowerCut};
use pool::format::Areas;
use pool::jobs::Progress;
use pool::{Absence, AdminError, DiskNumber};

use crate::rig::{DISK_BYTES, Random, Rig, SLAB_BYTES, Site, options, placed};

pub fn a_cut(random: &mut Random) -> PowerCut {
    match random.below(6) {
        0 => PowerCut::LoseAll,
        1 => PowerCut::KeepAll,
        2 | 3 => PowerCut::Reorder { seed: random.next() },
        _ => PowerCut::Tear { seed: random.next() },
    }
}

/// So many things, one after the other, until the power goes.
pub async fn chaos(rig: &Rig, site: &Site, steps: u64, mut random: Random) {
    for _ in 0..steps {
        rig.env.sleep(Duration::from_millis(random.below(25))).await;
        if !rig.machine.is_on() {
            return;
        }
        rig.look_at_returned(site);
        let n = random.below(rig.machine.slots() as u64) as usize;
        // Beyond the promise: rarely, and with one copy it always is.
        let may = rig.has_budget(n) || random.one_in(12);
        match random.below(14) {
            // Of one that is just being added the pool knows nothing: to fail is right then.
            0..=2 if may && is_ours(site, n) => pull(rig, n, a_cut(&mut random)),
            3..=5 => {
                let away = rig.bad.borrow().iter().copied().min_by_key(|b| (b + n) % 7);
                if let Some(away) = away {
                    bring_back(rig, site, away).await;
                    if !random.one_in(4) {
                        resync(rig, site).await;
                    }
                }
            }
            6 if rig.has_budget(n) && is_ours(site, n) && !rig.exceeded.get() && rig.is_wild() => {
                let op = [Op::Write, Op::Flush, Op::Read][random.below(3) as usize];
                let nth = random.below(12);
                rig.note(|| format!("{op} {nth} of disk {n} fails"));
                // Until the rules end.
                rig.liars.borrow_mut().insert(n);
                rig.spoil(n);
                rig.machine.rule(SlotId(n), Rule::new(op, When::Nth(nth), Fault::Error));
            }
            7 if rig.has_budget(n)
                && is_ours(site, n)
                && !rig.exceeded.get()
                && rig.shape.promise() > 0
                && rig.is_wild() =>
            {
                lie(rig, n, &mut random)
            }
            8 => {
                rig.note(|| format!("disk {n} is slow"));
                let slow = Fault::Slow(Duration::from_millis(100 + random.below(2000)));
                rig.machine.rule(SlotId(n), Rule::new(Op::Write, When::Nth(random.below(10)), slow));
            }
            9 => resync(rig, site).await,
            10 => {
                rig.note(|| "scrub".into());
                let own = site.pool.scrub_metadata().await;
                refuse(rig, "scrub of the metadata", own.map(drop).map_err(|e| e.to_string()));
                let scrubbed = site.space.scrub(&Progress::default()).await;
                refuse(rig, "scrub", scrubbed.map_err(|e| e.to_string()));
            }
            11 => {
                rig.note(|| "quiesce".into());
                let quiet = site.path.quiesce().await;
                refuse(rig, "quiesce", quiet.map_err(|e| e.to_string()));
            }
            12 if rig.is_wild() => grow(rig, site, &mut random).await,
            _ => {}
        }
        rig.look(site);
    }
}

/// An error is the pool's fault unless too much is bad.
fn refuse(rig: &Rig, what: &str, result: Result<(), String>) {
    if let (Err(e), true) = (result, rig.is_strict()) {
        rig.fail(&format!("{what}: {e}"));
    }
}

pub fn pull(rig: &Rig, n: usize, cut: PowerCut) {
    rig.note(|| format!("disk {n} is pulled, {cut:?}"));
    rig.pulled.borrow_mut().insert(n);
    // Before: what is lost is lost now.
    rig.machine.pull(SlotId(n), cut);
    rig.spoil(n);
}

pub fn plug(rig: &Rig, n: usize) {
    rig.note(|| format!("disk {n} is plugged in"));
    rig.machine.plug(SlotId(n));
    rig.pulled.borrow_mut().remove(&n);
}

/// The administrator's reaction to a bad disk: remove it, add it again.
pub async fn bring_back(rig: &Rig, site: &Site, n: usize) {
    rig.returning.set(Some(n));
    put_back(rig, site, n).await;
    rig.returning.set(None);
}

async fn put_back(rig: &Rig, site: &Site, n: usize) {
    let number = DiskNumber(n as u16);
    // When too much is bad already, none that is here is taken out.
    let too_much = rig.exceeded.get() || rig.bad.borrow().len() > rig.shape.promise();
    if too_much && site.pool.read(|s| s.is_present(number)) {
        return;
    }
    if !site.pool.read(|s| s.disks.contains_key(&number)) {
        return;
    }
    rig.note(|| format!("disk {n} comes back"));
    let left = site.pool.disk_failed(number, Absence::Gone).await;
    refuse(rig, "leaving", left.map_err(|e| e.to_string()));
    if site.pool.read(|s| s.is_present(number)) {
        return; // the power
    }
    plug(rig, n);
    let Ok(disk) = rig.machine.open(SlotId(n)) else { return };
    let lies = rig.liars.borrow().contains(&n);
    let mut returned = site.pool.return_disk(disk.clone(), false).await;
    if matches!(returned, Err(AdminError::Diverged(_))) && rig.given_up.borrow().contains(&n) {
        returned = site.pool.return_disk(disk, true).await;
    }
    match returned {
        Ok(_) => {}
        // It may have failed once more, by a rule.
        Err(e) if rig.is_strict() && !lies && site.pool.suspended().is_some() => {
            rig.fail(&format!("returning disk {n}: {e}"))
        }
        Err(_) => return,
    }
    let Some(member) = site.pool.members().get(number).cloned() else { return };
    let joined = site.path.join(&member).await;
    refuse(rig, "joining", joined.map_err(|e| e.to_string()));
    rig.returned.borrow_mut().insert(n);
}

fn is_ours(site: &Site, n: usize) -> bool {
    site.pool.read(|s| s.disks.contains_key(&DiskNumber(n as u16)))
}

/// Every disk that is here gets what it missed.
pub async fn resync(rig: &Rig, site: &Site) {
    rig.note(|| "resync".into());
    let resolved = site.path.resolve_all(&Progress::default()).await;
    refuse(rig, "resolving", resolved.map_err(|e| e.to_string()));
    let moved = site.path.resume_moves(&Progress::default()).await;
    if rig.bad.borrow().is_empty() {
        refuse(rig, "moving", moved.map_err(|e| e.to_string()));
    }
    for n in 0..rig.machine.slots() {
        // A disk that fails during a resync is removed from service; that is reported.
        let result = site.path.resync(DiskNumber(n as u16), &Progress::default()).await;
        if let (Err(e), true, false) = (result, rig.is_strict(), rig.bad.borrow().contains(&n)) {
            rig.fail(&format!("resync of disk {n}: {e}"));
        }
    }
    rig.look(site);
}

fn lie(rig: &Rig, n: usize, random: &mut Random) {
    let areas = Areas::plan(DISK_BYTES, SLAB_BYTES).expect("there is room");
    let slabs = areas.slabs.offset..areas.slabs.end();
    let what = random.below(6);
    rig.note(|| format!("disk {n} lies: {what}"));
    rig.liars.borrow_mut().insert(n);
    rig.model.borrow_mut().lies();
    rig.spoil(n);
    let chance = When::Chance(30_000 + random.below(300_000) as u32);
    let writes = |fault| Rule::new(Op::Write, chance, fault).within(slabs.clone());
    let rule = match what {
        0 => writes(Fault::Lost),
        1 => writes(Fault::Misdirected),
        2 => writes(Fault::Partial),
        3 => writes(Fault::Flipped),
        4 => {
            rig.machine.mark(SlotId(n));
            let stale = if random.one_in(2) { Fault::Stale } else { Fault::Misdirected };
            Rule::new(Op::Read, chance, stale).within(slabs)
        }
        _ => {
            for _ in 0..200 {
                // The first units of slabs, and their blocks, are what is used.
                let slab = random.below(u64::from(areas.slab_count())) as u32;
                let at = areas.checksums(slab).offset + random.below(45 * 4096);
                rig.machine.flip(SlotId(n), at, random.below(8) as u8);
            }
            return;
        }
    };
    rig.machine.rule(SlotId(n), rule);
}

/// One disk more, and what a bad one has is rebuilt elsewhere.
async fn grow(rig: &Rig, site: &Site, random: &mut Random) {
    if rig.exceeded.get() {
        return;
    }
    if rig.machine.slots() == rig.shape.disks && random.one_in(2) {
        let slot = rig.machine.add(&options(&rig.machine));
        rig.note(|| format!("disk {} is added", slot.0));
        rig.machine.shuffle(slot, Duration::from_millis(3));
        let Ok(disk) = rig.machine.open(slot) else { return };
        match site.pool.add_disk(&placed(disk, format!("{slot:?}"))).await {
            Ok(number) => {
                if let Some(member) = site.pool.members().get(number).cloned() {
                    let joined = site.path.join(&member).await;
                    refuse(rig, "joining", joined.map_err(|e| e.to_string()));
                }
            }
            Err(e) if rig.is_strict() => rig.fail(&format!("adding: {e}")),
            Err(_) => {}
        }
    }
    let bad: Vec<usize> = rig.bad.borrow().iter().copied().collect();
    let Some(from) = bad.get(random.below(4) as usize) else { return };
    rig.note(|| format!("repair of disk {from}"));
    rig.rebuilds.set(rig.shape.parity > 0);
    let number = DiskNumber(*from as u16);
    let repaired = site.path.evacuate(number, &Progress::default()).await.map(drop);
    if bad.len() == 1 {
        refuse(rig, "repair", repaired.map_err(|e| e.to_string()));
    }
}
