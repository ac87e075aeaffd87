//! SMB Direct connections: connects over iWARP, and selects the server's addresses to try.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use arena::Arena;
use env::Env;
use rdma::QueuePair;
use rdma::iwarp::{self, SetupError};
use smb_direct::{SmbDirect, SmbDirectError, SmbDirectOptions, Timer};
use smb_wire::ioctl::{InterfaceCapability, NetworkInterface};
use thiserror::Error;

/// Why no SMB Direct connection could be established.
#[derive(Debug, Error)]
pub(crate) enum DirectError {
    /// Failure of TCP or MPA.
    #[error("iWARP: {0}")]
    Setup(#[from] SetupError),
    /// Failure of the SMB Direct negotiation.
    #[error("SMB Direct: {0}")]
    Direct(#[from] SmbDirectError),
}

/// Maximum time for a connection if there is an alternative.
pub(crate) const CONNECT_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Timeout of the first SMB Direct negotiation.
const FIRST_NEGOTIATION_TIME_LIMIT: Duration = Duration::from_millis(1000);
/// Maximum number of announced addresses to try.
const ADDRESSES_MAX: usize = 4;

/// Connects over iWARP, in at most `timeout`.
///
/// If the server does not respond to the SMB Direct negotiation, the client connects again, each time with twice
/// the timeout, until `timeout` has passed: Linux's ksmbd loses a negotiate request that directly follows its MPA
/// reply.
pub(crate) async fn connect(
    address: SocketAddr,
    arena: Arena,
    env: Env,
    timeout: Duration,
) -> Result<SmbDirect, DirectError> {
    let end = env.now() + timeout;
    let mut patience = FIRST_NEGOTIATION_TIME_LIMIT;
    loop {
        let left = end.saturating_duration_since(env.now());
        let options = iwarp::Options { setup_timeout: left, ..iwarp::Options::default() };
        // IRD and ORD as private data, as Linux sends them, for peers of MPA revision 1, which has no fields for
        // them.
        let depths = [options.ird.to_be_bytes(), options.ord.to_be_bytes()].concat();
        let (queue_pair, _) = iwarp::connect(address, env.clone(), &depths, options).await?;
        match over(Box::new(queue_pair), arena.clone(), env.clone(), patience.min(left)).await {
            Err(DirectError::Direct(e @ SmbDirectError::TimedOut(Timer::Negotiation))) if env.now() < end => {
                tracing::info!(%address, after = ?patience, "{e}; trying again");
                patience *= 2;
            }
            done => return done,
        }
    }
}

/// Establishes SMB Direct over a queue pair.
pub(crate) async fn over(
    queue_pair: Box<dyn QueuePair>,
    arena: Arena,
    env: Env,
    timeout: Duration,
) -> Result<SmbDirect, DirectError> {
    let options = SmbDirectOptions { negotiate_timeout: timeout, ..SmbDirectOptions::default() };
    Ok(SmbDirect::connect(queue_pair, arena, env, options).await?)
}

/// Returns the RDMA-capable addresses, the fastest first.
pub(crate) fn candidates(interfaces: &[NetworkInterface], port: u16) -> Vec<SocketAddr> {
    let mut with_rdma: Vec<_> = interfaces
        .iter()
        .filter(|i| i.capability.contains(InterfaceCapability::RDMA_CAPABLE))
        .filter_map(|i| Some((i.link_speed_bits_per_second, i.address?)))
        // A link-local address is only valid on the server's links.
        .filter(|(_, a)| !matches!(a.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local()))
        .collect();
    with_rdma.sort_by_key(|(speed, _)| std::cmp::Reverse(*speed));
    let mut out: Vec<SocketAddr> = Vec::new();
    for (_, mut address) in with_rdma {
        address.set_port(port);
        if !out.contains(&address) && out.len() < ADDRESSES_MAX {
            out.push(address);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(address: &str, speed: u64, rdma: bool) -> NetworkInterface {
        let capability =
            if rdma { InterfaceCapability::RDMA_CAPABLE } else { InterfaceCapability::RSS_CAPABLE };
        NetworkInterface {
            if_index: 1,
            capability,
            link_speed_bits_per_second: speed,
            address: Some(SocketAddr::new(address.parse().expect("an address"), 0)),
        }
    }

    /// A server that accepts the connection and never responds is tried several times, within the timeout.
    #[tokio::test]
    async fn a_silent_server_is_retried_until_the_timeout() {
        let env = Env::real();
        let here = "127.0.0.1:0".parse().expect("an address");
        let listener =
            iwarp::Listener::bind(here, env.clone(), iwarp::Options::default()).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let silent = async {
            let mut taken = Vec::new();
            while let Ok(arriving) = listener.accept().await {
                let Ok(incoming) = arriving.request().await else { break };
                taken.push(incoming.accept(&[], 32, 32).await);
                if taken.len() == 2 {
                    return std::future::pending().await;
                }
            }
            taken.len()
        };
        let timeout = Duration::from_millis(1500);
        let began = env.now();
        let arena = Arena::new(16 << 20).expect("memory");
        let ended = tokio::select! {
            ended = connect(address, arena, env.clone(), timeout) => ended,
            n = silent => panic!("{n} connections"),
        };
        let why = ended.err().expect("the peer does not negotiate").to_string();
        let took = env.now() - began;
        assert!(
            took >= FIRST_NEGOTIATION_TIME_LIMIT + Duration::from_millis(400),
            "one attempt only: {took:?}, {why}"
        );
        assert!(took < timeout + FIRST_NEGOTIATION_TIME_LIMIT, "{took:?}, {why}");
    }

    #[test]
    fn the_fastest_with_rdma_comes_first() {
        let list = [
            interface("10.0.0.1", 100, false),
            interface("10.0.0.2", 10, true),
            interface("10.0.0.3", 40, true),
            interface("10.0.0.3", 40, true),
            NetworkInterface { address: None, ..interface("10.0.0.4", 99, true) },
            interface("fe80::1", 99, true),
        ];
        let found = candidates(&list, 5445);
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.3:5445", "10.0.0.2:5445"]);
        assert!(candidates(&list[..1], 5445).is_empty());
    }
}
