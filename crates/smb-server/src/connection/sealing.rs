//! Encryption of whole messages (MS-SMB2 3.1.4.3) within the memory budget.
//!
//! A request is decrypted in place, so it needs no further memory. A reply is encrypted in the first of these ways that
//! is possible: in place, when it has no payload; into memory of the arena; over its own payload, if the reply is its
//! only owner. Otherwise it waits for memory ([`Engine::seal_waiting`]). A waiting reply holds no memory of the arena
//! for itself: shared payload lies elsewhere (a `ram` share's blocks), or has another owner that keeps it anyway.
//!
//! The ciphers need a message in one piece. A scattered message is copied through a buffer that exists for one call: at
//! most one per worker, no longer than the longest message.

use std::sync::Arc;
use std::task::{Context, Poll};

use arena::passes::{self, Pass};
use arena::{Arena, Class, IoBuf, IoBufMut, RUN_MAX, Sg, SgMut, sg_len, sg_slice, sg_to_vec};
use env::BoxFuture;
use smallvec::SmallVec;
use smb_auth::crypt::{CryptError, Opener, Sealer, TAG_LEN, TRANSFORM_LEN};
use vfs::Data;

use super::{ConnectionError, Engine, OutMessage};
use crate::session::{Ciphers, Session};

/// A reply that waits for memory for its encryption.
pub(super) struct Unsealed {
    session: Arc<Session>,
    message: OutMessage,
    memory: BoxFuture<SgMut>,
}

impl Engine {
    /// MS-SMB2 3.3.5.2.1.1: an encrypted message.
    pub(super) fn decrypt(&self, message: Sg) -> Result<(Sg, Arc<Session>), ConnectionError> {
        let Some(header) = transform_header(&message) else {
            return Err(ConnectionError::Protocol("a transform header is truncated"));
        };
        let session_id = u64::from_le_bytes(header[44..52].try_into().expect("eight bytes"));
        let channel = self.channels.get(&session_id).ok_or(ConnectionError::Decrypt)?;
        let ciphers = channel.session.ciphers.as_ref().ok_or(ConnectionError::Decrypt)?;
        let plain = open(&ciphers.opener, &header, message).map_err(|_| ConnectionError::Decrypt)?;
        passes::count(Pass::Cipher, sg_len(&plain));
        Ok((plain, Arc::clone(&channel.session)))
    }

    /// MS-SMB2 3.3.4.1.4: encrypts a message into a transform message of its own, and queues it.
    pub(super) fn encrypt_out(&mut self, session: &Arc<Session>, mut message: OutMessage) {
        let memory = match seal(&self.server.arena, session, &mut message) {
            Sealed::Done(result) => return self.push_sealed(result),
            Sealed::NoMemory(memory) => memory,
        };
        self.unsealed.push_back(Unsealed { session: Arc::clone(session), message, memory });
    }

    /// Encrypts the waiting replies for which there is memory now; returns whether there were any.
    pub(super) fn seal_waiting(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Some(first) = self.unsealed.front_mut()
            && let Poll::Ready(memory) = first.memory.as_mut().poll(cx)
        {
            let Some(Unsealed { session, message, .. }) = self.unsealed.pop_front() else { break };
            self.push_sealed(seal_into(ciphers(&session), session.id, message, memory));
            any = true;
        }
        any
    }

    fn push_sealed(&mut self, result: Result<OutMessage, CryptError>) {
        match result {
            Ok(message) => self.push_out(message),
            // Out of nonces: the session cannot encrypt any more; the reply is dropped, and the client sets up a new
            // session.
            Err(_) => {
                self.ending = Some(ConnectionError::Protocol("the session has used all encryption nonces"));
            }
        }
    }
}

/// The transform header of a message.
fn transform_header(message: &Sg) -> Option<[u8; TRANSFORM_LEN]> {
    if sg_len(message) < TRANSFORM_LEN {
        return None;
    }
    let mut header = [0; TRANSFORM_LEN];
    let mut at = 0;
    for piece in sg_slice(message, 0, TRANSFORM_LEN) {
        header[at..at + piece.len()].copy_from_slice(&piece);
        at += piece.len();
    }
    Some(header)
}

/// Decrypts a message in place; returns the content after its transform header.
fn open(opener: &Opener, header: &[u8; TRANSFORM_LEN], mut message: Sg) -> Result<Sg, CryptError> {
    if let [one] = message.as_mut_slice()
        && let Some(bytes) = one.get_mut()
    {
        opener.open_message(header, &mut bytes[TRANSFORM_LEN..])?;
        let end = one.len();
        return Ok([one.slice(TRANSFORM_LEN..end)].into_iter().collect());
    }
    let mut body = sg_slice(&message, TRANSFORM_LEN, sg_len(&message) - TRANSFORM_LEN);
    let mut scratch = sg_to_vec(&body);
    opener.open_message(header, &mut scratch)?;
    drop(message);
    if overwrite(&mut body, &scratch) {
        return Ok(body);
    }
    // Received memory normally has one owner. If it has another, the decrypted copy replaces it; it has the same
    // length.
    Ok([IoBuf::from(scratch)].into_iter().collect())
}

/// The result of [`seal`].
enum Sealed {
    Done(Result<OutMessage, CryptError>),
    /// The message is unchanged.
    NoMemory(BoxFuture<SgMut>),
}

/// Encrypts a message, if it can be done within the budget.
fn seal(arena: &Arena, session: &Session, message: &mut OutMessage) -> Sealed {
    let ciphers = ciphers(session);
    let total = message.len();
    let payload = bufs(&mut message.payload);
    if payload.is_empty() {
        passes::count(Pass::Cipher, total);
        let header = ciphers.sealer.seal_message(session.id, &mut message.head);
        let body = IoBuf::from(std::mem::take(&mut message.head));
        return Sealed::Done(header.map(|h| sealed(h, [body].into_iter().collect(), message)));
    }
    let roomy = total + TAG_LEN; // with this room GCM encrypts while copying
    let run = (roomy <= RUN_MAX).then(|| arena.try_alloc_run(roomy, Class::Payload)).flatten();
    if let Some(run) = run {
        let taken = std::mem::replace(message, OutMessage::plain(Vec::new()));
        return Sealed::Done(seal_into(ciphers, session.id, taken, [run].into_iter().collect()));
    }
    if payload.iter_mut().all(|b| b.get_mut().is_some()) {
        return Sealed::Done(seal_over(&ciphers.sealer, session.id, message));
    }
    let arena = arena.clone();
    Sealed::NoMemory(Box::pin(async move { arena.alloc_sg(roomy, Class::Payload).await }))
}

/// Encrypts a message into memory of the arena that is longer than it by [`TAG_LEN`] at least.
fn seal_into(
    ciphers: &Ciphers,
    session_id: u64,
    mut message: OutMessage,
    mut memory: SgMut,
) -> Result<OutMessage, CryptError> {
    let total = message.len();
    passes::count(Pass::Cipher, total);
    let payload = bufs(&mut message.payload);
    let mut segments: SmallVec<[&[u8]; 6]> = SmallVec::new();
    segments.push(&message.head);
    segments.extend(payload.iter().map(|b| &**b));
    let header = if let [one] = memory.as_mut_slice() {
        one.set_len(total + TAG_LEN);
        let header = ciphers.sealer.seal_message_into(session_id, &segments, one.filled_mut())?;
        one.set_len(total);
        header
    } else {
        let mut scratch = vec![0; total];
        let header = ciphers.sealer.seal_message_into(session_id, &segments, &mut scratch)?;
        let mut left = &scratch[..];
        for buf in &mut memory {
            left = &left[buf.append(left)..];
        }
        passes::count(Pass::Copy, total);
        header
    };
    drop(segments);
    let body = memory.into_iter().filter(|b| !b.is_empty()).map(IoBufMut::freeze).collect();
    Ok(sealed(header, body, &mut message))
}

/// Encrypts a message over its own payload, of which it is the only owner.
fn seal_over(sealer: &Sealer, session_id: u64, message: &mut OutMessage) -> Result<OutMessage, CryptError> {
    let mut scratch = std::mem::take(&mut message.head);
    let head = scratch.len();
    let mut payload = std::mem::take(bufs(&mut message.payload));
    for buf in &payload {
        scratch.extend_from_slice(buf);
    }
    passes::count(Pass::Cipher, scratch.len());
    passes::count(Pass::Copy, 2 * scratch.len());
    let header = sealer.seal_message(session_id, &mut scratch)?;
    assert!(overwrite(&mut payload, &scratch[head..]), "it was found to be this message's alone");
    let body = std::iter::once(IoBuf::from(scratch[..head].to_vec())).chain(payload).collect();
    Ok(sealed(header, body, message))
}

/// The encrypted message that replaces `of`.
fn sealed(header: [u8; TRANSFORM_LEN], body: Sg, of: &mut OutMessage) -> OutMessage {
    OutMessage {
        head: header.to_vec(),
        payload: Data::Bufs(body),
        pushes: std::mem::take(&mut of.pushes),
        invalidate: of.invalidate,
        then: std::mem::take(&mut of.then),
    }
}

/// Overwrites the buffers' content; returns false, with the content partly overwritten, when one of them has another
/// owner.
fn overwrite(sg: &mut Sg, mut with: &[u8]) -> bool {
    for buf in sg {
        let Some(bytes) = buf.get_mut() else { return false };
        let (now, later) = with.split_at(bytes.len());
        bytes.copy_from_slice(now);
        with = later;
    }
    true
}

fn ciphers(session: &Session) -> &Ciphers {
    session.ciphers.as_ref().expect("only a session with ciphers decrypts a message")
}

fn bufs(payload: &mut Data) -> &mut Sg {
    match payload {
        Data::Bufs(sg) => sg,
        Data::File { .. } => unreachable!("file payload is not asked for where it is encrypted"),
    }
}

#[cfg(test)]
mod tests;
