//! Stale copies of contents whose newest checksum is unknown, because their disk was removed before its block was
//! written. The other columns of the stripe prove whether such a copy is the newest (rule 21).

use arena::IoBuf;
use pool_seam::UNIT;
use pool_seam::code::Code;

use super::{Columns, bits};
use crate::SpaceError;
use crate::cache::Cached;
use crate::heal::ReadCopy;
use crate::owner::Inner;
use crate::table::Value;
use crate::view::{Member, Route};
use crate::write::Target;

impl Inner {
    /// Adds missing units of stale copies if the stripe proves that they are the newest. All complete copies were
    /// read before. Returns `false` if a disk was removed meanwhile.
    pub(super) async fn read_unknown(
        &self,
        target: &Target,
        at: &Route,
        cached: &Cached,
        columns: &mut Columns,
    ) -> Result<bool, SpaceError> {
        let code = at.code.expect("a coded row");
        let value = |content: usize, unit: usize| {
            self.with_table(cached, |table| table.value(content, target.units.start + unit))
        };
        let lacks = |columns: &Columns, content: usize, unit: usize| {
            columns[content][unit].is_none() && value(content, unit) == Value::Unknown { written: true }
        };
        let stale = |m: &&Member| !m.counts && m.membership.is_some();
        for member in at.members.iter().filter(stale) {
            let content = usize::from(member.content);
            let lacking: Vec<usize> =
                (0..target.units.len()).filter(|unit| lacks(columns, content, *unit)).collect();
            if lacking.is_empty() {
                continue;
            }
            let candidates = match self.read_copy(target, member).await? {
                ReadCopy::Bytes(candidates) => candidates,
                ReadCopy::Away | ReadCopy::Failed(_) => continue,
                ReadCopy::Changed => return Ok(false),
            };
            for unit in lacking {
                let stripe: Vec<_> = columns.iter().map(|column| column[unit].clone()).collect();
                let is_right = |other: usize, bytes: &IoBuf| {
                    let sum =
                        self.with_table(cached, |table| table.certain_sum(other, target.units.start + unit));
                    sum.is_some() && self.is_of_value(target, at.birth, cached, other, unit, bytes)
                };
                columns[content][unit] = candidates[unit]
                    .clone()
                    .filter(|bytes| is_proven(code, &stripe, content, bytes, is_right));
            }
        }
        Ok(true)
    }
}

/// Whether a unit of a content is right: another missing unit can be recovered with it, but not without it, and has
/// the right checksum. With a single wrong unit the recovered unit is always wrong, too.
fn is_proven(
    code: Code,
    stripe: &[Option<IoBuf>],
    content: usize,
    bytes: &IoBuf,
    is_right: impl Fn(usize, &IoBuf) -> bool,
) -> bool {
    let have = bits((0..stripe.len()).filter(|other| stripe[*other].is_some()));
    (0..stripe.len()).filter(|other| *other != content && have & 1 << other == 0).any(|other| {
        let recovered = |with: Option<&IoBuf>| {
            let mut stripe = stripe.to_vec();
            stripe[content] = with.cloned();
            code.recover(UNIT as usize, &mut stripe, 1 << other).then(|| stripe.swap_remove(other)).flatten()
        };
        recovered(None).is_none() && recovered(Some(bytes)).is_some_and(|bytes| is_right(other, &bytes))
    })
}
