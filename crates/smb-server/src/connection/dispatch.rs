//! Running chains: which session and tree a request belongs to, who handles it, what the next one inherits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::Sg;
use counters::Tally;
use env::BoxFuture;
use smb_auth::sign::SigningKey;
use smb_wire::msg::{EchoRequest, EchoResponse, LogoffRequest, LogoffResponse, TreeDisconnectRequest};
use smb_wire::{Command, Decode, FileId, Header, HeaderFlags, NtStatus};

use super::chain::{Chain, Finished, Item, Outcome, Related, Running};
use super::counting::Counted;
use super::encode::COMPOUND_MAX;
use super::fast_read::Started;
use super::{Channel, Engine, Pull, Slotted};
use crate::commands;
use crate::durable::SessionEnd;
use crate::open::{Open, Sequenced};
use crate::request::{Cancel, Pending, Reply, Request};
use crate::session::{Protected, Session};
use crate::share::Tree;

/// What was found out about a request before it is handled.
struct Admitted {
    session: Arc<Session>,
    signing: Option<Arc<SigningKey>>,
}

impl Engine {
    /// Runs the requests of a chain until one must wait or all are done.
    pub(super) fn run(&mut self, chain: &mut Chain) {
        while let Some(item) = chain.waiting.next() {
            match self.read_at_once(chain, &item) {
                Some(Started::Answered) => continue,
                Some(Started::Waits(running, future)) => return self.park(chain, running, Some(future)),
                None => {}
            }
            // What is finished does not pile up until a long chain ends.
            if chain.finished.iter().map(Finished::len).sum::<usize>() > COMPOUND_MAX {
                let mut finished = std::mem::take(&mut chain.finished);
                self.send_finished(&mut finished, chain.encrypted.as_ref());
            }
            let mut signing = None;
            let mut cancel = Cancel::of(item.header.command);
            let slot = self.next_slot;
            let outcome = self.start_request(chain, &item, slot, &mut cancel, &mut signing);
            let counting = match (self.counting.take(), &outcome) {
                (Some(counted), Outcome::Reply(reply)) => {
                    self.looked = Some(counted.answered(reply));
                    None
                }
                (Some(counted), Outcome::Pull { length, .. }) => Some(counted.begin(Some(*length))),
                (Some(counted), _) => Some(counted.begin(None)),
                (None, _) => {
                    if self.server.counting().is_some() {
                        self.server.count_unshared();
                    }
                    None
                }
            };
            let message = &chain.head()[item.range.clone()];
            let invalidate = commands::remote_invalidate(&self.facts, item.header.command, message);
            let sequenced = self.sequenced.take();
            let header = item.header;
            match outcome {
                Outcome::Silent => {}
                // Nearly always: it never becomes a request that runs.
                Outcome::Reply(reply) => {
                    drop(sequenced);
                    inherited_from(chain, header.command, &reply);
                    let signing = signing.into();
                    chain.finished.push(Finished { header, reply, signing, invalidate, async_id: None });
                }
                Outcome::Pending(future) => {
                    let running = Running::new(header, signing, cancel, invalidate, counting, sequenced);
                    return self.park(chain, running, Some(future));
                }
                Outcome::Pull { from, length, then } => {
                    let mut running = Running::new(header, signing, cancel, invalidate, counting, sequenced);
                    running.then = Some(then);
                    self.park(chain, running, None);
                    self.pulls.push_back(Pull { slot, from, length });
                    return;
                }
            }
        }
        self.complete(chain);
    }

    /// Puts a chain aside, in the next slot, until its running request is done: what `future` gives, if it is there yet.
    fn park(&mut self, chain: &mut Chain, running: Running, future: Option<BoxFuture<Reply>>) {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.parked_ids.insert(running.header.message_id, slot);
        if running.header.command == Command::READ {
            chain.leave_chunk();
        }
        chain.running = Some(running);
        self.parked.insert(slot, Box::new(std::mem::take(chain)));
        if let Some(future) = future {
            self.running.push(Slotted { slot, future });
        }
    }

    /// A parked request is done: its chain goes on.
    pub(super) fn finished(&mut self, slot: u64, reply: Reply) {
        if let Some(reason) = reply.drop_connection {
            self.ending = Some(super::ConnectionError::Negotiation(reason));
            return;
        }
        let Some(mut chain) = self.parked.remove(&slot) else { return };
        let Some(running) = chain.running.take() else { return };
        self.parked_ids.remove(&running.header.message_id);
        finish(&mut chain, running, reply);
        self.run(&mut chain);
    }

    /// The payload of a parked WRITE has come (or not): it goes on.
    pub(super) fn resume_pull(&mut self, slot: u64, data: Result<Sg, NtStatus>) {
        let Some(chain) = self.parked.get_mut(&slot) else { return };
        let Some(then) = chain.running.as_mut().and_then(|r| r.then.take()) else { return };
        match then(data) {
            Outcome::Reply(reply) => self.finished(slot, reply),
            Outcome::Pending(future) => {
                self.running.push(Slotted { slot, future });
            }
            Outcome::Pull { .. } | Outcome::Silent => unreachable!("a WRITE pulls once and is answered"),
        }
    }

    fn start_request(
        &mut self,
        chain: &mut Chain,
        item: &Item,
        slot: u64,
        cancel: &mut Cancel,
        signing: &mut Option<Arc<SigningKey>>,
    ) -> Outcome {
        let message = chain.head().slice(item.range.clone());
        let mut header = item.header;
        let is_signed = header.flags.contains(HeaderFlags::SIGNED);
        if header.command == Command::CANCEL {
            // MS-SMB2 3.3.5.16: only a signed one is checked; one that fails the checks is ignored.
            if !is_signed || self.admit(chain, &header, &message, item).is_ok() {
                self.cancel(&header);
            }
            return Outcome::Silent;
        }
        if !header.is_related() {
            chain.related = Related::default();
        }
        if header.command == Command::NEGOTIATE {
            // MS-SMB2 3.3.5.2.4.
            return if is_signed { NtStatus::INVALID_PARAMETER.into() } else { self.negotiate(&message) };
        }
        if self.negotiated.is_none() {
            self.ending = Some(super::ConnectionError::Protocol("a request before NEGOTIATE"));
            return Outcome::Silent;
        }
        if header.command == Command::SESSION_SETUP {
            return self.session_setup(&header, &message, chain, cancel, signing);
        }
        // MS-SMB2 3.3.5.17: an ECHO needs no session.
        if header.command == Command::ECHO && !self.channels.contains_key(&header.session_id) {
            return echo(&message);
        }
        if let Err(status) = inherit(chain, &mut header) {
            *signing = self.signs_early(&header);
            chain.related.failed.get_or_insert(status);
            return status.into();
        }
        let admitted = match self.admit(chain, &header, &message, item) {
            Ok(a) => a,
            Err((status, key)) => {
                chain.related.begun = false;
                *signing = key;
                return status.into();
            }
        };
        chain.related.begun = true;
        signing.clone_from(&admitted.signing);
        chain.related.session_id = header.session_id;
        match header.command {
            Command::ECHO => return echo(&message),
            Command::LOGOFF => {
                return match LogoffRequest::decode(&message) {
                    // MS-SMB2 3.3.5.6.
                    Ok(_) => {
                        let reply = Reply::ok(&LogoffResponse {});
                        self.end_session(&admitted.session, SessionEnd::Disconnected, reply)
                    }
                    Err(_) => NtStatus::INVALID_PARAMETER.into(),
                };
            }
            Command::TREE_CONNECT if admitted.session.is_anonymous() => {
                return NtStatus::ACCESS_DENIED.into();
            }
            Command::TREE_CONNECT => {
                // MS-SMB2 3.3.5.7: in 3.1.1 it is protected, or the negotiation might have been tampered with.
                if self.facts.dialect == 0x0311 && signing.is_none() && chain.encrypted.is_none() {
                    self.ending =
                        Some(super::ConnectionError::Protocol("a TREE_CONNECT neither signed nor encrypted"));
                    return Outcome::Silent;
                }
                let outcome = commands::tree::connect(
                    &self.server,
                    &self.facts,
                    &admitted.session,
                    &message,
                    chain.encrypted.is_some(),
                );
                if let Outcome::Reply(Reply { tree_id: Some(id), .. }) = &outcome {
                    chain.related.tree_id = Some(*id);
                }
                return outcome;
            }
            _ => {}
        }
        if header.is_related() && chain.related.tree_id.is_none() {
            return NtStatus::INVALID_PARAMETER.into();
        }
        chain.related.tree_id = Some(header.tree_id);
        let (tree, tally) = match self.tree(&admitted.session, header.tree_id) {
            Ok(t) => t,
            Err(status) => return status.into(),
        };
        let piped = chain.piped.take();
        let inline = piped.as_ref().map_or(0, arena::Piped::len);
        let received = if chain.compound { item.range.len() } else { arena::sg_len(&chain.whole) + inline };
        self.counting = tally.map(|t| Counted::new(t, header.command, self.now, received));
        // MS-SMB2 3.3.5.2.11: a share that requires encryption gets nothing in the clear.
        if tree.share.encrypt && chain.encrypted.is_none() {
            return NtStatus::ACCESS_DENIED.into();
        }
        let inherited = chain.related.file_id.filter(|_| header.is_related());
        let mut looked_up = None;
        if let Some(named) = commands::named_file(header.command, &message) {
            if let Some(status) = chain.related.failed.filter(|_| header.is_related()) {
                return status.into();
            }
            let id = if header.is_related() { inherited } else { Some(named) };
            chain.related.file_id = id;
            // MS-SMB2 3.3.5.2.10. What is not open its handler says.
            if self.facts.dialect >= 0x0300
                && let Some(open) = id.and_then(|id| self.find_open(&admitted.session, id))
            {
                if header.command == Command::CLOSE {
                    self.forget_open(&admitted.session);
                }
                // These begin in this call, before anybody could close it.
                if matches!(header.command, Command::READ | Command::WRITE) {
                    looked_up = Some(Arc::clone(&open));
                }
                match Sequenced::begin(open, &header) {
                    Ok(sequenced) => self.sequenced = sequenced,
                    Err(_) => return NtStatus::FILE_NOT_AVAILABLE.into(),
                }
            }
        }
        if header.command == Command::TREE_DISCONNECT {
            if TreeDisconnectRequest::decode(&message).is_err() {
                return NtStatus::INVALID_PARAMETER.into();
            }
            if let Some(channel) = self.channels.get_mut(&admitted.session.id) {
                channel.last_tree = None;
            }
            return commands::tree::disconnect(&self.server, &admitted.session, &tree);
        }
        // A message of a pipe may be waited for as long as a lock.
        let of_pipe = tree.share.vfs().is_none() && matches!(header.command, Command::READ | Command::IOCTL);
        if of_pipe {
            *cancel = Cancel::lasting();
        }
        let message = match header.command {
            // They may wait for as long as other clients like, so there are not many of them.
            // A CREATE or a rename (SET_INFO) waits for the breaks of other clients.
            command
                if (of_pipe
                    || matches!(
                        command,
                        Command::LOCK | Command::CHANGE_NOTIFY | Command::CREATE | Command::SET_INFO
                    ))
                    && self.parked.len() >= self.server.config.limits.pending_per_connection / 2 =>
            {
                return NtStatus::INSUFFICIENT_RESOURCES.into();
            }
            Command::READ | Command::WRITE => message,
            _ if !chain.compound => {
                chain.leave_chunk();
                chain.head().clone()
            }
            _ => message,
        };
        let request = Request {
            server: Arc::clone(&self.server),
            facts: Arc::clone(&self.facts),
            session: admitted.session,
            tree,
            header,
            inherited,
            looked_up,
            encrypted: chain.encrypted.is_some(),
            in_compound: chain.compound,
            cancel: cancel.clone(),
            pending: Pending { slot, inbox: Arc::clone(&self.inbox) },
            message,
        };
        let plain = !chain.compound && admitted.signing.is_none() && chain.encrypted.is_none();
        match header.command {
            Command::READ => commands::read::start(request, plain),
            Command::WRITE => commands::write::start(request, &chain.whole, piped),
            Command::CREATE if request.session.is_anonymous() => NtStatus::ACCESS_DENIED.into(),
            Command::CREATE => later(commands::create::handle(request)),
            Command::CLOSE => later(commands::close::handle(request)),
            Command::FLUSH => later(commands::flush::handle(request)),
            Command::LOCK => later(commands::lock::handle(request)),
            Command::IOCTL => later(commands::ioctl::handle(request)),
            Command::QUERY_DIRECTORY => later(commands::query_directory::handle(request)),
            Command::CHANGE_NOTIFY => later(commands::notify::handle(request)),
            Command::QUERY_INFO => later(commands::query_info::handle(request)),
            Command::SET_INFO => later(commands::set_info::handle(request)),
            Command::OPLOCK_BREAK => later(commands::oplock::handle(request)),
            // MS-SMB2 3.3.5.2.6: a command that does not exist.
            _ => NtStatus::INVALID_PARAMETER.into(),
        }
    }

    /// Session, signature and encryption checks (MS-SMB2 3.3.5.2.4, 3.3.5.2.9).
    fn admit(
        &mut self,
        chain: &Chain,
        header: &Header,
        message: &[u8],
        item: &Item,
    ) -> Result<Admitted, (NtStatus, Option<Arc<SigningKey>>)> {
        let Some(channel) = self.channels.get(&header.session_id) else {
            return Err((NtStatus::USER_SESSION_DELETED, None));
        };
        let session = &channel.session;
        let is_signed = item.header.flags.contains(HeaderFlags::SIGNED);
        let signing = (is_signed && chain.encrypted.is_none()).then(|| Arc::clone(&channel.signing));
        if session.is_ended() {
            // It was ended elsewhere: on another channel, or by an administrator.
            self.channels.remove(&header.session_id);
            self.session_removed();
            return Err((NtStatus::USER_SESSION_DELETED, signing));
        }
        if let Err((status, signs)) = check_protection(channel, chain, header, message, is_signed) {
            return Err((status, signs.then(|| Arc::clone(&channel.signing))));
        }
        session.last_used_us.store(self.server.uptime_us(self.now), Ordering::Relaxed);
        Ok(Admitted { session: Arc::clone(session), signing })
    }

    /// What the reply to a signed request is signed with that is refused before its session is looked at (MS-SMB2
    /// 3.3.4.1.1): the key of the session's channel on this connection. A session of other connections signs nothing for
    /// somebody who has not shown that he has its key: that would be a signature to replay there.
    pub(super) fn signs_early(&self, header: &Header) -> Option<Arc<SigningKey>> {
        let channel = self.channels.get(&header.session_id)?;
        header.flags.contains(HeaderFlags::SIGNED).then(|| Arc::clone(&channel.signing))
    }

    /// The tree connect a request names (MS-SMB2 3.3.5.2.11), and where its requests are counted.
    fn tree(&mut self, session: &Arc<Session>, id: u32) -> Result<(Arc<Tree>, Option<Arc<Tally>>), NtStatus> {
        let channel = self.channels.get_mut(&session.id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if let Some(tree) = &channel.last_tree
            && tree.id == id
            && tree.is_live()
        {
            return Ok((Arc::clone(tree), channel.tallies.last.clone()));
        }
        let tree = session.tree(id).filter(|t| t.is_live()).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        channel.last_tree = Some(Arc::clone(&tree));
        channel.tallies.turn_to(&self.server, session, &tree);
        Ok((tree, channel.tallies.last.clone()))
    }

    /// The open of a session that a FileId names: mostly the one that was used last.
    fn find_open(&mut self, session: &Arc<Session>, id: FileId) -> Option<Arc<Open>> {
        let channel = self.channels.get_mut(&session.id)?;
        if let Some(open) = channel.last_open.as_ref().filter(|o| o.id() == id) {
            return Some(Arc::clone(open));
        }
        let open = self.server.opens.get(id).filter(|o| o.is_named_by(session, id.volatile))?;
        channel.last_open = Some(Arc::clone(&open));
        Some(open)
    }

    /// Lets go of the open used last: it is about to be closed.
    fn forget_open(&mut self, session: &Session) {
        if let Some(channel) = self.channels.get_mut(&session.id) {
            channel.last_open = None;
        }
    }

    /// Ends the session on all its channels and closes its opens, but for those that outlive it; then sends `reply`.
    pub(super) fn end_session(&mut self, session: &Arc<Session>, how: SessionEnd, reply: Reply) -> Outcome {
        self.channels.remove(&session.id);
        self.session_removed();
        self.server.remove_session(session.id);
        let closing = self.server.end_session(session, how);
        later(async move {
            closing.await;
            reply
        })
    }

    /// MS-SMB2 3.3.5.16: cancels by AsyncId, or by MessageId where the request is still synchronous.
    fn cancel(&mut self, header: &Header) {
        let slot = if header.flags.contains(HeaderFlags::ASYNC) {
            Some(header.async_id)
        } else {
            self.parked_ids.get(&header.message_id).copied()
        };
        // The session that a related request inherited counts, not the one in its header.
        let chain =
            slot.and_then(|s| self.parked.get(&s)).filter(|c| c.related.session_id == header.session_id);
        if let Some(running) = chain.and_then(|c| c.running.as_ref()) {
            running.cancel.cancel();
        }
    }
}

/// MS-SMB2 3.3.5.2.7.2: a related operation takes session and tree from the one before it, whatever its own fields say.
fn inherit(chain: &Chain, header: &mut Header) -> Result<(), NtStatus> {
    if !header.is_related() {
        return Ok(());
    }
    // Neither the first operation of a chain nor one behind a session that does not exist has anything to inherit.
    if !chain.related.begun {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    header.session_id = chain.related.session_id;
    header.tree_id = chain.related.tree_id.unwrap_or_default();
    Ok(())
}

/// MS-SMB2 3.3.5.17.
fn echo(message: &[u8]) -> Outcome {
    match EchoRequest::decode(message) {
        Ok(_) => Outcome::Reply(Reply::ok(&EchoResponse {})),
        Err(_) => NtStatus::INVALID_PARAMETER.into(),
    }
}

/// Whether a request is signed or encrypted as its session demands (MS-SMB2 3.3.5.2.1.1, 3.3.5.2.4, 3.3.5.2.9); notes how it
/// is. `header` is that of the request or what it inherited, `message` the request's bytes.
///
/// # Errors
/// The status to answer with, and whether that answer is signed.
pub(super) fn check_protection(
    channel: &Channel,
    chain: &Chain,
    header: &Header,
    message: &[u8],
    is_signed: bool,
) -> Result<(), (NtStatus, bool)> {
    let session = &channel.session;
    match &chain.encrypted {
        // MS-SMB2 3.3.5.2.1.1: the transform header and the message name the same session.
        Some(e) if e.id != session.id => return Err((NtStatus::USER_SESSION_DELETED, false)),
        Some(_) => session.saw(Protected::Encrypted),
        None if session.encrypt => return Err((NtStatus::ACCESS_DENIED, is_signed)),
        None if is_signed => {
            // The payload of a lone WRITE lies outside `message`: sign over all of it.
            let ok = if chain.head().len() < arena::sg_len(&chain.whole) {
                let segments: smallvec::SmallVec<[&[u8]; 6]> = chain.whole.iter().map(|b| &**b).collect();
                verify(&channel.signing, &segments, header)
            } else {
                verify(&channel.signing, &[message], header)
            };
            if !ok {
                return Err((NtStatus::ACCESS_DENIED, true));
            }
            if header.command != Command::TREE_CONNECT {
                session.saw(Protected::Signed);
            }
        }
        None if session.signing_required => return Err((NtStatus::ACCESS_DENIED, true)),
        None => session.saw(Protected::No),
    }
    Ok(())
}

/// Whether a request's signature is right (MS-SMB2 3.3.5.2.4).
pub(super) fn verify(key: &SigningKey, segments: &[&[u8]], header: &Header) -> bool {
    arena::passes::count(arena::passes::Pass::Mac, segments.iter().map(|s| s.len()).sum());
    key.verify(segments, header.message_id, false, header.command == Command::CANCEL).is_ok()
}

/// Notes the reply of a request that was parked.
fn finish(chain: &mut Chain, running: Running, mut reply: Reply) {
    let Running { header, signing, invalidate, async_id, counting, sequenced, refused, .. } = running;
    if refused && reply.status == NtStatus::CANCELLED {
        reply = Reply::error(NtStatus::INTERNAL_ERROR);
    }
    drop(sequenced);
    if let Some(counting) = counting {
        counting.end(&reply);
    }
    inherited_from(chain, header.command, &reply);
    chain.finished.push(Finished { header, reply, signing: signing.into(), invalidate, async_id });
}

/// What later related operations inherit from a reply to `command`.
fn inherited_from(chain: &mut Chain, command: Command, reply: &Reply) {
    if let Some(id) = reply.file_id {
        chain.related.file_id = Some(id);
    }
    if command == Command::CREATE {
        // Not by the status alone: STOPPED_ON_SYMLINK is a warning.
        chain.related.failed = reply.file_id.is_none().then_some(reply.status);
    }
}

/// A handler that may have to wait.
fn later(handler: impl Future<Output = Reply> + Send + 'static) -> Outcome {
    Outcome::Pending(Box::pin(handler))
}
