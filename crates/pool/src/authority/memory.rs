//! A register in memory, for simulations and tests: linearizable, with faults.

use std::collections::VecDeque;
use std::sync::Arc;

use env::{BoxFuture, Env};
use parking_lot::Mutex;

use super::{AuthorityValue, CasError, Lease, PoolAuthority, Quorum, Revision};

/// The value, shared by all holders.
#[derive(Clone, Default)]
pub struct Register(Arc<Mutex<(Revision, AuthorityValue)>>);

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call takes effect, and its reply is lost: [`CasError::Unknown`].
    LostReply,
    /// The call is lost: [`CasError::Unreachable`].
    TimeOut,
}

/// One holder's access to a [`Register`].
pub struct MemoryAuthority {
    env: Env,
    register: Register,
    lease: Arc<Lease>,
    /// Epoch and incarnation of the value that this holder has set.
    mine: Mutex<Option<(u64, u64)>>,
    faults: Mutex<VecDeque<Fault>>,
}

impl MemoryAuthority {
    /// Creates the access of a holder that has not claimed anything yet.
    pub fn new(env: &Env, register: &Register) -> Arc<MemoryAuthority> {
        let (lease, mine, faults) = (Lease::new(), Default::default(), Default::default());
        Arc::new(MemoryAuthority { env: env.clone(), register: register.clone(), lease, mine, faults })
    }

    /// Injects one fault into each of the next calls.
    pub fn inject(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().extend(faults);
    }

    fn do_read(&self) -> Result<(Revision, AuthorityValue), CasError> {
        let began = self.env.boot_ns();
        match self.faults.lock().pop_front() {
            Some(Fault::TimeOut) => return Err(CasError::Unreachable(Vec::new())),
            Some(Fault::LostReply) => return Err(CasError::Unknown),
            None => {}
        }
        let (revision, value) = self.register.0.lock().clone();
        if *self.mine.lock() == Some((value.epoch, value.incarnation)) {
            self.lease.extend(began);
        }
        Ok((revision, value))
    }

    fn do_set(&self, expected: Revision, value: AuthorityValue) -> Result<Revision, CasError> {
        let fault = self.faults.lock().pop_front();
        if fault == Some(Fault::TimeOut) {
            return Err(CasError::Unreachable(Vec::new()));
        }
        let mut now = self.register.0.lock();
        if now.0 != expected {
            return Err(CasError::Conflict(now.0, Box::new(now.1.clone())));
        }
        *self.mine.lock() = Some((value.epoch, value.incarnation));
        *now = (Revision(expected.0 + 1), value);
        match fault {
            Some(_) => Err(CasError::Unknown),
            None => Ok(now.0),
        }
    }
}

impl PoolAuthority for MemoryAuthority {
    fn read(&self) -> BoxFuture<Result<(Revision, AuthorityValue), CasError>> {
        Box::pin(std::future::ready(self.do_read()))
    }

    fn compare_and_set(
        &self,
        expected: Revision,
        value: AuthorityValue,
    ) -> BoxFuture<Result<Revision, CasError>> {
        Box::pin(std::future::ready(self.do_set(expected, value)))
    }

    fn quorum(&self) -> Quorum {
        Quorum::Register
    }

    fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}
