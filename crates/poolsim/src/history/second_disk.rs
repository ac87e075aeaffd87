//! Takes a second disk offline while another one was rolled back and is not verified yet. Only seeds from [`FIRST`]
//! on do this, so the histories of lower seeds do not change.
//!
//! Then more disks are bad than the spaces survive. The pool allows it only if the other disks have all data, so
//! every call must still succeed. No further disk becomes bad until all disks are repaired
//! ([`TestBed::may_become_bad`]).
//!
//! `POOLSIM_PLANT=needed` plants a bug: disks are taken offline although others are not verified. The pool still
//! checks whether a disk is needed when it removes the disk.

use pool_seam::JobOrder;

use super::bed::{Server, TestBed};
use super::chaos::{is_over, run};
use super::random::Random;

/// See the module.
const FIRST: u64 = 400_000;

/// Whether second disks are taken offline in this history.
pub(super) fn is_tested_in(seed: u64) -> bool {
    seed >= FIRST
}

/// Takes a disk offline with the same checks as the server's command, if the only bad disks are in service and were
/// rolled back.
pub(super) async fn take_offline(bed: &TestBed, server: &Server, random: &mut Random) {
    let present = |slot: &usize| {
        let number = bed.number(*slot);
        number.is_some_and(|number| server.pool.read(|s| s.membership(number).is_some()))
    };
    let all: Vec<usize> = bed.numbers.borrow().keys().copied().collect();
    let (bad, good): (Vec<usize>, Vec<usize>) =
        all.into_iter().partition(|slot| bed.bad.borrow().contains(slot));
    let is_only_rolled_back = bad.iter().all(|slot| bed.rolled_back.borrow().contains(slot) && present(slot));
    if bad.is_empty() || !is_only_rolled_back || bed.removes_bad.get() || bed.is_busy.get() {
        return;
    }
    let Some(slot) = random.pick(&good).copied().filter(present) else { return };
    if random.one_in(2) {
        for space in 0..server.spaces.len() {
            run(bed, server, space, JobOrder::Resolve).await;
        }
    }
    // The disk may have been removed from the pool meanwhile.
    let Some(number) = bed.number(slot) else { return };
    if is_over(bed, server) || !present(&slot) {
        return;
    }
    let is_planted = std::env::var("POOLSIM_PLANT").is_ok_and(|plant| plant == "needed");
    if !is_planted && !server.pool.read(|s| pool::health::may_leave(s, number)) {
        return bed.note(|| format!("disk {slot} stays beside {bad:?}: it is needed"));
    }
    if let Some(space) = server.pool.unverified_on(number).filter(|_| !is_planted) {
        return bed.note(|| format!("disk {slot} stays beside {bad:?}: space {} is not verified", space.0));
    }
    bed.mark_bad(slot);
    let taken = server.pool.take_offline(number).await;
    bed.note(|| format!("disk {slot} is taken offline beside {bad:?}: {taken:?}"));
    if taken.is_err() && !is_over(bed, server) {
        bed.bad.borrow_mut().remove(&slot);
    }
}
