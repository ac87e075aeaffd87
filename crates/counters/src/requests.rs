//! Requests of one connection on one share: number, duration and bytes.
//!
//! **Queue length.** Windows's average queue length is the time integral of the number of requests in
//! progress, over an interval. Updating that integral at each change would need the time of the previous
//! change. Instead each class of requests keeps the sum of the start times of the requests in progress. The
//! integral up to any time `now` is then `time of completed requests + (number in progress) × now − (sum of
//! start times)`. This is exact, additive over connections, and needs no extra reading of the clock. Sums
//! wrap, but the result is correct.

use std::sync::Arc;
use std::time::Instant;

use env::Moment;

use crate::{Block, Cell, Clock, Instance, Update, Values};

/// The class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// Everything else.
    Metadata,
}

/// All classes.
pub const CLASSES: [Class; 3] = [Class::Read, Class::Write, Class::Metadata];

/// Bytes of payload of READs and WRITEs, by class.
const PAYLOAD: [Cell; 2] = [Cell(12), Cell(13)];
/// Requests whose payload was transferred by RDMA, by class.
const DIRECT: [Cell; 2] = [Cell(14), Cell(15)];
/// Bytes transferred by RDMA, by class.
const DIRECT_PAYLOAD: [Cell; 2] = [Cell(16), Cell(17)];
/// Bytes received and sent, messages and RDMA together.
pub(crate) const RECEIVED: Cell = Cell(18);
/// See [`RECEIVED`].
pub(crate) const SENT: Cell = Cell(19);
/// How often a request of a client waited for credits.
pub(crate) const CREDIT_STALLS: Cell = Cell(20);
/// Files opened; shared.
pub const FILES_OPENED: Cell = Cell(21);
/// Files open now; shared.
pub const FILES_OPEN: Cell = Cell(22);
/// Tree connects now; shared.
pub const TREES: Cell = Cell(23);
/// Durable opens now, persistent ones included; shared, as all below.
pub const DURABLE_OPEN: Cell = Cell(27);
/// Resilient opens now.
pub const RESILIENT_OPEN: Cell = Cell(28);
/// Persistent opens now.
pub const PERSISTENT_OPEN: Cell = Cell(29);
/// Reconnects to durable opens, persistent ones included.
pub const DURABLE_REOPENED: Cell = Cell(30);
/// Reconnects to resilient opens.
pub const RESILIENT_REOPENED: Cell = Cell(31);
/// Reconnects to persistent opens.
pub const PERSISTENT_REOPENED: Cell = Cell(32);
/// Failed reconnects to durable opens, persistent ones included.
pub const DURABLE_REOPEN_FAILED: Cell = Cell(33);
/// Failed reconnects to resilient opens.
pub const RESILIENT_REOPEN_FAILED: Cell = Cell(34);
/// Failed reconnects to persistent opens.
pub const PERSISTENT_REOPEN_FAILED: Cell = Cell(35);

/// Requests counted in one step at their end, by class.
const WHOLE: [Cell; 3] = [Cell(24), Cell(25), Cell(26)];

/// The four cells of a class, for requests not counted in [`WHOLE`]: requests begun, requests ended, total
/// time of the ended ones, sum of the start times of the others.
fn cells(class: Class) -> [Cell; 4] {
    let first = class as u8 * 4;
    [Cell(first), Cell(first + 1), Cell(first + 2), Cell(first + 3)]
}

/// The request counters of one writer, for all instances to which it belongs.
pub struct Tally {
    block: Arc<Block>,
    clock: Clock,
    instances: Vec<Arc<Instance>>,
}

/// A request in progress: pass it to [`Tally::end`].
#[derive(Clone, Copy, Debug)]
pub struct PendingRequest {
    class: Class,
    /// In nanoseconds since the clock's start.
    start: u64,
}

/// The result of a request, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestResult {
    /// Payload read or written.
    pub payload: u64,
    /// The payload was transferred by RDMA, not in a message.
    pub direct: bool,
    /// Bytes received in addition to those passed to [`Tally::begin`].
    pub received: u64,
    /// Bytes sent in addition to those passed to [`Tally::begin`].
    pub sent: u64,
}

impl Tally {
    /// A tally for `instances`.
    pub fn new(clock: &Clock, instances: Vec<Arc<Instance>>) -> Tally {
        let block = Arc::default();
        instances.iter().for_each(|i| i.join(&block));
        Tally { block, clock: clock.clone(), instances }
    }

    /// Whether it counts for `instance`.
    pub fn is_for(&self, instance: &Arc<Instance>) -> bool {
        self.instances.iter().any(|i| Arc::ptr_eq(i, instance))
    }

    /// A request begins at `now`; `received` and `sent` are the bytes of messages so far.
    #[inline]
    pub fn begin(&self, class: Class, now: Instant, received: u64, sent: u64) -> PendingRequest {
        let start = self.clock.ns(now);
        let [begun, _, _, starts] = cells(class);
        let u = self.block.update();
        u.add(begun, 1);
        u.add(starts, start);
        u.add(RECEIVED, received);
        u.add(SENT, sent);
        PendingRequest { class, start }
    }

    /// A request that began at `start` ends now, and no other thread could have seen it in progress, so one
    /// update covers both. Reads the clock and returns the time for reuse.
    #[inline]
    pub fn whole(&self, class: Class, start: Moment, done: RequestResult) -> Moment {
        let now = self.clock.moment();
        let [_, _, time_ns, _] = cells(class);
        let u = self.block.update();
        u.add(WHOLE[class as usize], 1);
        u.add(time_ns, now.ns_since(start));
        moved(&u, class, done);
        now
    }

    /// The clock of this tally.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The request ends now; reads the clock.
    pub fn end(&self, request: PendingRequest, done: RequestResult) {
        self.end_at(request, done, self.clock.now());
    }

    /// The request ends at `now`.
    pub fn end_at(&self, PendingRequest { class, start }: PendingRequest, done: RequestResult, now: Instant) {
        let time = self.clock.ns(now).saturating_sub(start);
        let [_, ended, time_ns, starts] = cells(class);
        let u = self.block.update();
        u.add(ended, 1);
        u.add(time_ns, time);
        u.add(starts, start.wrapping_neg());
        moved(&u, class, done);
    }

    /// Counts a request that has to wait for credits.
    pub fn credit_stall(&self) {
        self.block.add(CREDIT_STALLS, 1);
    }

    /// Counts all requests in progress as ended now, because no result will arrive.
    fn abandon(&self, u: &Update<'_>) {
        let now = self.clock.ns(self.clock.now());
        for class in CLASSES {
            let [begun, ended, time_ns, starts] = cells(class);
            let open = u.get(begun).wrapping_sub(u.get(ended));
            let start = u.get(starts);
            u.add(ended, open);
            u.add(time_ns, open.wrapping_mul(now).wrapping_sub(start));
            u.add(starts, start.wrapping_neg());
        }
    }
}

/// Counts the bytes of a completed request.
#[inline]
fn moved(u: &Update<'_>, class: Class, done: RequestResult) {
    u.add(RECEIVED, done.received);
    u.add(SENT, done.sent);
    if let Class::Read | Class::Write = class {
        let class = class as usize;
        u.add(PAYLOAD[class], done.payload);
        if done.direct {
            u.add(DIRECT[class], 1);
            u.add(DIRECT_PAYLOAD[class], done.payload);
        }
    }
}

/// Sums of requests over several instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests begun.
    pub requests: u64,
    /// Of these, READs.
    pub reads: u64,
    /// Of these, WRITEs.
    pub writes: u64,
    /// Payload of READs that ended, in bytes.
    pub read_bytes: u64,
    /// Payload of WRITEs that ended, in bytes.
    pub written_bytes: u64,
    /// Bytes read by RDMA.
    pub read_bytes_direct: u64,
    /// Bytes written by RDMA.
    pub written_bytes_direct: u64,
}

impl Sums {
    pub(crate) fn of(v: &Values) -> Sums {
        Sums {
            requests: CLASSES.into_iter().map(|c| begun(v, c)).fold(0, u64::wrapping_add),
            reads: begun(v, Class::Read),
            writes: begun(v, Class::Write),
            read_bytes: payload(v, Class::Read),
            written_bytes: payload(v, Class::Write),
            read_bytes_direct: direct_payload(v, Class::Read),
            written_bytes_direct: direct_payload(v, Class::Write),
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.abandon(&self.block.update());
        self.instances.iter().for_each(|i| i.leave(&self.block));
    }
}

pub(crate) fn begun(v: &Values, class: Class) -> u64 {
    v[class as usize * 4].wrapping_add(v[usize::from(WHOLE[class as usize].0)])
}

pub(crate) fn ended(v: &Values, class: Class) -> u64 {
    v[class as usize * 4 + 1].wrapping_add(v[usize::from(WHOLE[class as usize].0)])
}

/// Total time of the class, in nanoseconds.
pub(crate) fn time(v: &Values, class: Class) -> u64 {
    v[class as usize * 4 + 2]
}

pub(crate) fn under_way(v: &Values, class: Class) -> u64 {
    begun(v, class).wrapping_sub(ended(v, class))
}

/// The time integral of the queue up to `now`, in request-nanoseconds.
pub(crate) fn queue(v: &Values, class: Class, now: u64) -> u64 {
    let starts = v[class as usize * 4 + 3];
    time(v, class).wrapping_add(under_way(v, class).wrapping_mul(now)).wrapping_sub(starts)
}

pub(crate) fn payload(v: &Values, class: Class) -> u64 {
    v[usize::from(PAYLOAD[class as usize].0)]
}

pub(crate) fn direct(v: &Values, class: Class) -> u64 {
    v[usize::from(DIRECT[class as usize].0)]
}

pub(crate) fn direct_payload(v: &Values, class: Class) -> u64 {
    v[usize::from(DIRECT_PAYLOAD[class as usize].0)]
}

#[cfg(test)]
mod tests;
