//! Walking the messages of a compound (MS-SMB2 3.2.5.1.9, 3.3.5.2.7).

use std::ops::Range;

use crate::WireError;
use crate::header::{HEADER_LEN, Header};

/// Messages in one compound at most. The specification names no bound; peers in use chain fewer than ten.
pub const MAX_COMPOUND: usize = 128;

/// Splits `bytes` (one transport message, without the transport's framing) into the messages of its chain.
///
/// Each item is the decoded header and the message's range in `bytes`, padding included. The iterator ends after
/// the first error: a chain broken in the middle has no defined rest.
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
        // MS-SMB2 3.3.5.2.7: NextCommand counts from this header and keeps the next one 8-byte aligned.
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
