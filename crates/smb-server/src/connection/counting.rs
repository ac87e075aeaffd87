//! What the engine counts of each request that names a tree connect: for its share and its session at once.
//!
//! A channel has one tally per share, which it finds where it finds the tree connect. A request holds its tally until
//! it is answered, so that it ends where it began whatever happens to tree connect and session meanwhile.

use std::sync::Arc;
use std::time::Instant;

use counters::requests::{Begun, Done};
use counters::{Class, Tally};
use smb_wire::{Command, HEADER_LEN};

use crate::request::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::share::Tree;

/// The tallies of one channel.
#[derive(Default)]
pub(super) struct Tallies {
    all: Vec<Arc<Tally>>,
    /// Of the tree connect used last.
    pub(super) last: Option<Arc<Tally>>,
}

impl Tallies {
    /// From now on `tree` is the one used last.
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
}

/// A request that is counted.
pub(super) struct Counting {
    tally: Arc<Tally>,
    begun: Begun,
    command: Command,
    /// Bytes that are fetched by RDMA; `None`: the payload is in the message.
    pulled: Option<u32>,
}

impl Counting {
    /// A request of `received` bytes begins.
    pub(super) fn begin(tally: Arc<Tally>, command: Command, now: Instant, received: usize) -> Counting {
        let class = match command {
            Command::READ => Class::Read,
            Command::WRITE => Class::Write,
            _ => Class::Metadata,
        };
        let begun = tally.begin(class, now, received as u64, 0);
        Counting { tally, begun, command, pulled: None }
    }

    /// `length` bytes of it are fetched by RDMA.
    pub(super) fn pulls(&mut self, length: u32) {
        self.pulled = Some(length);
    }

    /// It is answered.
    pub(super) fn end(self, reply: &Reply) {
        let pushed = reply.push.as_ref().map(|p| arena::sg_len(&p.data));
        let payload = match self.command {
            Command::READ => pushed.unwrap_or(reply.payload.len()) as u64,
            Command::WRITE if !reply.status.is_error() => written(&reply.message),
            _ => 0,
        };
        let done = Done {
            payload,
            direct: pushed.is_some() || self.pulled.is_some(),
            received: self.pulled.unwrap_or(0).into(),
            sent: (reply.message.len() + reply.payload.len() + pushed.unwrap_or(0)) as u64,
        };
        self.tally.end(self.begun, done);
    }
}

/// Count of a WRITE response (MS-SMB2 2.2.22).
fn written(message: &[u8]) -> u64 {
    let count = message.get(HEADER_LEN + 4..HEADER_LEN + 8);
    count.and_then(|b| b.try_into().ok()).map_or(0, |b| u32::from_le_bytes(b).into())
}
