//! Writes messages to a TCP stream: as many as possible in one system call, zero-copy for payload.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use arena::{Data, heads};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use smb_wire::frame;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The writing half of a connection: a queue of messages.
#[derive(Default)]
pub struct Sender {
    queue: VecDeque<Item>,
    bytes: usize,
}

struct Item {
    frame: [u8; frame::FRAME_LEN],
    head: Vec<u8>,
    payload: Data,
    /// Bytes of frame, head and payload that have been sent.
    sent: usize,
}

/// Maximum number of slices in one system call.
const SLICES: usize = 64;

impl Sender {
    /// Bytes that are queued but not sent.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Queues a message: its head, then its payload.
    ///
    /// # Panics
    /// If the message is longer than a frame can be. Negotiated I/O sizes are far below.
    pub fn push(&mut self, head: Vec<u8>, payload: Data) {
        let length = head.len() + payload.len();
        let frame = frame::encode(length).expect("messages are shorter than 16 MiB");
        self.bytes += frame.len() + length;
        self.queue.push_back(Item { frame, head, payload, sent: 0 });
    }

    /// Sends as much as the socket accepts. Ready when the queue is empty, or with the socket's error.
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &TcpStream) -> Poll<io::Result<()>> {
        while !self.queue.is_empty() {
            ready!(stream.poll_write_ready(cx))?;
            match stream.try_io(Interest::WRITABLE, || self.send_some(stream)) {
                Ok(n) => self.advance(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send_some(&self, stream: &TcpStream) -> io::Result<usize> {
        let mut slices: smallvec::SmallVec<[IoSlice<'_>; SLICES]> = Default::default();
        for item in &self.queue {
            let mut skip = item.sent;
            let mut add = |piece| {
                if let Some(left) = unsent(piece, &mut skip) {
                    slices.push(IoSlice::new(left));
                }
            };
            add(&item.frame[..]);
            add(&item.head);
            match &item.payload {
                Data::Bufs(sg) => sg.iter().for_each(|b| add(b)),
                Data::File { fd, offset, length } => {
                    if slices.is_empty() {
                        return send_file(stream, fd.as_fd(), *offset, *length, skip);
                    }
                    // First the slices before the file; `MORE` because the file follows immediately.
                    return send(stream, &slices, SendFlags::NOSIGNAL | SendFlags::MORE);
                }
            }
            if slices.len() + 6 > SLICES {
                break;
            }
        }
        send(stream, &slices, SendFlags::NOSIGNAL)
    }

    fn advance(&mut self, mut n: usize) {
        self.bytes -= n;
        while let Some(item) = self.queue.front_mut() {
            let left = item.frame.len() + item.head.len() + item.payload.len() - item.sent;
            if n < left {
                item.sent += n;
                return;
            }
            n -= left;
            if let Some(sent) = self.queue.pop_front() {
                heads::give(sent.head);
            }
        }
    }
}

/// The unsent part of a piece when `skip` bytes of it and the following pieces are sent; `None` if all of it is
/// sent.
fn unsent<'a>(piece: &'a [u8], skip: &mut usize) -> Option<&'a [u8]> {
    let n = (*skip).min(piece.len());
    *skip -= n;
    (n < piece.len()).then(|| &piece[n..])
}

fn send(stream: &TcpStream, slices: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    Ok(rustix::net::sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Sends file payload from the page cache. If the file was truncated meanwhile, sends zeros in place of the missing
/// bytes, because the header has announced the length.
fn send_file(
    stream: &TcpStream,
    fd: std::os::fd::BorrowedFd<'_>,
    offset: u64,
    length: u32,
    sent: usize,
) -> io::Result<usize> {
    let left = length as usize - sent;
    let mut from = offset + sent as u64;
    match rustix::fs::sendfile(stream, fd, Some(&mut from), left)? {
        0 => send(stream, &[IoSlice::new(&ZEROS[..left.min(ZEROS.len())])], SendFlags::NOSIGNAL),
        n => Ok(n),
    }
}

static ZEROS: [u8; 4096] = [0; 4096];
