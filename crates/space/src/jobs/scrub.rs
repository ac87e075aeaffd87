//! Reads all copies, and writes anew what is damaged.

use std::sync::Arc;

use pool_seam::{GROUP_UNITS, Regions, RowNumber};

use super::Job;
use super::fill::CHUNK;
use crate::SpaceError;
use arena::IoBuf;

use crate::blocks::{ContentId, Units};
use crate::cache::Cached;
use crate::heal::ReadCopy;
use crate::locks::Mode;
use crate::owner::Inner;
use crate::table::Value;
use crate::view::{GroupKey, Route, route};
use crate::write::Target;

impl Job {
    /// Reads the copies of all rows, from one on.
    pub(super) async fn scrub(&mut self, from: RowNumber) -> Result<(), SpaceError> {
        let rows: Vec<RowNumber> = {
            let view = self.inner.view.get().value;
            let rows = view.record.rows.iter().map(|(row, _)| *row);
            rows.filter(|row| *row >= from && *row != RowNumber::LOG).collect()
        };
        let regions = Regions::new(self.inner.view.get().value.slab_bytes);
        let pieces: Vec<_> = rows
            .into_iter()
            .flat_map(|row| {
                (0..regions.count())
                    .flat_map(move |region| regions.groups(region))
                    .map(move |group| (row, group))
            })
            .collect();
        let mut next = 0;
        while next < pieces.len() {
            let turn = self.turn().await?;
            if turn == 0 {
                let rest = pieces[next..].iter().map(|(row, _)| (*row, 0)).collect::<Vec<_>>();
                self.leave(rest);
                return Ok(());
            }
            for (row, group) in &pieces[next..(next + turn).min(pieces.len())] {
                for set in self.inner.sets(*row) {
                    let (healed, lost) =
                        self.inner.scrub_group(GroupKey { row: *row, set, group: *group }).await?;
                    (self.done.healed, self.done.lost) = (self.done.healed + healed, self.done.lost + lost);
                    self.done.bytes += pool_seam::GROUP;
                }
            }
            next += turn;
        }
        Ok(())
    }
}

impl Inner {
    /// The sets of a row.
    pub(crate) fn sets(&self, row: RowNumber) -> std::ops::Range<u8> {
        let view = self.view.get().value;
        let Some(record) = view.record.rows.get(&row) else { return 0..0 };
        let resiliency = view.record.resiliency_of(record);
        if resiliency.is_parity() { 0..1 } else { 0..view.record.columns }
    }

    /// Units that were written anew, and those that no copy has.
    async fn scrub_group(self: &Arc<Inner>, key: GroupKey) -> Result<(u64, u64), SpaceError> {
        let (mut healed, mut lost) = (0, 0);
        for first in (0..GROUP_UNITS as usize).step_by(CHUNK) {
            let target = Target { key, column: key.set, units: first..first + CHUNK };
            let _lock = self.locks.lock(key, target.units.clone(), Mode::Exclusive).await;
            let Some(cached) = self.loaded(key).await? else { return Ok((healed, lost)) };
            while let Some(unit) =
                self.look(&cached, |table| target.units.clone().find(|unit| table.is_open(*unit)))
            {
                self.decide(&target, &cached, unit).await?;
            }
            let view = self.view.get().value;
            let Some(at) = route(&view, key) else { return Ok((healed, lost)) };
            if at.code.is_some() {
                let (h, l) = self.scrub_stripes(&target, &at, &cached).await?;
                (healed, lost) = (healed + h, lost + l);
                continue;
            }
            let content = ContentId { space: self.space(), birth: at.birth, content: target.column };
            let mut copies = Vec::new();
            for member in at.members.iter().filter(|member| member.counts) {
                match self.read_copy(&target, member).await? {
                    ReadCopy::Bytes(bytes) => copies.push((member, bytes.into_iter().map(Some).collect())),
                    ReadCopy::Damaged => copies.push((member, vec![None; target.units.len()])),
                    ReadCopy::Away | ReadCopy::Failed(_) | ReadCopy::Changed => {}
                }
            }
            for (at, unit) in target.units.clone().enumerate() {
                let Value::Written(sum) = self.look(&cached, |table| table.value(0, unit)) else { continue };
                let is_good =
                    |bytes: &&arena::IoBuf| content.checksum(target.first() + at as u32, bytes) == sum;
                let good = copies.iter().filter_map(|(_, bytes)| bytes[at].as_ref()).find(is_good).cloned();
                let bad = copies
                    .iter()
                    .filter(|(_, bytes)| !bytes[at].as_ref().is_some_and(|bytes| is_good(&bytes)));
                let bad: Vec<_> = bad.map(|(member, _)| **member).collect();
                match good {
                    Some(good) => {
                        for member in bad {
                            self.rewrite(&target, &member, unit, good.clone()).await;
                            healed += 1;
                        }
                    }
                    None if !copies.is_empty() => lost += 1,
                    None => {}
                }
            }
        }
        Ok((healed, lost))
    }

    /// The same of stripes, each content by itself.
    async fn scrub_stripes(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
    ) -> Result<(u64, u64), SpaceError> {
        let (mut healed, mut lost) = (0, 0);
        for content in 0..at.contents() {
            let written =
                |unit: &usize| matches!(self.look(cached, |t| t.value(content, *unit)), Value::Written(_));
            let wanted: Units = target.units.clone().filter(written).collect();
            if wanted.is_empty() {
                continue;
            }
            let target = Target { column: content as u8, ..target.clone() };
            let Some((units, rewritten)) = self.content_of(&target, at, cached, wanted).await? else {
                continue;
            };
            healed += rewritten;
            let is_lost = |(unit, bytes): &(usize, Option<IoBuf>)| {
                bytes.is_none() && wanted.has(target.units.start + unit)
            };
            lost += units.into_iter().enumerate().filter(is_lost).count() as u64;
        }
        Ok((healed, lost))
    }
}
