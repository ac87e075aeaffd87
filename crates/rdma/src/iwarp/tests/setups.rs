//! The MPA start-up over loopback: negotiation, refusals, and interrupted frames.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::loopback::{ANY, connected};
use super::*;
use crate::iwarp::mpa::{Enhanced, FRAME_LEN, Frame, FrameError, Kind, PRIVATE_MAX};
use crate::iwarp::{ConnectionRequest, Crc, Listener, Options, SetupError, connect};
use crate::{Down, QueuePair};

async fn listener(options: Options) -> (Listener, std::net::SocketAddr) {
    let listener = Listener::bind(ANY, Env::real(), options).await.expect("a port");
    let addr = listener.local_addr().expect("bound");
    (listener, addr)
}

/// Sends `bytes` to a responder; returns its result, and the stream to read its answer from.
async fn request(options: Options, bytes: &[u8]) -> (Result<ConnectionRequest, SetupError>, TcpStream) {
    let (listener, addr) = listener(options).await;
    let mut stream = TcpStream::connect(addr).await.expect("connected");
    stream.write_all(bytes).await.expect("written");
    let incoming = listener.accept().await.expect("accepted").request().await;
    (incoming, stream)
}

/// Sends `bytes` to an initiator as the reply; returns its result.
async fn reply(options: Options, bytes: &[u8]) -> Result<(), SetupError> {
    let (listener, addr) = listener(options.clone()).await;
    let answer = async {
        let mut stream = listener.accept().await.expect("accepted").into_stream();
        let mut asked = [0; FRAME_LEN];
        stream.read_exact(&mut asked).await.expect("a request");
        stream.write_all(bytes).await.expect("written");
        stream
    };
    let (connected, _stream) = tokio::join!(connect(addr, Env::real(), b"", options), answer);
    connected.map(|_| ())
}

fn frame(kind: Kind) -> Frame {
    Frame {
        kind,
        revision: 1,
        markers: false,
        crc: false,
        reject: false,
        enhanced: None,
        private_data: vec![],
    }
}

fn bytes(frame: &Frame) -> Vec<u8> {
    frame.to_vec().expect("it fits")
}

async fn read_reply(stream: &mut TcpStream) -> Frame {
    let mut fixed = [0; FRAME_LEN];
    stream.read_exact(&mut fixed).await.expect("a reply");
    let mut tail = vec![0; Frame::tail_len(Kind::Reply, &fixed).expect("a reply")];
    stream.read_exact(&mut tail).await.expect("a tail");
    Frame::parse(Kind::Reply, &fixed, &tail).expect("a reply")
}

/// siw's request (captured) gets a reply that siw understands: no CRC, no markers, this side's depths and private
/// data.
#[tokio::test]
async fn answers_siw() {
    let siw = unhex("4d504120494420526571204672616d65 1002000c 00200000 2000000001000000");
    let (incoming, mut stream) = request(Options::default(), &siw).await;
    let incoming = incoming.expect("a request");
    assert_eq!((incoming.ird, incoming.ord), (Some(32), Some(0)));
    assert_eq!(incoming.private_data, [0x20, 0, 0, 0, 1, 0, 0, 0]);
    let qp = incoming.accept(b"12345678", 1, 8).await.expect("accepted");
    let mut reply = [0; 32];
    stream.read_exact(&mut reply).await.expect("a reply");
    assert_eq!(reply[..], unhex("4d504120494420526570204672616d65 1002000c 00010008 3132333435363738"));
    assert_eq!((qp.caps().ird, qp.caps().ord), (1, 8));
}

/// RFC 5044 7.1: CRCs are on when either side requests them; a side that has them turned off refuses.
#[tokio::test]
async fn crc_negotiation() {
    for (ask, on) in [(Crc::IfRequested, false), (Crc::Require, true)] {
        let asking = Frame { crc: true, ..frame(Kind::Request) };
        let (incoming, mut stream) =
            request(Options { crc: ask, ..Options::default() }, &bytes(&asking)).await;
        incoming.expect("a request").accept(b"", 1, 1).await.expect("accepted");
        assert!(read_reply(&mut stream).await.crc);
        let (incoming, mut stream) =
            request(Options { crc: ask, ..Options::default() }, &bytes(&frame(Kind::Request))).await;
        incoming.expect("a request").accept(b"", 1, 1).await.expect("accepted");
        assert_eq!(read_reply(&mut stream).await.crc, on);
    }
    let off = Options { crc: Crc::Off, ..Options::default() };
    let asking = Frame { crc: true, ..frame(Kind::Request) };
    let (refused, mut stream) = request(off.clone(), &bytes(&asking)).await;
    assert_eq!(refused.err(), Some(SetupError::Crc));
    assert!(read_reply(&mut stream).await.reject);
    let asking = Frame { crc: true, revision: 2, ..frame(Kind::Reply) };
    assert_eq!(reply(off, &bytes(&asking)).await, Err(SetupError::Crc));
}

/// RFC 6581 9: negotiation of IRD and ORD; this side's ORD never exceeds the peer's IRD.
#[tokio::test]
async fn depths() {
    for (ird, ord, expected) in [(4, 9, (3, 4)), (0x3FFF, 0x3FFF, (3, 7)), (0, 0, (3, 0))] {
        let enhanced = Enhanced { ird, ord, peer_to_peer: false, ready: Ready::default() };
        let asked = Frame { revision: 2, enhanced: Some(enhanced), ..frame(Kind::Request) };
        let options = Options { ird: 3, ord: 7, ..Options::default() };
        let (incoming, mut stream) = request(options, &bytes(&asked)).await;
        let qp = incoming.expect("a request").accept(b"", 100, 100).await.expect("accepted");
        assert_eq!((qp.caps().ird, qp.caps().ord), expected, "of {ird} and {ord}");
        let said = read_reply(&mut stream).await.enhanced.expect("enhanced, as asked");
        assert_eq!((u32::from(said.ird), u32::from(said.ord)), expected);
    }
    // Revision 1 does not negotiate them; the upper layer does.
    let options = Options { revision: 1, ird: 5, ord: 6, ..Options::default() };
    let (a, b) = connected(options).await;
    assert_eq!((a.caps().ird, a.caps().ord, b.caps().ird, b.caps().ord), (5, 6, 5, 6));
}

/// A peer that demands markers is refused, and the error tells why.
#[tokio::test]
async fn markers_are_refused() {
    let asked = Frame { markers: true, ..frame(Kind::Request) };
    let (refused, mut stream) = request(Options::default(), &bytes(&asked)).await;
    assert_eq!(refused.err(), Some(SetupError::Markers));
    let said = read_reply(&mut stream).await;
    assert!(said.reject && !said.markers);
    let asked = Frame { markers: true, revision: 2, ..frame(Kind::Reply) };
    assert_eq!(reply(Options::default(), &bytes(&asked)).await, Err(SetupError::Markers));
}

#[tokio::test]
async fn rejection_carries_private_data() {
    let (listener, addr) = listener(Options::default()).await;
    let refuse = async {
        let incoming = listener.accept().await.expect("accepted").request().await.expect("a request");
        incoming.reject(b"too many connections").await.expect("sent");
    };
    let (connected, ()) = tokio::join!(connect(addr, Env::real(), b"", Options::default()), refuse);
    assert_eq!(connected.err(), Some(SetupError::Rejected(b"too many connections".to_vec())));
}

#[tokio::test]
async fn what_is_no_frame() {
    let refused = async |bytes: &[u8]| request(Options::default(), bytes).await.0.err();
    let http = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    assert_eq!(refused(http).await, Some(SetupError::Frame(FrameError::Key)));
    assert_eq!(refused(&bytes(&frame(Kind::Reply))).await, Some(SetupError::Frame(FrameError::Key)));
    let mut future = bytes(&frame(Kind::Request));
    future[17] = 3;
    assert_eq!(refused(&future).await, Some(SetupError::Frame(FrameError::Revision(3))));
    let mut long = bytes(&frame(Kind::Request));
    long[18] = 0x02;
    long[19] = 0x01;
    assert_eq!(refused(&long).await, Some(SetupError::Frame(FrameError::PrivateData(513))));
    let none = Enhanced { ird: 1, ord: 1, peer_to_peer: true, ready: Ready::default() };
    let asked = Frame { revision: 2, enhanced: Some(none), ..frame(Kind::Request) };
    assert_eq!(refused(&bytes(&asked)).await, Some(SetupError::Ready));
    let garbage = reply(Options::default(), &[0xFF; 40]).await;
    assert_eq!(garbage, Err(SetupError::Frame(FrameError::Key)));
    let older = reply(Options::default(), &bytes(&frame(Kind::Reply))).await;
    assert_eq!(older, Err(SetupError::Revision(1)));
    let too_much = connect(ANY, Env::real(), &[0; PRIVATE_MAX], Options::default()).await;
    assert!(too_much.is_err());
}

/// A frame truncated anywhere ends that connection, and the next one is served.
#[tokio::test]
async fn truncated_frames() {
    let (listener, addr) = listener(Options::default()).await;
    let whole = bytes(&Frame { private_data: vec![1; 8], ..frame(Kind::Request) });
    for len in 0..whole.len() {
        let mut stream = TcpStream::connect(addr).await.expect("connected");
        stream.write_all(&whole[..len]).await.expect("written");
        drop(stream);
        let incoming = listener.accept().await.expect("accepted").request().await;
        assert_eq!(incoming.err(), Some(SetupError::Transport(std::io::ErrorKind::UnexpectedEof)), "{len}");
    }
    let mut stream = TcpStream::connect(addr).await.expect("connected");
    stream.write_all(&whole).await.expect("written");
    let incoming = listener.accept().await.expect("accepted").request().await.expect("a request");
    assert_eq!(incoming.private_data, [1; 8]);
}

/// A peer that sends nothing is disconnected after the deadline, and others are served in the meantime.
#[tokio::test]
async fn a_silent_peer_delays_no_other_peer() {
    let (listener, addr) =
        listener(Options { setup_timeout: Duration::from_millis(1500), ..Options::default() }).await;
    let _silent = TcpStream::connect(addr).await.expect("connected");
    let waiting = tokio::spawn(listener.accept().await.expect("accepted").request());
    let serve = async {
        let incoming = listener.accept().await.expect("accepted").request().await.expect("a request");
        incoming.accept(b"", 1, 1).await.expect("accepted")
    };
    let options = Options { setup_timeout: Duration::from_secs(10), ..Options::default() };
    let (connected, _qp) = tokio::join!(connect(addr, Env::real(), b"", options), serve);
    assert!(connected.is_ok());
    assert_eq!(waiting.await.expect("no panic").err(), Some(SetupError::TimedOut));
}

/// Garbage on an established connection ends it with a Terminate.
#[tokio::test]
async fn garbage_on_an_established_connection() {
    let (incoming, mut stream) = request(Options::default(), &bytes(&frame(Kind::Request))).await;
    let mut qp = incoming.expect("a request").accept(b"", 1, 1).await.expect("accepted");
    read_reply(&mut stream).await;
    stream.write_all(&[0xFF; 3000]).await.expect("written");
    let mut out = Vec::new();
    let down = std::future::poll_fn(|cx| qp.poll(cx, &mut out)).await;
    assert!(matches!(down, Err(Down::Protocol { .. })), "{down:?}");
    let mut said = vec![0; 20];
    stream.read_exact(&mut said).await.expect("a Terminate");
    assert_eq!(said[3], 0x47);
}
