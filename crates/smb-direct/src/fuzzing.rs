//! Entry point for fuzz targets and "no input panics" tests: all core code that a peer's bytes can reach.

use crate::SmbDirectOptions;
use crate::pdu::BufferDescriptorV1;
use crate::protocol::{Protocol, Received, Time};

/// Maximum number of messages in one run.
const MESSAGES: usize = 4096;

/// Feeds the messages in `bytes` to a connection. The first byte selects the end. Each message is a length byte and
/// its content; a length above 128 means a message of 128 bytes whose header claims up to 1,364. Between messages
/// the function makes all calls that an owner makes.
pub fn connection(bytes: &[u8]) {
    let _ = BufferDescriptorV1::decode_all(bytes);
    let Some((which, mut rest)) = bytes.split_first() else { return };
    let new = if which % 2 == 0 { Protocol::passive } else { Protocol::active };
    let mut p = new(Time::ZERO, SmbDirectOptions::default());
    let (mut now, mut queued) = (Time::ZERO, 0);
    for _ in 0..MESSAGES {
        let wanted = p.receives_wanted();
        p.handle_posted(wanted);
        if p.is_established() && queued < 8 {
            queued += usize::from(p.queue_message(3000).is_ok());
        }
        // The peer's credits bound what we send.
        let mut credits = p.send_credits() + 2;
        while p.poll_transmit(now).is_some() {
            credits -= 1;
            let wanted = p.receives_wanted();
            p.handle_posted(wanted);
        }
        assert!(p.posted() <= usize::from(SmbDirectOptions::default().receive_credit_max) + 2);
        assert!(credits > 0 || p.send_credits() == 0);
        let Some((length, more)) = rest.split_first() else { return };
        let (head, message) = match usize::from(*length) {
            n @ 0..=128 => (n.min(more.len()), n.min(more.len())),
            n => (32.min(more.len()), 128 + (n - 128) * 10),
        };
        if head < 32 && head < message {
            return;
        }
        let (data, more) = more.split_at(head);
        rest = more;
        match p.handle_receive(now, data, message) {
            Ok(Received::Data { offset, length, .. }) => {
                assert!(length > 0 && offset as usize + length as usize <= message);
            }
            Ok(_) => {}
            Err(_) => {
                assert_eq!((p.receives_wanted(), p.poll_timeout(), p.poll_transmit(now)), (0, None, None));
                return;
            }
        }
        if let Some(at) = p.poll_timeout()
            && length % 16 == 0
        {
            now = now.max(at);
            if p.handle_timeout(now).is_err() {
                return;
            }
        }
    }
}
