//! Signing and encryption of one channel.

use std::sync::Arc;
use std::sync::atomic::AtomicU16;

use arena::passes::{self, Pass};
use arena::{Arena, CHUNK_MAX, Class, IoBuf, Sg, sg_len};
use smallvec::SmallVec;
use smb_auth::crypt::{Opener, Sealer, TRANSFORM_LEN};
use smb_auth::sign::SigningKey;
use smb_wire::header::{OFFSET_FLAGS, OFFSET_SIGNATURE};
use smb_wire::msg::ReadResponse;
use smb_wire::{Command, Header, HeaderFlags};

use crate::Lost;

/// Session-wide encryption: all channels share one allocator of nonces.
pub(crate) struct Ciphers {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
}

/// A session as one connection sees it.
pub(crate) struct Channel {
    pub(crate) session_id: u64,
    /// Signing key of this connection.
    pub(crate) signing: Arc<SigningKey>,
    /// Every message must be signed, in both directions.
    pub(crate) signing_required: bool,
    pub(crate) ciphers: Option<Arc<Ciphers>>,
    /// Every message must be encrypted, in both directions.
    pub(crate) encrypt: bool,
    /// How many channels the session has lost (ChannelSequence, MS-SMB2 2.2.1.2); shared by its channels.
    pub(crate) sequence: Arc<AtomicU16>,
}

type Segments<'a> = SmallVec<[&'a [u8]; 6]>;

/// Signs a message whose header is otherwise complete (MS-SMB2 3.1.4.1).
pub(super) fn sign(key: &SigningKey, head: &mut [u8], payload: &Sg, message_id: u64, is_cancel: bool) {
    let flags = u32::from_le_bytes(head[OFFSET_FLAGS..OFFSET_FLAGS + 4].try_into().expect("four bytes"));
    let flags = flags | HeaderFlags::SIGNED.bits();
    head[OFFSET_FLAGS..OFFSET_FLAGS + 4].copy_from_slice(&flags.to_le_bytes());
    let signature = {
        let mut segments = Segments::new();
        segments.push(head);
        segments.extend(payload.iter().map(|b| &**b));
        passes::count(Pass::Mac, sg_len(payload));
        key.sign(&segments, message_id, false, is_cancel).expect("a message holds its header")
    };
    head[OFFSET_SIGNATURE..OFFSET_SIGNATURE + 16].copy_from_slice(&signature);
}

/// Whether the signature of a response is valid (MS-SMB2 3.2.5.1.3).
///
/// Linux's ksmbd (6.12 and others) signs a READ response without payload (by RDMA, or an error) together with the
/// transport's length prefix. Such a signature covers the whole message too, so it is accepted.
pub(crate) fn verify(key: &SigningKey, message: &Sg, header: &Header) -> bool {
    let segments: Segments<'_> = message.iter().map(|b| &**b).collect();
    let length = sg_len(message);
    passes::count(Pass::Mac, length);
    let id = header.message_id;
    if key.verify(&segments, id, true, false).is_ok() {
        return true;
    }
    let bare = header.command == Command::READ && length <= BARE_READ_MAX;
    let frame = (length as u32).to_be_bytes();
    bare && key.verify_behind(&frame, &segments, id, true, false).is_ok()
}

/// The longest READ response without payload, in bytes: the fixed part, and some servers' padding.
const BARE_READ_MAX: usize = ReadResponse::HEAD_LEN + 16;

/// Encrypts a message (MS-SMB2 3.1.4.3): returns its transform header and the ciphertext.
pub(super) fn seal(
    channel: &Channel,
    ciphers: &Ciphers,
    arena: &Arena,
    head: &[u8],
    payload: &Sg,
) -> Result<(Vec<u8>, Sg), Lost> {
    let mut segments = Segments::new();
    segments.push(head);
    segments.extend(payload.iter().map(|b| &**b));
    let total = head.len() + sg_len(payload);
    passes::count(Pass::Cipher, total);
    let sealed = |out: &mut [u8]| ciphers.sealer.seal_message_into(channel.session_id, &segments, out);
    let (header, body) = match allocate(arena, total) {
        Some(mut buf) => {
            buf.set_len(total);
            let header = sealed(buf.filled_mut());
            (header, buf.freeze())
        }
        None => {
            let mut heap = vec![0; total];
            let header = sealed(&mut heap);
            (header, IoBuf::from(heap))
        }
    };
    let header = header.map_err(|_| Lost::Protocol("the session has used all encryption nonces"))?;
    Ok((header.to_vec(), [body].into_iter().collect()))
}

/// Decrypts a message that starts with a transform header.
pub(super) fn open(channel: &Channel, arena: &Arena, message: &Sg) -> Result<Sg, Lost> {
    let ciphers =
        channel.ciphers.as_ref().ok_or(Lost::Protocol("an encrypted message in an unencrypted session"))?;
    let first = message.first().ok_or(Lost::Protocol("an empty message"))?;
    let Some((header, rest)) = first.split_first_chunk::<TRANSFORM_LEN>() else {
        return Err(Lost::Protocol("a transform header is truncated"));
    };
    // MS-SMB2 3.2.5.1.1: the message must be encrypted for this session.
    if header[44..52] != channel.session_id.to_le_bytes() {
        return Err(Lost::Protocol("a message encrypted for another session"));
    }
    let mut segments = Segments::new();
    segments.push(rest);
    segments.extend(message[1..].iter().map(|b| &**b));
    let total = sg_len(message) - TRANSFORM_LEN;
    passes::count(Pass::Cipher, total);
    let opened = |out: &mut [u8]| {
        ciphers.opener.open_message_into(header, &segments, out).map_err(|_| Lost::NotAuthentic)
    };
    let plain = match allocate(arena, total) {
        Some(mut buf) => {
            buf.set_len(total);
            opened(buf.filled_mut())?;
            buf.freeze()
        }
        None => {
            let mut heap = vec![0; total];
            opened(&mut heap)?;
            IoBuf::from(heap)
        }
    };
    Ok([plain].into_iter().collect())
}

fn allocate(arena: &Arena, bytes: usize) -> Option<arena::IoBufMut> {
    if bytes > CHUNK_MAX { None } else { arena.try_alloc(bytes, Class::Payload) }
}
