//! Reads all copies of a unit under its lock, decides between old and new content (rule 5), and rewrites damaged
//! copies.

use std::sync::Arc;

use arena::{Class, IoBuf, Sg};
use disk::{DiskError, sized};
use futures_util::future::join_all;
use pool_seam::{Absence, DamageKind, Regions};
use smallvec::{SmallVec, smallvec};

use crate::active::SetKey;
use crate::blocks::{ContentId, Units};
use crate::cache::Cached;
use crate::error::SpaceError;
use crate::flight::{Change, ChangeOutcome, NewData};
use crate::log::BLOCK;
use crate::log::commit::FlushSet;
use crate::owner::{Inner, RETRY, ReportOutcome};
use crate::table::{Value, Values};
use crate::view::{Member, Route, route};
use crate::write::{Blocked, Target, WriteKind, unavailable};

/// The content of a unit on a complete copy; `None` after a medium error.
type Content = (Member, Option<IoBuf>);

/// The result of reading one copy.
pub(crate) enum ReadCopy {
    /// The units; `None` for those with a medium error.
    Bytes(Vec<Option<IoBuf>>),
    /// The disk is absent.
    Away,
    /// The disk is needed for other data, but this read failed.
    Failed(DiskError),
    /// The disk was removed or reopened: check again.
    Changed,
}

/// Why a unit is decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The unit is open (rule 5).
    Open,
    /// The unit is not open, but lost: only bytes with its checksum are accepted (rule 21).
    Lost,
}

/// The decision about a unit.
enum Decision {
    /// These bytes are written to all copies.
    Bytes(IoBuf),
    /// The value is set without a write to the disks.
    Value(Value),
}

impl Inner {
    /// Decides the undecided units of a run, and waits until all these decisions are confirmed together. Some may still
    /// be undecided: the caller checks again. The caller has their exclusive lock.
    pub(crate) async fn decide(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
    ) -> Result<(), SpaceError> {
        let view = self.view.get().value;
        let Some(at) = route(&view, target.key) else { return Ok(()) };
        let port = |member: &Member| self.ports.get(member.disk, member.membership?);
        let mut ports: Vec<_> = at.members.iter().filter_map(port).collect();
        let (mut decided, mut failed) = (Units::default(), None);
        for unit in self.with_table(cached, |table| table.open_units(target.units.clone())) {
            match self.decide_unit(target, cached, unit, Reason::Open).await {
                Ok(is_to_confirm) => decided.set(unit, is_to_confirm),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if !decided.is_empty() {
            ports.extend(at.members.iter().filter_map(port));
            self.confirm_decisions(target, cached, decided).await?;
            // Writes through a handle that has failed since may be lost, despite a later flush.
            if ports.iter().all(|port| !port.has_ended()) {
                self.with_table(cached, |table| {
                    for unit in decided.iter() {
                        if !table.is_in_doubt(unit) {
                            table.resolve(unit);
                        }
                    }
                });
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Restores the lost units of a run that any present copy has (rule 21), and waits until this is confirmed. Returns
    /// how many are restored. None of the units is open, and the caller has their exclusive lock.
    pub(crate) async fn restore(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
    ) -> Result<u64, SpaceError> {
        let mut restored = Units::default();
        for unit in self.with_table(cached, |table| table.lost(target.units.clone())) {
            match self.decide_unit(target, cached, unit, Reason::Lost).await {
                Ok(is_restored) => restored.set(unit, is_restored),
                Err(SpaceError::Unavailable { .. } | SpaceError::Disk { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if !restored.is_empty() {
            self.confirm_decisions(target, cached, restored).await?;
        }
        // A write of a restored unit may have failed.
        while self.with_table(cached, |table| table.has_open(target.units.clone())) {
            self.decide(target, cached).await?;
        }
        Ok(restored.iter().count() as u64)
    }

    /// Decides one unit; returns whether the decision has to be confirmed.
    async fn decide_unit(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
        unit: usize,
        reason: Reason,
    ) -> Result<bool, SpaceError> {
        let target = target.only(unit);
        let snapshot = self.view.get();
        let Some(at) = route(&snapshot.value, target.key) else { return Ok(false) };
        if let Some(code) = at.code {
            if self.with_table(cached, |table| table.redo(unit).is_some()) {
                return self.place(&target, cached).await.map(|()| false);
            }
            return self.decide_stripe(&target, cached, &at, code, reason).await;
        }
        let Some(contents) = self.contents(&target, &at).await? else { return Ok(false) };
        let (candidates, former) = self.with_table(cached, |table| match reason {
            Reason::Open => (table.candidates(unit), table.former(unit)),
            Reason::Lost => (vec![table.values(unit)], SmallVec::new()),
        });
        let is_whole = contents.len() == at.members.iter().filter(|member| member.counts).count();
        let set = SetKey { row: target.key.row, birth: at.birth, set: target.key.set };
        let region = Regions::new(snapshot.value.slab_bytes).of_group(target.key.group);
        let content = ContentId { space: self.space(), birth: at.birth, content: target.column };
        let sum = |bytes: &[u8]| content.checksum(target.first(), bytes);
        let may_be_strange = reason == Reason::Open
            && self.active.has(set, region)
            && self.with_table(cached, |table| table.is_firm(unit));
        let one: Units = std::iter::once(unit).collect();
        let mut decision = choose(&candidates, &former, &contents, may_be_strange, sum);
        if decision.is_none() {
            let Some(mut stale) = self.stale_units(&target, &at, cached, &one).await? else {
                return Ok(false);
            };
            decision = stale.pop().flatten().map(Decision::Bytes);
        }
        let decision = match decision {
            Some(decision) => decision,
            None if reason == Reason::Lost => return Ok(false),
            // An absent disk may have one of the candidates.
            None if !is_whole => return Err(unavailable(target.key.row, &at.members)),
            None => {
                self.report_lost_units(&at.members, &target, &one);
                Decision::Value(lost(&candidates))
            }
        };
        if let Decision::Bytes(bytes) = &decision {
            let is_candidate = |values: &Values| matches!(values[0], Value::Written(wanted) | Value::Lost(wanted) if wanted == sum(bytes));
            if !candidates.iter().any(is_candidate) {
                let of =
                    contents.iter().find(|(_, other)| other.as_ref().is_some_and(|b| b[..] == bytes[..]));
                of.iter().for_each(|(member, _)| {
                    self.report_damage(DamageKind::Unsettled, member.disk, &target, unit)
                });
            }
            // Copies of a unit that was being written at a power failure may legitimately differ.
            let may_differ = may_be_strange || !self.with_table(cached, |table| table.is_known(unit));
            for (member, other) in &contents {
                match other {
                    None => self.report_damage(DamageKind::Unreadable, member.disk, &target, unit),
                    Some(other) if may_differ || other[..] == bytes[..] => {}
                    Some(_) => self.report_damage(DamageKind::Healed, member.disk, &target, unit),
                }
            }
        }
        match decision {
            Decision::Bytes(bytes)
                if self.with_table(cached, |table| {
                    // All copies are equal and known: no report and no write is needed.
                    let is_equal = contents
                        .iter()
                        .all(|(_, other)| other.as_ref().is_some_and(|other| other[..] == bytes[..]));
                    let is_known =
                        table.is_known(unit) && table.value(0, unit) == Value::Written(sum(&bytes));
                    if is_known && is_equal {
                        table.resolve(unit);
                    }
                    is_known && is_equal
                }) =>
            {
                Ok(false)
            }
            Decision::Bytes(bytes) => {
                let sums = content.checksums(target.first(), [&bytes[..]]);
                self.write_decision(&target, NewData::Copies(Sg::from_iter([bytes]), sums)).await
            }
            Decision::Value(value) => {
                self.set_decided(cached, unit, smallvec![value]);
                Ok(true)
            }
        }
    }

    /// Writes a decision to the disks; returns whether it has to be confirmed. If not, the caller checks again.
    pub(crate) async fn write_decision(
        self: &Arc<Inner>,
        target: &Target,
        new: NewData,
    ) -> Result<bool, SpaceError> {
        let begun = match self.begin(target, WriteKind::Decision) {
            Ok(begun) => begun,
            Err(Blocked::Unavailable(error)) => return Err(error),
            Err(Blocked::Disk(member)) => return self.port(&member).await.map(|_| false),
            Err(_) => return Ok(false),
        };
        let change = Change { inner: Arc::clone(self), target: target.clone(), begun, permit: None };
        Ok(change.begin(new).await? != ChangeOutcome::ToRepeat)
    }

    /// Waits until decisions and their data are durable.
    pub(crate) async fn confirm_decisions(
        &self,
        target: &Target,
        cached: &Arc<Cached>,
        units: Units,
    ) -> Result<(), SpaceError> {
        loop {
            self.waiting_groups.add_urgent(cached);
            let Some(at) = route(&self.view.get().value, target.key) else { return Ok(()) };
            let disks = at.members.iter().map(|member| member.disk).collect();
            self.confirmed(self.log().flush(FlushSet { everything: false, disks })).await?;
            if !self.with_table(cached, |table| units.iter().any(|unit| table.waits(unit))) {
                break;
            }
        }
        Ok(())
    }

    /// Sets a decision without a write to the disks: the values wait for a record.
    pub(crate) fn set_decided(&self, cached: &Arc<Cached>, unit: usize, values: Values) {
        self.with_table(cached, |table| table.set(unit, values));
        self.waiting_groups.add(cached);
    }

    /// Reads a unit from all complete copies that can be read; returns `None` if a disk was removed meanwhile.
    async fn contents(&self, target: &Target, at: &Route) -> Result<Option<Vec<Content>>, SpaceError> {
        let counting: Vec<&Member> = at.members.iter().filter(|member| member.counts).collect();
        let reads = counting.iter().map(|member| self.read_copy(target, member));
        let mut contents = Vec::new();
        for (member, read) in counting.iter().zip(join_all(reads).await) {
            match read? {
                ReadCopy::Bytes(mut bytes) => contents.push((**member, bytes.pop().flatten())),
                ReadCopy::Away | ReadCopy::Failed(_) => {}
                ReadCopy::Changed => return Ok(None),
            }
        }
        Ok(Some(contents))
    }

    /// Rule 21: reads units that no complete copy has from present copies that are not complete. Only bytes with the
    /// newest checksum are returned, and only if that checksum is certain, so that no old data is returned. An
    /// element is `None` if its unit is not wanted, or if no such copy has it. Returns `None` if a disk was removed
    /// meanwhile.
    pub(crate) async fn stale_units(
        &self,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
        wanted: &Units,
    ) -> Result<Option<Vec<Option<IoBuf>>>, SpaceError> {
        let (content, start) = (at.content(target.column), target.units.start);
        let of = ContentId { space: self.space(), birth: at.birth, content: target.column };
        let mut found: Vec<Option<IoBuf>> = vec![None; target.units.len()];
        let stale = |m: &&Member| !m.counts && m.membership.is_some() && usize::from(m.content) == content;
        for member in at.members.iter().filter(stale) {
            let sums: Vec<(usize, u32)> = self.with_table(cached, |table| {
                let lacking = wanted.iter().filter(|unit| found[unit - start].is_none());
                lacking.filter_map(|unit| Some((unit - start, table.certain_sum(content, unit)?))).collect()
            });
            if sums.is_empty() {
                break;
            }
            match self.read_copy(target, member).await? {
                ReadCopy::Bytes(mut bytes) => {
                    for (index, sum) in sums {
                        let is_newest =
                            |bytes: &IoBuf| of.checksum(target.first() + index as u32, bytes) == sum;
                        found[index] = bytes[index].take().filter(is_newest);
                    }
                }
                ReadCopy::Away | ReadCopy::Failed(_) => {}
                ReadCopy::Changed => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Reads units of one copy, into one buffer each.
    pub(crate) async fn read_copy(&self, target: &Target, member: &Member) -> Result<ReadCopy, SpaceError> {
        let Some(of) = member.membership else { return Ok(ReadCopy::Away) };
        let port = match self.port(member).await {
            Ok(Some(port)) => port,
            Ok(None) => return Ok(ReadCopy::Changed),
            Err(SpaceError::Disk { error, .. }) => return Ok(ReadCopy::Failed(error)),
            Err(error) => return Err(error),
        };
        let (units, offset) = (target.units.len(), member.data + target.offset());
        let mut buffers = arena::SgMut::new();
        for _ in 0..units {
            buffers.extend(sized(self.arena.alloc_sg(BLOCK, Class::Control).await, BLOCK));
        }
        let (result, read) = port.read(offset, buffers).await;
        let error = match result {
            Ok(()) => {
                return Ok(ReadCopy::Bytes(read.into_iter().map(|buffer| Some(buffer.freeze())).collect()));
            }
            Err(DiskError::Medium { .. }) if units == 1 => return Ok(ReadCopy::Bytes(vec![None])),
            Err(DiskError::Medium { .. }) => {
                // Other units may be readable: reads them one by one.
                let mut all = Vec::new();
                for unit in target.units.clone() {
                    let one = Target { units: unit..unit + 1, ..target.clone() };
                    match Box::pin(self.read_copy(&one, member)).await? {
                        ReadCopy::Bytes(bytes) => all.extend(bytes),
                        other => return Ok(other),
                    }
                }
                return Ok(ReadCopy::Bytes(all));
            }
            Err(error) => error,
        };
        let reported = match self.ports.has_failed(&port) {
            true => ReportOutcome::Needed,
            false => self.report(member.disk, of, Absence::Gone, error).await?,
        };
        Ok(match (reported, error) {
            (ReportOutcome::Removed, _) => ReadCopy::Changed,
            // The disk could not be removed, or is being reopened.
            (ReportOutcome::Needed, DiskError::Timeout { .. }) => {
                self.env.sleep(RETRY).await;
                ReadCopy::Changed
            }
            (ReportOutcome::Needed, error) => ReadCopy::Failed(error),
        })
    }

    /// Rewrites a unit that is bad on a copy.
    pub(crate) async fn rewrite(&self, target: &Target, member: &Member, unit: usize, bytes: IoBuf) {
        let Some(port) = member.membership.and_then(|of| self.ports.get(member.disk, of)) else { return };
        let offset = member.data + unit as u64 * BLOCK as u64;
        if let Err(error) = port.write(offset, Sg::from_iter([bytes]), false).await {
            let row = target.key.row.0;
            tracing::warn!(disk = member.disk.0, row, unit, %error, "a damaged block could not be rewritten");
        }
    }
}

/// Chooses by rule 5; `None` if the contents match no candidate. Other contents are accepted only if
/// `may_be_strange`: the unit is firm and its region active, so an interrupted write may have left them. Contents
/// with a `former` checksum are from a rolled-back copy.
fn choose(
    candidates: &[Values],
    former: &[u32],
    contents: &[Content],
    may_be_strange: bool,
    sum: impl Fn(&[u8]) -> u32,
) -> Option<Decision> {
    let known = || contents.iter().filter_map(|(_, bytes)| bytes.as_ref()).map(|bytes| (sum(bytes), bytes));
    let matching = |values: &Values| match values[0] {
        Value::Written(wanted) | Value::Lost(wanted) => {
            known().find(|(found, _)| *found == wanted).map(|(_, bytes)| Decision::Bytes(bytes.clone()))
        }
        Value::Unwritten => Some(Decision::Value(Value::Unwritten)),
        Value::LostWithoutSum | Value::Unknown { .. } => None,
    };
    let (newest, older) = candidates.split_first()?;
    let is_known = |found: u32| {
        former.contains(&found)
            || candidates
                .iter()
                .any(|values| matches!(values[0], Value::Written(sum) | Value::Lost(sum) if sum == found))
    };
    let in_flight = || {
        let mut strange: Vec<_> = known().filter(|(found, _)| may_be_strange && !is_known(*found)).collect();
        let copies = |wanted: u32| known().filter(|(found, _)| *found == wanted).count();
        // The content with the most copies; among equals the first.
        strange.sort_by_key(|(found, _)| std::cmp::Reverse(copies(*found)));
        strange.first().map(|(_, bytes)| Decision::Bytes(IoBuf::clone(bytes)))
    };
    // An older value on a copy that was read proves that the newest was not acknowledged; an unreadable copy proves
    // nothing.
    let is_older = || known().next().is_some().then(|| older.iter().find_map(matching)).flatten();
    matching(newest).or_else(in_flight).or_else(is_older)
}

/// The value of a unit that no copy has.
fn lost(candidates: &[Values]) -> Value {
    match candidates[0][0] {
        Value::Written(sum) | Value::Lost(sum) => Value::Lost(sum),
        _ => Value::LostWithoutSum,
    }
}

#[cfg(test)]
mod tests;
