//! Conversion of the metadata's errors to errors for owners.

use pool_seam::{SeamError, Suspension as Paused};

use crate::{CommitError, Suspension};

pub(super) fn seam_error(error: CommitError) -> SeamError {
    match error {
        CommitError::Needed(disk) => SeamError::Needed(disk),
        CommitError::Suspended(why) => suspended(&why),
        CommitError::Invalid(_) | CommitError::Full { .. } | CommitError::ReadOnly => {
            SeamError::Failed(error.to_string())
        }
    }
}

pub(super) fn suspended(why: &Suspension) -> SeamError {
    match why {
        Suspension::TooFewVoters { left, needed, .. } => {
            let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
            SeamError::Suspended(Paused::TooFewVoters { left: count(*left), needed: count(*needed) })
        }
        Suspension::Fenced { epoch } => SeamError::Suspended(Paused::TakenOver(*epoch)),
        Suspension::NoLease { .. } => SeamError::Suspended(Paused::LeaseEnded),
        // Another process coordinates the pool, now or soon.
        Suspension::Claimed { .. } | Suspension::Exported | Suspension::Ended => SeamError::Moved,
        Suspension::Unaccountable(_) | Suspension::Abandoned => SeamError::Failed(why.to_string()),
    }
}
