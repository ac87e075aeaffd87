//! Changes the number of copies of mirrors and simple spaces. Only seeds from [`FIRST`] on do this, so the histories
//! of lower seeds do not change.

use std::time::Duration;

use pool::CommitError;
use pool_seam::{JobOrder, Resiliency};

use super::bed::{Server, TestBed};
use super::chaos::{is_over, run};
use super::random::Random;

/// See the module.
const FIRST: u64 = 200_000;

/// How often [`finish`] retries a change before the test fails.
const TRIES: usize = 20;

/// Whether the copies of spaces change in this history.
pub(super) fn is_tested_in(seed: u64) -> bool {
    seed >= FIRST
}

/// Makes this many changes, one after the other.
pub(super) async fn changes(bed: &TestBed, server: &Server, steps: u64, mut random: Random) {
    for _ in 0..steps {
        bed.env.sleep(Duration::from_millis(random.below(60))).await;
        if is_over(bed, server) {
            return;
        }
        let space = random.below(server.spaces.len() as u64) as usize;
        let copies = bed.shape.copies_of(space);
        let Some(to) = random.pick(&copies) else { continue };
        bed.note(|| format!("space {space} gets {to:?}"));
        match server.pool.set_resiliency(server.spaces[space].id, *to).await {
            // The space's rows already have two other numbers of copies.
            Ok(()) | Err(CommitError::Invalid(_)) => {}
            Err(_) if is_over(bed, server) => return,
            Err(error) => bed.fail(&format!("copies of space {space}: {error}")),
        }
        let report = run(bed, server, space, JobOrder::Reshape).await;
        bed.note(|| format!("space {space} was reshaped: {report:?}"));
    }
}

/// Retries until every row has its space's number of copies.
pub(super) async fn finish(bed: &TestBed, server: &Server, space: usize) {
    let id = server.spaces[space].id;
    for attempt in 0.. {
        if is_over(bed, server) || server.pool.read(|s| !s.spaces[&id].is_changing()) {
            return;
        }
        // Moves interrupted by a crash: a row with a move keeps its number of copies.
        let moves: Vec<_> = server.pool.read(|s| {
            let moving = |(row, of): (_, &pool::Row)| Some((row, of.moving()?.index, None));
            s.spaces[&id].data_rows().filter_map(moving).collect()
        });
        if attempt > 0 && !moves.is_empty() {
            run(bed, server, space, JobOrder::Fill(moves)).await;
        }
        let report = run(bed, server, space, JobOrder::Reshape).await;
        if attempt == TRIES && server.pool.read(|s| s.spaces[&id].is_changing()) && !is_over(bed, server) {
            bed.fail(&format!("the copies of space {space} do not change: {report:?}"));
        }
        bed.env.sleep(Duration::from_secs(1)).await;
    }
}

/// The resiliencies that a space may get. Each survives the failures that the history checks, and there are enough
/// disks for it.
pub(super) fn of(record: &pool::SpaceRecord, disks: u16) -> Vec<Resiliency> {
    let all = [Resiliency::Simple, Resiliency::Mirror { copies: 2 }, Resiliency::Mirror { copies: 3 }];
    let may = |to: &Resiliency| {
        let has_disks = usize::from(record.columns) * to.copies() < usize::from(disks);
        let promises = (record.resiliency == Resiliency::Simple) || to.failures() > 0;
        record.resiliency.can_become(*to) && promises && has_disks
    };
    if record.resiliency.is_parity() { Vec::new() } else { all.into_iter().filter(may).collect() }
}
