//! Iterates over the messages of a compound (MS-SMB2 3.2.5.1.9, 3.3.5.2.7).

use std::ops::Range;

use crate::WireError;
use crate::header::{HEADER_LEN, Header};

/// Maximum number of messages in one compound. The specification has no limit; known peers chain fewer than ten.
pub const MAX_COMPOUND: usize = 128;

/// Splits `bytes` (one transport message, without the transport's framing) into the messages of its chain.
///
/// Each item is the decoded header and the message's range in `bytes`, padding included. The iterator ends after the
/// first error, because the position of the next message is then unknown.
pub fn split(bytes: &[u8]) -> Split<'_> {
    Split { bytes, at: Some(0), count: 0 }
}

/// See [`split`].
#[derive(Debug, Clone)]
pub struct Split<'a> {
    bytes: &'a [u8],
    at: Option<usize>,
    count: usize,
}

impl Split<'_> {
    fn step(&mut self, at: usize) -> Result<(Header, Range<usize>), WireError> {
        self.count += 1;
        if self.count > MAX_COMPOUND {
            return Err(WireError::TooLarge { what: "compound chain", len: self.count, max: MAX_COMPOUND });
        }
        let header = Header::decode(&self.bytes[at..])?;
        let next = header.next_command as usize;
        if next == 0 {
            return Ok((header, at..self.bytes.len()));
        }
        // MS-SMB2 3.3.5.2.7: NextCommand counts from this header; the next header must be 8-byte aligned.
        if !next.is_multiple_of(8) || next < HEADER_LEN {
            return Err(WireError::malformed("NextCommand"));
        }
        let end = at + next;
        if end >= self.bytes.len() {
            return Err(WireError::Truncated { what: "NextCommand", need: end, have: self.bytes.len() });
        }
        self.at = Some(end);
        Ok((header, at..end))
    }
}

impl Iterator for Split<'_> {
    type Item = Result<(Header, Range<usize>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.take()?;
        Some(self.step(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(next_command: u32) -> Vec<u8> {
        let mut out = Vec::new();
        Header { next_command, ..Header::default() }.encode(&mut out);
        out.extend([0; 8]);
        out
    }

    #[test]
    fn links_that_lead_nowhere_end_the_chain() {
        let cases = [
            (71, WireError::Malformed { what: "NextCommand" }),
            (56, WireError::Malformed { what: "NextCommand" }),
            (72, WireError::Truncated { what: "NextCommand", need: 72, have: 72 }),
            (u32::MAX - 7, WireError::Truncated { what: "NextCommand", need: 0xFFFF_FFF8, have: 72 }),
        ];
        for (next, error) in cases {
            let bytes = message(next);
            let mut split = split(&bytes);
            assert_eq!(split.next(), Some(Err(error)), "{next}");
            assert_eq!(split.next(), None);
        }
    }

    #[test]
    fn a_chain_has_a_bound() {
        let mut bytes = message(72).repeat(MAX_COMPOUND);
        bytes.extend(message(0));
        let items: Vec<_> = split(&bytes).collect();
        assert_eq!(items.len(), MAX_COMPOUND + 1);
        assert!(items[..MAX_COMPOUND].iter().all(Result::is_ok));
        assert!(matches!(items[MAX_COMPOUND], Err(WireError::TooLarge { max: MAX_COMPOUND, .. })));
    }

    #[test]
    fn a_second_header_is_checked_too() {
        let mut bytes = message(72);
        bytes.extend(b"not a header");
        let items: Vec<_> = split(&bytes).collect();
        assert!(matches!(items[..], [Ok(_), Err(WireError::Truncated { need: 64, have: 12, .. })]));
    }
}
