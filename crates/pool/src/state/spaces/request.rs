//! Translates a request of an owner into operations. Pure: the coordinator's choices use the state that precedes the
//! record.

use pool_seam::{NoPlace, OwnerOp, Request, SlabCopy, SlabPlace, SpaceEpoch};

use super::{SpaceOp, alone};
use crate::state::State;
use crate::{DiskNumber, InvalidOp, NewSlab, Op, RowNumber, SpaceId, placement};

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The request was carried out before.
    DoneBefore,
    /// The space has another owner.
    Deposed(SpaceEpoch),
    /// There is no such space, or the owner's epoch is higher than the current one.
    Unknown,
    /// These operations, in one record. If the request is refused, they only record its number.
    Record { ops: Vec<Op>, refused: Option<Refusal> },
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Invalid,
    NoRoom(NoPlace),
}

impl From<InvalidOp> for Refusal {
    fn from(_: InvalidOp) -> Refusal {
        Refusal::Invalid
    }
}

/// Translates a request to operations; new slabs are placed on `usable` disks.
pub(crate) fn carry_out(
    state: &State,
    request: &Request,
    usable: impl Fn(DiskNumber) -> bool,
) -> RequestOutcome {
    let Some(record) = state.spaces.get(&request.space) else { return RequestOutcome::Unknown };
    let done = record.ownership;
    match request.epoch.cmp(&done.epoch) {
        std::cmp::Ordering::Less => return RequestOutcome::Deposed(done.epoch),
        std::cmp::Ordering::Greater => return RequestOutcome::Unknown,
        std::cmp::Ordering::Equal if request.number <= done.request => return RequestOutcome::DoneBefore,
        std::cmp::Ordering::Equal => {}
    }
    let space = request.space;
    let mut tried = state.clone();
    let mut ops = Vec::new();
    let mut refused = None;
    for asked in &request.ops {
        let op = translate(&tried, space, asked, &usable);
        let applied = op.and_then(|op| {
            let op = op.map(|op| Op::Space { space, op });
            if let Some(op) = &op {
                let freed = tried.slabs_freed_by(op);
                tried.apply(op)?;
                // They are discarded first: later operations of the request must not use them.
                freed.into_iter().for_each(|place| tried.take_slab(place));
            }
            Ok(op)
        });
        match applied {
            Ok(op) => ops.extend(op),
            Err(why) => {
                ops.clear();
                refused = Some(why);
                break;
            }
        }
    }
    ops.push(Op::Space { space, op: SpaceOp::Done { epoch: request.epoch, number: request.number } });
    RequestOutcome::Record { ops, refused }
}

/// Translates an owner's operation, with places that the coordinator chooses. Returns `None` if it changes nothing.
fn translate(
    state: &State,
    space: SpaceId,
    op: &OwnerOp,
    usable: &impl Fn(DiskNumber) -> bool,
) -> Result<Option<SpaceOp>, Refusal> {
    let record = state.space(space)?;
    let birth_of = |row: RowNumber, birth: u32| {
        record.rows.get(&row).filter(|row| row.birth == birth).ok_or(Refusal::Invalid)
    };
    Ok(Some(match *op {
        OwnerOp::Allocate { row } => {
            if record.rows.contains_key(&row) || row == RowNumber::LOG {
                return Err(Refusal::Invalid);
            }
            if !state.may_allocate(record, row) {
                return Err(Refusal::NoRoom(NoPlace::NoSuchRow(space)));
            }
            let slabs = placement::row(state, space, row, usable).map_err(Refusal::NoRoom)?;
            SpaceOp::Allocate { row, first: state.next_generation, slabs }
        }
        OwnerOp::Ready { row, birth, ref written } => {
            let copies = birth_of(row, birth)?.copies();
            let here = |copy: &SlabCopy| Some((copy.place.disk, state.membership(copy.place.disk)?));
            // A disk that has returned meanwhile must have the blocks, too.
            let lacks = |copy: &SlabCopy| here(copy).is_some_and(|here| !written.contains(&here));
            if row != RowNumber::LOG && copies.clone().any(|(_, copy)| lacks(copy)) {
                return Err(Refusal::Invalid);
            }
            let is_stale = |copy: &SlabCopy| match row {
                RowNumber::LOG => copy.stale_regions != 0,
                _ => here(copy).is_none(),
            };
            let stale = copies.filter(|(_, copy)| is_stale(copy)).map(|(index, _)| index as u8);
            SpaceOp::Ready { row, birth, stale_copies: stale.collect() }
        }
        OwnerOp::Free { row, birth } => SpaceOp::Free { row, birth },
        OwnerOp::MarkStale { row, index, generation, regions, membership: seen } => {
            let present = record.rows.get(&row).ok_or(Refusal::Invalid)?;
            let disk = present.copy(usize::from(index)).ok_or(Refusal::Invalid)?.place.disk;
            if state.membership(disk) != seen {
                return Err(Refusal::Invalid);
            }
            // A new row is empty, so no copy of it can be stale.
            if present.is_new && row != RowNumber::LOG {
                return Ok(None);
            }
            // For an unaccounted disk the owner states regions that may be stale. As at the removal of a disk,
            // regions that no other disk could supply are not marked.
            let kept = match record.unaccounted.contains_key(&disk) {
                true => alone(record, row, present, disk, |other| other != disk),
                false => 0,
            };
            let regions = if row == RowNumber::LOG && kept != 0 { 0 } else { regions & !kept };
            if regions == 0 {
                return Ok(None);
            }
            SpaceOp::MarkStale { row, index, generation, regions }
        }
        OwnerOp::MarkCurrent { row, index, generation, regions, membership } => {
            let copy = record.rows.get(&row).and_then(|row| row.copy(usize::from(index)));
            let disk = copy.ok_or(Refusal::Invalid)?.place.disk;
            if state.membership(disk) != Some(membership) {
                return Err(Refusal::Invalid);
            }
            SpaceOp::MarkCurrent { row, index, generation, regions }
        }
        OwnerOp::MarkDiskStale { disk, membership: of } => SpaceOp::MarkDiskStale { disk, membership: of },
        OwnerOp::Accounted { disk, membership: of } => SpaceOp::Accounted { disk, membership: of },
        OwnerOp::BeginMove { row, birth, index, to } => {
            let slabs = &birth_of(row, birth)?.slabs;
            if usize::from(index) >= slabs.len() {
                return Err(Refusal::Invalid);
            }
            // If the place was allocated meanwhile, any other one on its disk is equivalent.
            let may = |disk: DiskNumber| usable(disk) && to.is_none_or(|to| to.disk == disk);
            let chosen = placement::slab(state, space, row, index, may).map_err(Refusal::NoRoom)?;
            let is_free = |to: &SlabPlace| to.disk == chosen.disk && state.check_free(*to).is_ok();
            let to = to.filter(is_free).unwrap_or(chosen);
            SpaceOp::BeginMove { row, index, to }
        }
        OwnerOp::EndMove { row, birth } => birth_of(row, birth).map(|_| SpaceOp::EndMove { row })?,
        OwnerOp::CancelMove { row, birth } => birth_of(row, birth).map(|_| SpaceOp::CancelMove { row })?,
        OwnerOp::Reshape { row, birth } => {
            birth_of(row, birth)?;
            let slabs = placement::reshaped(state, space, row, usable).map_err(Refusal::NoRoom)?;
            SpaceOp::Reshape { row, slabs }
        }
        OwnerOp::FreeReplica { generation } => {
            let log = record.rows.get(&RowNumber::LOG).ok_or(Refusal::Invalid)?;
            if !placement::may_be_freed(state, log, generation) {
                return Err(Refusal::Invalid);
            }
            let others = log.slabs.iter().enumerate().filter(|(_, copy)| copy.generation != generation);
            let slabs = others.map(|(index, _)| NewSlab::Kept { index: index as u8 }).collect();
            SpaceOp::Reshape { row: RowNumber::LOG, slabs }
        }
        OwnerOp::ReplaceLog { index, generation } => {
            let (row, log) = (RowNumber::LOG, record.rows.get(&RowNumber::LOG));
            let copy = log.and_then(|log| log.slabs.get(usize::from(index)));
            copy.filter(|copy| copy.generation == generation).ok_or(Refusal::Invalid)?;
            let to = placement::slab(state, space, row, index, usable).map_err(Refusal::NoRoom)?;
            SpaceOp::Replace { row, index, to }
        }
        OwnerOp::SetSize { from, to } => {
            if from != record.size {
                return Err(Refusal::Invalid);
            }
            SpaceOp::SetSize { size: to }
        }
        OwnerOp::Converted { from, to } => {
            if record.converted != Some(from) {
                return Err(Refusal::Invalid);
            }
            SpaceOp::Converted { to }
        }
        OwnerOp::Scrub(record) => SpaceOp::Scrub { record },
        OwnerOp::Lost(ref record) => SpaceOp::Lost { record: record.clone() },
        OwnerOp::Log(state) => SpaceOp::Log { state },
    }))
}
