//! The address of a listener: `iwarp://HOST:PORT` or `tcp://HOST:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use thiserror::Error;

use super::FabricError;

/// The transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricTransport {
    /// RDMA over iWARP.
    Iwarp,
    /// A TCP socket.
    Tcp,
}

impl FabricTransport {
    /// The URL scheme.
    pub fn scheme(self) -> &'static str {
        match self {
            FabricTransport::Iwarp => "iwarp",
            FabricTransport::Tcp => "tcp",
        }
    }

    fn of(scheme: &str) -> Option<FabricTransport> {
        [FabricTransport::Iwarp, FabricTransport::Tcp]
            .into_iter()
            .find(|c| scheme.eq_ignore_ascii_case(c.scheme()))
    }
}

/// A listener's address and transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricAddress {
    /// The transport.
    pub transport: FabricTransport,
    /// `host:port` or `[v6]:port`.
    authority: String,
}

/// The text is not the address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not the address of a listener: write iwarp://host:port or tcp://host:port, with nothing after it"
)]
pub struct FabricAddressError(String);

impl FabricAddress {
    /// Whether a text has the scheme of a listener's address.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| FabricTransport::of(scheme).is_some())
    }

    /// Resolves the address; the first one if there are several.
    ///
    /// # Errors
    /// [`FabricError::Resolve`].
    pub fn address(&self) -> Result<SocketAddr, FabricError> {
        let mut all = self.authority.to_socket_addrs().map_err(FabricError::Resolve)?;
        all.next().ok_or_else(|| FabricError::Resolve(std::io::ErrorKind::NotFound.into()))
    }
}

impl FromStr for FabricAddress {
    type Err = FabricAddressError;

    fn from_str(text: &str) -> Result<FabricAddress, FabricAddressError> {
        let wrong = || FabricAddressError(text.to_owned());
        let (scheme, authority) = text.split_once("://").ok_or_else(wrong)?;
        let transport = FabricTransport::of(scheme).ok_or_else(wrong)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        // A colon in a host means an IPv6 address, which must be in brackets when a port follows.
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let named = !host.is_empty() && (bracketed || !host.contains([':', '/', '@', ' ']));
        if !named || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(FabricAddress { transport, authority: authority.to_owned() })
    }
}

impl fmt::Display for FabricAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place: FabricAddress = "IWARP://[::1]:5447".parse().expect("a place");
        assert_eq!(
            (place.transport, place.to_string().as_str()),
            (FabricTransport::Iwarp, "iwarp://[::1]:5447")
        );
        assert_eq!(place.address().map(|a| a.port()).ok(), Some(5447));
        let place: FabricAddress = "tcp://localhost:1/".parse().expect("a place");
        assert_eq!(
            (place.transport, place.to_string().as_str()),
            (FabricTransport::Tcp, "tcp://localhost:1")
        );
        assert!(FabricAddress::is_meant("tcp://x") && FabricAddress::is_meant("iwarp://"));
        assert!(!FabricAddress::is_meant("smb://h/s") && !FabricAddress::is_meant("tcp"));
        for wrong in
            ["tcp://host", "tcp://:1", "tcp://h:0x1", "iwarp://h:1/path", "udp://h:1", "tcp://::1:1", "h:1"]
        {
            let said = wrong.parse::<FabricAddress>().expect_err(wrong).to_string();
            assert!(said.contains(wrong) && said.contains("iwarp://host:port"), "{said}");
        }
        let nowhere: FabricAddress = "tcp://name.invalid:1".parse().expect("a place");
        assert!(matches!(nowhere.address(), Err(FabricError::Resolve(_))));
    }
}
