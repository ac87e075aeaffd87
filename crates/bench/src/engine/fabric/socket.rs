//! The initiator over sockets: one for each target of the thread, with `poll(2)`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use env::Env;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{admitted, extent};
use crate::engine::backend::{Backend, Completion, Fault, Io, Payload, Setup};
use crate::engine::error::OpenError;
use crate::engine::memory::Memory;
use crate::engine::offsets::Kind;
use crate::fabric::wire::{Hello, REPLY, REQUEST, Reply, Request, WELCOME};
use crate::fabric::{FabricAddress, FabricError};

/// Time limit for the listener to accept a connection and answer the hello.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Bytes received by one call.
const INPUT: usize = 256 << 10;
/// If at least this many bytes of a payload are outstanding, they are received directly into the slot's
/// memory. Shorter payloads stay in the receive buffer, because they are not examined.
const DIRECT: usize = 16 << 10;
/// Maximum pieces sent by one call.
const PIECES: usize = 256;

/// See the module.
pub(super) struct Sockets {
    env: Env,
    links: Vec<Link>,
    slots: Vec<Slot>,
    failed: Vec<usize>,
}

struct Link {
    stream: TcpStream,
    lost: bool,
    size: u64,
    source: std::sync::Arc<Memory>,
    out: VecDeque<Piece>,
    /// Bytes of the first piece already sent.
    sent: usize,
    input: Vec<u8>,
    /// The range of received but unprocessed bytes.
    held: std::ops::Range<usize>,
    /// The slot of the read whose payload is being received, and the bytes outstanding.
    reading: Option<(usize, usize)>,
}

/// A piece of data to send.
enum Piece {
    /// Requests.
    Heads(Vec<u8>),
    /// A part of the target's source: offset and length in bytes.
    Source(usize, usize),
    /// The first bytes of a slot's write buffer: slot and length.
    Buffer(usize, usize),
}

impl Piece {
    fn bytes<'a>(&'a self, source: &'a [u8], slots: &'a [Slot]) -> &'a [u8] {
        match self {
            Piece::Heads(bytes) => bytes,
            Piece::Source(at, length) => &source[*at..at + length],
            Piece::Buffer(slot, length) => &slots[*slot].buffer[..*length],
        }
    }
}

#[derive(Default)]
struct Slot {
    room: usize,
    /// The data of the next write, if it is not the source.
    buffer: Vec<u8>,
    /// The buffer for long reads.
    target: Vec<u8>,
    in_flight: Option<InFlight>,
}

#[derive(Clone, Copy)]
struct InFlight {
    lane: usize,
    kind: Kind,
    length: u32,
}

impl Sockets {
    pub(super) fn open(setup: Setup, places: &[FabricAddress]) -> Result<Sockets, OpenError> {
        let mut links = Vec::with_capacity(places.len());
        for (lane, place) in setup.lanes.iter().zip(places) {
            let failed = |source| OpenError::Fabric { place: place.to_string(), source: Box::new(source) };
            let (stream, size) = connect(place, extent(&setup)).map_err(failed)?;
            links.push(Link {
                stream,
                lost: false,
                size,
                source: lane.source.clone(),
                out: VecDeque::new(),
                sent: 0,
                input: vec![0; INPUT],
                held: 0..0,
                reading: None,
            });
        }
        let slot = |room: &u32| Slot { room: *room as usize, ..Slot::default() };
        let slots = setup.slots.iter().map(slot).collect();
        Ok(Sockets { env: Env::real(), links, slots, failed: Vec::new() })
    }
}

/// Connects and sends the hello; returns the socket and the listener's size in bytes.
fn connect(place: &FabricAddress, (block, depth): (u32, u32)) -> Result<(TcpStream, u64), FabricError> {
    let mut stream =
        TcpStream::connect_timeout(&place.address()?, TIME_LIMIT).map_err(FabricError::Unreachable)?;
    let mut welcome = [0; WELCOME];
    let mut talk = || {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        stream.write_all(&Hello::new(block, depth).to_bytes())?;
        stream.read_exact(&mut welcome)?;
        stream.set_nonblocking(true)
    };
    talk().map_err(|e: io::Error| match e.kind() {
        // Another kind of server closes the connection, or waits for more input.
        ErrorKind::UnexpectedEof | ErrorKind::WouldBlock | ErrorKind::ConnectionReset => {
            FabricError::UnknownProtocol
        }
        _ => FabricError::Unreachable(e),
    })?;
    admitted(&welcome).map(|size| (stream, size))
}

impl Link {
    fn send(&mut self, slot: usize, io: &Io) {
        let (id, kind) = (slot as u32, io.kind);
        let head = Request { id, kind, offset: io.offset, length: io.length, stag: 0, address: 0 };
        match self.out.back_mut() {
            Some(Piece::Heads(bytes)) => bytes.extend_from_slice(&head.to_bytes()),
            _ => {
                let mut bytes = Vec::with_capacity(8 * REQUEST);
                bytes.extend_from_slice(&head.to_bytes());
                self.out.push_back(Piece::Heads(bytes));
            }
        }
        if kind == Kind::Write {
            let length = io.length as usize;
            self.out.push_back(match io.payload {
                Payload::Source(at) => Piece::Source(at, length),
                Payload::Buffer => Piece::Buffer(slot, length),
            });
        }
    }

    /// Writes until everything is sent or the socket accepts no more.
    fn write(&mut self, slots: &[Slot]) -> io::Result<()> {
        while !self.out.is_empty() {
            let source = self.source.bytes();
            let slice = |piece| IoSlice::new(Piece::bytes(piece, source, slots));
            let mut slices: Vec<IoSlice<'_>> = self.out.iter().take(PIECES).map(slice).collect();
            slices[0].advance(self.sent);
            let lengths: Vec<usize> = slices.iter().map(|s| s.len()).collect();
            let mut left = match self.stream.write_vectored(&slices) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            for length in lengths {
                if left < length {
                    self.sent += left;
                    break;
                }
                left -= length;
                self.sent = 0;
                self.out.pop_front();
            }
        }
        Ok(())
    }

    /// Receives and processes available data.
    fn read(&mut self, at: usize, slots: &mut [Slot], done: &mut Vec<Completion>) -> Result<(), Fault> {
        loop {
            let kept = self.held.len();
            self.input.copy_within(self.held.clone(), 0);
            self.held = 0..kept;
            let room = &mut self.input[kept..];
            let (came, wanted) = match self.reading {
                Some((slot, left)) if kept == 0 && left >= DIRECT => {
                    let target = &mut slots[slot].target;
                    target.resize(target.len().max(left), 0);
                    let from = target.len() - left;
                    let wanted = left + room.len();
                    let parts = &mut [IoSliceMut::new(&mut target[from..]), IoSliceMut::new(room)];
                    let came = self.stream.read_vectored(parts);
                    if let Ok(n) = came {
                        let placed = n.min(left);
                        self.reading = Some((slot, left - placed));
                        self.held.end = n - placed;
                    }
                    (came, wanted)
                }
                _ => {
                    let wanted = room.len();
                    let came = self.stream.read(room);
                    if let Ok(n) = came {
                        self.held.end += n;
                    }
                    (came, wanted)
                }
            };
            match came {
                Ok(0) => return Err(Fault::Lost),
                Ok(n) => {
                    self.take(at, slots, done)?;
                    if n < wanted {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Fault::Lost),
            }
        }
    }

    fn take(&mut self, at: usize, slots: &mut [Slot], done: &mut Vec<Completion>) -> Result<(), Fault> {
        loop {
            if let Some((slot, left)) = &mut self.reading {
                let n = self.held.len().min(*left);
                self.held.start += n;
                *left -= n;
                if *left > 0 {
                    return Ok(());
                }
                done.push(ended(*slot, slots)?);
                self.reading = None;
            }
            let Some(head) = self.input[self.held.clone()].get(..REPLY) else { return Ok(()) };
            let reply = Reply::parse(head).ok_or(Fault::Protocol)?;
            self.held.start += REPLY;
            let number = reply.id as usize;
            let io = slots.get(number).and_then(|s| s.in_flight).ok_or(Fault::Protocol)?;
            if io.lane != at || io.length != reply.length {
                return Err(Fault::Protocol);
            }
            match io.kind {
                Kind::Read => self.reading = Some((number, reply.length as usize)),
                Kind::Write => done.push(ended(number, slots)?),
            }
        }
    }
}

fn ended(slot: usize, slots: &mut [Slot]) -> Result<Completion, Fault> {
    let io = slots[slot].in_flight.take().ok_or(Fault::Protocol)?;
    Ok(Completion { slot, result: Ok(io.length), at: None })
}

impl Sockets {
    /// Marks a connection as lost: its outstanding I/Os fail.
    fn lose(&mut self, at: usize, fault: Fault, done: &mut Vec<Completion>) {
        self.links[at].lost = true;
        self.links[at].out.clear();
        for (slot, s) in self.slots.iter_mut().enumerate() {
            if s.in_flight.take_if(|i| i.lane == at).is_some() {
                done.push(Completion { slot, result: Err(fault), at: None });
            }
        }
    }

    /// Waits until some sockets are readable or writable; returns their indexes.
    fn wait(&self, until: Instant) -> io::Result<Vec<usize>> {
        let left = until.saturating_duration_since(self.env.now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let live = self.links.iter().enumerate().filter(|(_, l)| !l.lost);
        let (live, mut fds): (Vec<usize>, Vec<PollFd<'_>>) = live
            .map(|(at, l)| {
                let out = if l.out.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                (at, PollFd::new(&l.stream, PollFlags::IN | out))
            })
            .unzip();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(live.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(at, _)| at).collect())
    }
}

impl Backend for Sockets {
    fn size(&self, lane: usize) -> u64 {
        self.links[lane].size
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        let slot = &mut self.slots[slot];
        slot.buffer.resize(slot.room, 0);
        &mut slot.buffer
    }

    fn submit(&mut self, io: &Io) {
        let link = &mut self.links[io.lane];
        if link.lost {
            return self.failed.push(io.slot);
        }
        self.slots[io.slot].in_flight = Some(InFlight { lane: io.lane, kind: io.kind, length: io.length });
        link.send(io.slot, io);
    }

    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        done.extend(self.failed.drain(..).map(|slot| Completion {
            slot,
            result: Err(Fault::Lost),
            at: None,
        }));
        for at in 0..self.links.len() {
            if self.links[at].write(&self.slots).is_err() {
                self.lose(at, Fault::Lost, done);
            }
        }
        while done.is_empty() {
            let ready = self.wait(until)?;
            if ready.is_empty() {
                return Ok(()); // timeout
            }
            for at in ready {
                let link = &mut self.links[at];
                let written = link.write(&self.slots).map_err(|_| Fault::Lost);
                if let Err(fault) = written.and_then(|()| link.read(at, &mut self.slots, done)) {
                    self.lose(at, fault, done);
                }
            }
        }
        Ok(())
    }

    fn data(&mut self, _: usize, _: usize) -> Cow<'_, [u8]> {
        Cow::Borrowed(&[]) // unused: `--verify` is refused
    }

    fn describe(&self) -> String {
        "TCP, without SMB".to_owned()
    }
}
