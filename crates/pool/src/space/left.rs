//! Groups that a flush skipped: their newest data is not durable, because of disks that failed or are absent.
//! All else in the flush is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SpaceError;
use crate::RowNumber;
use crate::groups::{GroupKey, Regions};

/// The result of a round for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Durable,
    /// It has to be tried again: a disk was removed meanwhile and counts again, because it returned and was
    /// brought up to date, but does not have this round's blocks; or a change of the group waits to be
    /// carried out.
    Again,
    Left(SpaceError),
}

/// See the module. Of a space with parity a group has the column 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left(Arc<BTreeMap<GroupKey, SpaceError>>);

impl Left {
    /// Whether nothing was left.
    pub(crate) fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// For a caller that needs all of it.
    ///
    /// # Errors
    /// Why the first was left.
    pub(crate) fn nothing(&self) -> Result<(), SpaceError> {
        self.0.values().next().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// For a caller that needs one group.
    ///
    /// # Errors
    /// Why it was left.
    pub(crate) fn not(&self, key: GroupKey) -> Result<(), SpaceError> {
        self.0.get(&key).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The regions of a column of a row that groups which were left have a part of.
    pub(crate) fn regions(&self, sizes: Regions, row: RowNumber, column: u8) -> u64 {
        let key = |group| GroupKey { row, column, group };
        let of_column = self.0.range(key(0)..=key(u32::MAX));
        of_column.fold(0, |all, (key, _)| all | sizes.of(&key.units()))
    }

    /// Both.
    pub(crate) fn and(self, other: Left) -> Left {
        if other.is_nothing() {
            return self;
        }
        let mut all = self.0;
        Arc::make_mut(&mut all).extend(other.0.iter().map(|(key, error)| (*key, error.clone())));
        Left(all)
    }
}

impl FromIterator<(GroupKey, SpaceError)> for Left {
    fn from_iter<I: IntoIterator<Item = (GroupKey, SpaceError)>>(groups: I) -> Left {
        Left(Arc::new(groups.into_iter().collect()))
    }
}
