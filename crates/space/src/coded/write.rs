//! Writing stripes. Unwritten stripes are written in place at once, like new units of a mirror. Written stripes are
//! changed through the log: the record has the new units, including parity, and a replay writes them again (rule 3).

use std::ops::Range;
use std::sync::Arc;

use arena::{IoBuf, Pages, Sg};
use pool_seam::UNIT;
use pool_seam::code::Code;
use smallvec::SmallVec;

use super::implied::implied;
use super::{Columns, bits, lacks};
use crate::SpaceError;
use crate::blocks::ContentId;
use crate::cache::Cached;
use crate::error::Disks;
use crate::flight::{Change, ChangeOutcome, NewData, Stripes};
use crate::log::commit::FlushSet;
use crate::log::unit_of;
use crate::owner::Inner;
use crate::table::{InPlace, Table, Value, Values};
use crate::view::{GroupKey, Member, Route, route};
use crate::write::{Blocked, Target, WriteKind, WritePermit};

/// New bytes of some columns of stripes, all for the same units; a column without bytes is discarded.
#[derive(Clone)]
pub(crate) struct NewColumns {
    pub(crate) key: GroupKey,
    pub(crate) units: Range<usize>,
    pub(crate) columns: SmallVec<[(u8, Option<Sg>); 4]>,
}

/// The new state of stripes.
struct Planned {
    parts: Parts,
    /// The values of each unit.
    values: Vec<Values>,
}

/// New units, by content and stripe.
type Parts = Vec<Option<Vec<IoBuf>>>;

/// A run of a column, and its bytes; `None`: the run is discarded.
pub(crate) type ColumnRun = (Target, Option<Sg>);

/// The new units of a column, by stripe; `None`: they are discarded.
type Source = (u8, Option<Vec<IoBuf>>);

/// Splits runs of columns into pieces in which all columns have the same units.
pub(crate) fn stripes(runs: Vec<ColumnRun>) -> Vec<NewColumns> {
    let mut groups: Vec<(GroupKey, Vec<ColumnRun>)> = Vec::new();
    for (target, src) in runs {
        match groups.iter_mut().find(|(key, _)| *key == target.key) {
            Some((_, of)) => of.push((target, src)),
            None => groups.push((target.key, vec![(target, src)])),
        }
    }
    let mut out = Vec::new();
    for (key, runs) in groups {
        let mut cuts: Vec<usize> = runs.iter().flat_map(|(t, _)| [t.units.start, t.units.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        for cut in cuts.windows(2) {
            let units = cut[0]..cut[1];
            let columns =
                runs.iter().filter(|(t, _)| t.units.start <= units.start && units.end <= t.units.end);
            let columns = columns.map(|(target, src)| {
                let (from, length) = (units.start - target.units.start, units.len());
                let part = |src: &Sg| arena::sg_slice(src, from * UNIT as usize, length * UNIT as usize);
                (target.column, src.as_ref().map(part))
            });
            let columns: SmallVec<_> = columns.collect();
            if !columns.is_empty() {
                out.push(NewColumns { key, units, columns });
            }
        }
    }
    out
}

impl NewColumns {
    pub(crate) fn target(&self) -> Target {
        Target { key: self.key, column: self.columns[0].0, units: self.units.clone() }
    }

    /// The columns with new bytes, or to discard, as bits.
    fn changed(&self) -> u32 {
        bits(self.columns.iter().map(|(column, _)| usize::from(*column)))
    }
}

impl Inner {
    /// Writes stripes; waits for decisions, loads and records as needed. Returns the table of their group.
    pub(crate) async fn write_stripes(
        self: &Arc<Inner>,
        new: &NewColumns,
        mut permit: WritePermit,
    ) -> Result<Arc<Cached>, SpaceError> {
        let target = new.target();
        loop {
            self.lease.hold().wait().await?;
            let view = self.view.get().value;
            // A shrink discards columns beyond the new size.
            if new.columns.iter().any(|(_, src)| src.is_some()) {
                self.check_target(&view, &target)?;
            }
            let Some(at) = route(&view, new.key).filter(|at| !at.is_new) else {
                drop(permit);
                self.allocate_for(&target).await?;
                permit = self.write_permit(&target).await?;
                continue;
            };
            let code = at.code.expect("a coded row");
            let cached = match self.table(new.key, &at) {
                Ok(cached) => cached,
                Err(Blocked::Table(load)) => load.await?,
                Err(Blocked::Unavailable(error)) => return Err(error),
                Err(_) => continue,
            };
            if self.settle(&target, &cached).await? {
                continue;
            }
            let is_fresh = self.with_table(&cached, |table| {
                new.units.clone().all(|unit| table.in_place(unit) == InPlace::Empty)
            });
            // Columns of a stripe that is in no record are in place but not durable. The record of a redo is written
            // without a flush, and would declare them durable.
            let is_unflushed =
                |table: &Table, unit| table.in_place(unit) == InPlace::Empty && table.waits(unit);
            if !is_fresh
                && self.with_table(&cached, |table| new.units.clone().any(|unit| is_unflushed(table, unit)))
            {
                self.log().flush(FlushSet::everything()).await?;
                continue;
            }
            let Some(planned) = self.plan(new, &target, &at, code, &cached).await? else {
                continue;
            };
            let is_done = match is_fresh {
                true => self.write_fresh(&target, planned).await?,
                false => self.write_redo(&target, code, &cached, planned).await?,
            };
            if is_done {
                return Ok(cached);
            }
        }
    }

    /// Completes pending work on units before they are changed; returns `true` if there was any: the caller checks
    /// again.
    async fn settle(self: &Arc<Inner>, target: &Target, cached: &Arc<Cached>) -> Result<bool, SpaceError> {
        let units = || target.units.clone();
        if self.with_table(cached, |table| table.has_open(units())) {
            Box::pin(self.decide(target, cached)).await?;
            return Ok(true);
        }
        let issued = |table: &mut Table| {
            units().find_map(|unit| match table.in_place(unit) {
                InPlace::Issued(record) => Some(record),
                _ => None,
            })
        };
        if let Some(record) = self.with_table(cached, issued) {
            self.log().wait_declared(record).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Computes the new state of the stripes; `None`: a disk was removed meanwhile.
    async fn plan(
        self: &Arc<Inner>,
        new: &NewColumns,
        target: &Target,
        at: &Route,
        code: Code,
        cached: &Arc<Cached>,
    ) -> Result<Option<Planned>, SpaceError> {
        let (count, changed, all_data) = (new.units.len(), new.changed(), (1_u32 << code.data()) - 1);
        let lacks_some = |parity: &usize| {
            let is_zeros = |unit| self.with_table(cached, |table| table.value(*parity, unit).is_zeros());
            new.units.clone().any(is_zeros)
        };
        // When a stripe is written for the first time, parities of local groups without a new column are written too:
        // they are zeros.
        let parities = code.parities_of(changed) | bits((code.data()..code.columns()).filter(lacks_some));
        let others = all_data & !changed;
        // Chooses the method that reads fewer columns.
        let (whole, difference) = (others, changed | parities);
        let is_written = |content: usize| {
            self.with_table(cached, |table| {
                new.units.clone().any(|unit| !table.value(content, unit).is_zeros())
            })
        };
        let reads = |of: u32| (0..code.columns()).filter(|c| of & 1 << c != 0 && is_written(*c)).count();
        let first = if reads(whole) <= reads(difference) { whole } else { difference };
        let mut old: Columns = vec![vec![None; count]; code.columns()];
        // Stripes whose values are in no record may be written in place again, although their columns may be written
        // already.
        let is_empty_before = !(0..code.columns()).any(is_written);
        if !is_empty_before {
            match self.columns(target, at, cached, first).await? {
                Some(made) => old = made.columns,
                None => return Ok(None),
            }
            if lacks(&old, first) {
                let other = if first == whole { difference } else { whole };
                match self.columns(target, at, cached, first | other).await? {
                    Some(made) => old = made.columns,
                    None => return Ok(None),
                }
            }
        }
        let units = |src: &Sg| (0..count).map(|unit| unit_of(src, unit)).collect();
        let sources = new.columns.iter().map(|(column, src)| (*column, src.as_ref().map(units)));
        let sources: Vec<Source> = sources.collect();
        let mut parts: Parts = vec![None; code.columns()];
        let mut all_values = Vec::with_capacity(count);
        let zeros = IoBuf::from(Pages::zeros(UNIT as usize));
        for unit in 0..count {
            let before = self.with_table(cached, |table| table.values(new.units.start + unit));
            let mut values = before.clone();
            let of =
                |content: usize| ContentId { space: self.space(), birth: at.birth, content: content as u8 };
            let first_unit = target.first() + unit as u32;
            for (column, bytes) in &sources {
                let content = usize::from(*column);
                values[content] = match bytes {
                    Some(bytes) => Value::Written(of(content).checksum(first_unit, &bytes[unit])),
                    None => Value::Unwritten,
                };
                if let Some(bytes) = bytes {
                    parts[content].get_or_insert_default().push(bytes[unit].clone());
                }
            }
            let is_empty = values[..code.data()].iter().all(Value::is_zeros);
            for parity in (0..code.columns()).filter(|c| parities & 1 << c != 0) {
                let covers = code.covers(parity);
                let bytes = if is_empty {
                    Some(zeros.clone())
                } else {
                    let made =
                        parity_of(code, parity, covers, changed, unit, &sources, &old, is_empty_before);
                    made.map(IoBuf::from)
                };
                let of_parity = covers | 1 << parity;
                if bytes.is_none()
                    && let Some(error) = self.absent(target, at, &before, &old, unit, of_parity)
                {
                    return Err(error);
                }
                values[parity] = match &bytes {
                    // The parity of a stripe without data is unwritten, too.
                    _ if is_empty => Value::Unwritten,
                    Some(bytes) => Value::Written(of(parity).checksum(first_unit, bytes)),
                    // The old parity is unknown: it is computed when its last lost unit is written.
                    None => Value::LostWithoutSum,
                };
                let bytes = bytes.unwrap_or_else(|| zeros.clone());
                parts[parity].get_or_insert_default().push(bytes);
            }
            all_values.push(values);
        }
        Ok(Some(Planned { parts, values: all_values }))
    }

    /// Returns an error if disks with missing units of these contents (bits) are absent and may return: these units,
    /// with the old parity, may be all that can recover the others.
    fn absent(
        &self,
        target: &Target,
        at: &Route,
        before: &Values,
        old: &Columns,
        unit: usize,
        contents: u32,
    ) -> Option<SpaceError> {
        let view = self.view.get().value;
        let is_needed = |content: usize| {
            let is_lost = match before[content] {
                Value::LostWithoutSum => true,
                // A lost parity has no valid copy.
                Value::Lost(_) => content >= at.data,
                value => value.is_zeros(),
            };
            contents & 1 << content != 0 && old[content][unit].is_none() && !is_lost
        };
        let may_return = |member: &&Member| {
            let is_leaving = view.disks.get(&member.disk).is_none_or(|disk| disk.is_leaving);
            member.membership.is_none() && !is_leaving && is_needed(member.content.into())
        };
        let mut disks = at.members.iter().filter(may_return).map(|member| member.disk);
        let first = disks.next()?;
        Some(SpaceError::Unavailable { row: target.key.row, disks: Disks::new(first, disks) })
    }

    async fn write_fresh(self: &Arc<Inner>, target: &Target, planned: Planned) -> Result<bool, SpaceError> {
        // The plan waited for reads: a record may have the former values by now.
        let begun = match self.begin(target, WriteKind::Fresh) {
            Ok(begun) => begun,
            Err(Blocked::Disk(member)) => return self.port(&member).await.map(|_| false),
            Err(Blocked::Unavailable(error)) => return Err(error),
            Err(Blocked::Flush) => {
                self.log().flush(FlushSet::everything()).await?;
                return Ok(false);
            }
            Err(_) => return Ok(false),
        };
        let parts = planned.parts.into_iter().map(|units| units.map(Sg::from_iter)).collect();
        let change = Change { inner: Arc::clone(self), target: target.clone(), begun, permit: None };
        let new = NewData::Stripes(Stripes { parts, values: Some(planned.values) });
        Ok(change.begin(new).await? == ChangeOutcome::Written)
    }

    async fn write_redo(
        self: &Arc<Inner>,
        target: &Target,
        code: Code,
        cached: &Arc<Cached>,
        planned: Planned,
    ) -> Result<bool, SpaceError> {
        let Planned { parts, values } = planned;
        let stored = |values: &Values| payload_of(code, &parts, values).count_ones() as usize;
        let (columns, most) = (values.iter().map(stored).max().unwrap_or(0).max(1), self.log().carries());
        let at_once = (most / 4 / columns).max(1);
        let units: Vec<usize> = target.units.clone().collect();
        for (piece, first) in units.chunks(at_once).zip((0..).step_by(at_once)) {
            let unplaced = self.unplaced.acquire(target.key.row, piece.len() * columns).await?;
            let _placing = self.placing.read().await;
            self.with_table(cached, |table| {
                for (at, unit) in (first..).zip(piece) {
                    redo(code, table, *unit, at, &parts, values[at].clone());
                }
            });
            self.waiting_groups.add_urgent(cached);
            self.log().durable().await?;
            let target = Target { units: piece[0]..piece[0] + piece.len(), ..target.clone() };
            if let Err(error) = self.place(&target, cached).await {
                self.unplaced.failed(target.key.row, unplaced, &error);
                return Err(error);
            }
        }
        self.lease.hold().wait().await?;
        Ok(true)
    }
}

/// Sets the new values of a stripe, and queues its new units for the log.
fn redo(code: Code, table: &mut Table, unit: usize, at: usize, parts: &Parts, values: Values) {
    let contents = payload_of(code, parts, &values);
    if contents == 0 {
        table.set(unit, values);
        return;
    }
    let of_payload = parts.iter().enumerate().filter(|(content, _)| contents & 1 << content != 0);
    let payload: Sg = of_payload.filter_map(|(_, part)| Some(part.as_ref()?[at].clone())).collect();
    table.set_redo(unit, values, contents, payload);
}

/// The contents (bits) whose new units go to the log: those that are not implied. The bytes of a lost parity are
/// undefined.
fn payload_of(code: Code, parts: &Parts, values: &Values) -> u32 {
    let is_new = |content: &usize| parts[*content].is_some() && matches!(values[*content], Value::Written(_));
    let new = bits((0..parts.len()).filter(is_new));
    new & !implied(code, values, new)
}

/// The new bytes of a parity; `None` if too many units are unknown.
fn parity_of(
    code: Code,
    parity: usize,
    covers: u32,
    changed: u32,
    unit: usize,
    sources: &[Source],
    old: &Columns,
    is_empty_before: bool,
) -> Option<Pages> {
    let number = parity - code.data();
    let source =
        |column: usize| sources.iter().find(|(c, _)| usize::from(*c) == column).and_then(|(_, s)| s.as_ref());
    let others = (0..code.data()).filter(|c| covers & !changed & 1 << c != 0);
    let whole = is_empty_before || others.clone().all(|column| old[column][unit].is_some());
    let mut sum = match whole {
        true => Pages::zeros(UNIT as usize),
        false => Pages::copied(std::iter::once(&**old[parity][unit].as_ref()?)),
    };
    if whole {
        others
            .filter_map(|c| Some((c, old[c][unit].as_ref()?)))
            .for_each(|(c, bytes)| code.add(number, c, bytes, &mut sum));
    }
    for column in (0..code.data()).filter(|c| covers & changed & 1 << c != 0) {
        if !whole {
            code.add(number, column, old[column][unit].as_ref()?, &mut sum);
        }
        if let Some(source) = source(column) {
            code.add(number, column, &source[unit], &mut sum);
        }
    }
    Some(sum)
}
