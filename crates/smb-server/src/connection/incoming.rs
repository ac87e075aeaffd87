//! Received messages.

use std::ops::Range;
use std::sync::Arc;

use arena::passes::{self, Pass};
use arena::{IoBuf, PipedPayload, Sg, sg_len};
use smallvec::SmallVec;
use smb_auth::sign::SigningKey;
use smb_wire::{Command, Header, HeaderFlags};

use crate::session::Session;

/// A message as it arrived: one request, or a compound of several.
#[derive(Default)]
pub(super) struct InMessage {
    /// The message's bytes: one buffer or more.
    pub(super) whole: Sg,
    /// A copy of the message in one buffer, if it arrived scattered and is not a single WRITE.
    pub(super) together: Option<IoBuf>,
    /// The payload of a single WRITE, if it is in a pipe; until the WRITE takes it.
    pub(super) piped: Option<PipedPayload>,
    /// The session whose cipher the message was encrypted with: its replies are encrypted with the same.
    pub(super) encrypted: Option<Arc<Session>>,
    /// It has more than one request.
    pub(super) compound: bool,
}

/// One request of a message.
pub(super) struct Item {
    pub(super) header: Header,
    pub(super) range: Range<usize>,
}

/// The longest message that [`InMessage::leave_chunk`] copies, in bytes.
const SMALL: usize = 4 << 10;

impl InMessage {
    /// The message without the payload of a single WRITE, which may lie in `whole` only.
    pub(super) fn head(&self) -> &IoBuf {
        self.together.as_ref().unwrap_or(&self.whole[0])
    }

    /// The bytes of one of its requests, without the payload of a single WRITE.
    #[inline]
    pub(super) fn of(&self, item: &Item) -> &[u8] {
        &self.head()[item.range.clone()]
    }

    /// How many bytes of the message belong to one of its requests, payload included.
    #[inline]
    pub(super) fn len_of(&self, item: &Item) -> usize {
        if self.compound {
            return item.range.len();
        }
        sg_len(&self.whole) + self.piped.as_ref().map_or(0, PipedPayload::len)
    }

    /// Whether a request is signed and not encrypted: then its signature is verified, and its reply is signed.
    #[inline]
    pub(super) fn signs(&self, header: &Header) -> bool {
        header.flags.contains(HeaderFlags::SIGNED) && self.encrypted.is_none()
    }

    /// Whether the reply to a request is alone in its message and neither signed nor encrypted: its payload may come straight
    /// from a file.
    #[inline]
    pub(super) fn is_plain(&self, header: &Header) -> bool {
        !self.compound && !self.signs(header) && self.encrypted.is_none()
    }

    /// Whether the signature of one of its requests is right (MS-SMB2 3.1.5.1).
    pub(super) fn verify(&self, key: &SigningKey, item: &Item) -> bool {
        let Item { header, .. } = item;
        let apart: SmallVec<[&[u8]; 6]>;
        let one = [self.of(item)];
        let segments = if self.head().len() < sg_len(&self.whole) {
            apart = self.whole.iter().map(|b| &**b).collect();
            &apart[..]
        } else {
            &one[..]
        };
        passes::count(Pass::Mac, segments.iter().map(|s| s.len()).sum());
        key.verify(segments, header.message_id, false, header.command == Command::CANCEL).is_ok()
    }

    /// Copies a message without payload out of its receive chunk: a request that waits for memory, or waits long, must
    /// not hold memory that other requests wait for.
    pub(super) fn leave_chunk(&mut self) {
        if let [one] = &mut self.whole[..]
            && one.len() <= SMALL
        {
            *one = IoBuf::from(one.to_vec());
        }
    }
}
