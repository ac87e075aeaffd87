//! A client of one session over one or two connections: it matches replies to requests, and acknowledges breaks at any
//! time.

use std::collections::HashMap;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smb_wire::msg::{LeaseBreakAcknowledgment, LeaseBreakFlags, LeaseBreakNotification, OplockBreak};
use smb_wire::{Command, Decode, Encode, HEADER_LEN, Header, NtStatus};
use tokio::io::AsyncWriteExt;

use super::Workers;
use crate::raw::{Binding, Raw};

/// How long a reply may take, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// MessageId of unsolicited messages (MS-SMB2 3.3.4.6).
const UNSOLICITED: u64 = u64::MAX;

/// A request that was sent: the connection, and the MessageId.
pub type Ticket = (usize, u64);

/// See the module.
pub struct Peer {
    lines: Vec<Line>,
    /// Requests without a final reply, and whether there was an interim one.
    waiting: HashMap<Ticket, (Command, bool)>,
    replies: HashMap<Ticket, (Header, Vec<u8>)>,
    /// Replies that are of no interest.
    ignored: Vec<Ticket>,
    pub breaks: usize,
}

struct Line {
    raw: Raw,
    received: Vec<u8>,
}

impl Peer {
    /// Logs on over `lines` connections, each on another worker, and connects to the shares; returns their tree ids.
    pub async fn log_on(
        workers: &Workers,
        guid: u8,
        lines: usize,
        signs: bool,
        shares: &[&str],
    ) -> (Peer, Vec<u32>) {
        let mut first = Raw::new(workers.dial().await);
        first.negotiate(0x0311, guid).await;
        assert_eq!(first.log_on("alice", None).await, NtStatus::SUCCESS);
        first.signs = signs;
        let mut trees = Vec::new();
        for share in shares {
            first.tree(share).await;
            trees.push(first.tree_id);
        }
        let binding = Binding { session_id: first.session_id, key: first.key.clone() };
        let mut raws = vec![first];
        while raws.len() < lines {
            let mut raw = Raw::new(workers.dial().await);
            raw.negotiate(0x0311, guid).await;
            assert_eq!(raw.log_on("alice", Some(binding.clone())).await, NtStatus::SUCCESS);
            raw.signs = signs;
            raws.push(raw);
        }
        let lines = raws.into_iter().map(|raw| Line { raw, received: Vec::new() }).collect();
        let (waiting, replies) = (HashMap::new(), HashMap::new());
        let mut peer = Peer { lines, waiting, replies, ignored: Vec::new(), breaks: 0 };
        for line in 0..peer.lines() {
            for message in std::mem::take(&mut peer.lines[line].raw.unsolicited) {
                peer.broken(line, &message).await;
            }
        }
        (peer, trees)
    }

    /// The number of connections.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Sends a request.
    pub async fn send(
        &mut self,
        line: usize,
        tree: u32,
        command: Command,
        body: &impl Encode,
        payload: &[u8],
    ) -> Ticket {
        let raw = &mut self.lines[line].raw;
        raw.tree_id = tree;
        let ticket = (line, raw.next_id());
        let m = raw.encode(command, 1, body, payload);
        raw.stream.write_all(&m).await.expect("the server reads");
        self.waiting.insert(ticket, (command, false));
        ticket
    }

    /// Sends a CANCEL for a request; the CANCEL has no reply.
    pub async fn cancel(&mut self, ticket: Ticket, tree: u32) {
        let raw = &mut self.lines[ticket.0].raw;
        raw.tree_id = tree;
        let next = raw.swap_next_id(ticket.1);
        let m = raw.encode(Command::CANCEL, 0, &smb_wire::msg::CancelRequest {}, &[]);
        raw.swap_next_id(next);
        raw.stream.write_all(&m).await.expect("the server reads");
    }

    /// The final reply to a request.
    pub async fn reply(&mut self, ticket: Ticket) -> (Header, Vec<u8>) {
        loop {
            if let Some(reply) = self.replies.remove(&ticket) {
                return reply;
            }
            let next = std::future::poll_fn(|cx| self.poll(cx));
            let Ok((line, message)) = tokio::time::timeout(PATIENCE, next).await else {
                panic!("no reply to {ticket:?}; these wait: {:?}", self.waiting);
            };
            self.take(line, message.expect("the server has closed a connection")).await;
        }
    }

    /// Whether a request has its final reply, as far as the peer has received.
    pub fn is_answered(&self, ticket: Ticket) -> bool {
        self.replies.contains_key(&ticket)
    }

    /// Handles the messages that have arrived, until none arrives for `moment`.
    pub async fn look(&mut self, moment: Duration) {
        loop {
            let next = std::future::poll_fn(|cx| self.poll(cx));
            let Ok((line, message)) = tokio::time::timeout(moment, next).await else { return };
            self.take(line, message.expect("the server has closed a connection")).await;
        }
    }

    /// Checks that all requests have their final replies.
    pub fn assert_nothing_waits(&self) {
        let waiting: Vec<_> = self.waiting.iter().filter(|(t, _)| !self.ignored.contains(t)).collect();
        assert!(waiting.is_empty(), "without a reply: {waiting:?}");
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Option<Vec<u8>>)> {
        for (number, line) in self.lines.iter_mut().enumerate() {
            if let Poll::Ready(message) = line.poll(cx) {
                return Poll::Ready((number, message));
            }
        }
        Poll::Pending
    }

    async fn take(&mut self, line: usize, message: Vec<u8>) {
        let header = Header::decode(&message).expect("a header");
        self.lines[line].raw.take_credits(&header);
        let ticket = (line, header.message_id);
        if header.message_id == UNSOLICITED {
            return self.broken(line, &message).await;
        }
        if header.status == NtStatus::PENDING {
            let (command, interim) =
                self.waiting.get_mut(&ticket).expect("an interim reply to a request that waits");
            assert!(!*interim, "a second interim reply to {command:?}");
            *interim = true;
            return;
        }
        let Some((command, _)) = self.waiting.remove(&ticket) else {
            panic!("a reply to no request, or a second one: {header:?}");
        };
        assert_eq!(command, header.command);
        match self.ignored.iter().position(|t| *t == ticket) {
            Some(at) => drop(self.ignored.swap_remove(at)),
            None => drop(self.replies.insert(ticket, (header, message))),
        }
    }

    /// Acknowledges a break (MS-SMB2 3.2.5.19).
    async fn broken(&mut self, line: usize, message: &[u8]) {
        self.breaks += 1;
        let tree = self.lines[line].raw.tree_id;
        let size = u16::from_le_bytes([message[HEADER_LEN], message[HEADER_LEN + 1]]);
        let ticket = if size == 44 {
            let told = LeaseBreakNotification::decode(message).expect("sound");
            if !told.flags.contains(LeaseBreakFlags::ACK_REQUIRED) {
                return;
            }
            let body = LeaseBreakAcknowledgment {
                lease_key: told.lease_key,
                lease_state: told.new_lease_state,
                ..LeaseBreakAcknowledgment::default()
            };
            self.send(line, tree, Command::OPLOCK_BREAK, &body, &[]).await
        } else {
            let told = OplockBreak::decode(message).expect("sound");
            self.send(line, tree, Command::OPLOCK_BREAK, &told, &[]).await
        };
        self.ignored.push(ticket);
    }
}

impl Line {
    /// The next message; `None` when the server has closed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        loop {
            if let Some(length) = self.received.first_chunk::<4>().map(|l| u32::from_be_bytes(*l) as usize)
                && self.received.len() >= 4 + length
            {
                let message = self.received[4..4 + length].to_vec();
                self.received.drain(..4 + length);
                return Poll::Ready(Some(message));
            }
            if ready!(self.raw.stream.poll_read_ready(cx)).is_err() {
                return Poll::Ready(None);
            }
            match self.raw.stream.try_read_buf(&mut self.received) {
                Ok(0) => return Poll::Ready(None),
                Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return Poll::Ready(None),
                Ok(_) | Err(_) => {}
            }
        }
    }
}
