//! Failed log-ons by address. From the fourth on, replies are delayed, longer each time and one after the other. While
//! too many replies wait, log-ons of that address are refused unread. So guessing on many connections takes as long as
//! on one. A successful log-on clears the failures of its own account only: otherwise a user with one account could
//! guess another's password without a delay.
//!
//! Invariants:
//! 1. There are at most [`ADDRESSES_MAX`] entries; at the bound the one with the oldest last failure is evicted.
//! 2. A reply is delayed by at most the sum of [`WAIT_MAX`] and [`DELAY_MAX`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::SmallVec;

/// Accounts of an address whose failures are counted separately; no success clears the failures of further accounts.
const ACCOUNTS_MAX: usize = 8;
/// Characters of an account's name that are compared.
const ACCOUNT_MAX: usize = 256;
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;
/// Consecutive failures that are answered at once: users mistype.
const UNDELAYED_MAX: u32 = 3;
/// The delay of the first reply after these; it doubles with each further one, up to [`DELAY_MAX`].
const DELAY_MIN: Duration = Duration::from_millis(500);
/// The longest delay of a reply after the previous one.
const DELAY_MAX: Duration = Duration::from_secs(4);
/// Log-ons are refused while the next answer would have to wait for longer than this.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// After so long without failures the entry of an address is reset.
const RESET_AFTER: Duration = Duration::from_secs(900);

/// See the module.
#[derive(Default)]
pub(crate) struct FailedLogons {
    addresses: Mutex<HashMap<IpAddr, Failures>>,
}

struct Failures {
    /// Failures of all accounts.
    count: u32,
    /// Failures by the name of the account in lower case.
    accounts: SmallVec<[(String, u32); 1]>,
    last: Instant,
    /// When the last of the delayed replies is sent.
    answered: Instant,
    /// Log-ons refused since the last failure.
    refused: u64,
}

/// A failure that was recorded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LogonFailure {
    /// Failures of the address in a row.
    pub(crate) count: u32,
    /// The delay of the reply.
    pub(crate) delay: Duration,
}

impl FailedLogons {
    /// Whether the address may log on now.
    ///
    /// # Errors
    /// `Err` if it may not: the number of its log-ons refused since its last failure, this one included.
    pub(crate) fn check(&self, address: IpAddr, now: Instant) -> Result<(), u64> {
        let mut addresses = self.addresses.lock();
        match addresses.get_mut(&network(address)) {
            Some(f) if f.answered.saturating_duration_since(now) > WAIT_MAX => {
                f.refused += 1;
                Err(f.refused)
            }
            _ => Ok(()),
        }
    }

    /// Notes a failure of this account.
    pub(crate) fn failed(&self, address: IpAddr, account: &str, now: Instant) -> LogonFailure {
        let mut addresses = self.addresses.lock();
        let address = network(address);
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            let oldest = addresses.iter().min_by_key(|(_, f)| f.last).map(|(a, _)| *a);
            oldest.map(|a| addresses.remove(&a));
        }
        let new = || Failures { count: 0, accounts: SmallVec::new(), last: now, answered: now, refused: 0 };
        let f = addresses.entry(address).or_insert_with(new);
        if now.saturating_duration_since(f.last) >= RESET_AFTER {
            *f = new();
        }
        let account = key(account);
        match f.accounts.iter().position(|(name, _)| *name == account) {
            Some(at) => f.accounts[at].1 = f.accounts[at].1.saturating_add(1),
            None if f.accounts.len() < ACCOUNTS_MAX => f.accounts.push((account, 1)),
            None => {}
        }
        f.count = f.count.saturating_add(1);
        (f.last, f.refused) = (now, 0);
        if f.count > UNDELAYED_MAX {
            let doublings = (f.count - UNDELAYED_MAX - 1).min(16);
            f.answered = f.answered.max(now) + DELAY_MIN.saturating_mul(1 << doublings).min(DELAY_MAX);
        }
        LogonFailure { count: f.count, delay: f.answered.saturating_duration_since(now) }
    }

    /// Clears the failures of an account of an address, as its log-on has succeeded.
    pub(crate) fn succeeded(&self, address: IpAddr, account: &str) {
        let mut addresses = self.addresses.lock();
        let address = network(address);
        let Some(f) = addresses.get_mut(&address) else { return };
        let account = key(account);
        if let Some(at) = f.accounts.iter().position(|(name, _)| *name == account) {
            f.count -= f.accounts.swap_remove(at).1.min(f.count);
        }
        if f.count == 0 {
            addresses.remove(&address);
        }
    }
}

/// The form of an account's name that is remembered, of bounded length.
fn key(account: &str) -> String {
    account.chars().flat_map(char::to_lowercase).take(ACCOUNT_MAX).collect()
}

/// The prefix that counts as one address: of IPv6 the first 64 bits, as one host may use all addresses below it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + n).to_be_bytes())
    }

    fn now() -> Instant {
        env::Env::simulated(1).now()
    }

    #[test]
    fn answers_come_later_and_later() {
        let (table, mut now) = (FailedLogons::default(), now());
        let mut delays = Vec::new();
        for count in 1..=9 {
            let failed = table.failed(address(1), "a", now);
            assert_eq!(failed.count, count);
            delays.push(failed.delay.as_millis());
            now += failed.delay;
        }
        assert_eq!(delays, [0, 0, 0, 500, 1000, 2000, 4000, 4000, 4000]);
        assert_eq!(table.failed(address(2), "a", now).delay, Duration::ZERO, "another address");
        assert_eq!(
            table.failed(address(1), "a", now + RESET_AFTER),
            LogonFailure { count: 1, delay: Duration::ZERO }
        );
        table.failed(address(2), "a", now);
        table.succeeded(address(2), "A");
        assert_eq!(table.failed(address(2), "a", now).count, 1);
    }

    /// Successful log-ons of one account do not shorten the delay of guesses at another.
    #[test]
    fn a_success_ends_the_failures_of_its_account() {
        let (table, now) = (FailedLogons::default(), now());
        for count in 1..=20 {
            assert_eq!(table.failed(address(1), "alice", now).count, count);
            assert_eq!(table.failed(address(1), "bob", now).count, count + 1);
            table.succeeded(address(1), "bob");
        }
        for other in 0..20 {
            table.failed(address(1), &other.to_string(), now);
        }
        table.succeeded(address(1), "alice");
        assert_eq!(table.failed(address(1), "alice", now).count, 21);
    }

    /// Guesses on many connections at once wait for each other, and soon are refused.
    #[test]
    fn guesses_at_once_take_no_less_time() {
        let (table, now) = (FailedLogons::default(), now());
        let mut last = Duration::ZERO;
        let mut guesses = 0;
        while table.check(address(1), now).is_ok() {
            last = table.failed(address(1), "a", now).delay;
            guesses += 1;
        }
        assert_eq!((guesses, last), (UNDELAYED_MAX + 5, Duration::from_millis(11_500)));
        assert_eq!(table.check(address(1), now), Err(2));
        assert_eq!(table.check(address(2), now), Ok(()));
        assert_eq!(table.check(address(1), now + Duration::from_secs(2)), Ok(()));
    }

    #[test]
    fn the_table_is_bounded() {
        let (table, now) = (FailedLogons::default(), now());
        for n in 0..ADDRESSES_MAX as u32 {
            table.failed(address(n), "a", now + Duration::from_millis(n.into()));
        }
        let later = now + Duration::from_secs(60);
        table.failed(address(0), "a", later);
        table.failed(address(1 << 20), "a", later);
        assert_eq!(table.addresses.lock().len(), ADDRESSES_MAX);
        assert_eq!(table.failed(address(0), "a", later).count, 3, "the oldest made room: address 1");
        assert_eq!(table.failed(address(1), "a", later).count, 1);
    }

    #[test]
    fn a_host_of_ipv6_is_one_address() {
        let (table, now) = (FailedLogons::default(), now());
        let parse = |a: &str| a.parse::<IpAddr>().expect("an address");
        table.failed(parse("2001:db8::1"), "a", now);
        assert_eq!(table.failed(parse("2001:db8::ffff:2"), "a", now).count, 2);
        assert_eq!(table.failed(parse("2001:db8:0:1::1"), "a", now).count, 1);
        table.failed(parse("::ffff:10.0.0.1"), "a", now);
        assert_eq!(table.failed(address(1), "a", now).count, 2);
    }
}
