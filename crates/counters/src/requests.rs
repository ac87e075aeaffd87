//! Requests of one connection on one share: how many, how long, how many bytes.
//!
//! **Queue length.** Windows's average queue length is the time integral of the number of requests under way, over an
//! interval. A change of the queue would need the time of the change before; instead each class of requests keeps the
//! sum of the starting times of what is under way. Then the integral up to any moment `now` is
//! `time of what has ended + (number under way) × now − (sum of their starts)`: exact, additive over connections, and
//! without a look at the clock that is not needed anyway. Sums wrap; the result does not.

use std::sync::Arc;
use std::time::Instant;

use env::Moment;

use crate::{Block, Cell, Clock, Instance, Update, Values};

/// What a request is.
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
/// Requests whose payload went by RDMA, by class.
const DIRECT: [Cell; 2] = [Cell(14), Cell(15)];
/// Bytes that went by RDMA, by class.
const DIRECT_PAYLOAD: [Cell; 2] = [Cell(16), Cell(17)];
/// Bytes received and sent, messages and RDMA together.
pub(crate) const RECEIVED: Cell = Cell(18);
/// See [`RECEIVED`].
pub(crate) const SENT: Cell = Cell(19);
/// Times that a request waited for credits: a client's.
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

/// Requests begun and ended in one step, by class.
const WHOLE: [Cell; 3] = [Cell(24), Cell(25), Cell(26)];

/// The four cells of a class, for what is not in [`WHOLE`]: requests begun, requests ended, time of the latter, sum of the starts of the rest.
fn cells(class: Class) -> [Cell; 4] {
    let first = class as u8 * 4;
    [Cell(first), Cell(first + 1), Cell(first + 2), Cell(first + 3)]
}

/// What one writer counts of requests, for all the instances that it belongs to.
pub struct Tally {
    block: Arc<Block>,
    clock: Clock,
    instances: Vec<Arc<Instance>>,
}

/// A request under way: give it to [`Tally::end`].
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    class: Class,
    /// Since the clock's start, in nanoseconds.
    start: u64,
}

/// What became of a request, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Payload read or written.
    pub payload: u64,
    /// It went by RDMA, not in a message.
    pub direct: bool,
    /// Received with it beyond the bytes passed to [`Tally::begin`].
    pub received: u64,
    /// Sent with it, likewise.
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

    /// A request has begun at `now`; a message of `received` bytes came with it and one of `sent` bytes went.
    #[inline]
    pub fn begin(&self, class: Class, now: Instant, received: u64, sent: u64) -> Begun {
        let start = self.clock.ns(now);
        let [begun, _, _, starts] = cells(class);
        let u = self.block.update();
        u.add(begun, 1);
        u.add(starts, start);
        u.add(RECEIVED, received);
        u.add(SENT, sent);
        Begun { class, start }
    }

    /// A request that began at `start` has ended now, before any other thread could have seen it outstanding:
    /// one update does for both. Reads the clock and returns the reading, for the caller's next use.
    #[inline]
    pub fn whole(&self, class: Class, start: Moment, done: Done) -> Moment {
        let now = self.clock.moment();
        let [_, _, time_ns, _] = cells(class);
        let u = self.block.update();
        u.add(WHOLE[class as usize], 1);
        u.add(time_ns, now.ns_since(start));
        moved(&u, class, done);
        now
    }

    /// The clock that it counts by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// It has ended now: reads the clock.
    pub fn end(&self, request: Begun, done: Done) {
        self.end_at(request, done, self.clock.now());
    }

    /// It has ended at `now`.
    pub fn end_at(&self, Begun { class, start }: Begun, done: Done, now: Instant) {
        let time = self.clock.ns(now).saturating_sub(start);
        let [_, ended, time_ns, starts] = cells(class);
        let u = self.block.update();
        u.add(ended, 1);
        u.add(time_ns, time);
        u.add(starts, start.wrapping_neg());
        moved(&u, class, done);
    }

    /// A request has to wait for credits.
    pub fn credit_stall(&self) {
        self.block.add(CREDIT_STALLS, 1);
    }

    /// What is under way ends now: nothing more will be heard of it.
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

/// What ended with `done` has moved.
#[inline]
fn moved(u: &Update<'_>, class: Class, done: Done) {
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

/// Requests of several instances together.
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
    /// Of the bytes read, those that went by RDMA.
    pub read_bytes_direct: u64,
    /// Of the bytes written, those that came by RDMA.
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

/// In nanoseconds.
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
