//! SMB Direct as a state machine for either side (MS-SMBD 3.1), without clock, memory or fabric.
//!
//! The owner calls `handle_*` with the event and the time, then acts on [`Protocol::receives_wanted`] and
//! [`Protocol::poll_transmit`] until neither has anything left, and wakes at [`Protocol::poll_timeout`]. The payload
//! stays outside: here a queued message is its length, and a fragment is a range of it.
//!
//! Invariants:
//! 1. `granted <= posted`: the peer has a credit only for a receive that is posted.
//! 2. A message is sent only for a credit of the peer's, and takes the last one only if it grants at least one back
//!    (MS-SMBD 3.1.5.1). So when nothing is in flight between the two sides, at least one of them can send.
//! 3. Fragments of one upper-layer message are sent in order, without fragments of another in between.
//! 4. `remaining` is the number of bytes that the peer's fragmented message still lacks, at most
//!    `max_fragmented_receive_size`.

mod negotiation;

use std::collections::VecDeque;
use std::time::Duration;

use crate::pdu::{
    DATA_OFFSET, DataTransfer, DataTransferFlags, MIN_FRAGMENTED_SIZE, MIN_RECEIVE_SIZE, NegotiateRequest,
    NegotiateResponse,
};
use crate::{Limits, SmbDirectError, SmbDirectOptions, Timer, Violation};

/// Time since some fixed moment: only differences matter.
pub type Time = Duration;

/// One side of a connection.
pub struct Protocol {
    options: SmbDirectOptions,
    phase: Phase,
    limits: Limits,

    /// Receive buffers posted and not used.
    posted: u32,
    /// Credits that the peer may hold: granted, and no message arrived for them.
    granted: u32,
    /// Receives to have posted now; grows when the peer uses them up.
    target: u32,
    /// The limit to which `target` grows.
    ceiling: u32,
    /// The number of credits that the peer requested last.
    peer_target: u32,
    grant: Grant,

    /// Messages that this side may send.
    send_credits: u32,
    /// Until when the last credit is kept, if it is (see [`Protocol::last_is_kept`]).
    last_kept_until: Option<Time>,
    queue: VecDeque<Outgoing>,
    /// Sending waits for a credit, and the stall was counted.
    stalled: bool,
    stalls: u64,

    remaining: u32,
    keep_alive: KeepAlive,
    response_due: bool,
    /// The time at which negotiation, or the peer's silence, has lasted too long.
    deadline: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Active end: the request is to be sent.
    RequestDue,
    /// Active end: the response is awaited.
    AwaitResponse,
    /// Passive end: the request is awaited.
    AwaitRequest,
    /// Passive end: the response is to be sent once a receive is posted.
    ResponseDue,
    /// Passive end: a failure response is to be sent.
    RefusalDue(Violation),
    Established,
    Ended,
}

/// When a grant is sent without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    /// Nothing arrived since the last grant.
    Quiet,
    /// Only messages without data arrived, the first at that time: a grant in answer to a grant would be answered in
    /// turn for ever, so it waits [`SmbDirectOptions::grant_delay`] and is sent only to a peer without credits.
    Empty(Time),
    /// Data arrived: the peer is sending.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepAlive {
    None,
    Pending,
    Sent,
}

struct Outgoing {
    length: u32,
    sent: u32,
}

/// What a received message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing for the upper layer.
    Nothing,
    /// Negotiation is complete on this side; the upper layer may send.
    Established,
    /// A part of an upper-layer message.
    Data {
        /// Where it starts in the received message.
        offset: u32,
        /// Its bytes.
        length: u32,
        /// It completes the upper-layer message.
        last: bool,
    },
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// The negotiate request.
    Request(NegotiateRequest),
    /// The negotiate response; the connection is established with it.
    Response(NegotiateResponse),
    /// A failure response; once sent, the connection ends for this reason.
    Refusal(NegotiateResponse, Violation),
    /// A data transfer message, with a part of the first queued message or without data.
    Data(DataTransfer, Option<Fragment>),
}

/// A part of the message at the front of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its first byte.
    pub start: u32,
    /// Its bytes.
    pub length: u32,
    /// It is the last part: the message leaves the queue.
    pub last: bool,
}

/// The reason why the connection ends, where the peer caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer violated the protocol.
    Peer(Violation),
    /// The peer refused the connection with this NTSTATUS.
    Refused(u32),
    /// The peer did not answer in time.
    TimedOut(Timer),
}

impl From<End> for SmbDirectError {
    fn from(end: End) -> SmbDirectError {
        match end {
            End::Peer(v) => SmbDirectError::Peer(v),
            End::Refused(s) => SmbDirectError::Refused(s),
            End::TimedOut(t) => SmbDirectError::TimedOut(t),
        }
    }
}

impl From<Violation> for End {
    fn from(v: Violation) -> End {
        End::Peer(v)
    }
}

impl Protocol {
    /// The end that connected.
    pub fn active(now: Time, options: SmbDirectOptions) -> Protocol {
        Protocol::new(now, options, Phase::RequestDue)
    }

    /// The end that listened.
    pub fn passive(now: Time, options: SmbDirectOptions) -> Protocol {
        Protocol::new(now, options, Phase::AwaitRequest)
    }

    fn new(now: Time, mut options: SmbDirectOptions, phase: Phase) -> Protocol {
        let sizes = MIN_RECEIVE_SIZE..=arena::CHUNK_MAX as u32;
        options.max_send_size = options.max_send_size.clamp(*sizes.start(), *sizes.end());
        options.max_receive_size = options.max_receive_size.clamp(*sizes.start(), *sizes.end());
        options.max_fragmented_size = options.max_fragmented_size.max(MIN_FRAGMENTED_SIZE);
        options.receive_credit_max = options.receive_credit_max.max(1);
        options.send_credit_target = options.send_credit_target.max(1);
        let ceiling = u32::from(options.receive_credit_max);
        Protocol {
            phase,
            limits: Limits {
                max_send_size: options.max_send_size,
                max_receive_size: options.max_receive_size,
                max_fragmented_send_size: 0,
                max_fragmented_receive_size: options.max_fragmented_size,
                max_read_write_size: options.max_read_write_size,
            },
            posted: 0,
            granted: 0,
            target: u32::from(options.receive_credit_target).clamp(1, ceiling),
            ceiling,
            peer_target: 0,
            grant: Grant::Quiet,
            send_credits: 0,
            queue: VecDeque::new(),
            last_kept_until: None,
            stalled: false,
            stalls: 0,
            remaining: 0,
            keep_alive: KeepAlive::None,
            response_due: false,
            deadline: now + options.negotiate_timeout,
            options,
        }
    }

    /// The negotiated limits; before the negotiation, the offered ones.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether upper-layer messages may be queued.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Receive buffers posted and not used.
    pub fn posted(&self) -> usize {
        self.posted as usize
    }

    /// Credits that this side holds.
    pub fn send_credits(&self) -> u32 {
        self.send_credits
    }

    /// Upper-layer messages queued.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How often sending stopped because no credit was left.
    pub fn stalls(&self) -> u64 {
        self.stalls
    }

    /// Receives to post now, beyond those posted (MS-SMBD 3.1.5.9). Fewer may be posted when memory is short.
    pub fn receives_wanted(&self) -> usize {
        let want = match self.phase {
            Phase::RequestDue | Phase::AwaitRequest => 1,
            Phase::AwaitResponse | Phase::RefusalDue(_) | Phase::Ended => 0,
            Phase::ResponseDue | Phase::Established => self.receive_goal(),
        };
        want.saturating_sub(self.posted) as usize
    }

    /// Whether the connection can make no progress before a receive is posted: the peer has none to send to, or the
    /// message that uses this side's last credit has none to grant.
    pub fn receive_needed(&self) -> bool {
        self.receives_wanted() > 0 && (self.posted == 0 || (self.send_credits == 1 && self.grantable() == 0))
    }

    /// The bytes that a receive posted now must hold.
    pub fn receive_size(&self) -> usize {
        self.limits.max_receive_size as usize
    }

    /// `count` receives were posted.
    pub fn handle_posted(&mut self, count: usize) {
        self.posted += count as u32;
    }

    /// Sets how many receives are posted at most; `granted` ones cannot be taken back, so a lower number takes
    /// effect as the peer uses its credits. A higher one takes effect at once, up to what the peer used before.
    pub fn set_credit_target(&mut self, target: u16) {
        self.ceiling = u32::from(target).clamp(1, u32::from(self.options.receive_credit_max));
    }

    /// Queues an upper-layer message of `length` bytes (MS-SMBD 3.1.4.2).
    ///
    /// # Errors
    /// [`SmbDirectError::Ended`], [`SmbDirectError::MessageLength`], [`SmbDirectError::QueueFull`].
    pub fn queue_message(&mut self, length: usize) -> Result<(), SmbDirectError> {
        if self.phase != Phase::Established {
            return Err(SmbDirectError::Ended);
        }
        let limit = self.limits.max_fragmented_send_size as usize;
        if length == 0 || length > limit {
            return Err(SmbDirectError::MessageLength { length, limit });
        }
        if self.queue.len() >= self.options.max_queued_messages {
            return Err(SmbDirectError::QueueFull("max_queued_messages"));
        }
        self.queue.push_back(Outgoing { length: length as u32, sent: 0 });
        Ok(())
    }

    /// A message of `length` bytes arrived, of which `head` is the start: all of it or at least 32 bytes.
    ///
    /// # Errors
    /// The reason to end the connection.
    pub fn handle_receive(&mut self, now: Time, head: &[u8], length: usize) -> Result<Received, End> {
        let result = match self.phase {
            Phase::AwaitRequest => self.negotiate_request(now, head).map_err(End::from),
            Phase::AwaitResponse => self.negotiate_response(now, head),
            Phase::Established => self.data_transfer(now, head, length).map_err(End::from),
            Phase::RequestDue | Phase::ResponseDue | Phase::RefusalDue(_) => Err(Violation::NoCredit.into()),
            Phase::Ended => Ok(Received::Nothing),
        };
        if result.is_err() {
            self.phase = Phase::Ended;
        }
        result
    }

    /// Handles the time that [`Protocol::poll_timeout`] returned, or any other.
    ///
    /// # Errors
    /// The reason to end the connection.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), End> {
        if now < self.deadline || self.phase == Phase::Ended {
            return Ok(());
        }
        if self.phase != Phase::Established {
            self.phase = Phase::Ended;
            return Err(End::TimedOut(Timer::Negotiation));
        }
        // MS-SMBD 3.1.6.2: send a keep-alive, then end the connection. A peer that left this side no credit for the
        // keep-alive has not sent anything for as long, so it is treated alike.
        if self.keep_alive != KeepAlive::None {
            self.phase = Phase::Ended;
            return Err(End::TimedOut(Timer::KeepAlive));
        }
        self.keep_alive = KeepAlive::Pending;
        // The time for the answer begins when the keep-alive is sent: a full send queue may delay that, for a limited
        // time. Without a credit it is never sent.
        let without = self.send_credits == 0;
        let patience = if without { self.options.keepalive_timeout } else { self.options.idle_timeout };
        self.deadline = now + patience;
        Ok(())
    }

    /// The fabric has sent the keep-alive: the messages posted before it may have taken a while.
    pub fn handle_keep_alive_left(&mut self, now: Time) {
        if self.phase == Phase::Established && self.keep_alive == KeepAlive::Sent {
            self.deadline = now + self.options.keepalive_timeout;
        }
    }

    /// An RDMA transfer of this side completed: the peer is alive, though it sends no message.
    pub fn handle_transfer(&mut self, now: Time) {
        if self.phase == Phase::Established {
            self.alive(now);
        }
    }

    fn alive(&mut self, now: Time) {
        self.keep_alive = KeepAlive::None;
        self.deadline = now + self.options.idle_timeout;
    }

    /// When [`Protocol::handle_timeout`] and [`Protocol::poll_transmit`] are to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Ended {
            return None;
        }
        let mut at = self.deadline;
        if let Grant::Empty(since) = self.grant
            && self.granted == 0
            && self.grantable() > 0
            && self.send_credits > 0
        {
            at = at.min(since + self.options.grant_delay);
        }
        if let Some(until) = self.last_kept_until
            && self.last_is_kept()
        {
            at = at.min(until);
        }
        Some(at)
    }

    /// The time at which negotiation, or the peer's silence, has lasted too long.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// The next message to send, or `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        match self.phase {
            Phase::Established => self.poll_data(now),
            _ => self.poll_negotiation(now),
        }
    }

    /// MS-SMBD 3.1.5.1.
    fn poll_data(&mut self, now: Time) -> Option<Transmit> {
        if self.last_kept_until.is_some_and(|until| now >= until) {
            self.last_kept_until = None;
        }
        let with_data = !self.queue.is_empty();
        let ask = self.keep_alive == KeepAlive::Pending;
        if !(with_data || ask || self.response_due || self.grant_due(now)) {
            return None;
        }
        // MS-SMBD 3.1.5.1: a message needs a credit, and the last credit is used only with a grant.
        let kept = self.last_is_kept() && !ask && !self.response_due;
        if self.send_credits == 0 || (self.send_credits == 1 && (kept || self.grantable() == 0)) {
            if with_data && !self.stalled {
                self.stalled = true;
                self.stalls += 1;
            }
            return None;
        }
        self.stalled = false;
        let credits_granted = self.take_grant();
        self.send_credits -= 1;
        self.last_kept_until = (self.send_credits == 1).then(|| now + self.options.last_credit_delay);
        self.response_due = false;
        if ask {
            self.keep_alive = KeepAlive::Sent;
            self.deadline = now + self.options.keepalive_timeout;
        }
        let mut header = DataTransfer {
            credits_requested: self.options.send_credit_target,
            credits_granted,
            // A keep-alive is answered without the flag, though MS-SMBD 3.1.5.8 read literally demands it: answers that
            // request an answer would follow each other without end.
            flags: if ask { DataTransferFlags::RESPONSE_REQUESTED } else { DataTransferFlags::empty() },
            remaining_data_length: 0,
            data_offset: 0,
            data_length: 0,
        };
        let Some(front) = self.queue.front_mut() else { return Some(Transmit::Data(header, None)) };
        let room = self.limits.max_send_size - DATA_OFFSET as u32;
        let length = room.min(front.length - front.sent);
        let fragment = Fragment { start: front.sent, length, last: front.sent + length == front.length };
        front.sent += length;
        header.data_offset = DATA_OFFSET as u32;
        header.data_length = length;
        header.remaining_data_length = front.length - front.sent;
        if fragment.last {
            self.queue.pop_front();
        }
        Some(Transmit::Data(header, Some(fragment)))
    }

    /// Whether the last credit waits until the peer has used its own. Linux (6.12) spends its last credits on requests
    /// that grant nothing, and grants when it has processed replies. If this side has spent its last credit by then,
    /// neither can grant the other anything. A peer that never grants more than one credit is not waited for.
    fn last_is_kept(&self) -> bool {
        self.send_credits == 1 && self.granted > 1 && self.last_kept_until.is_some()
    }

    fn has_something_to_send(&self) -> bool {
        !self.queue.is_empty() || self.keep_alive == KeepAlive::Pending || self.response_due
    }

    /// Receives to have posted, without the one for the last credit's grant.
    fn receive_target(&self) -> u32 {
        self.target.min(self.ceiling).min(self.peer_target).max(1)
    }

    /// Receives to have posted (MS-SMBD 3.1.5.9): a side with one credit and something to send posts two more than the
    /// peer has credits, so that the last credit's message has something to grant: one for a request, one for a grant.
    fn receive_goal(&self) -> u32 {
        let last_credit = self.send_credits == 1 && self.has_something_to_send();
        let most = u32::from(self.options.receive_credit_max) + 2;
        if last_credit {
            self.receive_target().max((self.granted + 2).min(most))
        } else {
            self.receive_target()
        }
    }

    /// Credits that could be granted now. After the target was lowered, receives beyond it are not granted again.
    fn grantable(&self) -> u32 {
        let free = self.posted - self.granted;
        free.min(self.receive_goal().saturating_sub(self.granted)).min(u32::from(u16::MAX))
    }

    fn take_grant(&mut self) -> u16 {
        let n = self.grantable();
        if n > 0 {
            self.granted += n;
            self.grant = Grant::Quiet;
        }
        n as u16
    }

    /// When the peer has used half of its credits, it gets a grant even without data to send with it.
    fn low_mark(&self) -> u32 {
        (self.receive_target() / 2).max(1)
    }

    fn grant_due(&self, now: Time) -> bool {
        self.grantable() > 0
            && match self.grant {
                Grant::Quiet => false,
                Grant::Empty(at) => self.granted == 0 && now >= at + self.options.grant_delay,
                Grant::Data => self.granted <= self.low_mark(),
            }
    }

    fn establish(&mut self, now: Time) {
        self.phase = Phase::Established;
        self.deadline = now + self.options.idle_timeout;
    }

    /// MS-SMBD 3.1.5.8.
    fn data_transfer(&mut self, now: Time, head: &[u8], length: usize) -> Result<Received, Violation> {
        if self.granted == 0 {
            return Err(Violation::NoCredit);
        }
        self.granted -= 1;
        self.posted -= 1;
        if length > self.limits.max_receive_size as usize {
            return Err(Violation::TooLong(length));
        }
        let m = DataTransfer::decode(head).map_err(|_| Violation::DataLength(head.len()))?;
        if m.credits_requested == 0 {
            return Err(Violation::NoCreditsRequested);
        }
        self.peer_target = u32::from(m.credits_requested);
        self.send_credits =
            self.send_credits.saturating_add(u32::from(m.credits_granted)).min(u32::from(u16::MAX));
        self.response_due |= m.flags.contains(DataTransferFlags::RESPONSE_REQUESTED);
        self.alive(now);
        if m.data_length == 0 {
            if self.grant == Grant::Quiet {
                self.grant = Grant::Empty(now);
            }
            return Ok(Received::Nothing);
        }
        let last = self.fragment(&m, length)?;
        self.grant = Grant::Data;
        if self.granted <= self.low_mark() {
            self.target = self.target.max((self.target * 2).min(self.ceiling));
        }
        Ok(Received::Data { offset: m.data_offset, length: m.data_length, last })
    }

    /// Checks that a fragment lies in its message and continues the sequence; returns whether it is the last one.
    fn fragment(&mut self, m: &DataTransfer, message: usize) -> Result<bool, Violation> {
        if !m.data_offset.is_multiple_of(8) || (m.data_offset as usize) < DataTransfer::LEN {
            return Err(Violation::DataOffset(m.data_offset));
        }
        let (offset, length) = (m.data_offset, m.data_length);
        if u64::from(offset) + u64::from(length) > message as u64 {
            return Err(Violation::DataOutside { offset, length, message });
        }
        let total = u64::from(length) + u64::from(m.remaining_data_length);
        if total > u64::from(self.limits.max_fragmented_receive_size) {
            return Err(Violation::FragmentedTooLong(total));
        }
        if self.remaining != 0 && u64::from(self.remaining) != total {
            return Err(Violation::Remaining { expected: self.remaining, got: total });
        }
        self.remaining = m.remaining_data_length;
        Ok(self.remaining == 0)
    }
}

#[cfg(test)]
mod tests;
