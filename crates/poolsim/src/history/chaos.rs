//! Faults and commands that concern the disks while users work, within the failures that the spaces survive.

use std::time::Duration;

use disk::sim::SlotId;
use pool::{Absence, AdminError};
use pool_seam::{JobOrder, Owner, RowNumber, UNIT};

use super::bed::{Server, TestBed};
use super::random::Random;
use super::{row_shapes, second_disk};
use crate::model::Model;
use crate::process::ProcessState;

/// How often a resync is repeated before the test fails: other I/O may fail during it.
const TRIES: usize = 20;

/// Runs this many steps, one after the other.
pub(super) async fn chaos(bed: &TestBed, server: &Server, steps: u64, mut random: Random) {
    for _ in 0..steps {
        bed.env.sleep(Duration::from_millis(random.below(30))).await;
        if is_over(bed, server) {
            return;
        }
        keep_images(bed, &mut random);
        let slot = random.below(bed.machine.slots() as u64) as usize;
        let may = bed.may_become_bad(slot) && bed.number(slot).is_some();
        match random.below(10) {
            0..=2 if may && !bed.pulled.borrow().contains(&slot) => pull(bed, slot, &mut random),
            3 if may && !bed.pulled.borrow().contains(&slot) => take_offline(bed, server, slot).await,
            4..=6 => {
                let away = bed.bad.borrow().iter().copied().collect::<Vec<_>>();
                if let Some(slot) = random.pick(&away) {
                    bring_back(bed, server, *slot).await;
                }
            }
            7 if may => damage(bed, server, slot, &mut random),
            8 => repair_all(bed, server).await,
            _ => {}
        }
        if bed.shape.removes_second_disk && random.one_in(2) {
            second_disk::take_offline(bed, server, &mut random).await;
        }
    }
}

pub(super) fn is_over(bed: &TestBed, server: &Server) -> bool {
    !bed.machine.is_on() || server.world.process.state() != ProcessState::Running
}

/// Records images to which disks may be rolled back.
fn keep_images(bed: &TestBed, random: &mut Random) {
    if random.one_in(3) {
        let mut images = bed.images.borrow_mut();
        if images.len() >= 8 {
            let at = random.below(8) as usize;
            images.swap_remove(at);
        }
        let slots = bed.numbers.borrow().keys().copied().collect::<Vec<_>>();
        let (corrupted, rolled_back) = (bed.corrupted.borrow(), bed.rolled_back.borrow());
        let image = |slot| {
            let is_damaged = corrupted.contains(&slot) && !rolled_back.contains(&slot);
            (slot, (bed.machine.image(SlotId(slot)), is_damaged))
        };
        images.push(slots.into_iter().map(image).collect());
    }
}

pub(super) fn pull(bed: &TestBed, slot: usize, random: &mut Random) {
    let cut = random.cut();
    bed.note(|| format!("disk {slot} is pulled, {cut:?}"));
    bed.mark_bad(slot);
    bed.pulled.borrow_mut().insert(slot);
    bed.rolled_back.borrow_mut().remove(&slot);
    bed.machine.pull(SlotId(slot), cut);
}

async fn take_offline(bed: &TestBed, server: &Server, slot: usize) {
    bed.note(|| format!("disk {slot} is taken offline"));
    bed.mark_bad(slot);
    let number = bed.number(slot).expect("a disk of the pool");
    let is_present = server.pool.read(|s| s.membership(number).is_some());
    if let (Err(error), true) = (server.pool.take_offline(number).await, is_present && !is_over(bed, server))
    {
        bed.fail(&format!("taking disk {slot} offline: {error}"));
    }
}

pub(super) fn plug(bed: &TestBed, slot: usize) {
    bed.note(|| format!("disk {slot} is plugged in"));
    bed.machine.plug(SlotId(slot));
    bed.pulled.borrow_mut().remove(&slot);
}

/// Takes a bad disk back into service.
pub(super) async fn bring_back(bed: &TestBed, server: &Server, slot: usize) {
    let number = bed.number(slot).expect("a disk of the pool");
    bed.note(|| format!("disk {slot} comes back"));
    if bed.pulled.borrow().contains(&slot) {
        // The pool may not have noticed its absence.
        let left = server.pool.disk_failed(number, Absence::Gone).await;
        if let (Err(error), false) = (left, is_over(bed, server)) {
            bed.fail(&format!("disk {slot} does not leave: {error}"));
        }
        plug(bed, slot);
        bed.note(|| format!("disk {slot} has left"));
    }
    while server.pool.read(|s| s.membership(number).is_none()) && !is_over(bed, server) {
        match server.pool.return_disk(server.world.disk(slot), false).await {
            Ok(_) | Err(AdminError::Present(_)) => return,
            Err(AdminError::StillWriting(_)) => bed.env.sleep(Duration::from_millis(5)).await,
            Err(_) if is_over(bed, server) || bed.number(slot).is_none() => return,
            Err(error) => bed.fail(&format!("disk {slot} does not come back: {error}")),
        }
    }
}

/// Flips bits of data and of checksum blocks.
fn damage(bed: &TestBed, server: &Server, slot: usize, random: &mut Random) {
    let number = bed.number(slot).expect("a disk of the pool");
    let Some(member) = server.pool.members().get(number).cloned() else { return };
    if bed.pulled.borrow().contains(&slot) {
        return;
    }
    let slabs: Vec<(RowNumber, u32)> = server.pool.read(|s| {
        let rows = s.spaces.values().flat_map(|record| record.rows.iter());
        let copies =
            rows.flat_map(|(row, of)| of.copies().map(|(_, copy)| (*row, copy.place)).collect::<Vec<_>>());
        copies.filter(|(_, place)| place.disk == number).map(|(row, place)| (row, place.slab)).collect()
    });
    let slabs: Vec<_> = slabs.into_iter().filter(|(row, _)| *row != RowNumber::LOG).collect();
    if slabs.is_empty() {
        return;
    }
    bed.note(|| format!("disk {slot} is damaged"));
    bed.mark_bad(slot);
    bed.corrupted.borrow_mut().insert(slot);
    bed.rolled_back.borrow_mut().remove(&slot);
    bed.mirrored(Model::flipped);
    for _ in 0..1 + random.below(12) {
        let (_, slab) = *random.pick(&slabs).expect("there are some");
        let at = match random.one_in(3) {
            true => member.areas.checksums(slab).offset + random.below(3 * 4096),
            false => member.areas.data(slab).offset + random.below(36 * UNIT),
        };
        bed.machine.flip(SlotId(slot), at, random.below(8) as u8);
    }
}

/// Repairs everything, as an administrator would: afterwards no disk is bad.
pub(super) async fn repair_all(bed: &TestBed, server: &Server) {
    bed.note(|| format!("mending, bad {:?}, corrupted {:?}", bed.bad.borrow(), bed.corrupted.borrow()));
    let bad: Vec<usize> = bed.bad.borrow().iter().copied().collect();
    for slot in bad {
        bring_back(bed, server, slot).await;
    }
    for space in 0..server.spaces.len() {
        resync(bed, server, space).await;
        if bed.shape.shapes_change {
            row_shapes::finish(bed, server, space).await;
            resync(bed, server, space).await;
        }
        run(bed, server, space, JobOrder::Resolve).await;
        checkpoint(bed, server, space).await;
    }
    if !bed.corrupted.borrow().is_empty() {
        if let (Err(error), false) = (server.pool.scrub_metadata().await, is_over(bed, server)) {
            bed.fail(&format!("scrub of the metadata: {error}"));
        }
        for space in 0..server.spaces.len() {
            run(bed, server, space, JobOrder::Scrub(RowNumber(0))).await;
        }
    }
    if is_over(bed, server) {
        return;
    }
    bed.note(|| "mended".into());
    bed.bad.borrow_mut().clear();
    bed.corrupted.borrow_mut().clear();
    bed.rolled_back.borrow_mut().clear();
}

pub(super) async fn checkpoint(bed: &TestBed, server: &Server, space: usize) {
    if let Err(error) = server.spaces[space].space.checkpoint().await {
        bed.fail_unless_excused(server, &format!("checkpoint of space {space}"), &error);
    }
}

/// Runs a job to its end; fails the test if it lost a unit.
pub(super) async fn run(
    bed: &TestBed,
    server: &Server,
    space: usize,
    order: JobOrder,
) -> Option<pool_seam::JobReport> {
    match server.spaces[space].space.run(bed.job(), order.clone()).wait().await {
        Ok(report) => {
            if report.progress.lost != 0 && !is_over(bed, server) {
                bed.fail(&format!("{order:?} of space {space} lost units: {report:?}"));
            }
            Some(report)
        }
        Err(_) if is_over(bed, server) => None,
        Err(error) => bed.fail(&format!("{order:?} of space {space}: {error}")),
    }
}

/// Stale copies and unaccounted disks of a space; `None` if there are none.
fn behind(server: &Server, space: usize) -> Option<String> {
    let id = server.spaces[space].id;
    server.pool.read(|s| {
        let record = &s.spaces[&id];
        let lacks =
            |(_, row): &(&RowNumber, &pool_seam::Row)| row.copies().any(|(_, copy)| copy.stale_regions != 0);
        let row = record.rows.iter().find(lacks);
        (row.is_some() || !record.unaccounted.is_empty())
            .then(|| format!("{row:x?}, unaccounted {:?}", record.unaccounted))
    })
}

/// Fills the stale regions of every disk.
async fn resync(bed: &TestBed, server: &Server, space: usize) {
    for attempt in 0.. {
        if is_over(bed, server) {
            return;
        }
        let Some(what) = behind(server, space) else { return };
        if attempt == TRIES {
            bed.fail(&format!("space {space} is still behind: {what}"));
        }
        for number in server.pool.members().iter().map(|member| member.number).collect::<Vec<_>>() {
            let report = run(bed, server, space, JobOrder::Resync(number)).await;
            bed.note(|| format!("resync of disk {} in space {space}: {report:?}", number.0));
        }
        // A replica of the log joins at the next checkpoint, without a job.
        bed.env.sleep(Duration::from_secs(if attempt == 0 { 0 } else { 5 })).await;
    }
}
