//! An owner's side of its authority: whether it may write and acknowledge now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use disk::DiskError;
use env::{Env, watch};
use futures_util::future::{Either, select};
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::{CasError, Lease, PoolAuthority};
use crate::Suspension;

/// An owner's right to its pool. Callers check it before a change begins and before it is acknowledged. These checks
/// trigger the renewal of the lease, so an idle pool reads nothing.
pub struct Tenure {
    env: Env,
    authority: Arc<dyn PoolAuthority>,
    lease: Arc<Lease>,
    /// The owner's epoch and incarnation.
    me: (u64, u64),
    state: RwLock<State>,
    /// Counts changes of the members and of the result of [`Tenure::suspended`].
    pub(crate) changed: watch::Sender<u64>,
    renewing: AtomicBool,
    /// Notified when an attempt to renew has ended, or the tenure itself.
    tried: Notify,
}

#[derive(Default)]
struct State {
    /// Why the tenure has ended permanently, if it has.
    over: Option<Suspension>,
    /// Why the tenure is suspended until a renewal succeeds, if it is.
    paused: Option<Suspension>,
    /// The tenure has ended and was abandoned: calls no longer wait for it.
    is_abandoned: bool,
}

/// The lease is renewed if less than this time remains, in nanoseconds.
const LOW_NS: u64 = (Lease::LENGTH.as_nanos() - Lease::RENEWAL.as_nanos()) as u64;

/// The delay between attempts to renew the lease.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How long a change waits for a lease.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The one renewal in progress.
struct Renewal(Weak<Tenure>);

impl Tenure {
    pub(crate) fn new(env: &Env, authority: Arc<dyn PoolAuthority>, me: (u64, u64)) -> Arc<Tenure> {
        Arc::new(Tenure {
            env: env.clone(),
            lease: Arc::clone(authority.lease()),
            authority,
            me,
            state: RwLock::default(),
            changed: watch::Sender::new(0),
            renewing: AtomicBool::new(false),
            tried: Notify::new(),
        })
    }

    /// The pool's epoch of this owner.
    pub(crate) fn epoch(&self) -> u64 {
        self.me.0
    }

    /// Whether a change may begin, or be acknowledged, now.
    #[inline]
    pub(crate) fn holds(self: &Arc<Tenure>) -> bool {
        let left = self.lease.left(self.env.boot_ns());
        if left < LOW_NS {
            self.renew();
        }
        left > 0
    }

    /// Waits until the tenure holds. Errors: it has ended, or could not be renewed for [`RENEWAL_TIMEOUT`].
    pub(crate) async fn hold(self: &Arc<Tenure>) -> Result<(), Suspension> {
        let until = self.env.now() + RENEWAL_TIMEOUT;
        loop {
            let mut tried = std::pin::pin!(self.tried.notified());
            tried.as_mut().enable();
            if self.holds() {
                return Ok(());
            }
            if let Some(why) = self.over() {
                return Err(why);
            }
            if let Either::Right(_) = select(tried, Box::pin(self.env.sleep_until(until))).await {
                return Err(self.suspended().unwrap_or(Suspension::NoLease { failed: Vec::new() }));
            }
        }
    }

    /// Reads the authority once. Errors: [`Suspension::NoLease`]; or another owner has claimed the pool, and the
    /// tenure has ended.
    pub(crate) async fn confirm(&self) -> Result<(), Suspension> {
        if let Some(why) = self.over() {
            return Err(why);
        }
        let failed = match self.authority.read().await {
            Ok((_, now)) if (now.epoch, now.incarnation) == self.me => {
                self.resume();
                return Ok(());
            }
            Ok((_, now)) => return Err(self.claimed_by(now.coordinator)),
            Err(CasError::Conflict(_, now)) => return Err(self.claimed_by(now.coordinator)),
            Err(CasError::Unreachable(failed)) => failed,
            Err(CasError::Unknown | CasError::Disk { .. }) => Vec::new(),
        };
        if let Some(epoch) = failed.iter().find_map(|(_, e)| match e {
            DiskError::Fenced { epoch, .. } => Some(epoch.0),
            _ => None,
        }) {
            return Err(self.suspend(Suspension::Fenced { epoch }));
        }
        let why = Suspension::NoLease { failed };
        if self.lease.left(self.env.boot_ns()) == 0 {
            self.pause(&why);
        }
        Err(why)
    }

    /// Ends the tenure: nothing is written or acknowledged from now on.
    pub(crate) fn suspend(&self, why: Suspension) -> Suspension {
        self.lease.end();
        let why = self.state.write().over.get_or_insert(why).clone();
        self.changed.send_modify(|n| *n += 1);
        self.tried.notify_waiters();
        why
    }

    /// Abandons a tenure that has ended: calls that wait for the pool fail, because it will not resume.
    pub(crate) fn abandon(&self) {
        self.lease.end();
        self.state.write().is_abandoned = true;
        self.changed.send_modify(|n| *n += 1);
        self.tried.notify_waiters();
    }

    pub(crate) fn claimed_by(&self, other: Option<crate::format::Claimant>) -> Suspension {
        self.suspend(Suspension::Claimed { by: other.unwrap_or_default() })
    }

    /// Why the tenure has ended permanently, if it has.
    pub(crate) fn over(&self) -> Option<Suspension> {
        let state = self.state.read();
        if state.is_abandoned { Some(Suspension::Abandoned) } else { state.over.clone() }
    }

    /// Why nothing is acknowledged now, if so. For an abandoned tenure, the reason why it had ended.
    pub(crate) fn suspended(&self) -> Option<Suspension> {
        let state = self.state.read();
        state
            .over
            .as_ref()
            .or(state.paused.as_ref())
            .cloned()
            .or(state.is_abandoned.then_some(Suspension::Abandoned))
    }

    fn pause(&self, why: &Suspension) {
        if self.state.write().paused.replace(why.clone()).is_none() {
            tracing::warn!(%why, "the pool is suspended");
            self.changed.send_modify(|n| *n += 1);
        }
        self.tried.notify_waiters();
    }

    fn resume(&self) {
        if self.state.write().paused.take().is_some() {
            tracing::info!("this process is confirmed as the pool's owner again; the pool resumes");
            self.changed.send_modify(|n| *n += 1);
        }
        self.tried.notify_waiters();
    }

    #[cold]
    fn renew(self: &Arc<Tenure>) {
        if self.over().is_none() && !self.renewing.swap(true, Ordering::AcqRel) {
            let renewal = Renewal(Arc::downgrade(self));
            self.env.spawn_if_running(renewal.run(self.env.clone()));
        }
    }
}

impl Renewal {
    /// Retries until a renewal succeeds or the tenure has ended.
    async fn run(self, env: Env) {
        while let Some(tenure) = self.0.upgrade() {
            match tenure.confirm().await {
                Err(Suspension::NoLease { .. }) => {}
                Ok(()) | Err(_) => return,
            }
            drop(tenure);
            env.sleep(RETRY_INTERVAL).await;
        }
    }
}

impl Drop for Renewal {
    /// Also runs if the worker has ended: waiting callers then begin another renewal.
    fn drop(&mut self) {
        if let Some(tenure) = self.0.upgrade() {
            tenure.renewing.store(false, Ordering::Release);
            tenure.tried.notify_waiters();
        }
    }
}
