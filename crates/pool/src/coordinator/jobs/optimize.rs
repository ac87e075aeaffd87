//! Moves slabs until the disks are evenly full, copies are in different fault domains, and all are on media of their
//! space's class.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use pool_seam::SeamError;

use super::moves::MOVES_AT_ONCE;
use crate::jobs::Job;
use crate::placement::{self, Step};
use crate::state::SpaceOp;
use crate::{Op, Pool, RowNumber, SpaceId, State};

/// The number of refused moves of a row after which the row is skipped.
const REFUSED_MAX: usize = 8;

/// Skipped rows, each with its space.
type Skip = BTreeSet<(SpaceId, RowNumber)>;

impl Pool {
    /// Moves slabs until fill levels and fault domains cannot be improved; returns how many were moved. Errors: the
    /// first one, after running moves are complete.
    pub async fn optimize(&self, job: &Job) -> Result<usize, SeamError> {
        let (slabs, slab_bytes) = self.read(|s| (placement::to_rebalance(s), s.slab_bytes));
        job.add_total(slabs as u64 * slab_bytes);
        self.optimize_by(job, placement::rebalance).await
    }

    /// [`Pool::optimize`] with other steps: `next` chooses a step for a state that includes the moves in flight, and
    /// must skip the given rows.
    pub async fn optimize_by(
        &self,
        job: &Job,
        next: impl Fn(&State, &Skip) -> Option<Step>,
    ) -> Result<usize, SeamError> {
        let (mut moved, mut skip, mut failed) = (0, Skip::new(), None);
        let mut refused: BTreeMap<(SpaceId, RowNumber), usize> = BTreeMap::new();
        let mut steps: BTreeMap<(SpaceId, RowNumber), Step> = BTreeMap::new();
        let mut running = FuturesUnordered::new();
        loop {
            while failed.is_none() && !job.is_stopped() && steps.len() < MOVES_AT_ONCE {
                let planned = self.planned(&steps);
                let mut left_alone = skip.clone();
                left_alone.extend(steps.keys());
                let Some(step) = next(&planned, &left_alone) else { break };
                steps.insert((step.space, step.row), step);
                running.push(async move { (step, self.make(step, job).await) });
            }
            let Some((step, result)) = running.next().await else { break };
            let row = (step.space, step.row);
            steps.remove(&row);
            match result {
                Ok(true) => moved += 1,
                Ok(false) => {
                    // Usually a client has allocated the slab or freed the row meanwhile: choose another step.
                    let times = refused.entry(row).or_default();
                    *times += 1;
                    if *times == REFUSED_MAX {
                        skip.insert(row);
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    /// Makes a step; returns whether the slab has moved.
    async fn make(&self, step: Step, job: &Job) -> Result<bool, SeamError> {
        let Step { space, row, index, to } = step;
        let Some(_mine) = self.orders().moving(space, row) else { return Ok(false) };
        let left = self.fill(space, vec![(row, index as u8, Some(to))], job).await?;
        Ok(left.is_none())
    }

    /// The state as if all these moves had begun.
    fn planned(&self, steps: &BTreeMap<(SpaceId, RowNumber), Step>) -> State {
        let mut state = self.read(State::clone);
        for step in steps.values() {
            let Step { space, row, to, .. } = *step;
            let index = step.index as u8;
            // A move that has already begun is refused here.
            let _ = state.apply(&Op::Space { space, op: SpaceOp::BeginMove { row, index, to } });
        }
        state
    }
}
