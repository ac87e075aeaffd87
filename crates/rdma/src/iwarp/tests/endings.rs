//! How a connection ends on a real socket, with a peer that does not do its part.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use arena::IoBuf;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::hostile;
use super::loopback::ANY;
use super::*;
use crate::activity::Made;
use crate::iwarp::IwarpQueuePair;
use crate::{Down, QueuePair, Remote, Stag};

const LINGER: Duration = Duration::from_millis(500);

/// A queue pair, and the bare socket of its peer.
async fn half() -> (IwarpQueuePair, TcpStream) {
    let listener = TcpListener::bind(ANY).await.expect("a port");
    let at = listener.local_addr().expect("bound");
    let (ours, theirs) = tokio::join!(listener.accept(), TcpStream::connect(at));
    let (ours, peer) = ours.expect("accepted");
    let qp = IwarpQueuePair::new(ours, peer, Env::real(), config(), LINGER, Made::Accepted);
    (qp, theirs.expect("connected"))
}

/// Polls until it is down; how often that was.
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

/// A Terminate that cannot leave, as the peer reads nothing, is waited for without a turn of the processor.
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
