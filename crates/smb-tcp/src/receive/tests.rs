use std::collections::VecDeque;
use std::future::poll_fn;

use arena::{Arena, Class, IoBufMut, Pipes, Sg, sg_to_vec};
use smb_wire::{Command, Header, HeaderFlags, frame};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::pipe::{PIPE_MIN, WRITE_HEAD};
use super::{ReadOutcome, Receiver};
use crate::End;

const MIB: usize = 1 << 20;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.expect("connected"), server.expect("accepted").0)
}

/// A message in which adjacent bytes differ, and its framed form.
fn message(length: usize, seed: u8) -> (Vec<u8>, Vec<u8>) {
    let body: Vec<u8> = (0..length).map(|i| (i % 251) as u8 ^ seed).collect();
    let framed = [&frame::encode(length).expect("short enough")[..], &body].concat();
    (body, framed)
}

/// Reads until a message is complete.
async fn next(receiver: &mut Receiver, stream: &mut TcpStream, out: &mut VecDeque<Sg>) -> Vec<u8> {
    loop {
        if let Some(message) = out.pop_front() {
            return sg_to_vec(&message);
        }
        let filled = poll_fn(|cx| receiver.poll(cx, stream, MIB, out)).await.expect("the stream is in order");
        assert_eq!(filled, ReadOutcome::Bytes);
    }
}

/// Allocates all of the payload memory, in pieces of two pages.
fn take_all(arena: &Arena) -> Vec<IoBufMut> {
    std::iter::from_fn(|| arena.try_alloc(8192, Class::Payload)).collect()
}

/// The receiver waits for an amount of memory. It may get it in pieces, also for a message shorter than a chunk.
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
                polled.map(|filled| assert_eq!(filled.expect("in order"), ReadOutcome::Bytes))
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

/// A WRITE of `length` bytes: its message, and its framed form.
fn write(length: usize, seed: u8, flags: HeaderFlags) -> (Vec<u8>, Vec<u8>) {
    let mut body = Vec::new();
    Header { command: Command::WRITE, flags, ..Header::default() }.encode(&mut body);
    body.extend_from_slice(&49u16.to_le_bytes());
    body.extend_from_slice(&112u16.to_le_bytes());
    body.extend_from_slice(&(length as u32).to_le_bytes());
    body.resize(112, 0);
    body.extend((0..length).map(|i| (i % 251) as u8 ^ seed));
    let framed = [&frame::encode(body.len()).expect("short enough")[..], &body].concat();
    (body, framed)
}

struct Piping {
    arena: Arena,
    client: TcpStream,
    server: TcpStream,
    receiver: Receiver,
    out: VecDeque<Sg>,
}

impl Piping {
    /// Receives one large plain WRITE, so that the next one goes into a pipe.
    async fn begin(most: usize) -> Piping {
        let arena = Arena::new(8 * MIB).expect("a small mapping");
        let (client, server) = pair().await;
        let mut receiver = Receiver::new(arena.clone(), End::Server);
        receiver.use_pipes(Some(&Pipes::new(most)));
        let mut piping = Piping { arena, client, server, receiver, out: VecDeque::new() };
        let (first, framed) = write(PIPE_MIN, 1, HeaderFlags::empty());
        assert_eq!(piping.exchange(&framed, 0).await, (first, false));
        piping
    }

    /// Sends `framed`, the first `slow` bytes of its payload one by one. Returns the message, and whether its
    /// payload was in a pipe.
    async fn exchange(&mut self, framed: &[u8], slow: usize) -> (Vec<u8>, bool) {
        let Piping { client, server, receiver, out, .. } = self;
        let mut at = 0;
        for end in (WRITE_HEAD..WRITE_HEAD + slow).chain([framed.len()]) {
            let received = receiver.received();
            let sending = async {
                client.write_all(&framed[at..end]).await.expect("sent");
            };
            let step = (end - at) as u64;
            let receiving = async {
                while receiver.received() < received + step {
                    poll_fn(|cx| {
                        let polled = receiver.poll(cx, server, MIB, out);
                        if receiver.received() == received + step {
                            return std::task::Poll::Ready(());
                        }
                        polled.map(|filled| assert_eq!(filled.expect("in order"), ReadOutcome::Bytes))
                    })
                    .await;
                }
            };
            tokio::join!(sending, receiving);
            at = end;
        }
        assert!(self.receiver.is_idle(), "it is whole");
        let mut message = sg_to_vec(&self.out.pop_front().expect("a message"));
        assert!(self.out.is_empty());
        let piped = self.receiver.take_piped();
        let was = piped.is_some();
        if let Some(piped) = piped {
            assert_eq!(message.len(), 112, "the head");
            message.extend(sg_to_vec(&piped.into_bytes().expect("read")));
        }
        (message, was)
    }
}

#[tokio::test]
async fn payload_goes_into_a_pipe_in_one_piece_and_in_many() {
    let mut piping = Piping::begin(1).await;
    for slow in [0, 1, 2, 60] {
        let (body, framed) = write(PIPE_MIN + 77, 3, HeaderFlags::empty());
        let got = piping.exchange(&framed, slow).await;
        assert!(got == (body, true), "{slow} bytes one by one");
    }
    // A short WRITE in between is received as usual, and makes the next large one go into memory.
    for (length, into_pipe) in [(10, false), (PIPE_MIN, false), (PIPE_MIN, true)] {
        let (body, framed) = write(length, 5, HeaderFlags::empty());
        assert!(piping.exchange(&framed, 0).await == (body, into_pipe), "{length}");
    }
    assert_eq!(piping.arena.usage().used, 0);
}

/// Each byte that arrives alone takes a slot of the pipe. When all are taken, the remainder and later payloads go
/// into memory.
#[tokio::test]
async fn a_pipe_that_is_full_is_emptied_into_memory() {
    let mut piping = Piping::begin(1).await;
    for slow in [400, 0, 0] {
        let (body, framed) = write(PIPE_MIN, 3, HeaderFlags::empty());
        let got = piping.exchange(&framed, slow).await;
        assert!(got == (body, false), "{slow} bytes one by one");
    }
}

#[tokio::test]
async fn what_must_be_seen_or_has_no_pipe_goes_into_memory() {
    let mut piping = Piping::begin(1).await;
    let (body, framed) = write(PIPE_MIN, 3, HeaderFlags::SIGNED);
    assert!(piping.exchange(&framed, 0).await == (body, false));

    let mut piping = Piping::begin(0).await;
    for _ in 0..2 {
        let (body, framed) = write(PIPE_MIN, 3, HeaderFlags::empty());
        assert!(piping.exchange(&framed, 0).await == (body, false));
    }
}

/// Refusing a WRITE drops its payload: the stream stays in step.
#[tokio::test]
async fn an_unclaimed_payload_is_dropped() {
    let mut piping = Piping::begin(1).await;
    for seed in 3..6 {
        let (body, framed) = write(PIPE_MIN, seed, HeaderFlags::empty());
        let Piping { client, server, receiver, out, .. } = &mut piping;
        let (_, got) = tokio::join!(client.write_all(&framed), next(receiver, server, out));
        assert!(got == body[..112]);
        drop(receiver.take_piped().expect("its payload"));
    }
    let (body, framed) = write(PIPE_MIN, 9, HeaderFlags::empty());
    assert!(piping.exchange(&framed, 0).await == (body, true));
}
