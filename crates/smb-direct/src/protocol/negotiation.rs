//! Negotiation, both ends (MS-SMBD 3.1.5.2, 3.1.5.3, 3.1.5.6, 3.1.5.7).

use smb_wire::NtStatus;

use super::{End, Grant, Phase, Protocol, Received, Time, Transmit};
use crate::Violation;
use crate::pdu::{MIN_FRAGMENTED_SIZE, MIN_RECEIVE_SIZE, NegotiateRequest, NegotiateResponse, VERSION};

impl Protocol {
    pub(super) fn poll_negotiation(&mut self, now: Time) -> Option<Transmit> {
        match self.phase {
            Phase::RequestDue if self.posted > 0 => {
                self.phase = Phase::AwaitResponse;
                Some(Transmit::Request(NegotiateRequest {
                    min_version: VERSION,
                    max_version: VERSION,
                    credits_requested: self.options.send_credit_target,
                    preferred_send_size: self.options.max_send_size,
                    max_receive_size: self.options.max_receive_size,
                    max_fragmented_size: self.options.max_fragmented_size,
                }))
            }
            // MS-SMBD 3.1.5.6: the response grants a credit, so a receive must be posted first.
            Phase::ResponseDue if self.grantable() > 0 => {
                let credits_granted = self.take_grant();
                self.establish(now);
                Some(Transmit::Response(self.response(NtStatus::SUCCESS, credits_granted)))
            }
            Phase::RefusalDue(why) => {
                self.phase = Phase::Ended;
                Some(Transmit::Refusal(self.response(NtStatus::NOT_SUPPORTED, 0), why))
            }
            _ => None,
        }
    }

    /// MS-SMBD 3.1.5.6.
    pub(super) fn negotiate_request(&mut self, now: Time, head: &[u8]) -> Result<Received, Violation> {
        let m = NegotiateRequest::decode(head).map_err(|_| Violation::NegotiateLength(head.len()))?;
        self.posted = 0;
        if m.min_version > VERSION || m.max_version < VERSION {
            self.phase = Phase::RefusalDue(Violation::Version { min: m.min_version, max: m.max_version });
            return Ok(Received::Nothing);
        }
        self.peer_sizes(m.credits_requested, m.max_receive_size, m.max_fragmented_size)?;
        self.limits.max_receive_size =
            self.limits.max_receive_size.min(m.preferred_send_size).max(MIN_RECEIVE_SIZE);
        self.phase = Phase::ResponseDue;
        self.deadline = now + self.options.negotiate_timeout;
        Ok(Received::Nothing)
    }

    /// MS-SMBD 3.1.5.7.
    pub(super) fn negotiate_response(&mut self, now: Time, head: &[u8]) -> Result<Received, End> {
        let m = NegotiateResponse::decode(head).map_err(|_| Violation::NegotiateLength(head.len()))?;
        self.posted = 0;
        if m.status != NtStatus::SUCCESS {
            return Err(End::Refused(m.status.0));
        }
        if m.negotiated_version != VERSION {
            return Err(Violation::Version { min: m.min_version, max: m.max_version }.into());
        }
        if m.credits_granted == 0 {
            return Err(Violation::NoCreditsGranted.into());
        }
        self.peer_sizes(m.credits_requested, m.max_receive_size, m.max_fragmented_size)?;
        if m.preferred_send_size > self.limits.max_receive_size {
            return Err(Violation::PreferredSendSize(m.preferred_send_size).into());
        }
        self.limits.max_receive_size = m.preferred_send_size.max(MIN_RECEIVE_SIZE);
        self.limits.max_read_write_size = self.limits.max_read_write_size.min(m.max_read_write_size);
        self.send_credits = u32::from(m.credits_granted);
        self.establish(now);
        // The peer has no credit until this side's first message. If the upper layer sends none, a grant is sent
        // without data.
        self.grant = Grant::Empty(now);
        Ok(Received::Established)
    }

    /// Checks and applies the fields that both negotiate messages have.
    fn peer_sizes(&mut self, credits_requested: u16, receive: u32, fragmented: u32) -> Result<(), Violation> {
        if credits_requested == 0 {
            return Err(Violation::NoCreditsRequested);
        }
        if receive < MIN_RECEIVE_SIZE {
            return Err(Violation::MaxReceiveSize(receive));
        }
        if fragmented < MIN_FRAGMENTED_SIZE {
            return Err(Violation::MaxFragmentedSize(fragmented));
        }
        self.peer_target = u32::from(credits_requested);
        self.limits.max_send_size = self.limits.max_send_size.min(receive);
        self.limits.max_fragmented_send_size = fragmented;
        Ok(())
    }

    fn response(&self, status: NtStatus, credits_granted: u16) -> NegotiateResponse {
        NegotiateResponse {
            min_version: VERSION,
            max_version: VERSION,
            negotiated_version: VERSION,
            credits_requested: self.options.send_credit_target,
            credits_granted,
            status,
            max_read_write_size: self.options.max_read_write_size,
            preferred_send_size: self.limits.max_send_size,
            max_receive_size: self.limits.max_receive_size,
            max_fragmented_size: self.options.max_fragmented_size,
        }
    }
}
