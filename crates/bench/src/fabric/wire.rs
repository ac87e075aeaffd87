//! The messages of the fabric, except payload. Numbers are little-endian; unused bytes are zero.
//!
//! *Hello*, 24 bytes, the first message, from the initiator (over iWARP in the private data of its MPA
//! request): 0..8 `CWFABRIC`, 8..12 version 1, 12..16 the longest I/O in bytes, 16..20 maximum outstanding
//! I/Os.
//!
//! *Welcome*, 32 bytes, the listener's answer (in the private data of the MPA reply): 0..8 `CWFABRIC`, 8..12
//! version 1, 12..16 verdict (0: accepted; else [`Refusal`]), 16..24 size in bytes, 24..28 the longest I/O
//! accepted, 28..32 maximum outstanding I/Os accepted.
//!
//! *Request*, 32 bytes: 0..4 id, less than the number of outstanding I/Os and not in use, 4..8 kind (0: read,
//! 1: write), 8..16 offset, 16..20 length in bytes; over iWARP 20..24 the steering tag and 24..32 the tagged
//! offset of the memory. Over TCP the data of a write follows.
//!
//! *Reply*, 8 bytes: 0..4 id, 4..8 length. Over TCP the data of a read follows.

use thiserror::Error;

use crate::engine::Kind;

/// Bytes of a hello.
pub(crate) const HELLO: usize = 24;
/// Bytes of a welcome.
pub(crate) const WELCOME: usize = 32;
/// Bytes of a request.
pub(crate) const REQUEST: usize = 32;
/// Bytes of a reply.
pub(crate) const REPLY: usize = 8;

const MAGIC: [u8; 8] = *b"CWFABRIC";
const VERSION: u32 = 1;

/// The limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The size in bytes: I/O must be below it.
    pub size: u64,
    /// The longest I/O, in bytes.
    pub block: u32,
    /// Maximum outstanding I/Os of a connection.
    pub depth: u32,
    /// Maximum connections.
    pub connections: u32,
}

impl Default for Bounds {
    /// A connection uses 4 KiB of memory for each outstanding I/O, plus 9 MiB, and a thread.
    fn default() -> Bounds {
        Bounds { size: 1 << 40, block: 16 << 20, depth: 1024, connections: 64 }
    }
}

/// Why a listener refuses an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The protocol versions differ.
    #[error("the other side has another version: use the same build on both")]
    Version,
    /// The initiator's I/Os are too long.
    #[error(
        "the listener accepts I/Os of {most} bytes at most: use a smaller -b, or start it with a larger --block"
    )]
    Block {
        /// The limit, in bytes.
        most: u32,
    },
    /// The initiator has too many outstanding I/Os.
    #[error(
        "the listener accepts {most} outstanding I/Os of a thread at most: use a smaller -o, or start it with a larger --depth"
    )]
    Depth {
        /// The limit.
        most: u32,
    },
    /// The maximum number of connections is reached.
    #[error(
        "the listener accepts no more connections: use fewer threads, or start it with a larger --connections"
    )]
    Full,
}

impl Refusal {
    fn number(self) -> u32 {
        match self {
            Refusal::Version => 1,
            Refusal::Block { .. } => 2,
            Refusal::Depth { .. } => 3,
            Refusal::Full => 4,
        }
    }
}

/// The initiator's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Its longest I/O, in bytes.
    pub block: u32,
    /// Maximum outstanding I/Os.
    pub depth: u32,
    version: u32,
}

impl Hello {
    pub(crate) fn new(block: u32, depth: u32) -> Hello {
        Hello { block, depth, version: VERSION }
    }

    pub(crate) fn to_bytes(self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.block.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.depth.to_le_bytes());
        bytes
    }

    /// Returns `None` for another protocol.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Hello> {
        let bytes: &[u8; HELLO] = bytes.try_into().ok()?;
        (bytes[..8] == MAGIC).then(|| Hello {
            version: word(bytes, 8),
            block: word(bytes, 12),
            depth: word(bytes, 16),
        })
    }

    /// Checks the announcement against `bounds`.
    pub(crate) fn judge(&self, bounds: &Bounds) -> Result<(), Refusal> {
        if self.version != VERSION {
            Err(Refusal::Version)
        } else if self.block > bounds.block {
            Err(Refusal::Block { most: bounds.block })
        } else if self.depth > bounds.depth {
            Err(Refusal::Depth { most: bounds.depth })
        } else {
            Ok(())
        }
    }

    /// The limits agreed for the connection.
    pub(crate) fn agreed(&self, size: u64) -> Agreed {
        Agreed { size, block: self.block, depth: self.depth }
    }
}

/// The listener's answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// Whether the initiator is accepted.
    pub verdict: Result<(), Refusal>,
    /// The size in bytes.
    pub size: u64,
    bounds: (u32, u32),
}

impl Welcome {
    pub(crate) fn new(verdict: Result<(), Refusal>, bounds: &Bounds) -> Welcome {
        Welcome { verdict, size: bounds.size, bounds: (bounds.block, bounds.depth) }
    }

    pub(crate) fn to_bytes(self) -> [u8; WELCOME] {
        let mut bytes = [0; WELCOME];
        let number = self.verdict.err().map_or(0, Refusal::number);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.bounds.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.bounds.1.to_le_bytes());
        bytes
    }

    /// Returns `None` for another protocol.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Welcome> {
        let bytes: &[u8; WELCOME] = bytes.try_into().ok()?;
        let bounds = (word(bytes, 24), word(bytes, 28));
        let verdict = match word(bytes, 12) {
            0 => Ok(()),
            2 => Err(Refusal::Block { most: bounds.0 }),
            3 => Err(Refusal::Depth { most: bounds.1 }),
            4 => Err(Refusal::Full),
            _ => Err(Refusal::Version),
        };
        let size = u64::from_le_bytes(bytes[16..24].try_into().ok()?);
        let verdict = if word(bytes, 8) == VERSION { verdict } else { Err(Refusal::Version) };
        (bytes[..8] == MAGIC).then_some(Welcome { verdict, size, bounds })
    }
}

/// The limits that both sides of a connection enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    size: u64,
    /// The longest I/O, in bytes.
    pub block: u32,
    /// Maximum outstanding I/Os.
    pub depth: u32,
}

/// A request for an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub id: u32,
    pub kind: Kind,
    pub offset: u64,
    /// In bytes.
    pub length: u32,
    /// Steering tag of the initiator's memory; over TCP 0.
    pub stag: u32,
    /// Tagged offset of its first byte; over TCP 0.
    pub address: u64,
}

impl Request {
    pub(crate) fn to_bytes(self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[0..4].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::from(self.kind == Kind::Write).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.stag.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.address.to_le_bytes());
        bytes
    }

    /// Returns `None` if the request is malformed or exceeds the agreed limits.
    pub(crate) fn parse(bytes: &[u8], agreed: &Agreed) -> Option<Request> {
        let bytes: &[u8; REQUEST] = bytes.try_into().ok()?;
        let kind = match word(bytes, 4) {
            0 => Kind::Read,
            1 => Kind::Write,
            _ => return None,
        };
        let offset = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        let address = u64::from_le_bytes(bytes[24..32].try_into().ok()?);
        let (id, length, stag) = (word(bytes, 0), word(bytes, 16), word(bytes, 20));
        let end = offset.checked_add(length.into())?;
        let agrees = id < agreed.depth && (1..=agreed.block).contains(&length) && end <= agreed.size;
        agrees.then_some(Request { id, kind, offset, length, stag, address })
    }
}

/// The reply to a completed I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub id: u32,
    /// In bytes.
    pub length: u32,
}

impl Reply {
    pub(crate) fn to_bytes(self) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..4].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Reply> {
        let bytes: &[u8; REPLY] = bytes.try_into().ok()?;
        Some(Reply { id: word(bytes, 0), length: word(bytes, 4) })
    }
}

/// The 32-bit number at offset `at`, which must be within the bytes.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AGREED: Agreed = Agreed { size: 1 << 20, block: 8192, depth: 4 };

    fn request() -> Request {
        Request { id: 3, kind: Kind::Write, offset: 4096, length: 8192, stag: 0x0102_0304, address: 0x0506 }
    }

    #[test]
    fn golden_bytes() {
        let hello = Hello::new(8192, 32);
        assert_eq!(hello.to_bytes(), *b"CWFABRIC\x01\0\0\0\0\x20\0\0\x20\0\0\0\0\0\0\0");
        assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
        let golden = *b"\x03\0\0\0\x01\0\0\0\0\x10\0\0\0\0\0\0\0\x20\0\0\x04\x03\x02\x01\x06\x05\0\0\0\0\0\0";
        assert_eq!(request().to_bytes(), golden);
        assert_eq!(Request::parse(&golden, &AGREED), Some(request()));
        let reply = Reply { id: 3, length: 8192 };
        assert_eq!(reply.to_bytes(), *b"\x03\0\0\0\0\x20\0\0");
        assert_eq!(Reply::parse(&reply.to_bytes()), Some(reply));
    }

    #[test]
    fn a_listener_says_why_not() {
        let bounds = Bounds { size: 5, block: 4096, depth: 8, connections: 1 };
        let said = |hello: Hello| {
            let welcome = Welcome::new(hello.judge(&bounds), &bounds);
            assert_eq!(Welcome::parse(&welcome.to_bytes()), Some(welcome));
            welcome.verdict
        };
        assert_eq!(said(Hello::new(4096, 8)), Ok(()));
        assert_eq!(said(Hello::new(4097, 8)), Err(Refusal::Block { most: 4096 }));
        assert_eq!(said(Hello::new(1, 9)), Err(Refusal::Depth { most: 8 }));
        assert_eq!(said(Hello { version: 2, ..Hello::new(1, 1) }), Err(Refusal::Version));
        let full = Welcome::new(Err(Refusal::Full), &bounds);
        assert_eq!(Welcome::parse(&full.to_bytes()), Some(full));
        // A later version may use the bytes after its version number freely.
        let mut later = Welcome::new(Ok(()), &bounds).to_bytes();
        later[8] = 2;
        assert_eq!(Welcome::parse(&later).map(|w| w.verdict), Some(Err(Refusal::Version)));
    }

    #[test]
    fn requests_beyond_the_agreed_limits_are_refused() {
        let refused = |r: Request| Request::parse(&r.to_bytes(), &AGREED).is_none();
        assert!(!refused(request()));
        assert!(refused(Request { id: 4, ..request() }));
        assert!(refused(Request { length: 0, ..request() }));
        assert!(refused(Request { length: 8193, ..request() }));
        assert!(refused(Request { offset: (1 << 20) - 8191, ..request() }));
        assert!(refused(Request { offset: u64::MAX, ..request() }));
        let mut kind = request().to_bytes();
        kind[4] = 2;
        assert!(Request::parse(&kind, &AGREED).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (Hello::parse(&bytes), Welcome::parse(&bytes), Request::parse(&bytes, &AGREED), Reply::parse(&bytes));
        }
    }
}
