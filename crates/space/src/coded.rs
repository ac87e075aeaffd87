//! Coded rows: reading and recovering the contents of stripes. `docs/0004-spaces.md`, section E.

mod decide;
mod implied;
mod others;
mod place;
mod proof;
mod unplaced;
mod write;

pub(crate) use unplaced::Unplaced;
pub(crate) use write::{NewColumns, stripes};

use std::sync::Arc;

use arena::{IoBuf, Sg};
use futures_util::future::join_all;
use pool_seam::code::Code;
use pool_seam::{DamageKind, UNIT};

use crate::SpaceError;
use crate::blocks::{ContentId, Units};
use crate::cache::Cached;
use crate::heal::ReadCopy;
use crate::owner::Inner;
use crate::table::Value;
use crate::view::{Member, Route};
use crate::write::{Target, unavailable};

/// The units of a range, by content: those that were read, or are zeros because they are unwritten.
pub(crate) type Columns = Vec<Vec<Option<IoBuf>>>;

/// A bad unit of a copy, by its index in the target: its bytes do not have the known checksum. `bytes` is `None` if
/// the unit cannot be read.
struct BadUnit {
    member: Member,
    unit: usize,
    bytes: Option<IoBuf>,
}

/// The result of reading the members of a set.
pub(crate) struct RecoveredColumns {
    pub(crate) columns: Columns,
    pub(crate) rewritten: u64,
    /// The error if a wanted, complete member could not be read.
    pub(crate) unread: Option<SpaceError>,
}

/// The unit of a content in the payload of a stripe; the payload has units of these contents (bits).
fn unit_of_content((contents, payload): &(u32, Sg), content: usize) -> Option<IoBuf> {
    let before = contents & ((1 << content) - 1);
    let is_there = contents & 1 << content != 0;
    is_there.then(|| payload.get(before.count_ones() as usize).cloned()).flatten()
}

/// Contents as bits.
fn bits(contents: impl Iterator<Item = usize>) -> u32 {
    contents.fold(0, |bits, content| bits | 1 << content)
}

/// Whether units of these contents (bits) are missing.
fn lacks(columns: &Columns, of: u32) -> bool {
    columns.iter().enumerate().any(|(c, units)| of & 1 << c != 0 && units.iter().any(Option::is_none))
}

impl Inner {
    /// Reads the wanted contents (bits) of a target's units, and verifies their checksums. If the unit's own copy
    /// lacks it, the unit is recovered from the other contents; if that copy is bad, it is rewritten. Returns `None`
    /// if a disk was removed meanwhile.
    pub(crate) async fn columns(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
        wanted: u32,
    ) -> Result<Option<RecoveredColumns>, SpaceError> {
        let code = at.code.expect("a coded row");
        let columns: Columns = vec![vec![None; target.units.len()]; code.columns()];
        let mut recovered = RecoveredColumns { columns, rewritten: 0, unread: None };
        let mut bad = Vec::new();
        if !self.read_columns(target, at, cached, wanted, &mut recovered, &mut bad).await? {
            return Ok(None);
        }
        let of_wanted = |content: &usize| wanted & 1 << content != 0;
        // With a local code, the contents of the local group first. Last, copies that are not complete (rule 21).
        for sources in [Some(Self::near(code, wanted)), Some(code.all()), None] {
            if !lacks(&recovered.columns, wanted) {
                break;
            }
            let has = |c: &usize| of_wanted(c) || recovered.columns[*c].iter().all(Option::is_some);
            let have = bits((0..code.columns()).filter(has));
            let is_read = match sources {
                Some(near) => {
                    self.read_columns(target, at, cached, near & !have, &mut recovered, &mut bad).await?
                }
                None => {
                    self.read_stale(target, at, cached, &mut recovered.columns).await?
                        && self.read_unknown(target, at, cached, &mut recovered.columns).await?
                }
            };
            if !is_read {
                return Ok(None);
            }
            for unit in 0..target.units.len() {
                let is_lost = |c: &usize| of_wanted(c) && recovered.columns[*c][unit].is_none();
                let lost = bits((0..code.columns()).filter(is_lost));
                self.recover(target, at, cached, &mut recovered.columns, unit, lost);
            }
        }
        // Units that were found bad are rewritten, even if they are not wanted.
        for BadUnit { member, unit, .. } in &bad {
            let content = usize::from(member.content);
            let value = self.with_table(cached, |table| table.value(content, target.units.start + unit));
            if matches!(value, Value::Written(_)) && recovered.columns[content][*unit].is_none() {
                self.recover(target, at, cached, &mut recovered.columns, *unit, 1 << content);
            }
        }
        for BadUnit { member, unit, bytes } in bad {
            let good = recovered.columns[usize::from(member.content)][unit].clone();
            let found = if bytes.is_some() { DamageKind::Healed } else { DamageKind::Unreadable };
            if let Some(good) = good.filter(|good| bytes.is_none_or(|bytes| bytes[..] != good[..])) {
                let (of, unit) =
                    (Target { column: member.content, ..target.clone() }, target.units.start + unit);
                self.report_damage(found, member.disk, &of, unit);
                self.rewrite(target, &member, unit, good).await;
                recovered.rewritten += 1;
            }
        }
        // Only data counts as lost: a missing parity is a consequence.
        for content in (0..code.data()).filter(|c| recovered.unread.is_none() && of_wanted(c)) {
            let lacks = |unit: &usize| recovered.columns[content][*unit - target.units.start].is_none();
            let lost: Units = target.units.clone().filter(lacks).collect();
            let member = at.members.iter().find(|m| usize::from(m.content) == content && m.counts);
            let target = Target { column: content as u8, ..target.clone() };
            self.report_lost_units(member.map_or(&at.members, std::slice::from_ref), &target, &lost);
        }
        Ok(Some(recovered))
    }

    /// Computes missing contents (bits) of a unit from the others; adds those that have the right checksum.
    fn recover(
        &self,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
        columns: &mut Columns,
        unit: usize,
        missing: u32,
    ) {
        let code = at.code.expect("a coded row");
        let mut stripe: Vec<Option<IoBuf>> = columns.iter().map(|column| column[unit].clone()).collect();
        if missing == 0 || !code.recover(UNIT as usize, &mut stripe, missing) {
            return;
        }
        for (content, bytes) in stripe.into_iter().enumerate().filter(|(c, _)| missing & 1 << c != 0) {
            let Some(bytes) = bytes else { continue };
            if self.is_of_value(target, at.birth, cached, content, unit, &bytes) {
                columns[content][unit] = Some(bytes);
            }
        }
    }

    fn near(code: Code, wanted: u32) -> u32 {
        let of = |content: usize| code.near(content).unwrap_or(code.all());
        (0..code.columns()).filter(|c| wanted & 1 << c != 0).fold(0, |near, c| near | of(c))
    }

    /// Whether the bytes match a content's newest value in the table.
    fn is_of_value(
        &self,
        target: &Target,
        birth: u32,
        cached: &Cached,
        content: usize,
        unit: usize,
        bytes: &[u8],
    ) -> bool {
        let of = ContentId { space: self.space(), birth, content: content as u8 };
        match self.with_table(cached, |table| table.value(content, target.units.start + unit)) {
            Value::Written(sum) | Value::Lost(sum) => of.checksum(target.first() + unit as u32, bytes) == sum,
            // The checksum is unknown, as its block is on an absent disk; but the checksums of the sources were
            // verified.
            Value::Unknown { .. } => true,
            Value::Unwritten | Value::LostWithoutSum => false,
        }
    }

    /// Reads contents from their own copies, and keeps units with the right checksum. Unwritten units are zeros;
    /// units that are only in the log are taken from there. Units with a wrong or unknown checksum are added to
    /// `bad`. Returns `false` if a disk was removed meanwhile.
    async fn read_columns(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
        wanted: u32,
        recovered: &mut RecoveredColumns,
        bad: &mut Vec<BadUnit>,
    ) -> Result<bool, SpaceError> {
        self.learn_blocks(target.key, at, cached, wanted).await;
        let code = at.code.expect("a coded row");
        let zeros = IoBuf::from(vec![0; UNIT as usize]);
        let value = |content: usize, unit: usize| {
            self.with_table(cached, |table| table.value(content, target.units.start + unit))
        };
        let columns = &mut recovered.columns;
        let logged: Vec<_> = self.with_table(cached, |table| {
            target.units.clone().map(|unit| implied::payload(code, table, unit, wanted)).collect()
        });
        let logged = |content: usize, unit: usize| unit_of_content(logged[unit].as_ref()?, content);
        let mut reads = Vec::new();
        for content in (0..at.contents()).filter(|c| wanted & 1 << c != 0) {
            let mut is_read = false;
            for (unit, bytes) in columns[content].iter_mut().enumerate().filter(|(_, bytes)| bytes.is_none())
            {
                match value(content, unit) {
                    Value::Unwritten | Value::Unknown { written: false } => *bytes = Some(zeros.clone()),
                    Value::Written(_) => {
                        *bytes = logged(content, unit);
                        is_read |= bytes.is_none();
                    }
                    Value::Unknown { written: true } => is_read = true,
                    Value::Lost(_) | Value::LostWithoutSum => {}
                }
            }
            let copies = at.members.iter().filter(|m| m.counts && usize::from(m.content) == content);
            reads.extend(copies.filter(|_| is_read).map(|member| (content, *member)));
        }
        let results = join_all(reads.iter().map(|(_, member)| self.read_copy(target, member))).await;
        for ((content, member), result) in reads.into_iter().zip(results) {
            let units = match result? {
                ReadCopy::Bytes(units) => units,
                ReadCopy::Away => {
                    recovered.unread.get_or_insert_with(|| unavailable(target.key.row, &at.members));
                    continue;
                }
                ReadCopy::Failed(error) => {
                    recovered.unread.get_or_insert(SpaceError::Disk { disk: member.disk, error });
                    continue;
                }
                ReadCopy::Changed => return Ok(false),
            };
            for (unit, bytes) in units.into_iter().enumerate() {
                let is_good = match value(content, unit) {
                    Value::Written(_) if logged(content, unit).is_some() => continue,
                    Value::Written(_) => bytes.as_ref().is_some_and(|bytes| {
                        self.is_of_value(target, at.birth, cached, content, unit, bytes)
                    }),
                    Value::Unknown { written: true } => false,
                    _ => continue,
                };
                match bytes {
                    Some(bytes) if is_good => _ = columns[content][unit].get_or_insert(bytes),
                    bytes => bad.push(BadUnit { member, unit, bytes }),
                }
            }
        }
        Ok(true)
    }

    /// Adds missing units from copies that are not complete (rule 21). Returns `false` if a disk was removed
    /// meanwhile.
    async fn read_stale(
        &self,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
        columns: &mut Columns,
    ) -> Result<bool, SpaceError> {
        for (content, units) in columns.iter_mut().enumerate() {
            let of = Target { column: content as u8, ..target.clone() };
            let missing = target.units.clone().zip(units.iter()).filter(|(_, bytes)| bytes.is_none());
            let missing: Units = missing.map(|(unit, _)| unit).collect();
            let Some(stale) = self.stale_units(&of, at, cached, &missing).await? else { return Ok(false) };
            units.iter_mut().zip(stale).for_each(|(unit, bytes)| *unit = unit.take().or(bytes));
        }
        Ok(true)
    }
}
