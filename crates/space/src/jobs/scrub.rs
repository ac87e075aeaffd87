//! Reads all copies, and writes anew what is damaged.

use std::sync::Arc;

use arena::IoBuf;
use pool_seam::{GROUP, GROUP_UNITS, RowNumber};

use super::Job;
use super::fill::CHUNK;
use crate::SpaceError;
use crate::blocks::ContentId;
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
            // A new row holds nothing, and has no blocks yet (rule 18): its owner may have ended meanwhile.
            let rows = view.record.rows.iter().filter(|(_, record)| !record.is_new).map(|(row, _)| *row);
            rows.filter(|row| *row >= from && *row != RowNumber::LOG).collect()
        };
        let groups: Vec<GroupKey> = rows.into_iter().flat_map(|row| self.inner.groups(row)).collect();
        let mut left = &groups[..];
        while !left.is_empty() {
            let turn = self.turn().await?;
            if turn == 0 {
                self.leave(left.iter().map(|key| (key.row, 0)));
                return Ok(());
            }
            let (now, rest) = left.split_at(turn.min(left.len()));
            for key in now {
                let (healed, lost) = self.inner.scrub_group(*key).await?;
                (self.done.healed, self.done.lost) = (self.done.healed + healed, self.done.lost + lost);
                self.done.bytes += GROUP;
            }
            left = rest;
        }
        Ok(())
    }
}

impl Inner {
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
                let is_good = |bytes: &&IoBuf| content.checksum(target.first() + at as u32, bytes) == sum;
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

    /// The same of stripes.
    async fn scrub_stripes(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
    ) -> Result<(u64, u64), SpaceError> {
        let all = (1_u32 << at.contents()) - 1;
        let Some((columns, rewritten)) = self.columns(target, at, cached, all).await? else {
            return Ok((0, 0));
        };
        let is_written = |content: usize, unit: usize| {
            matches!(self.look(cached, |table| table.value(content, unit)), Value::Written(_))
        };
        let units = columns.iter().enumerate().flat_map(|(content, units)| {
            target.units.clone().zip(units).map(move |(unit, bytes)| (content, unit, bytes))
        });
        let lost = units.filter(|(content, unit, bytes)| bytes.is_none() && is_written(*content, *unit));
        Ok((rewritten, lost.count() as u64))
    }
}
