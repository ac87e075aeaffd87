//! The listener over a socket: it receives available requests and answers all of them by one call.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::wire::{Agreed, HELLO, Hello, REPLY, REQUEST, Reply, Request, Welcome};
use super::{Bounds, ConnectionError, Refusal};
use crate::engine::Kind;

/// Time limit for an initiator to send its hello, and to receive its replies.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Bytes received by one call.
const INPUT: usize = 256 << 10;
/// Maximum zeros in one piece.
const ZEROS_MAX: usize = 1 << 20;

/// Serves a connection until it ends. `full`: refuses it.
pub(super) fn serve(mut stream: TcpStream, bounds: &Bounds, full: bool) -> Result<(), ConnectionError> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    stream.set_write_timeout(Some(TIME_LIMIT))?;
    let mut hello = [0; HELLO];
    stream.read_exact(&mut hello)?;
    let hello = Hello::parse(&hello).ok_or(ConnectionError::UnknownProtocol)?;
    let verdict = if full { Err(Refusal::Full) } else { hello.judge(bounds) };
    stream.write_all(&Welcome::new(verdict, bounds).to_bytes())?;
    verdict.map_err(ConnectionError::Refused)?;
    stream.set_read_timeout(None)?;
    let agreed = hello.agreed(bounds.size);
    let zeros = vec![0; (agreed.block as usize).clamp(1, ZEROS_MAX)];
    let (mut input, mut inbox) = (vec![0; INPUT], Inbox::new(agreed));
    let mut kept = 0;
    loop {
        let came = match stream.read(&mut input[kept..]) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let end = kept + came;
        let mut used = 0;
        while used < end {
            let n = inbox.take(&input[used..end])?;
            if n == 0 {
                break;
            }
            used += n;
        }
        input.copy_within(used..end, 0);
        kept = end - used;
        answer(&mut stream, &mut inbox.done, &zeros)?;
    }
}

/// Received but unanswered requests.
struct Inbox {
    agreed: Agreed,
    /// The write request whose payload is being received, and the bytes outstanding.
    writing: Option<(Request, usize)>,
    done: Vec<Request>,
}

impl Inbox {
    fn new(agreed: Agreed) -> Inbox {
        Inbox { agreed, writing: None, done: Vec::new() }
    }

    /// Processes a request, or payload of a write, from the front of `bytes`. Returns the number of bytes
    /// processed; 0 if more are needed.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, ConnectionError> {
        if let Some((request, left)) = &mut self.writing {
            let n = bytes.len().min(*left);
            *left -= n;
            if *left == 0 {
                self.done.push(*request);
                self.writing = None;
            }
            return Ok(n);
        }
        let Some(head) = bytes.get(..REQUEST) else { return Ok(0) };
        let request = Request::parse(head, &self.agreed).ok_or(ConnectionError::Request)?;
        match request.kind {
            Kind::Read => self.done.push(request),
            Kind::Write => self.writing = Some((request, request.length as usize)),
        }
        if self.done.len() > self.agreed.depth as usize {
            return Err(ConnectionError::Request);
        }
        Ok(REQUEST)
    }
}

fn answer(stream: &mut TcpStream, done: &mut Vec<Request>, zeros: &[u8]) -> io::Result<()> {
    let reply = |r: &Request| Reply { id: r.id, length: r.length }.to_bytes();
    let heads: Vec<[u8; REPLY]> = done.iter().map(reply).collect();
    let mut slices = Vec::with_capacity(2 * done.len());
    for (request, head) in done.iter().zip(&heads) {
        slices.push(IoSlice::new(head));
        let mut left = if request.kind == Kind::Read { request.length as usize } else { 0 };
        while left > 0 {
            let n = left.min(zeros.len());
            slices.push(IoSlice::new(&zeros[..n]));
            left -= n;
        }
    }
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match stream.write_vectored(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    done.clear();
    Ok(())
}
