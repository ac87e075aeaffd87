//! SMB Direct as a state machine for either side (MS-SMBD 3.1), without clock, memory or fabric.
//!
//! The owner calls `handle_*` with the event and the time. Then it serves [`Protocol::receives_wanted`] and
//! [`Protocol::poll_transmit`] until both have no more work, and wakes at [`Protocol::poll_timeout`]. The payload
//! does not pass through here: a queued message is only a length, and a fragment is a range of it.
//!
//! Invariants:
//! 1. `granted <= posted`: the peer has a credit only for a receive that is posted.
//! 2. A message is sent only if this side holds a credit. It takes the last credit only if it grants at least one
//!    to the peer (MS-SMBD 3.1.5.1). So if nothing is in flight, at least one side can send.
//! 3. Fragments of one upper-layer message are sent in order; fragments of other messages are not interleaved.
//! 4. `remaining` is the number of bytes that are missing of the peer's fragmented message, at most
//!    `max_fragmented_receive_size`.

mod negotiation;

use std::collections::VecDeque;
use std::time::Duration;

use crate::pdu::{
    DATA_OFFSET, DataTransfer, DataTransferFlags, MIN_FRAGMENTED_SIZE, MIN_RECEIVE_SIZE, NegotiateRequest,
    NegotiateResponse,
};
use crate::{Limits, SmbDirectError, SmbDirectOptions, Timer, Violation};

/// Time since an arbitrary fixed instant: only differences matter.
pub type Time = Duration;

/// One side of a connection.
pub struct Protocol {
    options: SmbDirectOptions,
    phase: Phase,
    limits: Limits,

    /// Receive buffers that are posted and unused.
    posted: u32,
    /// Credits that the peer may hold: granted, and not yet used by a message.
    granted: u32,
    /// Number of receives to keep posted; grows when the peer uses all of them.
    target: u32,
    /// The limit to which `target` grows.
    ceiling: u32,
    /// Number of credits in the peer's last request.
    peer_target: u32,
    grant: Grant,

    /// Credits of this side: the number of messages that it may send.
    send_credits: u32,
    /// How long the last credit is kept, if it is (see [`Protocol::keeps_last_credit`]).
    last_credit_kept_until: Option<Time>,
    queue: VecDeque<Outgoing>,
    /// Sending waits for a credit, and this stall has been counted.
    stalled: bool,
    stalls: u64,

    remaining: u32,
    keep_alive: KeepAlive,
    response_due: bool,
    /// When negotiation, or the peer's silence, has lasted too long.
    deadline: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Active end: the request must be sent.
    RequestDue,
    /// Active end: waits for the response.
    AwaitResponse,
    /// Passive end: waits for the request.
    AwaitRequest,
    /// Passive end: the response must be sent once a receive is posted.
    ResponseDue,
    /// Passive end: a failure response must be sent.
    RefusalDue(Violation),
    Established,
    Ended,
}

/// Whether a grant must be sent without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    /// No message arrived since the last grant.
    Quiet,
    /// Only messages without data arrived, the first at this time. If each grant were answered by a grant, this
    /// would never end. So the grant waits [`SmbDirectOptions::grant_delay`] and is sent only to a peer without
    /// credits.
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

/// Content of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing for the upper layer.
    Nothing,
    /// Negotiation is complete on this side; the upper layer may send.
    Established,
    /// A part of an upper-layer message.
    Data {
        /// Offset in the received message.
        offset: u32,
        /// Length in bytes.
        length: u32,
        /// Whether it completes the upper-layer message.
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
    /// Offset of the first byte in the message.
    pub start: u32,
    /// Length in bytes.
    pub length: u32,
    /// Whether it is the last part: the message is then removed from the queue.
    pub last: bool,
}

/// Why the connection ended, if the peer caused it.
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
    /// Creates the end that connected.
    pub fn active(now: Time, options: SmbDirectOptions) -> Protocol {
        Protocol::new(now, options, Phase::RequestDue)
    }

    /// Creates the end that listened.
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
            last_credit_kept_until: None,
            stalled: false,
            stalls: 0,
            remaining: 0,
            keep_alive: KeepAlive::None,
            response_due: false,
            deadline: now + options.negotiate_timeout,
            options,
        }
    }

    /// The negotiated limits; before negotiation completes, the offered ones.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether upper-layer messages may be queued.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Receive buffers that are posted and unused.
    pub fn posted(&self) -> usize {
        self.posted as usize
    }

    /// Credits that this side holds.
    pub fn send_credits(&self) -> u32 {
        self.send_credits
    }

    /// Number of queued upper-layer messages.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How often sending stopped because no credit was left.
    pub fn stalls(&self) -> u64 {
        self.stalls
    }

    /// Number of further receives to post now (MS-SMBD 3.1.5.9). The owner may post fewer if memory is short.
    pub fn receives_wanted(&self) -> usize {
        let want = match self.phase {
            Phase::RequestDue | Phase::AwaitRequest => 1,
            Phase::AwaitResponse | Phase::RefusalDue(_) | Phase::Ended => 0,
            Phase::ResponseDue | Phase::Established => self.receive_goal(),
        };
        want.saturating_sub(self.posted) as usize
    }

    /// Whether the connection cannot make progress until a receive is posted: the peer has no receive to send to,
    /// or the message that uses this side's last credit has nothing to grant.
    pub fn receive_needed(&self) -> bool {
        self.receives_wanted() > 0 && (self.posted == 0 || (self.send_credits == 1 && self.grantable() == 0))
    }

    /// Size in bytes of a receive buffer posted now.
    pub fn receive_size(&self) -> usize {
        self.limits.max_receive_size as usize
    }

    /// The owner calls this after it has posted `count` receives.
    pub fn handle_posted(&mut self, count: usize) {
        self.posted += count as u32;
    }

    /// Sets the maximum number of posted receives. Granted credits cannot be revoked, so a lower number takes
    /// effect as the peer uses its credits. A higher number takes effect at once, up to what the peer used before.
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

    /// Handles a received message of `length` bytes. `head` is its start: the whole message or at least 32 bytes.
    ///
    /// # Errors
    /// Why the connection must end.
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

    /// Handles a timeout; call it at the time that [`Protocol::poll_timeout`] returned. A call at any other time is
    /// harmless.
    ///
    /// # Errors
    /// Why the connection must end.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), End> {
        if now < self.deadline || self.phase == Phase::Ended {
            return Ok(());
        }
        if self.phase != Phase::Established {
            self.phase = Phase::Ended;
            return Err(End::TimedOut(Timer::Negotiation));
        }
        // MS-SMBD 3.1.6.2: send a keep-alive, then end the connection. A peer that left this side no credit for the
        // keep-alive has sent nothing for the same time, so it is treated alike.
        if self.keep_alive != KeepAlive::None {
            self.phase = Phase::Ended;
            return Err(End::TimedOut(Timer::KeepAlive));
        }
        self.keep_alive = KeepAlive::Pending;
        // The time for the answer starts when the keep-alive is sent. A full send queue may delay that, for a
        // limited time. Without a credit the keep-alive is never sent.
        let without = self.send_credits == 0;
        let patience = if without { self.options.keepalive_timeout } else { self.options.idle_timeout };
        self.deadline = now + patience;
        Ok(())
    }

    /// The fabric has sent the keep-alive; earlier messages in the send queue may have delayed it.
    pub fn handle_keep_alive_sent(&mut self, now: Time) {
        if self.phase == Phase::Established && self.keep_alive == KeepAlive::Sent {
            self.deadline = now + self.options.keepalive_timeout;
        }
    }

    /// An RDMA transfer of this side completed: the peer is alive even if it sends no message.
    pub fn handle_transfer(&mut self, now: Time) {
        if self.phase == Phase::Established {
            self.alive(now);
        }
    }

    fn alive(&mut self, now: Time) {
        self.keep_alive = KeepAlive::None;
        self.deadline = now + self.options.idle_timeout;
    }

    /// Latest time for the next call of [`Protocol::handle_timeout`] and [`Protocol::poll_transmit`].
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
        if let Some(until) = self.last_credit_kept_until
            && self.keeps_last_credit()
        {
            at = at.min(until);
        }
        Some(at)
    }

    /// When negotiation, or the peer's silence, has lasted too long.
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Returns the next message to send, or `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        match self.phase {
            Phase::Established => self.poll_data(now),
            _ => self.poll_negotiation(now),
        }
    }

    /// MS-SMBD 3.1.5.1.
    fn poll_data(&mut self, now: Time) -> Option<Transmit> {
        if self.last_credit_kept_until.is_some_and(|until| now >= until) {
            self.last_credit_kept_until = None;
        }
        let with_data = !self.queue.is_empty();
        let ask = self.keep_alive == KeepAlive::Pending;
        if !(with_data || ask || self.response_due || self.grant_due(now)) {
            return None;
        }
        // MS-SMBD 3.1.5.1: a message needs a credit, and the last credit is used only with a grant.
        let kept = self.keeps_last_credit() && !ask && !self.response_due;
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
        self.last_credit_kept_until = (self.send_credits == 1).then(|| now + self.options.last_credit_delay);
        self.response_due = false;
        if ask {
            self.keep_alive = KeepAlive::Sent;
            self.deadline = now + self.options.keepalive_timeout;
        }
        let mut header = DataTransfer {
            credits_requested: self.options.send_credit_target,
            credits_granted,
            // An answer to a keep-alive does not carry the flag, although MS-SMBD 3.1.5.8 read literally demands
            // it: otherwise each answer would request another one, without end.
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

    /// Whether this side keeps its last credit until the peer has used its own. Linux (6.12) spends its last
    /// credits on requests that grant nothing, and grants after it has processed replies. If this side has spent
    /// its last credit by then, neither side can grant. The credit is not kept for a peer that never grants more
    /// than one credit.
    fn keeps_last_credit(&self) -> bool {
        self.send_credits == 1 && self.granted > 1 && self.last_credit_kept_until.is_some()
    }

    fn has_something_to_send(&self) -> bool {
        !self.queue.is_empty() || self.keep_alive == KeepAlive::Pending || self.response_due
    }

    /// Number of receives to keep posted, without those for the last credit's grant.
    fn receive_target(&self) -> u32 {
        self.target.min(self.ceiling).min(self.peer_target).max(1)
    }

    /// Number of receives to keep posted (MS-SMBD 3.1.5.9). A side with one credit and something to send posts two
    /// more than the peer has credits, so that the message with the last credit can grant two: one for a request,
    /// one for a grant.
    fn receive_goal(&self) -> u32 {
        let last_credit = self.send_credits == 1 && self.has_something_to_send();
        let most = u32::from(self.options.receive_credit_max) + 2;
        if last_credit {
            self.receive_target().max((self.granted + 2).min(most))
        } else {
            self.receive_target()
        }
    }

    /// Number of credits that can be granted now. If the target was lowered, receives beyond it are not granted
    /// again.
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

    /// When the peer's credits fall to half, it gets a grant even if there is no data to send.
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

    /// Checks that a fragment lies in its message and continues the sequence. Returns whether it is the last one.
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
