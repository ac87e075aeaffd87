//! FSCTL_VALIDATE_NEGOTIATE_INFO (MS-SMB2 2.2.31.4, 2.2.32.6) and FSCTL_QUERY_NETWORK_INTERFACE_INFO (2.2.32.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::cursor::{Field, Reader, fit_u16, patch_u32, slice, zeros};
use crate::macros::{flag_set, record};
use crate::msg::{Capabilities, Dialect, Dialects, MAX_DIALECTS, SecurityMode};
use crate::{Guid, WireError};

/// VALIDATE_NEGOTIATE_INFO request (MS-SMB2 2.2.31.4): the fields that the client sent in NEGOTIATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValidateNegotiateRequest<'a> {
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Client GUID.
    pub guid: Guid,
    /// Security mode.
    pub security_mode: SecurityMode,
    /// Dialects.
    pub dialects: Dialects<'a>,
}

impl<'a> ValidateNegotiateRequest<'a> {
    /// Decodes the input.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(input: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(input, "VALIDATE_NEGOTIATE_INFO request");
        let (capabilities, guid, security_mode) = (r.get()?, r.get()?, r.get()?);
        let count = usize::from(r.get::<u16>()?);
        if count > MAX_DIALECTS {
            return Err(WireError::TooLarge { what: "DialectCount", len: count, max: MAX_DIALECTS });
        }
        let dialects = Dialects::from_bytes(r.take(count * 2)?)?;
        Ok(Self { capabilities, guid, security_mode, dialects })
    }

    /// Appends the input to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let count = fit_u16(self.dialects.len(), "DialectCount")?;
        self.capabilities.put(out);
        self.guid.put(out);
        self.security_mode.put(out);
        count.put(out);
        self.dialects.iter().for_each(|d| d.put(out));
        Ok(())
    }
}

record! {
    /// VALIDATE_NEGOTIATE_INFO response (MS-SMB2 2.2.32.6): the fields that the server sent in NEGOTIATE.
    pub struct ValidateNegotiateResponse [24] {
        /// Capabilities.
        pub capabilities: Capabilities,
        /// Server GUID.
        pub guid: Guid,
        /// Security mode.
        pub security_mode: SecurityMode,
        /// The chosen dialect.
        pub dialect: Dialect,
    }
}

flag_set! {
    /// The capabilities of an interface.
    pub struct InterfaceCapability: u32 {
        /// Receive-side scaling: clients open several connections to this interface.
        const RSS_CAPABLE = 1;
        /// RDMA.
        const RDMA_CAPABLE = 2;
    }
}

/// Maximum number of interfaces that a reader accepts in one response.
pub const MAX_INTERFACES: usize = 1024;

/// NETWORK_INTERFACE_INFO (MS-SMB2 2.2.32.5): one address of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkInterface {
    /// The interface's number; entries of one interface share it.
    pub if_index: u32,
    /// Its capabilities.
    pub capability: InterfaceCapability,
    /// Speed in bits per second.
    pub link_speed_bits_per_second: u64,
    /// Address; the port is 0 (clients use the port that they know). `None` if the family is neither IPv4 nor IPv6:
    /// ignore the entry.
    pub address: Option<SocketAddr>,
}

/// Length of an entry in bytes.
const ENTRY_LEN: usize = 152;
const SOCKADDR_LEN: usize = 128;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 0x17;

impl NetworkInterface {
    fn decode(entry: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(entry, "NETWORK_INTERFACE_INFO");
        r.skip(4)?;
        let (if_index, capability) = (r.get()?, r.get()?);
        r.skip(4)?;
        let link_speed_bits_per_second = r.get()?;
        let address = take_sockaddr(r.take(SOCKADDR_LEN)?)?;
        Ok(Self { if_index, capability, link_speed_bits_per_second, address })
    }

    fn put(&self, out: &mut Vec<u8>) {
        0u32.put(out);
        self.if_index.put(out);
        self.capability.put(out);
        0u32.put(out);
        self.link_speed_bits_per_second.put(out);
        let start = out.len();
        match self.address {
            Some(SocketAddr::V4(a)) => {
                AF_INET.put(out);
                out.extend_from_slice(&a.port().to_be_bytes());
                out.extend_from_slice(&a.ip().octets());
            }
            Some(SocketAddr::V6(a)) => {
                AF_INET6.put(out);
                out.extend_from_slice(&a.port().to_be_bytes());
                0u32.put(out);
                out.extend_from_slice(&a.ip().octets());
                a.scope_id().put(out);
            }
            None => {}
        }
        zeros(out, start + SOCKADDR_LEN - out.len());
    }
}

/// SOCKADDR_STORAGE (MS-SMB2 2.2.32.5.1): family, port in network order, then fields that depend on the family.
fn take_sockaddr(bytes: &[u8]) -> Result<Option<SocketAddr>, WireError> {
    let mut r = Reader::new(bytes, "SOCKADDR_STORAGE");
    let family: u16 = r.get()?;
    let port = u16::from_be_bytes(r.array()?);
    Ok(match family {
        AF_INET => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)), port)),
        AF_INET6 => {
            r.skip(4)?;
            let ip = Ipv6Addr::from(r.array::<16>()?);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, r.get()?)))
        }
        _ => None,
    })
}

/// Appends the linked entries to `out`.
pub fn put_interfaces(out: &mut Vec<u8>, interfaces: &[NetworkInterface]) {
    for (i, interface) in interfaces.iter().enumerate() {
        let at = out.len();
        interface.put(out);
        if i + 1 < interfaces.len() {
            patch_u32(out, at, ENTRY_LEN as u32);
        }
    }
}

/// Reads the entries; ends after the first error.
#[derive(Debug, Clone)]
pub struct NetworkInterfaces<'a> {
    rest: Option<&'a [u8]>,
    count: usize,
}

impl<'a> NetworkInterfaces<'a> {
    /// The entries in `output`; empty bytes are an empty list.
    pub fn new(output: &'a [u8]) -> Self {
        Self { rest: Some(output).filter(|b| !b.is_empty()), count: 0 }
    }
}

impl Iterator for NetworkInterfaces<'_> {
    type Item = Result<NetworkInterface, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        const WHAT: &str = "NETWORK_INTERFACE_INFO";
        let bytes = self.rest.take()?;
        self.count += 1;
        if self.count > MAX_INTERFACES {
            return Some(Err(WireError::TooLarge { what: WHAT, len: self.count, max: MAX_INTERFACES }));
        }
        let mut step = || {
            let entry = slice(bytes, 0, ENTRY_LEN, WHAT)?;
            let next = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) as usize;
            if next != 0 {
                if next < ENTRY_LEN {
                    return Err(WireError::malformed("NETWORK_INTERFACE_INFO Next"));
                }
                self.rest = Some(slice(bytes, next, bytes.len().saturating_sub(next), WHAT)?);
            }
            NetworkInterface::decode(entry)
        };
        let item = step();
        if item.is_err() {
            self.rest = None;
        }
        Some(item)
    }
}
