//! DDP segment headers (RFC 5041 4).
//!
//! ```text
//! tagged, 14 bytes           untagged, 18 bytes
//!  0  control                 0  control
//!  1  RDMAP control           1  RDMAP control
//!  2  steering tag, 4         2  RDMAP's word (steering tag to invalidate), 4
//!  6  tagged offset, 8        6  queue number, 4
//!                            10  message sequence number, 4
//!                            14  message offset, 4
//! ```
//! Control: bit 7 tagged, bit 6 last, bits 5–2 reserved (ignored), bits 1–0 the version, 1. All big-endian.

use crate::Stag;
use crate::violation::Violation;

/// Length of a tagged segment's header in bytes.
pub const TAGGED_LEN: usize = 14;
/// Length of an untagged segment's header in bytes.
pub const UNTAGGED_LEN: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 0x01;

/// An untagged buffer queue; RFC 5040 5.1 assigns the operations to the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue(pub u32);

impl Queue {
    /// Sends.
    pub const SEND: Queue = Queue(0);
    /// RDMA Read Requests.
    pub const READ_REQUEST: Queue = Queue(1);
    /// Terminate.
    pub const TERMINATE: Queue = Queue(2);
}

/// The header of a tagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Whether it is the last segment of its message.
    pub last: bool,
    /// RDMAP's control byte.
    pub control: u8,
    /// Steering tag of the target.
    pub stag: Stag,
    /// Tagged offset of the payload's first byte.
    pub offset: u64,
}

/// The header of an untagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// Whether it is the last segment of its message.
    pub last: bool,
    /// RDMAP's control byte.
    pub control: u8,
    /// RDMAP's word: the steering tag to invalidate, for the operations that invalidate one.
    pub word: u32,
    /// Queue of the target buffer.
    pub queue: Queue,
    /// Message sequence number, from 1.
    pub msn: u32,
    /// Offset of the payload's first byte in its message.
    pub offset: u32,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Placed by steering tag.
    Tagged(Tagged),
    /// Placed into the next buffer of a queue.
    Untagged(Untagged),
}

impl Header {
    /// Parses the header at the start of `ulpdu`; returns it and its length, or `None` if `ulpdu` is too short.
    ///
    /// # Errors
    /// A DDP version other than 1 (RFC 5041 4.1, 8.2).
    pub fn parse(ulpdu: &[u8]) -> Result<Option<(Header, usize)>, Violation> {
        let Some(first) = ulpdu.first() else { return Ok(None) };
        let tagged = first & TAGGED != 0;
        if first & VERSION_MASK != VERSION {
            return Err(if tagged { Violation::TAGGED_VERSION } else { Violation::UNTAGGED_VERSION });
        }
        let last = first & LAST != 0;
        Ok(if tagged {
            ulpdu.first_chunk::<TAGGED_LEN>().map(|b| {
                let header = Tagged { last, control: b[1], stag: Stag(be32(b, 2)), offset: be64(b, 6) };
                (Header::Tagged(header), TAGGED_LEN)
            })
        } else {
            ulpdu.first_chunk::<UNTAGGED_LEN>().map(|b| {
                let header = Untagged {
                    last,
                    control: b[1],
                    word: be32(b, 2),
                    queue: Queue(be32(b, 6)),
                    msn: be32(b, 10),
                    offset: be32(b, 14),
                };
                (Header::Untagged(header), UNTAGGED_LEN)
            })
        })
    }

    /// Appends the header.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Header::Tagged(t) => {
                out.extend_from_slice(&[TAGGED | last_bit(t.last) | VERSION, t.control]);
                out.extend_from_slice(&t.stag.0.to_be_bytes());
                out.extend_from_slice(&t.offset.to_be_bytes());
            }
            Header::Untagged(u) => {
                out.extend_from_slice(&[last_bit(u.last) | VERSION, u.control]);
                for word in [u.word, u.queue.0, u.msn, u.offset] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
            }
        }
    }

    /// Whether it is the last segment of its message.
    pub fn last(&self) -> bool {
        match self {
            Header::Tagged(t) => t.last,
            Header::Untagged(u) => u.last,
        }
    }

    /// RDMAP's control byte.
    pub fn control(&self) -> u8 {
        match self {
            Header::Tagged(t) => t.control,
            Header::Untagged(u) => u.control,
        }
    }
}

fn last_bit(last: bool) -> u8 {
    if last { LAST } else { 0 }
}

fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_parsed(tagged: bool, last: bool, control: u8, a: u32, b: u64, c: u32, d: u32) {
            let header = if tagged {
                Header::Tagged(Tagged { last, control, stag: Stag(a), offset: b })
            } else {
                Header::Untagged(Untagged { last, control, word: a, queue: Queue(b as u32), msn: c, offset: d })
            };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Ok(Some((header, bytes.len()))));
            for short in 0..bytes.len() {
                prop_assert_eq!(Header::parse(&bytes[..short]), Ok(None));
            }
        }
    }

    /// RFC 5041 4.1: the version is 1; reserved bits are ignored.
    #[test]
    fn versions_and_reserved_bits() {
        for version in [0u8, 2, 3] {
            assert_eq!(Header::parse(&[version; 18]), Err(Violation::UNTAGGED_VERSION));
            assert_eq!(Header::parse(&[0x80 | version; 18]), Err(Violation::TAGGED_VERSION));
        }
        assert!(Header::parse(&[0x3D; 18]).is_ok_and(|h| h.is_some()));
    }
}
