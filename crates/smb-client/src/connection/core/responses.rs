//! Handles the server's messages, without I/O: parses them, verifies responses, and completes the callers.

use std::collections::hash_map::Entry;
use std::time::Instant;

use arena::{IoBuf, Sg, sg_to_vec};
use rdma::{Exposed, Stag};
use smb_wire::header::UNSOLICITED_MESSAGE_ID;
use smb_wire::msg::{CloseFlags, CloseRequest, CreateResponse, ReadResponse};
use smb_wire::{Command, Decode, HEADER_LEN, Header, HeaderFlags, NtStatus, compound};

use super::{Core, OutstandingRequest};
use crate::Lost;
use crate::connection::protect::{self, Channel};
use crate::connection::{Request, Response};

const CREDITS_MAX: u32 = 65_535;
const SMB2: [u8; 4] = [0xFE, b'S', b'M', b'B'];
const TRANSFORM: [u8; 4] = [0xFD, b'S', b'M', b'B'];

impl Core {
    /// Processes a message from the server. `invalidated` is the steering tag that it invalidated.
    ///
    /// # Errors
    /// Why the connection must end.
    pub(in crate::connection) fn message(
        &mut self,
        now: Instant,
        message: Sg,
        invalidated: Option<(Stag, Exposed)>,
    ) -> Result<(), Lost> {
        // SMB Direct fragments may have any length.
        let whole = message.first().is_none_or(|b| b.len() >= HEADER_LEN);
        let message = if whole { message } else { [contiguous(message)].into_iter().collect() };
        match first_four(&message) {
            Some(SMB2) => self.plain(now, message, invalidated, false),
            Some(TRANSFORM) => {
                let channel =
                    self.channel.clone().ok_or(Lost::Protocol("an encrypted message before the log-on"))?;
                let plain = protect::open(&channel, &self.arena, &message)?;
                match first_four(&plain) {
                    Some(SMB2) => self.plain(now, plain, invalidated, true),
                    _ => Err(Lost::Protocol("an encrypted message contains no SMB2 message")),
                }
            }
            _ => Err(Lost::Protocol("not an SMB2 message")),
        }
    }

    fn plain(
        &mut self,
        now: Instant,
        message: Sg,
        mut invalidated: Option<(Stag, Exposed)>,
        encrypted: bool,
    ) -> Result<(), Lost> {
        let message = gathered(message);
        let malformed = |_| Lost::Protocol("a malformed header");
        let first = Header::decode(&message[0]).map_err(malformed)?;
        if first.next_command == 0 {
            self.response(now, first, message, invalidated, encrypted)?;
            return Ok(());
        }
        // A chain of responses: each is handled separately (MS-SMB2 3.2.5.1.9).
        let whole = contiguous(message);
        for item in compound::split(&whole) {
            let (header, range) = item.map_err(malformed)?;
            let one = [whole.slice(range)].into_iter().collect();
            self.response(now, header, one, invalidated.take(), encrypted)?;
        }
        Ok(())
    }

    fn response(
        &mut self,
        now: Instant,
        header: Header,
        message: Sg,
        invalidated: Option<(Stag, Exposed)>,
        encrypted: bool,
    ) -> Result<(), Lost> {
        if !header.is_response() {
            return Err(Lost::Protocol("a request from a server"));
        }
        if header.message_id == UNSOLICITED_MESSAGE_ID {
            // Breaks and notifications are ignored: this client requests neither oplocks nor notifications.
            return match invalidated {
                None => Ok(()),
                Some(_) => Err(Lost::Protocol("a notification invalidated a steering tag")),
            };
        }
        // MS-SMB2 3.2.5.1.2: a response must belong to a request.
        let Some(entry) = self.outstanding.get_mut(&header.message_id) else {
            return Err(Lost::Protocol("a response without a request"));
        };
        if header.command != entry.command {
            return Err(Lost::Protocol("a response to another command than the requested one"));
        }
        let pending = header.status == NtStatus::PENDING && header.flags.contains(HeaderFlags::ASYNC);
        authenticate(self.channel.as_deref(), entry, &header, &message, encrypted, pending)?;
        if let Some((stag, exposed)) = invalidated {
            // The server may only invalidate the tag of this request (MS-SMB2 3.2.5.1.4... S3-16).
            if entry.stag != Some(stag) || entry.exposed.is_some() {
                return Err(Lost::Protocol("it invalidated a steering tag of another request"));
            }
            entry.exposed = Some(exposed);
        }
        self.credits = self.credits.saturating_add(u32::from(header.credits)).min(CREDITS_MAX);
        self.credits_requested -= u32::from(std::mem::take(&mut entry.credits_requested));
        if pending {
            // MS-SMB2 3.2.5.1.5: the final response follows.
            entry.async_id.get_or_insert(header.async_id);
            entry.deadline = now + self.limits.request_timeout;
            return self.send_cancel(header.message_id);
        }
        let Some(mut entry) = self.outstanding.remove(&header.message_id) else { return Ok(()) };
        let (tree_id, request) = (entry.tree_id, entry.request.take());
        let response = Response { header, message, encrypted, sink: None, tree_id, request };
        match entry.stag {
            // The server has not invalidated this tag. This side does so before the caller gets its buffer back.
            Some(stag) if entry.exposed.is_none() => {
                self.stags_to_invalidate.push(stag);
                self.parked.insert(stag.0, (entry, response));
            }
            _ => self.complete(now, &mut entry, response)?,
        }
        Ok(())
    }

    /// A steering tag is now invalid. An error if the server had invalidated it without a response.
    pub(in crate::connection) fn invalidated(
        &mut self,
        now: Instant,
        stag: Stag,
        exposed: Option<Exposed>,
    ) -> Result<(), Lost> {
        let Entry::Occupied(parked) = self.parked.entry(stag.0) else {
            return Err(Lost::Protocol("it invalidated a steering tag that was not in use"));
        };
        // The caller stays registered until the end of the connection completes it.
        let Some(exposed) = exposed else {
            return Err(Lost::Protocol("it invalidated a steering tag after its response"));
        };
        let (mut entry, response) = parked.remove();
        entry.exposed = Some(exposed);
        self.complete(now, &mut entry, response)
    }

    fn complete(
        &mut self,
        now: Instant,
        entry: &mut OutstandingRequest,
        mut response: Response,
    ) -> Result<(), Lost> {
        if let Some(counting) = entry.counting.take() {
            counting.end(now, &response);
        }
        if let Some(Exposed::Sink { bufs, .. }) = entry.exposed.take() {
            response.sink = Some(Box::new(bufs));
        }
        let unclaimed = match entry.reply.take() {
            Some(reply) => reply.send(Ok(response)).err(),
            None => None,
        };
        if let Some(Ok(response)) = unclaimed
            && let Some(close) = close_orphan(&response)
        {
            self.send_own(now, close)?;
        }
        Ok(())
    }
}

/// MS-SMB2 3.2.5.1.1 and 3.2.5.1.3: checks whether a response is authentic.
fn authenticate(
    channel: Option<&Channel>,
    entry: &OutstandingRequest,
    header: &Header,
    message: &Sg,
    encrypted: bool,
    pending: bool,
) -> Result<(), Lost> {
    if encrypted {
        return Ok(());
    }
    if entry.encrypted {
        return Err(Lost::Protocol("an unencrypted response to an encrypted request"));
    }
    // The log-on checks its own responses; an interim response carries no content to trust.
    let Some(channel) = channel.filter(|_| !entry.setup && !pending) else { return Ok(()) };
    let signed = header.flags.contains(HeaderFlags::SIGNED);
    let authentic =
        if signed { protect::verify(&channel.signing, message, header) } else { !channel.signing_required };
    if authentic {
        return Ok(());
    }
    let (command, status) = (header.command, header.status);
    tracing::warn!(?command, %status, signed, "the signature of a response is missing or wrong");
    Err(Lost::NotAuthentic)
}

/// Builds the CLOSE for a file that a response opened for a caller that dropped its call.
pub(in crate::connection) fn close_orphan(response: &Response) -> Option<Request> {
    if response.header.command != Command::CREATE || response.header.status != NtStatus::SUCCESS {
        return None;
    }
    let file_id = CreateResponse::decode(response.bytes()).ok()?.file_id;
    let body = CloseRequest { flags: CloseFlags::empty(), file_id };
    let mut close = Request::new(Command::CLOSE, &body).ok()?;
    close.tree_id = response.tree_id;
    Some(close)
}

fn first_four(message: &Sg) -> Option<[u8; 4]> {
    message.first()?.first_chunk().copied()
}

/// Gathers a message as the codec needs it: in one buffer, except for the payload of a READ response.
fn gathered(message: Sg) -> Sg {
    let [first, _, ..] = message.as_slice() else { return message };
    let apart = first.len() >= ReadResponse::HEAD_LEN
        && Header::decode(first).is_ok_and(|h| h.command == Command::READ && h.next_command == 0);
    if apart { message } else { [contiguous(message)].into_iter().collect() }
}

fn contiguous(message: Sg) -> IoBuf {
    match message.as_slice() {
        [one] => one.clone(),
        _ => IoBuf::from(sg_to_vec(&message)),
    }
}
