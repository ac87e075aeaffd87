//! Establishes connections: the MPA start-up (RFC 5044 7.1, RFC 6581).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use env::Env;
use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::PROVIDER;
use super::core::Config;
use super::mpa::{self, Enhanced, FRAME_LEN, Frame, FrameError, Kind, Ready, UNSPECIFIED_DEPTH};
use super::shell::IwarpQueuePair;
use crate::activity::{Activity, Role};

/// Whether FPDUs carry checksums (RFC 5044 7.1: they do when either side requests them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crc {
    /// This side requests them, so they are on.
    Require,
    /// Checksums are on if the peer requests them.
    IfRequested,
    /// Checksums are off; a peer that requests them is refused.
    Off,
}

/// The options of this side of a connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to use checksums.
    pub crc: Crc,
    /// Maximum number of the peer's RDMA Reads that this side answers concurrently, at most 16,382.
    pub ird: u32,
    /// Maximum number of RDMA Reads that this side starts concurrently; the peer's IRD lowers it.
    pub ord: u32,
    /// Maximum number of outstanding work requests, for sends and receives each.
    pub max_wr: usize,
    /// Maximum number of exposed buffers.
    pub max_regions: usize,
    /// Initiator: MPA revision 1, or 2 with IRD and ORD.
    pub revision: u8,
    /// Initiator in revision 2: send a ready-to-receive message (an RDMA Write without data), so that the responder
    /// may send first.
    pub peer_to_peer: bool,
    /// The longest FPDU that this side sends, in bytes. `None`: as long as fits into one TCP segment.
    pub max_fpdu: Option<usize>,
    /// Maximum time for each step of the peer during the setup.
    pub setup_timeout: Duration,
    /// When the connection ends: maximum time to write the queued data, and then again to keep the socket until the
    /// peer has received it and closed its side. This runs in the background, so a process that exits meanwhile may
    /// reset the connection.
    pub linger: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            crc: Crc::IfRequested,
            ird: 32,
            ord: 32,
            max_wr: 1024,
            max_regions: 4096,
            revision: 2,
            peer_to_peer: false,
            max_fpdu: None,
            setup_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(2),
        }
    }
}

/// Why no connection was established.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetupError {
    /// TCP failed.
    #[error("transport: {0}")]
    Transport(io::ErrorKind),
    /// The peer did not respond in time.
    #[error("the peer did not complete the connection setup in time")]
    TimedOut,
    /// The peer sent an invalid MPA frame, or this side's private data is too long for one.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer demands markers, which are not supported.
    #[error("the peer requires MPA markers, which are not supported")]
    Markers,
    /// The peer demands checksums, which are turned off on this side.
    #[error("the peer requires CRCs, which are turned off")]
    Crc,
    /// The initiator demands a ready-to-receive message but offers none.
    #[error("the peer offers no ready-to-receive message")]
    Ready,
    /// The reply has another revision than the request.
    #[error("the peer answered with MPA revision {0}")]
    Revision(u8),
    /// The responder refused; the value is its private data.
    #[error("the peer refused the connection")]
    Rejected(Vec<u8>),
}

impl From<io::Error> for SetupError {
    fn from(e: io::Error) -> SetupError {
        SetupError::Transport(e.kind())
    }
}

/// Accepts iWARP connections on a TCP port.
pub struct Listener {
    tcp: TcpListener,
    env: Env,
    options: Options,
}

/// An accepted TCP connection whose MPA request has not been read yet.
pub struct AcceptedStream {
    stream: TcpStream,
    peer: SocketAddr,
    env: Env,
    options: Options,
}

/// A peer that requests a connection.
pub struct ConnectionRequest {
    /// The upper layer's private data.
    pub private_data: Vec<u8>,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Maximum number of RDMA Reads that the peer answers concurrently; `None` if not specified.
    pub ird: Option<u32>,
    /// Maximum number of RDMA Reads that the peer starts concurrently; `None` if not specified.
    pub ord: Option<u32>,
    request: Frame,
    stream: TcpStream,
    env: Env,
    options: Options,
}

impl Listener {
    /// Listens on `addr`.
    ///
    /// # Errors
    /// Errors of the system call.
    pub async fn bind(addr: SocketAddr, env: Env, options: Options) -> io::Result<Listener> {
        Ok(Listener { tcp: TcpListener::bind(addr).await?, env, options })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for the next TCP connection. Call [`AcceptedStream::request`], which does the setup, in a separate task:
    /// then a slow peer delays no other.
    ///
    /// # Errors
    /// Errors of the system call. Most are temporary: a connection that ended before it was accepted, too many open
    /// files.
    pub async fn accept(&self) -> io::Result<AcceptedStream> {
        let (stream, peer) = self.tcp.accept().await?;
        Ok(AcceptedStream { stream, peer, env: self.env.clone(), options: self.options.clone() })
    }
}

impl AcceptedStream {
    /// Address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the TCP connection, for a caller that shares the port with another protocol.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Waits for the peer's request.
    ///
    /// # Errors
    /// Why the setup failed; the connection is then closed.
    pub async fn request(self) -> Result<ConnectionRequest, SetupError> {
        respond(self.stream, self.env, self.options).await
    }
}

/// The responder's first half on an accepted TCP connection: waits for the peer's request.
///
/// # Errors
/// Why the setup failed; the connection is then closed.
pub async fn respond(stream: TcpStream, env: Env, options: Options) -> Result<ConnectionRequest, SetupError> {
    counted(take_request(stream, env, options).await)
}

async fn take_request(
    mut stream: TcpStream,
    env: Env,
    options: Options,
) -> Result<ConnectionRequest, SetupError> {
    let peer = stream.peer_addr()?;
    stream.set_nodelay(true)?;
    let request = within(&env, &options, read_frame(&mut stream, Kind::Request)).await?;
    let refusal = if request.markers {
        Some(SetupError::Markers)
    } else if request.crc && options.crc == Crc::Off {
        Some(SetupError::Crc)
    } else if request.enhanced.is_some_and(|e| e.peer_to_peer && e.ready.is_empty()) {
        Some(SetupError::Ready)
    } else {
        None
    };
    let known = |depth: u16| (depth != UNSPECIFIED_DEPTH).then_some(u32::from(depth));
    let incoming = ConnectionRequest {
        private_data: request.private_data.clone(),
        peer,
        ird: request.enhanced.and_then(|e| known(e.ird)),
        ord: request.enhanced.and_then(|e| known(e.ord)),
        request,
        stream,
        env,
        options,
    };
    match refusal {
        None => Ok(incoming),
        Some(why) => {
            incoming.reject(&[]).await?;
            Err(why)
        }
    }
}

impl ConnectionRequest {
    /// Accepts the connection, with `ird` and `ord` limited by the options, and sends `private_data` to the peer.
    ///
    /// # Errors
    /// Why the setup failed; the connection is then closed.
    pub async fn accept(self, private_data: &[u8], ird: u32, ord: u32) -> Result<IwarpQueuePair, SetupError> {
        counted(self.send_reply(private_data, ird, ord).await)
    }

    async fn send_reply(
        mut self,
        private_data: &[u8],
        ird: u32,
        ord: u32,
    ) -> Result<IwarpQueuePair, SetupError> {
        let crc = self.request.crc || self.options.crc == Crc::Require;
        let ird = depth(ird.min(self.options.ird));
        let ord = depth(ord.min(self.options.ord).min(self.ird.unwrap_or(u32::MAX)));
        let reply = self.reply(false, crc, ird, ord, private_data);
        let (peer_to_peer, ready) =
            reply.enhanced.map_or((false, Ready::default()), |e| (e.peer_to_peer, e.ready));
        let bytes = reply.to_vec()?;
        within(&self.env, &self.options, async { Ok(self.stream.write_all(&bytes).await?) }).await?;
        let ready = if peer_to_peer { ready } else { Ready::default() };
        let config = config(&self.stream, &self.options, crc, ird, ord, true, ready)?;
        Ok(IwarpQueuePair::new(self.stream, self.peer, self.env, config, self.options.linger, Role::Accepted))
    }

    /// Refuses the connection and sends `private_data` to the peer.
    ///
    /// # Errors
    /// The refusal could not be sent.
    pub async fn reject(mut self, private_data: &[u8]) -> Result<(), SetupError> {
        let bytes = self.reply(true, self.request.crc, 0, 0, private_data).to_vec()?;
        within(&self.env, &self.options, async {
            self.stream.write_all(&bytes).await?;
            Ok(self.stream.shutdown().await?)
        })
        .await
    }

    fn reply(&self, reject: bool, crc: bool, ird: u16, ord: u16, private_data: &[u8]) -> Frame {
        let enhanced = self.request.enhanced.map(|asked| {
            // RFC 6581 8: the responder accepts every ready-to-receive message that the initiator offers.
            let ready = if asked.peer_to_peer { asked.ready.and(Ready::ALL) } else { Ready::default() };
            Enhanced { ird, ord, peer_to_peer: asked.peer_to_peer, ready }
        });
        Frame {
            kind: Kind::Reply,
            revision: self.request.revision,
            markers: false,
            crc,
            reject,
            enhanced,
            private_data: private_data.to_vec(),
        }
    }
}

/// Connects to `addr` and sends `private_data` to the peer. Also returns the peer's private data.
///
/// # Errors
/// Why no connection was established.
pub async fn connect(
    addr: SocketAddr,
    env: Env,
    private_data: &[u8],
    options: Options,
) -> Result<(IwarpQueuePair, Vec<u8>), SetupError> {
    let stream = counted(within(&env, &options, async { Ok(TcpStream::connect(addr).await?) }).await)?;
    initiate(stream, env, private_data, options).await
}

/// The initiator's part, on a TCP connection that the caller has connected.
///
/// # Errors
/// Why the setup failed; the connection is then closed.
pub async fn initiate(
    stream: TcpStream,
    env: Env,
    private_data: &[u8],
    options: Options,
) -> Result<(IwarpQueuePair, Vec<u8>), SetupError> {
    counted(send_request(stream, env, private_data, options).await)
}

async fn send_request(
    mut stream: TcpStream,
    env: Env,
    private_data: &[u8],
    options: Options,
) -> Result<(IwarpQueuePair, Vec<u8>), SetupError> {
    let peer = stream.peer_addr()?;
    stream.set_nodelay(true)?;
    let enhanced = (options.revision >= 2).then(|| Enhanced {
        ird: depth(options.ird),
        ord: depth(options.ord),
        peer_to_peer: options.peer_to_peer,
        ready: Ready { write: options.peer_to_peer, ..Ready::default() },
    });
    let request = Frame {
        kind: Kind::Request,
        revision: if enhanced.is_some() { 2 } else { 1 },
        markers: false,
        crc: options.crc == Crc::Require,
        reject: false,
        enhanced,
        private_data: private_data.to_vec(),
    };
    let bytes = request.to_vec()?;
    let reply = within(&env, &options, async {
        stream.write_all(&bytes).await?;
        read_frame(&mut stream, Kind::Reply).await
    })
    .await?;
    if reply.reject {
        return Err(SetupError::Rejected(reply.private_data));
    }
    if reply.markers {
        return Err(SetupError::Markers);
    }
    if reply.crc && options.crc == Crc::Off {
        return Err(SetupError::Crc);
    }
    if reply.revision != request.revision {
        return Err(SetupError::Revision(reply.revision));
    }
    let peer_ird = reply.enhanced.filter(|e| e.ird != UNSPECIFIED_DEPTH).map_or(u32::MAX, |e| e.ird.into());
    let (ird, ord) = (depth(options.ird), depth(options.ord.min(peer_ird)));
    let config = config(&stream, &options, request.crc || reply.crc, ird, ord, false, Ready::default())?;
    let mut qp = IwarpQueuePair::new(stream, peer, env, config, options.linger, Role::Initiated);
    match reply.enhanced {
        Some(e) if e.peer_to_peer && request.enhanced.is_some_and(|r| r.peer_to_peer) => {
            if !e.ready.write {
                return Err(SetupError::Ready);
            }
            qp.send_ready();
        }
        _ => {}
    }
    Ok((qp, reply.private_data))
}

fn config(
    stream: &TcpStream,
    options: &Options,
    crc: bool,
    ird: u16,
    ord: u16,
    wait: bool,
    ready: Ready,
) -> Result<Config, SetupError> {
    // RFC 5044 4.2: an FPDU must fit into one segment, at the current segment size.
    let segment = SockRef::from(stream).tcp_mss()? as usize;
    let segment = segment.min(options.max_fpdu.unwrap_or(usize::MAX));
    Ok(Config {
        crc,
        max_ulpdu: mpa::max_ulpdu(segment.max(SEGMENT_MIN)),
        ird: ird.into(),
        ord: ord.into(),
        max_wr: options.max_wr,
        max_regions: options.max_regions,
        wait,
        ready,
    })
}

/// RFC 5044 4.2: an FPDU may always have this many bytes, whatever the segment size.
const SEGMENT_MIN: usize = 128;

/// Limits a depth to the range of its field in the frame.
fn depth(depth: u32) -> u16 {
    depth.min(u32::from(UNSPECIFIED_DEPTH) - 1) as u16
}

async fn read_frame(stream: &mut TcpStream, kind: Kind) -> Result<Frame, SetupError> {
    let mut fixed = [0; FRAME_LEN];
    stream.read_exact(&mut fixed).await?;
    let mut tail = vec![0; Frame::tail_len(kind, &fixed)?];
    stream.read_exact(&mut tail).await?;
    Ok(Frame::parse(kind, &fixed, &tail)?)
}

/// Counts a failed attempt.
fn counted<T>(attempt: Result<T, SetupError>) -> Result<T, SetupError> {
    attempt.inspect_err(|_| Activity::failed(PROVIDER))
}

/// Runs a step of the set-up under its deadline.
async fn within<T>(
    env: &Env,
    options: &Options,
    step: impl Future<Output = Result<T, SetupError>>,
) -> Result<T, SetupError> {
    let mut late = std::pin::pin!(env.sleep(options.setup_timeout));
    let mut step = std::pin::pin!(step);
    std::future::poll_fn(|cx| {
        if let std::task::Poll::Ready(done) = step.as_mut().poll(cx) {
            return std::task::Poll::Ready(done);
        }
        late.as_mut().poll(cx).map(|()| Err(SetupError::TimedOut))
    })
    .await
}
