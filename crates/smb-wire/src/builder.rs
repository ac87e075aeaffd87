//! Builds messages and compounds.

use std::ops::Range;

use smallvec::SmallVec;

use crate::cursor::{pad, patch_u32};
use crate::header::{HEADER_LEN, Header, OFFSET_NEXT_COMMAND};
use crate::{Encode, WireError};

/// Range of each message of a chain in the output, including its padding to the next message.
pub type MessageRanges = SmallVec<[Range<usize>; 4]>;

/// Appends one message, or a compound of several, to a caller's buffer.
///
/// The buffer may already contain bytes (a transport's frame header, space for a transform header). Offsets on the
/// wire count from the header that the last [`MessageBuilder::begin`] wrote.
///
/// If another message follows, a message is padded to 8 bytes and its NextCommand is patched (MS-SMB2 3.2.4.1.4,
/// 3.3.4.1.3). The caller signs the messages: [`MessageBuilder::finish`] returns the bytes that each signature
/// covers.
#[derive(Debug)]
pub struct MessageBuilder<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    open: bool,
    done: MessageRanges,
}

impl<'v> MessageBuilder<'v> {
    /// Creates a builder that appends to `out`.
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start, open: false, done: SmallVec::new() }
    }

    /// Starts a message: ends the previous one, if any, and writes the header.
    pub fn begin(&mut self, header: &Header) {
        if self.open {
            pad(self.out, self.start, 8);
            let next = self.out.len() - self.start;
            patch_u32(self.out, self.start + OFFSET_NEXT_COMMAND, next as u32);
            self.done.push(self.start..self.out.len());
        }
        self.start = self.out.len();
        self.open = true;
        header.encode(self.out);
    }

    /// Appends the header and body of one message.
    ///
    /// # Errors
    /// The error of the body's `encode`; the buffer is then unchanged.
    pub fn push<B: Encode + ?Sized>(&mut self, header: &Header, body: &B) -> Result<(), WireError> {
        let (len, start, open, done) = (self.out.len(), self.start, self.open, self.done.len());
        self.begin(header);
        if let Err(e) = body.encode(self) {
            if self.done.len() > done {
                patch_u32(self.out, start + OFFSET_NEXT_COMMAND, 0);
                self.done.truncate(done);
            }
            self.out.truncate(len);
            (self.start, self.open) = (start, open);
            return Err(e);
        }
        Ok(())
    }

    /// The buffer, for bodies, and for payload that follows a head.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Offset of the current message's header in the buffer.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Length of the current message so far, in bytes: the wire offset of the next appended byte.
    pub fn offset(&self) -> usize {
        self.out.len() - self.start
    }

    /// Pads the current message to `align` bytes from its header.
    pub fn align(&mut self, align: usize) {
        pad(self.out, self.start, align);
    }

    /// Ends the chain; returns the range of each message in the buffer.
    pub fn finish(mut self) -> MessageRanges {
        if self.open {
            self.done.push(self.start..self.out.len());
        }
        self.done
    }
}

/// Appends `messages` (each a header and its body) to `out` as one compound, padded and linked.
///
/// For servers that produce replies one by one. Returns the range of each message. Panics if a message is shorter
/// than a header, which is a bug of the caller.
pub fn chain<'m>(out: &mut Vec<u8>, messages: impl IntoIterator<Item = &'m [u8]>) -> MessageRanges {
    let mut done = MessageRanges::new();
    for message in messages {
        assert!(message.len() >= HEADER_LEN, "a message starts with its header");
        if let Some(last) = done.last_mut() {
            pad(out, last.start, 8);
            let next = out.len() - last.start;
            patch_u32(out, last.start + OFFSET_NEXT_COMMAND, next as u32);
            last.end = out.len();
        }
        let start = out.len();
        out.extend_from_slice(message);
        patch_u32(out, start + OFFSET_NEXT_COMMAND, 0);
        done.push(start..out.len());
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::{CloseRequest, EchoRequest, SessionSetupResponse};
    use crate::{Command, compound};

    fn header(message_id: u64) -> Header {
        Header { command: Command::ECHO, message_id, ..Header::default() }
    }

    /// MS-SMB2 3.2.4.1.4: each message except the last is padded to 8 bytes, and its NextCommand is the offset of
    /// the next.
    #[test]
    fn a_compound_is_padded_and_linked() {
        let mut out = vec![0xAA; 4];
        let mut m = MessageBuilder::new(&mut out);
        m.push(&header(1), &EchoRequest {}).unwrap();
        m.push(&header(2), &CloseRequest::default()).unwrap();
        let ranges = m.finish();
        assert_eq!(ranges[..], [4..76, 76..164]);
        assert_eq!(out[..4], [0xAA; 4]);
        let headers: Vec<_> = compound::split(&out[4..]).map(|m| m.unwrap()).collect();
        assert_eq!((headers[0].0.next_command, headers[1].0.next_command), (72, 0));
        assert_eq!((headers[0].1.clone(), headers[1].1.clone()), (0..72, 72..160));
        assert_eq!(out[72..76], [0; 4]);
    }

    #[test]
    fn a_body_that_cannot_be_encoded_leaves_no_trace() {
        let mut out = Vec::new();
        let mut m = MessageBuilder::new(&mut out);
        m.push(&header(1), &EchoRequest {}).unwrap();
        let token = vec![0; 70_000];
        let body = SessionSetupResponse { security_buffer: &token, ..Default::default() };
        let error = m.push(&header(2), &body).unwrap_err();
        assert!(matches!(error, WireError::Unencodable { len: 70_000, .. }));
        m.push(&header(3), &EchoRequest {}).unwrap();
        assert_eq!(m.finish().len(), 2);
        let ids: Vec<_> = compound::split(&out).map(|m| m.unwrap().0.message_id).collect();
        assert_eq!(ids, [1, 3]);

        out.clear();
        let mut m = MessageBuilder::new(&mut out);
        m.push(&header(1), &body).unwrap_err();
        assert!(m.finish().is_empty());
        assert!(out.is_empty());
    }

    #[test]
    fn replies_made_apart_are_chained() {
        let mut parts = Vec::new();
        for id in [1, 2, 3] {
            let mut part = Vec::new();
            MessageBuilder::new(&mut part).push(&header(id), &EchoRequest {}).unwrap();
            parts.push(part);
        }
        let mut out = Vec::new();
        let ranges = chain(&mut out, parts.iter().map(Vec::as_slice));
        assert_eq!(ranges[..], [0..72, 72..144, 144..212]);
        let ids: Vec<_> = compound::split(&out).map(|m| m.unwrap().0.message_id).collect();
        assert_eq!(ids, [1, 2, 3]);
    }
}
