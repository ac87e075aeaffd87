//! The values of one unit of which the newest is not confirmed durably. Pure.

use smallvec::{SmallVec, smallvec};

use super::{Carrier, Values, is_written};

/// A value that the unit was given, and how much of that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) carrier: Carrier,
    pub(super) values: Values,
    /// The entry says only that it is not known whether the unit has this value.
    pub(super) is_doubt: bool,
}

/// Invariants:
/// 1. The first version is the confirmed one; its carrier is a record until the confirmation itself is durable.
/// 2. The others are newer, oldest first; the last one is the newest.
/// 3. Waiting versions are the last ones: at most one with a value, and a doubt of it.
/// 4. There is a second version, or the first has a record: otherwise nothing is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) versions: SmallVec<[Version; 2]>,
    /// A block or a durably confirmed entry calls the unit written, and no entry since discards it (rule 2).
    pub(super) is_firm: bool,
}

impl Pending {
    pub(super) fn new(confirmed: Values) -> Pending {
        let is_firm = is_written(&confirmed);
        let first = Version { carrier: Carrier::Confirmed, values: confirmed, is_doubt: false };
        Pending { versions: smallvec![first], is_firm }
    }

    /// Adds the newest version. A part is of the entry that gave the unit its newest version.
    pub(super) fn push(&mut self, version: Version, is_part: bool) {
        let (carrier, is_doubt) = (version.carrier, version.is_doubt);
        self.is_firm &= is_written(&version.values);
        if carrier == Carrier::Confirmed {
            self.is_firm = is_written(&version.values);
            self.versions = smallvec![version];
            return;
        }
        // A value that waits is replaced by a newer one. A doubt is beside the value that it is about.
        let waits = |v: &Version| v.carrier == Carrier::Waiting && carrier == v.carrier;
        while self.versions.last().is_some_and(|v| waits(v) && (v.is_doubt || !is_doubt)) {
            self.versions.pop();
        }
        if is_part && !is_doubt && self.versions.last().is_some_and(|v| v.carrier == carrier && !v.is_doubt) {
            self.versions.pop();
        }
        self.versions.push(version);
    }

    /// All records up to this one are durable, and the data that they are about.
    pub(super) fn confirm(&mut self, record: u64) {
        let is_in = |v: &Version| matches!(v.carrier, Carrier::Record(r) if r <= record);
        if let Some(at) = self.versions.iter().rposition(|v| is_in(v) && !v.is_doubt) {
            self.versions.drain(..at);
        }
        // That it is in doubt is durable now, which does not end the doubt.
        for doubt in self.versions.iter_mut().filter(|v| is_in(v) && v.is_doubt) {
            if let Carrier::Record(record) = doubt.carrier {
                doubt.carrier = Carrier::Open(record);
            }
        }
    }

    /// A durable record says that all records up to this one are confirmed.
    pub(super) fn settle(&mut self, record: u64) {
        if matches!(self.versions[0].carrier, Carrier::Record(r) if r <= record) {
            self.versions[0].carrier = Carrier::Confirmed;
        }
        if self.versions[0].carrier == Carrier::Confirmed {
            self.is_firm = self.versions.iter().all(|v| is_written(&v.values));
        }
    }

    /// Nothing is pending: the newest value is confirmed durably.
    pub(super) fn is_over(&self) -> bool {
        self.versions.len() == 1 && self.versions[0].carrier == Carrier::Confirmed
    }

    /// Whether a discard is not confirmed durably.
    pub(super) fn has_discard(&self) -> bool {
        let is_settled = |v: &Version| v.is_doubt || v.carrier == Carrier::Confirmed;
        self.versions.iter().any(|v| !is_settled(v) && !is_written(&v.values))
    }

    pub(super) fn is_open(&self) -> bool {
        self.versions.iter().any(|v| v.is_doubt || matches!(v.carrier, Carrier::Open(_)))
    }
}
