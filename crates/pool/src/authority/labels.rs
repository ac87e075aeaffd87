//! The claims on the pool's own disks, one in two places on each voter: an authority for one machine.
//!
//! Any two sets of voters that may open the pool have a voter in common, and a record needs one voter of every set that
//! may open it ([`crate::voters`]). So when an owner finds its claim on as many voters as a record needs, no other
//! process has completed a later claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskError};
use env::{BoxFuture, Epoch};
use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use parking_lot::RwLock;

use super::{AuthorityValue, CasError, InForce, Lease, PoolAuthority, Quorum, Revision};
use crate::format::{Areas, Claim, FrameError};
use crate::metadata::{DiskIo, Member, Members};
use crate::{DiskNumber, PoolId};

/// The delay before a written claim is read again: longer than another claimant takes between reading the claims and
/// writing its own.
const CLAIM_SETTLES: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct Labels(Arc<Inner>);

struct Inner {
    io: DiskIo,
    pool: PoolId,
    lease: Arc<Lease>,
    /// The newest claims when the metadata was read.
    found: BTreeMap<DiskNumber, Claim>,
    state: RwLock<State>,
}

#[derive(Clone, Default)]
struct State {
    /// This holder's claim, once it has one.
    mine: Option<Claim>,
    /// The voters that have stored this claim.
    have: BTreeSet<DiskNumber>,
    in_force: InForce,
}

impl Labels {
    /// An authority for a pool on these disks, with the claims found there.
    pub(crate) fn new(
        io: &DiskIo,
        pool: PoolId,
        members: Members,
        found: BTreeMap<DiskNumber, Claim>,
    ) -> Arc<Labels> {
        let state = State {
            in_force: InForce { members: Arc::new(members), voters: Vec::new() },
            ..State::default()
        };
        let (io, lease, state) = (io.clone(), Lease::new(), RwLock::new(state));
        Arc::new(Labels(Arc::new(Inner { io, pool, lease, found, state })))
    }

    /// The voters that have stored this holder's claim.
    pub(crate) fn claimed(&self) -> BTreeSet<DiskNumber> {
        self.0.state.read().have.clone()
    }
}

impl PoolAuthority for Labels {
    /// Reads the newest claim; after this holder has claimed, verifies that its claim is on enough voters.
    fn read(&self) -> BoxFuture<Result<(Revision, AuthorityValue), CasError>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.read().await })
    }

    /// Claims a higher epoch. With the same epoch it only verifies the claim, and writes it to joining voters: the next
    /// record decides.
    fn compare_and_set(
        &self,
        expected: Revision,
        value: AuthorityValue,
    ) -> BoxFuture<Result<Revision, CasError>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            match value.epoch > expected.0 {
                true => inner.claim(value).await,
                false => inner.keep(value).await,
            }
        })
    }

    fn quorum(&self) -> Quorum {
        Quorum::Voters
    }

    fn lease(&self) -> &Arc<Lease> {
        &self.0.lease
    }

    fn set_in_force(&self, new: InForce) {
        self.0.state.write().in_force = new;
    }

    fn repair(&self) -> BoxFuture<Result<BTreeMap<DiskNumber, u64>, CasError>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.repair().await })
    }
}

impl Inner {
    async fn read(&self) -> Result<(Revision, AuthorityValue), CasError> {
        let (mine, have) = {
            let state = self.state.read();
            (state.mine.clone(), state.have.clone())
        };
        let Some(mine) = mine else {
            let newest = self.found.values().max_by_key(|c| (c.epoch, c.exported));
            return Ok(
                newest.map_or_else(Default::default, |c| (Revision(c.epoch), value_of(c, BTreeSet::new())))
            );
        };
        let began = self.io.env.boot_ns();
        self.verify(&mine).await?;
        self.lease.extend(began);
        Ok((Revision(mine.epoch), value_of(&mine, have)))
    }

    async fn claim(&self, value: AuthorityValue) -> Result<Revision, CasError> {
        let members = Arc::clone(&self.state.read().in_force.members);
        let voters: Vec<_> = value.voters.iter().filter_map(|d| members.get(*d)).collect();
        let now = join_all(voters.iter().map(|m| self.newest(m))).await;
        // Reading the metadata may have taken long. A later claim is detected here, before it is overwritten: its
        // owner may already have written.
        for (member, newest) in voters.iter().zip(&now) {
            let Ok((Some(newest), _)) = newest else { continue };
            if self.found.get(&member.number).is_none_or(|then| is_newer(newest, then)) {
                return Err(conflict(newest));
            }
        }
        let mine = self.claim_of(&value);
        self.state.write().mine = Some(mine.clone());
        let written = voters.iter().zip(&now).map(async |(member, newest)| {
            let last = newest.as_ref().map_or(0, |(c, _)| c.as_ref().map_or(0, |c| c.sequence));
            (member.number, self.write(member, &mine, last + 1).await)
        });
        let written = join_all(written).await;
        // The pool is being created: no other process knows it, and all its voters must store the claim.
        let first = value.epoch == 1;
        if let Some((disk, error)) = written.iter().find_map(|(d, r)| Some((*d, r.err()?))).filter(|_| first)
        {
            return Err(CasError::Disk { disk, error });
        }
        let have: BTreeSet<_> = written.iter().filter(|(_, r)| r.is_ok()).map(|(d, _)| *d).collect();
        self.state.write().have = have.clone();
        if first {
            return Ok(Revision(value.epoch));
        }
        // With concurrent claimants, each one that reads the other's claim withdraws.
        self.io.env.sleep(CLAIM_SETTLES).await;
        let mine = &mine;
        let again =
            voters.iter().filter(|m| have.contains(&m.number)).map(async |m| self.others(m, mine).await);
        match join_all(again).await.into_iter().flatten().next() {
            Some(other) => Err(conflict(&other)),
            None => Ok(Revision(value.epoch)),
        }
    }

    async fn keep(&self, value: AuthorityValue) -> Result<Revision, CasError> {
        let mine = self.claim_of(&value);
        let State { have, in_force: InForce { members, .. }, .. } = self.state.read().clone();
        let revision = Revision(mine.epoch);
        if mine.exported {
            // A voter that does not store the claim keeps the older claim of this epoch; the newest one is valid.
            let each = value.voters.iter().filter_map(|d| members.get(*d)).map(|m| self.rewrite(m, &mine));
            let (taken, refused): (Vec<_>, Vec<_>) =
                join_all(each).await.into_iter().partition(Result::is_ok);
            return match (taken.is_empty(), refused.into_iter().find_map(Result::err)) {
                (true, Some(error)) => Err(error),
                _ => Ok(revision),
            };
        }
        match self.verify(&mine).await {
            // The next record shows whether the voters suffice.
            Ok(()) | Err(CasError::Unreachable(_)) => {}
            Err(error) => return Err(error),
        }
        let mut failed = None;
        for member in value.voters.difference(&have).filter_map(|d| members.get(*d)) {
            match self.rewrite(member, &mine).await {
                Err(error @ CasError::Conflict(..)) => return Err(error),
                Err(error) => failed = Some(error),
                Ok(()) => drop(self.state.write().have.insert(member.number)),
            }
        }
        self.state.write().have.retain(|d| value.voters.contains(d));
        failed.map_or(Ok(revision), Err)
    }

    /// Checks that the claim is on as many voters of every set in force as a record needs. Waits for a hanging disk
    /// only if it is needed.
    async fn verify(&self, mine: &Claim) -> Result<(), CasError> {
        let InForce { members, voters } = self.state.read().in_force.clone();
        let asked: BTreeSet<_> = voters.iter().flat_map(|(set, _)| set).collect();
        let asked = asked.into_iter().filter_map(|d| members.get(*d));
        let mut reads: FuturesUnordered<_> = asked.map(async |m| (m.number, self.newest(m).await)).collect();
        let (mut ours, mut failed) = (BTreeSet::new(), Vec::new());
        while voters.iter().any(|(set, needed)| set.intersection(&ours).count() < *needed) {
            match reads.next().await {
                None => return Err(CasError::Unreachable(failed)),
                Some((_, Ok((Some(claim), _)))) if claim.is_after(mine) => return Err(conflict(&claim)),
                Some((disk, Ok((Some(claim), _)))) if claim.epoch == mine.epoch => drop(ours.insert(disk)),
                Some((_, Ok(_))) => {}
                Some((disk, Err(error))) => failed.push((disk, error)),
            }
        }
        Ok(())
    }

    async fn repair(&self) -> Result<BTreeMap<DiskNumber, u64>, CasError> {
        let State { mine, in_force, .. } = self.state.read().clone();
        let Some(mine) = mine else { return Ok(BTreeMap::new()) };
        let voters: BTreeSet<_> = in_force.voters.into_iter().flat_map(|(set, _)| set).collect();
        let mut found = BTreeMap::new();
        for member in voters.iter().filter_map(|d| in_force.members.get(*d)) {
            // A disk that does not respond is skipped; its I/O error is handled elsewhere.
            let Ok((newest, mut damaged)) = self.newest(member).await else { continue };
            if let Some(other) = newest.as_ref().filter(|c| c.is_after(&mine)) {
                return Err(conflict(other));
            }
            // This holder's claim was replaced by other bytes.
            damaged += u64::from(damaged == 0 && newest.is_none_or(|c| c.epoch < mine.epoch));
            if damaged > 0 {
                found.insert(member.number, damaged);
            }
        }
        for member in found.keys().filter_map(|d| in_force.members.get(*d)) {
            // Writes both places.
            for _ in 0..2 {
                self.rewrite(member, &mine).await?;
            }
        }
        Ok(found)
    }

    /// Writes a claim after reading the existing ones.
    async fn rewrite(&self, member: &Member, mine: &Claim) -> Result<(), CasError> {
        let failed = |e| CasError::Disk { disk: member.number, error: e };
        let last = match self.newest(member).await.map_err(failed)? {
            (Some(other), _) if other.is_after(mine) => return Err(conflict(&other)),
            (newest, _) => newest.map_or(0, |c| c.sequence),
        };
        self.write(member, mine, last + 1).await.map_err(failed)
    }

    /// Writes the claim to the place that does not have the newest claim.
    async fn write(&self, member: &Member, mine: &Claim, sequence: u64) -> Result<(), DiskError> {
        let claim = Claim { sequence, ..mine.clone() };
        let place = member.areas.claim_place(sequence);
        self.io_of(mine).write_durably(&member.disk, place.offset, claim.encode(member.number)).await
    }

    async fn others(&self, member: &Member, mine: &Claim) -> Option<Claim> {
        self.newest(member).await.ok()?.0.filter(|c| c.is_after(mine))
    }

    async fn newest(&self, member: &Member) -> Result<(Option<Claim>, u64), DiskError> {
        let io = self.state.read().mine.as_ref().map_or_else(|| self.io.clone(), |mine| self.io_of(mine));
        read_claims(&io, &member.disk, &member.areas, self.pool, member.number).await
    }

    fn io_of(&self, mine: &Claim) -> DiskIo {
        DiskIo { epoch: Epoch(mine.epoch), ..self.io.clone() }
    }

    fn claim_of(&self, value: &AuthorityValue) -> Claim {
        Claim {
            pool: self.pool,
            epoch: value.epoch,
            incarnation: value.incarnation,
            sequence: 0,
            by: value
                .coordinator
                .clone()
                .or_else(|| self.state.read().mine.as_ref().map(|c| c.by.clone()))
                .unwrap_or_default(),
            since_unix_s: value.since_unix_s,
            exported: value.coordinator.is_none(),
        }
    }
}

fn value_of(claim: &Claim, voters: BTreeSet<DiskNumber>) -> AuthorityValue {
    AuthorityValue {
        epoch: claim.epoch,
        incarnation: claim.incarnation,
        coordinator: (!claim.exported).then(|| claim.by.clone()),
        since_unix_s: claim.since_unix_s,
        voters,
        absent: BTreeSet::new(),
    }
}

fn conflict(other: &Claim) -> CasError {
    CasError::Conflict(Revision(other.epoch), Box::new(value_of(other, BTreeSet::new())))
}

fn is_newer(now: &Claim, then: &Claim) -> bool {
    now.is_after(then) || (now.epoch == then.epoch && now.sequence > then.sequence)
}

/// The newest claim on a disk, and the number of its damaged places.
pub(crate) async fn newest_claim(
    io: &DiskIo,
    disk: &Arc<dyn Disk>,
    areas: &Areas,
    pool: PoolId,
    number: DiskNumber,
) -> (Option<Claim>, u64) {
    read_claims(io, disk, areas, pool, number).await.unwrap_or((None, 2))
}

/// [`newest_claim`] with errors: neither place can be read, or the disk is fenced.
async fn read_claims(
    io: &DiskIo,
    disk: &Arc<dyn Disk>,
    areas: &Areas,
    pool: PoolId,
    number: DiskNumber,
) -> Result<(Option<Claim>, u64), DiskError> {
    let read = |place| io.read(disk, areas.claim_place(place));
    let (mut newest, mut damaged) = (None::<Claim>, 0);
    let places = match join(read(0), read(1)).await {
        (Err(e), Err(_)) => return Err(e),
        (a, b) => [a, b],
    };
    for bytes in places {
        match bytes.map(|bytes| Claim::decode(&bytes)) {
            Ok(Ok((found, on))) if found.pool == pool && on == number => {
                let newer = |c: &Claim| (c.epoch, c.sequence) < (found.epoch, found.sequence);
                if newest.as_ref().is_none_or(newer) {
                    newest = Some(found);
                }
            }
            Ok(Ok(_) | Err(FrameError::Blank | FrameError::Foreign)) => {}
            Ok(Err(FrameError::Damaged)) | Err(_) => damaged += 1,
        }
    }
    Ok((newest, damaged))
}
