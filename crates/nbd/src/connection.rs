//! One client: negotiation, then requests, which are read one after another and answered in order of
//! completion.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arena::{Class, Sg, SgMut};
use disk::sized;
use env::Env;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, Semaphore, watch};

use crate::handshake::{Handshake, Negotiated, NextStep};
use crate::message::{self, Command, ErrorNumber, REQUEST_BYTES, Request};
use crate::target::{Answer, PAGE, Target};
use crate::{IN_FLIGHT, Server};

/// The time limit for choosing an export.
const NEGOTIATION: Duration = Duration::from_secs(30);
/// Why the negotiation failed.
#[derive(Debug, Error)]
pub(crate) enum NegotiationError {
    #[error("{0}")]
    Protocol(&'static str),
    #[error("the client did not choose an export within {} s", NEGOTIATION.as_secs())]
    Slow,
    #[error("the server is stopping")]
    Stopping,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

pub(crate) struct Connection {
    input: Input,
    output: Arc<Output>,
    target: Arc<Target>,
    stop: watch::Receiver<bool>,
}

/// The socket, preceded by the bytes that were already read during the negotiation.
struct Input {
    early: Vec<u8>,
    socket: OwnedReadHalf,
}

struct Output {
    socket: Mutex<OwnedWriteHalf>,
    /// Becomes true when a reply was sent only in part, or when no more replies are to be sent: the
    /// connection ends.
    broken: watch::Sender<bool>,
    /// The time limit for sending a whole reply.
    limit: Duration,
    env: Env,
}

impl Connection {
    pub(crate) async fn negotiate(
        server: &Server,
        stream: UnixStream,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Connection, NegotiationError> {
        let descriptions = server.describe();
        let payload: Vec<u32> = descriptions.iter().map(|d| d.payload_max).collect();
        let (mut socket, mut out) = stream.into_split();
        let negotiation = async {
            let mut handshake = Handshake::new(descriptions);
            out.write_all(&Handshake::greeting()).await?;
            let mut buffer = [0; 1024];
            loop {
                let n = socket.read(&mut buffer).await?;
                if n == 0 {
                    return Err(NegotiationError::Protocol(
                        "the client disconnected before it chose an export",
                    ));
                }
                let mut answer = Vec::new();
                let outcome = handshake.handle(&buffer[..n], &mut answer);
                out.write_all(&answer).await?;
                match outcome {
                    NextStep::More => {}
                    NextStep::Close(why) => return Err(NegotiationError::Protocol(why)),
                    NextStep::Transmission(agreed) => return Ok((agreed, handshake.rest())),
                }
            }
        };
        let (agreed, early) = tokio::select! {
            done = negotiation => done?,
            () = server.env().sleep(NEGOTIATION) => return Err(NegotiationError::Slow),
            _ = stop.wait_for(|s| *s) => return Err(NegotiationError::Stopping),
        };
        Ok(Connection {
            input: Input { early, socket },
            output: Arc::new(Output {
                socket: Mutex::new(out),
                broken: watch::Sender::new(false),
                limit: server.limits().reply,
                env: server.env().clone(),
            }),
            target: Arc::new(server.connect(agreed, payload[agreed.export])),
            stop,
        })
    }

    /// Serves until the client disconnects, violates the protocol, or the server stops. Requests that were
    /// started are completed.
    pub(crate) async fn run(mut self) {
        let places = Arc::new(Semaphore::new(IN_FLIGHT));
        let memory = Arc::new(Semaphore::new(self.target.share / PAGE));
        let name = self.target.export.name.clone();
        tracing::info!("NBD: a client connected to {name}");
        let (mut stop, mut broken) = (self.stop.clone(), self.output.broken.subscribe());
        let why = tokio::select! {
            why = self.requests(&places, &memory) => why,
            _ = stop.wait_for(|s| *s) => "the server is stopping",
            _ = broken.wait_for(|b| *b) => "a reply could not be sent to the client",
        };
        let finished = async { drop(places.acquire_many(IN_FLIGHT as u32).await) };
        tokio::select! {
            () = finished => {}
            () = self.target.env.sleep(self.target.limits.end) => {
                // Outstanding disk I/O completes, but no reply is sent.
                self.output.broken.send_replace(true);
                drop(places.acquire_many(IN_FLIGHT as u32).await);
            }
        }
        tracing::info!("NBD: the connection of a client to {name} ended: {why}");
    }

    /// Reads and starts requests until the connection must end; returns the reason. Dropping it loses at most
    /// one partially read request.
    async fn requests(&mut self, places: &Arc<Semaphore>, memory: &Arc<Semaphore>) -> &'static str {
        loop {
            let Ok(place) = Arc::clone(places).acquire_owned().await else { return "the server is stopping" };
            let mut head = [0; REQUEST_BYTES];
            if self.input.read_exact(&mut head).await.is_err() {
                return "the client closed the connection without NBD_CMD_DISC";
            }
            let Some(request) = Request::decode(&head) else {
                return "a request has no valid magic number";
            };
            if request.command == Command::DISCONNECT {
                return "the client disconnected";
            }
            if request.command == Command::WRITE && request.length > self.target.payload_max {
                return "a WRITE is longer than the maximum that the server announced";
            }
            // A client that does not read its replies waits here, without memory that other clients need.
            let pages = self.target.pages(&request).min(self.target.share / PAGE) as u32;
            let Ok(held) = Arc::clone(memory).acquire_many_owned(pages).await else {
                return "the server is stopping";
            };
            let mut payload = Sg::new();
            if request.command == Command::WRITE {
                match self.payload(request.length).await {
                    Ok(p) => payload = p,
                    Err(why) => return why,
                }
            }
            let answer = Target::perform(&self.target, request, payload);
            let (output, agreed) = (Arc::clone(&self.output), self.target.agreed);
            self.target.env.spawn(async move {
                output.answer(request, agreed, answer.wait().await).await;
                drop((place, held));
            });
        }
    }

    /// Reads the payload of a WRITE directly into arena memory, or returns why that failed. There is a time
    /// limit, because the memory is unavailable to other requests until all of the payload has arrived.
    async fn payload(&mut self, length: u32) -> Result<Sg, &'static str> {
        let target = Arc::clone(&self.target);
        let mut buffers =
            sized(target.arena.alloc_sg(length as usize, Class::Payload).await, length as usize);
        let read = async {
            for b in &mut buffers {
                self.input.read_exact(b.filled_mut()).await?;
            }
            Ok::<_, io::Error>(())
        };
        tokio::select! {
            read = read => read.map_err(|_| "the client disconnected during a WRITE")?,
            () = target.env.sleep(target.limits.payload) => return Err("the data of a WRITE did not arrive in time"),
        }
        Ok(buffers.into_iter().map(arena::IoBufMut::freeze).collect())
    }
}

impl Input {
    async fn read_exact(&mut self, mut to: &mut [u8]) -> io::Result<()> {
        let early = self.early.len().min(to.len());
        to[..early].copy_from_slice(&self.early[..early]);
        self.early.drain(..early);
        to = &mut to[early..];
        if !to.is_empty() {
            self.socket.read_exact(to).await?;
        }
        Ok(())
    }
}

impl Output {
    async fn answer(&self, request: Request, agreed: Negotiated, answer: Result<Answer, ErrorNumber>) {
        let Request { cookie, command, .. } = request;
        // Only READ and BLOCK_STATUS have structured replies; all other commands have simple ones.
        let structured = agreed.structured && matches!(command, Command::READ | Command::BLOCK_STATUS);
        let simple = |error| message::reply(cookie, error).to_vec();
        let (head, payload) = match answer {
            Ok(Answer::Data(payload)) if structured => {
                let length = payload.iter().map(|b| b.len()).sum();
                (message::data_chunk(cookie, request.offset, length), payload)
            }
            Ok(Answer::Hole) => (message::hole_chunk(cookie, request.offset, request.length), SgMut::new()),
            Ok(Answer::Data(payload)) => (simple(ErrorNumber::NONE), payload),
            Ok(Answer::Extents(extents)) => (message::status_chunk(cookie, &extents), SgMut::new()),
            Ok(Answer::Done) => (simple(ErrorNumber::NONE), SgMut::new()),
            Err(error) if structured => (message::error_chunk(cookie, error), SgMut::new()),
            Err(error) => (simple(error), SgMut::new()),
        };
        let mut socket = self.socket.lock().await;
        let mut broken = self.broken.subscribe();
        let send = async {
            socket.write_all(&head).await?;
            for b in &payload {
                socket.write_all(b).await?;
            }
            Ok::<_, io::Error>(())
        };
        let sent = tokio::select! {
            biased;
            _ = broken.wait_for(|b| *b) => false,
            sent = send => sent.is_ok(),
            () = self.env.sleep(self.limit) => false,
        };
        if !sent {
            self.broken.send_replace(true);
        }
    }
}
