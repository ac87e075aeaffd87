//! From a message's bytes to a chain of requests (MS-SMB2 3.3.5.2).

use std::sync::Arc;

use arena::{IoBuf, PipedPayload, Sg, sg_len, sg_to_vec};
use env::Moment;
use smallvec::SmallVec;
use smb_wire::msg::WriteRequest;
use smb_wire::{Command, HEADER_LEN, Header, compound};

use super::chain::Chain;
use super::incoming::{InMessage, Item};
use super::{ConnectionError, Engine};
use crate::session::Session;

const SMB2: [u8; 4] = [0xFE, b'S', b'M', b'B'];
const TRANSFORM: [u8; 4] = [0xFD, b'S', b'M', b'B'];
const COMPRESSED: [u8; 4] = [0xFC, b'S', b'M', b'B'];
const SMB1: [u8; 4] = [0xFF, b'S', b'M', b'B'];

impl Engine {
    /// Processes a message; returns the time at which its last request was answered, if the clock was read for that.
    pub(super) fn receive(
        &mut self,
        message: Sg,
        piped: Option<PipedPayload>,
    ) -> Result<Option<Moment>, ConnectionError> {
        let length = sg_len(&message) + piped.as_ref().map_or(0, PipedPayload::len);
        if length > self.message_limit() {
            return Err(ConnectionError::TooLong { length, limit: self.message_limit() });
        }
        match first_four(&message) {
            Some(SMB2) => self.start(message, piped, None),
            Some(TRANSFORM) => {
                let (plain, session) = self.decrypt(message)?;
                // MS-SMB2 3.3.5.2.1.1: the decrypted content must be a plain SMB2 message.
                match first_four(&plain) {
                    Some(SMB2) => self.start(plain, None, Some(session)),
                    _ => Err(ConnectionError::Protocol("an encrypted message contains no SMB2 message")),
                }
            }
            Some(SMB1) => self.smb1(&sg_to_vec(&message)).map(|()| None),
            // MS-SMB2 3.3.5.2.13: compression was not negotiated.
            Some(COMPRESSED) => {
                Err(ConnectionError::Protocol("a compressed message, but compression was not negotiated"))
            }
            _ => Err(ConnectionError::Protocol("not an SMB message")),
        }
    }

    /// Splits a plain message into its requests, takes their ids, and runs them.
    fn start(
        &mut self,
        whole: Sg,
        piped: Option<PipedPayload>,
        encrypted: Option<Arc<Session>>,
    ) -> Result<Option<Moment>, ConnectionError> {
        let together = together(&whole);
        let head = together.as_ref().unwrap_or(&whole[0]);
        let total = sg_len(&whole);
        let mut waiting: SmallVec<[Item; 1]> = SmallVec::new();
        if head.len() < total || piped.is_some() {
            // Only a single WRITE keeps its payload apart (see `together`).
            waiting.push(Item { header: Header::decode(head)?, range: 0..head.len() });
        } else {
            for item in compound::split(head) {
                let (header, range) = item?;
                waiting.push(Item { header, range });
            }
        }
        self.take_ids(&waiting)?;
        let compound = waiting.len() > 1;
        let message = InMessage { whole, together, piped, encrypted, compound };
        let mut chain = Chain { message, waiting: waiting.into_iter(), ..Chain::default() };
        self.run(&mut chain);
        Ok(chain.answered)
    }
}

fn first_four(message: &Sg) -> Option<[u8; 4]> {
    let mut four = [0; 4];
    let mut n = 0;
    for b in message {
        for byte in b.iter().take(4 - n) {
            four[n] = *byte;
            n += 1;
        }
        if n == 4 {
            return Some(four);
        }
    }
    None
}

/// Copies a scattered message into one buffer, which the codec needs. `None` when it is in one buffer already, and for
/// a single WRITE whose payload begins in or after the first buffer.
fn together(message: &Sg) -> Option<IoBuf> {
    let [first, _, ..] = message.as_slice() else { return None };
    let is_write = first.len() >= WriteRequest::HEAD_LEN
        && Header::decode(first).is_ok_and(|h| h.command == Command::WRITE && h.next_command == 0)
        && write_head_end(first) <= first.len();
    (!is_write).then(|| IoBuf::from(sg_to_vec(message)))
}

/// The offset after the fixed part and the channel information of a WRITE that has them in this order (MS-SMB2
/// 2.2.21).
fn write_head_end(msg: &[u8]) -> usize {
    let word = |at: usize| usize::from(u16::from_le_bytes([msg[HEADER_LEN + at], msg[HEADER_LEN + at + 1]]));
    WriteRequest::HEAD_LEN.max(word(40) + word(42))
}
