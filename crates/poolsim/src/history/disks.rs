//! An administrator adds disks to the pool, and removes disks permanently.

use disk::sim::SlotId;
use pool::jobs::{Kind, Subject};
use pool::{AdminError, NewDisk, Usage};

use super::bed::{Server, TestBed, options};
use super::chaos::is_over;
use super::random::Random;
use crate::world::slot_of;

/// Adds a disk. If the pool already has more than at first, removes one instead.
pub(super) async fn change(bed: &TestBed, server: &Server, random: &mut Random) {
    let slots: Vec<usize> = bed.numbers.borrow().keys().copied().collect();
    if slots.len() <= usize::from(bed.shape.disks) {
        return add(bed, server).await;
    }
    if let Some(slot) = random.pick(&slots).filter(|slot| !bed.bad.borrow().contains(slot)) {
        take_away(bed, server, *slot).await;
    }
}

async fn add(bed: &TestBed, server: &Server) {
    let slot = bed.machine.slots();
    bed.machine.add(&options(slot));
    if let Some(delay) = bed.shape.delay {
        bed.machine.shuffle(SlotId(slot), delay);
    }
    bed.note(|| format!("disk {slot} is added"));
    match server.pool.add_disk(&NewDisk::new(server.world.disk(slot))).await {
        Ok(number) => _ = bed.numbers.borrow_mut().insert(slot, number),
        Err(_) if is_over(bed, server) => {}
        Err(error) => bed.fail(&format!("adding disk {slot}: {error}")),
    }
}

async fn take_away(bed: &TestBed, server: &Server, slot: usize) {
    let number = bed.number(slot).expect("a disk of the pool");
    // A disk may still be retired since a power cut: without two disks, the others have no room for a row.
    if server.pool.read(|state| state.disks.values().any(|disk| disk.usage == Usage::Retired)) {
        return;
    }
    bed.note(|| format!("disk {slot} is to be taken away"));
    let set = async |usage| match server.pool.set_usage(number, usage).await {
        Err(error) if !is_over(bed, server) => bed.fail(&format!("the usage of disk {slot}: {error}")),
        _ => {}
    };
    set(Usage::Retired).await;
    let Some(job) = server.pool.jobs().begin(Kind::Drain, Subject::Disk(number)) else { return };
    bed.is_busy.set(true);
    let evacuated = server.pool.evacuate(number, &job).await;
    bed.is_busy.set(false);
    let is_empty = match &evacuated {
        Ok(evacuated) => evacuated.remaining == 0,
        Err(_) if is_over(bed, server) || !bed.bad.borrow().is_empty() => false,
        Err(error) => bed.fail(&format!("emptying disk {slot}: {error}")),
    };
    drop(job);
    if is_over(bed, server) {
        return;
    }
    if !is_empty {
        bed.note(|| format!("disk {slot} stays: {evacuated:?}"));
        return set(Usage::AutoSelect).await;
    }
    // No other part of the history uses the disk from now on.
    let was_bad = bed.bad.borrow().contains(&slot);
    bed.forget(slot);
    bed.removes_bad.set(was_bad);
    let removed = server.pool.remove_disk(number).await;
    bed.removes_bad.set(false);
    match removed {
        Ok(()) => bed.note(|| format!("disk {slot} was taken away")),
        Err(AdminError::NotErased { .. }) if was_bad => {}
        Err(_) if is_over(bed, server) => {}
        Err(error) => bed.fail(&format!("taking disk {slot} away: {error}")),
    }
}

impl TestBed {
    /// Updates the numbers of the disks after an opening: a crash may have undone the last change of the disks.
    pub(super) fn learn_disks(&self, server: &Server) {
        let gone: Vec<usize> = {
            let numbers = self.numbers.borrow();
            let is_gone = |number| server.pool.read(|s| s.disks.get(number).is_none());
            numbers.iter().filter(|(_, number)| is_gone(number)).map(|(slot, _)| *slot).collect()
        };
        gone.into_iter().for_each(|slot| self.forget(slot));
        let members = server.pool.members();
        let found = members.iter().map(|of| (slot_of(&*of.disk).0, of.number));
        self.numbers.borrow_mut().extend(found);
    }

    /// Forgets a disk that is no longer in the pool.
    fn forget(&self, slot: usize) {
        self.numbers.borrow_mut().remove(&slot);
        for set in [&self.bad, &self.pulled, &self.corrupted, &self.rolled_back] {
            set.borrow_mut().remove(&slot);
        }
    }
}
