//! The versions of one unit whose newest value is not durably confirmed. Pure.

use std::ops::Range;

use arena::Sg;
use smallvec::{SmallVec, smallvec};

use super::{Carrier, Value, Values, is_written};

/// A value of the unit, and how durable it is.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) carrier: Carrier,
    pub(super) values: Values,
    /// The entry states only that it is unknown whether the unit has this value.
    pub(super) is_doubt: bool,
    /// Boxed, as few versions have one, and every recently written unit has a version.
    pub(super) redo: Option<Box<Payload>>,
}

/// The columns, as bits, whose units are not in place yet, and these units.
pub(super) type Payload = (u32, Sg);

impl Version {
    pub(super) fn new(carrier: Carrier, values: Values) -> Version {
        Version { carrier, values, is_doubt: false, redo: None }
    }

    /// Whether it is only a written value of one content that waits for a record.
    pub(super) fn only_waits(&self) -> bool {
        let is_plain = !self.is_doubt && self.redo.is_none() && self.carrier == Carrier::Waiting;
        is_plain && matches!(self.values[..], [Value::Written(_)])
    }
}

/// Invariants:
/// 1. The first version is the confirmed one; its carrier is a record until the confirmation itself is durable.
/// 2. The others are newer, oldest first; the last one is the newest.
/// 3. Waiting versions are the last ones: at most one with a value, one doubt before it and one after it.
/// 4. There is a second version, or the first has a record or payload that is not in place: otherwise nothing is
///    pending.
/// 5. A version with a later doubt may not be on the disks: it is not confirmed before a newer value is.
/// 6. Of the versions in records, only the newest has payload. It includes the payload of earlier versions for each
///    column whose value has not changed, so each unit of payload has the checksum of its column.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) versions: SmallVec<[Version; 2]>,
    /// A block or a durably confirmed entry declares the unit written, and no later entry discards it (rule 2).
    pub(super) is_firm: bool,
}

impl Pending {
    pub(super) fn new(confirmed: Values) -> Pending {
        let is_firm = is_written(&confirmed);
        let first = Version::new(Carrier::Confirmed, confirmed);
        Pending { versions: smallvec![first], is_firm }
    }

    /// Adds the newest version. `is_part`: it belongs to the same entry as the previous version.
    pub(super) fn push(&mut self, mut version: Version, is_part: bool) {
        let (carrier, is_doubt) = (version.carrier, version.is_doubt);
        self.is_firm &= is_written(&version.values);
        if carrier != Carrier::Waiting {
            inherit(&mut self.versions, &mut version);
        }
        if carrier == Carrier::Confirmed {
            self.is_firm = is_written(&version.values);
            self.versions = smallvec![version];
            return;
        }
        // A waiting value is replaced by a newer one. A doubt stays: it also concerns values in records.
        if carrier == Carrier::Waiting {
            let doubt =
                self.versions.iter().rev().take_while(|v| v.carrier == carrier).find(|v| v.is_doubt).cloned();
            while self.versions.last().is_some_and(|v| v.carrier == carrier && (v.is_doubt || !is_doubt)) {
                self.versions.pop();
            }
            self.versions.extend(doubt.filter(|_| !is_doubt));
        }
        if is_part && !is_doubt && self.versions.last().is_some_and(|v| v.carrier == carrier && !v.is_doubt) {
            self.versions.pop();
        }
        self.versions.push(version);
        self.refresh();
    }

    /// Records that this record has these versions.
    pub(super) fn taken(&mut self, versions: Range<usize>, record: u64) {
        for at in versions {
            let (older, newer) = self.versions.split_at_mut(at);
            newer[0].carrier = Carrier::Record(record);
            inherit(older, &mut newer[0]);
        }
    }

    /// All records up to this one and their data are durable. Returns whether the confirmed value has changed.
    pub(super) fn confirm(&mut self, record: u64) -> bool {
        let is_in = |v: &Version| matches!(v.carrier, Carrier::Record(r) if r <= record);
        let newest = self.versions.iter().rposition(|v| v.is_doubt || is_in(v)).unwrap_or(0);
        let is_confirmed = newest > 0 && !self.versions[newest].is_doubt;
        if is_confirmed {
            self.versions.drain(..newest);
        }
        // The entry of the doubt is durable now, which does not end the doubt.
        for doubt in self.versions.iter_mut().filter(|v| is_in(v) && v.is_doubt) {
            if let Carrier::Record(record) = doubt.carrier {
                doubt.carrier = Carrier::Open(record);
            }
        }
        is_confirmed
    }

    /// All records up to this one are declared confirmed in a durable record.
    pub(super) fn settle(&mut self, record: u64) {
        if matches!(self.versions[0].carrier, Carrier::Record(r) if r <= record) {
            self.versions[0].carrier = Carrier::Confirmed;
        }
        self.refresh();
    }

    fn refresh(&mut self) {
        if self.versions[0].carrier == Carrier::Confirmed {
            self.is_firm = self.versions.iter().all(|v| v.is_doubt || is_written(&v.values));
        }
    }

    /// Whether nothing is pending: the newest value is durably confirmed, and in place.
    pub(super) fn is_over(&self) -> bool {
        let first = &self.versions[0];
        self.versions.len() == 1 && first.carrier == Carrier::Confirmed && first.redo.is_none()
    }

    /// The record with the newest value that does not wait, if that is a written one.
    pub(super) fn issued(&self) -> Option<u64> {
        let known = self.versions.iter().rfind(|v| v.carrier != Carrier::Waiting && !v.is_doubt);
        let record = |v: &Version| match v.carrier {
            Carrier::Record(record) | Carrier::Open(record) => record,
            Carrier::Confirmed | Carrier::Waiting => 0,
        };
        known.filter(|v| is_written(&v.values)).map(record)
    }

    /// Whether the confirmed value is that of a discard.
    pub(super) fn is_discarded(&self) -> bool {
        !is_written(&self.versions[0].values)
    }

    /// Whether a discard is not confirmed durably.
    pub(super) fn has_discard(&self) -> bool {
        let is_settled = |v: &Version| v.is_doubt || v.carrier == Carrier::Confirmed;
        self.versions.iter().any(|v| !is_settled(v) && !is_written(&v.values))
    }

    pub(super) fn is_open(&self) -> bool {
        self.versions.iter().any(|v| v.is_doubt || matches!(v.carrier, Carrier::Open(_)))
    }

    /// Whether the newest value has payload that is not in place.
    pub(super) fn has_redo(&self) -> bool {
        self.newest().is_some_and(|v| v.redo.is_some())
    }

    /// The newest version with a value.
    pub(super) fn newest(&self) -> Option<&Version> {
        self.versions.iter().rfind(|v| !v.is_doubt)
    }

    pub(super) fn waits(&self) -> bool {
        self.versions.last().is_some_and(|v| v.carrier == Carrier::Waiting)
    }

    /// The waiting versions that the next record takes: all up to the last doubt, and values after it if their disks
    /// are flushed, or they need no flush, such as redo and lost units.
    pub(super) fn next(&self, values: bool, is_flushed: bool) -> Range<usize> {
        let is_lost = |value: &Value| matches!(value, Value::Lost(_) | Value::LostWithoutSum);
        let needs_none = |before: &Version, last: &Version| {
            let mut values = before.values.iter().zip(&last.values);
            last.redo.is_some() || !self.is_open() && values.all(|(old, new)| old == new || is_lost(new))
        };
        let takes_all = match &self.versions[..] {
            [.., before, last] => values && (is_flushed || needs_none(before, last)),
            _ => false,
        };
        let waiting = self.versions.iter().take_while(|v| v.carrier != Carrier::Waiting).count();
        let doubt = self.versions.iter().rposition(|v| v.is_doubt).map_or(0, |at| at + 1);
        let until = if takes_all { self.versions.len() } else { doubt.max(waiting) };
        waiting..until.max(waiting)
    }

    /// Whether a record has a version that is not the confirmed one, or whose payload is not in place.
    pub(super) fn is_only_in_log(&self) -> bool {
        let is_base = |at: usize, v: &Version| at == 0 && v.redo.is_none();
        let mut taken = self.versions.iter().enumerate().filter(|(_, v)| v.carrier != Carrier::Waiting);
        taken.any(|(at, v)| !is_base(at, v))
    }
}

/// Invariant 6, for a version in a record.
fn inherit(older: &mut [Version], version: &mut Version) {
    if version.is_doubt {
        return;
    }
    let before = older.iter_mut().filter(|v| v.carrier != Carrier::Waiting);
    let (before, older) = before.filter_map(|v| Some((v.redo.take()?, &v.values))).next().unzip();
    let newer = version.redo.take();
    if before.is_none() && newer.is_none() {
        return;
    }
    let (old_columns, old) = before.map_or((0, Sg::new()), |redo| *redo);
    let (new_columns, new) = newer.map_or((0, Sg::new()), |redo| *redo);
    let (mut old, mut new) = (old.into_iter(), new.into_iter());
    let mut merged = (0, Sg::new());
    for (column, value) in version.values.iter().enumerate() {
        let sum = value.sum();
        let stays = older.is_some_and(|older| older[column].sum() == sum);
        let of_old = (old_columns & 1 << column != 0).then(|| old.next()).flatten().filter(|_| stays);
        let of_new = (new_columns & 1 << column != 0).then(|| new.next()).flatten();
        if let Some(unit) = of_new.or(of_old).filter(|_| sum.is_some()) {
            merged.0 |= 1 << column;
            merged.1.push(unit);
        }
    }
    version.redo = (merged.0 != 0).then(|| Box::new(merged));
}
