//! Changes the number of copies of mirrors and simple spaces; from [`FIRST_CONVERSION`] on also everything else of the
//! shape of rows. Only seeds from [`FIRST`] on do this, so the histories of lower seeds do not change.

use std::time::Duration;

use pool::CommitError;
use pool_seam::{JobOrder, Resiliency, RowShape};

use super::bed::{Server, TestBed};
use super::chaos::{is_over, run};
use super::random::Random;

/// See the module.
const FIRST: u64 = 200_000;

/// See the module.
const FIRST_CONVERSION: u64 = 3_000_000;

/// How often [`finish`] retries a change before the test fails.
const TRIES: usize = 20;

/// Whether the copies of spaces change in this history.
pub(super) fn is_tested_in(seed: u64) -> bool {
    seed >= FIRST
}

/// Whether spaces are converted in this history.
pub(super) fn are_conversions_tested_in(seed: u64) -> bool {
    seed >= FIRST_CONVERSION
}

/// Makes this many changes, one after the other.
pub(super) async fn changes(bed: &TestBed, server: &Server, steps: u64, mut random: Random) {
    for _ in 0..steps {
        bed.env.sleep(Duration::from_millis(random.below(60))).await;
        if is_over(bed, server) {
            return;
        }
        let space = random.below(server.spaces.len() as u64) as usize;
        let shapes = bed.shape.shapes_of(space);
        let Some(to) = random.pick(&shapes) else { continue };
        bed.note(|| format!("space {space} gets {to:?}"));
        match server.pool.set_shape(server.spaces[space].id, *to).await {
            // An earlier change has not ended.
            Ok(()) | Err(CommitError::Invalid(_)) => {}
            Err(_) if is_over(bed, server) => return,
            Err(error) => bed.fail(&format!("copies of space {space}: {error}")),
        }
        let report = run(bed, server, space, JobOrder::Reshape).await;
        bed.note(|| format!("space {space} was reshaped: {report:?}"));
    }
}

/// Retries until every row has its space's shape.
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

/// The shapes that a space may get. Each survives the failures that the history checks, and there are enough disks for
/// it.
pub(super) fn of(record: &pool::SpaceRecord, disks: u16, has_conversions: bool) -> Vec<RowShape> {
    let simple = [Resiliency::Simple, Resiliency::Mirror { copies: 2 }, Resiliency::Mirror { copies: 3 }];
    let in_place = simple.map(|resiliency| RowShape { resiliency, ..record.shape() });
    let parities = [Resiliency::Parity { parity: 1 }, Resiliency::Parity { parity: 2 }];
    let coded = parities.into_iter().flat_map(|parity| [(parity, 2), (parity, 3)]);
    let others = simple.into_iter().flat_map(|copies| [(copies, 1), (copies, 2)]).chain(coded);
    let converted = others.map(|(resiliency, columns)| {
        let interleave = if columns == 2 { 64 << 10 } else { record.interleave };
        RowShape { resiliency, interleave, columns }
    });
    let may = |to: &RowShape| {
        let is_in_place = record.shape().differs_in_copies_only(to);
        let promises = record.resiliency == Resiliency::Simple || to.resiliency.failures() > 0;
        (is_in_place || has_conversions) && promises && to.slabs() < usize::from(disks)
    };
    let has_any = has_conversions || !record.resiliency.is_parity();
    in_place
        .into_iter()
        .chain(converted.filter(|_| has_conversions))
        .filter(|to| has_any && may(to))
        .collect()
}
