//! Requests that name a tree connect: the last steps of MS-SMB2 3.3.5.2, and the handler of each command.

use std::sync::Arc;

use env::Moment;
use smb_wire::{Command, NtStatus};

use super::chain::{Outcome, Signing, StartedRequest};
use super::channel::Channel;
use super::compound::Related;
use super::incoming::{InMessage, Item};
use super::verify;
use crate::Server;
use crate::commands::{self, read::FileRead};
use crate::inbox::Inbox;
use crate::open::{Open, Sequenced};
use crate::request::{Cancel, ConnectionFacts, Pending, Request};
use crate::share::Tree;

/// The parts of a connection that starting a request uses.
pub(super) struct RequestStarter<'e> {
    pub(super) server: &'e Arc<Server>,
    pub(super) facts: &'e Arc<ConnectionFacts>,
    pub(super) inbox: &'e Arc<Inbox>,
    pub(super) now: Moment,
    /// The slot for its chain if the request must wait.
    pub(super) slot: u64,
    /// Too many requests are waiting: one that may wait indefinitely for other clients is refused.
    pub(super) crowded: bool,
}

/// The session, tree connect and open of a verified request, borrowed: a READ that completes at once touches no
/// reference count.
struct Verified<'c> {
    channel: &'c Channel,
    tree: &'c Arc<Tree>,
    /// The open that the request names; `None` for commands that name none, and when it is not open.
    open: Option<&'c Arc<Open>>,
}

impl RequestStarter<'_> {
    /// Starts a request of a session that was verified.
    #[inline]
    pub(super) fn start(
        &self,
        channel: &mut Channel,
        related: &mut Related,
        message: &mut InMessage,
        item: &Item,
    ) -> StartedRequest {
        let header = &item.header;
        let (verified, mut sequenced) = match self.verify(channel, related, message, item) {
            Ok(found) => found,
            Err(status) => {
                return StartedRequest::new(status, verify::signing_key(channel, message, header).cloned());
            }
        };
        let received = message.len_of(item);
        let (outcome, cancel) = self.handle(&verified, related, message, item);
        let Verified { channel: used, open, .. } = verified;
        if matches!(outcome, Outcome::Pending(_)) && header.command == Command::READ {
            sequenced = sequenced.or_else(|| verify::waiting_read(open?, self.facts.dialect, header));
        }
        let count = used.tallies.count(header.command, self.now, received, &outcome);
        let signing = match (verify::signing_key(used, message, header), &outcome) {
            (None, _) => Signing::Nothing,
            (Some(_), Outcome::Reply(_)) if !message.compound => Signing::Channel(header.session_id),
            (Some(key), _) => Signing::Key(Arc::clone(key)),
        };
        channel.forget(header.command);
        StartedRequest { outcome, signing, cancel, sequenced, count }
    }

    /// The steps between the session and the handler.
    #[inline]
    fn verify<'c>(
        &self,
        channel: &'c mut Channel,
        related: &mut Related,
        message: &InMessage,
        item: &Item,
    ) -> Result<(Verified<'c>, Option<Sequenced>), NtStatus> {
        let Item { header, .. } = item;
        // MS-SMB2 3.3.5.2.7.2.
        let file = related.names(header, commands::named_file(header.command, message.of(item)))?;
        // MS-SMB2 3.3.5.2.10.
        let sequenced = verify::channel_sequence(channel, self.server, self.facts.dialect, header, file)?;
        // MS-SMB2 3.3.5.2.11.
        channel.turn_to_tree(self.server, header.tree_id)?;
        let channel = &*channel;
        let tree = channel.last_tree.as_ref().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        let open = channel.last_open.as_ref().filter(|open| Some(open.id()) == file);
        Ok((Verified { channel, tree, open }, sequenced))
    }

    /// Passes a request to its handler, unless its tree connect or its command forbids it.
    #[inline]
    fn handle(
        &self,
        verified: &Verified<'_>,
        related: &Related,
        message: &mut InMessage,
        item: &Item,
    ) -> (Outcome, Cancel) {
        let Verified { channel, tree, open } = *verified;
        let command = item.header.command;
        let at_once = |outcome| (outcome, Cancel::default());
        // MS-SMB2 3.3.5.2.11: an unencrypted request to a share that requires encryption is refused.
        if tree.share.encrypt && message.encrypted.is_none() {
            return at_once(NtStatus::ACCESS_DENIED.into());
        }
        match (command, open.filter(|open| open.file().is_some())) {
            (Command::READ, Some(open)) => at_once(self.read(tree, open, message, item)),
            (Command::TREE_DISCONNECT, _) => {
                at_once(commands::tree::disconnect(self.server, &channel.session, tree, message.of(item)))
            }
            _ if self.crowded && may_wait_for_long(command, tree) => {
                at_once(NtStatus::INSUFFICIENT_RESOURCES.into())
            }
            (Command::CREATE, _) if channel.session.is_anonymous() => at_once(NtStatus::ACCESS_DENIED.into()),
            _ => {
                let request = self.request(verified, related, message, item);
                let cancel = request.cancel.clone();
                (begin(request, message), cancel)
            }
        }
    }

    /// MS-SMB2 3.3.5.12, through an open of a file: nearly every READ. It owns no references.
    #[inline]
    fn read(&self, tree: &Tree, open: &Arc<Open>, message: &InMessage, item: &Item) -> Outcome {
        let read = FileRead {
            facts: self.facts,
            arena: &self.server.arena,
            tree,
            open,
            encrypted: message.encrypted.is_some(),
            plain: message.is_plain(&item.header),
        };
        read.start(&item.header, message.of(item)).unwrap_or_else(Into::into)
    }

    /// The request with owned references, so that its handler may outlive the call.
    fn request(
        &self,
        verified: &Verified<'_>,
        related: &Related,
        message: &mut InMessage,
        item: &Item,
    ) -> Request {
        let Item { header, range } = item;
        let of_file = verified.tree.share.vfs().is_some();
        let (cancel, looked_up) = match header.command {
            // They begin in this call, before another request can close the open.
            Command::READ if of_file => (Cancel::default(), verified.open.cloned()),
            Command::WRITE => (Cancel::default(), verified.open.cloned()),
            _ => (Cancel::lasting(), None),
        };
        if !message.compound && !matches!(header.command, Command::READ | Command::WRITE) {
            message.leave_chunk();
        }
        Request {
            server: Arc::clone(self.server),
            facts: Arc::clone(self.facts),
            session: Arc::clone(&verified.channel.session),
            tree: Arc::clone(verified.tree),
            header: *header,
            inherited: related.inherited(header),
            looked_up,
            encrypted: message.encrypted.is_some(),
            in_compound: message.compound,
            cancel,
            pending: Pending { slot: self.slot, inbox: Arc::clone(self.inbox) },
            message: message.head().slice(range.clone()),
        }
    }
}

/// Whether a request may wait indefinitely for other clients, so that the number of such requests is limited. A CREATE
/// or a rename (SET_INFO) waits for breaks of other clients, a READ of a pipe for a message.
fn may_wait_for_long(command: Command, tree: &Tree) -> bool {
    match command {
        Command::LOCK | Command::CHANGE_NOTIFY | Command::CREATE | Command::SET_INFO => true,
        Command::READ | Command::IOCTL => tree.share.vfs().is_none(),
        _ => false,
    }
}

/// Passes a request to the handler of its command.
fn begin(request: Request, message: &mut InMessage) -> Outcome {
    let header = request.header;
    match header.command {
        Command::READ => commands::read::start(request, message.is_plain(&header)),
        Command::WRITE => commands::write::start(request, &message.whole, message.piped.take()),
        Command::CREATE => Outcome::later(commands::create::handle(request)),
        Command::CLOSE => Outcome::later(commands::close::handle(request)),
        Command::FLUSH => Outcome::later(commands::flush::handle(request)),
        Command::LOCK => Outcome::later(commands::lock::handle(request)),
        Command::IOCTL => Outcome::later(commands::ioctl::handle(request)),
        Command::QUERY_DIRECTORY => Outcome::later(commands::query_directory::handle(request)),
        Command::CHANGE_NOTIFY => Outcome::later(commands::notify::handle(request)),
        Command::QUERY_INFO => Outcome::later(commands::query_info::handle(request)),
        Command::SET_INFO => Outcome::later(commands::set_info::handle(request)),
        Command::OPLOCK_BREAK => Outcome::later(commands::oplock::handle(request)),
        // MS-SMB2 3.3.5.2.6: a command that does not exist.
        _ => NtStatus::INVALID_PARAMETER.into(),
    }
}
