//! The listener over RDMA.
//!
//! Invariants: as many receives are posted as the initiator may have outstanding requests, and each is
//! reposted before the reply that lets the initiator send another request. The sinks of outstanding RDMA
//! Reads have at most [`SINKS`] bytes in total, however long an I/O is.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::TcpStream;

use arena::{Arena, CHUNK_MAX, CHUNK_MIN, Class, IoBuf, IoBufMut, Sg};
use env::Env;
use rdma::iwarp::{IwarpQueuePair, Options, respond};
use rdma::{Completion, Done, Down, QueuePair, Remote, Stag, Wr, WrId};
use tokio::runtime::Builder;

use super::wire::{Agreed, Hello, REQUEST, Reply, Request, Welcome};
use super::{Bounds, ConnectionError, Refusal};
use crate::engine::Kind;

/// Maximum bytes of the sinks of outstanding RDMA Reads.
const SINKS: usize = 8 << 20;
/// Maximum outstanding RDMA Reads.
const READS: usize = 32;

/// Prefixes of work request IDs.
const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const WRITE: u64 = 3 << 32;
const READ: u64 = 4 << 32;

/// Serves a connection until it ends. `full`: refuses it.
pub(super) fn serve(stream: TcpStream, bounds: &Bounds, full: bool) -> Result<(), ConnectionError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    stream.set_nonblocking(true)?;
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::from_std(stream)?;
        // A Write and a Send for each I/O, and as many again for those whose completions were not processed
        // yet.
        let max_wr = bounds.depth as usize * 4 + READS;
        let options = Options { max_wr, ..Options::default() };
        let incoming = respond(stream, Env::real(), options).await?;
        let Some(hello) = Hello::parse(&incoming.private_data) else {
            incoming.reject(&[]).await?;
            return Err(ConnectionError::UnknownProtocol);
        };
        let verdict = if full { Err(Refusal::Full) } else { hello.judge(bounds) };
        let welcome = Welcome::new(verdict, bounds).to_bytes();
        if let Err(why) = verdict {
            incoming.reject(&welcome).await?;
            return Err(ConnectionError::Refused(why));
        }
        let qp = incoming.accept(&welcome, 0, READS as u32).await?;
        match Peer::new(qp, hello.agreed(bounds.size))?.run().await {
            Err(ConnectionError::Down(Down::PeerClosed)) => Ok(()),
            ended => ended,
        }
    })
}

struct Peer {
    qp: IwarpQueuePair,
    agreed: Agreed,
    arena: Arena,
    /// The data for reads.
    zeros: IoBuf,
    /// Cached replies by request ID: a reply is reused while the I/O length is the same.
    replies: Vec<Option<(u32, IoBuf)>>,
    /// Outstanding write requests, by ID.
    writes: Vec<Option<PendingWrite>>,
    /// IDs of those for which not all RDMA Reads were posted.
    queue: VecDeque<u32>,
    sinks: Vec<IoBufMut>,
    reading: usize,
    reads_max: usize,
}

/// A write request: its data is read from the initiator's memory.
struct PendingWrite {
    request: Request,
    requested: u32,
    received: u32,
}

impl Peer {
    fn new(qp: IwarpQueuePair, agreed: Agreed) -> Result<Peer, ConnectionError> {
        let piece = (agreed.block as usize).clamp(1, CHUNK_MAX).next_power_of_two().max(CHUNK_MIN);
        let reads_max = (SINKS / piece).min(READS).min(qp.caps().ord as usize).max(1);
        let depth = agreed.depth as usize;
        // A sixteenth of the arena is a reserve that payload cannot use.
        let arena = Arena::new((depth * CHUNK_MIN + (reads_max + 1) * piece) * 9 / 8)?;
        let mut zeros = arena.try_alloc(piece, Class::Payload).ok_or(ConnectionError::Memory)?;
        zeros.set_len(piece);
        let mut peer = Peer {
            qp,
            agreed,
            zeros: zeros.freeze(),
            replies: vec![None; depth],
            writes: (0..depth).map(|_| None).collect(),
            queue: VecDeque::new(),
            sinks: Vec::new(),
            reading: 0,
            reads_max,
            arena,
        };
        for _ in 0..depth {
            let buf = peer.arena.try_alloc(REQUEST, Class::Payload).ok_or(ConnectionError::Memory)?;
            peer.post(RECEIVE, Wr::Recv(buf))?;
        }
        Ok(peer)
    }

    async fn run(mut self) -> Result<(), ConnectionError> {
        let mut out = Vec::new();
        loop {
            poll_fn(|cx| self.qp.poll(cx, &mut out)).await?;
            for completion in out.drain(..) {
                self.completed(completion)?;
            }
            self.post_reads()?;
        }
    }

    fn post(&mut self, id: u64, wr: Wr) -> Result<(), ConnectionError> {
        self.qp.post(WrId(id), wr).map_err(|(e, _)| e.into())
    }

    fn completed(&mut self, completion: Completion) -> Result<(), ConnectionError> {
        // Flushed requests: the end of the connection reports the reason.
        let Ok(done) = completion.result else { return Ok(()) };
        match done {
            Done::Recv { mut buf, .. } => {
                let request = Request::parse(&buf, &self.agreed).ok_or(ConnectionError::Request)?;
                buf.set_len(0);
                self.post(RECEIVE, Wr::Recv(buf))?;
                self.begin(request)
            }
            Done::Read(sink) => {
                let id = completion.id.0 as u32; // the higher bits are the prefix
                self.reading -= 1;
                let received = sink.len() as u32;
                self.sinks.push(sink);
                let write = self.writes[id as usize].as_mut().expect("it has a Read in flight");
                write.received += received;
                if write.received < write.request.length {
                    return Ok(());
                }
                let request = write.request;
                self.writes[id as usize] = None;
                self.reply(&request)
            }
            Done::Send | Done::Write | Done::Invalidate(_) => Ok(()),
        }
    }

    fn begin(&mut self, request: Request) -> Result<(), ConnectionError> {
        match request.kind {
            Kind::Read => {
                let to = Remote { stag: Stag(request.stag), offset: request.address, length: request.length };
                let (mut src, mut left) = (Sg::new(), request.length as usize);
                while left > 0 {
                    let n = left.min(self.zeros.len());
                    src.push(self.zeros.slice(0..n));
                    left -= n;
                }
                self.post(WRITE, Wr::Write { src, to })?;
                self.reply(&request)
            }
            Kind::Write => {
                let write = &mut self.writes[request.id as usize];
                if write.is_some() {
                    return Err(ConnectionError::Request); // this ID is in use
                }
                *write = Some(PendingWrite { request, requested: 0, received: 0 });
                self.queue.push_back(request.id);
                Ok(())
            }
        }
    }

    /// Posts RDMA Reads for write requests, up to the limits.
    fn post_reads(&mut self) -> Result<(), ConnectionError> {
        while self.reading < self.reads_max {
            let Some(id) = self.queue.front().copied() else { break };
            let write = self.writes[id as usize].as_mut().expect("it is queued");
            let length = (write.request.length - write.requested).min(self.zeros.len() as u32);
            let offset = write.request.address.wrapping_add(write.requested.into());
            let from = Remote { stag: Stag(write.request.stag), offset, length };
            write.requested += length;
            if write.requested == write.request.length {
                self.queue.pop_front();
            }
            let mut sink = match self.sinks.pop() {
                Some(sink) => sink,
                None => {
                    self.arena.try_alloc(self.zeros.len(), Class::Payload).ok_or(ConnectionError::Memory)?
                }
            };
            sink.set_len(0);
            self.post(READ | u64::from(id), Wr::Read { sink, from })?;
            self.reading += 1;
        }
        Ok(())
    }

    fn reply(&mut self, request: &Request) -> Result<(), ConnectionError> {
        let (id, length) = (request.id, request.length);
        let known = &mut self.replies[id as usize];
        let message = match known {
            Some((of, message)) if *of == length => message.clone(),
            _ => {
                let message = IoBuf::from(Reply { id, length }.to_bytes().to_vec());
                *known = Some((length, message.clone()));
                message
            }
        };
        let invalidate = Some(Stag(request.stag));
        self.post(SEND, Wr::Send { sg: Sg::from_iter([message]), invalidate })
    }
}
