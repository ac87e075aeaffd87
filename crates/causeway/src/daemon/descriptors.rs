//! The descriptors of this process: their limit, how many opens it has room for, and the log when there are none left.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smb_server::Limits;

/// One in this many descriptors is reserved: for connections, disks of pools, rings and files of the server.
const RESERVE_PART: u64 = 4;
/// The minimum of that reserve; at most half of the limit.
const RESERVE_MIN: u64 = 256;
/// One in this many opens is not available to a single user, but left to other users.
const OTHERS_PART: usize = 4;
/// The time between two messages about failures to accept.
const LOGGED: Duration = Duration::from_secs(10);

/// Raises the limit of open files, because each open file of a client takes a descriptor. Returns the limit; `None` if
/// there is none.
pub(super) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        if let Err(error) = raised {
            tracing::warn!(%error, "cannot raise the limit of open files from {:?}", limit.current);
            return limit.current;
        }
    }
    limit.maximum
}

/// The limits of a server that may have this number of descriptors. `opens_per_user` is the configured one; 0: the
/// default.
pub(super) fn limits(descriptors: Option<u64>, opens_per_user: usize) -> Limits {
    let limits = Limits::default();
    let room = descriptors.map_or(u64::MAX, |all| {
        let reserve = (all / RESERVE_PART).max(RESERVE_MIN).min(all / 2);
        all - reserve
    });
    let opens = limits.opens.min(usize::try_from(room).unwrap_or(usize::MAX));
    let opens_per_user =
        if opens_per_user == 0 { opens - opens / OTHERS_PART } else { opens_per_user.min(opens) };
    Limits { opens, opens_per_user, ..limits }
}

/// Failures to accept a connection: a message for each would fill the log while descriptors are short.
#[derive(Default)]
pub(crate) struct FailedAccepts {
    logged: Option<Instant>,
    count: u64,
}

impl FailedAccepts {
    /// Counts a failure. If another message is due, returns the number of failures since the last one.
    pub(crate) fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|last| now < last + LOGGED) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_leave_a_reserve() {
        let of = |descriptors, per_user| {
            let limits = limits(descriptors, per_user);
            (limits.opens, limits.opens_per_user)
        };
        assert_eq!(of(Some(1 << 20), 0), (786_432, 589_824));
        assert_eq!(of(Some(1024), 0), (768, 576));
        assert_eq!(of(Some(400), 0), (200, 150));
        assert_eq!(of(Some(400), 70), (200, 70));
        assert_eq!(of(Some(400), 1000), (200, 200));
        assert_eq!(of(None, 0), (1 << 20, 3 << 18));
        for all in [0, 1, 7, 255, 256, 511, 5000] {
            let (opens, _) = of(Some(all), 0);
            assert!(opens as u64 <= all - all / RESERVE_PART, "{all}");
        }
    }

    #[test]
    fn failures_are_logged_with_their_number() {
        let (mut failed, start) = (FailedAccepts::default(), env::Env::simulated(1).now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(failed.add(at(0)), Some(1));
        let messages: Vec<_> = (1..=200).filter_map(|n| failed.add(at(n * 100))).collect();
        assert_eq!(messages, [100, 100]);
    }
}
