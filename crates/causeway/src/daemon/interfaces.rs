//! The machine's network interfaces, for FSCTL_QUERY_NETWORK_INTERFACE_INFO (MS-SMB2 3.3.5.15.11).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use smb_server::{Interface, Interfaces};

/// The speed reported for an interface whose driver reports none, in bits per second: mostly virtual ones.
/// Samba uses the same value. Clients use only the fastest interfaces: a higher value would draw them away
/// from cards that report theirs.
const SPEED_UNKNOWN: u64 = 1_000_000_000;

/// Lists the interfaces of the kernel at each request.
#[derive(Debug)]
pub(super) struct SystemInterfaces {
    /// The addresses where SMB Direct is served and announced.
    rdma: Vec<SocketAddr>,
}

impl SystemInterfaces {
    /// `rdma`: the listeners of SMB Direct to announce.
    pub(super) fn new(rdma: Vec<SocketAddr>) -> SystemInterfaces {
        SystemInterfaces { rdma }
    }

    fn serves_rdma(&self, address: IpAddr) -> bool {
        self.rdma.iter().any(|listener| match (listener.ip(), address) {
            (IpAddr::V4(l), IpAddr::V4(_)) if l.is_unspecified() => true,
            (IpAddr::V6(l), IpAddr::V6(_)) if l.is_unspecified() => true,
            (l, a) => l == a,
        })
    }
}

impl Interfaces for SystemInterfaces {
    fn list(&self, reached: SocketAddr) -> Vec<Interface> {
        let reached = reached.ip().to_canonical();
        let Ok(all) = getifaddrs() else { return Vec::new() };
        let mut facts: HashMap<String, (u32, u64, bool)> = HashMap::new();
        let mut list = Vec::new();
        for i in all {
            let Some(address) = i.address.as_ref().and_then(ip) else { continue };
            if !i.flags.contains(InterfaceFlags::IFF_UP) || !is_offered(address, reached) {
                continue;
            }
            let (index, bits_per_second, rss) =
                *facts.entry(i.interface_name.clone()).or_insert_with_key(|name| {
                    (if_nametoindex(name.as_str()).unwrap_or(0), speed(name), has_queues(name))
                });
            let rdma = self.serves_rdma(address);
            list.push(Interface { index, address, bits_per_second, rss, rdma });
        }
        list
    }
}

/// Whether a client can reach an address: loopback addresses only from this machine; no link-local addresses, which
/// need the number of the client's own interface.
fn is_offered(address: IpAddr, reached: IpAddr) -> bool {
    if address.is_loopback() || reached.is_loopback() {
        return address.is_loopback() && reached.is_loopback() && address.is_ipv4() == reached.is_ipv4();
    }
    !is_link_local(address) || address == reached
}

/// Whether a client needs the number of its interface to use this address.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    }
}

/// An address of IP.
pub(crate) fn ip(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(Ipv6Addr::from(a.ip().octets()))))
}

/// The speed in bits per second. The driver reports it in Mbit/s; -1 or an error means that it is unknown.
fn speed(interface: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).unwrap_or_default();
    speed_of(&text)
}

fn speed_of(text: &str) -> u64 {
    match text.trim().parse::<i64>() {
        Ok(mbit) if mbit > 0 => mbit as u64 * 1_000_000,
        _ => SPEED_UNKNOWN,
    }
}

/// Whether an interface has several receive queues.
fn has_queues(interface: &str) -> bool {
    let Ok(queues) = std::fs::read_dir(format!("/sys/class/net/{interface}/queues")) else { return false };
    queues.filter_map(Result::ok).filter(|q| q.file_name().to_string_lossy().starts_with("rx-")).count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_addresses_that_the_client_can_reach() {
        let offered = |a, reached| is_offered(address(a), address(reached));
        assert!(offered("127.0.0.1", "127.0.0.1"));
        assert!(!offered("10.0.0.1", "127.0.0.1"));
        assert!(!offered("127.0.0.1", "10.0.0.1"));
        assert!(offered("10.0.0.2", "10.0.0.1"));
        assert!(offered("2001:db8::1", "10.0.0.1"));
        assert!(!offered("fe80::1", "10.0.0.1"));
    }

    #[test]
    fn an_unknown_speed_is_a_slow_one() {
        for (text, gbit) in [("25000\n", 25), ("1000", 1), ("-1\n", 1), ("0", 1), ("", 1), ("fast", 1)] {
            assert_eq!(speed_of(text), gbit * 1_000_000_000, "{text:?}");
        }
    }

    #[test]
    fn rdma_is_announced_where_it_listens() {
        let on = |listeners: &[&str], a| {
            let listeners = listeners.iter().map(|l| l.parse().expect("an address")).collect();
            SystemInterfaces::new(listeners).serves_rdma(address(a))
        };
        assert!(!on(&[], "10.0.0.1"));
        assert!(on(&["0.0.0.0:5445"], "10.0.0.1"));
        assert!(!on(&["0.0.0.0:5445"], "2001:db8::1"));
        assert!(on(&["10.0.0.1:5445"], "10.0.0.1"));
        assert!(!on(&["10.0.0.1:5445"], "10.0.0.2"));
    }

    #[test]
    fn loopback_is_listed_for_a_client_on_this_machine() {
        let rdma = vec!["127.0.0.1:5445".parse().expect("an address")];
        let list = SystemInterfaces::new(rdma).list("127.0.0.1:445".parse().expect("an address"));
        assert!(list.iter().all(|i| i.address.is_loopback()));
        // Where this runs without a loopback interface there is nothing to list.
        if let Some(i) = list.iter().find(|i| i.address == address("127.0.0.1")) {
            assert!(i.rdma && i.index > 0);
        }
    }
}
