//! The number of copies of a virtual disk.

use pool::placement::{NoPlace, reshaped};
use pool::{
    CommitError, InvalidOp, NewSlab, Op, Resiliency, RowNumber, SpaceId, SpaceOp, SpaceRecord, State,
};

use super::error::StorageError;
use super::pools::{Pools, done};
use super::spaces::{enough_disks, resiliency_of};
use crate::control::storage::ResiliencySetting;
use crate::control::types::Changed;
use crate::output::human_bytes;

impl Pools {
    /// Sets the number of copies of a virtual disk, and starts to add or remove copies.
    ///
    /// # Errors
    /// See [`StorageError`]: parity, too few disks with room, or another change in progress; nothing has changed then.
    pub(super) async fn set_space_resiliency(
        &self,
        name: &str,
        to: ResiliencySetting,
    ) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.space_to_change(name)?;
        let to = resiliency_of(to);
        let change = open.pool.read(|s| plan(s, space, to))?;
        open.pool.set_resiliency(space, to).await?;
        if let Some(repairer) = open.repairer() {
            repairer.reshape_now(space);
        }
        let copies = match to.copies() {
            1 => "one copy".to_owned(),
            n => format!("{n} copies"),
        };
        let text = match change {
            Change { added: 0, freed: 0 } => format!("virtual disk {name} has {copies} of its data now"),
            Change { added: 0, freed } => format!(
                "virtual disk {name} is changed to {copies} of its data, which frees {} of the pool: see causeway job list",
                human_bytes(freed)
            ),
            Change { added, .. } => format!(
                "virtual disk {name} is changed to {copies} of its data, which takes {} more of the pool: see causeway job list",
                human_bytes(added)
            ),
        };
        Ok(done(text, Vec::new()))
    }
}

/// The effect of a change, in bytes of slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    added: u64,
    freed: u64,
}

/// Simulates the change on the present state.
///
/// # Errors
/// The change is not possible.
fn plan(s: &State, space: SpaceId, to: Resiliency) -> Result<Change, StorageError> {
    let record = s.spaces.get(&space).ok_or(invalid(InvalidOp::NoSpace(space)))?;
    let name = || record.name.clone();
    if !record.resiliency.can_become(to) {
        return Err(StorageError::CopiesOfParity { name: name() });
    }
    enough_disks(s, &SpaceRecord { resiliency: to, ..SpaceRecord::clone(record) })?;
    let mut then = s.clone();
    let set = then.apply(&Op::Space { space, op: SpaceOp::SetResiliency { resiliency: to } });
    if set.is_err() && record.is_changing() {
        return Err(StorageError::CopiesChange { name: name() });
    }
    set.map_err(invalid)?;
    let rows: Vec<RowNumber> = then.spaces.get(&space).map_or_else(Vec::new, |record| {
        let former = record.rows.iter().filter(|(_, row)| row.shape == pool::Shape::Former);
        former.map(|(row, _)| *row).collect()
    });
    let mut change = Change::default();
    for row in rows {
        let had = then.slabs_allocated();
        let slabs: Vec<NewSlab> = match reshaped(&then, space, row, |_| true) {
            Ok(slabs) => slabs,
            Err(NoPlace::NoRoom { needed, disks, media }) => {
                return Err(StorageError::NoRoomForCopies { name: name(), needed, disks, media });
            }
            // The virtual disk was destroyed.
            Err(NoPlace::NoSuchRow(_)) => continue,
        };
        match then.apply(&Op::Space { space, op: SpaceOp::Reshape { row, slabs } }) {
            // The errors are temporary obstacles: a slab is being moved, or a copy is not complete.
            Ok(()) | Err(InvalidOp::Outdated(_) | InvalidOp::LastCopy { .. }) => {}
            Err(InvalidOp::SameDisk(disk)) => {
                return Err(StorageError::ColumnsTogether {
                    name: name(),
                    disk: disk.0,
                    pool: s.name.clone(),
                });
            }
            Err(error) => return Err(invalid(error)),
        }
        let has = then.slabs_allocated();
        change.added += has.saturating_sub(had) as u64 * s.slab_bytes;
        change.freed += had.saturating_sub(has) as u64 * s.slab_bytes;
    }
    Ok(change)
}

fn invalid(why: InvalidOp) -> StorageError {
    StorageError::Commit(CommitError::Invalid(why))
}

#[cfg(test)]
mod tests {
    use pool::testing::{disk, mirror};
    use pool::{DiskNumber, PoolId, SlabPlace};

    use super::*;

    const THREE: Resiliency = Resiliency::Mirror { copies: 3 };
    const MIB: u64 = 1 << 20;

    /// A mirror with two rows on disks 0 and 1.
    fn state(disks: u16) -> (State, SpaceId) {
        let mut s = State::new(PoolId([1; 16]), "p".into(), 8 * MIB);
        for n in 0..disks {
            s.apply(&Op::AddDisk { disk: DiskNumber(n), record: disk(n) }).unwrap();
        }
        s.apply(&Op::Opened { epoch: 1, incarnation: 7 }).unwrap();
        let space = s.make(mirror("m"));
        for row in 0..2 {
            let place = |disk| SlabPlace { disk: DiskNumber(disk), slab: row };
            s.fill(space, RowNumber(row), [place(0), place(1)]).unwrap();
        }
        (s, space)
    }

    #[test]
    fn a_change_says_what_it_takes_or_why_it_cannot_be() {
        let (s, space) = state(3);
        assert_eq!(plan(&s, space, THREE).unwrap(), Change { added: 16 * MIB, freed: 0 });
        assert_eq!(plan(&s, space, Resiliency::Simple).unwrap(), Change { added: 0, freed: 16 * MIB });
        assert_eq!(plan(&s, space, Resiliency::Mirror { copies: 2 }).unwrap(), Change::default());
        let parity = plan(&s, space, Resiliency::Parity { parity: 1 });
        assert!(matches!(parity, Err(StorageError::CopiesOfParity { .. })), "{parity:?}");
        let (few, space) = state(2);
        let none = plan(&few, space, THREE);
        assert!(matches!(none, Err(StorageError::TooFewDisks { needed: 3, disks: 2, .. })), "{none:?}");
        // The third disk has space for one row only.
        let (mut s, space) = state(3);
        let other =
            s.make(pool::SpaceRecord { resiliency: Resiliency::Simple, size: 64 * MIB, ..mirror("n") });
        for row in 0..7 {
            s.fill(other, RowNumber(row), [SlabPlace { disk: DiskNumber(2), slab: row }]).unwrap();
        }
        let none = plan(&s, space, THREE);
        assert!(matches!(none, Err(StorageError::NoRoomForCopies { needed: 1, disks: 0, .. })), "{none:?}");
    }

    #[test]
    fn one_change_at_a_time_and_back() {
        let (mut s, space) = state(3);
        s.apply(&Op::Space { space, op: SpaceOp::SetResiliency { resiliency: THREE } }).unwrap();
        let slabs = reshaped(&s, space, RowNumber(0), |_| true).unwrap();
        s.apply(&Op::Space { space, op: SpaceOp::Reshape { row: RowNumber(0), slabs } }).unwrap();
        let third = plan(&s, space, Resiliency::Simple);
        assert!(matches!(third, Err(StorageError::CopiesChange { .. })), "{third:?}");
        assert_eq!(
            plan(&s, space, Resiliency::Mirror { copies: 2 }).unwrap(),
            Change { added: 0, freed: 8 * MIB }
        );
    }
}
