use std::collections::VecDeque;
use std::future::poll_fn;

use arena::{Arena, Class, IoBufMut, Sg, sg_to_vec};
use smb_wire::frame;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{Filled, Receiver};
use crate::End;

const MIB: usize = 1 << 20;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.expect("connected"), server.expect("accepted").0)
}

/// A message that no two bytes next to each other are equal in, and its framed form.
fn message(length: usize, seed: u8) -> (Vec<u8>, Vec<u8>) {
    let body: Vec<u8> = (0..length).map(|i| (i % 251) as u8 ^ seed).collect();
    let framed = [&frame::encode(length).expect("short enough")[..], &body].concat();
    (body, framed)
}

/// Reads until there is a message.
async fn next(receiver: &mut Receiver, stream: &mut TcpStream, out: &mut VecDeque<Sg>) -> Vec<u8> {
    loop {
        if let Some(message) = out.pop_front() {
            return sg_to_vec(&message);
        }
        let filled = poll_fn(|cx| receiver.poll(cx, stream, MIB, out)).await.expect("the stream is in order");
        assert_eq!(filled, Filled::Some);
    }
}

/// All of the payload memory, in pieces of two pages.
fn take_all(arena: &Arena) -> Vec<IoBufMut> {
    std::iter::from_fn(|| arena.try_alloc(8192, Class::Payload)).collect()
}

/// What is waited for is an amount: it may come in pieces, and a message that is shorter than a chunk takes it so.
#[tokio::test]
async fn memory_that_was_waited_for_may_be_scattered() {
    for first in [4, 5, 4000] {
        let arena = Arena::new(4 * MIB).expect("a small mapping");
        let (mut client, mut server) = pair().await;
        let mut receiver = Receiver::new(arena.clone(), End::Server);
        let mut out = VecDeque::new();
        let mut held = take_all(&arena);
        let (one, framed) = message(MIB / 2, 7);
        let (two, framed_two) = message(100, 9);

        client.write_all(&framed[..first]).await.expect("sent");
        while !receiver.waits_for_memory() {
            poll_fn(|cx| {
                let polled = receiver.poll(cx, &mut server, MIB, &mut out);
                if receiver.waits_for_memory() {
                    return std::task::Poll::Ready(());
                }
                polled.map(|filled| assert_eq!(filled.expect("in order"), Filled::Some))
            })
            .await;
        }
        let mut number = 0;
        held.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        assert!(arena.try_alloc(MIB / 2, Class::Payload).is_none(), "it is not in one piece");

        let sending = async {
            client.write_all(&framed[first..]).await.expect("sent");
            client.write_all(&framed_two).await.expect("sent");
        };
        let receiving = async {
            assert!(next(&mut receiver, &mut server, &mut out).await == one);
            assert!(next(&mut receiver, &mut server, &mut out).await == two);
        };
        tokio::join!(sending, receiving);
        assert!(receiver.is_idle());
    }
}
