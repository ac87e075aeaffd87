//! Caching rights on one stream: oplocks and leases (MS-SMB2 3.3.1.4, MS-FSA 2.1.4.12, 2.1.5.18, 2.1.5.19).
//!
//! Both are modelled as a *holder* with a state of read (R), write (W) and handle (H) caching. An oplock's holder is
//! one open: LEVEL_II is R, EXCLUSIVE is RW, BATCH is RWH. A lease's holder is a lease key of a client, shared by all
//! opens that name it. The code is pure: it decides what an operation breaks, whether the operation waits, and what a
//! new open is granted. The caller sends the notices and calls again when something changed.
//!
//! Invariants:
//! 1. If there is more than one holder, none has W.
//! 2. A state is none, R, RW, RH or RWH; of an oplock that is breaking or held: R, RW or RWH.
//! 3. `breaking` is set only while the client owes an acknowledgement; `breaking.must` is a subset of `breaking.to`,
//!    which is a proper subset of `state`.

use std::time::Duration;

use env::Moment;
use smb_wire::Guid;
use smb_wire::msg::{LeaseKey, LeaseState, OplockLevel};

const R: LeaseState = LeaseState::READ_CACHING;
const W: LeaseState = LeaseState::WRITE_CACHING;
const H: LeaseState = LeaseState::HANDLE_CACHING;
const NONE: LeaseState = LeaseState::empty();

/// How long a client may take to acknowledge (MS-SMB2 3.3.4.6, 3.3.4.7: Windows' timeout).
pub(crate) const ACKNOWLEDGE: Duration = Duration::from_secs(35);
/// The same timeout for a persistent open: for its oplock, and for its lease.
pub(crate) const ACKNOWLEDGE_PERSISTENT_OPLOCK: Duration = Duration::from_secs(60);
pub(crate) const ACKNOWLEDGE_PERSISTENT_LEASE: Duration = Duration::from_secs(180);

/// The number that a restart adds to the epoch of a lease whose breaks may have been missed.
const MISSED_BREAKS: u16 = 2;

/// The identifier of a lease: lease keys are per client (MS-SMB2 3.3.1.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId {
    pub(crate) client: Guid,
    pub(crate) key: LeaseKey,
}

/// The identifier of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HolderId {
    /// An open with an oplock: the persistent half of its FileId.
    Oplock(u64),
    Lease(LeaseId),
}

/// The caching rights that a CREATE requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachingRequest {
    Nothing,
    Oplock(OplockLevel),
    Lease(LeaseRequest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) id: LeaseId,
    pub(crate) state: LeaseState,
    pub(crate) version: LeaseVersion,
}

/// Version 1 or 2 of a lease (MS-SMB2 3.3.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseVersion {
    V1,
    V2 { parent: Option<LeaseKey>, epoch: u16 },
}

/// An operation, by the caching rights of others that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An open with access to more than the attributes and the security descriptor.
    Open { overwrites: bool },
    /// An open with access to attributes and the security descriptor only: it breaks oplocks, but not leases.
    OpenSecurity,
    /// An open whose share mode conflicts with another open: clients must close cached handles.
    Sharing { overwrites: bool },
    /// Data or the size changes, or a byte-range lock is taken. The operation does not wait for acknowledgements.
    Data,
    /// The file is renamed, gets another name, or is to be deleted.
    Names,
    /// An entry of the directory changes, through an open with this ParentLeaseKey. The change does not wait for
    /// acknowledgements.
    Entries { parent_lease: Option<LeaseKey> },
}

impl Operation {
    /// The rights that others lose, and those whose break the operation must wait for.
    fn takes(self) -> (LeaseState, LeaseState) {
        match self {
            Operation::Open { overwrites: false } | Operation::OpenSecurity => (W, W),
            Operation::Open { overwrites: true } => (R | W | H, W),
            Operation::Sharing { overwrites: false } => (H, H),
            Operation::Sharing { overwrites: true } => (R | W | H, H),
            Operation::Data | Operation::Entries { .. } => (R | W | H, NONE),
            Operation::Names => (H, H),
        }
    }
}

/// A break to notify a client of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) holder: HolderId,
    pub(crate) from: LeaseState,
    pub(crate) to: LeaseState,
    /// The client must acknowledge.
    pub(crate) acknowledge: bool,
    /// The epoch of a version 2 lease after the break, else 0.
    pub(crate) epoch: u16,
}

/// The result of [`Caching::contend`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    pub(crate) notices: Vec<Notice>,
    /// The file's counter of changes when this was computed.
    pub(crate) seen: u64,
    /// The operation waits for acknowledgements, until this time at most.
    pub(crate) wait_until: Option<Moment>,
}

/// The current state of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderState {
    /// The holder's number, unique in the server, so that holders can be compared with one load.
    pub(crate) token: u64,
    pub(crate) state: LeaseState,
    pub(crate) breaking: bool,
    pub(crate) version: LeaseVersion,
}

/// A holder from before the server's restart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoredHolder {
    pub(crate) id: HolderId,
    pub(crate) token: u64,
    pub(crate) state: LeaseState,
    pub(crate) version: LeaseVersion,
}

/// Why an acknowledgement is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcknowledgeError {
    /// No break is under way.
    NotBreaking,
    /// The client would keep more rights than the break allows.
    TooMuch,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Caching {
    holders: Vec<Holder>,
    /// Losses that are not stored yet, each holder once.
    unstored: Vec<Loss>,
    losses: u64,
}

/// A holder has lost rights: by an acknowledgement, by a missing one, or because its client cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) holder: HolderId,
    /// Distinguishes this loss from a later one of the same holder.
    number: u64,
}

#[derive(Debug)]
struct Holder {
    id: HolderId,
    token: u64,
    state: LeaseState,
    breaking: Option<Breaking>,
    version: LeaseVersion,
    /// Opens that share it.
    opens: usize,
    /// How long its client may take to acknowledge.
    acknowledge_timeout: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Breaking {
    /// The state before the break: an operation that waits for the first step waits for all steps.
    from: LeaseState,
    /// The most that the client may keep after this step, as in its notification.
    to: LeaseState,
    /// The most that it may keep in the end: later operations may have broken more.
    must: LeaseState,
    until: Moment,
}

/// Facts about the stream that decide what can be granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantConditions {
    /// Opens of other holders have it open for more than its attributes.
    pub(crate) others: bool,
    /// Some open holds byte-range locks.
    pub(crate) locked: bool,
    pub(crate) directory: bool,
}

impl Caching {
    /// Returns 0 if nothing is cached. Returns the holder's token if there is only one holder and its own changes do
    /// not break its rights. Otherwise returns `u64::MAX`.
    pub(crate) fn summary(&self) -> u64 {
        let mut caching = self.holders.iter().filter(|h| !h.state.is_empty());
        match (caching.next(), caching.next()) {
            (None, _) => 0,
            (Some(only), None) if !only.breaks_by_itself() => only.token,
            _ => u64::MAX,
        }
    }

    pub(crate) fn held(&self, id: HolderId) -> Option<HolderState> {
        self.holders.iter().find(|h| h.id == id).map(Holder::held)
    }

    /// Restores the caching rights of an open from before the server's restart; returns its holder's state.
    pub(crate) fn restore(&mut self, r: RestoredHolder) -> HolderState {
        if let Some(holder) = self.holders.iter_mut().find(|h| h.id == r.id) {
            // The records of a lease's opens were stored at different times: the lease has the state of the latest.
            holder.opens += 1;
            let (state, version) = restored(r);
            holder.state |= state;
            // The client knows the latest epoch, from whichever open.
            if let (LeaseVersion::V2 { epoch, .. }, LeaseVersion::V2 { epoch: of_this, .. }) =
                (&mut holder.version, version)
            {
                *epoch = if state.contains(W) { of_this } else { (*epoch).max(of_this) };
            }
        } else {
            self.holders.push(Holder::restored(r));
        }
        // A loss is stored before another holder is granted anything: only a damaged journal has a write-caching holder
        // beside others. Which of the records is stale is unknown: no holder keeps any right.
        if self.holders.len() > 1 && self.holders.iter().any(|h| h.state.contains(W)) {
            for holder in &mut self.holders {
                holder.state = NONE;
                holder.count_change();
            }
        }
        self.held(r.id).expect("restored")
    }

    /// Breaks the caching rights that conflict with an operation of `by`.
    pub(crate) fn contend(&mut self, by: Option<HolderId>, operation: Operation, now: Moment) -> Contention {
        self.expire(now);
        let (takes, waits) = operation.takes();
        let mut result = Contention::default();
        let spares_leases = operation == Operation::OpenSecurity;
        let concerns = |h: &&mut Holder| match operation {
            // The client that holds the lease made the change (MS-FSA 2.1.4.12.2: equal keys).
            Operation::Entries { parent_lease } => parent_lease.is_none_or(|key| !h.is_lease_of(key)),
            _ if Some(h.id) == by => operation == Operation::Data && h.breaks_by_itself(),
            _ => !spares_leases || h.is_oplock(),
        };
        for holder in self.holders.iter_mut().filter(concerns) {
            result.notices.extend(holder.give_up(takes, now));
            if let Some(breaking) = holder.breaking.filter(|b| b.from.intersects(waits)) {
                let until = result.wait_until.map_or(breaking.until, |u| u.max(breaking.until));
                result.wait_until = Some(until);
            }
        }
        self.holders.retain(|h| !h.is_over());
        result
    }

    /// Adds an open to its holder, or creates one, and grants what the conditions allow (MS-FSA 2.1.5.18). The breaks
    /// that [`Caching::contend`] reported must be complete.
    pub(crate) fn grant(
        &mut self,
        open: u64,
        caching_request: CachingRequest,
        s: GrantConditions,
        token: u64,
        acknowledge_timeout: Option<Duration>,
    ) -> Option<(HolderId, HolderState)> {
        let id = match caching_request {
            CachingRequest::Nothing => return None,
            CachingRequest::Oplock(_) => HolderId::Oplock(open),
            CachingRequest::Lease(l) => HolderId::Lease(l.id),
        };
        let granted = self.grantable(id, caching_request, s);
        if let Some(holder) = self.holders.iter_mut().find(|h| h.id == id) {
            holder.opens += 1;
            let wanted = if let CachingRequest::Lease(l) = caching_request { l.state } else { NONE };
            // MS-SMB2 3.3.5.9.8: promoted only to a superset, in full, and not while it breaks.
            let promotes = wanted.contains(holder.state) && granted == wanted && granted != holder.state;
            if promotes && holder.breaking.is_none() {
                holder.state = granted;
                holder.count_change();
            }
            return Some((id, holder.held()));
        }
        let version = match caching_request {
            CachingRequest::Lease(LeaseRequest { version: LeaseVersion::V2 { parent, epoch }, .. }) => {
                LeaseVersion::V2 { parent, epoch: epoch.wrapping_add(1) }
            }
            _ => LeaseVersion::V1,
        };
        if matches!(caching_request, CachingRequest::Oplock(_)) && granted.is_empty() {
            return None;
        }
        let acknowledge_timeout = acknowledge_timeout.unwrap_or(ACKNOWLEDGE);
        let holder =
            Holder { id, token, state: granted, breaking: None, version, opens: 1, acknowledge_timeout };
        let held = holder.held();
        self.holders.push(holder);
        Some((id, held))
    }

    fn grantable(&self, id: HolderId, caching_request: CachingRequest, s: GrantConditions) -> LeaseState {
        let others = || self.holders.iter().filter(|h| h.id != id && !h.state.is_empty());
        let is_lease = |h: &Holder| matches!(h.id, HolderId::Lease(_));
        let mut state = match caching_request {
            CachingRequest::Nothing => NONE,
            CachingRequest::Oplock(_) if s.directory => NONE,
            CachingRequest::Oplock(level) => state_of(level),
            CachingRequest::Lease(l) => l.state & (R | W | H),
        };
        if s.directory {
            state &= !W;
        }
        // Without R nothing is granted; byte-range locks, and a holder that caches writes, exclude read caching.
        if !state.contains(R) || s.locked || others().any(|h| h.state.contains(W)) {
            return NONE;
        }
        if s.others || others().next().is_some() {
            state &= !W;
        }
        match caching_request {
            // An oplock is not granted beside a lease with handle caching, which would need the break of a lease.
            CachingRequest::Oplock(_) if others().any(|h| is_lease(h) && h.state.contains(H)) => NONE,
            CachingRequest::Oplock(_) if state != R | W && state != R | W | H => R,
            CachingRequest::Lease(_) if others().any(|h| !is_lease(h)) => state & !H,
            _ => state,
        }
    }

    /// Removes an open from its holder; true when it was the last one and the holder is removed.
    pub(crate) fn leave(&mut self, id: HolderId) -> bool {
        let at = self.holders.iter().position(|h| h.id == id);
        if let Some(at) = at {
            self.holders[at].opens -= 1;
            if self.holders[at].opens > 0 {
                return false;
            }
            self.holders.swap_remove(at);
        }
        self.unstored.retain(|l| l.holder != id);
        true
    }

    /// A client acknowledges, and keeps `kept`. Returns another notice if later operations need a further break
    /// (MS-SMB2 3.3.5.22).
    ///
    /// # Errors
    /// See [`AcknowledgeError`].
    pub(crate) fn acknowledge(
        &mut self,
        id: HolderId,
        kept: LeaseState,
        now: Moment,
    ) -> Result<Option<Notice>, AcknowledgeError> {
        self.expire(now);
        let holder = self.holders.iter_mut().find(|h| h.id == id).ok_or(AcknowledgeError::NotBreaking)?;
        let breaking = holder.breaking.ok_or(AcknowledgeError::NotBreaking)?;
        if !breaking.to.contains(kept) {
            return Err(AcknowledgeError::TooMuch);
        }
        holder.breaking = None;
        holder.state = kept;
        let notice = if breaking.must.contains(kept) { None } else { Some(holder.step_down(breaking, now)) };
        self.holders.retain(|h| !h.is_over());
        self.note_loss(id);
        Ok(notice)
    }

    fn note_loss(&mut self, holder: HolderId) {
        self.losses += 1;
        self.unstored.retain(|l| l.holder != holder);
        self.unstored.push(Loss { holder, number: self.losses });
    }

    /// The losses that must be stored before an operation relies on them.
    pub(crate) fn unstored_losses(&self) -> &[Loss] {
        &self.unstored
    }

    /// A loss was stored in the records of the holder's opens.
    pub(crate) fn loss_is_stored(&mut self, loss: Loss) {
        self.unstored.retain(|l| *l != loss);
    }

    /// The client of a holder is disconnected: it cannot acknowledge, and its timer starts when it reconnects
    /// ([`Caching::resend_notice`]). Before `until` it reconnects, or its opens are closed.
    pub(crate) fn suspend(&mut self, id: HolderId, until: Moment) {
        let holder = self.holders.iter_mut().find(|h| h.id == id);
        if let Some(breaking) = holder.and_then(|h| h.breaking.as_mut()) {
            breaking.until = breaking.until.max(until);
        }
    }

    /// The notice of a break in progress, for a client that has reconnected. The acknowledgement timer starts again.
    pub(crate) fn resend_notice(&mut self, id: HolderId, now: Moment) -> Option<Notice> {
        let holder = self.holders.iter_mut().find(|h| h.id == id)?;
        let breaking = holder.breaking.as_mut()?;
        breaking.until = now.after(holder.acknowledge_timeout);
        let epoch = if let LeaseVersion::V2 { epoch, .. } = holder.version { epoch } else { 0 };
        Some(Notice { holder: id, from: holder.state, to: breaking.to, acknowledge: true, epoch })
    }

    /// The client cannot be reached, or its acknowledgement was invalid: the holder loses all its rights.
    pub(crate) fn revoke(&mut self, id: HolderId) {
        if let Some(holder) = self.holders.iter_mut().find(|h| h.id == id) {
            (holder.state, holder.breaking) = (NONE, None);
            holder.count_change();
            self.note_loss(id);
        }
        self.holders.retain(|h| !h.is_over());
    }

    /// Holders whose clients did not acknowledge in time lose all their rights (MS-SMB2 3.3.6.1, 3.3.6.5).
    fn expire(&mut self, now: Moment) {
        while let Some(holder) = self.holders.iter_mut().find(|h| h.breaking.is_some_and(|b| b.until <= now))
        {
            (holder.state, holder.breaking) = (NONE, None);
            holder.count_change();
            let id = holder.id;
            self.note_loss(id);
        }
        self.holders.retain(|h| !h.is_over());
    }
}

/// The state of a holder after a restart, from its record. Breaks of R by changes of data need no acknowledgement, and
/// are not stored: where the holder has no W, other opens may have changed the data since its record was stored. An
/// epoch that is ahead by more than one makes the client purge its cache (MS-SMB2 3.2.5.7.5); a client without epochs
/// caches nothing until it asks again.
fn restored(r: RestoredHolder) -> (LeaseState, LeaseVersion) {
    match r.version {
        _ if r.state.contains(W) => (r.state, r.version),
        LeaseVersion::V2 { parent, epoch } => {
            (r.state, LeaseVersion::V2 { parent, epoch: epoch.wrapping_add(MISSED_BREAKS) })
        }
        LeaseVersion::V1 => (NONE, LeaseVersion::V1),
    }
}

impl Holder {
    fn restored(r: RestoredHolder) -> Holder {
        let acknowledge_timeout = match r.id {
            HolderId::Oplock(_) => ACKNOWLEDGE_PERSISTENT_OPLOCK,
            HolderId::Lease(_) => ACKNOWLEDGE_PERSISTENT_LEASE,
        };
        let RestoredHolder { id, token, .. } = r;
        let (state, version) = restored(r);
        Holder { id, token, state, breaking: None, version, opens: 1, acknowledge_timeout }
    }

    fn held(&self) -> HolderState {
        HolderState {
            token: self.token,
            state: self.state,
            breaking: self.breaking.is_some(),
            version: self.version,
        }
    }

    fn is_oplock(&self) -> bool {
        matches!(self.id, HolderId::Oplock(_))
    }

    fn is_lease_of(&self, key: LeaseKey) -> bool {
        matches!(self.id, HolderId::Lease(id) if id.key == key)
    }

    /// A change of data breaks LEVEL_II of all opens, the one that makes it included (MS-FSA 2.1.4.12, WRITE).
    fn breaks_by_itself(&self) -> bool {
        self.is_oplock() && self.state == R
    }

    /// An oplock that is broken to none is removed; a lease stays, and may be promoted again.
    fn is_over(&self) -> bool {
        self.is_oplock() && self.state.is_empty()
    }

    /// Removes the rights `takes`, at once or after the client's acknowledgement; returns the notice to send.
    fn give_up(&mut self, takes: LeaseState, now: Moment) -> Option<Notice> {
        let has = self.breaking.map_or(self.state, |b| b.must);
        let mut keeps = has & !takes;
        if !keeps.contains(R) {
            keeps = NONE;
        }
        if keeps == has {
            return None;
        }
        // An oplock breaks to LEVEL_II or to none.
        if self.is_oplock() {
            keeps &= R;
        }
        if let Some(breaking) = &mut self.breaking {
            breaking.must = keeps;
            return None;
        }
        Some(self.announce(keeps, keeps, now))
    }

    /// The next step of a break, from the acknowledged state towards `must`. As in Windows, H and W are broken first, R
    /// last.
    fn step_down(&mut self, before: Breaking, now: Moment) -> Notice {
        let must = before.must;
        let to = if self.state.intersects(W | H) && !self.is_oplock() { must | R } else { must };
        // The steps of one break are one change: the epoch stays.
        let version = self.version;
        let mut notice = self.announce(to & self.state, must, now);
        self.version = version;
        if let LeaseVersion::V2 { epoch, .. } = version {
            notice.epoch = epoch;
        }
        if let Some(breaking) = &mut self.breaking {
            breaking.from = before.from;
        }
        notice
    }

    fn announce(&mut self, to: LeaseState, must: LeaseState, now: Moment) -> Notice {
        let (from, acknowledge) = (self.state, self.state.intersects(W | H));
        if acknowledge {
            self.breaking = Some(Breaking { from, to, must, until: now.after(self.acknowledge_timeout) });
        } else {
            self.state = to;
        }
        let epoch = self.count_change();
        Notice { holder: self.id, from, to, acknowledge, epoch }
    }

    fn count_change(&mut self) -> u16 {
        match &mut self.version {
            LeaseVersion::V1 => 0,
            LeaseVersion::V2 { epoch, .. } => {
                *epoch = epoch.wrapping_add(1);
                *epoch
            }
        }
    }
}

/// The caching state of an oplock level.
pub(crate) fn state_of(level: OplockLevel) -> LeaseState {
    match level {
        OplockLevel::BATCH => R | W | H,
        OplockLevel::EXCLUSIVE => R | W,
        OplockLevel::LEVEL_II => R,
        _ => NONE,
    }
}

/// The oplock level of a caching state.
pub(crate) fn level_of(state: LeaseState) -> OplockLevel {
    match state {
        s if s.contains(R | W | H) => OplockLevel::BATCH,
        s if s.contains(R | W) => OplockLevel::EXCLUSIVE,
        s if s.contains(R) => OplockLevel::LEVEL_II,
        _ => OplockLevel::NONE,
    }
}

#[cfg(test)]
mod tests;
