//! Connections without a session: their limit, and which one is closed for a new one.
//!
//! They hold memory, so their number is bounded. At the bound one is closed for each new one, and a flood must not keep
//! out clients that log on:
//!
//! 1. The address with the most connections loses one; an address is an IPv4 address or an IPv6 network of 64 bits.
//! 2. Of that address's connections the one with the least progress is closed first, and of these the oldest.
//! 3. A connection that is being closed counts until it has ended. While the closing lags behind, an address with at
//!    most its equal share is admitted up to a higher bound than others.
//! 4. Setting up a connection takes time of the workers, which serve the logged-on clients: an address with more than
//!    its share is refused when connections are closed for it faster than [`CLOSED_PER_SECOND`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::Server;
use crate::failed_logons::network;
use crate::inbox::{Inbox, Notice};

/// Connections that may be closed in a second for others from one address that has more than its share.
const CLOSED_PER_SECOND: u32 = 500;
const SECOND: Duration = Duration::from_secs(1);
/// The time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of an unauthenticated connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// It is open.
    #[default]
    Connected,
    /// The dialect is negotiated.
    Negotiated,
    /// A challenge was sent for a SESSION_SETUP.
    Challenged,
}

/// All unauthenticated connections of a server.
#[derive(Default)]
pub(super) struct Connections {
    by_address: FxHashMap<IpAddr, FromAddress>,
    total: usize,
    next: u64,
    warnings: WarningLimiter,
}

/// When the last warning about a limit was logged: a flood must not fill the log.
#[derive(Default)]
pub(super) struct WarningLimiter(Option<Instant>);

impl WarningLimiter {
    pub(super) fn due(&mut self, now: Instant) -> bool {
        let due = self.0.is_none_or(|last| now >= last + WARNING_INTERVAL);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

#[derive(Default)]
struct FromAddress {
    /// Open, being set up, or being closed.
    count: usize,
    /// Those that can be closed.
    inboxes: BTreeMap<(Progress, u64), Arc<Inbox>>,
    /// The start of the current second, and how many connections were closed in it for others of this address.
    closed: Option<(Instant, u32)>,
}

impl FromAddress {
    /// Counts one connection closed for another one of this address; false at the limit of this second.
    fn may_replace(&mut self, now: Instant) -> bool {
        let (since, closed) = self.closed.filter(|(since, _)| now < *since + SECOND).unwrap_or((now, 0));
        self.closed = Some((since, closed.saturating_add(1)));
        closed < CLOSED_PER_SECOND
    }
}

impl Connections {
    /// Counts a connection and closes another one for it at the bound `most`. Returns its number, or `None` when it is
    /// refused; in both cases it counts until [`Connections::leave`].
    fn enter(&mut self, address: IpAddr, most: usize, now: Instant) -> Option<u64> {
        let addresses = self.by_address.len() + usize::from(!self.by_address.contains_key(&address));
        let from = self.by_address.entry(address).or_default();
        let modest = from.count < (most / addresses).max(1);
        from.count += 1;
        let bound = if modest { 3 * most } else { 2 * most };
        let admitted = match self.total {
            n if n < most => true,
            n if n < bound && (modest || from.may_replace(now)) => self.close_one() || modest,
            _ => false,
        };
        if self.total >= most && self.warnings.due(now) {
            tracing::warn!(
                %address,
                "{most} connections are open without a log-on, which is the limit: some are closed to accept new ones"
            );
        }
        self.total += 1;
        self.next += 1;
        admitted.then_some(self.next)
    }

    /// Closes the connection that rules 1 and 2 choose; false when there is none that can be closed.
    fn close_one(&mut self) -> bool {
        let most = self.by_address.values_mut().max_by_key(|from| from.inboxes.len());
        let closed = most.and_then(|from| from.inboxes.pop_first());
        closed.is_some_and(|(_, inbox)| inbox.send(Notice::Crowded))
    }

    fn leave(&mut self, address: IpAddr, key: (Progress, u64)) {
        self.total -= 1;
        let Some(from) = self.by_address.get_mut(&address) else { return };
        from.inboxes.remove(&key);
        from.count -= 1;
        if from.count == 0 {
            self.by_address.remove(&address);
        }
    }
}

impl Server {
    /// Counts an unauthenticated connection from `peer`; `None` when there are too many.
    pub(crate) fn enter_unauthenticated(
        self: &Arc<Self>,
        peer: SocketAddr,
        now: Instant,
    ) -> Option<Unauthenticated> {
        let address = network(peer.ip());
        let id = self.unauthenticated.lock().enter(address, self.config.limits.unauthenticated, now);
        let key = (Progress::default(), id.unwrap_or(0));
        let guard = Unauthenticated { server: Arc::clone(self), address, key, since: now };
        id.map(|_| guard)
    }
}

/// An unauthenticated connection, counted until this is dropped.
pub(crate) struct Unauthenticated {
    server: Arc<Server>,
    address: IpAddr,
    key: (Progress, u64),
    pub(crate) since: Instant,
}

impl Unauthenticated {
    /// From now on the connection can be closed for another one, by a notice to this inbox.
    pub(crate) fn may_be_closed(&self, inbox: &Arc<Inbox>) {
        let mut all = self.server.unauthenticated.lock();
        if let Some(from) = all.by_address.get_mut(&self.address) {
            from.inboxes.insert(self.key, Arc::clone(inbox));
        }
    }

    /// Records the connection's progress. One that was already chosen to be closed stays chosen.
    pub(crate) fn reached(&mut self, progress: Progress) {
        if progress <= self.key.0 {
            return;
        }
        let mut all = self.server.unauthenticated.lock();
        if let Some(from) = all.by_address.get_mut(&self.address) {
            let before = std::mem::replace(&mut self.key.0, progress);
            if let Some(inbox) = from.inboxes.remove(&(before, self.key.1)) {
                from.inboxes.insert(self.key, inbox);
            }
        }
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        self.server.unauthenticated.lock().leave(self.address, self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 8;
    const FLOOD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn now() -> Instant {
        env::Env::simulated(1).now()
    }

    /// Enters one that can be closed, at this progress.
    fn open(all: &mut Connections, address: IpAddr, progress: Progress) -> Option<(u64, Arc<Inbox>)> {
        let id = all.enter(address, MOST, now())?;
        let inbox = Arc::<Inbox>::default();
        let from = all.by_address.get_mut(&address).expect("entered");
        from.inboxes.insert((progress, id), Arc::clone(&inbox));
        Some((id, inbox))
    }

    fn can_be_closed(all: &Connections, address: IpAddr) -> Vec<(Progress, u64)> {
        all.by_address.get(&address).map(|f| f.inboxes.keys().copied().collect()).unwrap_or_default()
    }

    #[test]
    fn a_flood_from_one_address_closes_none_from_another() {
        let mut all = Connections::default();
        let (id, _client) = open(&mut all, CLIENT, Progress::Connected).expect("there is room");
        let mut open_ones = Vec::new();
        for _ in 0..100 {
            open_ones.extend(open(&mut all, FLOOD, Progress::Challenged));
        }
        assert_eq!(can_be_closed(&all, CLIENT), [(Progress::Connected, id)]);
        assert_eq!(all.total, 101, "nothing has ended yet");
        assert_eq!(open_ones.len(), 2 * MOST - 1, "what is being closed counts");
    }

    #[test]
    fn while_closing_lags_another_address_is_admitted() {
        let mut all = Connections::default();
        for _ in 0..2 * MOST {
            assert!(open(&mut all, FLOOD, Progress::Connected).is_some());
        }
        assert!(open(&mut all, FLOOD, Progress::Connected).is_none());
        assert!(open(&mut all, CLIENT, Progress::Connected).is_some());
        // Also where none can be closed, as while SMB Direct is being set up.
        let mut all = Connections::default();
        for _ in 0..MOST {
            assert!(all.enter(FLOOD, MOST, now()).is_some());
        }
        assert!(all.enter(FLOOD, MOST, now()).is_none());
        assert!(all.enter(CLIENT, MOST, now()).is_some());
        // Not without end, from however many addresses.
        let many = (1..=250).map(|n| IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, n)));
        let admitted = many.filter(|a| all.enter(*a, MOST, now()).is_some()).count();
        assert_eq!(admitted, 3 * MOST - (MOST + 2));
    }

    #[test]
    fn of_one_address_the_least_advanced_goes_first() {
        let mut all = Connections::default();
        let (first, _) = open(&mut all, FLOOD, Progress::Challenged).expect("there is room");
        let (second, _) = open(&mut all, FLOOD, Progress::Negotiated).expect("there is room");
        for _ in 2..MOST {
            open(&mut all, FLOOD, Progress::Connected).expect("there is room");
        }
        for _ in 2..MOST {
            open(&mut all, FLOOD, Progress::Negotiated).expect("for one that is connected");
        }
        let left = can_be_closed(&all, FLOOD);
        assert!(left.iter().all(|(p, _)| *p > Progress::Connected), "{left:?}");
        assert!(
            left.contains(&(Progress::Challenged, first)) && left.contains(&(Progress::Negotiated, second))
        );
    }

    #[test]
    fn an_address_replaces_its_own_at_a_bounded_rate() {
        let (mut all, begun) = (Connections::default(), now());
        let mut open_ones = std::collections::VecDeque::new();
        // What is closed or refused ends at once.
        let mut at = |address, ms| {
            let id = all.enter(address, MOST, begun + Duration::from_millis(ms));
            if let Some((from, id)) = all.by_address.get_mut(&address).zip(id) {
                from.inboxes.insert((Progress::Connected, id), Arc::default());
            }
            open_ones.push_back((address, (Progress::Connected, id.unwrap_or(0))));
            let ended = if id.is_none() { open_ones.pop_back() } else { None };
            let over = all.total > MOST + usize::from(ended.is_some());
            for (address, key) in ended.into_iter().chain(if over { open_ones.pop_front() } else { None }) {
                all.leave(address, key);
            }
            id
        };
        let taken = |admitted: Vec<Option<u64>>| admitted.into_iter().flatten().count();
        let first: Vec<_> = (0..MOST).map(|_| at(FLOOD, 0)).collect();
        assert_eq!(taken(first), MOST);
        let flood = (0..10 * CLOSED_PER_SECOND).map(|n| at(FLOOD, u64::from(n) % 1000)).collect();
        assert!(taken(flood) <= 2 * CLOSED_PER_SECOND as usize);
        assert!(at(CLIENT, 999).is_some(), "another address is not slowed down");
        assert!(at(FLOOD, 2000).is_some(), "a new second");
    }

    #[test]
    fn what_has_ended_counts_no_more() {
        let mut all = Connections::default();
        let (id, _inbox) = open(&mut all, CLIENT, Progress::Connected).expect("there is room");
        all.leave(CLIENT, (Progress::Connected, id));
        assert_eq!((all.total, all.by_address.len()), (0, 0));
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let at = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(at("2001:db8:0:1::1"), at("2001:db8:0:1:ffff::2"));
        assert_ne!(at("2001:db8:0:1::1"), at("2001:db8:0:2::1"));
        assert_eq!(at("::ffff:10.0.0.1"), FLOOD);
    }
}
