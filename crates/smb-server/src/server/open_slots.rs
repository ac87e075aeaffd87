//! The number of opens: of the server, and of each account.
//!
//! An open of a file takes descriptors of the process. Without descriptors no file can be opened and no connection
//! accepted, so both numbers have bounds, and one account cannot take all opens of the server.
//!
//! Invariants:
//! 1. An open has one slot from before the backend opens its file until the open is dropped, with or without a session.
//! 2. `all` is the sum of `by_account`, which has no zeros.
//! 3. An open counts as many times as it may have descriptors.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smb_wire::NtStatus;
use smb_wire::security::Sid;

use super::Server;
use super::unauthenticated::WarningLimiter;
use crate::identity::User;

/// The slots of all opens. Locked by CREATE and by the end of an open only.
#[derive(Default)]
pub(super) struct OpenSlots(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    by_account: FxHashMap<Sid, usize>,
    warnings: WarningLimiter,
}

/// The place of one open in the counts, until it is dropped.
pub(crate) struct OpenSlot {
    slots: Arc<OpenSlots>,
    account: Sid,
    descriptors: usize,
}

/// A bound that is reached, in opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Server(usize),
    Account(usize),
}

impl Server {
    /// A slot for a new open of this user, which may have this number of descriptors.
    ///
    /// # Errors
    /// STATUS_TOO_MANY_OPENED_FILES at one of the bounds (MS-SMB2 3.3.5.9).
    pub(crate) fn take_open_slot(&self, user: &User, descriptors: usize) -> Result<Arc<OpenSlot>, NtStatus> {
        let limits = &self.config.limits;
        let taken = self.open_slots.take(user.sid, descriptors, limits.opens, limits.opens_per_user);
        taken.map_err(|full| {
            if self.open_slots.is_warning_due(self.env.now()) {
                match full {
                    Full::Server(most) => tracing::warn!("opens are refused: {most} are open, which is the limit"),
                    Full::Account(most) => tracing::warn!(user = ?user.name,
                        "opens of a user are refused: {most} are open, which is the limit (server.opens_per_user)"),
                }
            }
            NtStatus::TOO_MANY_OPENED_FILES
        })
    }

    /// A slot for an open of the server's previous run, also beyond the bounds: its client has it already.
    pub(crate) fn restore_open_slot(&self, account: Sid) -> Arc<OpenSlot> {
        self.open_slots.add(&mut self.open_slots.0.lock(), account, 1)
    }
}

impl OpenSlots {
    fn take(
        self: &Arc<Self>,
        account: Sid,
        descriptors: usize,
        most: usize,
        most_of_account: usize,
    ) -> Result<Arc<OpenSlot>, Full> {
        let mut taken = self.0.lock();
        if taken.all + descriptors > most {
            return Err(Full::Server(most));
        }
        if taken.by_account.get(&account).map_or(0, |n| *n) + descriptors > most_of_account {
            return Err(Full::Account(most_of_account));
        }
        Ok(self.add(&mut taken, account, descriptors))
    }

    fn add(self: &Arc<Self>, taken: &mut Taken, account: Sid, descriptors: usize) -> Arc<OpenSlot> {
        taken.all += descriptors;
        *taken.by_account.entry(account).or_default() += descriptors;
        Arc::new(OpenSlot { slots: Arc::clone(self), account, descriptors })
    }

    fn is_warning_due(&self, now: Instant) -> bool {
        self.0.lock().warnings.due(now)
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.0.lock();
        taken.all -= self.descriptors;
        if let Some(n) = taken.by_account.get_mut(&self.account) {
            *n -= self.descriptors;
            if *n == 0 {
                taken.by_account.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(slots: &OpenSlots) -> (usize, Vec<usize>) {
        let taken = slots.0.lock();
        (taken.all, taken.by_account.values().copied().collect())
    }

    #[test]
    fn both_bounds() {
        let slots = Arc::new(OpenSlots::default());
        let (one, other) = (Sid::EVERYONE, Sid::AUTHENTICATED_USERS);
        let take = |account, descriptors| slots.take(account, descriptors, 3, 2);
        let first = take(one, 1).ok();
        assert_eq!(take(one, 2).err(), Some(Full::Account(2)), "it may have two descriptors");
        let second = take(one, 1).ok();
        assert_eq!(take(one, 1).err(), Some(Full::Account(2)));
        assert_eq!(take(other, 2).err(), Some(Full::Server(3)));
        let third = take(other, 1).ok();
        assert_eq!(take(other, 1).err(), Some(Full::Server(3)));
        assert_eq!(counts(&slots).0, 3);
        drop((first, second));
        let both = take(one, 2).expect("dropped at once");
        assert_eq!(counts(&slots).0, 3);
        drop((both, third));
        assert_eq!(counts(&slots), (0, vec![]));
    }
}
