//! The pool's authority: one value that names the process that owns the pool, the disks that vote and the absent disks
//! (`docs/0004-spaces.md`, section C).
//!
//! Two implementations: `labels`, the claims on the pool's own disks, for one machine; `memory`, a register outside of
//! the pool, for simulations. `Tenure` is the owner's side: it renews the lease while there is I/O, and reports when
//! writes and acknowledgements are no longer allowed.
//!
//! Invariants:
//! 1. Claims are written by `labels` only, and only after the existing ones were read.
//! 2. A lease is extended only by a read that found the holder's own value, to [`Lease::LENGTH`] after the read began.
//! 3. A new owner that cannot verify that the previous one has ended writes only its claim for [`Lease::WAIT`].

mod labels;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod tenure;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk::DiskError;
use env::BoxFuture;

pub(crate) use labels::{Labels, newest_claim};
pub use tenure::Tenure;

use crate::format::Claimant;
use crate::{DiskNumber, Members};

/// The authority's value. Changes by the same owner keep epoch and incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorityValue {
    /// Increases by at least one with each owner.
    pub epoch: u64,
    /// A random number drawn with the epoch.
    pub incarnation: u64,
    /// The owner; `None` after a clean export.
    pub coordinator: Option<Claimant>,
    /// The time since when it owns the pool, in seconds since 1970 by the owner's clock.
    pub since_unix_s: u64,
    /// The disks with metadata.
    pub voters: BTreeSet<DiskNumber>,
    /// The disks out of service.
    pub absent: BTreeSet<DiskNumber>,
}

/// Identifies one value of an authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// Why a value was not read or not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum CasError {
    /// Another value was found: the expected revision is not the current one.
    #[error("the pool has another owner, of epoch {}", .1.epoch)]
    Conflict(Revision, Box<AuthorityValue>),
    /// It is unknown whether the change was made: read the value.
    #[error("the change of the pool's owner was not confirmed")]
    Unknown,
    /// The authority does not respond: its disks, with their errors.
    #[error("the records of the pool's owner cannot be read or written: too few of their disks respond")]
    Unreachable(Vec<(DiskNumber, DiskError)>),
    /// A disk that is to become a voter could not store the claim; the rest of the change was made.
    #[error("disk {} did not accept the claim of the pool's owner: {error}", .disk.0)]
    Disk { disk: DiskNumber, error: DiskError },
}

/// How many voters must have a record of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// `W(n, f)` of them ([`crate::voters`]).
    Voters,
    /// The authority records which voters are current: one is enough.
    Register,
}

/// A set of voters in force, and the number of them that must remain.
pub type Config = (BTreeSet<DiskNumber>, usize);

/// The disks that the metadata's writer currently uses, for an authority stored on the pool's disks.
#[derive(Clone, Debug, Default)]
pub struct InForce {
    /// The disks in service.
    pub members: Arc<Members>,
    /// Every set of voters that an opening may find.
    pub voters: Vec<Config>,
}

/// See the module. One object for each holder of a pool.
pub trait PoolAuthority: Send + Sync {
    /// Reads the current value, linearizably. Extends the lease if the value is the holder's own.
    fn read(&self) -> BoxFuture<Result<(Revision, AuthorityValue), CasError>>;

    /// Replaces the value of that revision; durable on return. From then on the holder is the owner in `value`.
    fn compare_and_set(
        &self,
        expected: Revision,
        value: AuthorityValue,
    ) -> BoxFuture<Result<Revision, CasError>>;

    /// The quorum that determines the newest record.
    fn quorum(&self) -> Quorum;

    /// The lease, which limits until when this holder may acknowledge.
    fn lease(&self) -> &Arc<Lease>;

    /// Called before a record may reach one of these voters, and when earlier sets have ended.
    fn set_in_force(&self, _: InForce) {}

    /// Rewrites damaged places of an authority stored on the pool's disks. Returns the number of places by disk.
    fn repair(&self) -> BoxFuture<Result<BTreeMap<DiskNumber, u64>, CasError>> {
        Box::pin(std::future::ready(Ok(BTreeMap::new())))
    }
}

/// The time until which an owner may acknowledge, in nanoseconds of [`env::Env::boot_ns`].
#[derive(Debug)]
pub struct Lease(AtomicU64);

impl Lease {
    /// The length of the lease, from the beginning of the read that extends it.
    pub const LENGTH: Duration = Duration::from_secs(5);

    /// The age at which the lease is renewed while there is I/O.
    pub const RENEWAL: Duration = Duration::from_secs(1);

    /// How long a new owner writes only its claim: longer than [`Lease::LENGTH`] by the possible drift of clocks.
    pub const WAIT: Duration = Duration::from_secs(7);

    /// The value of a lease that may not be extended any more.
    const ENDED: u64 = 0;

    /// An expired lease, which has to be extended first.
    pub fn new() -> Arc<Lease> {
        Arc::new(Lease(AtomicU64::new(1)))
    }

    /// The remaining time, in nanoseconds.
    #[inline]
    pub fn left(&self, now_ns: u64) -> u64 {
        self.0.load(Ordering::Relaxed).saturating_sub(now_ns)
    }

    /// Extends the lease after a read that began at `began_ns` and found the holder's value.
    pub fn extend(&self, began_ns: u64) {
        let until = began_ns + Lease::LENGTH.as_nanos() as u64;
        let longer = |now: u64| (now != Lease::ENDED).then(|| now.max(until));
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, longer); // an ended lease stays ended
    }

    /// Ends the lease permanently.
    pub fn end(&self) {
        self.0.store(Lease::ENDED, Ordering::Release);
    }
}

/// [`PoolAuthority::compare_and_set`], with a read if the result is unknown. Errors: as [`CasError`];
/// [`CasError::Unknown`] is not returned for a change that was made.
pub(crate) async fn set(
    authority: &dyn PoolAuthority,
    expected: Revision,
    value: &AuthorityValue,
) -> Result<Revision, CasError> {
    match authority.compare_and_set(expected, value.clone()).await {
        Err(CasError::Unknown) => match authority.read().await? {
            (revision, now) if now == *value => Ok(revision),
            (revision, _) if revision == expected => Err(CasError::Unknown),
            (revision, now) => Err(CasError::Conflict(revision, Box::new(now))),
        },
        result => result,
    }
}
