//! MPA: the start-up frames (RFC 5044 7.1, RFC 6581 4) and the framing of segments (RFC 5044 4).
//!
//! ```text
//! start-up frame                              FPDU
//!  0  key, 16: "MPA ID Req Frame" or Rep       0  length of the ULPDU, 2
//! 16  flags                                    2  ULPDU
//! 17  revision                                    padding to a multiple of 4
//! 18  length of what follows, 2                   CRC32C of all that, 4, or 0 when off
//! 20  enhanced: IRD and flags A, B, 2
//! 22            ORD and flags C, D, 2
//!     private data
//! ```
//! The CRC is stored least significant byte first (as in iSCSI); all other fields are big-endian.

use arena::passes::{Pass, count};
use crc_fast::{CrcAlgorithm, Digest};
use thiserror::Error;

/// Length of the fixed part of a start-up frame, before the private data, in bytes.
pub const FRAME_LEN: usize = 20;
/// Maximum length of the private data, including the enhanced words, in bytes (RFC 5044 7.1).
pub const PRIVATE_MAX: usize = 512;
/// IRD or ORD value that means "not negotiated in this frame" (RFC 6581 9.1).
pub const UNSPECIFIED_DEPTH: u16 = 0x3FFF;
/// Bytes of an FPDU besides ULPDU and padding: length and CRC.
pub const FPDU_OVERHEAD: usize = 6;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Kind of start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the initiator.
    Request,
    /// From the responder.
    Reply,
}

/// The enhanced words of revision 2 (RFC 6581 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// Maximum number of RDMA Reads that the sender of the frame answers concurrently, at most 0x3FFF.
    pub ird: u16,
    /// Maximum number of RDMA Reads that it starts concurrently, at most 0x3FFF.
    pub ord: u16,
    /// Flag A: the initiator sends a ready-to-receive message, so that either side may send first.
    pub peer_to_peer: bool,
    /// The possible ready-to-receive messages.
    pub ready: Ready,
}

/// Ready-to-receive messages (RFC 6581 8): flags B, C, D.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A Send without data.
    pub send: bool,
    /// An RDMA Write without data.
    pub write: bool,
    /// An RDMA Read without data.
    pub read: bool,
}

impl Ready {
    /// All of them.
    pub const ALL: Ready = Ready { send: true, write: true, read: true };

    /// Whether no message is set.
    pub fn is_empty(self) -> bool {
        self == Ready::default()
    }

    /// The messages that are set in both.
    pub fn and(self, other: Ready) -> Ready {
        Ready {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }
}

/// A start-up frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Request or reply.
    pub kind: Kind,
    /// MPA revision: 1 or 2.
    pub revision: u8,
    /// Whether the sender requests markers in the data that it receives.
    pub markers: bool,
    /// Whether the sender requests CRCs.
    pub crc: bool,
    /// Whether a reply refuses the connection.
    pub reject: bool,
    /// The enhanced words; only in revision 2.
    pub enhanced: Option<Enhanced>,
    /// Private data of the upper layer.
    pub private_data: Vec<u8>,
}

/// An invalid start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The key is wrong: the peer is not an iWARP endpoint.
    #[error("the peer does not use MPA, so it is not an iWARP endpoint")]
    Key,
    /// An unknown revision.
    #[error("unsupported MPA revision {0}")]
    Revision(u8),
    /// Private data longer than [`PRIVATE_MAX`], or shorter than the enhanced words.
    #[error("an MPA frame with an invalid length of private data: {0} bytes")]
    PrivateData(u16),
}

impl Frame {
    /// Checks the fixed part and returns the number of bytes that follow it.
    ///
    /// # Errors
    /// The bytes are not a start-up frame of the expected `kind`.
    pub fn tail_len(kind: Kind, fixed: &[u8; FRAME_LEN]) -> Result<usize, FrameError> {
        let key = if kind == Kind::Request { REQUEST_KEY } else { REPLY_KEY };
        if !fixed.starts_with(key) {
            return Err(FrameError::Key);
        }
        if !(1..=2).contains(&fixed[17]) {
            return Err(FrameError::Revision(fixed[17]));
        }
        let len = u16::from_be_bytes([fixed[18], fixed[19]]);
        let least = if is_enhanced(fixed) { 4 } else { 0 };
        if !(least..=PRIVATE_MAX as u16).contains(&len) {
            return Err(FrameError::PrivateData(len));
        }
        Ok(len.into())
    }

    /// Decodes a frame whose fixed part [`Frame::tail_len`] accepted.
    ///
    /// # Errors
    /// The errors of [`Frame::tail_len`]; also if the tail has another length.
    pub fn parse(kind: Kind, fixed: &[u8; FRAME_LEN], tail: &[u8]) -> Result<Frame, FrameError> {
        if Frame::tail_len(kind, fixed)? != tail.len() {
            return Err(FrameError::PrivateData(tail.len().min(usize::from(u16::MAX)) as u16));
        }
        let flags = fixed[16];
        let (enhanced, private_data) = match tail.split_first_chunk::<4>() {
            Some((words, rest)) if is_enhanced(fixed) => (Some(Enhanced::parse(*words)), rest),
            _ => (None, tail),
        };
        Ok(Frame {
            kind,
            revision: fixed[17],
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0,
            enhanced,
            private_data: private_data.to_vec(),
        })
    }

    /// Encodes the frame. The private data may have up to [`PRIVATE_MAX`] less 4 bytes.
    ///
    /// # Errors
    /// [`FrameError::PrivateData`] if it does not fit.
    pub fn to_vec(&self) -> Result<Vec<u8>, FrameError> {
        let words = self.enhanced.map(|e| e.to_bytes());
        let len = self.private_data.len() + words.map_or(0, |w| w.len());
        let too_long = FrameError::PrivateData(len.min(usize::from(u16::MAX)) as u16);
        let len = u16::try_from(len).ok().filter(|l| usize::from(*l) <= PRIVATE_MAX).ok_or(too_long)?;
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        let flags = bit(self.markers, MARKERS)
            | bit(self.crc, CRC)
            | bit(self.reject, REJECT)
            | bit(self.enhanced.is_some(), ENHANCED);
        let mut out = Vec::with_capacity(FRAME_LEN + usize::from(len));
        out.extend_from_slice(if self.kind == Kind::Request { REQUEST_KEY } else { REPLY_KEY });
        out.extend_from_slice(&[flags, self.revision]);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(words.as_ref().map_or(&[], |w| &w[..]));
        out.extend_from_slice(&self.private_data);
        Ok(out)
    }
}

/// RFC 6581 4: the flag is defined from revision 2 on; in revision 1 it is reserved and ignored.
fn is_enhanced(fixed: &[u8; FRAME_LEN]) -> bool {
    fixed[17] == 2 && fixed[16] & ENHANCED != 0
}

impl Enhanced {
    fn parse(b: [u8; 4]) -> Enhanced {
        let (ird, ord) = (u16::from_be_bytes([b[0], b[1]]), u16::from_be_bytes([b[2], b[3]]));
        let ready = Ready { send: ird & 0x4000 != 0, write: ord & 0x8000 != 0, read: ord & 0x4000 != 0 };
        Enhanced { ird: ird & 0x3FFF, ord: ord & 0x3FFF, peer_to_peer: ird & 0x8000 != 0, ready }
    }

    fn to_bytes(self) -> [u8; 4] {
        let bit = |on: bool, bit: u16| if on { bit } else { 0 };
        let ird = self.ird & 0x3FFF | bit(self.peer_to_peer, 0x8000) | bit(self.ready.send, 0x4000);
        let ord = self.ord & 0x3FFF | bit(self.ready.write, 0x8000) | bit(self.ready.read, 0x4000);
        let (i, o) = (ird.to_be_bytes(), ord.to_be_bytes());
        [i[0], i[1], o[0], o[1]]
    }
}

/// Length of the padding after a ULPDU of `len` bytes (RFC 5044 4.1).
pub fn padding(len: usize) -> usize {
    (2 + len).wrapping_neg() % 4
}

/// Length of the whole FPDU for a ULPDU of `len` bytes.
pub fn fpdu_len(len: usize) -> usize {
    FPDU_OVERHEAD + len + padding(len)
}

/// Length of the longest ULPDU whose FPDU has at most `segment` bytes: the payload of one TCP segment (RFC 5044
/// 4.2).
pub fn max_ulpdu(segment: usize) -> usize {
    let largest = usize::from(u16::MAX) + FPDU_OVERHEAD + 1; // the length must fit its 16-bit field
    (segment.min(largest) & !3).saturating_sub(FPDU_OVERHEAD)
}

/// CRC32C over the parts of an FPDU, in order.
pub struct Crc(Digest);

impl Default for Crc {
    fn default() -> Crc {
        Crc::new()
    }
}

impl Crc {
    /// The CRC of no bytes.
    pub fn new() -> Crc {
        Crc(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
        count(Pass::Crc, bytes.len());
    }

    /// The CRC as encoded at the end of an FPDU.
    pub fn to_bytes(&self) -> [u8; 4] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}

/// Whether a whole FPDU, from length to CRC, matches its CRC.
pub fn crc_matches(fpdu: &[u8]) -> bool {
    let Some((covered, crc)) = fpdu.split_last_chunk::<4>() else { return false };
    count(Pass::Crc, covered.len());
    crc_fast::crc32_iscsi(covered).to_le_bytes() == *crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(kind: Kind, bytes: &[u8]) -> Result<Frame, FrameError> {
        let (fixed, tail) = bytes.split_first_chunk().expect("a fixed part");
        Frame::parse(kind, fixed, tail)
    }

    prop_compose! {
        fn frames()(reply: bool, revision in 1u8..=2, flags: [bool; 7], ird in 0u16..0x4000, ord in 0u16..0x4000,
                    private_data in proptest::collection::vec(any::<u8>(), 0..=508)) -> Frame {
            let ready = Ready { send: flags[3], write: flags[4], read: flags[5] };
            let enhanced = Enhanced { ird, ord, peer_to_peer: flags[6], ready };
            Frame {
                kind: if reply { Kind::Reply } else { Kind::Request },
                revision,
                markers: flags[0],
                crc: flags[1],
                reject: flags[2],
                enhanced: (revision == 2).then_some(enhanced),
                private_data,
            }
        }
    }

    proptest! {
        #[test]
        fn frames_round_trip(frame in frames()) {
            let bytes = frame.to_vec().expect("it fits");
            prop_assert_eq!(parse(frame.kind, &bytes), Ok(frame));
        }

        #[test]
        fn no_frame_panics(bytes in proptest::collection::vec(any::<u8>(), FRAME_LEN..600), key in 0..3) {
            let mut bytes = bytes;
            match key {
                0 => bytes[..16].copy_from_slice(REQUEST_KEY),
                1 => bytes[..16].copy_from_slice(REPLY_KEY),
                _ => {}
            }
            let _ = parse(Kind::Request, &bytes);
            let _ = parse(Kind::Reply, &bytes);
        }

        #[test]
        fn an_fpdu_fits_its_segment(segment in 128usize..100_000) {
            let most = max_ulpdu(segment);
            prop_assert!(fpdu_len(most) <= segment && fpdu_len(most).is_multiple_of(4));
            prop_assert!(most <= usize::from(u16::MAX) && padding(most) == 0);
        }
    }

    #[test]
    fn frames_that_are_none() {
        let frame = Frame {
            kind: Kind::Request,
            revision: 2,
            markers: false,
            crc: false,
            reject: false,
            enhanced: Some(Enhanced { ird: 1, ord: 2, peer_to_peer: false, ready: Ready::default() }),
            private_data: vec![],
        };
        let good = frame.to_vec().expect("it fits");
        assert_eq!(parse(Kind::Reply, &good), Err(FrameError::Key));
        let with = |at: usize, value: u8| {
            let mut b = good.clone();
            b[at] = value;
            parse(Kind::Request, &b)
        };
        assert_eq!(with(0, b'X'), Err(FrameError::Key));
        assert_eq!(with(17, 0), Err(FrameError::Revision(0)));
        assert_eq!(with(17, 3), Err(FrameError::Revision(3)));
        assert_eq!(with(18, 2), Err(FrameError::PrivateData(516)));
        assert_eq!(with(19, 3), Err(FrameError::PrivateData(3)));
        // RFC 6581 4: in revision 1 the flag is reserved, and these 4 bytes are private data.
        assert_eq!(with(17, 1).map(|f| (f.enhanced, f.private_data)), Ok((None, vec![0, 1, 0, 2])));
        let private_data = vec![0; 509];
        assert_eq!(Frame { private_data, ..frame }.to_vec(), Err(FrameError::PrivateData(513)));
    }

    /// RFC 5044 4.4 takes the CRC from iSCSI: RFC 3720 B.4, 32 bytes of zeroes give aa 36 91 8a.
    #[test]
    fn crc_is_iscsis() {
        let mut crc = Crc::new();
        crc.update(&[0; 20]);
        crc.update(&[0; 12]);
        assert_eq!(crc.to_bytes(), [0xAA, 0x36, 0x91, 0x8A]);
        let mut fpdu = vec![0; 32];
        fpdu.extend_from_slice(&[0xAA, 0x36, 0x91, 0x8A]);
        assert!(crc_matches(&fpdu));
        fpdu[3] ^= 1;
        assert!(!crc_matches(&fpdu) && !crc_matches(&[0; 3]));
    }
}
