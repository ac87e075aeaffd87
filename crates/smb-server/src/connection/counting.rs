//! Counts each request that names a tree connect, for its share and its session in one step.
//!
//! A channel has one tally per share, cached with the tree connect used last. A request holds its tally until it is
//! answered, so that begin and end are counted in the same one, even if tree connect or session end meanwhile.

use std::sync::Arc;

use counters::requests::{PendingRequest, RequestResult};
use counters::{Class, Tally};
use env::Moment;
use smb_wire::{Command, HEADER_LEN};

use super::chain::Outcome;
use crate::request::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::share::Tree;

/// The tallies of one channel.
#[derive(Default)]
pub(super) struct Tallies {
    all: Vec<Arc<Tally>>,
    /// The tally of the tree connect used last.
    last: Option<Arc<Tally>>,
}

/// How a request that was started is counted.
pub(super) enum Count {
    /// It belongs to no share.
    Unshared,
    /// It was answered and counted in one step, at this time.
    Answered(Moment),
    Waits(Counting),
}

/// A counted request that is pending.
pub(super) struct Counting {
    tally: Arc<Tally>,
    class: Class,
    begun: PendingRequest,
    /// Bytes fetched by RDMA; `None`: the payload is in the message.
    pulled: Option<u32>,
}

impl Tallies {
    /// Makes `tree` the tree connect used last.
    pub(super) fn turn_to(&mut self, server: &Server, session: &Session, tree: &Tree) {
        let share = &tree.share.counted;
        self.last = self.all.iter().find(|t| t.is_for(share)).cloned();
        if self.last.is_none()
            && let (Some(registry), Some(counted)) = (server.counting(), session.counted.get())
        {
            let instances = vec![Arc::clone(share), Arc::clone(counted.instance())];
            let tally = Arc::new(Tally::new(registry.clock(), instances));
            self.all.push(Arc::clone(&tally));
            self.last = Some(tally);
        }
    }

    /// Counts a request of the tree connect used last, of `received` bytes, that was started at `start`. One that
    /// completed at once takes no reference to its tally.
    #[inline]
    pub(super) fn count(&self, command: Command, start: Moment, received: usize, outcome: &Outcome) -> Count {
        let Some(tally) = &self.last else { return Count::Unshared };
        let received = received as u64;
        let class = match command {
            Command::READ => Class::Read,
            Command::WRITE => Class::Write,
            _ => Class::Metadata,
        };
        let pulled = match outcome {
            Outcome::Reply(reply) => {
                return Count::Answered(tally.whole(class, start, done(class, reply, None, received)));
            }
            Outcome::Pull { length, .. } => Some(*length),
            Outcome::Pending(_) | Outcome::Silent => None,
        };
        let begun = tally.begin(class, tally.clock().instant(start), received, 0);
        Count::Waits(Counting { tally: Arc::clone(tally), class, begun, pulled })
    }
}

impl Counting {
    /// The request is answered: adds the result to the tally.
    pub(super) fn end(self, reply: &Reply) {
        let received = self.pulled.unwrap_or(0).into();
        self.tally.end(self.begun, done(self.class, reply, self.pulled, received));
    }
}

/// The bytes that a request moved, from its reply.
#[inline]
fn done(class: Class, reply: &Reply, pulled: Option<u32>, received: u64) -> RequestResult {
    let inline = reply.payload.len() as u64;
    let (pushed, by_rdma) = match &reply.push {
        None => (0, pulled.is_some()),
        Some(push) => (arena::sg_len(&push.data) as u64, true),
    };
    let payload = match class {
        Class::Read if reply.push.is_some() => pushed,
        Class::Read => inline,
        Class::Write if !reply.status.is_error() => written(&reply.message),
        _ => 0,
    };
    RequestResult { payload, direct: by_rdma, received, sent: reply.message.len() as u64 + inline + pushed }
}

/// Count of a WRITE response (MS-SMB2 2.2.22).
fn written(message: &[u8]) -> u64 {
    let count = message.get(HEADER_LEN + 4..HEADER_LEN + 8);
    count.and_then(|b| b.try_into().ok()).map_or(0, |b| u32::from_le_bytes(b).into())
}
