//! From finished requests to a message: headers, credits, signatures, encryption.

use std::sync::Arc;

use arena::passes::{self, Pass};
use arena::{IoBuf, Sg};
use smallvec::SmallVec;
use smb_auth::sign::SigningKey;
use smb_wire::header::{OFFSET_FLAGS, OFFSET_NEXT_COMMAND, OFFSET_SIGNATURE};
use smb_wire::{Command, HEADER_LEN, Header, HeaderFlags, NtStatus};
use vfs::Data;

use super::chain::{Chain, FinishedRequest, Signing};
use super::{Engine, OutMessage, SLOW};
use crate::session::Session;

/// The body of an error reply: structure size 9, no contexts, no data (MS-SMB2 2.2.2).
const ERROR_BODY: [u8; 9] = [9, 0, 0, 0, 0, 0, 0, 0, 0];
/// Replies are put together into one message up to this size, in bytes: with padding and a transform header that is
/// less than the 128 KiB that every SMB Direct peer accepts (MS-SMBD 3.1.5.2).
pub(super) const COMPOUND_MAX: usize = 96 << 10;

impl Engine {
    /// Turns a chain whose requests are all complete into a message, if any of them has a reply.
    pub(super) fn complete(&mut self, chain: &mut Chain) {
        let Chain { finished, message, .. } = chain;
        self.send_finished(finished, message.encrypted.as_ref());
    }

    /// Queues replies, as few messages as [`COMPOUND_MAX`] allows: the replies of a compound need not be one message.
    /// Drains `finished`.
    pub(super) fn send_finished(
        &mut self,
        finished: &mut [FinishedRequest],
        encrypted: Option<&Arc<Session>>,
    ) {
        let mut rest = finished;
        while !rest.is_empty() {
            let mut bytes = rest[0].len();
            let more = rest[1..].iter().take_while(|f| {
                bytes += f.len();
                bytes <= COMPOUND_MAX
            });
            let count = 1 + more.count();
            let (together, later) = rest.split_at_mut(count);
            self.send_together(together, encrypted);
            rest = later;
        }
    }

    /// Queues replies as one message.
    fn send_together(&mut self, finished: &mut [FinishedRequest], encrypted: Option<&Arc<Session>>) {
        let count = finished.len();
        let mut message = OutMessage::plain(Vec::new());
        let mut hash_into = None;
        for (i, f) in finished.iter_mut().enumerate() {
            let last = i + 1 == count;
            let start = message.head.len();
            self.put_header(f, encrypted.is_some());
            let body = std::mem::take(&mut f.reply.message);
            if start == 0 {
                message.head = body;
            } else {
                message.head.extend_from_slice(&body);
            }
            if let Some(push) = f.reply.push.take() {
                message.pushes.push(*push);
            }
            message.invalidate = message.invalidate.or(f.invalidate);
            if let Some(extra) = f.reply.extra.take() {
                message.then.extend(extra.then);
                hash_into = extra.hash_into.or(hash_into);
            }
            let payload = std::mem::replace(&mut f.reply.payload, Data::Bufs(Sg::new()));
            if last {
                message.payload = payload;
                if count > 1 {
                    pad_last(&mut message, start);
                }
            } else {
                inline(&mut message.head, payload);
                while !(message.head.len() - start).is_multiple_of(8) {
                    message.head.push(0);
                }
                let next = (message.head.len() - start) as u32;
                message.head[start + OFFSET_NEXT_COMMAND..][..4].copy_from_slice(&next.to_le_bytes());
            }
            let key = match &f.signing {
                Signing::Nothing => None,
                Signing::Key(key) => Some(&**key),
                Signing::Channel(session) => self.channels.get(session).map(|c| &*c.signing),
            };
            if let (Some(key), None) = (key, encrypted) {
                sign(key, &mut message, start, last, f.header.message_id);
            }
        }
        if let Some(into) = hash_into {
            self.hash(into, &message.head);
        }
        match encrypted {
            Some(session) => self.encrypt_out(session, message),
            None => self.push_out(message),
        }
    }

    /// Writes the header into the space before the body.
    fn put_header(&mut self, f: &mut FinishedRequest, encrypted: bool) {
        let mut h = f.header.response(f.reply.status, 0);
        // If no key can sign the refusal of a signed request, the refusal repeats the request's flag and signature, as
        // on Windows. Otherwise clients that require signed replies drop the message, and do not get the status.
        if f.reply.status.is_error() && matches!(f.signing, Signing::Nothing) && !encrypted {
            h.flags |= f.header.flags & HeaderFlags::SIGNED;
            h.signature = f.header.signature;
        }
        self.credits.answered(self.charge(&f.header));
        // MS-SMB2 3.3.4.1.2: the interim response, if there was one, has granted the credits.
        h.credits = match f.async_id {
            Some(_) => 0,
            None => self.grant(&f.header),
        };
        if let Some(id) = f.async_id {
            h.flags |= HeaderFlags::ASYNC;
            h.async_id = id;
        }
        if let Some(extra) = &f.reply.extra {
            h.tree_id = extra.tree_id.unwrap_or(h.tree_id);
            h.session_id = extra.session_id.unwrap_or(h.session_id);
        }
        f.reply.message[..HEADER_LEN].copy_from_slice(&h.to_bytes());
    }

    /// Sends an interim response (MS-SMB2 3.3.4.2) for each handler that requested one, with the replies that its chain
    /// has completed before. Returns whether there were any.
    pub(super) fn send_interims(&mut self) -> bool {
        let slots = self.inbox.take_pending();
        let mut any = false;
        for slot in slots {
            let Some(mut chain) = self.parked.remove(&slot) else { continue };
            if chain.waiting.len() > 0 {
                refuse_to_wait(&mut chain);
            } else {
                any |= self.send_interim(slot, &mut chain);
            }
            self.parked.insert(slot, chain);
        }
        any
    }

    /// Sends an interim response for each request that has been parked for [`SLOW`], whatever it waits for, unless
    /// requests follow it in its message. Returns whether there were any.
    ///
    /// An interim response grants credits, so the client can send more requests. None are sent while the connection
    /// is crowded: then the client's credits limit the number of parked requests.
    pub(super) fn send_slow_interims(&mut self) -> bool {
        if self.interims_at.is_none_or(|at| at > self.now) {
            return false;
        }
        let mut slow = Vec::new();
        self.interims_at = None;
        for (slot, chain) in &self.parked {
            // A log-on that failed is answered late on purpose.
            let Some(running) = chain.running.as_ref().filter(|r| r.header.command != Command::SESSION_SETUP)
            else {
                continue;
            };
            if running.async_id.is_some() || chain.waiting.len() > 0 {
                continue;
            }
            let at = running.since.after(SLOW);
            if at <= self.now && !self.is_crowded() {
                slow.push(*slot);
            } else {
                let at = at.max(self.now.after(SLOW / 10));
                self.interims_at = Some(self.interims_at.map_or(at, |first| first.min(at)));
            }
        }
        slow.sort_unstable();
        let mut any = false;
        for slot in slow {
            let Some(mut chain) = self.parked.remove(&slot) else { continue };
            any |= self.send_interim(slot, &mut chain);
            self.parked.insert(slot, chain);
        }
        any
    }

    /// Sends the interim response of the last request of a chain, with the replies that the chain has completed before;
    /// false when it was sent already.
    fn send_interim(&mut self, slot: u64, chain: &mut Chain) -> bool {
        let Some(running) = chain.running.as_mut().filter(|r| r.async_id.is_none()) else { return false };
        running.async_id = Some(slot);
        let header = running.header;
        let credits = self.grant(&header);
        let mut finished = std::mem::take(&mut chain.finished);
        let mut interim = header.response(NtStatus::PENDING, credits);
        interim.flags |= HeaderFlags::ASYNC;
        interim.async_id = slot;
        let encrypted = chain.message.encrypted.clone();
        self.send_finished(&mut finished, encrypted.as_ref());
        self.send_raw(interim, encrypted.as_ref());
        true
    }

    /// Queues a message of a header and the error body. It is not signed (MS-SMB2 3.3.4.1.1 leaves interim responses
    /// out): the final response has the same MessageId, and AES-GMAC must not use a nonce twice.
    fn send_raw(&mut self, header: Header, encrypted: Option<&Arc<Session>>) {
        let mut message = OutMessage::plain(Vec::with_capacity(HEADER_LEN + ERROR_BODY.len()));
        header.encode(&mut message.head);
        message.head.extend_from_slice(&ERROR_BODY);
        match encrypted {
            Some(session) => self.encrypt_out(session, message),
            None => self.push_out(message),
        }
    }
}

/// MS-SMB2 3.3.5.2.7, note 266: in the middle of a compound Windows fails a request that would wait long with
/// STATUS_INTERNAL_ERROR, except a CREATE that breaks an oplock. A request that does not check its cancellation
/// completes by itself, and its chain waits for it. So does a QUERY_DIRECTORY, which is only slow: clients send it
/// between a CREATE and a CLOSE.
fn refuse_to_wait(chain: &mut Chain) {
    let waits = |command| matches!(command, Command::CREATE | Command::QUERY_DIRECTORY);
    if let Some(running) = chain.running.as_mut().filter(|r| !waits(r.header.command)) {
        running.refused = true;
        running.cancel.cancel();
    }
}

/// Signs the message that begins at `start` of the head (MS-SMB2 3.1.4.1); the last one's payload is covered too.
fn sign(key: &SigningKey, message: &mut OutMessage, start: usize, last: bool, message_id: u64) {
    let flags_at = start + OFFSET_FLAGS;
    let mut flags = u32::from_le_bytes(message.head[flags_at..flags_at + 4].try_into().expect("four bytes"));
    flags |= HeaderFlags::SIGNED.bits();
    message.head[flags_at..flags_at + 4].copy_from_slice(&flags.to_le_bytes());
    let signature = {
        let mut segments: SmallVec<[&[u8]; 6]> = SmallVec::new();
        segments.push(&message.head[start..]);
        if last && let Data::Bufs(sg) = &message.payload {
            segments.extend(sg.iter().map(|b| &**b));
            passes::count(Pass::Mac, message.payload.len());
        }
        key.sign(&segments, message_id, true, false).expect("the first segment holds the header")
    };
    message.head[start + OFFSET_SIGNATURE..][..16].copy_from_slice(&signature);
}

/// MS-SMB2 3.3.4.1.3: the last of several responses, which begins at `start` of the head, fills whole units of 8 bytes.
fn pad_last(message: &mut OutMessage, start: usize) {
    let length = message.len() - start;
    let padding = vec![0; length.next_multiple_of(8) - length];
    match &mut message.payload {
        Data::Bufs(sg) if !sg.is_empty() && !padding.is_empty() => sg.push(IoBuf::from(padding)),
        _ => message.head.extend_from_slice(&padding),
    }
}

/// Copies payload into the head: inside a compound it cannot follow the message.
fn inline(head: &mut Vec<u8>, payload: Data) {
    let Data::Bufs(sg) = payload else {
        unreachable!("file payload is not asked for inside a compound");
    };
    for b in &sg {
        head.extend_from_slice(b);
        passes::count(Pass::Copy, b.len());
    }
}
