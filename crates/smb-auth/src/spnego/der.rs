//! The DER elements of SPNEGO tokens (X.690 8.1).

use super::SpnegoError;

pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const GENERAL_STRING: u8 = 0x1b;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const APPLICATION_0: u8 = 0x60;
pub(super) const CONTEXT_0: u8 = 0xa0;
pub(super) const CONTEXT_1: u8 = 0xa1;
pub(super) const CONTEXT_2: u8 = 0xa2;
pub(super) const CONTEXT_3: u8 = 0xa3;
pub(super) const CONTEXT_4: u8 = 0xa4;

/// Reads elements in sequence.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next element's tag and content.
    pub(super) fn element(&mut self) -> Result<(u8, &'a [u8]), SpnegoError> {
        let (&tag, rest) = self.rest.split_first().ok_or(SpnegoError::Truncated)?;
        let (&first, mut rest) = rest.split_first().ok_or(SpnegoError::Truncated)?;
        let length = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let (bytes, after) =
                    rest.split_at_checked(usize::from(first & 0x7f)).ok_or(SpnegoError::Truncated)?;
                rest = after;
                bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte))
            }
            _ => return Err(SpnegoError::Length),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(SpnegoError::Truncated)?;
        self.rest = rest;
        Ok((tag, content))
    }

    /// Returns the content of the next element, which must have this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Result<&'a [u8], SpnegoError> {
        match self.element()? {
            (found, content) if found == tag => Ok(content),
            (found, _) => Err(SpnegoError::UnexpectedTag(found)),
        }
    }
}

/// Encodes an element with its tag and a minimal length.
pub(super) fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(tag);
    if content.len() < 0x80 {
        out.push(content.len() as u8);
    } else {
        let length = content.len().to_be_bytes();
        let zeros = length.iter().take_while(|&&byte| byte == 0).count();
        out.push(0x80 | (length.len() - zeros) as u8);
        out.extend_from_slice(&length[zeros..]);
    }
    out.extend_from_slice(content);
    out
}
