//! Unsolicited messages: break notifications (MS-SMB2 3.3.4.6, 3.3.4.7).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use env::Moment;
use smb_wire::msg::OplockBreak;
use smb_wire::{Command, Encode, Header, HeaderFlags, MessageBuilder};

use super::{ConnectionError, Engine, OutMessage};
use crate::inbox::{NOTICES_MAX, Notice};
use crate::session::Session;

/// MessageId of a notification (MS-SMB2 3.3.4.6).
const UNSOLICITED: u64 = u64::MAX;
/// For how long a transport may keep a message that its peer has not acknowledged, before the connection ends.
pub(crate) const LOST: Duration = Duration::from_secs(50);

/// Break notifications that the client may not have received, the oldest first.
#[derive(Default)]
pub(super) struct SentNotices(VecDeque<(Moment, Notice)>);

impl SentNotices {
    fn push(&mut self, now: Moment, notice: Notice) {
        while self.0.front().is_some_and(|(sent, _)| sent.after(LOST) <= now) || self.0.len() >= NOTICES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, notice));
    }

    /// The notifications that the client may not have received.
    pub(super) fn unacknowledged(self, now: Moment) -> impl Iterator<Item = Notice> {
        self.0.into_iter().filter(move |(sent, _)| sent.after(LOST) > now).map(|(_, notice)| notice)
    }
}

impl Engine {
    /// Turns the notices in the inbox into messages; returns whether there were any.
    pub(super) fn take_notices(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Some(notice) = self.inbox.poll(cx) {
            any = true;
            self.deliver(notice);
        }
        any
    }

    /// Processes a notice.
    pub(super) fn deliver(&mut self, notice: Notice) {
        match notice {
            Notice::OplockBreak { session, file_id, level } => {
                let body = OplockBreak { oplock_level: level, file_id };
                let session = self.channels.get(&session).map(|c| Arc::clone(&c.session));
                self.urgent |= session.as_ref().is_some_and(|s| s.channels.lock().len() > 1);
                self.sent_notices.push(self.now, notice);
                let encrypting = session.filter(|s| s.encrypt);
                self.notify(&body, encrypting.as_ref());
            }
            // It belongs to no session, and so is neither signed nor encrypted (MS-SMB2 3.3.4.7).
            Notice::LeaseBreak(body) => {
                self.urgent |= self.server.clients.connections(self.facts.client_guid) > 1;
                self.sent_notices.push(self.now, notice);
                self.notify(&body, None);
            }
            Notice::SessionEnded(id) => self.session_ended(id),
            Notice::Crowded if self.unauthenticated.is_some() => {
                self.ending = Some(ConnectionError::Crowded);
            }
            // A session was set up on the connection meanwhile.
            Notice::Crowded => {}
        }
    }

    /// Whether a break was sent after the client's last message, and the client has another connection that could
    /// carry it. If nothing is acknowledged here, this connection must end soon (MS-SMB2 3.3.4.6, 3.3.4.7).
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Queues a notification; it is not signed (MS-SMB2 3.3.4.6, 3.3.4.7).
    fn notify(&mut self, body: &impl Encode, encrypted: Option<&Arc<Session>>) {
        let header = Header {
            command: Command::OPLOCK_BREAK,
            flags: HeaderFlags::SERVER_TO_REDIR,
            message_id: UNSOLICITED,
            ..Header::default()
        };
        let mut message = OutMessage::plain(Vec::with_capacity(128));
        let mut builder = MessageBuilder::new(&mut message.head);
        if builder.push(&header, body).is_err() {
            return;
        }
        builder.finish();
        match encrypted {
            Some(session) => self.encrypt_out(session, message),
            None => self.push_out(message),
        }
    }

    /// A session was ended on another connection or by an administrator: removes its channel on this one.
    pub(super) fn session_ended(&mut self, id: u64) {
        let ended = self.channels.get(&id).is_some_and(|c| c.session.is_ended());
        if ended {
            self.channels.remove(&id);
            self.session_removed();
        }
    }
}
