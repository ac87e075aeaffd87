//! A READ that is alone in its message, of a file, through the tree connect and the open that its channel used last: nearly
//! every READ. Answered at once it takes no lock, and counts no reference: what it needs is borrowed from the channel.
//!
//! The checks are those of `start_request`, in its order. Whatever fails one, and whatever is not so simple, goes there and
//! is checked again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::BoxFuture;
use smb_wire::{Command, Header, HeaderFlags};

use super::chain::{Chain, Finished, Item, Outcome, Running, Signing};
use super::counting::Counted;
use super::dispatch::check_protection;
use super::{Channel, Engine};
use crate::commands;
use crate::commands::read::FileRead;
use crate::open::{Open, Sequenced};
use crate::request::{Cancel, Reply};
use crate::share::Tree;

/// How a READ began.
pub(super) enum Started {
    /// Its reply is among what its chain has finished.
    Answered,
    /// Its chain waits for what this gives.
    Waits(Running, BoxFuture<Reply>),
}

impl Engine {
    /// Begins a request if it is such a READ.
    pub(super) fn read_at_once(&mut self, chain: &mut Chain, item: &Item) -> Option<Started> {
        let header = item.header;
        let lone = header.command == Command::READ && !chain.compound && !header.is_related();
        if !lone || self.facts.dialect < 0x0300 {
            return None;
        }
        let channel = self.channels.get(&header.session_id)?;
        let message = &chain.head()[item.range.clone()];
        let is_signed = header.flags.contains(HeaderFlags::SIGNED);
        let named = commands::named_file(Command::READ, message)?;
        let (tree, open) = used_last(channel, &header)?;
        if open.id() != named || (tree.share.encrypt && chain.encrypted.is_none()) {
            return None;
        }
        let query = commands::read::decode(message, &self.facts, &header, chain.encrypted.is_some()).ok()?;
        if channel.session.is_ended()
            || check_protection(channel, chain, &header, message, is_signed).is_err()
        {
            return None;
        }
        channel.session.last_used_us.store(self.server.uptime_us(self.now), Ordering::Relaxed);
        let signs = is_signed && chain.encrypted.is_none();
        let read = FileRead {
            facts: &self.facts,
            arena: &self.server.arena,
            open,
            encrypted: chain.encrypted.is_some(),
            plain: !signs && chain.encrypted.is_none(),
        };
        let outcome = read.begin(&query).unwrap_or_else(Into::into);
        let invalidate = commands::remote_invalidate(&self.facts, Command::READ, message);
        let received = message.len();
        match outcome {
            Outcome::Reply(reply) => {
                match &channel.tallies.last {
                    Some(tally) => self.looked = Some(Counted::whole(tally, self.now, &reply, received)),
                    None if self.server.counting().is_some() => self.server.count_unshared(),
                    None => {}
                }
                let signing = if signs { Signing::Channel(header.session_id) } else { Signing::Nothing };
                chain.finished.push(Finished { header, reply, signing, invalidate, async_id: None });
                Some(Started::Answered)
            }
            Outcome::Pending(future) => {
                let tally = channel.tallies.last.clone();
                let counting = tally.map(|t| Counted::new(t, Command::READ, self.now, received).begin(None));
                let sequenced = Sequenced::begin(Arc::clone(open), &header).ok().flatten();
                let signing = signs.then(|| Arc::clone(&channel.signing));
                chain.related.session_id = header.session_id;
                let cancel = Cancel::of(Command::READ);
                let running = Running::new(header, signing, cancel, invalidate, counting, sequenced);
                Some(Started::Waits(running, future))
            }
            Outcome::Pull { .. } | Outcome::Silent => unreachable!("a READ is answered, and pulls nothing"),
        }
    }
}

/// The tree connect and the open that a channel used last, if a READ with this header may use them as they are: an open of a
/// file that belongs to the tree connect, was used before (MS-SMB2 3.3.5), and has seen no newer ChannelSequence
/// (MS-SMB2 3.3.5.2.10). A READ that is answered in the same call is not counted there: nothing can come in between.
fn used_last<'a>(channel: &'a Channel, header: &Header) -> Option<(&'a Arc<Tree>, &'a Arc<Open>)> {
    let tree = channel.last_tree.as_ref().filter(|t| t.id == header.tree_id && t.is_live())?;
    let open = channel.last_open.as_ref()?;
    let simple = open.file().is_some()
        && open.is_of_tree(tree.id)
        && !open.replayable.load(Ordering::Relaxed)
        && open.sequence.is_newest(header.channel_sequence());
    simple.then_some((tree, open))
}
