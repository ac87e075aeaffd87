//! Running chains: starting each request, and collecting its reply.

use std::sync::Arc;

use arena::Sg;
use smb_auth::sign::SigningKey;
use smb_wire::msg::{EchoRequest, EchoResponse, LogoffRequest, LogoffResponse};
use smb_wire::{Command, Decode, Header, HeaderFlags, NtStatus};

use super::chain::{Chain, FinishedRequest, Outcome, ParkedRequest, StartedRequest};
use super::counting::Count;
use super::encode::COMPOUND_MAX;
use super::handlers::RequestStarter;
use super::incoming::{InMessage, Item};
use super::verify;
use super::{ConnectionError, Engine, ParkedFuture, Pull, SLOW};
use crate::commands;
use crate::durable::SessionEnd;
use crate::request::Reply;
use crate::session::Session;

impl Engine {
    /// Runs the requests of a chain until one must wait or all are done.
    pub(super) fn run(&mut self, chain: &mut Chain) {
        while let Some(item) = chain.waiting.next() {
            // Replies are sent before the end of a long chain, so that they do not accumulate.
            if chain.finished.iter().map(FinishedRequest::len).sum::<usize>() > COMPOUND_MAX {
                let mut finished = std::mem::take(&mut chain.finished);
                self.send_finished(&mut finished, chain.message.encrypted.as_ref());
            }
            let started = self.start_request(chain, &item);
            if self.waits(chain, &item, started) {
                return;
            }
        }
        self.complete(chain);
    }

    /// Processes the result of starting a request; returns true when the request waits, and so its chain.
    fn waits(&mut self, chain: &mut Chain, item: &Item, started: StartedRequest) -> bool {
        let StartedRequest { outcome, signing, cancel, sequenced, count } = started;
        let header = item.header;
        let invalidate = commands::remote_invalidate(&self.facts, header.command, chain.message.of(item));
        let counting = match count {
            Count::Waits(counting) => Some(counting),
            Count::Answered(at) => {
                chain.answered = Some(at);
                None
            }
            Count::Unshared => {
                self.server.count_unshared();
                None
            }
        };
        let (future, pull, then) = match outcome {
            Outcome::Silent => return false,
            // The usual case: the request completed at once, and is never stored as running.
            Outcome::Reply(reply) => {
                drop(sequenced);
                chain.related.answered(header.command, &reply);
                chain.finished.push(FinishedRequest { header, reply, signing, invalidate, async_id: None });
                return false;
            }
            Outcome::Pending(future) => (Some(future), None, None),
            Outcome::Pull { from, length, then } => (None, Some((from, length)), Some(then)),
        };
        let (since, async_id, refused) = (self.now, None, false);
        let running = ParkedRequest {
            header,
            since,
            signing,
            cancel,
            invalidate,
            async_id,
            refused,
            then,
            counting,
            sequenced,
        };
        let slot = self.park(chain, running);
        self.running.extend(future.map(|future| ParkedFuture { slot, future }));
        self.pulls.extend(pull.map(|(from, length)| Pull { slot, from, length }));
        true
    }

    /// Parks a chain, in the next slot, until its running request completes.
    fn park(&mut self, chain: &mut Chain, running: ParkedRequest) -> u64 {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.parked_ids.insert(running.header.message_id, slot);
        self.interims_at.get_or_insert(running.since.after(SLOW));
        if running.header.command == Command::READ {
            chain.message.leave_chunk();
        }
        chain.running = Some(running);
        self.parked.insert(slot, Box::new(std::mem::take(chain)));
        slot
    }

    /// A parked request is complete: continues its chain.
    pub(super) fn finished(&mut self, slot: u64, reply: Reply) {
        if let Some(reason) = reply.extra.as_ref().and_then(|extra| extra.drop_connection) {
            self.ending = Some(ConnectionError::Negotiation(reason));
            return;
        }
        let Some(mut chain) = self.parked.remove(&slot) else { return };
        let Some(running) = chain.running.take() else { return };
        self.parked_ids.remove(&running.header.message_id);
        finish(&mut chain, running, reply);
        self.run(&mut chain);
    }

    /// The payload of a parked WRITE was fetched, or could not be: continues it.
    pub(super) fn resume_pull(&mut self, slot: u64, data: Result<Sg, NtStatus>) {
        let Some(chain) = self.parked.get_mut(&slot) else { return };
        let Some(then) = chain.running.as_mut().and_then(|r| r.then.take()) else { return };
        match then(data) {
            Outcome::Reply(reply) => self.finished(slot, reply),
            Outcome::Pending(future) => {
                self.running.push(ParkedFuture { slot, future });
            }
            Outcome::Pull { .. } | Outcome::Silent => unreachable!("a WRITE pulls once and is answered"),
        }
    }

    /// Starts a request; handles here the commands that need no session.
    fn start_request(&mut self, chain: &mut Chain, item: &Item) -> StartedRequest {
        let Chain { message, related, .. } = chain;
        let Item { header, .. } = item;
        if header.command == Command::CANCEL {
            self.cancel(message, item);
            return StartedRequest::new(Outcome::Silent, None);
        }
        related.begin(header);
        match header.command {
            // MS-SMB2 3.3.5.2.4.
            Command::NEGOTIATE if header.flags.contains(HeaderFlags::SIGNED) => {
                StartedRequest::new(NtStatus::INVALID_PARAMETER, None)
            }
            Command::NEGOTIATE => StartedRequest::new(self.negotiate(message.of(item)), None),
            // MS-SMB2 3.3.5.2.2.
            _ if self.negotiated.is_none() => {
                self.ending = Some(ConnectionError::Protocol("the client sent a request before NEGOTIATE"));
                StartedRequest::new(Outcome::Silent, None)
            }
            Command::SESSION_SETUP => self.session_setup(message, item),
            // MS-SMB2 3.3.5.17: an ECHO needs no session.
            Command::ECHO if !self.channels.contains_key(&header.session_id) => {
                StartedRequest::new(echo(message.of(item)), None)
            }
            _ => self.start_in_session(chain, item),
        }
    }

    /// Starts a request of a session; handles here the commands that need no tree connect.
    fn start_in_session(&mut self, chain: &mut Chain, item: &Item) -> StartedRequest {
        let Chain { message, related, .. } = chain;
        // MS-SMB2 3.3.5.2.7.2.
        let header = match related.inherit(item.header) {
            Ok(header) => header,
            Err(status) => return StartedRequest::new(status, self.signs_early(&item.header)),
        };
        let item = &Item { header, range: item.range.clone() };
        // MS-SMB2 3.3.5.2.4, 3.3.5.2.8, 3.3.5.2.9.
        let (now_us, crowded) = (self.server.uptime_us(self.now), self.is_crowded());
        let channel = match verify::session(&mut self.channels, message, item, now_us) {
            Ok(channel) => channel,
            Err(refusal) => {
                related.has_session(None);
                self.session_ended(header.session_id);
                return refusal.into();
            }
        };
        related.has_session(Some(header.session_id));
        if matches!(header.command, Command::ECHO | Command::LOGOFF | Command::TREE_CONNECT) {
            let key = verify::signing_key(channel, message, &header).cloned();
            let session = Arc::clone(&channel.session);
            return StartedRequest::new(self.start_without_tree(&session, message, item), key);
        }
        let starter = RequestStarter {
            server: &self.server,
            facts: &self.facts,
            inbox: &self.inbox,
            now: self.now,
            slot: self.next_slot,
            crowded,
        };
        starter.start(channel, related, message, item)
    }

    fn start_without_tree(&mut self, session: &Arc<Session>, message: &InMessage, item: &Item) -> Outcome {
        let bytes = message.of(item);
        match item.header.command {
            // MS-SMB2 3.3.5.6.
            Command::LOGOFF if LogoffRequest::decode(bytes).is_ok() => {
                self.end_session(session, SessionEnd::Disconnected, Reply::ok(&LogoffResponse {}))
            }
            Command::LOGOFF => NtStatus::INVALID_PARAMETER.into(),
            Command::TREE_CONNECT if session.is_anonymous() => NtStatus::ACCESS_DENIED.into(),
            Command::TREE_CONNECT => {
                let encrypted = message.encrypted.is_some();
                // MS-SMB2 3.3.5.7: in 3.1.1 it must be signed or encrypted, or the negotiation may have been tampered
                // with.
                if self.facts.dialect == 0x0311 && !encrypted && !message.signs(&item.header) {
                    let why = "the client sent a TREE_CONNECT that is neither signed nor encrypted";
                    self.ending = Some(ConnectionError::Protocol(why));
                    return Outcome::Silent;
                }
                commands::tree::connect(&self.server, &self.facts, session, bytes, encrypted)
            }
            _ => echo(bytes),
        }
    }

    /// The key for the refusal of a signed request whose session was not verified yet (MS-SMB2 3.3.4.1.1): that of the
    /// session's channel on this connection. The key of a session of other connections signs nothing for a client that
    /// has not proved that it has the key: an attacker could replay the signature there.
    pub(super) fn signs_early(&self, header: &Header) -> Option<Arc<SigningKey>> {
        let channel = self.channels.get(&header.session_id)?;
        header.flags.contains(HeaderFlags::SIGNED).then(|| Arc::clone(&channel.signing))
    }

    /// Ends the session on all its channels and closes its opens, except durable ones; then sends `reply`.
    pub(super) fn end_session(&mut self, session: &Arc<Session>, how: SessionEnd, reply: Reply) -> Outcome {
        self.channels.remove(&session.id);
        self.session_removed();
        self.server.remove_session(session.id);
        let closing = self.server.end_session(session, how);
        Outcome::later(async move {
            closing.await;
            reply
        })
    }

    /// MS-SMB2 3.3.5.16: cancels by AsyncId, or by MessageId where the request is still synchronous. Only a signed CANCEL is
    /// checked; one that fails the checks is ignored.
    fn cancel(&mut self, message: &InMessage, item: &Item) {
        let header = &item.header;
        let now_us = self.server.uptime_us(self.now);
        if header.flags.contains(HeaderFlags::SIGNED)
            && verify::session(&mut self.channels, message, item, now_us).is_err()
        {
            return;
        }
        let slot = if header.flags.contains(HeaderFlags::ASYNC) {
            Some(header.async_id)
        } else {
            self.parked_ids.get(&header.message_id).copied()
        };
        // A related request belongs to the session that it inherited, not to the one in its header. A SESSION_SETUP has
        // no session, and is not cancelled: otherwise a client could skip the delay of a failed one.
        let session = Some(header.session_id).filter(|id| *id != 0);
        let chain = slot.and_then(|s| self.parked.get(&s)).filter(|c| Some(c.related.session_id) == session);
        if let Some(running) = chain.and_then(|c| c.running.as_ref()) {
            running.cancel.cancel();
        }
    }
}

/// MS-SMB2 3.3.5.17.
fn echo(message: &[u8]) -> Outcome {
    match EchoRequest::decode(message) {
        Ok(_) => Outcome::Reply(Reply::ok(&EchoResponse {})),
        Err(_) => NtStatus::INVALID_PARAMETER.into(),
    }
}

/// Records the reply of a request that was parked.
fn finish(chain: &mut Chain, running: ParkedRequest, mut reply: Reply) {
    let ParkedRequest { header, signing, invalidate, async_id, counting, sequenced, refused, .. } = running;
    if refused && reply.status == NtStatus::CANCELLED {
        reply = Reply::error(NtStatus::INTERNAL_ERROR);
    }
    drop(sequenced);
    if let Some(counting) = counting {
        counting.end(&reply);
    }
    chain.related.answered(header.command, &reply);
    chain.finished.push(FinishedRequest { header, reply, signing, invalidate, async_id });
}
