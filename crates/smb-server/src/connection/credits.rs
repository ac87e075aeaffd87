//! Credits and message ids (MS-SMB2 3.3.1.1, 3.3.1.2, 3.3.5.2.3).
//!
//! Invariants:
//! 1. Ids below `low` are used; ids from `low + range` on were never granted.
//! 2. Between them, a bit is set for an id that was used; the bit of `low` is clear (or `range` is 0).
//! 3. `available` is the number of clear bits in the window: what the client may still send.
//! 4. `in_use` is the cost of the requests without a final reply; [`Credits`] shows both after each change.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smb_wire::{Command, Header};

use super::incoming::Item;
use super::{ConnectionError, Engine};

/// The ids that a client may use, and the limit of further grants.
#[derive(Debug)]
pub(crate) struct CreditWindow {
    low: u64,
    range: u32,
    available: u32,
    in_use: u32,
    max: u32,
    used: Vec<u64>,
    shared: Arc<SharedCredits>,
}

/// A connection's credits, for listings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Granted and not used: what the client may still send.
    pub available: u32,
    /// Used by requests that are not answered yet.
    pub in_use: u32,
}

/// A copy for readers on other threads; only the connection writes it.
#[derive(Debug, Default)]
pub(crate) struct SharedCredits(AtomicU64);

impl SharedCredits {
    pub(crate) fn get(&self) -> Credits {
        let both = self.0.load(Ordering::Relaxed);
        Credits { available: (both >> 32) as u32, in_use: both as u32 }
    }
}

/// A client used an id that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfWindow;

impl Engine {
    /// MS-SMB2 3.3.5.2.3: uses the message ids of a message's requests.
    ///
    /// # Errors
    /// The connection must end.
    pub(super) fn take_ids(&mut self, requests: &[Item]) -> Result<(), ConnectionError> {
        for Item { header, .. } in requests {
            if header.is_response() {
                return Err(ConnectionError::Protocol("the client sent a response"));
            }
            // A CANCEL uses the id of the request that it cancels.
            if header.command != Command::CANCEL {
                let (first, charge) = (header.message_id, self.charge(header));
                let window = self.credits.window();
                self.credits.take(first, charge).map_err(|_| ConnectionError::OutOfCredits {
                    first,
                    charge,
                    window,
                })?;
            }
        }
        Ok(())
    }

    /// The number of ids that a request used.
    pub(super) fn charge(&self, request: &Header) -> u16 {
        if self.facts.multi_credit { request.credit_charge } else { 1 }
    }

    /// Credits for the reply to a request (MS-SMB2 3.3.1.2): its charge, plus the credits that it requested beyond one,
    /// as far as the limit allows. Windows and Samba do the same, and some clients rely on it: one that does not count
    /// its own set-up requests would otherwise exceed its window.
    pub(super) fn grant(&mut self, request: &Header) -> u16 {
        let charge = self.charge(request).max(1);
        let wish = match request.command {
            // Before a log-on a client needs few.
            Command::NEGOTIATE => 1,
            _ if request.credits == 0 => 0,
            _ => charge.saturating_add(request.credits - 1),
        };
        // Grant few credits when payload memory is short, to throttle clients.
        let most = if self.server.arena.is_short() { 1 } else { u16::MAX };
        self.credits.grant(wish.min(most))
    }
}

impl CreditWindow {
    /// A window of one id, 0, that grows to at most `max` ids (rounded up to 64).
    pub(crate) fn new(max: u32) -> CreditWindow {
        let words = max.max(64).div_ceil(64);
        CreditWindow {
            low: 0,
            range: 1,
            available: 1,
            in_use: 0,
            max: words * 64,
            used: vec![0; words as usize],
            shared: Arc::default(),
        }
    }

    /// The copy for other threads.
    pub(crate) fn shared(&self) -> Arc<SharedCredits> {
        Arc::clone(&self.shared)
    }

    /// A request that used `charge` ids has its final reply. A NEGOTIATE used one, whatever its CreditCharge.
    pub(crate) fn answered(&mut self, charge: u16) {
        self.in_use = self.in_use.saturating_sub(charge.max(1).into());
        self.show();
    }

    fn show(&self) {
        self.shared.0.store(u64::from(self.available) << 32 | u64::from(self.in_use), Ordering::Relaxed);
    }

    /// Uses `charge` ids from `first` on (a charge of 0 is one id).
    ///
    /// # Errors
    /// [`OutOfWindow`] when one of them is not the client's to use: the connection ends (MS-SMB2 3.3.5.2.3).
    pub(crate) fn take(&mut self, first: u64, charge: u16) -> Result<(), OutOfWindow> {
        let charge = u64::from(charge.max(1));
        let end = first.checked_add(charge).ok_or(OutOfWindow)?;
        if first < self.low || end > self.low + u64::from(self.range) {
            return Err(OutOfWindow);
        }
        if (first..end).any(|id| self.is_used(id)) {
            return Err(OutOfWindow);
        }
        for id in first..end {
            self.flip(id);
        }
        self.available -= charge as u32;
        self.in_use += charge as u32;
        while self.range > 0 && self.is_used(self.low) {
            self.flip(self.low); // its bit in the ring is free for a later id
            self.low += 1;
            self.range -= 1;
        }
        self.show();
        Ok(())
    }

    /// Grants up to `wish` ids with a reply: as many as fit, and never so few that the client is left with none.
    pub(crate) fn grant(&mut self, wish: u16) -> u16 {
        let room = (self.max - self.range).min(self.max - self.available);
        let wish = u32::from(wish).max(u32::from(self.available == 0));
        let n = wish.min(room);
        self.range += n;
        self.available += n;
        self.show();
        n as u16
    }

    /// The ids from the oldest unused one to the end of what was granted.
    pub(crate) fn window(&self) -> Range<u64> {
        self.low..self.low + u64::from(self.range)
    }

    fn is_used(&self, id: u64) -> bool {
        let bit = (id % u64::from(self.max)) as usize;
        self.used[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn flip(&mut self, id: u64) {
        let bit = (id % u64::from(self.max)) as usize;
        self.used[bit / 64] ^= 1 << (bit % 64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_id_is_zero_and_once() {
        let mut w = CreditWindow::new(128);
        assert_eq!(w.take(1, 1), Err(OutOfWindow));
        assert_eq!(w.take(0, 0), Ok(()));
        assert_eq!(w.take(0, 0), Err(OutOfWindow));
        assert_eq!(w.grant(0), 1, "a client is never left without");
        assert_eq!(w.take(u64::MAX, 2), Err(OutOfWindow));
    }

    proptest! {
        /// Against the naive model: the set of ids granted and not used.
        #[test]
        fn behaves_as_a_set(steps in proptest::collection::vec((0u64..300, 0u16..5, 0u16..80), 1..300)) {
            let mut w = CreditWindow::new(128);
            let (mut model, mut next): (BTreeSet<u64>, u64) = ([0].into(), 1);
            for (id, charge, requested) in steps {
                let ids: Vec<u64> = (id..id + u64::from(charge.max(1))).collect();
                let legal = ids.iter().all(|i| model.contains(i));
                prop_assert_eq!(w.take(id, charge).is_ok(), legal);
                if legal {
                    for i in &ids { model.remove(i); }
                    prop_assert_eq!(w.shared().get().in_use, ids.len() as u32);
                    w.answered(charge);
                }
                let n = w.grant(requested);
                prop_assert!(n <= requested.max(1));
                for _ in 0..n { model.insert(next); next += 1; }
                prop_assert_eq!(w.shared().get(), Credits { available: model.len() as u32, in_use: 0 });
                prop_assert!(model.len() <= 128);
                // The span between the oldest id and the newest is bounded too.
                prop_assert!(model.first().is_none_or(|low| next - low <= 128));
            }
        }
    }
}
