//! Connects the core with its socket.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use counters::Block;
use env::{BoxFuture, Env};
use smallvec::SmallVec;
use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use super::core::{Config, Core, Phase};
use crate::activity::{Activity, Role};
use crate::{Completion, Down, Exposed, Exposure, QueuePair, QueuePairCaps, RdmaError, Rights, Wr, WrId};

/// Length of a thread's receive buffer in bytes.
const STAGE: usize = 256 << 10;
/// If at least this many bytes of a segment are missing, they are read directly into its target.
const DIRECT: usize = 16 << 10;
/// How many bytes are read beyond the segment: the trailer and the next header, and rarely more.
const BEYOND: usize = 2 << 10;
/// Maximum number of reads in one poll, so that other tasks of the thread can run.
const READS: usize = 32;

thread_local! {
    /// Receive buffer shared by the thread's connections: between two polls a connection keeps only its unused
    /// bytes.
    static STAGED: RefCell<Vec<u8>> = RefCell::new(vec![0; STAGE]);
}

/// A queue pair over TCP.
pub struct IwarpQueuePair {
    stream: TcpStream,
    core: Core,
    /// Bytes read but not yet used: the start of an FPDU.
    rest: Vec<u8>,
    env: Env,
    linger: Duration,
    /// Set while the connection is being ended.
    deadline: Option<BoxFuture<()>>,
    peer: SocketAddr,
    activity: Activity,
}

impl IwarpQueuePair {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        env: Env,
        config: Config,
        linger: Duration,
        role: Role,
    ) -> IwarpQueuePair {
        let core = Core::new(env.clone(), config);
        let activity = Activity::new(super::PROVIDER, role);
        IwarpQueuePair { stream, core, rest: Vec::new(), env, linger, deadline: None, peer, activity }
    }

    /// Address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn send_ready(&mut self) {
        self.core.send_ready();
    }

    /// Writes until no output is left or the socket is full; returns whether any byte was written.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut any = false;
        loop {
            let slices = self.core.output();
            if slices.is_empty() {
                return Ok(any);
            }
            match self.stream.try_write_vectored(&slices) {
                Ok(n) => {
                    drop(slices);
                    self.core.written(n);
                    self.activity.sent(n);
                    any = true;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.stream.poll_write_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => return Ok(any),
                },
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads once and processes the bytes. Ready with their number, or 0 at the end of the stream.
    fn read(&mut self, cx: &mut Context<'_>, stage: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.rest.is_empty()
            && let Some(n) = self.read_direct(cx, stage)?
        {
            return n.map(Ok);
        }
        let held = self.rest.len();
        stage[..held].copy_from_slice(&self.rest);
        // Before a long segment, reads only its header: its payload is then read directly into its target.
        let end = if self.core.expects(DIRECT) { held + BEYOND } else { stage.len() };
        let mut buf = ReadBuf::new(&mut stage[held..end]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        let n = buf.filled().len();
        self.activity.received(n);
        if n > 0 {
            let data = &stage[..held + n];
            let used = self.core.input(data);
            self.rest.clear();
            self.rest.extend_from_slice(&data[used..]);
        }
        Poll::Ready(Ok(n))
    }

    /// Reads into the target of the current segment. Returns `None` if too few bytes of it are missing.
    fn read_direct(&mut self, cx: &mut Context<'_>, stage: &mut [u8]) -> io::Result<Option<Poll<usize>>> {
        loop {
            let Some(targets) = self.core.direct(DIRECT) else { return Ok(None) };
            let direct: usize = targets.iter().map(|t| t.len()).sum();
            let mut slices: SmallVec<[IoSliceMut<'_>; 8]> =
                targets.into_iter().map(IoSliceMut::new).collect();
            slices.push(IoSliceMut::new(&mut stage[..BEYOND]));
            let read = self.stream.try_read_vectored(&mut slices);
            drop(slices);
            match read {
                Ok(n) => {
                    self.activity.received(n);
                    self.core.placed_directly(n.min(direct));
                    if n > direct {
                        let data = &stage[..n - direct];
                        let used = self.core.input(data);
                        self.rest.extend_from_slice(&data[used..]);
                    }
                    return Ok(Some(Poll::Ready(n)));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.stream.poll_read_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => return Ok(Some(Poll::Pending)),
                },
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes and reads as much as the socket allows; returns whether the caller must call again at once.
    fn drive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.write(cx)?;
        let again = STAGED.with(|stage| match stage.try_borrow_mut() {
            Ok(mut stage) => self.read_all(cx, &mut stage),
            Err(_) => self.read_all(cx, &mut vec![0; STAGE]), // polled from within the poll of another connection
        })?;
        // Writes the responses to Reads, and the Reads that can start now.
        Ok(self.write(cx)? || again)
    }

    fn read_all(&mut self, cx: &mut Context<'_>, stage: &mut [u8]) -> io::Result<bool> {
        for _ in 0..READS {
            if self.core.has_completions() {
                return Ok(true);
            }
            // Only writing is left; the socket wakes the task for that.
            if !self.core.takes_input() {
                return Ok(false);
            }
            match self.read(cx, stage)? {
                Poll::Pending => return Ok(false),
                Poll::Ready(0) => {
                    self.core.end(self.core.input_ended(self.rest.len()));
                    return Ok(true);
                }
                Poll::Ready(_) => {}
            }
        }
        Ok(true)
    }

    /// Ends a closing or terminating connection once all bytes are written, or when that takes too long.
    fn finish_closing(&mut self, cx: &mut Context<'_>) {
        let why = match self.core.phase() {
            Phase::Open | Phase::Down(_) => return,
            Phase::Closing => Down::Closed,
            Phase::Terminating(why) => why.clone(),
        };
        let (env, linger) = (self.env.clone(), self.linger);
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(async move { env.sleep(linger).await }));
        let late = deadline.as_mut().poll(cx).is_ready();
        if late || self.core.ready_to_end() {
            let socket = SockRef::from(&self.stream);
            // An error means that the connection has already ended.
            if socket.shutdown(Shutdown::Write).is_ok()
                && !late
                && let Ok(socket) = socket.try_clone()
                && let Ok(stream) = TcpStream::from_std(socket.into())
            {
                self.env.spawn(discard(stream, self.env.clone(), self.linger));
            }
            self.core.end(why);
        }
    }
}

/// Reads and drops further input until the end of the stream, at most for `linger`. A socket that is closed with
/// unread bytes resets the connection. The last bytes sent, a Terminate or the last responses, could then be lost.
async fn discard(mut stream: TcpStream, env: Env, linger: Duration) {
    let mut deadline = std::pin::pin!(env.sleep(linger));
    let mut scratch = [0; 4096];
    poll_fn(|cx| {
        loop {
            if deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    })
    .await;
}

impl QueuePair for IwarpQueuePair {
    fn caps(&self) -> QueuePairCaps {
        self.core.caps()
    }

    fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        self.activity.exposed(self.core.expose(what, rights))
    }

    fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)> {
        let IwarpQueuePair { activity, core, .. } = self;
        activity.posting(wr, |wr| core.post(id, wr))
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        let mut again = true;
        for _ in 0..2 {
            if !matches!(self.core.phase(), Phase::Down(_)) {
                match self.drive(cx) {
                    Ok(more) => again = more,
                    Err(e) => self.core.end(Down::Transport(e.kind())),
                }
                self.finish_closing(cx);
                let (received, made) = self.core.frames();
                self.activity.frames(received, made);
            }
            if self.core.drain(out) {
                return Poll::Ready(Ok(()));
            }
            if let Phase::Down(why) = self.core.phase() {
                self.activity.ended(why);
                return Poll::Ready(Err(why.clone()));
            }
            if !again {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn close(&mut self) {
        self.core.close();
    }

    fn exposed(&self) -> usize {
        self.core.exposed()
    }

    fn counters(&self) -> Option<Arc<Block>> {
        Some(Arc::clone(self.activity.block()))
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.stream.local_addr().ok()?, self.peer))
    }
}
