//! The counters that the connection's task updates for each request on a share.
//!
//! A connection has one tally per share; only its task creates and updates it. Times are those of the task's turns:
//! no additional clock reads.

use std::sync::Arc;
use std::time::Instant;

use counters::requests::{PendingRequest, RequestResult};
use counters::{Class, Clock, Instance, Tally};
use smb_wire::msg::{ReadResponse, WriteResponse};
use smb_wire::{Command, Decode};

use super::Response;

/// Where the requests on a share are counted.
pub(crate) struct Counted {
    pub(crate) clock: Clock,
    pub(crate) instance: Arc<Instance>,
}

/// The tallies of one connection; the last used one is at the end.
#[derive(Default)]
pub(super) struct Tallies(Vec<Arc<Tally>>);

impl Tallies {
    /// The tally of a share.
    pub(super) fn of(&mut self, share: &Counted) -> &Arc<Tally> {
        let Tallies(all) = self;
        match all.iter().rposition(|t| t.is_for(&share.instance)) {
            Some(at) if at + 1 == all.len() => {}
            Some(at) => {
                let last = all.len() - 1;
                all.swap(at, last);
            }
            None => all.push(Arc::new(Tally::new(&share.clock, vec![Arc::clone(&share.instance)]))),
        }
        all.last().expect("it was found or pushed")
    }
}

/// A request in flight that is counted.
pub(super) struct Counting {
    tally: Arc<Tally>,
    begun: PendingRequest,
    command: Command,
    /// Whether its payload is transferred by RDMA.
    direct: bool,
}

impl Counting {
    /// Records the start of a request of `sent` bytes that exposes `exposed` bytes of memory to the server.
    pub(super) fn begin(
        tally: Arc<Tally>,
        command: Command,
        now: Instant,
        sent: usize,
        exposed: Option<u32>,
    ) -> Counting {
        let class = match command {
            Command::READ => Class::Read,
            Command::WRITE => Class::Write,
            _ => Class::Metadata,
        };
        let fetched = exposed.filter(|_| class == Class::Write).unwrap_or(0);
        let begun = tally.begin(class, now, 0, sent as u64 + u64::from(fetched));
        Counting { tally, begun, command, direct: exposed.is_some() }
    }

    /// Records the response.
    pub(super) fn end(self, now: Instant, response: &Response) {
        let payload = match self.command {
            Command::READ => ReadResponse::decode(response.bytes())
                .map_or(0, |r| if self.direct { r.data_remaining } else { r.data_length }),
            Command::WRITE if response.success().is_ok() => {
                WriteResponse::decode(response.bytes()).map_or(0, |w| w.count)
            }
            _ => 0,
        };
        let placed = if self.direct && self.command == Command::READ { payload } else { 0 };
        let done = RequestResult {
            payload: payload.into(),
            direct: self.direct,
            received: arena::sg_len(&response.message) as u64 + u64::from(placed),
            sent: 0,
        };
        self.tally.end_at(self.begun, done, now);
    }

    /// Records that the connection ended before the response.
    pub(super) fn abandon(self) {
        self.tally.end(self.begun, RequestResult::default());
    }
}
