//! Decides which of its candidate values a stripe has: rule 5 of `docs/0004-spaces.md` ("Coded").

use std::sync::Arc;

use arena::{IoBuf, Sg};
use futures_util::future::join_all;
use pool_seam::code::Code;
use pool_seam::{DamageKind, UNIT};

use super::{Columns, bits};
use crate::SpaceError;
use crate::blocks::ContentId;
use crate::cache::Cached;
use crate::flight::{NewData, Stripes};
use crate::heal::{ReadCopy, Reason};
use crate::owner::Inner;
use crate::table::{Value, Values};
use crate::view::{Member, Route};
use crate::write::{Target, unavailable};

/// A stripe as read from the disks.
struct Stripe<'a> {
    code: Code,
    /// The identity of content 0.
    of: ContentId,
    /// The unit, as in [`Target::first`].
    unit: u32,
    /// The complete copies that could be read, by content, with their bytes; `None` after a medium error.
    found: Vec<Vec<(&'a Member, Option<IoBuf>)>>,
    /// The number of complete copies of each content.
    counting: Vec<usize>,
    /// Units of copies that are not complete (rule 21).
    stale: Columns,
    zeros: IoBuf,
}

/// A candidate value of a stripe, the bytes found for it, and the contents that these bytes cover (bits).
struct Chosen {
    values: Values,
    bytes: Vec<Option<IoBuf>>,
    have: u32,
}

impl Stripe<'_> {
    fn is_whole(&self) -> bool {
        self.found.iter().zip(&self.counting).all(|(found, counting)| found.len() == *counting)
    }

    fn sum(&self, content: usize, bytes: &[u8]) -> u32 {
        ContentId { content: content as u8, ..self.of }.checksum(self.unit, bytes)
    }

    /// The bytes of a content that match this value; `None` if no copy has them.
    fn bytes_of(&self, content: usize, value: &Value) -> Option<IoBuf> {
        match *value {
            value if value.is_zeros() => Some(self.zeros.clone()),
            Value::Written(wanted) | Value::Lost(wanted) => {
                let found = self.found[content].iter().map(|(_, bytes)| bytes).chain(&self.stale[content]);
                found.flatten().find(|bytes| self.sum(content, bytes) == wanted).cloned()
            }
            _ => None,
        }
    }

    fn with(&self, values: &Values) -> Chosen {
        let bytes: Vec<_> =
            values.iter().enumerate().map(|(content, value)| self.bytes_of(content, value)).collect();
        let have = bits((0..bytes.len()).filter(|content| bytes[*content].is_some()));
        Chosen { values: values.clone(), bytes, have }
    }

    /// The first candidate that can be recovered from the columns. An older candidate that is unwritten is chosen
    /// only if a column was read: nothing else proves that no newer one is on the disks.
    fn choose(&self, candidates: &[Values]) -> Option<Chosen> {
        let is_read = self.found.iter().flatten().any(|(_, bytes)| bytes.is_some());
        candidates.iter().enumerate().find_map(|(which, values)| {
            let chosen = self.with(values);
            let is_it =
                if is_unwritten(values) { which == 0 || is_read } else { self.code.decodes(chosen.have) };
            is_it.then_some(chosen)
        })
    }

    /// A lost stripe of which single columns were found again; `None` if none was.
    fn restored(&self, values: &Values) -> Option<Chosen> {
        let chosen = self.with(values);
        let is_restored =
            |content: usize| matches!(values[content], Value::Lost(_)) && chosen.bytes[content].is_some();
        (0..self.code.data()).any(is_restored).then_some(chosen)
    }

    /// Whether the bytes of the data columns match the known checksums of the candidate.
    fn is_newest(&self, chosen: &Chosen) -> bool {
        (0..self.code.data()).all(|content| match (chosen.values[content], &chosen.bytes[content]) {
            (Value::Written(wanted) | Value::Lost(wanted), Some(bytes)) => self.sum(content, bytes) == wanted,
            _ => true,
        })
    }
}

fn is_unwritten(values: &Values) -> bool {
    values.iter().all(Value::is_zeros)
}

impl Inner {
    /// Decides the newest value of a stripe that can be recovered from its columns. Of a lost stripe (rule 21),
    /// single columns are restored, too. Returns whether the decision has to be confirmed. The caller has the
    /// stripe's exclusive lock.
    pub(crate) async fn decide_stripe(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
        at: &Route,
        code: Code,
        reason: Reason,
    ) -> Result<bool, SpaceError> {
        let unit = target.units.start;
        self.learn_blocks(target.key, at, cached, u32::MAX).await;
        let Some(mut stripe) = self.read_stripe(target, at, code).await? else { return Ok(false) };
        let candidates = self.with_table(cached, |table| match reason {
            Reason::Open => table.candidates(unit),
            Reason::Lost => vec![table.values(unit)],
        });
        let mut chosen = stripe.choose(&candidates);
        if chosen.is_none() {
            if !self.read_stale(target, at, cached, &mut stripe.stale).await? {
                return Ok(false);
            }
            chosen = stripe.choose(&candidates);
        }
        let mut chosen = match (chosen, reason) {
            (Some(chosen), _) => chosen,
            (None, Reason::Lost) => match stripe.restored(&candidates[0]) {
                Some(chosen) => chosen,
                None => return Ok(false),
            },
            // An absent disk may have one of the candidates.
            (None, Reason::Open) if !stripe.is_whole() => {
                return Err(unavailable(target.key.row, &at.members));
            }
            (None, Reason::Open) => {
                let values = self.lose_columns(target, at, &stripe, &candidates[0]);
                self.set_decided(cached, unit, values);
                return Ok(true);
            }
        };
        if is_unwritten(&chosen.values) {
            self.set_decided(cached, unit, chosen.values);
            return Ok(true);
        }
        let missing = code.all() & !chosen.have;
        if code.decodes(chosen.have) && !code.recover(UNIT as usize, &mut chosen.bytes, missing) {
            return Err(unavailable(target.key.row, &at.members));
        }
        if reason == Reason::Lost && !stripe.is_newest(&chosen) {
            return Ok(false);
        }
        let (parts, values) = self.differences(target, cached, &stripe, chosen);
        let is_known = self.with_table(cached, |table| table.is_known(unit) && table.values(unit) == values);
        if is_known && parts.iter().all(Option::is_none) {
            self.with_table(cached, |table| table.resolve(unit));
            return Ok(false);
        }
        self.write_decision(target, NewData::Stripes(Stripes { parts, values: Some(vec![values]) })).await
    }

    /// Reads all complete copies of a stripe; `None` if a disk was removed meanwhile.
    async fn read_stripe<'a>(
        &self,
        target: &Target,
        at: &'a Route,
        code: Code,
    ) -> Result<Option<Stripe<'a>>, SpaceError> {
        let counting: Vec<&Member> = at.members.iter().filter(|member| member.counts).collect();
        let mut stripe = Stripe {
            code,
            of: ContentId { space: self.space(), birth: at.birth, content: 0 },
            unit: target.first(),
            found: vec![Vec::new(); code.columns()],
            counting: vec![0; code.columns()],
            stale: vec![vec![None]; code.columns()],
            zeros: IoBuf::from(vec![0; UNIT as usize]),
        };
        let reads = join_all(counting.iter().map(|member| self.read_copy(target, member))).await;
        for (member, read) in counting.into_iter().zip(reads) {
            let content = usize::from(member.content);
            stripe.counting[content] += 1;
            match read? {
                ReadCopy::Bytes(mut bytes) => stripe.found[content].push((member, bytes.pop().flatten())),
                ReadCopy::Away | ReadCopy::Failed(_) => {}
                ReadCopy::Changed => return Ok(None),
            }
        }
        Ok(Some(stripe))
    }

    /// The values of a stripe that cannot be recovered: columns with the right checksum stay valid, the others are
    /// lost.
    fn lose_columns(&self, target: &Target, at: &Route, stripe: &Stripe<'_>, newest: &Values) -> Values {
        let mut values = newest.clone();
        for (content, value) in values.iter_mut().enumerate() {
            if let (Value::Written(wanted), None) = (*value, stripe.bytes_of(content, value)) {
                *value = Value::Lost(wanted);
                if content < stripe.code.data() {
                    let of = Target { column: content as u8, ..target.clone() };
                    self.report_lost_units(&at.members, &of, &std::iter::once(target.units.start).collect());
                }
            }
        }
        values
    }

    /// The bytes to write so that all columns have the chosen value, and the new values. Reports copies that differ.
    fn differences(
        &self,
        target: &Target,
        cached: &Arc<Cached>,
        stripe: &Stripe<'_>,
        chosen: Chosen,
    ) -> (Vec<Option<Sg>>, Values) {
        let unit = target.units.start;
        let may_differ = !self.with_table(cached, |table| table.is_known(unit));
        let Chosen { mut values, bytes, .. } = chosen;
        // A parity is written only where a data column is written.
        let mut parts: Vec<Option<Sg>> = vec![None; stripe.code.columns()];
        for (content, bytes) in bytes.into_iter().enumerate() {
            let Some(bytes) = bytes.filter(|_| !values[content].is_zeros()) else { continue };
            values[content] = Value::Written(stripe.sum(content, &bytes));
            let of = Target { column: content as u8, ..target.clone() };
            let mut is_everywhere = stripe.found[content].len() == stripe.counting[content];
            for (member, other) in &stripe.found[content] {
                let is_equal = other.as_ref().is_some_and(|other| other[..] == bytes[..]);
                is_everywhere &= is_equal;
                match other {
                    None => self.report_damage(DamageKind::Unreadable, member.disk, &of, unit),
                    Some(_) if may_differ || is_equal => {}
                    Some(_) => self.report_damage(DamageKind::Healed, member.disk, &of, unit),
                }
            }
            if !is_everywhere {
                parts[content] = Some(Sg::from_iter([bytes]));
            }
        }
        (parts, values)
    }
}
