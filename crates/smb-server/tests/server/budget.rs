//! One memory budget for a thousand clients: every request is answered, and requests that free memory always make
//! progress.

use std::sync::Arc;
use std::time::Duration;

use env::Env;
use smb_server::Limits;
use smb_wire::msg::{CloseRequest, ReadResponse, WriteResponse};
use smb_wire::{Command, Decode, NtStatus};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::raw::{Raw, charge};
use crate::world::World;

const BUDGET: usize = 64 << 20;
const CLIENTS: usize = 1000;
/// Lengths of the I/Os, in bytes; each client begins at another place in the list.
const SIZES: [u32; 8] = [1 << 20, 512, 65_536, 65_537, 4096, 300_001, 16_384, 150_000];
/// Bytes of a part of the file, and how many there are; clients with the same part write the same there.
const PART: u64 = 2 << 20;
const PARTS: usize = 64;

/// The data that a client writes to its part of the file, which begins at `offset`.
fn pattern(offset: u64, length: u32) -> Vec<u8> {
    let salt = (offset / PART) as u8;
    let mut bytes = vec![salt; length as usize];
    for (i, b) in bytes.iter_mut().step_by(509).enumerate() {
        *b = salt.wrapping_add(i as u8).wrapping_mul(31);
    }
    bytes
}

/// Sends as fast as credits are granted, and checks every answer: a WRITE of every length, then a READ of every length.
async fn work(world: &World, raw: &mut Raw, number: usize) {
    let file = raw.open("shared").await;
    for writes in [true, false] {
        let base = (number % PARTS) as u64 * PART;
        let turns: Vec<(u64, u32)> = (0..SIZES.len())
            .scan(base, |at, i| {
                let length = SIZES[(number + i) % SIZES.len()];
                let offset = *at;
                *at += u64::from(length);
                Some((offset, length))
            })
            .collect();
        let (mut sent, mut answered) = (0, 0);
        let mut order = Vec::new();
        while answered < turns.len() {
            let mut out = Vec::new();
            while let Some(&(offset, length)) = turns.get(sent)
                && u32::from(charge(length)) <= raw.credits
            {
                order.push((raw.next_id(), offset, length));
                out.extend(if writes {
                    raw.write(file, offset, &pattern(base, length))
                } else {
                    raw.read(file, offset, length)
                });
                sent += 1;
            }
            assert!(sent > answered, "a client was left without credits for its next I/O: {}", raw.credits);
            // Answers are taken while requests are sent: neither side waits for the other.
            let (mut from, mut to) = raw.stream.split();
            let (_, first) = tokio::join!(
                async { to.write_all(&out).await.expect("taken") },
                crate::raw::message(&mut from),
            );
            let mut message = first;
            loop {
                let (header, m) = message.expect("an answer");
                raw.take_credits(&header);
                if header.status != NtStatus::PENDING {
                    assert_eq!(header.status, NtStatus::SUCCESS);
                    let at = order.iter().position(|o| o.0 == header.message_id).expect("asked for");
                    let (_, _, length) = order.swap_remove(at);
                    if writes {
                        assert_eq!(WriteResponse::decode(&m).expect("sound").count, length);
                    } else {
                        let body = ReadResponse::decode(&m).expect("sound");
                        assert!(body.data(&m).expect("there") == pattern(base, length), "other data");
                    }
                    answered += 1;
                    break;
                }
                message = crate::raw::message(&mut raw.stream).await;
            }
            let usage = world.arena.usage();
            assert!(usage.used <= BUDGET, "{usage:?}");
        }
    }
    let (header, _) = raw
        .call(Command::CLOSE, &CloseRequest { file_id: file, ..CloseRequest::default() })
        .await
        .expect("an answer");
    assert_eq!(header.status, NtStatus::SUCCESS);
}

#[tokio::test]
async fn a_thousand_clients_on_64_mib() {
    let world = Arc::new(World::new(Env::real(), BUDGET, Limits::default()));
    let mut witness = Raw::session(world.dial().await.0).await;
    witness.tree("ram").await;
    assert_eq!(witness.echo().await, Some(NtStatus::SUCCESS));
    let baseline = world.arena.usage().used;
    let gate = Arc::new(Semaphore::new(0));
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..CLIENTS {
        let (stream, serving) = world.dial().await;
        let mut raw = Raw::session(stream).await;
        raw.tree("ram").await;
        let (world, gate, done) = (Arc::clone(&world), Arc::clone(&gate), done.clone());
        tokio::spawn(async move {
            let _permit = gate.acquire().await.expect("open");
            work(&world, &mut raw, number).await;
            drop(raw);
            serving.await.expect("served");
            done.send(()).expect("somebody waits");
        });
    }
    drop(done);
    gate.add_permits(CLIENTS);
    // Another connection at the same time: requests that need no payload memory are answered, however little memory is
    // left.
    let (mut left, mut peak, mut waited, mut answers) = (CLIENTS, 0, false, 0);
    let mut moved = (0, Instant::now());
    while left > 0 {
        let usage = world.arena.usage();
        peak = peak.max(usage.used);
        waited |= usage.waiting > 0;
        let patience = Duration::from_secs(60);
        let file = tokio::time::timeout(patience, witness.open("witness")).await.expect("CREATE is answered");
        let close = CloseRequest { file_id: file, ..CloseRequest::default() };
        let closed = tokio::time::timeout(patience, witness.call(Command::CLOSE, &close)).await;
        assert_eq!(closed.expect("CLOSE is answered").expect("open").0.status, NtStatus::SUCCESS);
        let echo = tokio::time::timeout(patience, witness.echo()).await;
        assert!(
            echo.is_ok(),
            "ECHO is not answered: {:?} {:?}, {left} left",
            world.arena.usage(),
            world.server.totals()
        );
        assert_eq!(echo.expect("ECHO is answered"), Some(NtStatus::SUCCESS));
        answers += 1;
        while finished.try_recv().is_ok() {
            left -= 1;
        }
        let now = world.server.totals();
        if now.reads + now.writes != moved.0 {
            moved = (now.reads + now.writes, Instant::now());
        }
        assert!(moved.1.elapsed() < patience, "{left} clients wait for ever: {usage:?}, {now:?}");
        assert!(!finished.is_closed() || left == 0, "a client failed");
    }
    assert!(peak > BUDGET / 2 && waited, "memory was never short: at most {peak} bytes used");
    assert!(answers > 10, "the witness was answered {answers} times");
    assert_eq!(world.server.totals().connections, 1);
    assert_eq!(world.arena.usage().used, baseline);
}
