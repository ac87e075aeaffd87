//! The resiliency and the columns of a virtual disk.

use pool::placement::{NoPlace, reshaped};
use pool::{
    CommitError, InvalidOp, NewSlab, Op, Resiliency, RowNumber, RowShape, SpaceId, SpaceOp, SpaceRecord,
    State,
};

use super::error::StorageError;
use super::pools::{Pools, done};
use super::spaces::{enough_disks, resiliency_of, shape_on};
use crate::control::storage::{NewSpace, ProvisioningSetting, ResiliencySetting};
use crate::control::types::Changed;
use crate::output::human_bytes;

impl Pools {
    /// Sets the resiliency or the number of columns (including parity) of a virtual disk, and starts the job that
    /// changes its data. If only the number of copies changes, copies are added or removed; otherwise all data is copied
    /// to new rows.
    ///
    /// # Errors
    /// See [`StorageError`]: too few disks with room, or another change in progress; nothing has changed then.
    pub(super) async fn set_space_shape(
        &self,
        name: &str,
        resiliency: Option<ResiliencySetting>,
        columns: Option<u8>,
    ) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.space_to_change(name)?;
        let (to, text) = open.pool.read(|s| {
            let record = s.spaces.get(&space).ok_or(invalid(InvalidOp::NoSpace(space)))?;
            if record.is_converting() {
                return Err(StorageError::IsConverting { name: name.to_owned() });
            }
            let to = wanted(s, record, resiliency, columns)?;
            if to.resiliency.is_parity() && to == record.shape() {
                return Ok((
                    None,
                    format!("virtual disk {name} has this resiliency and these columns already"),
                ));
            }
            let text = match record.shape().differs_in_copies_only(&to) {
                true => copies_text(name, to.resiliency, plan(s, space, to)?),
                false => {
                    check_conversion(s, record, &to)?;
                    conversion_text(name, &to)
                }
            };
            Ok((Some(to), text))
        })?;
        let Some(to) = to else { return Ok(done(text, Vec::new())) };
        open.pool.set_shape(space, to).await?;
        if let Some(repairer) = open.repairer() {
            repairer.reshape_now(space);
        }
        Ok(done(text, Vec::new()))
    }
}

/// The requested shape. If all data has to be copied, the default number of columns is that of a new virtual disk.
fn wanted(
    s: &State,
    record: &SpaceRecord,
    resiliency: Option<ResiliencySetting>,
    columns: Option<u8>,
) -> Result<RowShape, StorageError> {
    let had = record.shape();
    let to = RowShape { resiliency: resiliency.map_or(had.resiliency, resiliency_of), ..had };
    if columns.is_none() && had.differs_in_copies_only(&to) {
        return Ok(to);
    }
    // As for a new virtual disk.
    let new = NewSpace {
        name: record.name.clone(),
        pool: s.name.clone(),
        resiliency: resiliency.unwrap_or_else(|| setting_of(had.resiliency)),
        size: Some(record.size),
        columns,
        groups: match had.resiliency {
            Resiliency::LocalParity { groups, .. } if resiliency.is_none() => Some(groups),
            _ => None,
        },
        interleave: Some(had.interleave),
        provisioning: ProvisioningSetting::Thin,
        media: Vec::new(),
    };
    let (new, _) = shape_on(s, &new, record.media)?;
    Ok(new.shape())
}

/// The setting for a resiliency; of local reconstruction, that with as much redundancy.
fn setting_of(resiliency: Resiliency) -> ResiliencySetting {
    match resiliency {
        Resiliency::Simple => ResiliencySetting::Simple,
        Resiliency::Mirror { copies: 3.. } => ResiliencySetting::ThreeWayMirror,
        Resiliency::Mirror { .. } => ResiliencySetting::Mirror,
        Resiliency::Parity { parity: 1 } => ResiliencySetting::Parity,
        Resiliency::Parity { .. } | Resiliency::LocalParity { .. } => ResiliencySetting::DualParity,
    }
}

fn copies_text(name: &str, to: Resiliency, change: Change) -> String {
    let copies = match to.copies() {
        1 => "one copy".to_owned(),
        n => format!("{n} copies"),
    };
    match change {
        Change { added: 0, freed: 0 } => format!("virtual disk {name} has {copies} of its data now"),
        Change { added: 0, freed } => format!(
            "virtual disk {name} is changed to {copies} of its data, which frees {} of the pool: see causeway job list",
            human_bytes(freed)
        ),
        Change { added, .. } => format!(
            "virtual disk {name} is changed to {copies} of its data, which takes {} more of the pool: see causeway job list",
            human_bytes(added)
        ),
    }
}

/// # Errors
/// The shape is not valid, the number of copies is being changed, or the pool has no room for the data in rows of this
/// shape, counting the slabs that are freed meanwhile.
fn check_conversion(s: &State, record: &SpaceRecord, to: &RowShape) -> Result<(), StorageError> {
    let mut converted = SpaceRecord::clone(record);
    converted.set_shape(*to);
    s.check_shape(&converted).map_err(invalid)?;
    if record.is_changing() {
        return Err(StorageError::CopiesChange { name: record.name.clone() });
    }
    let slabs: usize = record.data_rows().map(|(_, row)| row.slabs.len()).sum();
    let needed = record.allocated_bytes(s.slab_bytes).div_ceil(converted.row_bytes(s.slab_bytes));
    let fitting = pool::health::rows_that_fit(s, &converted);
    let later = fitting + (slabs / converted.slabs_in_row().max(1)) as u64;
    if needed > 0 && (fitting == 0 || needed > later) {
        let (name, pool) = (record.name.clone(), s.name.clone());
        let bytes = needed * converted.slabs_in_row() as u64 * s.slab_bytes;
        return Err(StorageError::NoRoomToConvert { name, pool, bytes });
    }
    Ok(())
}

fn conversion_text(name: &str, to: &RowShape) -> String {
    let kind = match to.resiliency {
        Resiliency::Simple => "simple".to_owned(),
        Resiliency::Mirror { copies } => format!("{copies} copies"),
        parity if parity.failures() == 1 => "parity that survives the loss of one disk".to_owned(),
        parity => format!("parity that survives the loss of {} disks", parity.failures()),
    };
    let columns = usize::from(to.columns) + to.resiliency.parity_columns();
    format!(
        "virtual disk {name} is converted to {kind} with {columns} columns; its data is copied while it is in use: see causeway job list"
    )
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
fn plan(s: &State, space: SpaceId, to: RowShape) -> Result<Change, StorageError> {
    let record = s.spaces.get(&space).ok_or(invalid(InvalidOp::NoSpace(space)))?;
    let name = || record.name.clone();
    let mut changed = SpaceRecord::clone(record);
    changed.set_shape(to);
    enough_disks(s, &changed)?;
    let mut then = s.clone();
    let set = then.apply(&Op::Space { space, op: SpaceOp::SetShape { shape: to } });
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

    fn copies(s: &State, space: SpaceId, resiliency: Resiliency) -> Result<Change, StorageError> {
        plan(s, space, RowShape { resiliency, ..s.spaces[&space].shape() })
    }

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
        assert_eq!(copies(&s, space, THREE).unwrap(), Change { added: 16 * MIB, freed: 0 });
        assert_eq!(copies(&s, space, Resiliency::Simple).unwrap(), Change { added: 0, freed: 16 * MIB });
        assert_eq!(copies(&s, space, Resiliency::Mirror { copies: 2 }).unwrap(), Change::default());
        let (few, space) = state(2);
        let none = copies(&few, space, THREE);
        assert!(matches!(none, Err(StorageError::TooFewDisks { needed: 3, disks: 2, .. })), "{none:?}");
        // The third disk has space for one row only.
        let (mut s, space) = state(3);
        let other =
            s.make(pool::SpaceRecord { resiliency: Resiliency::Simple, size: 64 * MIB, ..mirror("n") });
        for row in 0..7 {
            s.fill(other, RowNumber(row), [SlabPlace { disk: DiskNumber(2), slab: row }]).unwrap();
        }
        let none = copies(&s, space, THREE);
        assert!(matches!(none, Err(StorageError::NoRoomForCopies { needed: 1, disks: 0, .. })), "{none:?}");
    }

    #[test]
    fn one_change_at_a_time_and_back() {
        let (mut s, space) = state(3);
        s.apply(&Op::Space {
            space,
            op: SpaceOp::SetShape { shape: RowShape { resiliency: THREE, ..s.spaces[&space].shape() } },
        })
        .unwrap();
        let slabs = reshaped(&s, space, RowNumber(0), |_| true).unwrap();
        s.apply(&Op::Space { space, op: SpaceOp::Reshape { row: RowNumber(0), slabs } }).unwrap();
        let third = copies(&s, space, Resiliency::Simple);
        assert!(matches!(third, Err(StorageError::CopiesChange { .. })), "{third:?}");
        assert_eq!(
            copies(&s, space, Resiliency::Mirror { copies: 2 }).unwrap(),
            Change { added: 0, freed: 8 * MIB }
        );
    }
}
