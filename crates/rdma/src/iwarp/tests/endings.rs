//! The end of a connection on a real socket with an unresponsive peer.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use arena::IoBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::hostile::{self, TERMINATE};
use super::loopback::ANY;
use super::*;
use crate::activity::Role;
use crate::iwarp::IwarpQueuePair;
use crate::iwarp::ddp::Header;
use crate::{Down, QueuePair, Remote, Stag};

const LINGER: Duration = Duration::from_millis(500);

/// A queue pair, and the raw socket of its peer.
async fn half() -> (IwarpQueuePair, TcpStream) {
    let listener = TcpListener::bind(ANY).await.expect("a port");
    let at = listener.local_addr().expect("bound");
    let (ours, theirs) = tokio::join!(listener.accept(), TcpStream::connect(at));
    let (ours, peer) = ours.expect("accepted");
    let qp = IwarpQueuePair::new(ours, peer, Env::real(), config(), LINGER, Role::Accepted);
    (qp, theirs.expect("connected"))
}

/// Polls until the queue pair is down; returns the reason and the number of polls.
async fn down(qp: &mut IwarpQueuePair) -> (Down, usize) {
    let (mut done, mut polls) = (Vec::new(), 0);
    let why = poll_fn(|cx| {
        polls += 1;
        loop {
            match qp.poll(cx, &mut done) {
                Poll::Ready(Err(why)) => return Poll::Ready(why),
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    (why, polls)
}

/// The operation codes of a queue pair's output.
fn opcodes(said: &[u8]) -> Vec<u8> {
    let header = |f: &&[u8]| Header::parse(&f[2..]).expect("version 1").expect("a header").0.control();
    fpdus(said).iter().map(header).collect()
}

/// While a Terminate cannot be sent because the peer does not read, the queue pair waits without polling.
#[tokio::test]
async fn a_terminate_that_cannot_leave() {
    let (mut qp, mut peer) = half().await;
    let src: arena::Sg = [IoBuf::from(vec![1; 32 << 20])].into_iter().collect();
    let to = Remote { stag: Stag(9), offset: 0, length: 32 << 20 };
    qp.post(WrId(1), Wr::Write { src, to }).map_err(|(e, _)| e).expect("room");
    let mut done = Vec::new();
    // The socket is full.
    let full = tokio::time::timeout(Duration::from_millis(300), poll_fn(|cx| qp.poll(cx, &mut done)));
    assert!(full.await.is_err());
    peer.write_all(&hostile::unknown_tag()).await.expect("taken");
    let env = Env::real();
    let began = env.now();
    let (why, polls) = down(&mut qp).await;
    assert!(matches!(why, Down::Protocol { .. }), "{why:?}");
    let took = env.now() - began;
    assert!(took >= LINGER && polls < 50, "{polls} polls in {took:?}");
}

/// The Terminate reaches a peer that continues to send. A socket closed with unread bytes would reset the
/// connection, and the Terminate would be lost.
#[tokio::test]
async fn a_terminate_outlives_what_comes_after_the_offence() {
    for _ in 0..5 {
        let (mut qp, mut peer) = half().await;
        let mut stream = hostile::unknown_tag();
        stream.resize(3 << 20, 0);
        let ended = tokio::spawn(async move {
            let why = down(&mut qp).await.0;
            drop(qp);
            why
        });
        let (mut from, mut to) = peer.split();
        to.write_all(&stream).await.expect("all is taken");
        tokio::time::sleep(Duration::from_millis(50)).await;
        to.shutdown().await.expect("still connected");
        let mut said = Vec::new();
        from.read_to_end(&mut said).await.expect("no reset");
        assert_eq!(opcodes(&said), [TERMINATE]);
        assert!(matches!(ended.await.expect("no panic"), Down::Protocol { .. }));
    }
}

/// So do the last responses. If the peer never closes its side, the socket is closed after the linger time.
#[tokio::test]
async fn what_is_queued_last_arrives() {
    let (mut qp, mut peer) = half().await;
    let arena = memory();
    let sg: arena::Sg = [IoBuf::from(vec![7; 100])].into_iter().collect();
    qp.post(WrId(2), Wr::Send { sg, invalidate: None }).map_err(|(e, _)| e).expect("room");
    qp.close();
    assert_eq!(down(&mut qp).await.0, Down::Closed);
    drop(qp);
    // The queue pair no longer reads this.
    peer.write_all(&hostile::message(b"too late")).await.expect("taken");
    let mut said = Vec::new();
    peer.read_to_end(&mut said).await.expect("no reset");
    assert_eq!(opcodes(&said), [0x43]);
    assert_eq!(arena.usage().used, 0);
    let env = Env::real();
    let began = env.now();
    while peer.write_all(&[0; 1000]).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(env.now() - began < 4 * LINGER, "the socket is never closed");
    }
}
